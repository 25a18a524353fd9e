"""What type checkers must infer on the roads through the public surface."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

from retinue import (
    Agent,
    AssistantMessage,
    Budget,
    Context,
    Delegation,
    HookContext,
    Hooks,
    McpServer,
    ModelInfo,
    Outcome,
    Outcomes,
    Refuse,
    Restart,
    Retinue,
    Risk,
    RunId,
    Tool,
    ToolError,
    Usage,
    json_schema,
    one_of,
    run_sync,
    tool,
)
from retinue.channels import Delivery
from retinue.models import ModelReply, ModelRequest, ToolCall
from retinue.testing import Scripted, call, fake_context


@dataclass
class Report:
    title: str


@dataclass
class Score:
    points: int


@dataclass
class Shop:
    name: str


plain = Agent("plain")
assert_type(plain, Agent[str, object])
reporter = Agent("reporter", output=Report)
assert_type(reporter, Agent[Report, object])
many = Agent("many", output=list[Report])
assert_type(many, Agent[list[Report], object])
either = Agent("either", output=one_of(Report, Score))
assert_type(either, Agent[Report | Score, object])
described = Agent("described", output=json_schema({"type": "object"}))
assert_type(described, Agent[dict[str, Any], object])


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def count(self, by: int = 1) -> int:
        """Count."""
        self.n += by
        return self.n


def power(base: int, exponent: int) -> int:
    """Base to the power of exponent."""
    return int(base**exponent)


@tool(restart="pure", quick=True)
def name_of(ctx: Context[Shop], upper: bool = False) -> str:
    """The name of the shop."""
    return ctx.deps.name.upper() if upper else ctx.deps.name


@tool
async def staff_work(ctx: Context[Shop], files: list[str]) -> str:
    """Have files read."""
    one = await ctx.run(reporter, "Go.", timeout=5)
    assert_type(one, Outcome[Report])
    several = await ctx.gather(reporter, *files, at_once=2)
    assert_type(several, Outcomes[Report])
    assert_type(several.results, list[Report])
    run = await ctx.spawn(reporter, "Go.")
    assert_type(run, RunId[Report])
    assert_type(await ctx.wait(run), Outcome[Report])
    assert_type(await ctx.ask("Which?", choices=["a", "b"]), str)
    return one.unwrap().title


@tool
def hand_over(ctx: Context[Shop], files: list[str]) -> Delegation[Report]:
    """A plain function hands its call over."""
    delegation = ctx.delegate(reporter, *files, fail_fast=True)
    assert_type(delegation, Delegation[Report])
    return delegation


def apples(call: ToolCall) -> ToolCall:
    """A hook changes a call by the names of its arguments."""
    assert_type(call.arguments, dict[str, Any])
    return call.replace(arguments={"item": "apple"})


class Echo:
    """A model of one's own."""

    info = ModelInfo(name="echo")

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        return ModelReply(message=AssistantMessage(text=request.messages[-1].text))


class Lookup:
    """A tool of one's own, with a schema that is no signature."""

    name = "lookup"
    description = "Look a word up."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"word": {"type": "string"}}}
    restart: Restart = "pure"
    risk: Risk = "read"

    async def invoke(self, ctx: Context[Shop], arguments: Mapping[str, Any], /) -> object:
        if not arguments.get("word"):
            raise ToolError("A word is needed.")
        return ctx.deps.name


class Shelf:
    """Several tools of one's own."""

    prefix = "shelf"

    async def open(self) -> Sequence[Tool[Shop]]:
        return [Lookup(), name_of]

    async def close(self) -> None: ...


class Pigeon:
    """A channel of one's own."""

    async def send(self, delivery: Delivery, /) -> None:
        print(delivery.origin.user, delivery.text)


async def no_secrets(ctx: HookContext, call: ToolCall) -> ToolCall | Refuse | None:
    return Refuse(reason="No.") if "secret" in call.arguments else None


def log(ctx: HookContext[Shop], outcome: Outcome[Any]) -> None:
    print(ctx.deps.name, outcome.state)


counter = Counter()
keeper = Agent(
    "keeper",
    deps_type=Shop,
    tools=[
        tool(counter.count),
        tool(functools.partial(power, exponent=2), name="square", quick=True),
        name_of,
        staff_work,
        hand_over,
        Lookup(),
        Shelf(),
        McpServer("files", command=["files"]),
        "read",
    ],
    model=Echo(),
    staff=[reporter],
    timeout=timedelta(minutes=5),
)
assert_type(keeper, Agent[str, Shop])
assert_type(tool(counter.count)(by=3), int)


def at_once() -> None:
    assert_type(run_sync(reporter, "Go."), Outcome[Report])
    assert_type(run_sync(keeper, "Go.", deps=Shop("corner")), Outcome[str])


async def main(text: str) -> None:
    async with Retinue(
        "a.db",
        deps=Shop("corner"),
        agents=[keeper, plain],
        hooks=[Hooks(before_tool=no_secrets), Hooks(on_end=log)],
        channels={"roof": Pigeon()},
        models={"openai:gpt-5": Scripted([call("lookup", word="x"), "Done."]), "a": "openai:gpt-5"},
    ) as retinue:
        assert_type(retinue, Retinue[Shop])
        assert_type(retinue.deps, Shop)
        run = await retinue.spawn(reporter, "Go.")
        assert_type(run, RunId[Report])
        assert_type(await retinue.wait(run, timeout=5), Outcome[Report])
        assert_type(await retinue.wait(text), Outcome[Any])
        assert_type(await retinue.find(text, reporter), RunId[Report])
        assert_type(await retinue.outcome(run), Outcome[Report] | None)
        assert_type(await retinue.fork(run, "Shorter."), RunId[Report])
        scorer = Agent("scorer", output=Score)
        assert_type(await retinue.fork(run, "As a score.", agent=scorer), RunId[Score])
        assert_type(await retinue.resume(run), RunId[Report])
        assert_type(await retinue.cancel(run), Outcome[Report])
        both = await retinue.gather(reporter, "a", "b", at_once=1)
        assert_type(both, Outcomes[Report])
        assert_type(both.unwrap(), list[Report])
        assert_type(both[0].unwrap().title, str)
        outcome = await retinue.run(either, "Go.", budget=Budget(usd=1))
        assert_type(outcome.output, Report | Score | None)
        assert_type(outcome.unwrap(), Report | Score)
        async for line in retinue.runs(state=["queued", "failed"]):
            assert_type(line.agent, str)
            assert_type(line.created_at, datetime)
        assert_type(outcome.tree_usage, Usage)
        assert_type(outcome.ended_at, datetime)
        portal = retinue.portal()
        spending = await asyncio.to_thread(portal.call, retinue.budget, run)
        print(spending.spent.usd)
        assert_type(portal.call(retinue.run, reporter, "Go.", label="x"), Outcome[Report])
        assert_type(await staff_work(fake_context(deps=Shop("x")), ["a"]), str)
