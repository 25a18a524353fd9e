"""The tasks of 2025-11-25, for clients that speak them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import Gate, private_home
from tests.mcp.raw_client import RawClient


def test_a_task_of_the_older_version_is_created_polled_and_read(tmp_path: Path) -> None:
    def writer(request: Any) -> Any:
        results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
        return results[-1].text if results else call("write", path="made.txt", content="hello")

    with private_home(tmp_path, writer) as home, RawClient(home) as client:
        offered = client.initialize("2025-11-25", elicitation={})["capabilities"]
        assert offered["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        tools = {tool["name"]: tool for tool in client.ask("tools/list")["tools"]}
        assert tools["delegate"]["execution"] == {"taskSupport": "optional"}
        assert "execution" not in tools["agents"]
        params = {**client.call_of("delegate", tasks=["write"]), "task": {"ttl": 60_000}}
        task = client.ask("tools/call", params)["task"]
        assert task["status"] in ("working", "input_required") and task["pollInterval"] == 1000
        id = client.post("tasks/result", {"taskId": task["taskId"]})
        question = client.asked.get(timeout=60)
        assert question["method"] == "elicitation/create"
        assert question["params"]["_meta"] == {
            "io.modelcontextprotocol/related-task": {"taskId": task["taskId"]}
        }
        client.answer(question, {"action": "accept", "content": {"allow": True}})
        result = client.reply(id)["result"]
        assert result["structuredContent"]["agents"][0]["state"] == "completed"
        assert (home.project / "made.txt").read_text() == "hello"
        assert client.ask("tasks/get", {"taskId": task["taskId"]})["status"] == "completed"
        assert client.error("tasks/cancel", {"taskId": task["taskId"]})["code"] == -32602


def test_a_task_of_the_older_version_can_be_cancelled(tmp_path: Path) -> None:
    gate = Gate("Done.")
    with private_home(tmp_path, gate) as home, RawClient(home) as client:
        client.initialize("2025-11-25")
        params = {**client.call_of("delegate", tasks=["think"]), "task": {}}
        task = client.ask("tools/call", params)["task"]
        assert gate.reached.wait(60)
        ended = client.ask("tasks/cancel", {"taskId": task["taskId"]})
        assert ended["status"] == "cancelled"
        assert client.error("tasks/update", {"taskId": task["taskId"]})["code"] == -32601


def test_versions_without_tasks_have_no_such_methods(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, RawClient(home) as client:
        assert "tasks" not in client.initialize("2025-06-18")["capabilities"]
        assert client.error("tasks/get", {"taskId": "x"})["code"] == -32601
