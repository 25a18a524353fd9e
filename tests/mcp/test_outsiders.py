"""Clients that nobody would write on purpose: odd words in the arguments of tools, other names than
before, and requests that are taken back at every moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.private_home import Gate, PrivateHome, private_home
from tests.mcp.raw_client import TASKS, RawClient, envelope

TASKED = envelope({"extensions": {TASKS: {}}})
ENDS = ("completed", "failed", "cancelled", "timed_out", "interrupted")


def named(name: str) -> dict[str, Any]:
    meta = envelope()
    meta["io.modelcontextprotocol/clientInfo"] = {"name": name, "version": "1"}
    return meta


def test_odd_arguments_start_nothing_and_say_what_is_wrong(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, RawClient(home) as client:
        (home.project / "out").symlink_to("/etc")
        meta = envelope()
        odd: list[dict[str, Any]] = [
            *({"tasks": ["x"], "directory": one} for one in ("a\0b", "/etc", "out", "..", "~root")),
            *({"tasks": ["x"], "directory": one} for one in ("x" * 100_000, "\u2028")),
            *({"tasks": [one]} for one in ("", "  \n\t", "\0", "\u00a0", 5, None)),
            *({"tasks": ["x"], "agent": one} for one in ("../../etc/passwd", "\0", "x" * 100_000)),
            *({"tasks": ["x"], "model": one} for one in ("\0:\0", "x" * 100_000)),
            *({"tasks": ["x"], "max_tokens": one} for one in (0, -1, 10**30, 1.5)),
            {"tasks": ["x"] * 17},
            {"tasks": ["x"], "unknown": 1},
        ]
        for arguments in odd:
            result = client.tool("delegate", meta, **arguments)
            text = result["content"][0]["text"]
            assert result["isError"] and 0 < len(text) < 5_000, arguments
        for tool, arguments in (
            ("send", {"id": "x", "text": " "}),
            ("fork", {"id": "x", "task": "\n"}),
            ("result", {"ids": ["x" * 100_000]}),
            ("agents", {"state": "gone"}),
        ):
            result = client.tool(tool, meta, **arguments)
            assert result["isError"] and len(result["content"][0]["text"]) < 5_000
        assert client.tool("agents", meta)["structuredContent"] == {"agents": []}
    assert client.errors == b""


def test_another_name_is_no_other_guest_and_no_new_budget(tmp_path: Path) -> None:
    with (
        private_home(tmp_path) as home,
        RawClient(home, "--max-agents", "1", "--max-tokens", "9") as client,
    ):
        first = client.tool("delegate", named("one"), tasks=["x"], background=True)
        assert "budget" in first["content"][0]["text"]
        for name in ("two", "mcp:one", "one ", ""):
            again = client.tool("agents", named(name))["structuredContent"]["agents"]
            assert len(again) == 1


@pytest.mark.parametrize("meta", [TASKED, envelope()], ids=["as a task", "in a call"])
def test_a_request_that_is_taken_back_at_any_moment_leaves_no_agent(
    tmp_path: Path, meta: dict[str, Any]
) -> None:
    with private_home(tmp_path, Gate()) as home, RawClient(home, "--max-agents", "100") as client:
        client.tool("agents", meta)  # the host is there
        for n in range(12):
            id = client.post("tools/call", client.call_of("delegate", meta, tasks=["x", "y", "z"]))
            time.sleep(0.01 * n)
            client.notify("notifications/cancelled", {"requestId": id})
            client.tool("agents", meta)
            if client.has_reply(id):  # it came first
                result = client.reply(id)["result"]
                client.ask("tasks/cancel", {"taskId": result["taskId"], "_meta": TASKED})

        def is_over() -> bool:
            runs = home.runs()  # all tasks of a call, or none
            return all(run["state"] in ENDS for run in runs) and len(runs) % 3 == 0

        assert home.until(is_over)


def test_a_client_that_vanishes_ends_its_server_and_none_of_its_agents(tmp_path: Path) -> None:
    gate = Gate("Answer.")
    with private_home(tmp_path, gate) as home:
        meta = envelope()

        def half_a_line(client: RawClient) -> None:
            client.write(b'{"jsonrpc": "2.0", "id": 1')

        def in_a_call(client: RawClient) -> None:
            client.post("tools/call", client.call_of("delegate", meta, tasks=["wait"]))
            assert gate.reached.wait(60)

        def asked_for_roots(client: RawClient) -> None:
            client.initialize(roots={})
            client.post("tools/call", client.call_of("delegate", tasks=["never started"]))
            client.asked.get(timeout=60)

        def without_reading(client: RawClient) -> None:
            for n in range(2_000):
                client.post("tools/list", {"_meta": meta}, id=n)

        for state in (half_a_line, in_a_call, asked_for_roots, without_reading):
            assert _vanished(home, state) == 0
        gate.opened.set()
        home.until(lambda: [run["state"] for run in home.runs()] == ["completed"])


def _vanished(home: PrivateHome, state: Any) -> int:
    client = RawClient(home)
    state(client)
    return client.close()
