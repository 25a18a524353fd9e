"""What happens in runs, as it is recorded: a whole tree or one run of it, and the state of each
run."""

from __future__ import annotations

from collections.abc import AsyncIterator

from retinue.core.account import Account
from retinue.core.events import LogEntry, Requested
from retinue.core.state import Ended, RunRecord
from retinue.core.values import Value
from retinue.errors import NotFound
from retinue.groups import Groups
from retinue.runtime.bus import Step, TextDelta
from retinue.runtime.held_calls import HeldCall

PAGE = 100
"""So much of the log is held at a time for each who reads it."""

__all__ = ["RunRecord", "Steps", "TreeRecord", "run_of"]


class TreeRecord(Value):
    """A tree as it is on record: the run first, then those below it, parents before children.
    `priced`: whether the price of every model in it is known. `seq` is the log's last position
    then."""

    rows: tuple[RunRecord, ...]
    account: Account | None = None
    priced: bool = True
    seq: int = 0


class Steps(Groups):
    """The part of `Retinue` that tells what happens in runs."""

    async def watch(
        self, root: str, after: int = 0, *, deltas: bool = False
    ) -> AsyncIterator[Step | TextDelta]:
        """The steps of a run and of everything below it, from position `after` of the log on: those
        of the log first, then as they come, until it has ended. With `deltas`, also text as models
        write it."""
        engine, store, family = self._engine, self._store, _Family(self, root)
        with engine.bus.watch() as watcher:
            await engine.caught_up()
            row = await self._row(root)
            ended = (
                None
                if isinstance(row.run.state, Ended) and await store.row(root)
                else engine.ended(root)
            )
            if not after and (first := await store.entries(0, root, limit=1)):
                after = first[0][0] - 1
            try:
                while True:
                    while page := await store.entries(after, limit=PAGE):
                        for after, entry in page:
                            if after > engine.position:
                                # Written, and not yet in what `record` shows of its run.
                                await engine.caught_up()
                            step = Step(after, entry)
                            if await family.has(run_of(step)):
                                yield step
                    if ended is None or (ended.done() and watcher.is_empty):
                        return
                    while (item := await watcher.next(ended)) is not None:
                        if isinstance(item, TextDelta):
                            if deltas and family.is_known(item.run):
                                yield item
                        elif item.seq > after:
                            after = item.seq
                            if await family.has(run_of(item)):
                                yield item
                    watcher.catch_up()
            finally:
                if ended is not None and not ended.done():
                    ended.cancel()

    async def stream(self, run: str, after: int = 0) -> AsyncIterator[Step | TextDelta]:
        """What `watch` tells of this one run, with the text that its model writes."""
        async for item in self.watch(run, after, deltas=True):
            if (item.run if isinstance(item, TextDelta) else run_of(item)) == run:
                yield item

    async def record(self, run: str) -> RunRecord:
        """A run: its request, and its state."""
        return await self._row(run)

    async def entries(self, run: str, *, until: int) -> list[LogEntry]:
        """What the log has about one run up to position `until`, oldest first."""
        log, after = list[LogEntry](), 0
        while page := await self._store.entries(after, run):
            after = page[-1][0]
            log += (entry for seq, entry in page if seq <= until)
            if after >= until:
                break
        return log

    async def tree_record(self, run: str) -> TreeRecord:
        """A run and everything below it, as they are on record."""
        store = self._store
        top = await store.row(run)
        if top is None:
            raise NotFound(f"Run {run!r} not found.")
        rows, todo = [], [top]
        while todo:
            row = todo.pop(0)
            rows.append(row)
            todo.extend(await store.children(row.spec.id))
        known = self._engine.trees.shared.models
        priced = all((info := known.get(row.spec.model)) is None or info.priced for row in rows)
        return TreeRecord(
            rows=tuple(rows),
            account=await store.account(run),
            priced=priced,
            seq=self._engine.position,
        )

    async def artifact_roots(self, sha256: str) -> list[str]:
        """The root runs of the trees in which an artifact is named: those that its content came
        from, or was sent to."""
        return await self._store.artifact_roots(sha256)

    def held_calls(self) -> tuple[HeldCall, ...]:
        """Model calls that have not left yet, because their provider is left alone after what it
        answered to others. A run whose own call failed says so in its record."""
        return self._engine.performer.held()

    def open_runs(self) -> list[str]:
        """The runs that have not ended."""
        return [spec.id for spec, _ in self._engine.trees.live()]


def run_of(step: Step) -> str:
    """The run that a step is about; "" for what concerns the whole store."""
    event = step.entry.event
    return event.id if isinstance(event, Requested) else step.entry.run


class _Family:
    """Who belongs to the tree below a run, found by asking for parents."""

    def __init__(self, steps: Steps, top: str) -> None:
        self._steps, self._known = steps, {top: True, "": False}

    async def has(self, run: str) -> bool:
        known = self._known.get(run)
        if known is None:
            try:
                row = await self._steps.record(run)
            except NotFound:
                return False
            known = self._known[run] = await self.has(row.spec.parent)
        return known

    def is_known(self, run: str) -> bool:
        return self._known.get(run, False)
