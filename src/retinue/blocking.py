"""For programs without an event loop: one run, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.channels.base import Channel
from retinue.errors import RetinueError
from retinue.models.base import ModelCatalog
from retinue.outcomes import Outcome
from retinue.store.base import Store


def run_sync(
    agent: Agent,
    task: str,
    *,
    store: str | Path | Store | None = None,
    agents: Sequence[Agent] = (),
    channels: Mapping[str, Channel] | None = None,
    models: ModelCatalog | None = None,
    **options: Any,
) -> Outcome:
    """Run one agent in a program that has no event loop of its own, to the end of everything that
    it has started."""
    if asyncio._get_running_loop() is not None:
        raise RetinueError(
            "run_sync cannot be used inside an event loop. Use `await "
            "Retinue(...).run(...)` instead."
        )

    async def main() -> Outcome:
        async with Retinue(store, agents=agents, channels=channels, models=models) as retinue:
            run = await retinue.spawn(agent, task, **options)
            await retinue.settle(run)
            return await retinue._outcome_of(run)

    return asyncio.run(main())
