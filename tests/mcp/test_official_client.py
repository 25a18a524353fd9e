"""The official client gets its sub-agents, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult, ElicitResult

from retinue.testing import call
from tests.cli.private_home import private_home
from tests.mcp.official_client import ERAS, Tasks, official

WRITE = call("write", path="made.txt", content="hello")
NAMES = ["delegate", "agents", "result", "send", "cancel", "fork", "answer"]


def writer(request: Any) -> Any:
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return results[-1].text if results else WRITE


async def agent(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult) and not result.is_error, result
    results: dict[str, Any] = result.structured_content["agents"][0]
    return results


@pytest.mark.parametrize("mode", ERAS)
def test_a_client_delegates_reads_and_continues(tmp_path: Path, mode: str) -> None:
    async def main() -> None:
        async with official(home, mode) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == NAMES
            result = await agent(client, "delegate", tasks=["say it"])
            assert (result["state"], result["text"]) == ("completed", "Done.")
            assert await agent(client, "result", ids=[result["id"]]) == result
            listed = await agent(client, "agents")
            assert (listed["id"], listed["turns"]) == (result["id"], 1)
            again = await agent(client, "send", id=result["id"], text="and again")
            assert again["id"] != result["id"]
            assert (await agent(client, "result", ids=[again["id"]]))["text"] == "Done."
            fork = await agent(client, "fork", id=result["id"], task="otherwise")
            assert (fork["state"], fork["text"]) == ("completed", "Done.")
            uri = f"retinue://runs/{result['id']}/transcript"
            (content,) = (await client.read_resource(uri)).contents
            assert "say it" in content.text and "Done." in content.text
            assert uri in [str(r.uri) for r in (await client.list_resources()).resources]
            prompt = await client.get_prompt("delegate", {"goal": "a release"})
            assert "a release" in prompt.messages[0].content.text

    with private_home(tmp_path) as home:
        asyncio.run(main())


def test_a_client_that_tries_the_newest_version_first_gets_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with official(home, "auto") as client:
            assert client.protocol_version == "2026-07-28"
            assert client.server_info.name == "retinue"

    with private_home(tmp_path) as home:
        asyncio.run(main())


@pytest.mark.parametrize("mode", ERAS)
def test_several_tasks_run_at_once_and_progress_is_told(tmp_path: Path, mode: str) -> None:
    texts: list[tuple[float, str]] = []

    async def progress(result: float, total: float | None, message: str | None) -> None:
        texts.append((result, message or ""))

    async def main() -> None:
        async with official(home, mode) as client:
            tasks = ["one", "two", "three"]
            result = await client.call_tool(
                "delegate", {"tasks": tasks}, progress_callback=progress
            )
            agents = result.structured_content["agents"]
            assert [a["state"] for a in agents] == ["completed"] * 3

    async def slow(request: Any) -> str:
        await asyncio.sleep(1.5)
        return "Done."

    with private_home(tmp_path, slow) as home:
        asyncio.run(main())
    amounts = [results for results, _ in texts]
    assert amounts == sorted(set(amounts)) and amounts
    assert "0 of 3 done · one: turn" in texts[0][1]


@pytest.mark.parametrize("mode", ERAS)
def test_the_user_is_asked_what_an_agent_asks(tmp_path: Path, mode: str) -> None:
    questions: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult(action="accept", content={"allow": True})

    async def main() -> None:
        async with official(home, mode, elicitation_callback=elicit) as client:
            result = await agent(client, "delegate", tasks=["write it"])
            assert result["state"] == "completed"

    with private_home(tmp_path, writer) as home:
        asyncio.run(main())
        assert (home.project / "made.txt").read_text() == "hello"
    assert len(questions) == 1 and "made.txt" in questions[0]


def test_a_task_is_polled_and_its_question_is_an_input_request(tmp_path: Path) -> None:
    tasks = Tasks({"action": "accept", "content": {"allow": True}})

    async def never(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("the task has an input request instead")

    async def main() -> None:
        async with official(
            home, "2026-07-28", extensions=[tasks], elicitation_callback=never
        ) as client:
            result = await agent(client, "delegate", tasks=["write it"])
            assert result["state"] == "completed"
            background = await agent(client, "delegate", tasks=["write it"], background=True)
            assert background["state"] != "completed"

    with private_home(tmp_path, writer) as home:
        asyncio.run(main())
        assert (home.project / "made.txt").read_text() == "hello"
    assert "input_required" in tasks.seen and tasks.seen[-1] == "completed"
    (created,) = tasks.created
    assert created.poll_interval_ms == 1000 and len(created.task_id) > 60
    assert created.status_message is not None and "write it: turn" in created.status_message


def test_a_failed_agent_is_a_completed_task_with_an_error(tmp_path: Path) -> None:
    tasks = Tasks()

    async def main() -> None:
        async with official(home, "2026-07-28", extensions=[tasks]) as client:
            result = await client.call_tool(
                "delegate", {"tasks": ["fail"], "max_tokens": 1, "background": False}
            )
            assert result.is_error, result
            assert result.structured_content["agents"][0]["error"]

    with private_home(tmp_path) as home:
        asyncio.run(main())
    assert tasks.seen[-1] == "completed"


@pytest.mark.parametrize("mode", ERAS)
def test_a_mistake_in_a_call_is_an_error_to_act_on(tmp_path: Path, mode: str) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("delegate", {"tasks": []}, "tasks: "),
        ("delegate", {"task": "x"}, "unknown field `task`"),
        ("delegate", {"tasks": ["x"], "model": "nobody:nothing"}, "nobody"),
        ("delegate", {"tasks": ["x"], "agent": "ghost"}, "Unknown agent 'ghost'"),
        ("delegate", {"tasks": ["x"], "tools": ["telepathy"]}, "Unknown tool 'telepathy'"),
        ("delegate", {"tasks": ["x"], "directory": "/"}, "outside of where agents may work"),
        ("result", {"ids": ["0123"]}, "Call agents to list yours"),
        ("result", {"ids": ["x"], "wait_seconds": 51}, "wait_seconds: "),
        ("answer", {"id": "0123", "text": "x"}, "0123"),
    ]

    async def main() -> None:
        async with official(home, mode) as client:
            for tool, arguments, text in cases:
                result = await client.call_tool(tool, arguments)
                texts = result.content[0].text
                assert result.is_error and text in texts, (tool, arguments, texts)
            assert (await client.call_tool("agents", {})).structured_content == {"agents": []}

    with private_home(tmp_path) as home:
        asyncio.run(main())


def test_the_list_of_tools_is_small_and_always_the_same(tmp_path: Path) -> None:
    from retinue.mcp.tool_table import TOOLS

    text = json.dumps(TOOLS, separators=(",", ":"))
    assert len(TOOLS) <= 8
    assert len(text) / 3.5 <= 1_200  # characters of a token, and fewer than JSON has
    for tool in TOOLS:
        assert tool["outputSchema"]["required"] == ["agents"]
        assert "readOnlyHint" in tool["annotations"]
