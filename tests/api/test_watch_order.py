"""A step is shown when what is shown of its run has it too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Retinue, tool
from retinue.core.events import Replied
from retinue.core.state import Ended, Working
from retinue.runtime.bus import Step
from retinue.runtime.engine import Engine
from retinue.testing import Scripted, call


def test_a_step_that_is_read_from_the_log_is_in_the_record_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read just when the reply was written, and before the engine shows it."""
    states = asyncio.run(_watch_while_the_engine_is_late(tmp_path, monkeypatch))
    assert states == [Working, Ended]


async def _watch_while_the_engine_is_late(tmp_path: Path, monkeypatch: Any) -> list[type]:
    """The state on record at each reply."""
    may_reply, is_seen, show = asyncio.Event(), asyncio.Event(), Engine._show

    async def reply(request: Any) -> Any:
        await may_reply.wait()
        return "Done." if request.turn else call("rest")

    @tool
    async def rest() -> str:
        await is_seen.wait()
        return "rested"

    async def show_late(engine: Engine, changes: Any) -> None:
        if may_reply.is_set():
            await asyncio.sleep(0.2)
        await show(engine, changes)

    monkeypatch.setattr(Engine, "_show", show_late)
    async with Retinue(tmp_path / "retinue.db") as retinue:
        run = await retinue.spawn(Agent("a", model=Scripted(reply), tools=[rest]), "Go.")
        entries = retinue._store.entries

        async def entries_with_the_reply(*args: Any, **options: Any) -> Any:
            may_reply.set()
            while True:
                page = await entries(*args, **options)
                has_reply = any(isinstance(entry.event, Replied) for _, entry in page)
                if has_reply or not page or options.get("limit") == 1:
                    return page
                await asyncio.sleep(0.005)

        monkeypatch.setattr(retinue._store, "entries", entries_with_the_reply)
        states: list[type] = []
        async for step in retinue.steps(run):
            if isinstance(step, Step) and isinstance(step.entry.event, Replied):
                states.append(type((await retinue.record(run)).run.state))
                is_seen.set()
    return states
