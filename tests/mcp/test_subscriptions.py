"""Clients are told what changes, in both eras, and nothing that they did not ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.private_home import Gate, PrivateHome, private_home
from tests.mcp.raw_client import PREFIX, TASKS, RawClient, envelope, first_id

SUBSCRIPTION = f"{PREFIX}subscriptionId"
UPDATED = "notifications/resources/updated"


def notes(client: RawClient, method: str) -> list[dict[str, Any]]:
    return [note["params"] for note in list(client.notes) if note["method"] == method]


def listening(
    client: RawClient, home: PrivateHome, meta: dict[str, Any], **notifications: Any
) -> Any:
    """The id of a stream that is open, and what of it is honored."""
    id = client.post("subscriptions/listen", {"_meta": meta, "notifications": notifications})
    name = "notifications/subscriptions/acknowledged"
    (first,) = home.until(
        lambda: [n for n in notes(client, name) if n["_meta"] == {SUBSCRIPTION: id}]
    )
    return id, first["notifications"]


def test_a_stream_tells_the_states_of_a_task_up_to_its_end(tmp_path: Path) -> None:
    gate, meta = Gate("The answer."), envelope({"extensions": {TASKS: {}}})
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        task = client.tool("delegate", meta, tasks=["think"])["taskId"]
        assert gate.reached.wait(60)
        target = {"taskIds": [task, "unknown"], "toolsListChanged": True}
        id, honored = listening(client, home, meta, **target)
        assert honored == {"taskIds": [task]}
        home.until(lambda: notes(client, "notifications/tasks"))
        gate.opened.set()
        home.until(lambda: notes(client, "notifications/tasks")[-1]["status"] == "completed")
        text = notes(client, "notifications/tasks")
        assert text[0]["status"] == "working"
        assert all(n["taskId"] == task and n["_meta"] == {SUBSCRIPTION: id} for n in text)
        assert text[-1]["result"]["structuredContent"]["agents"][0]["text"] == "The answer."
        assert not client.has_reply(id)
        client.notify("notifications/cancelled", {"requestId": id})
        assert client.tool("agents", meta) and not client.has_reply(id)


def test_a_stream_tells_of_conversations_and_refuses_what_is_no_filter(tmp_path: Path) -> None:
    gate, meta = Gate("The answer."), envelope()
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        run = first_id(client.tool("delegate", meta, tasks=["think"], background=True))
        uri = f"retinue://runs/{run}/transcript"
        other = uri.replace(run[-4:], "0000")
        id, honored = listening(client, home, meta, resourceSubscriptions=[uri, other])
        assert honored == {"resourceSubscriptions": [uri]}
        gate.opened.set()
        home.until(lambda: notes(client, UPDATED))
        assert notes(client, UPDATED)[0] == {"uri": uri, "_meta": {SUBSCRIPTION: id}}
        for wrong, code in (
            (None, -32602),
            ({"taskIds": "x"}, -32602),
            ({"resourceSubscriptions": [uri] * 101}, -32602),
            ({"taskIds": ["x"]}, -32021),
        ):
            params = {"_meta": meta, "notifications": wrong}
            assert client.error("subscriptions/listen", params)["code"] == code, wrong


def test_the_older_version_is_told_on_its_connection(tmp_path: Path) -> None:
    gate = Gate("The answer.")
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        offered = client.initialize("2025-11-25")["capabilities"]
        assert offered["resources"] == {"subscribe": True}
        params = {**client.call_of("delegate", tasks=["think"]), "task": {}}
        task = client.ask("tools/call", params)["task"]
        assert gate.reached.wait(60)
        uri = f"retinue://runs/{task['taskId'].rpartition('.')[0]}/transcript"
        assert client.ask("resources/subscribe", {"uri": uri}) == {}
        assert client.error("resources/subscribe", {"uri": "retinue://x"})["code"] == -32002
        assert client.error("subscriptions/listen", {"notifications": {}})["code"] == -32601
        gate.opened.set()
        status = "notifications/tasks/status"
        home.until(lambda: [n for n in notes(client, status) if n["status"] == "completed"])
        assert {n["taskId"] for n in notes(client, status)} == {task["taskId"]}
        home.until(lambda: notes(client, UPDATED))
        assert client.ask("resources/unsubscribe", {"uri": uri}) == {}
