"""What the tests of the front door share: scripted agents, tools that hire, and a store that
outlives its runtime."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from retinue import Actions, Agent, Context, Outcome, Retinue, tool
from retinue.models.base import ModelRequest
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.testing import MemoryStore, Scripted, VirtualClock, call, run_virtual
from retinue.tools.function import FunctionTool

STORES = ("memory", "sqlite")


def on_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test is a coroutine; a day of waiting costs it nothing."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run


class Home:
    """One store and one clock, on which runtimes are opened one after the other."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.clock = VirtualClock()
        self.store: Any = (
            MemoryStore() if kind == "memory" else SqliteStore(folder / "log.db", inline=True)
        )
        self._opened = False

    def open(self, wrap: Callable[[Any], Any] = lambda store: store, **options: Any) -> Retinue:
        if self._opened:
            self.store = self.store.survivor()
        self._opened = True
        return Retinue(wrap(self.store), clock=self.clock, **options)


def agent(name: str, script: Any, **fields: Any) -> Agent:
    """An agent with a scripted model of its own."""
    return Agent(
        name,
        model=Scripted(script, name=f"model of {name}", delay=fields.pop("seconds", 0.0)),
        **fields,
    )


def hiring(child: Agent, name: str = "hire", **options: Any) -> FunctionTool:
    """A tool that starts `child` on each of its tasks."""

    @tool(name=name, restart="keyed")
    async def hire(context: Context, tasks: list[str]) -> Actions:
        """Hire somebody for each task."""
        return context.spawn_actions(child, *tasks, **options)

    return hire


def lead_of(
    child: Agent, n: int = 1, *, name: str = "lead", seconds: float = 0.0, **options: Any
) -> Agent:
    """An agent that gives `child` n tasks in its first turn and ends with what it was told."""
    fields = {
        k: options.pop(k) for k in ("budget", "options", "timeout", "max_turns") if k in options
    }

    def script(request: ModelRequest) -> Any:
        tasks = [f"task {i}" for i in range(n)]
        return call("hire", tasks=tasks) if request.turn == 0 else last(request)

    return agent(
        name, script, tools=[hiring(child, **options)], staff=[child], seconds=seconds, **fields
    )


def last(request: ModelRequest) -> str:
    """The text of the last message."""
    return request.messages[-1].text


def texts(request: ModelRequest) -> list[str]:
    return [m.text for m in request.messages]


async def all_taken_up(retinue: Retinue) -> None:
    """Wait until nobody is held back any more."""
    for _ in range(200):
        if retinue.runs_without_agent:
            await asyncio.sleep(0.1)


async def ended(retinue: Retinue, run: str) -> Outcome:
    """The outcome of a run, once there is one."""
    outcome = await retinue.wait(run)
    assert outcome is not None
    return outcome
