"""Tests your agents under crashes: plays a scenario many times and checks the runtime's promises.

A process dies between two commits, or after a commit and before anything comes of it. Nothing of it
is left but the store; the next one opens that and plays the scenario again from its first line. So
a scenario starts its runs with a `key`, as a program does that may be started twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, overload

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.core.changes import Changes
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage
from retinue.core.state import Ended
from retinue.core.type_parameters import D
from retinue.core.values import Value
from retinue.errors import ConfigError
from retinue.models import scripted
from retinue.option_types import RetinueOptions
from retinue.store.base import Store
from retinue.store.memory import MemoryStore
from retinue.testing.virtual_clock import VirtualClock, run_virtual
from retinue.tools.base import Context, Returned
from retinue.tools.option_values import check_values
from retinue.tools.start_options import check_known

MOST_CRASHES = 3
"""A schedule with random crashes has no more of them."""
RATE = 0.08
LONGEST = 30 * 24 * 3600.0
"""So many virtual seconds a scenario may take."""
Crashes = Literal["none", "some", "every_step"]
Scenario = Callable[[Retinue[Any]], Awaitable[object]]


class _Wanted(TypedDict):
    scenario: Callable[..., Any]
    runtime: Mapping[str, Any] | None
    seeds: int
    crashes: Crashes


class SimulationReport(Value):
    """What came of it: how many schedules were played (`seeds`), how often a process died in them,
    and a sentence for each schedule that went wrong."""

    seeds: int
    crashes: int
    failures: tuple[str, ...]


@overload
def simulate(
    scenario: Callable[[Retinue[None]], Awaitable[object]],
    *,
    agents: Sequence[Agent[Any, None]] = (),
    runtime: RetinueOptions | None = None,
    seeds: int = 100,
    crashes: Crashes = "some",
) -> SimulationReport: ...
@overload
def simulate(
    scenario: Callable[[Retinue[D]], Awaitable[object]],
    *,
    deps: D,
    agents: Sequence[Agent[Any, D]] = (),
    runtime: RetinueOptions | None = None,
    seeds: int = 100,
    crashes: Crashes = "some",
) -> SimulationReport: ...
def simulate(
    scenario: Scenario,
    *,
    deps: Any = None,
    agents: Sequence[Agent[Any, Any]] = (),
    runtime: RetinueOptions | None = None,
    seeds: int = 100,
    crashes: Crashes = "some",
) -> SimulationReport:
    """Play a scenario on virtual time, and check what the runtime promises: `seeds` times without
    crashes or with `some` at random, or once for `every_step` at which it can die. An assertion
    that fails in the scenario, or in a script of a model, is a failure."""
    own = {"scenario": scenario, "runtime": runtime, "seeds": seeds, "crashes": crashes}
    check_values("simulate()", own, _Wanted)
    check_known("simulate(): runtime=", runtime or {}, RetinueOptions.__annotations__)
    if seeds < 1:
        raise ConfigError(f"simulate() plays at least one schedule: seeds=1 or more, not {seeds}.")
    opening: dict[str, Any] = {"deps": deps, "agents": agents, **(runtime or {})}
    if crashes == "every_step":
        first = Schedule("without a crash", lambda n, deaths: False)
        failures = first.play(scenario, opening)
        schedules = [] if failures else [dying_at(n) for n in range(first.n_points)]
    else:
        first, failures = None, []
        rate = RATE if crashes == "some" else 0.0
        schedules = [dying_at_random(seed, rate) for seed in range(seeds)]
    for schedule in schedules:
        failures += schedule.play(scenario, opening)
    played = schedules if first is None else [first, *schedules]
    n_crashes = sum(schedule.n_crashes for schedule in played)
    return SimulationReport(seeds=len(played), crashes=n_crashes, failures=tuple(failures))


def dying_at(point: int) -> Schedule:
    return Schedule(f"dies at point {point}", lambda n, deaths: n == point)


def dying_at_random(seed: int, rate: float) -> Schedule:
    chance = random.Random(seed)
    return Schedule(
        f"seed {seed}", lambda n, deaths: deaths < MOST_CRASHES and chance.random() < rate
    )


class Schedule:
    """One way in which a scenario goes: `dies` says whether its process dies at a point, counted
    over all of its lives. Each commit has two points: before it, and after it."""

    def __init__(self, name: str, dies: Callable[[int, int], bool]) -> None:
        self.name, self._dies = name, dies
        self.n_points = self.n_crashes = 0
        self._starts: Counter[str] = Counter()
        self._problems: list[str] = []

    def play(self, scenario: Scenario, opening: dict[str, Any]) -> list[str]:
        """What went wrong, in one sentence; nothing if all is well."""
        errors: list[AssertionError] = []
        try:
            with scripted.assertion_listener(errors.append):
                run_virtual(self._play(scenario, opening))
        except Exception as error:
            self._problems.append(f"{type(error).__name__}: {error}")
        problems = [f"a script failed: {error}" for error in errors[:1]] or self._problems
        return [f"{self.name}: {'; '.join(problems)}"] if problems else []

    async def _play(self, scenario: Scenario, opening: dict[str, Any]) -> None:
        store, clock = MemoryStore(), VirtualClock()
        async with asyncio.timeout(LONGEST):
            while True:
                died = asyncio.Event()
                mortal: Any = MortalStore(store, self, died)
                retinue: Retinue[Any] = Retinue(mortal, **{"clock": clock, **opening})
                if await self._live(retinue, scenario, died):
                    break
                store = store.survivor()
        await self._check(store)

    async def _live(self, retinue: Retinue[Any], scenario: Scenario, died: asyncio.Event) -> bool:
        """One process; whether it came to the end of the scenario."""
        self._count_calls(retinue)

        async def life() -> None:
            async with retinue:
                await scenario(retinue)
                await retinue.settle()

        task, death = asyncio.ensure_future(life()), asyncio.ensure_future(died.wait())
        await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if task.done():
            await task
            return True
        self.n_crashes += 1
        await abandon(retinue, task)
        return False

    def dies_here(self) -> bool:
        point, self.n_points = self.n_points, self.n_points + 1
        return self._dies(point, self.n_crashes)

    def _count_calls(self, retinue: Retinue[Any]) -> None:
        """Each call of a tool that must not run twice is counted by its name, over all lives."""
        toolbox = retinue._engine.performer._tools
        run, run_now = toolbox.run, toolbox.run_now

        def count(agent: str, context: Context, call: ToolCall) -> None:
            is_first = not (context.is_woken or context.answer is not None)
            if is_first and toolbox.restart_class(agent, call.name) == "unsafe":
                self._starts[context.key] += 1
                if self._starts[context.key] > 1:
                    self._problems.append(f"{call.name} must not be repeated, and was run twice")

        async def counted(agent: str, context: Context, call: ToolCall) -> Returned:
            count(agent, context, call)
            return await run(agent, context, call)

        def counted_now(agent: str, context: Callable[[], Context], call: ToolCall) -> Returned:
            if toolbox.restart_class(agent, call.name) == "unsafe":
                count(agent, context(), call)
            return run_now(agent, context, call)

        changes: Any = toolbox
        changes.run, changes.run_now = counted, counted_now

    async def _check(self, store: MemoryStore) -> None:
        """What must hold of the record when everything is over."""
        store = store.survivor()
        await store.open()
        self._problems += await store.verify()
        for line in await store.listing(children=True, limit=1_000_000):
            row = await store.row(line.id)
            if row is None:
                continue
            messages = await store.messages(row.spec.conversation, 0, row.run.length)
            calls = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]
            results = [m.call_id for m in messages if isinstance(m, ToolMessage)]
            is_ended = isinstance(row.run.state, Ended)
            if is_ended and len(results) > len(calls):
                self._problems.append(f"run {line.id} has a result without a call")
            account = await store.account(line.id)
            if is_ended and account is not None and any(account.held):
                self._problems.append(f"run {line.id} has ended and still holds budget")


class MortalStore:
    """A store whose process may die before or after a commit."""

    def __init__(self, inner: Store, schedule: Schedule, died: asyncio.Event) -> None:
        self._inner, self._schedule, self._died = inner, schedule, died

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, changes: Changes) -> int:
        if self._schedule.dies_here():
            await self._die()
        position = await self._inner.commit(changes)
        if self._schedule.dies_here():
            await self._die()
        return position

    async def _die(self) -> None:
        self._died.set()
        await asyncio.get_running_loop().create_future()


async def abandon(retinue: Retinue[Any], *others: asyncio.Task[Any]) -> None:
    """The process is gone: nothing more is written, and nothing says so."""
    engine = retinue._engine
    batch = engine.commits.under_way
    tasks = [engine.task, batch.task if batch is not None else None, *engine.performer.tasks()]
    alive: list[asyncio.Future[Any]] = [task for task in tasks if task is not None]
    engine._open = False
    for task in (*alive, *others):
        task.cancel()
    await asyncio.gather(*alive, *others, return_exceptions=True)
    engine.timers.close()
