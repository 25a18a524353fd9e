"""Processes that die: runs with long model calls, one of which may kill its process, and the death
itself."""

from __future__ import annotations

import asyncio

from retinue import Agent, Retinue
from retinue.models.base import ModelRequest
from retinue.testing import Scripted


class Crowd:
    """`begun` are the runs that have asked their model; `dead` is set when the run on task number
    `killer` does."""

    def __init__(self, killer: int | None = None, seconds: float = 1_000.0) -> None:
        self.killer, self.seconds = killer, seconds
        self.dead = asyncio.Event()
        self.begun: set[str] = set()
        self.agent = Agent("one", model=Scripted(self._say, name="m"))

    async def _say(self, request: ModelRequest) -> str:
        self.begun.add(request.run)
        if request.messages[0].text == f"task {self.killer}":
            self.dead.set()
        await asyncio.sleep(self.seconds)
        return "done"

    def forget(self) -> None:
        """Another process begins."""
        self.dead.clear()
        self.begun.clear()


async def die(retinue: Retinue) -> None:
    """Nothing more is written, and nobody says goodbye."""
    engine = retinue._engine
    batch = engine.commits.under_way
    tasks = [
        t for t in (engine.task, batch and batch.task, *engine.performer.tasks()) if t is not None
    ]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    engine.timers.close()
