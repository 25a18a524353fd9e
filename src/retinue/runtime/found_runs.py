"""Runs that a new process finds open: each run that can continue here gets an event, immediately or
when it is its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from retinue.core.events import Cleared, Recovered
from retinue.core.spec import RunSpec
from retinue.core.state import Run, attempts_of
from retinue.core.suspects import Trial
from retinue.runtime import recover

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine
    from retinue.runtime.tool_runner import ToolRunner


class FoundRuns:
    """The open runs of an earlier process that have not got their event yet. `clean`: it was closed
    in good order."""

    def __init__(
        self,
        engine: Engine,
        tools: ToolRunner,
        runs: dict[str, tuple[RunSpec, Run]],
        epoch: int,
        *,
        clean: bool,
    ) -> None:
        self._engine = engine
        self._tools = tools
        self._dormant = runs
        self._epoch = epoch
        self._clean = clean
        limits = engine.trees.shared.limits
        self._trial = Trial((run for _, run in runs.values()), epoch, clean=clean, limits=limits)
        self._watched = -1
        self.handed_over = False
        """Another worker had them, and has not crashed."""

    @property
    def dormant(self) -> tuple[str, ...]:
        """Open runs whose agent or model is not registered yet."""
        return tuple(self._dormant)

    async def take_up(self) -> None:
        """Send the event to every open run that can continue in this process; runs suspected of
        having crashed the last processes get it when it is their turn (`core.suspects`)."""
        engine, trial, tools = self._engine, self._trial, self._tools
        rows = [
            (s, r)
            for s, r in self._dormant.values()
            if s.model in engine.models and s.request.agent in tools.agents
        ]
        future: asyncio.Future[str] | None = None
        for spec, run in [(s, r) for s, r in rows if not trial.holds(s.id)]:
            if self._dormant.pop(spec.id, None) is None or engine.trees.run(spec.id) is None:
                continue
            calls = await recover.open_calls(spec, run, engine.store.messages, tools.restart_class)
            event = Recovered(
                epoch=self._epoch,
                turn=run.turn,
                attempt=run.attempt,
                clean=self._clean,
                handed_over=self.handed_over,
                alone=spec.id == trial.alone,
                calls=calls,
                unsent=tuple(a for a in attempts_of(run) if engine.is_unsent(run.id, a)),
            )
            future = engine.post_and_wait(spec.id, event)
        if not trial.is_over and self._watched != trial.number:
            self._watched = trial.number
            engine.performer.later(self._watch(trial.number, future))
        engine.performer.unpark()

    def saw(self, runs: Mapping[str, Run]) -> None:
        """These runs are on record anew: the wave may have moved on."""
        if not self._trial.is_over and self._trial.saw(runs):
            self._engine.performer.later(self._next_wave())

    async def _watch(self, wave: int, last: asyncio.Future[str] | None) -> None:
        """A wave is watched from the moment when the last of it is at work."""
        if last is not None:
            await asyncio.wait([last])
        await asyncio.sleep(self._trial.wait_ms / 1000)
        if self._trial.number == wave:
            await self._next_wave()

    async def _next_wave(self) -> None:
        """The wave has made progress or has run for a while, which is recorded; the next one may be
        resumed."""
        for id in self._trial.go_on():
            run = self._engine.on_record.get(id)
            if run is not None and run.epoch == self._epoch and run.suspicion is not None:
                self._engine.post(id, Cleared())
        await self.take_up()
