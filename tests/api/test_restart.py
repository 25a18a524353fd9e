"""A runtime is closed in the middle of the work, or dies; the next one on the same store goes
on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Actions,
    Ask,
    Context,
    Limits,
    ModelUnavailable,
    Retinue,
    RetinueError,
    Retry,
    StoreLocked,
    tool,
)
from retinue.core.events import ChildEnded, Woke
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.testing import call
from tests.api.scripted_agents import (
    STORES,
    Home,
    agent,
    all_taken_up,
    ended,
    last,
    lead_of,
    on_virtual_time,
)

both = pytest.mark.parametrize("kind", STORES)


@both
@on_virtual_time
async def test_a_tree_goes_on_after_a_restart_and_each_result_arrives_once(
    kind: str, tmp_path: Path
) -> None:
    home, questions = Home(kind, tmp_path), dict[str, int]()

    async def work(request: ModelRequest) -> str:
        task = request.messages[0].text
        questions[task] = questions.get(task, 0) + 1
        await asyncio.sleep(10 + 10 * int(task[-1]))
        return f"did {task}"

    lead = lead_of(agent("child", work), 4)
    async with home.open() as retinue:
        run = await retinue.spawn(lead, "Go.")
        await asyncio.sleep(25)
    async with home.open(agents=[lead]) as retinue:
        assert retinue.runs_without_agent == ()
        outcome = await ended(retinue, run)
        joined = [e async for e in _children_ended(retinue, run)]
    assert outcome.state == "completed"
    assert [outcome.text.count(f"did task {n}") for n in range(4)] == [1, 1, 1, 1]
    assert len(joined) == len(set(joined)) == 4
    assert questions == {"task 0": 1, "task 1": 1, "task 2": 2, "task 3": 2}, (
        "ended children are not run again"
    )


async def _children_ended(retinue: Retinue, run: str) -> Any:
    async for step in retinue.steps(run, tree=False, deltas=True):
        if (
            isinstance(step, Step)
            and isinstance(step.entry.event, ChildEnded)
            and not step.entry.stale
        ):
            yield step.entry.event.child


@both
@on_virtual_time
async def test_many_restarts_lose_nothing(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)

    @tool(restart="pure")
    async def step() -> str:
        """One step."""
        await asyncio.sleep(3)
        return "stepped"

    child = agent("child", lambda q: "done" if q.turn == 6 else call("step"), tools=[step])
    lead = lead_of(child, 3)
    async with home.open() as retinue:
        run = await retinue.spawn(lead, "Go.")
    for _ in range(10):
        async with home.open(agents=[lead]) as retinue:
            await asyncio.sleep(4)
            if (outcome := await retinue.outcome(run)) is not None:
                break
    assert outcome is not None and outcome.state == "completed"
    assert [c.state for c in outcome.children] == ["completed"] * 3


@pytest.mark.parametrize(
    ("restart", "runs", "text"), [("pure", 2, "wrote"), ("unsafe", 1, "outcome_unknown")]
)
@both
@on_virtual_time
async def test_an_interrupted_tool_is_repeated_only_if_it_says_so(
    kind: str, tmp_path: Path, restart: Any, runs: int, text: str
) -> None:
    home, started = Home(kind, tmp_path), list[bool]()

    @tool(restart=restart)
    async def write(context: Context) -> str:
        """Write."""
        started.append(context.again)
        await asyncio.sleep(10)
        return "wrote"

    one = agent("one", lambda q: call("write") if q.turn == 0 else last(q), tools=[write])
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.")
        await asyncio.sleep(5)
    async with home.open(agents=[one]) as retinue:
        outcome = await ended(retinue, run)
    assert text in outcome.text
    assert started == [False, True][:runs]


@both
@on_virtual_time
async def test_a_deadline_that_passed_while_nothing_ran_is_kept_at_the_next_start_once(
    kind: str, tmp_path: Path
) -> None:
    home, one = Home(kind, tmp_path), agent("one", ["late"], seconds=100)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.", timeout=60)
        await asyncio.sleep(10)
    await asyncio.sleep(1_000)
    async with home.open(agents=[one]) as retinue:
        outcome = await ended(retinue, run)
        assert (outcome.state, outcome.stop) == ("timed_out", "deadline")
        await asyncio.sleep(1_000)
        steps = [s async for s in retinue.steps(run, tree=False) if isinstance(s, Step)]
        fired = [s for s in steps if isinstance(s.entry.event, Woke) and not s.entry.stale]
        assert len(fired) == 1
    async with home.open(agents=[one]) as retinue:
        assert await retinue.outcome(run) == outcome


@both
@on_virtual_time
async def test_time_goes_on_while_nothing_runs_but_a_deadline_ahead_is_kept(
    kind: str, tmp_path: Path
) -> None:
    home, one = Home(kind, tmp_path), agent("one", ["in time"], seconds=20)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.", timeout=60)
        await asyncio.sleep(10)
    await asyncio.sleep(20)
    async with home.open(agents=[one]) as retinue:
        assert (await ended(retinue, run)).text == "in time"


@both
@on_virtual_time
async def test_runs_wait_until_their_agent_is_known(kind: str, tmp_path: Path) -> None:
    home, one = Home(kind, tmp_path), agent("one", ["x"], seconds=10)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.")
        await asyncio.sleep(1)
    async with home.open() as retinue:
        assert retinue.runs_without_agent == (run,)
        await asyncio.sleep(3_600)
        assert await retinue.outcome(run) is None
        other = agent("other", ["y"])
        await retinue.run(other, "Go.")
        assert retinue.runs_without_agent == (run,)
        await retinue.spawn(one, "Something else.")
        assert retinue.runs_without_agent == ()
        assert (await ended(retinue, run)).text == "x"


@both
@on_virtual_time
async def test_a_run_between_two_tries_waits_for_its_agent_too(kind: str, tmp_path: Path) -> None:
    home, tries = Home(kind, tmp_path), list[int]()

    def busy(request: ModelRequest) -> object:
        tries.append(1)
        return ModelUnavailable("busy", retry_after=60) if len(tries) == 1 else "at last"

    one = agent("one", busy)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.", retry=Retry(attempts=3))
        await asyncio.sleep(1)
    async with home.open() as retinue:
        await asyncio.sleep(600)
        assert await retinue.outcome(run) is None, (
            "its agent is not known here, so it must not go on, nor fail"
        )
    async with home.open(agents=[one]) as retinue:
        assert (await ended(retinue, run)).text == "at last"


@both
@on_virtual_time
async def test_a_parent_whose_agent_is_unknown_waits_when_its_child_ends(
    kind: str, tmp_path: Path
) -> None:
    home, child = Home(kind, tmp_path), agent("child", ["part"], seconds=10)
    lead = lead_of(child)
    async with home.open() as retinue:
        run = await retinue.spawn(lead, "Go.")
        await asyncio.sleep(1)
    async with home.open(agents=[child]) as retinue:
        await asyncio.sleep(600)
        assert await retinue.outcome(run) is None, (
            "its child has ended, but nobody here can speak for it"
        )
    async with home.open(agents=[lead]) as retinue:
        assert (await ended(retinue, run)).text == "part"


@both
@on_virtual_time
async def test_results_are_put_into_words_only_by_whoever_knows_how(
    kind: str, tmp_path: Path
) -> None:
    home, child = Home(kind, tmp_path), agent("child", ["part"], seconds=10)

    @tool(restart="keyed", format_results=lambda ends: " and ".join(e.ending.text for e in ends))
    async def hire(context: Context) -> Actions:
        """Hire two."""
        return context.spawn_actions(child, "a", "b", format_results=True)

    lead = agent(
        "lead", lambda q: call("hire") if q.turn == 0 else last(q), tools=[hire], staff=[child]
    )
    async with home.open() as retinue:
        run = await retinue.spawn(lead, "Go.")
        await asyncio.sleep(1)
    async with home.open(agents=[child]) as retinue:
        await asyncio.sleep(600)
        assert await retinue.outcome(run) is None
    async with home.open(agents=[lead]) as retinue:
        assert (await ended(retinue, run)).text == "part and part"


@both
@on_virtual_time
async def test_mail_and_questions_survive(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)

    @tool
    async def ask() -> Ask:
        """Ask."""
        return Ask(question="Which?")

    one = agent(
        "one",
        lambda q: call("ask") if q.turn == 0 else " ".join(m.text for m in q.messages[2:]),
        tools=[ask],
    )
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.")
        await asyncio.sleep(1)
        await retinue.send(run, "By the way.")
    async with home.open(agents=[one]) as retinue:
        assert (await retinue.tree(run)).state == "asking"
        await retinue.answer(run, "The first.")
        assert (await ended(retinue, run)).text == "The first. By the way."


@both
@on_virtual_time
async def test_a_run_that_asked_not_to_be_taken_up_is_interrupted(
    kind: str, tmp_path: Path
) -> None:
    home, one = Home(kind, tmp_path), agent("one", ["x"], seconds=10)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.", on_restart="fail")
        await asyncio.sleep(1)
    async with home.open(agents=[one]) as retinue:
        outcome = await ended(retinue, run)
    assert (outcome.state, outcome.stop) == ("interrupted", "restart")


@both
@on_virtual_time
async def test_closing_in_good_order_is_not_a_crash(kind: str, tmp_path: Path) -> None:
    """A service that is deployed five times during one long model call has not died five times."""
    home, one = Home(kind, tmp_path), agent("one", ["x"], seconds=100)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.")
    for _ in range(5):
        async with home.open(agents=[one]) as retinue:
            await asyncio.sleep(10)
    async with home.open(agents=[one]) as retinue:
        outcome = await ended(retinue, run)
    assert (outcome.state, outcome.text) == ("completed", "x"), outcome.error


@both
@on_virtual_time
async def test_a_run_that_kills_its_process_each_time_is_put_aside(
    kind: str, tmp_path: Path
) -> None:
    home, one, rules = Home(kind, tmp_path), agent("one", ["x"], seconds=100), Limits(max_deaths=3)
    async with AsyncExitStack() as dead:
        retinue = await dead.enter_async_context(home.open(limits=rules))
        run = await retinue.spawn(one, "Go.")
        for seconds in (1, 1, 0, 0, 0):
            # The next process takes the store over; the one before it has not said that it ends.
            # The third one and those after it hold the run back for a while.
            await asyncio.sleep(seconds)
            if not seconds:
                await all_taken_up(retinue)
            retinue = await dead.enter_async_context(home.open(agents=[one], limits=rules))
        outcome = await ended(retinue, run)
    assert (outcome.state, outcome.stop) == ("interrupted", "quarantined")


@both
@on_virtual_time
async def test_whoever_waits_is_told_when_the_runtime_closes(kind: str, tmp_path: Path) -> None:
    home, one = Home(kind, tmp_path), agent("one", ["x"], seconds=100)
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.")
        waiting = asyncio.create_task(retinue.wait(run))
        await asyncio.sleep(1)
    with pytest.raises(RetinueError, match="continue at its next start"):
        await waiting


def test_two_runtimes_cannot_share_one_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with Retinue(tmp_path / "log.db"):
            with pytest.raises(StoreLocked):
                async with Retinue(tmp_path / "log.db"):
                    pass

    asyncio.run(main())


def test_a_real_file_on_a_real_clock_goes_on_too(tmp_path: Path) -> None:
    lead = lead_of(agent("child", lambda q: f"did {last(q)}", seconds=0.2), 3)

    async def first() -> str:
        async with Retinue(tmp_path / "log.db") as retinue:
            run = await retinue.spawn(lead, "Go.")
            await asyncio.sleep(0.1)
            return run

    async def second(run: str) -> None:
        async with Retinue(tmp_path / "log.db", agents=[lead]) as retinue:
            outcome = await ended(retinue, run)
            assert [outcome.text.count(f"did task {n}") for n in range(3)] == [1, 1, 1]
            assert await retinue.verify() == []

    asyncio.run(second(asyncio.run(first())))


@both
@on_virtual_time
async def test_a_child_that_is_not_kept_is_deleted_once_its_result_has_arrived(
    kind: str, tmp_path: Path
) -> None:
    home, child = Home(kind, tmp_path), agent("child", ["part"], seconds=5)
    lead = lead_of(child, 2, retention="delete")
    async with home.open() as retinue:
        run = await retinue.spawn(lead, "Go.")
        await asyncio.sleep(1)
        assert len((await retinue.tree(run)).children) == 2
        outcome = await ended(retinue, run)
        assert outcome.ok
        assert outcome.children == ()
        assert "part" in "".join(m.text for m in await retinue.messages(run))
        assert [s.id async for s in retinue.runs(children=True)] == [run]
        assert await retinue.verify() == []
