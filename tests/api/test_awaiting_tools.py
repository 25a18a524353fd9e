"""Tools that await children, answers and messages in plain Python: results are typed values, and a
crash loses none of them and starts nobody twice."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import (
    Agent,
    Ask,
    Budget,
    ConfigError,
    Context,
    Delegation,
    Lane,
    NotFound,
    Refused,
    Retinue,
    tool,
)
from retinue.core.state import Waiting
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from retinue.tools.function import FunctionTool
from tests.api.dying import die
from tests.api.scripted_agents import STORES, Home, agent, last, on_virtual_time


class Review(msgspec.Struct):
    file: str
    score: int


def submitting(request: ModelRequest) -> Any:
    text = request.messages[0].text
    return call("submit_result", result={"file": text, "score": len(text)})


def lead_with(*tools: FunctionTool, staff: tuple[Agent, ...] = (), **args: Any) -> Agent:
    """An agent that calls its first tool and ends with what it was told."""
    name = tools[0].name

    def script(request: ModelRequest) -> Any:
        return last(request) if request.turn else call(name, **args)

    return agent("lead", script, tools=list(tools), staff=list(staff))


def echo(seconds: float = 0.0) -> Agent:
    return agent("worker", lambda q: f"did {q.messages[0].text}", seconds=seconds)


async def text_of(lead: Agent, **options: Any) -> str:
    async with Retinue(agents=[lead]) as retinue:
        return (await retinue.run(lead, "Go.", **options)).text


async def failing(request: ModelRequest) -> str:
    if request.messages[0].text == "bad":
        raise RuntimeError("no")
    return f"did {request.messages[0].text}"


@on_virtual_time
async def test_outcomes_are_typed_values_in_the_order_of_the_tasks() -> None:
    reviewer: Agent[Review] = agent("reviewer", submitting, output=Review)

    @tool(restart="pure")
    async def review(ctx: Context, files: list[str]) -> str:
        reviews = await ctx.gather(reviewer, *files)
        worst = min(reviews.results, key=lambda review: review.score)
        assert isinstance(worst, Review)
        one = await ctx.run(reviewer, "one")
        return f"{worst.file} of {[r.unwrap().file for r in reviews]}, {one.unwrap().score}"

    lead = lead_with(review, staff=(reviewer,), files=["long.py", "a.py", "mid.py"])
    assert await text_of(lead) == "a.py of ['long.py', 'a.py', 'mid.py'], 3"


@on_virtual_time
async def test_failures_are_collected_and_do_not_stop_the_others() -> None:
    worker = Agent("worker", model=Scripted(failing, name="w"))

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        all = await ctx.gather(worker, "good", "bad", "fine", max_turns=3)
        assert [outcome.ok for outcome in all] == [True, False, True]
        with pytest.raises(Exception, match="failed"):
            all.unwrap()
        return f"{all.results} {[one.state for one in all.failed]} {len(all)} {all[1:][0].state}"

    text = await text_of(lead_with(survey, staff=(worker,)))
    assert text == "['did good', 'did fine'] ['failed'] 3 failed"


@on_virtual_time
async def test_at_most_so_many_work_at_once() -> None:
    busy, most = 0, 0

    async def work(request: ModelRequest) -> str:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(1)
        busy -= 1
        return "done"

    worker = Agent("worker", model=Scripted(work, name="w"))

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        return str(len((await ctx.gather(worker, *"abcdefg", at_once=2)).results))

    assert await text_of(lead_with(survey, staff=(worker,))) == "7"
    assert most == 2


@on_virtual_time
async def test_a_run_whose_tool_waits_holds_no_slot_of_its_lane() -> None:
    worker = echo()

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        lane = [Lane(name="one", size=1)]
        return str((await ctx.run(worker, "a", lanes=lane)).text)

    lead = lead_with(survey, staff=(worker,))
    assert await text_of(lead, lanes=(Lane(name="one", size=1),)) == "did a"


@on_virtual_time
async def test_no_child_spends_more_than_its_parent_has() -> None:
    worker = echo()

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        with pytest.raises(Refused) as refusal:
            await ctx.run(worker, "a", budget=Budget(tokens=1_000_000))
        assert refusal.value.limit == "budget"
        assert str(refusal.value).startswith("Not enough budget: 1,000,000 tokens requested")
        return "refused"

    lead = lead_with(survey, staff=(worker,))
    async with Retinue(agents=[lead]) as retinue:
        outcome = await retinue.run(lead, "Go.", budget=Budget(tokens=200_000))
        assert outcome.text == "refused" and outcome.children == ()


@on_virtual_time
async def test_a_child_that_is_not_on_the_staff_gets_the_sentence_that_says_so() -> None:
    stranger = echo()

    @tool
    async def review(ctx: Context) -> str:
        with pytest.raises(ConfigError) as error:
            await ctx.run(stranger, "a")
        return str(error.value)

    assert await text_of(lead_with(review)) == (
        "Tool 'review' starts 'worker', which is not on the staff of 'lead'. "
        'Write Agent("lead", ..., staff=[worker]).'
    )


@on_virtual_time
async def test_an_unknown_option_names_the_nearest_one() -> None:
    worker = echo()

    @tool
    async def survey(ctx: Context) -> str:
        with pytest.raises(ConfigError) as error:
            await ctx.run(worker, "a", timeout_s=3)  # type: ignore[call-arg]
        return str(error.value)

    text = await text_of(lead_with(survey, staff=(worker,)))
    assert text == "run() has no option 'timeout_s'. Did you mean 'timeout'?"


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_after_a_crash_no_child_works_twice_and_the_code_gets_all_results(
    kind: str, tmp_path: Path
) -> None:
    home, starts, worked = Home(kind, tmp_path), list[tuple[bool, str, datetime]](), Counter[str]()

    async def work(request: ModelRequest) -> str:
        part = request.messages[0].text
        await asyncio.sleep(10 * int(part[-1]))
        worked[part] += 1
        return f"{part} done"

    worker = Agent("worker", model=Scripted(work, name="w"))

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        starts.append((ctx.again, ctx.key, ctx.now))
        parts = await ctx.gather(worker, "part 1", "part 2", "part 3")
        more = await ctx.run(worker, "part 4")
        return f"{[p.upper() for p in parts.results]} and {more.text}"

    lead = lead_with(survey, staff=(worker,))
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.")
    await asyncio.sleep(25)
    state = retinue._engine.on_record[run].state
    assert isinstance(state, Waiting) and state.calls is not None and state.calls.parked == 1
    await die(retinue)
    async with home.open(agents=[lead]) as retinue:
        await asyncio.sleep(5)
        assert len(starts) == 1, "children go on first"
        outcome = await retinue.wait(run)
        assert outcome is not None
        assert outcome.text == "['PART 1 DONE', 'PART 2 DONE', 'PART 3 DONE'] and part 4 done"
        assert len(outcome.children) == 4
    assert worked == {"part 1": 1, "part 2": 1, "part 3": 1, "part 4": 1}
    (first, second) = starts
    assert (first[0], second[0]) == (False, True)
    assert first[1:] == second[1:], "key and time of a call never change"


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_an_unsafe_tool_is_not_run_again_and_no_report_is_lost(
    kind: str, tmp_path: Path
) -> None:
    home, worker, starts = Home(kind, tmp_path), echo(10.0), list[str]()

    @tool
    async def survey(ctx: Context) -> str:
        starts.append(ctx.key)
        return f"{len(await ctx.gather(worker, 'a', 'b'))} parts"

    lead = lead_with(survey, staff=(worker,))
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.")
    await asyncio.sleep(5)
    await die(retinue)
    async with home.open(agents=[lead]) as retinue:
        outcome = await retinue.wait(run)
    assert outcome is not None and len(starts) == 1
    assert outcome.text.startswith("Interrupted by a restart")
    assert "did a" in outcome.text and "did b" in outcome.text


@on_virtual_time
async def test_a_child_that_the_new_code_does_not_ask_for_is_cancelled_and_the_tool_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, worker = Home("memory", tmp_path), echo(100.0)
    quick = agent("quick", lambda q: f"did {q.messages[0].text}")
    texts, waits = ["a", "b"], asyncio.Event()

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        runs = [await ctx.spawn(worker, task) for task in texts]
        one = await ctx.run(quick, "first")
        if not ctx.again:
            await waits.wait()
        return f"{one.text}, {len(runs)} in the background"

    lead = lead_with(survey, staff=(worker, quick))
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.", children_on_end="wait")
    await asyncio.sleep(5)
    await die(retinue)
    texts.remove("b")
    with caplog.at_level(logging.WARNING, "retinue"):
        async with home.open(agents=[lead]) as retinue:
            outcome = await retinue.wait(run)
            assert outcome is not None
            ends = {str(c.id): c.state for c in outcome.children}
            tasks = {
                row.spec.request.task: ends[row.spec.id]
                for row in await retinue._store.children(run)
            }
    assert tasks == {"a": "completed", "b": "cancelled", "first": "completed"}
    assert "Tool 'survey' was run again after a restart and did not ask for worker" in caplog.text


@on_virtual_time
async def test_order_and_number_of_steps_may_change_and_a_key_names_one_by_hand(
    tmp_path: Path,
) -> None:
    home, worked, dies = Home("memory", tmp_path), Counter[str](), [True]

    async def work(request: ModelRequest) -> str:
        worked[request.messages[0].text] += 1
        return f"did {request.messages[0].text}"

    worker = Agent("worker", model=Scripted(work, name="w"))
    slow = agent("slow", ["done"], seconds=100.0)

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        if dies[0]:
            twice = [await ctx.run(worker, "same"), await ctx.run(worker, "same")]
            named = await ctx.run(worker, "first words", key="named")
        else:
            named = await ctx.run(worker, "other words", key="named")
            await ctx.run(worker, "new")
            twice = [await ctx.run(worker, "same"), await ctx.run(worker, "same")]
        await ctx.run(slow, "wait")
        return f"{named.text}, {twice[0].id != twice[1].id}"

    lead = lead_with(survey, staff=(worker, slow))
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.")
    await asyncio.sleep(5)
    await die(retinue)
    dies[0] = False
    async with home.open(agents=[lead]) as retinue:
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.text == "did first words, True"
    assert worked == {"same": 2, "first words": 1, "new": 1}


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_an_answer_is_a_value_in_the_code_also_after_a_restart(
    kind: str, tmp_path: Path
) -> None:
    home, starts = Home(kind, tmp_path), list[bool]()

    @tool(restart="pure")
    async def choose(ctx: Context) -> str:
        starts.append(ctx.again)
        colour = await ctx.ask("Which colour?", choices=["red", "blue"])
        size = await ctx.ask("Which size?")
        return f"{colour} and {size}"

    lead = lead_with(choose)
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.", questions="ask")
    await asyncio.sleep(1)
    (question,) = await retinue.open_questions()
    assert (question.text, question.choices) == ("Which colour?", ("red", "blue"))
    for wrong in ("green", "", "red or blue"):
        with pytest.raises(Refused, match=r"is not one of the choices\. .*: red, blue"):
            await retinue.answer(question.id, wrong)
    await retinue.answer(question.id, " Red ")
    await asyncio.sleep(1)
    (question,) = await retinue.open_questions()
    await die(retinue)
    async with home.open(agents=[lead]) as retinue:
        assert [q.text for q in await retinue.open_questions()] == ["Which size?"]
        await asyncio.sleep(1)
        assert starts == [False], "it is not run again before there is an answer"
        await retinue.answer(question.id, "large")
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.text == "red and large"
    assert starts == [False, True]


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_plain_function_is_run_again_with_the_answer(kind: str, tmp_path: Path) -> None:
    home, ordered = Home(kind, tmp_path), list[str]()

    @tool(restart="keyed", quick=True)
    def order(ctx: Context, n: int) -> Ask | str:
        if ctx.answer is None:
            return Ask(question=f"Really {n}?", choices=("yes", "no"), rerun=True)
        if ctx.answer == "yes":
            ordered.append(ctx.key)
        return f"{ctx.answer}: {n}"

    lead = lead_with(order, n=40)
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.", questions="ask")
    await asyncio.sleep(1)
    await die(retinue)
    async with home.open(agents=[lead]) as retinue:
        (question,) = await retinue.open_questions()
        assert (question.text, question.choices) == ("Really 40?", ("yes", "no"))
        await retinue.answer(question.id, "yes")
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.text == "yes: 40" and len(ordered) == 1


@on_virtual_time
async def test_messages_and_cancels_go_out_once(tmp_path: Path) -> None:
    home, requests, dies = Home("memory", tmp_path), list[str](), asyncio.Event()

    def talk(request: ModelRequest) -> Any:
        requests[:] = [m.text for m in request.messages]
        return call("nap") if request.turn < 3 else "awake"

    @tool(restart="pure")
    async def nap() -> str:
        await asyncio.sleep(20)
        return "rested"

    sleeper = agent("sleeper", talk, tools=[nap])
    idler = echo(1_000.0)

    @tool(restart="pure")
    async def talking(ctx: Context) -> str:
        one = await ctx.spawn(sleeper, "sleep", tell_parent=False)
        two = await ctx.spawn(idler, "idle")
        await ctx.send(one, "<wake up>")
        await ctx.cancel(two, "not needed")
        await ctx.cancel(two)
        if not ctx.again:
            await dies.wait()
        ended = await ctx.wait(two)
        return f"{(await ctx.wait(one)).text}, {ended.state}: {ended.error}"

    lead = lead_with(talking, staff=(sleeper, idler))
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.")
    await asyncio.sleep(5)
    await die(retinue)
    async with home.open(agents=[lead]) as retinue:
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.text.endswith("awake, cancelled: not needed")
    assert sum(text.count("<wake up>") for text in requests) == 1


@on_virtual_time
async def test_a_wait_that_timed_out_does_so_again_and_the_child_goes_on(tmp_path: Path) -> None:
    home, slow, dies = Home("memory", tmp_path), echo(60.0), asyncio.Event()

    @tool(restart="pure")
    async def waiting(ctx: Context) -> str:
        run = await ctx.spawn(slow, "a", tell_parent=False)
        with pytest.raises(NotFound):
            await ctx.wait("nobody")
        with pytest.raises(TimeoutError):
            await ctx.wait(run, timeout=10)
        if not ctx.again:
            await dies.wait()
        return str((await ctx.wait(run)).text)

    lead = lead_with(waiting, staff=(slow,))
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = await retinue.spawn(lead, "Go.")
    await asyncio.sleep(30)
    await die(retinue)
    await asyncio.sleep(100)
    async with home.open(agents=[lead]) as retinue:
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.text == "did a"


@on_virtual_time
async def test_a_timeout_counts_the_work_of_the_tool_and_not_its_waiting() -> None:
    slow = echo(100.0)

    @tool(restart="pure", timeout=5)
    async def patient(ctx: Context) -> str:
        await asyncio.sleep(2)
        await ctx.run(slow, "a")
        await asyncio.sleep(2)
        return "in time"

    @tool(restart="pure", timeout=5)
    async def lazy(ctx: Context) -> str:
        await asyncio.sleep(3)
        await ctx.run(slow, "a")
        await asyncio.sleep(3)
        return "never"

    assert await text_of(lead_with(patient, staff=(slow,))) == "in time"
    stopped = await text_of(lead_with(lazy, staff=(slow,)))
    assert stopped == "The tool was stopped after 5 s of its own work."


@on_virtual_time
async def test_cancelling_a_run_raises_at_the_await() -> None:
    slow, texts = echo(100.0), list[str]()

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        try:
            await ctx.run(slow, "a")
        except asyncio.CancelledError:
            texts.append("cancelled")
            raise
        return "done"

    lead = lead_with(survey, staff=(slow,))
    async with Retinue(agents=[lead]) as retinue:
        run = await retinue.spawn(lead, "Go.")
        await asyncio.sleep(5)
        await retinue.cancel(run)
        outcome = await retinue.wait(run)
        assert outcome is not None and outcome.state == "cancelled"
        assert [c.state for c in outcome.children] == ["cancelled"]
    assert texts == ["cancelled"]


@on_virtual_time
async def test_a_child_still_open_when_the_tool_returns_is_cancelled_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = echo(100.0)

    @tool(restart="pure")
    async def hasty(ctx: Context) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await ctx.run(slow, "a")
        return "enough"

    lead = lead_with(hasty, staff=(slow,))
    with caplog.at_level(logging.WARNING, "retinue"):
        async with Retinue(agents=[lead]) as retinue:
            outcome = await retinue.run(lead, "Go.")
    assert outcome.text == "enough" and [c.state for c in outcome.children] == ["cancelled"]
    assert "Tool 'hasty' returned without waiting for worker" in caplog.text


@pytest.mark.parametrize("way", ["returned", "dropped", "listed", "awaited before"])
@on_virtual_time
async def test_a_delegation_is_returned_or_an_error_names_the_tool(way: str) -> None:
    worker = echo()

    @tool
    async def hand_out(ctx: Context, way: str) -> Delegation | list[Delegation] | str:
        if way == "awaited before":
            await ctx.run(worker, "first")
        delegation = ctx.delegate(worker, "a", "b", at_once=1)
        if way == "listed":
            return [delegation]
        return "nothing" if way == "dropped" else delegation

    text = await text_of(lead_with(hand_out, staff=(worker,), way=way))
    if way in ("returned", "awaited before"):
        assert "did a" in text and "did b" in text and "did first" not in text
    else:
        assert text == (
            "The tool failed: ConfigError: Tool 'hand_out' made a delegation and did not return "
            "it. Write: return ctx.delegate(...)."
        )


@on_virtual_time
async def test_steps_may_be_taken_at_the_same_time() -> None:
    worker = echo(5.0)

    @tool(restart="pure")
    async def survey(ctx: Context) -> str:
        a, b, c = await asyncio.gather(
            ctx.run(worker, "a"), ctx.gather(worker, "b", "b"), ctx.run(worker, "a")
        )
        assert a.id != c.id and b[0].id != b[1].id
        return f"{a.text}, {len(b.results)}"

    lead = lead_with(survey, staff=(worker,))
    async with Retinue(agents=[lead]) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert outcome.text == "did a, 2" and len(outcome.children) == 4


@on_virtual_time
async def test_a_tool_that_takes_no_step_leaves_no_trace_of_steps() -> None:
    @tool(restart="pure")
    async def plain(ctx: Context) -> str:
        return ctx.agent

    lead = lead_with(plain)
    async with Retinue(agents=[lead]) as retinue:
        run = (await retinue.run(lead, "Go.")).id
        entries = await retinue._store.entries(0, "", 1_000)
    kinds = [type(entry.event).__name__ for _, entry in entries if entry.run == run]
    assert kinds == ["RunCreated", "Replied", "TextReturned", "Replied"]
