"""The arithmetic of quotas under any order of events: calls that ask at once, stores that answer
late and out of order, orders that the machine refuses, deaths in between. Never more than the
quota, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import ParentCall, RunRequest, RunSpec
from retinue.core.state import Ended, OpenCalls, Run, RunRecord, Working
from retinue.core.values import Budget, Ending, Usage
from retinue.testing import run_virtual
from retinue.tools.base import Context
from retinue.tools.families.base import CallComplaint
from retinue.tools.families.subagent.quota import Quota, Quotas, QuotaSpent
from tests.api.scripted_agents import on_virtual_time

OURS = "subagent"
T = TypeVar("T")
Posted = tuple[Context, int, dict[str, Any], asyncio.Future[list[str] | None]]


class Mill:
    """A machine in small: it records orders one after the other, late, or refuses them; whatever is
    read of it may have been true a moment ago. Runs spend what they can, start others, and end."""

    def __init__(self, r: random.Random, quota: Quota) -> None:
        self.r, self.quota = r, quota
        self.quotas = Quotas(quota, (OURS,))
        self.specs: dict[str, RunSpec] = {}
        self.runs: dict[str, Run] = {}
        self.said: dict[str, list[Message]] = {}
        self.queue: deque[Posted] = deque()
        self.epoch = self.at = 0
        self.refused = 0
        self.enlist(
            RunSpec(
                id="root",
                request=RunRequest(agent="lead", task="Go."),
                root="root",
                conversation="root",
            )
        )

    # what tools read

    async def children(self, run: str) -> Sequence[RunRecord]:
        return await self.late(
            lambda: [RunRecord(s, self.runs[s.id]) for s in self.specs.values() if s.parent == run]
        )

    async def messages(self, spec: RunSpec, run: Run) -> Sequence[Message]:
        return await self.late(lambda: self.said[spec.id][run.start : run.length])

    async def late(self, read: Callable[[], list[T]]) -> list[T]:
        result = read()
        await self.lag()
        return result if self.r.random() < 0.5 else read()

    async def lag(self) -> None:
        if self.r.random() < 0.7:
            await asyncio.sleep(self.r.random())

    # what the machine does

    def enlist(self, spec: RunSpec) -> None:
        self.specs[spec.id], self.said[spec.id] = spec, [UserMessage(text="x")]
        self.runs[spec.id] = Run(
            id=spec.id, state=Working(calls=OpenCalls(message=0, count=0, open=0)), length=1
        )

    async def engine(self) -> None:
        while True:
            await asyncio.sleep(self.r.random() / 2)
            if self.r.random() < 0.02:
                self.die()
            while self.queue and self.r.random() < 0.8:
                self.take_order(*self.queue.popleft())

    def die(self) -> None:
        """What was not recorded is asked for again; what was remembered is gone, unless the program
        lives on."""
        self.epoch += 1
        if self.r.random() < 0.5:
            self.quotas = Quotas(self.quota, (OURS,))
        while self.queue:
            self.queue.popleft()[3].set_result(None)

    def take_order(
        self,
        context: Context,
        n: int,
        fields: dict[str, Any],
        future: asyncio.Future[list[str] | None],
    ) -> None:
        if self.r.random() < 0.2:
            self.refused += 1
            future.set_result([])
        else:
            self.record(context, n, fields, future)

    def record(
        self,
        context: Context,
        n: int,
        fields: dict[str, Any],
        future: asyncio.Future[list[str] | None],
    ) -> None:
        parent, ids = context.spec, []
        self.runs[parent.id] = replace(
            self.runs[parent.id], n_children=self.runs[parent.id].n_children + n
        )
        for item in range(n):
            slot = ParentCall(
                turn=context.row.turn,
                index=context.index,
                item=item,
                call_id=context.call_id,
                tool=OURS,
            )
            order = RunRequest(agent="helper", task="x", **fields)
            id = context.child_id(item)
            path = f"{parent.path}/{slot.turn}.{slot.index}.{item}"
            spec = RunSpec(
                id=id,
                request=order,
                root="root",
                parent=parent.id,
                depth=parent.depth + 1,
                path=path,
                parent_call=slot,
            )
            self.enlist(replace(spec, conversation=id, created_at=self.at))
            ids.append(id)
        self.check()
        future.set_result(ids)

    # what must hold

    def top(self, id: str) -> str:
        while self.specs[id].parent != "root":
            id = self.specs[id].parent
        return id

    def spent(self, top: str) -> int:
        return sum(
            run.usage.tokens
            for id, run in self.runs.items()
            if id != "root" and self.top(id) == top
        )

    def charges(self) -> int:
        """What was spent and what can still be spent."""
        total = 0
        for spec in self.specs.values():
            if spec.parent == "root":
                ended = isinstance(self.runs[spec.id].state, Ended)
                total += self.spent(spec.id) if ended else spec.request.budget.tokens or 0
        return total

    @property
    def executions(self) -> int:
        return len(self.specs) - 1

    def check(self) -> None:
        assert self.quota.executions is None or self.executions <= self.quota.executions
        assert self.quota.tokens is None or self.charges() <= self.quota.tokens

    # what runs do

    async def live(self, id: str) -> None:
        spec, r = self.specs[id], self.r
        if id != "root":
            self.spend(id)
        for _ in range(r.randint(0, 2) if spec.depth else 3):
            if spec.depth < 3 and self.executions < 80:
                await self.turn(id, r.randint(1, 4))
        if id != "root":
            self.spend(id)
            await self.lag()
            ended = Ended(ending=Ending(state="completed", stop="done"))
            self.runs[id] = replace(self.runs[id], state=ended)

    def spend(self, id: str) -> None:
        top, run = self.top(id), self.runs[id]
        granted = self.specs[top].request.budget.tokens
        if granted is not None:
            used = self.r.randint(0, granted - self.spent(top))
            self.runs[id] = replace(run, usage=run.usage.plus(Usage(input=used)))

    async def turn(self, id: str, n: int) -> None:
        # Now and then two calls bear the same id.
        names = [self.r.choice([OURS, OURS, "look_up"]) for _ in range(n)]
        calls = [ToolCall(id=f"c{self.r.randint(0, 9)}", name=name) for name in names]
        text = self.said[id]
        text.append(AssistantMessage(calls=tuple(calls)))
        bits = (1 << n) - 1
        state = Working(calls=OpenCalls(message=len(text) - 1, count=n, open=bits, tools=bits))
        run = self.runs[id] = replace(
            self.runs[id], turn=self.runs[id].turn + 1, length=len(text), state=state
        )
        await asyncio.gather(*(self.call(run, call, i) for i, call in enumerate(calls)))

    def context(self, run: Run, call: ToolCall, index: int) -> Context:
        self.at += 1
        spec = self.specs[run.id]
        key = f"{run.id}/{run.turn}/{index}"
        return Context(
            spec=spec,
            row=run,
            call_id=call.id,
            index=index,
            key=key,
            called_at=self.at,
            reader=cast(Any, self),
        )

    async def call(self, run: Run, call: ToolCall, index: int) -> None:
        children: list[str] | None = []
        if call.name == OURS:
            while (children := await self.ask(run, call, index)) is None:
                await self.lag()
        children = children or []
        await asyncio.gather(*(self.live(child) for child in children))
        self.said[run.id].append(ToolMessage(call_id=call.id, text="x", error=not children))
        if self.r.random() < 0.5:
            self.quotas.settled(children)

    async def ask(self, run: Run, call: ToolCall, index: int) -> list[str] | None:
        """Those that were started; None when the process died before it was recorded."""
        await self.lag()
        epoch, quotas, n = self.epoch, self.quotas, self.r.randint(1, 3)
        context = self.context(run, call, index)
        try:
            await quotas.check(context, CallComplaint)
            fields = await quotas.take(context, n)
        except (QuotaSpent, CallComplaint):
            return [] if epoch == self.epoch else None
        if epoch != self.epoch:
            return None
        future: asyncio.Future[list[str] | None] = asyncio.get_running_loop().create_future()
        self.queue.append((context, n, fields, future))
        return await future


async def grind(seed: int, quota: Quota) -> Mill:
    mill = Mill(random.Random(seed), quota)
    tasks = [asyncio.ensure_future(mill.live("root")), asyncio.ensure_future(mill.engine())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for failure in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(failure, Exception):
            raise failure
    mill.check()
    return mill


amounts = st.one_of(st.none(), st.integers(0, 60))


@settings(max_examples=70, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32), amounts, st.one_of(st.none(), st.integers(0, 100_000)))
def test_no_order_of_events_gets_more_than_the_quota_and_none_loses_any_of_it(
    seed: int, executions: int | None, tokens: int | None
) -> None:
    async def play() -> None:
        mill = await grind(seed, Quota(executions, tokens))
        n_left = 5 if executions is None else executions - mill.executions
        rest = None if tokens is None else tokens - mill.charges()
        if executions is not None:
            with pytest.raises(QuotaSpent, match="executions"):
                await mill.quotas.take(asking(mill)[0], n_left + 1)
        if not n_left:
            return
        if rest is not None and rest < n_left:
            with pytest.raises(QuotaSpent, match="tokens"):
                await mill.quotas.take(asking(mill)[0], n_left)
            return
        fields = await mill.quotas.take(asking(mill)[0], n_left)
        if rest is not None:
            assert fields["budget"] == Budget(tokens=rest // n_left), (
                "all that is left, in equal parts"
            )
        else:
            assert "budget" not in fields

    run_virtual(play())


@on_virtual_time
async def test_the_mill_grinds() -> None:
    """The property would be easy to keep if nothing ever happened."""
    mills = [await grind(seed, Quota(executions=40, tokens=50_000)) for seed in range(15)]
    assert sum(m.executions == 40 for m in mills) > 3
    assert sum(m.refused for m in mills) > 20
    assert sum(m.epoch for m in mills) > 5
    assert sum(m.charges() > 25_000 for m in mills) > 3
    assert max(s.depth for m in mills for s in m.specs.values()) == 3


def asking(mill: Mill, id: str = "root", n: int = 1) -> list[Context]:
    """The next turn of a run, with so many calls."""
    text, run = mill.said[id], mill.runs[id]
    calls = tuple(ToolCall(id=f"c{i}", name=OURS) for i in range(n))
    text.append(AssistantMessage(calls=calls))
    bits = (1 << n) - 1
    state = Working(calls=OpenCalls(message=len(text) - 1, count=n, open=bits, tools=bits))
    run = mill.runs[id] = replace(run, turn=run.turn + 1, length=len(text), state=state)
    return [mill.context(run, call, i) for i, call in enumerate(calls)]


async def start(mill: Mill, context: Context, n: int = 1) -> list[str]:
    """Children that were granted, and recorded at once."""
    future: asyncio.Future[list[str] | None] = asyncio.get_running_loop().create_future()
    mill.record(context, n, await mill.quotas.take(context, n), future)
    return await future or []


@on_virtual_time
async def test_what_a_grandchild_spends_is_part_of_what_its_parent_was_granted() -> None:
    mill = Mill(random.Random(1), Quota(tokens=200))
    first, second = asking(mill, n=2)
    (child,) = await start(mill, first)
    (grandchild,) = await start(mill, asking(mill, child)[0])
    assert mill.specs[child].request.budget == Budget(tokens=100)
    assert mill.specs[grandchild].request.budget == Budget(), "it lives on that"
    mill.runs[grandchild] = replace(mill.runs[grandchild], usage=Usage(input=60))
    assert (await mill.quotas.take(second, 1))["budget"] == Budget(tokens=100)


@on_virtual_time
async def test_a_grant_whose_call_was_broken_off_is_free_again() -> None:
    """A message has steered the run away: its call never gets a result, and its order came too
    late."""
    mill = Mill(random.Random(1), Quota(executions=1, tokens=100))
    await mill.quotas.take(asking(mill)[0], 1)
    mill.said["root"].append(UserMessage(text="Stop that."))
    fields = await mill.quotas.take(asking(mill)[0], 1)
    assert fields["budget"] == Budget(tokens=100)


@on_virtual_time
async def test_a_grant_whose_run_has_ended_is_free_again() -> None:
    """A child was stopped between its grant and its order."""
    mill = Mill(random.Random(1), Quota(executions=2))
    (child,) = await start(mill, asking(mill)[0])
    await mill.quotas.take(asking(mill, child)[0], 1)
    (other,) = asking(mill)
    with pytest.raises(QuotaSpent):
        await mill.quotas.take(other, 1)
    ended = Ended(ending=Ending(state="cancelled", stop="cancelled"))
    mill.runs[child] = replace(mill.runs[child], state=ended)
    await mill.quotas.take(other, 1)


@on_virtual_time
async def test_a_reader_that_comes_late_does_not_miss_what_another_has_seen_recorded() -> None:
    """The first reads before the child is on record and hears of it after a second one has; the
    grant still counts."""
    mill = Mill(random.Random(1), Quota(executions=2))
    callers = asking(mill, n=3)
    slow: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Slow:
        async def children(self, run: str) -> Sequence[RunRecord]:
            records = [
                RunRecord(s, mill.runs[s.id]) for s in mill.specs.values() if s.parent == run
            ]
            await slow
            return records

        messages = mill.messages

    fields = await mill.quotas.take(callers[0], 1)
    late = asyncio.ensure_future(mill.quotas.take(_seen_by(callers[1], Slow()), 2))
    await asyncio.sleep(10)
    mill.record(callers[0], 1, fields, asyncio.get_running_loop().create_future())
    await mill.quotas.check(callers[2], CallComplaint)
    slow.set_result(None)
    with pytest.raises(QuotaSpent, match="1 of 2 executions are used, 2 more requested"):
        await late


def _seen_by(context: Context, look: Any) -> Context:
    fields = {
        name: getattr(context, name)
        for name in ("spec", "row", "call_id", "index", "key", "called_at")
    }
    return Context(**fields, reader=look)
