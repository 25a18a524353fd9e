"""Messages to runs, waiting for them, watching them, ending them, and taking rights away."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from retinue import (
    Ask,
    ConfigError,
    Limits,
    NotFound,
    Permissions,
    Refused,
    Retinue,
    tool,
)
from retinue.core.events import Asked, Replied, Requested
from retinue.core.messages import ToolMessage
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.runtime.text_pieces import TextPiece
from retinue.testing import MemoryStore, VirtualClock, call
from tests.api.scripted_agents import (
    STORES,
    Home,
    agent,
    ended,
    last,
    lead_of,
    on_virtual_time,
    texts,
)


@tool(restart="pure")
async def rest(seconds: float) -> str:
    """Take a rest."""
    await asyncio.sleep(seconds)
    return f"rested {seconds:g} s"


@on_virtual_time
async def test_a_message_is_read_at_the_next_turn() -> None:
    script = [call("rest", seconds=60.0), "done"]
    records: list[list[str]] = []

    def talk(request: ModelRequest) -> object:
        records.append(texts(request))
        return script[request.turn]

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", talk, tools=[rest]), "Go.")
        await asyncio.sleep(10)
        await retinue.send(run, "Hurry.")
        outcome = await ended(retinue, run)
    assert records[1] == ["Go.", "", "rested 60 s", "Hurry."]
    assert outcome.ended_ms - outcome.created_ms == 60_000


@on_virtual_time
async def test_a_message_to_a_run_that_is_thinking_gives_it_one_more_turn() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", lambda q: f"heard {last(q)}", seconds=10), "this")
        await asyncio.sleep(5)
        await retinue.send(run, "that")
        assert (await ended(retinue, run)).text == "heard that"


@on_virtual_time
async def test_steering_breaks_off_a_model_call() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", lambda q: f"heard {last(q)}", seconds=100), "this")
        await asyncio.sleep(10)
        await retinue.send(run, "that", steer=True)
        outcome = await ended(retinue, run)
    assert outcome.text == "heard that"
    assert outcome.ended_ms - outcome.created_ms == 110_000
    assert outcome.usage.estimated > 0, "what was broken off may have cost something"


@on_virtual_time
async def test_steering_breaks_off_tools_and_the_call_still_has_a_result() -> None:
    records: list[list[str]] = []

    def talk(request: ModelRequest) -> object:
        records.append(texts(request))
        return call("rest", seconds=1000.0) if request.turn == 0 else "stopped"

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", talk, tools=[rest]), "Go.")
        await asyncio.sleep(10)
        await retinue.send(run, "Stop resting.", steer=True)
        outcome = await ended(retinue, run)
    assert outcome.ended_ms - outcome.created_ms == 10_000
    assert records[1][0] == "Go." and records[1][-1] == "Stop resting."
    assert len(records[1]) == 4, "the call, its result and the message"


@on_virtual_time
async def test_steering_lets_joined_children_go_on_and_report_later() -> None:
    child = agent("child", ["the part"], seconds=100)
    lead = lead_of(child, 2, options={"children_on_end": "wait"})
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead, "Go.")
        await asyncio.sleep(10)
        await retinue.send(run, "How far are you?", steer=True)
        await asyncio.sleep(10)
        texts_read = [m.text for m in await retinue.messages(run)]
        assert (
            any("Still running" in text for text in texts_read)
            and texts_read[-1] == "How far are you?"
        )
        outcome = await ended(retinue, run)
    assert "the part" in outcome.text
    assert [c.state for c in outcome.children] == ["completed", "completed"]


@on_virtual_time
async def test_nobody_can_write_to_a_run_that_has_ended_or_never_was() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", ["x"]), "Go.")
        with pytest.raises(Refused, match="not an open run"):
            await retinue.send(outcome.id, "Hello?")
        with pytest.raises(NotFound):
            await retinue.send("nobody", "Hello?")


@pytest.mark.parametrize("passes", range(8))
@on_virtual_time
async def test_a_message_at_the_last_moment_is_read_or_refused_and_never_lost(passes: int) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", last, seconds=5), "Go.")
        await asyncio.sleep(5)
        for _ in range(passes):
            await asyncio.sleep(0)
        try:
            await retinue.send(run, "Wait!")
        except Refused:
            assert (await ended(retinue, run)).text == "Go."
        else:
            assert (await ended(retinue, run)).text == "Wait!", (
                "it was taken, and nobody has read it"
            )


@on_virtual_time
async def test_a_mailbox_takes_only_so_many_messages_of_one_sender() -> None:
    async with Retinue(clock=VirtualClock(), limits=Limits(mail_per_sender=3)) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=100), "Go.")
        for n in range(3):
            await retinue.send(run, f"message {n}")
        with pytest.raises(Refused, match="3 messages from you that it has not read yet"):
            await retinue.send(run, "one too many")


@on_virtual_time
async def test_wait_for_a_run_and_not_for_ever() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        slow, quick = agent("slow", ["s"], seconds=50), agent("quick", ["q"], seconds=5)
        a, b = await retinue.spawn(slow, "Go."), await retinue.spawn(quick, "Go.")
        with pytest.raises(TimeoutError):
            await retinue.wait(a, timeout=1)
        with pytest.raises(TimeoutError):
            await retinue.wait(a, timeout=timedelta(seconds=1))
        first = await retinue.wait(b, timeout=5)
        assert first.text == "q" and await retinue.outcome(a) is None, "the other goes on"
        assert await retinue.wait(b, timeout=0) == first, "one that has ended is not waited for"
        everybody = await asyncio.gather(retinue.wait(a), retinue.wait(b))
        assert [o.text for o in everybody] == ["s", "q"]
        with pytest.raises(ConfigError, match="a number of seconds or a timedelta"):
            await retinue.wait(await retinue.spawn(slow, "Go."), timeout="soon")
        with pytest.raises(NotFound):
            await retinue.wait("nobody")


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_reading_an_outcome_takes_nothing_away(kind: str, tmp_path: Path) -> None:
    home, one = Home(kind, tmp_path), agent("one", ["x"])
    async with home.open() as retinue:
        outcome = await retinue.run(one, "Go.")
        assert await retinue.outcome(outcome.id) == outcome == (await retinue.wait(outcome.id))
    async with home.open() as retinue:
        assert await retinue.outcome(outcome.id) == outcome
        with pytest.raises(NotFound):
            await retinue.outcome("nobody")


@on_virtual_time
async def test_cancel_ends_a_run_and_says_how_it_really_ended() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=1000), "Go.")
        await asyncio.sleep(10)
        assert (await retinue.cancel(run, "not needed any more")).state == "cancelled"
        outcome = await ended(retinue, run)
        assert (outcome.state, outcome.error) == ("cancelled", "not needed any more")
        assert outcome.ended_ms - outcome.created_ms == 10_000
        assert outcome.usage.estimated > 0
        result = await retinue.run(agent("two", ["y"]), "Go.")
        assert (await retinue.cancel(result.id)).state == "completed"
        with pytest.raises(NotFound):
            await retinue.cancel("nobody")


@on_virtual_time
async def test_a_cancelled_tool_is_really_stopped() -> None:
    stopped: list[str] = []

    @tool
    async def hang() -> str:
        """Never return."""
        try:
            await asyncio.sleep(1_000_000)
        except asyncio.CancelledError:
            stopped.append("hang")
            raise
        return "never"

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", [call("hang")], tools=[hang]), "Go.")
        await asyncio.sleep(1)
        await retinue.cancel(run)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert stopped == ["hang"]


@on_virtual_time
async def test_a_question_waits_for_its_answer() -> None:
    @tool
    async def ask(question: str) -> Ask:
        """Ask a person."""
        return Ask(question=question)

    script = [[call("ask", question="Red?"), call("ask", question="Round?")], "thanks"]
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", script, tools=[ask]), "Go.")
        questions = []
        async for step in retinue.steps(run, tree=False, deltas=True):
            if isinstance(step, Step) and isinstance(step.entry.event, Asked):
                questions.append(step.entry.event.question)
                if len(questions) == 2:
                    break
        assert (questions, (await retinue.tree(run)).state) == (["Red?", "Round?"], "asking")
        red, round_ = (q.id for q in await retinue.open_questions())
        with pytest.raises(
            Refused, match=rf"has 2 open questions.*{red} \(Red\?\); {round_} \(Round\?\)"
        ):
            await retinue.answer(run, "yes")
        await retinue.answer(round_, "no")
        with pytest.raises(Refused, match="has no open question"):
            await retinue.answer(round_, "yes")
        await retinue.answer(run, "yes")
        assert (await ended(retinue, run)).text == "thanks"
        text = {
            m.call_id: m.text for m in await retinue.messages(run) if isinstance(m, ToolMessage)
        }
        assert list(text.values()) == ["no", "yes"] and sorted(text) == list(reversed(text))
        for run_name in (run, red, round_, red[:6]):
            with pytest.raises(Refused, match="has no open question"):
                await retinue.answer(run_name, "yes")
        assert retinue._engine.trees.index.questions == {}


@on_virtual_time
async def test_two_answers_to_one_question_are_not_both_taken() -> None:
    @tool
    async def ask() -> Ask:
        """Ask a person."""
        return Ask(question="Which?")

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", [call("ask"), "thanks"], tools=[ask]), "Go.")
        await asyncio.sleep(1)
        both = await asyncio.gather(
            retinue.answer(run, "a"), retinue.answer(run, "b"), return_exceptions=True
        )
    assert sorted(type(one).__name__ for one in both) == ["NoneType", "Refused"]


@on_virtual_time
async def test_rights_that_are_taken_away_are_gone_at_the_next_call_below_too() -> None:
    child = agent(
        "child", [call("rest", seconds=60.0), call("rest", seconds=1.0), "done"], tools=[rest]
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead_of(child), "Go.")
        await asyncio.sleep(10)
        await retinue.restrict(run, Permissions(deny=("rest",)))
        outcome = await ended(retinue, run)
        results = [
            m for m in await retinue.messages(outcome.children[0].id) if hasattr(m, "call_id")
        ]
        with pytest.raises(NotFound):
            await retinue.restrict(run, Permissions())
    assert results[0].text == "rested 60 s"
    assert results[1].text.startswith("Refused: lead denies 'rest'")


@on_virtual_time
async def test_a_run_has_only_the_tools_that_its_order_leaves_it() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        one = agent("one", lambda q: ",".join(t.name for t in q.tools) or "none", tools=[rest])
        assert (await retinue.run(one, "Go.")).text == "rest,artifact"
        denied = await retinue.run(one, "Go.", permissions=Permissions(deny=("rest",)))
        assert denied.text == "artifact"


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_stream_replays_the_log_then_follows_and_ends_with_the_run(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    script = [call("rest", seconds=10.0), "done"]
    async with home.open() as retinue:
        run = await retinue.spawn(agent("one", script, tools=[rest]), "Go.")
        await asyncio.sleep(5)
        items = [item async for item in retinue.steps(run, tree=False, deltas=True)]
        steps = [i for i in items if isinstance(i, Step)]
        names = [type(s.entry.event).__name__ for s in steps]
        assert names == ["Requested", "RunCreated", "Replied", "TextReturned", "Replied"]
        assert [s.seq for s in steps] == sorted({s.seq for s in steps})
        assert [i.text for i in items if isinstance(i, TextPiece)] == ["done"]
    async with home.open() as retinue:
        again = [item async for item in retinue.steps(run, tree=False, deltas=True)]
        assert again == steps, "of an ended run the log is the whole stream"
        after = [
            item async for item in retinue.steps(run, after=steps[2].seq, tree=False, deltas=True)
        ]
        assert after == steps[3:]
        with pytest.raises(NotFound):
            _ = [item async for item in retinue.steps("nobody", tree=False, deltas=True)]


@on_virtual_time
async def test_two_watchers_see_the_same_steps() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=5), "Go.")

        async def watch() -> list[object]:
            return [item async for item in retinue.steps(run, tree=False, deltas=True)]

        early = asyncio.create_task(watch())
        await asyncio.sleep(2)
        late = asyncio.create_task(watch())
        assert await early == await late


@on_virtual_time
async def test_a_long_log_is_streamed_whole_and_in_order() -> None:
    """Longer than one page of the log."""
    turns, calls = 20, 60

    def script(request: ModelRequest) -> object:
        return [call("rest", seconds=0.0)] * calls if request.turn < turns else "done"

    async with Retinue(MemoryStore(), clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", script, tools=[rest]), "Go.")
        steps = [
            item async for item in retinue.steps(outcome.id, tree=False) if isinstance(item, Step)
        ]
    assert len(steps) == 2 + turns * (1 + calls) + 1
    assert [s.seq for s in steps] == sorted({s.seq for s in steps})
    assert isinstance(steps[0].entry.event, Requested) and isinstance(
        steps[-1].entry.event, Replied
    )


@on_virtual_time
async def test_a_watcher_that_falls_far_behind_still_sees_every_step() -> None:
    """More steps than a watcher's queue holds, while it is busy elsewhere."""
    n = 11_000

    def script(request: ModelRequest) -> object:
        return [call("rest", seconds=0.0)] * n if request.turn == 0 else "done"

    async with Retinue(clock=VirtualClock(), limits=Limits(calls_per_turn=n)) as retinue:
        run = await retinue.spawn(agent("one", script, tools=[rest], seconds=5), "Go.")
        steps = []
        async for item in retinue.steps(run, tree=False, deltas=True):
            if isinstance(item, Step):
                steps.append(item.seq)
                if len(steps) == 3:  # the log is read, from here on it follows
                    await asyncio.sleep(1_000)
    assert len(steps) == 2 + 1 + n + 1


@on_virtual_time
async def test_whoever_stops_watching_leaves_nothing_behind() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=1_000), "Go.")

        async def watch() -> None:
            async for _ in retinue.steps(run, tree=False, deltas=True):
                pass

        before = len(asyncio.all_tasks())
        for _ in range(20):
            watching = asyncio.create_task(watch())
            await asyncio.sleep(1)
            watching.cancel()
            await asyncio.wait([watching])
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == before


@on_virtual_time
async def test_a_cancel_reaches_those_whom_an_ended_run_has_left_behind() -> None:
    child = agent("child", ["x"], seconds=1_000)
    lead = lead_of(child, 3, join="none")
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead, "Go.", children_on_end="keep")
        assert (await ended(retinue, run)).ok
        with pytest.raises(Refused, match="Cancel it first"):
            await retinue.forget(run)
        assert (await retinue.cancel(run)).state == "completed"
        outcomes = [await retinue.outcome(c.id) for c in (await retinue.tree(run)).children]
        assert [(o.state, o.by) for o in outcomes if o] == [("cancelled", "user")] * 3
        await retinue.forget(run)
        with pytest.raises(NotFound):
            await retinue.cancel(run)
