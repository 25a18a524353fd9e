"""Tools as classes: one whose schema is no signature, sets that are opened and closed with the
runtime, and an MCP server among them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Agent,
    ConfigError,
    Context,
    McpServer,
    Restart,
    Retinue,
    Risk,
    Tool,
    ToolError,
    run_sync,
    tool,
)
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call, fake_context
from tests.api.scripted_agents import agent, last

FAKE = Path(__file__).resolve().parents[1] / "tools" / "mcp" / "fake_server.py"


class Lookup:
    """A word in the dependencies."""

    name, description = "lookup", "Look a word up."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"word": {"type": "string"}}}
    restart: Restart = "pure"
    risk: Risk = "read"

    async def invoke(self, ctx: Context[dict[str, str]], arguments: Mapping[str, Any], /) -> object:
        if arguments.get("word") not in ctx.deps:
            raise ToolError("There is no such word.")
        return {"means": ctx.deps[arguments["word"]]}


class Shelf:
    prefix = "shelf"

    def __init__(self, problem: Exception | None = None) -> None:
        self.log: list[str] = []
        self.problem = problem

    async def open(self) -> Sequence[Tool[dict[str, str]]]:
        self.log.append("open")
        if self.problem is not None:
            raise self.problem
        return [Lookup(), word]

    async def close(self) -> None:
        self.log.append("close")
        raise OSError("stuck")


@tool(restart="pure")
def word(ctx: Context[dict[str, str]], n: int) -> str:
    """The n-th word."""
    return list(ctx.deps)[n]


def calling(name: str, **arguments: Any) -> Any:
    return lambda request: last(request) if request.turn else call(name, **arguments)


def test_a_class_is_a_tool() -> None:
    reader = agent("reader", calling("lookup", word="sky"), deps_type=dict, tools=[Lookup()])
    assert run_sync(reader, "Go.", deps={"sky": "blue"}).text == '{"means":"blue"}'
    reader = agent("reader", calling("lookup", word="sea"), deps_type=dict, tools=[Lookup()])
    assert run_sync(reader, "Go.", deps={"sky": "blue"}).text == "There is no such word."


async def test_a_function_is_one_too() -> None:
    ctx = fake_context(deps={"sky": "blue"})
    assert await word.invoke(ctx, {"n": 0}) == "sky"
    with pytest.raises(ToolError, match="Invalid parameters: n: expected an integer"):
        await word.invoke(ctx, {"n": "x"})


async def test_a_set_is_opened_once_and_closed_with_the_runtime(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Shelf()
    one = agent("one", calling("shelf__lookup", word="sky"), tools=[shelf])
    two = agent("two", calling("shelf__word", n=0), tools=[shelf])
    with caplog.at_level(logging.WARNING, "retinue.tools"):
        async with Retinue(deps={"sky": "blue"}, agents=[one]) as retinue:
            assert shelf.log == ["open"]
            assert (await retinue.run(one, "Go.")).text == '{"means":"blue"}'
            assert (await retinue.run(two, "Go.")).text == "sky"
    assert shelf.log == ["open", "close"]
    assert "could not be closed" in caplog.text


async def test_a_set_that_cannot_be_opened_is_an_error_of_its_agent() -> None:
    bad_agent = agent("one", ["x"], tools=[Shelf(OSError("no cable"))])
    async with Retinue() as retinue:
        with pytest.raises(ConfigError, match=r"Agent 'one': .* could not be opened .*no cable"):
            await retinue.run(bad_agent, "Go.")
        with pytest.raises(ConfigError, match=r"is not open. Name its agent in Retinue\(agents="):
            retinue.register(agent("two", ["x"], tools=[Shelf()]))


async def test_an_mcp_server_is_a_set_of_tools() -> None:
    def script(request: ModelRequest) -> Any:
        names = [t.name for t in request.tools if t.name.startswith("mcp__fake__")]
        return ", ".join(names)

    server = McpServer("fake", command=[sys.executable, str(FAKE)])
    assert server == McpServer("fake", command=[sys.executable, str(FAKE)])
    async with Retinue() as retinue:
        reader = Agent("reader", model=Scripted(script), tools=[server])
        assert "mcp__fake__" in (await retinue.run(reader, "Go.")).text
        lost_server = McpServer("gone", command=["/no/such/program"])
        with pytest.raises(ConfigError, match="MCP server could not be used: gone"):
            await retinue.run(Agent("r", model=Scripted(["x"]), tools=[lost_server]), "Go.")


def test_a_server_needs_a_command_or_an_address() -> None:
    with pytest.raises(ConfigError, match=r"needs either command=\[...\] or url="):
        McpServer("x")
    wrong: Any = "npx server"
    with pytest.raises(ConfigError, match="command is a list"):
        McpServer("x", command=wrong)
