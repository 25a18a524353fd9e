"""Whoever is killed in the middle of a task: the client gets the result, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.private_home import Gate, private_home
from tests.mcp.raw_client import TASKS, RawClient, envelope, first_id

DECLARED = {"extensions": {TASKS: {}}}


@pytest.mark.parametrize("killed", ["server", "host", "both"])
def test_a_task_is_finished_whoever_is_killed(tmp_path: Path, killed: str) -> None:
    gate = Gate("The answer.")
    with private_home(tmp_path, gate) as home:
        client = RawClient(home)
        meta = envelope(DECLARED)
        task = client.tool("delegate", meta, tasks=["think"])
        assert (task["resultType"], task["status"]) == ("task", "working")
        assert gate.reached.wait(60)
        if killed in ("server", "both"):
            client.kill()
            client = RawClient(home)
        if killed in ("host", "both"):
            os.kill(home.host_pid(), signal.SIGKILL)
        get = {"taskId": task["taskId"], "_meta": meta}
        assert client.ask("tasks/get", get)["status"] == "working"
        gate.opened.set()
        reply = home.until(
            lambda: (reply := client.ask("tasks/get", get))["status"] == "completed" and reply
        )
        (agent,) = reply["result"]["structuredContent"]["agents"]
        assert (agent["state"], agent["text"]) == ("completed", "The answer.")
        assert client.ask("tasks/get", get)["result"] == reply["result"]
        listed = client.tool("agents", meta)["structuredContent"]["agents"]
        assert [a["id"] for a in listed] == [agent["id"]]
        assert client.close() == 0


def test_a_call_survives_the_death_of_the_host(tmp_path: Path) -> None:
    gate = Gate("The answer.")
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        client.initialize("2025-06-18")
        id = client.post("tools/call", client.call_of("delegate", tasks=["think"]))
        assert gate.reached.wait(60)
        os.kill(home.host_pid(), signal.SIGKILL)
        gate.opened.set()
        agents = client.reply(id)["result"]["structuredContent"]["agents"]
        assert [(a["state"], a["text"]) for a in agents] == [("completed", "The answer.")]
        assert len(client.tool("agents")["structuredContent"]["agents"]) == 1
        assert not client.twice


def test_a_client_that_comes_back_finds_its_agents_and_one_that_leaves_stops_none(
    tmp_path: Path,
) -> None:
    gate = Gate("The answer.")
    with private_home(tmp_path, gate) as home:
        with RawClient(home) as client:
            client.initialize("2025-06-18", name="editor")
            client.post("tools/call", client.call_of("delegate", tasks=["think"]))
            assert gate.reached.wait(60)
        with RawClient(home) as client:
            client.initialize("2025-06-18", name="editor")
            id = first_id(client.tool("agents", state="open"))
            gate.opened.set()
            assert client.tool("result", ids=[id])["structuredContent"]["agents"][0]["text"]


def test_a_request_that_is_cancelled_stops_its_agents(tmp_path: Path) -> None:
    gate = Gate("The answer.")
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        client.initialize("2025-06-18")
        id = client.post("tools/call", client.call_of("delegate", tasks=["think"]))
        assert gate.reached.wait(60)
        client.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})
        home.until(lambda: home.runs()[0]["state"] == "cancelled")
        assert not client.has_reply(id)
        agents = client.tool("agents")["structuredContent"]["agents"]
        assert agents[0]["state"] == "cancelled"


def test_a_result_that_is_not_there_yet_is_said_to_be_running(tmp_path: Path) -> None:
    gate = Gate("The answer.")
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        client.initialize("2025-06-18")
        id = first_id(client.tool("delegate", tasks=["think"], background=True))
        late = client.tool("result", ids=[id], wait_seconds=0.2)
        assert not late["isError"] and "still running" in late["content"][0]["text"]
        stopped = client.tool("cancel", ids=[id], reason="no need")
        assert stopped["structuredContent"]["agents"][0]["state"] == "cancelled"
        ended = client.tool("result", ids=[id])
        assert ended["isError"]
