"""Questions as types, calls from other threads, providers that are down, tools that raise."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from retinue import (
    Agent,
    Ask,
    Budget,
    BudgetQuestion,
    Context,
    ModelUnavailable,
    Origin,
    PermissionQuestion,
    Permissions,
    Question,
    Refused,
    Retinue,
    Retry,
    TextQuestion,
    WrongThread,
    run_sync,
    tool,
)
from retinue.core.events import Answered
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import agent, last, on_virtual_time


@tool(restart="pure")
def choose(item: str) -> Ask:
    """Ask for a colour."""
    return Ask(question=f"Which colour for the {item}?")


def down(request: ModelRequest) -> str:
    raise ModelUnavailable("the provider is down", "overloaded")


WAITS = Retry(attempts=2)


@on_virtual_time
async def test_questions_come_one_by_one_as_their_types_until_the_run_has_ended() -> None:
    buyer = agent(
        "buyer",
        [call("choose", item="shirt"), call("write", path="a.txt", content="x"), "bought"],
        tools=[choose, "write"],
        options={"questions": "ask"},
    )
    record: list[Question] = []
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(buyer, "Buy.", budget=Budget(turns=2, on_limit="ask"))
        other = await retinue.spawn(agent("other", ["x"], seconds=1_000), "Wait.")
        async for question in retinue.questions(run, live=True):
            record.append(question)
            match question:
                case TextQuestion():
                    assert question.text == "Which colour for the shirt?"
                    with pytest.raises(Refused, match="expects a text answer"):
                        await retinue.decide(question.id, True)
                    await retinue.answer(question, "red", by="ada")
                case PermissionQuestion(call=questions):
                    assert (questions.name, questions.arguments["content"]) == ("write", "x")
                    await retinue.decide(question, False, by="ada")
                case BudgetQuestion(spending=spending, limit=limit):
                    assert (limit, spending.limit.turns) == ("turns", 2)
                    await retinue.add_budget(question.run, turns=5)
        assert [type(q) for q in record] == [TextQuestion, BudgetQuestion, PermissionQuestion]
        assert (await retinue.wait(run)).text == "bought"
        assert [q async for q in retinue.questions()] == [], "without `live` it ends"
        steps = [s.entry.event async for s in retinue.steps(run, tree=False) if isinstance(s, Step)]
        assert [e.by for e in steps if isinstance(e, Answered)] == ["ada"]
        await retinue.cancel(other)


@on_virtual_time
async def test_questions_of_everybody_are_heard_for_as_long_as_one_listens() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        listening = retinue.questions(live=True)
        first = asyncio.ensure_future(anext(listening))
        await asyncio.sleep(5)
        assert not first.done()
        run = await retinue.spawn(
            agent("one", [call("choose", item="hat"), "x"], tools=[choose]), "Go."
        )
        question = await asyncio.wait_for(first, 60)
        assert isinstance(question, TextQuestion) and question.run == run
        await retinue.answer(question.id, "blue")
        assert (await retinue.wait(run)).ok
        await listening.aclose()  # type: ignore[attr-defined]


def test_a_runtime_is_used_from_its_own_loop_or_through_its_portal() -> None:
    one = Agent("one", model=Scripted(["hello"], name="m"))

    async def main() -> None:
        async with Retinue() as retinue:
            portal = retinue.portal()
            run = await retinue.spawn(one, "Go.")

            def elsewhere() -> str:
                for verb in (
                    lambda: retinue.run(one, "Go."),
                    lambda: retinue.wait(run),
                    lambda: retinue.tree(run),
                    lambda: retinue.answer("q", "x"),
                    lambda: retinue.restrict(run, Permissions()),
                    lambda: retinue.explain(run, "read"),
                    lambda: retinue.redeliver("x"),
                    lambda: retinue.artifact("x"),
                    lambda: anext(retinue.questions()),
                    lambda: anext(retinue.watch()),
                    lambda: anext(retinue.runs()),
                    lambda: anext(retinue.deliveries()),
                    retinue.verify,
                    retinue.compact,
                    retinue.health,
                    retinue.settle,
                ):
                    with pytest.raises(WrongThread) as failure:
                        asyncio.run(_awaited(verb()))
                assert str(failure.value) == (
                    "This runtime belongs to another event loop. From a thread, write: "
                    "retinue.portal().call(retinue.run, agent, task)."
                )
                return portal.call(retinue.run, one, "Go.", label="x").unwrap()

            assert await asyncio.to_thread(elsewhere) == "hello"
            with pytest.raises(WrongThread, match="would wait for itself"):
                portal.call(retinue.wait, run)

    asyncio.run(main())


@on_virtual_time
async def test_a_run_that_somebody_waits_for_fails_when_its_provider_stays_down() -> None:
    one = agent("one", down)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(one, "Go.")
        assert outcome.state == "failed" and "the provider is down" in outcome.error
        both = await retinue.gather(one, "a", "b")
        assert [o.state for o in both] == ["failed", "failed"]
        run = await retinue.spawn(one, "Go.", retry=WAITS)
        await asyncio.sleep(60)
        assert await retinue.outcome(run) is None, "one in the background waits"
        assert (await retinue.cancel(run)).state == "cancelled"
        patient = agent("patient", down, options={"retry": WAITS})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(retinue.run(patient, "Go."), 120)


async def _awaited(work: Any) -> Any:
    return await work


@on_virtual_time
async def test_a_provider_that_is_down_is_logged_and_waited_for_in_sight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "retinue.models"):
        async with Retinue(clock=VirtualClock()) as retinue:
            run = await retinue.spawn(agent("one", down), "Go.", retry=WAITS)
            await asyncio.sleep(60)
            assert (await retinue.info(run)).waiting_for == "provider"
            await retinue.cancel(run)
    warning, *others = caplog.records
    assert warning.levelno == logging.WARNING and {r.levelno for r in others} == {logging.INFO}
    assert warning.getMessage() == (
        f"a model call of run {run} failed (overloaded, try 1): the provider is down"
    )


async def test_an_announcement_to_nowhere_is_refused() -> None:
    one = agent("one", ["done"])

    @tool
    async def start(ctx: Context) -> str:
        """Start one in the background."""
        try:
            return await ctx.spawn(one, "Go.", announce=True)
        except Refused as error:
            return str(error)

    lead = agent("lead", lambda q: last(q) if q.turn else call("start"), tools=[start], staff=[one])
    async with Retinue() as retinue:
        with pytest.raises(Refused, match="there is none") as failure:
            await retinue.run(one, "Go.", announce=True)
        assert failure.value.limit == "channel"
        with pytest.raises(Refused, match="Unknown channel 'roof'"):
            await retinue.run(one, "Go.", origin=Origin(channel="roof"), announce=True)
        outcome = await retinue.run(lead, "Go.")
        assert outcome.text.startswith("announce=True sends the end of a run to the channel")
        assert outcome.children == ()


def test_run_sync_fails_when_its_provider_stays_down() -> None:
    outcome = run_sync(
        Agent("one", model=Scripted(down)), "Go.", retry=Retry(attempts=1, then="fail")
    )
    assert outcome.state == "failed" and "the provider is down" in outcome.error


@on_virtual_time
async def test_a_tool_that_raises_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(quick=True)
    def divide(by: int) -> float:
        """Divide."""
        return 1 / by

    @tool
    async def fail() -> str:
        """Fail."""
        raise KeyError("gone")

    one = agent("one", [call("divide", by=0), call("fail"), "x"], tools=[divide, fail])
    with caplog.at_level(logging.WARNING, "retinue"):
        async with Retinue(clock=VirtualClock()) as retinue:
            run = (await retinue.run(one, "Go.")).id
    records = [r for r in caplog.records if r.name == "retinue.tools"]
    assert [r.getMessage() for r in records] == [
        f"tool divide of run {run} failed",
        f"tool fail of run {run} failed",
    ]
    errors: list[Any] = [r.exc_info and r.exc_info[0] for r in records]
    assert errors == [ZeroDivisionError, KeyError]
