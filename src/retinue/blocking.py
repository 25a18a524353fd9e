"""For programs without an event loop: one run, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.core.type_parameters import D, T
from retinue.errors import RetinueError
from retinue.option_types import RetinueOptions, RunOptions, check_run_options
from retinue.outcomes import Outcome
from retinue.starts import failing
from retinue.store.base import Store
from retinue.tools.option_values import check_values


class _Asked(TypedDict):
    agent: Agent[Any, Any]
    task: str


@overload
def run_sync(
    agent: Agent[T, None],
    task: str,
    *,
    store: str | Path | Store | None = None,
    agents: Sequence[Agent[Any, None]] = (),
    runtime: RetinueOptions | None = None,
    **options: Unpack[RunOptions],
) -> Outcome[T]: ...
@overload
def run_sync(
    agent: Agent[T, D],
    task: str,
    *,
    deps: D,
    store: str | Path | Store | None = None,
    agents: Sequence[Agent[Any, D]] = (),
    runtime: RetinueOptions | None = None,
    **options: Unpack[RunOptions],
) -> Outcome[T]: ...
def run_sync(
    agent: Agent[Any, Any],
    task: str,
    *,
    deps: Any = None,
    store: str | Path | Store | None = None,
    agents: Sequence[Agent[Any, Any]] = (),
    runtime: RetinueOptions | None = None,
    **options: Any,
) -> Outcome[Any]:
    """Run one agent in a program that has no event loop of its own, to the end of everything that
    it has started. `runtime` are the options of the `Retinue` in which it runs."""
    if asyncio._get_running_loop() is not None:
        raise RetinueError(
            "run_sync cannot be used inside an event loop. Use `await "
            "Retinue(...).run(...)` instead."
        )

    check_values("run_sync()", {"agent": agent, "task": task}, _Asked)
    check_run_options("run_sync()", options)

    async def main() -> Outcome[Any]:
        async with Retinue(store, deps=deps, agents=agents, **(runtime or {})) as retinue:
            run = await retinue.spawn(agent, task, **{**failing(agent), **options})
            await retinue.settle(run)
            return await retinue.wait(run)

    return asyncio.run(main())
