"""While one batch is written the next one is stepped: in order, not before its time, and nothing of
it is left when the one before it fails. And no batch keeps the event loop to itself, however much
one event causes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Defect, Limits, Retinue, RetinueError, StoreError, StoreFull, tool
from retinue.core import machine
from retinue.core.events import MailReceived, Replied, Requested, Woke
from retinue.core.state import Ended
from retinue.runtime import engine as engine_module
from retinue.runtime.performer import Performer
from retinue.testing import MemoryStore, VirtualClock, call
from tests.api.scripted_agents import STORES, Home, agent, ended, lead_of, on_virtual_time

both = pytest.mark.parametrize("kind", STORES)


class Gate:
    """A store in front of another, which writes only when it is told to. `written` are the events
    of each batch."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.asked = 0
        self.pace = 0.0
        self.trouble: Exception | None = None
        self.written: list[list[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, changes: Any) -> int:
        self.asked += 1
        await self.is_open.wait()
        if self.pace:
            await asyncio.sleep(self.pace)
        if self.trouble is not None:
            raise self.trouble
        seq: int = await self.store.commit(changes)
        self.written.append([entry.event for entry in changes.entries])
        return seq

    async def closed(self, retinue: Retinue) -> None:
        """From now on nothing is written, and nothing is under way."""
        await retinue._engine.caught_up()
        self.is_open.clear()
        self.asked = 0
        self.written.clear()


class GatedStore(Home):
    def gated(self, **options: Any) -> tuple[Retinue, Gate]:
        gates: list[Gate] = []

        def wrap(store: Any) -> Gate:
            gates.append(Gate(store))
            return gates[-1]

        return self.open(wrap, **options), gates[0]


def told(questions: list[str], text: str = "done") -> Any:
    def script(request: Any) -> str:
        questions.append(request.messages[0].text)
        return text

    return script


async def until(is_it: Any, seconds: float = 0.001) -> None:
    for _ in range(100_000):
        if is_it():
            return
        await asyncio.sleep(seconds)
    raise AssertionError("it never came")


async def turns(n: int = 50) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


@both
@on_virtual_time
async def test_what_comes_while_a_batch_is_written_is_stepped_and_written_in_the_next_one(
    kind: str, tmp_path: Path
) -> None:
    questions: list[str] = []
    one = agent("one", told(questions))
    retinue, gate = GatedStore(kind, tmp_path).gated(agents=[one])
    async with retinue:
        await gate.closed(retinue)
        first = asyncio.ensure_future(retinue.spawn(one, "first"))
        await until(lambda: gate.asked)
        rest = [asyncio.ensure_future(retinue.spawn(one, f"next {n}")) for n in range(3)]
        trees = retinue._engine.trees
        await until(lambda: sum(1 for _ in trees.live()) == 4)
        await turns()
        assert gate.asked == 1, "one batch at a time"
        assert not questions and not first.done() and not any(r.done() for r in rest)
        assert not retinue._engine.on_record, "what is shown is on record"
        gate.is_open.set()
        runs = [await task for task in (first, *rest)]
        for run in runs:
            assert (await ended(retinue, run)).text == "done"
        requested = [
            [e.request.task for e in batch if isinstance(e, Requested)] for batch in gate.written
        ]
        assert requested[:2] == [["first"], ["next 0", "next 1", "next 2"]]
        assert await retinue.verify() == []


@both
@on_virtual_time
async def test_runs_that_answer_at_once_share_their_batches_however_they_began(
    kind: str, tmp_path: Path
) -> None:
    @tool(restart="pure", quick=True)
    def look() -> str:
        """Look."""
        return "seen"

    one = agent("one", [call("look")] * 9 + ["done"], tools=[look])
    retinue, gate = GatedStore(kind, tmp_path).gated(agents=[one])
    async with retinue:
        await gate.closed(retinue)
        first = asyncio.ensure_future(retinue.spawn(one, "first"))
        await until(lambda: gate.asked)
        second = asyncio.ensure_future(retinue.spawn(one, "second"))
        await turns()
        gate.pace = 0.001
        gate.is_open.set()
        for starting in (first, second):
            assert (await ended(retinue, await starting)).text == "done"
        steps = [[type(e).__name__ for e in batch] for batch in gate.written]
        assert sum(map(len, steps)) == 2 * 21
        assert len(steps) == 21, steps


@both
@on_virtual_time
async def test_nothing_of_the_next_batch_is_begun_when_the_one_before_it_is_on_record(
    kind: str, tmp_path: Path
) -> None:
    questions: list[str] = []
    one = agent("one", told(questions), seconds=1)
    retinue, gate = GatedStore(kind, tmp_path).gated(agents=[one])
    async with retinue:
        await gate.closed(retinue)
        first = asyncio.ensure_future(retinue.spawn(one, "first"))
        await until(lambda: gate.asked)
        second = asyncio.ensure_future(retinue.spawn(one, "second"))
        await turns()
        gate.is_open.set()
        await until(lambda: gate.asked == 2)
        gate.is_open.clear()
        await asyncio.sleep(0.5)
        gate.is_open.set()
        await ended(retinue, await first)
        await ended(retinue, await second)
        assert questions == ["first", "second"]


@both
@on_virtual_time
async def test_a_tree_that_breaks_while_it_is_written_goes_back_to_that(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    bad, good = agent("bad", told(questions)), agent("good", told(questions))
    home = GatedStore(kind, tmp_path)
    real = machine.step  # type: ignore[attr-defined]

    def step(run: Any, event: Any, desk: Any) -> Any:
        if isinstance(event, MailReceived) and event.mail.text == "planted":
            raise KeyError("planted")
        return real(run, event, desk)

    retinue, gate = home.gated(agents=[bad, good])
    with monkeypatch.context() as patch:
        patch.setattr(machine, "step", step)
        async with retinue:
            await gate.closed(retinue)
            starting = asyncio.ensure_future(retinue.spawn(bad, "bad"))
            await until(lambda: gate.asked)
            other = asyncio.ensure_future(retinue.spawn(good, "good"))
            (root,) = (spec.id for spec, _ in retinue._engine.trees.live())
            waiting = asyncio.ensure_future(retinue._engine.ended(root))
            dropped = asyncio.ensure_future(retinue.send(root, "this step is dropped"))
            await turns()
            breaking = asyncio.ensure_future(retinue.send(root, "planted"))
            await turns()
            for told_of_it in (dropped, breaking, waiting):
                with pytest.raises(Defect, match="KeyError: 'planted'"):
                    await told_of_it
            gate.is_open.set()
            assert await starting == root, "its start is on record"
            assert (await ended(retinue, await other)).ok
            await asyncio.sleep(5)
            assert questions == ["good"], "nothing is begun for a tree that was set aside"
            row = await gate.row(root)
            assert (
                row is not None and row.run.defect == "KeyError: 'planted'" and row.run.version == 1
            )
            texts = [
                e.event.mail.text
                for _, e in await gate.entries()
                if isinstance(e.event, MailReceived)
            ]
            assert texts == [], "what was stepped after it is not written"
            assert root not in retinue._engine.on_record and await retinue.verify() == []
    async with home.open(agents=[bad, good]) as retinue:
        assert (await ended(retinue, root)).ok
        assert questions == ["good", "bad"]


@on_virtual_time
async def test_whoever_ended_in_a_step_that_is_dropped_is_not_waited_for_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = machine.step  # type: ignore[attr-defined]

    def step(run: Any, event: Any, desk: Any) -> Any:
        if isinstance(event, MailReceived) and event.mail.text == "planted":
            raise KeyError("planted")
        return real(run, event, desk)

    monkeypatch.setattr(machine, "step", step)
    child = agent("child", ["part"], seconds=5)
    gate = Gate(MemoryStore())
    async with Retinue(gate, clock=VirtualClock()) as retinue:
        lead = await retinue.spawn(lead_of(child, 2), "Go.")
        await until(lambda: len(retinue._engine.on_record) == 3)
        (one, _) = (spec.id for spec, _ in retinue._engine.trees.live() if spec.parent)
        await gate.closed(retinue)
        await asyncio.sleep(10)
        assert retinue._engine.trees.run(one) is None, "in memory it has ended"
        waiting = asyncio.ensure_future(retinue.wait(one))
        await turns()
        breaking = asyncio.ensure_future(retinue.send(lead, "planted"))
        await turns()
        gate.is_open.set()
        with pytest.raises(Defect):
            await breaking
        outcome = await asyncio.wait_for(waiting, 60)
        assert outcome is not None and outcome.ok, "its end was being written, and is on record"


@both
@on_virtual_time
async def test_closing_while_a_batch_is_written_keeps_what_was_stepped_behind_it(
    kind: str, tmp_path: Path
) -> None:
    questions: list[str] = []
    one = agent("one", told(questions))
    home = GatedStore(kind, tmp_path)
    retinue, gate = home.gated(agents=[one])
    await retinue.__aenter__()
    await gate.closed(retinue)
    first = asyncio.ensure_future(retinue.spawn(one, "first"))
    await until(lambda: gate.asked)
    second = asyncio.ensure_future(retinue.spawn(one, "second"))
    await turns()
    closing = asyncio.ensure_future(retinue.__aexit__(None, None, None))
    await turns()
    assert not closing.done()
    gate.is_open.set()
    await closing
    runs = [await first, await second]
    assert questions == []
    async with home.open(agents=[one]) as retinue:
        for run in runs:
            assert (await ended(retinue, run)).ok
        assert await retinue.verify() == []


@pytest.mark.parametrize(
    "trouble", [StoreFull("no space left"), StoreError("the disk was pulled out")]
)
@on_virtual_time
async def test_nothing_is_written_behind_a_batch_that_could_not_be(trouble: StoreError) -> None:
    questions: list[str] = []
    one, store = agent("one", told(questions)), MemoryStore()
    gate = Gate(store)
    retinue = Retinue(gate, agents=[one], clock=VirtualClock())
    await retinue.__aenter__()
    await gate.closed(retinue)
    first = asyncio.ensure_future(retinue.spawn(one, "first"))
    await until(lambda: gate.asked)
    second = asyncio.ensure_future(retinue.spawn(one, "second"))
    await turns()
    gate.trouble = trouble
    gate.is_open.set()
    await asyncio.sleep(1)
    gate.trouble = None
    await retinue.__aexit__(None, None, None)
    for run_id in (first, second):
        with pytest.raises(RetinueError):
            await run_id
    assert questions == [] and [type(e).__name__ for batch in gate.written for e in batch] == [
        "Closed"
    ]
    after = store.survivor()
    async with Retinue(after, agents=[one], clock=VirtualClock()) as again:
        assert await after.listing() == []
        assert (await again.run(one, "another")).ok


@on_virtual_time
async def test_a_crash_while_a_batch_is_written_leaves_what_was_acknowledged() -> None:
    questions: list[str] = []
    one, store = agent("one", told(questions), seconds=1), MemoryStore()
    gate = Gate(store)
    retinue = Retinue(gate, agents=[one], clock=VirtualClock())
    await retinue.__aenter__()
    run_id = await retinue.spawn(one, "acknowledged")
    await gate.closed(retinue)
    futures = [
        asyncio.ensure_future(retinue.spawn(one, text)) for text in ("being written", "stepped")
    ]
    await until(lambda: gate.asked)
    await turns()
    engine = retinue._engine
    batch = engine.commits.under_way
    assert batch is not None and batch.task is not None and engine.task is not None
    dead = [engine.task, batch.task, *engine.performer.tasks(), *futures]
    for task in dead:
        task.cancel()
    await asyncio.gather(*dead, return_exceptions=True)
    engine.timers.close()
    after = store.survivor()
    async with Retinue(after, agents=[one], clock=VirtualClock()) as again:
        assert [s.id for s in await after.listing()] == [run_id]
        assert (await ended(again, run_id)).ok
    assert "being written" not in questions and "stepped" not in questions


@on_virtual_time
async def test_whoever_wants_to_be_up_to_date_waits_for_everything_that_was_queued() -> None:
    one, gate = agent("one", ["x"] * 3, seconds=5), Gate(MemoryStore())
    async with Retinue(gate, agents=[one], clock=VirtualClock()) as retinue:
        engine = retinue._engine
        await engine.caught_up()
        await gate.closed(retinue)
        first = asyncio.ensure_future(retinue.spawn(one, "first"))
        await until(lambda: gate.asked)
        early = asyncio.ensure_future(engine.caught_up())
        await turns()
        second = asyncio.ensure_future(retinue.spawn(one, "second"))
        await turns()
        late = asyncio.ensure_future(engine.caught_up())
        await turns()
        assert not early.done() and not late.done()
        gate.is_open.set()
        await early
        assert await first in engine.on_record
        await late
        assert list(engine.on_record) == [await first, await second]


@on_virtual_time
async def test_many_who_want_to_be_up_to_date_change_nothing_and_stop_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "MAX_UNWRITTEN", 3)
    one, gate = agent("one", ["x"], seconds=5), Gate(MemoryStore())
    async with Retinue(gate, agents=[one], clock=VirtualClock()) as retinue:
        await gate.closed(retinue)
        run = asyncio.ensure_future(retinue.spawn(one, "go"))
        await until(lambda: gate.asked)
        waiting = [asyncio.ensure_future(retinue._engine.caught_up()) for _ in range(10)]
        await turns()
        gate.is_open.set()
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert (await ended(retinue, await run)).ok


class Counter:
    """What is done between two turns of the event loop: steps and effects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = self.most = self.total = 0
        take, perform = machine.take, Performer.perform

        def counted_take(*args: Any) -> Any:
            self.n += 1
            return take(*args)

        def counted_perform(*args: Any) -> Any:
            self.n += 1
            return perform(*args)

        monkeypatch.setattr(machine, "take", counted_take)
        monkeypatch.setattr(Performer, "perform", counted_perform)

    async def watch(self) -> None:
        while True:
            self.most, self.total, self.n = max(self.most, self.n), self.total + self.n, 0
            await asyncio.sleep(0)


@on_virtual_time
async def test_no_event_keeps_the_loop_longer_than_a_bounded_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 400
    monkeypatch.setattr(engine_module, "MAX_STEPS", 50)
    child = agent("child", ["never"], seconds=3600)
    lead = lead_of(child, n)
    async with Retinue(clock=VirtualClock(), limits=Limits(calls_per_turn=10_000)) as retinue:
        counter = Counter(monkeypatch)
        watching = asyncio.ensure_future(counter.watch())
        run = await retinue.spawn(lead, "Go.")
        await until(lambda: counter.total > 2 * n, 0)
        assert counter.most <= 100, "starting them"
        counter.total = counter.most = 0
        assert (await retinue.cancel(run)).state == "cancelled"
        assert counter.total > 2 * n and counter.most <= 100, (
            "ending them, which is one transaction"
        )
        counter.total = counter.most = 0
        one = Agent("one", model=child.model)
        await asyncio.gather(*(retinue.spawn(one, f"{i}") for i in range(n)))
        assert counter.total >= n and counter.most <= 100, "starting many from outside"
        watching.cancel()
        row = await retinue._store.row(run)
        assert row is not None and isinstance(row.run.state, Ended)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 7])
@on_virtual_time
async def test_wherever_a_turn_ends_everything_is_written_and_performed(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "MAX_STEPS", most)
    monkeypatch.setattr(engine_module, "MAX_UNWRITTEN", 2 * most)
    async with Retinue(clock=VirtualClock()) as retinue:
        for n in range(1, 6):
            run = await retinue.spawn(
                lead_of(agent(f"child {n}", ["part"] * n), n, name=f"lead {n}"), "Go."
            )
            outcome = await retinue.wait(run, timeout=60)
            assert outcome is not None and outcome.text.count("part") == n


@on_virtual_time
async def test_what_belongs_to_one_event_is_one_transaction_however_many_turns_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "MAX_STEPS", 10)
    child = agent("child", ["never"], seconds=3600)
    gate = Gate(MemoryStore())
    async with Retinue(gate, clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead_of(child, 60), "Go.")
        await until(lambda: len(retinue._engine.on_record) == 61)
        await gate.closed(retinue)
        gate.is_open.set()
        cancelling = asyncio.ensure_future(retinue.cancel(run))
        await turns(3)
        retinue._engine.post(run, Woke())
        await cancelling
        with_cancel = [
            batch for batch in gate.written if any(type(e).__name__ == "CancelAsked" for e in batch)
        ]
        assert len(with_cancel) == 1 and len(with_cancel[0]) > 60
        assert not any(isinstance(e, Replied) for e in with_cancel[0])


class HurriedClock(VirtualClock):
    """Each look at it takes 15 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def now(self) -> int:
        self.looks += 1
        return super().now() + 15 * self.looks


@on_virtual_time
async def test_steps_that_take_long_keep_the_loop_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 400
    one = agent("one", ["never"], seconds=3600)
    async with Retinue(agents=[one], clock=HurriedClock()) as retinue:
        counter = Counter(monkeypatch)
        watching = asyncio.ensure_future(counter.watch())
        runs = await asyncio.gather(*(retinue.spawn(one, f"{i}") for i in range(n)))
        assert counter.total >= n and counter.most <= 4 * engine_module.LOOK_EVERY
        counter.total = counter.most = 0
        await asyncio.gather(*(retinue.cancel(run) for run in runs))
        assert counter.total >= n and counter.most <= 4 * engine_module.LOOK_EVERY
        watching.cancel()


@on_virtual_time
async def test_of_many_who_wait_for_one_commit_only_some_go_on_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, most, n_told = 300, 20, 0
    monkeypatch.setattr(engine_module, "MAX_STEPS", most)
    one, gate = agent("one", ["never"], seconds=3600), Gate(MemoryStore())

    async def start(retinue: Retinue, i: int) -> None:
        nonlocal n_told
        await retinue.spawn(one, f"{i}")
        n_told += 1

    async with Retinue(gate, agents=[one], clock=VirtualClock()) as retinue:
        await gate.closed(retinue)
        starting = [asyncio.ensure_future(start(retinue, i)) for i in range(n)]
        await turns(2 * n)
        gate.is_open.set()
        largest = 0
        while n_told < n:
            before = n_told
            await asyncio.sleep(0)
            largest = max(largest, n_told - before)
        assert 0 < largest <= 2 * most
        await asyncio.gather(*starting)


@on_virtual_time
async def test_who_asks_again_and_again_whether_a_run_has_ended_leaves_nothing_behind() -> None:
    one = agent("one", ["x"], seconds=5_000)
    async with Retinue(agents=[one], clock=VirtualClock()) as retinue:
        run = await retinue.spawn(one, "go")
        waiting = [asyncio.ensure_future(retinue.wait(run)) for _ in range(3)]
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await retinue.wait(run, timeout=1)
        assert len(list(retinue._engine.end_waiters)) <= len(waiting) + 1
        assert all(outcome.ok for outcome in await asyncio.gather(*waiting))
        assert list(retinue._engine.end_waiters) == []
