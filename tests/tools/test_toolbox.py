"""All tools by name: which are shown to whom, and how one call is carried out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue.core.messages import ToolCall
from retinue.errors import ConfigError
from retinue.tools.base import Context, ToolResult
from retinue.tools.function import tool
from retinue.tools.submit import SubmitResult
from retinue.tools.toolbox import Toolbox
from tests.tools.test_function import a_caller


@tool(restart="pure", quick=True)
def look(at: str = "here") -> str:
    """Look."""
    return f"saw {at}"


@tool(quick=True)
def smash() -> str:
    """Smash."""
    raise RuntimeError("broken")


def box() -> Toolbox:
    toolbox = Toolbox()
    toolbox.add("boss", [look, smash], {"max_turns": 3})
    toolbox.add("hand", [SubmitResult(int)])
    return toolbox


def run(name: str, args: str = "{}", agent: str = "boss") -> Any:
    return asyncio.run(
        box().run(agent, a_caller(), ToolCall(id="c", name=name, arguments_json=args))
    )


def test_each_agent_sees_its_own_tools() -> None:
    result = box()
    assert [s.name for s in result.schemas("boss")] == ["look", "smash"]
    assert [s.name for s in result.schemas("hand")] == ["submit_result"]
    assert result.schemas("nobody") == ()
    assert set(result.agents) == {"boss", "hand"}
    assert result.defaults("boss") == {"max_turns": 3}
    assert result.defaults("hand") == {}


def test_two_tools_of_one_agent_cannot_have_one_name() -> None:
    with pytest.raises(ConfigError, match="two tools named 'look'"):
        Toolbox().add("boss", [look, look])


def test_a_quick_tool_answers_without_a_coroutine_and_makes_its_caller_only_if_it_wants_one() -> (
    None
):
    contexts: list[Context] = []

    def caller() -> Context:
        contexts.append(a_caller())
        return contexts[-1]

    def now(name: str, args: str = "{}", agent: str = "boss") -> Any:
        return box.run_now(agent, caller, ToolCall(id="c", name=name, arguments_json=args))

    @tool(quick=True)
    def who(context: Context, again: bool = False) -> str:
        """Who."""
        return f"{context.run_id} {again}"

    @tool(quick=True)
    def later() -> Any:
        """Return something that is to be awaited, and does not wait."""
        return late()

    async def late() -> int:
        return 7

    box = Toolbox()
    box.add("boss", [look, who, later, smash])
    box.add("hand", [SubmitResult(int)])
    assert now("look", '{"at": "there"}') == ToolResult(text="saw there")
    assert now("look", '{"at": 1}').error and now("look", "[").error and now("lok").error
    assert now("later") == ToolResult(text="7")
    assert not contexts
    assert now("who", '{"again": true}') == ToolResult(text="r True")
    assert len(contexts) == 1
    with pytest.raises(RuntimeError, match="broken"):
        now("smash")
    assert now("submit_result", '{"result": 3}', agent="hand") == asyncio.run(
        box.run(
            "hand",
            a_caller(),
            ToolCall(id="c", name="submit_result", arguments_json='{"result": 3}'),
        )
    )


def test_a_call_is_parsed_and_run() -> None:
    assert run("look", '{"at": "there"}') == ToolResult(text="saw there")
    assert run("look", "") == ToolResult(text="saw here")


def test_a_call_that_was_written_as_a_string_is_read_once_more() -> None:
    assert run("look", '"{\\"at\\": \\"there\\"}"') == ToolResult(text="saw there")


@pytest.mark.parametrize("name", ["Look", "loook", "functions.look", "", "\ud800"])
def test_an_unknown_tool_is_answered_with_those_there_are(name: str) -> None:
    answer = run(name)
    assert answer.error
    assert "Available tools: look, smash" in answer.text
    answer.text.encode("utf-8")


def test_a_near_miss_gets_a_hint_and_is_not_run() -> None:
    assert "Did you mean 'look'?" in run("loook").text


def test_bad_arguments_are_an_answer() -> None:
    assert run("look", "{oops").text.startswith(
        "Invalid parameters: the arguments are not valid JSON"
    )
    assert run("look", '{"at": 1}').text.startswith("Invalid parameters: ")


def test_an_exception_is_left_to_the_runtime() -> None:
    with pytest.raises(RuntimeError, match="broken"):
        run("smash")


def test_a_tool_that_is_gone_is_unsafe() -> None:
    result = box()
    assert result.restart_class("boss", "look") == "pure"
    assert result.restart_class("boss", "smash") == "unsafe"
    assert result.restart_class("boss", "gone") == "unsafe"
    assert result.restart_class("nobody", "look") == "unsafe"


def test_words_are_composed_by_the_tool_that_asked() -> None:
    with pytest.raises(ConfigError, match="cannot format results"):
        box().format_results("boss", "look", [])
