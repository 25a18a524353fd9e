"""Hooks: what they see, change and refuse; what is recorded of it; and that one that fails harms
nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue import (
    Agent,
    AssistantMessage,
    ConfigError,
    Context,
    HookContext,
    Hooks,
    ModelReply,
    ModelRequest,
    Outcome,
    PermissionQuestion,
    Refuse,
    Retinue,
    Spawn,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    tool,
)
from retinue.events import ToolReturned
from retinue.testing import call
from tests.api.dying import die
from tests.api.scripted_agents import STORES, Home, agent, last, on_virtual_time

RUNS: list[str] = []


@tool(restart="pure", quick=True)
def sell(item: str) -> str:
    """Sell an item."""
    RUNS.append(item)
    return f"sold {item}"


@pytest.fixture(autouse=True)
def no_runs() -> None:
    RUNS.clear()


def calling(name: str, **arguments: str) -> Callable[[ModelRequest], Any]:
    """A script that calls a tool and ends with what it was told."""
    return lambda request: last(request) if request.turn else call(name, **arguments)


def seller() -> Agent:
    return agent("seller", calling("sell", item="cigar"), tools=[sell])


async def text_with(hooks: Hooks[Any], who: Agent | None = None, **options: Any) -> Outcome[Any]:
    async with Retinue(hooks=[hooks], **options) as retinue:
        return await retinue.run(who or seller(), "Go.")


async def test_a_call_is_refused_with_the_reason() -> None:
    def no_tobacco(ctx: HookContext, call: ToolCall) -> Refuse | None:
        assert (ctx.agent, call.name) == ("seller", "sell")
        return Refuse(reason="We sell no tobacco.") if call.arguments["item"] == "cigar" else None

    async with Retinue(hooks=[Hooks(before_tool=no_tobacco)]) as retinue:
        run = await retinue.spawn(seller(), "Go.")
        ends = [e async for e in retinue.stream(run) if isinstance(e, ToolReturned)]
        assert (await retinue.wait(run)).text == "Refused: We sell no tobacco."
    assert RUNS == []
    assert [(e.is_error, e.is_denied) for e in ends] == [(True, True)]


async def test_a_changed_call_is_what_is_recorded_asked_about_and_run() -> None:
    async def apples(ctx: HookContext, call: ToolCall) -> ToolCall:
        await asyncio.sleep(0)
        return replace(call, arguments_json='{"item": "apple"}', id="other")

    @tool(approve=True)
    def order(item: str) -> str:
        """Order an item."""
        return f"ordered {item}"

    async with Retinue(hooks=[Hooks(before_tool=apples)]) as retinue:
        run = await retinue.spawn(
            agent("buyer", calling("order", item="cigar"), tools=[order]), "Go.", questions="ask"
        )
        async for question in retinue.questions(run, live=True):
            assert isinstance(question, PermissionQuestion)
            assert question.call.arguments == {"item": "apple"}
            await retinue.decide(question, True)
        assert (await retinue.wait(run)).text == "ordered apple"
        messages = await retinue.messages(run)
    reply, result = messages[1], messages[2]
    assert isinstance(reply, AssistantMessage) and isinstance(result, ToolMessage)
    assert [c.arguments for c in reply.calls] == [{"item": "apple"}]
    assert result.call_id == reply.calls[0].id != "other"


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_after_a_crash_the_changed_call_is_run_and_no_hook_is_asked_again(
    kind: str, tmp_path: Path
) -> None:
    home, times = Home(kind, tmp_path), list[str]()
    is_first = True

    @tool(restart="pure")
    async def slow(item: str) -> str:
        """Sell slowly."""
        if is_first:
            await asyncio.sleep(3600)
        return f"sold {item}"

    def apples(ctx: HookContext, call: ToolCall) -> ToolCall:
        times.append(call.arguments["item"])
        return replace(call, arguments_json='{"item": "apple"}')

    who = agent("seller", calling("slow", item="cigar"), tools=[slow])
    retinue = home.open(agents=[who], hooks=[Hooks(before_tool=apples)])
    await retinue.__aenter__()
    run = await retinue.spawn(who, "Go.")
    await asyncio.sleep(10)
    await die(retinue)
    is_first = False
    async with home.open(agents=[who], hooks=[Hooks(before_tool=apples)]) as retinue:
        assert (await retinue.wait(run)).text == "sold apple"
    assert times == ["cigar"]


async def test_a_result_is_changed_before_it_is_recorded() -> None:
    def shout(ctx: HookContext, call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult(text=f"{call.name}: {result.text.upper()}")

    outcome = await text_with(Hooks(after_tool=shout))
    assert outcome.text == "sell: SOLD CIGAR"


async def test_a_request_is_changed_and_a_longer_reply_than_was_paid_for_is_not_asked_for() -> None:
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> str:
        requests.append(request)
        return "done"

    def brief(ctx: HookContext[str], request: ModelRequest) -> ModelRequest:
        extra = UserMessage(text=f"Be brief, {ctx.deps}.")
        messages = [*request.messages, extra]
        return replace(request, instructions="New.", messages=messages, max_output=10**6)

    async with Retinue(deps="Ada", hooks=[Hooks(before_model=brief)]) as retinue:
        run = await retinue.spawn(agent("a", model, instructions="Old."), "Go.")
        assert (await retinue.wait(run)).text == "done"
        assert len(await retinue.messages(run)) == 2
    assert requests[0].instructions == "New." and requests[0].messages[-1].text == "Be brief, Ada."
    assert requests[0].max_output < 10**6


async def test_a_refused_model_call_ends_the_run_with_the_reason() -> None:
    hooks = Hooks(before_model=lambda ctx, request: Refuse(reason="It is night."))
    outcome = await text_with(hooks)
    assert (outcome.state, outcome.stop) == ("failed", "refused")
    assert outcome.error == "A hook refused the model call: It is night."


async def test_a_changed_reply_is_recorded_and_costs_what_it_cost() -> None:
    def polite(ctx: HookContext, request: ModelRequest, reply: ModelReply) -> ModelReply | None:
        if reply.message.calls:
            return None
        message = AssistantMessage(text=f"{reply.message.text}, please")
        return ModelReply(message=message)

    plain = await text_with(Hooks(after_tool=lambda ctx, call, result: None))
    outcome = await text_with(Hooks(after_model=polite))
    assert outcome.text == "sold cigar, please"
    assert outcome.usage == plain.usage


async def test_a_reply_whose_calls_are_taken_away_is_a_text() -> None:
    def no_calls(ctx: HookContext, request: ModelRequest, reply: ModelReply) -> ModelReply:
        return replace(reply, message=AssistantMessage(text="I will not."))

    assert (await text_with(Hooks(after_model=no_calls))).text == "I will not."
    assert RUNS == []


async def test_a_child_is_changed_before_it_is_recorded() -> None:
    spawns: list[Spawn] = []

    def other(ctx: HookContext, spawn: Spawn) -> Spawn:
        spawns.append(spawn)
        return replace(spawn, task="rest", options={"timeout": 30, "label": "napper"})

    child = agent("worker", lambda q: f"did {q.messages[0].text}")

    @tool
    async def ask(ctx: Context) -> str:
        """Ask the child."""
        return (await ctx.run(child, "work", timeout=60, meta={"a": "b"})).unwrap()

    lead = agent("lead", calling("ask"), tools=[ask], staff=[child])
    async with Retinue(hooks=[Hooks(before_spawn=other)]) as retinue:
        outcome = await retinue.run(lead, "Go.")
        assert outcome.text == "did rest"
        request = (await retinue.record(outcome.children[0].id)).spec.request
    assert (request.timeout_ms, request.label, request.task) == (30_000, "napper", "rest")
    assert (request.join, request.meta) == ("step", {})
    assert spawns[0].options == {"timeout": 60.0, "meta": {"a": "b"}, "tell_parent": False}


async def test_a_refused_child_is_an_error_that_the_model_reads() -> None:
    child = agent("worker", ["done"])

    @tool
    def hand_over(ctx: Context) -> Any:
        """Hand over."""
        return ctx.delegate(child, "work")

    @tool
    async def ask(ctx: Context) -> str:
        """Ask the child."""
        return (await ctx.run(child, "work")).unwrap()

    hooks = Hooks(before_spawn=lambda ctx, spawn: Refuse(reason="Not today."))
    for way in (hand_over, ask):
        lead = agent("lead", calling(way.name), tools=[way], staff=[child])
        outcome = await text_with(hooks, lead)
        assert outcome.text == "A hook refused to start 'worker': Not today."
        assert outcome.children == ()


def test_ends_of_all_runs_are_told_before_the_runtime_is_closed() -> None:
    ends: list[tuple[str, str]] = []

    async def told(ctx: HookContext, outcome: Outcome[Any]) -> None:
        await asyncio.sleep(0.01)
        ends.append((ctx.agent, outcome.text))

    child = agent("worker", ["did it"])

    @tool
    async def ask(ctx: Context) -> str:
        """Ask the child."""
        return (await ctx.run(child, "work")).unwrap()

    lead = agent("lead", calling("ask"), tools=[ask], staff=[child])
    asyncio.run(_once(lead, Hooks(on_end=told)))
    assert ends == [("worker", "did it"), ("lead", "did it")]


async def _once(who: Agent, hooks: Hooks[Any]) -> None:
    await text_with(hooks, who)


async def test_hooks_are_asked_in_their_order_and_the_first_refusal_counts() -> None:
    names: list[str] = []

    def taking(name: str, refuses: bool = False) -> Hooks[Any]:
        def hook(ctx: HookContext, call: ToolCall) -> ToolCall | Refuse:
            names.append(f"{name} {call.arguments['item']}")
            return (
                Refuse(reason=name)
                if refuses
                else replace(call, arguments_json=f'{{"item": "{name}"}}')
            )

        return Hooks(before_tool=hook)

    async with Retinue(hooks=[taking("a"), taking("b", True), taking("c")]) as retinue:
        assert (await retinue.run(seller(), "Go.")).text == "Refused: b"
    assert names == ["a cigar", "b a"]


@pytest.mark.parametrize("strict", [False, True])
async def test_a_hook_that_fails_is_logged_and_contained(
    strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> Any:
        raise ValueError("oops")

    with caplog.at_level(logging.WARNING, "retinue.hooks"):
        outcome = await text_with(Hooks(before_tool=broken, strict=strict))
    expected = "Refused: The hook before_tool failed: oops" if strict else "sold cigar"
    assert outcome.text == expected
    [record] = caplog.records
    assert "hook before_tool failed for run" in record.getMessage() and record.exc_info
    for name in ("before_model", "after_model", "after_tool", "before_spawn", "on_end"):
        assert (await text_with(Hooks(**{name: broken}))).text == "sold cigar", name


async def test_a_wrong_value_counts_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = Hooks(
        before_tool=lambda *_: "yes",
        after_tool=lambda *_: "no",
        before_model=lambda ctx, request: replace(request, model="other"),
        after_model=lambda *_: Refuse(reason="too late"),
        on_end=lambda *_: 17,
    )
    assert (await text_with(wrong)).text == "sold cigar"
    words = " ".join(str(r.exc_info[1]) for r in caplog.records if r.exc_info)
    assert "it returned a str, not a ToolCall" in words
    assert "it returned a str, not a ToolResult" in words
    assert "model cannot be changed; instructions, messages" in words
    assert "it returned a Refuse, not a ModelReply" in words
    assert "an on_end hook changes nothing" in words


async def test_what_is_no_hook_is_refused_when_it_is_given() -> None:
    odd: Any = "before"
    no_hook: Any = print
    with pytest.raises(ConfigError, match=r"Hooks\(before_tool=...\) takes a function"):
        Hooks(before_tool=odd)
    with pytest.raises(ConfigError, match=r"takes Hooks\(...\), not <built-in function print"):
        Retinue(hooks=[no_hook])
