"""The public events of runs: each of the twelve with its fields, the same again from the record,
and no gap and no repeat wherever a reader continues."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from retinue import (
    Agent,
    Ask,
    Budget,
    BudgetQuestion,
    Delivery,
    Event,
    Lane,
    Limits,
    ModelUnavailable,
    NotFound,
    Origin,
    PermissionQuestion,
    Retinue,
    Retry,
    TextQuestion,
    ToolError,
    tool,
)
from retinue import events as ev
from retinue.models.base import ModelRequest
from retinue.testing import VirtualClock, call
from tests.api.dying import die
from tests.api.scripted_agents import STORES, Home, agent, lead_of, on_virtual_time
from tests.api.test_limits_that_ask import RULES, digger

HOOK = Origin(channel="hook", user="ada")
RECORDED = [kind for kind in get_args(Event) if kind is not ev.TextDelta]


class Hook:
    """A channel whose first delivery fails."""

    def __init__(self) -> None:
        self.n = 0

    async def send(self, delivery: Delivery) -> None:
        self.n += 1
        if self.n == 1:
            raise ConnectionError("The line is busy.")


@tool(restart="pure")
def choose(item: str) -> Ask:
    """Ask for a colour."""
    return Ask(question=f"Which colour for the {item}?")


@tool(restart="pure", approve=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(restart="pure")
async def fail() -> str:
    """Fail, after a second."""
    await asyncio.sleep(1)
    raise ToolError("It does not work.")


def shopping() -> Agent:
    """A lead whose child shops: its model fails once, it asks, pays, fails, and announces."""
    tried: list[int] = []

    def shop(request: ModelRequest) -> Any:
        if not tried:
            tried.append(1)
            raise ModelUnavailable("the provider is down", "overloaded")
        says = [call("choose", item="hat"), call("pay", amount=7), call("fail"), "Bought."]
        return says[request.turn]

    buyer = agent("buyer", shop, tools=[choose, pay, fail], seconds=1)
    return lead_of(buyer, announce=True, label="Buy a hat")


async def decide_all(retinue: Retinue, run: str) -> None:
    async for question in retinue.questions(run, live=True):
        if isinstance(question, TextQuestion):
            await retinue.send(question.run, "Hurry.")
            await retinue.answer(question, "red", by="ada")
        else:
            await retinue.decide(question, True, by="bob", reason="fine")


async def shop(retinue: Retinue) -> tuple[str, list[Event]]:
    run = await retinue.spawn(shopping(), "Go.", origin=HOOK, questions="ask")
    deciding = asyncio.ensure_future(decide_all(retinue, run))
    events = [event async for event in retinue.stream(run, tree=True)]
    await deciding
    await retinue.settle(run)
    return run, events


def of(kind: Any, events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@on_virtual_time
async def test_each_of_the_twelve_happens_and_has_its_fields() -> None:
    clock = VirtualClock()
    async with Retinue(clock=clock, channels={"hook": Hook()}) as retinue:
        run, record = await shop(retinue)
        on_record = [event async for event in retinue.stream(run, tree=True)]
        outcome = await retinue.wait(run)
    assert {type(event) for event in on_record} == set(RECORDED)
    assert of(ev.TextDelta, record)[-1].text, "text is told while it is written, and not kept"
    lead, child = of(ev.RunStarted, record)
    assert (lead.run, lead.root, lead.parent, lead.depth, lead.label) == (run, run, None, 0, "lead")
    assert (child.root, child.parent, child.depth, child.label) == (run, run, 1, "Buy a hat")
    assert (child.agent, child.task, child.model) == ("buyer", "task 0", "model of buyer")
    for event in on_record:
        place = (event.root, event.depth, event.label)
        assert place == ((run, 0, "lead") if event.run == run else (run, 1, "Buy a hat"))
        assert event.at.tzinfo is UTC and event.type == _snake(type(event).__name__)
    assert lead.at == outcome.created_at
    (retried,) = of(ev.ModelRetried, record)
    assert (retried.attempt, retried.error) == (1, "the provider is down")
    assert retried.next_try_in > 0
    first, *_, end = of(ev.ModelReplied, record)
    assert (first.turn, first.text, first.calls[0].name) == (1, "", "hire")
    assert (first.usage.turns, first.usage.calls, first.model) == (1, 1, "model of lead")
    assert end.turn == 2 and end.usage.output > 0
    started = [(e.turn, e.call.name) for e in of(ev.ToolStarted, record) if e.run == child.run]
    assert started == [(1, "choose"), (2, "pay"), (3, "fail")]
    returned = [e for e in of(ev.ToolReturned, record) if e.run == child.run]
    assert [(e.turn, e.call.name, e.is_error, e.is_denied) for e in returned] == [
        (1, "choose", False, False),
        (2, "pay", False, False),
        (3, "fail", True, False),
    ]
    assert [e.text for e in returned[:2]] == ["red", "paid 7"]
    assert "It does not work." in returned[2].text and returned[2].seconds == 1


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


@on_virtual_time
async def test_questions_messages_waits_ends_and_announcements() -> None:
    async with Retinue(clock=VirtualClock(), channels={"hook": Hook()}) as retinue:
        run, _ = await shop(retinue)
        events = [event async for event in retinue.stream(run, tree=True)]
        outcome = await retinue.wait(run)
        child = await retinue.wait(outcome.children[0].id)
    colour, payment = (event.question for event in of(ev.QuestionAsked, events))
    assert isinstance(colour, TextQuestion) and colour.text == "Which colour for the hat?"
    assert isinstance(payment, PermissionQuestion) and payment.call.arguments == {"amount": 7}
    answers = of(ev.QuestionAnswered, events)
    assert [(e.question_id, e.allowed, e.text, e.by) for e in answers] == [
        (colour.id, None, "red", "ada"),
        (payment.id, True, "fine", "bob"),
    ]
    (message,) = of(ev.MessageReceived, events)
    assert (message.run, message.sender, message.text) == (child.id, "", "Hurry.")
    waits = [(e.depth, e.waiting_for) for e in of(ev.RunWaiting, events)]
    assert waits == [(0, "children"), (1, "question"), (1, "question")]
    below, top = of(ev.RunEnded, events)
    assert (below.state, below.stop, below.text, below.error) == (
        "completed",
        "done",
        "Bought.",
        "",
    )
    assert (below.usage, top.usage) == (child.usage, outcome.usage)
    assert top.tree_usage == outcome.usage.plus(child.usage)
    assert top.tree_usage.tokens == outcome.tree_tokens
    assert top.seconds == (outcome.ended_ms - (outcome.started_ms or 0)) / 1000 > 4
    tries = [(e.run, e.channel, e.delivered, e.error) for e in of(ev.Announced, events)]
    assert tries[0][:3] == (child.id, "hook", False) and "busy" in tries[0][3]
    assert tries[1:] == [(child.id, "hook", True, "")] * 3, "two questions, and the result"


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_reader_continues_at_any_event_without_gap_or_repeat(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    async with home.open(channels={"hook": Hook()}) as retinue:
        run, live = await shop(retinue)
        whole = [event async for event in retinue.stream(run, tree=True)]
    events_but_deltas = [event for event in live if not isinstance(event, ev.TextDelta)]
    assert events_but_deltas == whole[: len(events_but_deltas)], "the record gives what was told"
    assert len({event.seq for event in whole}) == len(whole) > 25
    async with home.open() as again:
        assert [event async for event in again.stream(run, tree=True)] == whole
        for n, event in enumerate(whole):
            rest = [e async for e in again.stream(run, tree=True, after=event.seq)]
            assert rest == whole[n + 1 :]
        for event in of(ev.TextDelta, live):
            rest = [e async for e in again.stream(run, tree=True, after=event.seq)]
            assert rest == [e for e in whole if e.seq > event.seq]
        own = [e async for e in again.stream(run)]
        assert own == [e for e in whole if e.run == run]
        child = next(e.run for e in whole if e.depth)
        assert [e async for e in again.stream(child)] == [e for e in whole if e.run == child]
        with pytest.raises(NotFound):
            _ = [e async for e in again.stream("nobody")]


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_reader_continues_after_its_process_has_died(kind: str, tmp_path: Path) -> None:
    home, child = Home(kind, tmp_path), agent("child", ["part"], seconds=100)
    lead, events = lead_of(child, 3), list[Event]()
    first = home.open(agents=[lead])
    await first.__aenter__()
    run = await first.spawn(lead, "Go.")
    async for event in first.stream(run, tree=True):
        events.append(event)
        if len(of(ev.RunStarted, events)) == 3:
            break
    await die(first)
    async with home.open(agents=[lead]) as second:
        async for event in second.stream(run, tree=True, text=False, after=events[-1].seq):
            events.append(event)
        assert events == [event async for event in second.stream(run, tree=True)]
    assert len(of(ev.RunStarted, events)) == len(of(ev.RunEnded, events)) == 4
    assert events[-1].run == run and isinstance(events[-1], ev.RunEnded)


@on_virtual_time
async def test_waiting_for_a_lane_a_provider_and_a_budget() -> None:
    async def down(request: ModelRequest) -> str:
        if retinue._clock.now() < start + 3_600_000:
            raise ModelUnavailable("the provider is down", "overloaded")
        return "up again"

    async with Retinue(clock=VirtualClock(), limits=RULES) as retinue:
        start, lane = retinue._clock.now(), Lane(name="narrow", size=1)
        slow = agent("slow", ["x"], seconds=10)
        _, second = [await retinue.spawn(slow, "Go.", lanes=(lane,)) for _ in range(2)]
        waits = of(ev.RunWaiting, [e async for e in retinue.stream(second)])
        assert [(e.waiting_for, e.detail) for e in waits] == [("lane", "narrow")]

        run = await retinue.spawn(agent("a", down), "Go.", retry=Retry(attempts=2))
        events = [e async for e in retinue.stream(run)]
        waits = of(ev.RunWaiting, events)
        assert {e.waiting_for for e in waits} == {"provider"} and "down" in waits[0].detail
        assert len(of(ev.ModelRetried, events)) >= 2 and events[-1].text == "up again"

        budget = Budget(tokens=3_000, on_limit="ask")
        run = await retinue.spawn(digger(), "Dig.", budget=budget, questions="ask")
        deciding = asyncio.ensure_future(decide_all(retinue, run))
        events = [e async for e in retinue.stream(run)]
        await deciding
        (question,) = of(ev.QuestionAsked, events)
        assert isinstance(question.question, BudgetQuestion)
        assert question.question.limit == "tokens" and question.question.spending.limit == budget
        (answered,) = of(ev.QuestionAnswered, events)
        assert (answered.question_id, answered.allowed) == (question.question.id, True)
        assert [e.waiting_for for e in of(ev.RunWaiting, events)] == ["budget"]

        run = await retinue.spawn(digger(), "Dig.", budget=budget, questions="ask")
        async for event in retinue.stream(run):
            if isinstance(event, ev.QuestionAsked):
                await retinue.set_on_limit(run, "land", by="ada")
        events = [e async for e in retinue.stream(run)]
        (answered,) = of(ev.QuestionAnswered, events)
        assert (answered.allowed, answered.by) == (False, "ada")
        assert len(of(ev.QuestionAsked, events)) == 1


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_runs_that_are_not_kept_leave_no_gap_in_the_events_of_others(
    kind: str, tmp_path: Path
) -> None:
    home, child = Home(kind, tmp_path), agent("child", ["part"], seconds=5)
    async with home.open() as retinue:
        run = await retinue.spawn(lead_of(child, 2, retention="delete"), "Go.")
        live = [e async for e in retinue.stream(run, tree=True, text=False)]
        await retinue.settle(run)
        assert len(of(ev.RunEnded, live)) == 3
        events = [e async for e in retinue.stream(run, tree=True)]
        own = [e for e in live if e.run == run]
        assert [(e.seq, e.type) for e in events] == [(e.seq, e.type) for e in own]


@on_virtual_time
async def test_watch_tells_of_all_runs_and_goes_on() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        slow = agent("slow", ["a"], seconds=20)
        early = await retinue.spawn(lead_of(slow, name="early"), "Go.")
        await asyncio.sleep(10)
        events, ended = list[Event](), list[str]()

        async def listen() -> None:
            async for event in retinue.watch(text=True):
                events.append(event)

        listening = asyncio.ensure_future(listen())
        await asyncio.sleep(1)
        late = await retinue.spawn(agent("late", ["b"], seconds=5), "Go.")
        for run in (late, early):
            ended.append((await retinue.wait(run)).id)
        await asyncio.sleep(1)
        assert not listening.done()
        listening.cancel()
        ends = [e.run for e in of(ev.RunEnded, events) if not e.depth]
        assert ends == ended == [late, early]
        assert [e.run for e in of(ev.RunStarted, events)] == [late], "the other was there before"
        assert {e.label for e in of(ev.TextDelta, events)} == {"late", "slow", "early"}
        everything = await _first(retinue, 0, 1_000)
        assert len(of(ev.RunStarted, everything)) == 3
        texts = [e for e in events if not isinstance(e, ev.TextDelta)]
        assert texts == [e for e in everything if e.seq >= texts[0].seq]
        for n, event in enumerate(everything):
            assert await _first(retinue, event.seq, 1_000) == everything[n + 1 :]


async def _first(retinue: Retinue, after: int, seconds: float) -> list[Event]:
    """All that is on record behind a position."""
    events = list[Event]()

    async def listen() -> None:
        async for event in retinue.watch(after=after):
            events.append(event)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(listen(), seconds)
    return events


@on_virtual_time
async def test_an_agent_that_is_changed_later_does_not_change_what_has_happened() -> None:
    async with Retinue(clock=VirtualClock(), limits=Limits()) as retinue:
        says = [call("fail"), "Done."]
        run = await retinue.spawn(agent("a", says, tools=[fail]), "Go.")
        whole = [e async for e in retinue.stream(run, text=False)]
        await retinue.run(agent("a", ["Other."]), "Go.")
        assert [e async for e in retinue.stream(run)] == whole
        assert len(of(ev.ToolReturned, whole)) == 1


@on_virtual_time
async def test_events_are_the_same_after_json_and_have_the_id_that_a_browser_sends() -> None:
    async with Retinue(clock=VirtualClock(), channels={"hook": Hook()}) as retinue:
        run, record = await shop(retinue)
        record += [event async for event in retinue.stream(run, tree=True)]
    assert {type(event) for event in record} == set(get_args(Event))
    for event in record:
        line = ev.to_json(event)
        assert "\n" not in line and json.loads(line)["type"] == event.type
        assert msgspec.json.decode(line, type=Event) == event
        assert ev.to_sse(event) == f"id: {event.seq}\ndata: {line}\n\n".encode()
