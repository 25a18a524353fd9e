"""Reads the log of runs: as public events, as it is recorded, and as the state of each run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from retinue.core.events import LogEntry, Requested
from retinue.core.shared import Shared
from retinue.core.state import Ended, RunRecord
from retinue.core.values import ModelInfo
from retinue.errors import NotFound
from retinue.event_translation import Translator, last_of, learn, step_of
from retinue.events import Event, RunStarted
from retinue.groups import Groups
from retinue.runtime.bus import Step
from retinue.runtime.held_calls import HeldCall
from retinue.runtime.text_pieces import TextPiece, TextReader
from retinue.tools.checked_verbs import checks_arguments
from retinue.tree_record import TreeRecord

PAGE = 100
"""So much of the log is held at a time for each who reads it."""


@checks_arguments
class Steps(Groups):
    """The part of `Retinue` that tells what happens in runs."""

    async def stream(
        self, run: str, *, tree: bool = False, text: bool = True, after: int = 0
    ) -> AsyncIterator[Event]:
        """Events of a run, or with `tree` also of all runs below it: those on record behind
        position `after` (the `seq` of the last event that you have), then as they come, until the
        run has ended. `text`: also text as models write it."""
        inside, root = {run}, (await self._row(run)).spec.root
        start, translator = await self._beginning(root)
        async for item in self._log(start, await self._end_of(run)):
            if isinstance(item, Step) and item.entry.tree in ("", root):
                events = translator.take(item)
            elif isinstance(item, TextPiece) and text:
                events = translator.preview(item, after, self._clock.now())
            else:
                continue
            for event in events:
                if tree and isinstance(event, RunStarted) and event.parent in inside:
                    inside.add(event.run)
                is_new = event.seq > after or isinstance(item, TextPiece)
                if is_new and event.run in inside:
                    after = event.seq
                    yield event

    async def recorded(self, run: str) -> AsyncIterator[Event]:
        """Events of a run and of all runs below it that are on record now."""
        inside, root = {run}, (await self._row(run)).spec.root
        start, translator = await self._beginning(root)
        async for item in self._log(start, None):
            if not isinstance(item, Step) or item.entry.tree not in ("", root):
                continue
            for event in translator.take(item):
                if isinstance(event, RunStarted) and event.parent in inside:
                    inside.add(event.run)
                if event.run in inside:
                    yield event

    async def _beginning(self, root: str) -> tuple[int, Translator]:
        """The position before the first step of a tree, and what was known then."""
        first = await self._store.entries(0, root, limit=1)
        start, at = (first[0][0] - 1, first[0][1].at) if first else (0, 0)
        return start, Translator(await self._facts(at))

    async def watch(self, *, text: bool = False, after: int | None = None) -> AsyncIterator[Event]:
        """Events of all runs, for as long as you listen: from now on, or those on record behind
        position `after` first. `text`: also text as models write it."""
        self._check_loop()
        await self._engine.caught_up()
        after = last_of(self._engine.position) if after is None else after
        never = asyncio.get_running_loop().create_future()
        async for event, is_new in self.follow(after, never, text=text):
            if is_new:
                yield event

    async def follow(
        self, after: int, end: asyncio.Future[None], *, text: bool = False
    ) -> AsyncIterator[tuple[Event, bool]]:
        """Events of all runs behind position `after` until `end` is done and all are out; before
        the first one of a tree also its earlier ones. With each: whether it is behind `after`."""
        start = max(0, step_of(after) - 1)
        next_one = await self._store.entries(start, limit=1)
        at = next_one[0][1].at if next_one else self._clock.now()
        translator = Translator(await self._facts(at))
        async for item in self._log(start, end):
            if isinstance(item, TextPiece):
                previews = translator.preview(item, after, self._clock.now()) if text else []
                for event in previews:
                    yield event, True
                continue
            if translator.lacks(item):
                async for event in self._earlier(translator, item):
                    yield event, False
            for event in translator.take(item):
                yield event, event.seq > after
                after = max(after, event.seq)

    async def steps(
        self, run: str, after: int = 0, *, tree: bool = True, deltas: bool = False
    ) -> AsyncIterator[Step | TextPiece]:
        """The steps of a run and, with `tree`, of everything below it, from position `after` of the
        log on: those of the log first, then as they come, until it has ended. With `deltas`, also
        text as models write it."""
        family = _Family(self, run)
        await self._row(run)
        if not after and (first := await self._store.entries(0, run, limit=1)):
            after = first[0][0] - 1
        async for item in self._log(after, await self._end_of(run)):
            if isinstance(item, TextPiece):
                if deltas and (item.run == run or (tree and await family.has(item.run))):
                    yield item
            elif (id := run_of(item)) == run or (tree and await family.has(id)):
                yield item

    async def all_steps(
        self, after: int, *, deltas: bool = False
    ) -> AsyncIterator[Step | TextPiece]:
        """The steps of all runs from position `after` of the log on, for as long as you listen.
        With `deltas`, also text as models write it."""
        never = asyncio.get_running_loop().create_future()
        async for item in self._log(after, never):
            if deltas or isinstance(item, Step):
                yield item

    async def log_position(self) -> int:
        """The last position of the log whose step is in what `record` shows."""
        await self._engine.caught_up()
        return self._engine.position

    async def _log(
        self, after: int, ended: asyncio.Future[None] | None
    ) -> AsyncIterator[Step | TextPiece]:
        """All steps behind position `after`: those of the log first, then as they come, with text
        as models write it; until `ended` is done, and without it those of the log alone."""
        engine, store, texts = self._engine, self._store, TextReader()
        with engine.bus.watch() as watcher:
            await engine.caught_up()
            try:
                while True:
                    while page := await store.entries(after, limit=PAGE):
                        for after, entry in page:
                            if after > engine.position:
                                # Written, and not yet in what `record` shows of its run.
                                await engine.caught_up()
                            texts.end(entry, is_ahead=True)
                            yield Step(after, entry)
                    if ended is None or (ended.done() and watcher.is_empty):
                        return
                    for piece in engine.bus.open_replies:
                        if (new := texts.new_part(piece)) is not None:
                            yield new
                    while (item := await watcher.next(ended)) is not None:
                        if isinstance(item, TextPiece):
                            if (new := texts.new_part(item)) is not None:
                                yield new
                        elif item.seq > after:
                            texts.end(item.entry, is_ahead=False)
                            after = item.seq
                            yield item
                    watcher.catch_up()
            finally:
                if ended is not None and not ended.done():
                    ended.cancel()

    async def _end_of(self, run: str) -> asyncio.Future[None] | None:
        """Done when a run has ended, None if it has and all of it is on record."""
        await self._engine.caught_up()
        row = await self._row(run)
        if isinstance(row.run.state, Ended) and await self._store.row(run):
            return None
        return self._engine.ended(run)

    async def _facts(self, at: int) -> Shared:
        """What trees shared at a time: agents, models and limits as the log has them; those whose
        row is gone as they are now."""
        now = self._engine.trees.shared
        facts = Shared(now.limits, now.epoch, dict(now.definitions), dict(now.models))
        page = await self._store.entries(limit=PAGE, tree="")
        while page:
            for _, entry in page:
                if entry.at > at:
                    return facts
                learn(facts, entry.event)
            page = await self._store.entries(page[-1][0], limit=PAGE, tree="")
        return facts

    async def _earlier(self, translator: Translator, step: Step) -> AsyncIterator[Event]:
        """The events of its tree before this step."""
        root = step.entry.tree
        first = await self._store.entries(0, root, limit=1)
        after = first[0][0] - 1 if first else step.seq
        while page := await self._store.entries(after, limit=PAGE):
            for after, entry in page:
                if after >= step.seq:
                    return
                if entry.tree == root:
                    for event in translator.take(Step(after, entry)):
                        yield event

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
            raise NotFound(f"Run {run!r} not found.", "run", run)
        rows, todo = [], [top]
        while todo:
            row = todo.pop(0)
            rows.append(row)
            todo.extend(await store.children(row.spec.id))
        models = self._engine.trees.shared.models
        priced = all((info := models.get(row.spec.model)) is None or info.priced for row in rows)
        return TreeRecord(
            rows=tuple(rows),
            account=await store.account(run),
            priced=priced,
            seq=self._engine.position,
        )

    def known_model(self, name: str) -> ModelInfo | None:
        """The facts about a model that a run was started with."""
        return self._engine.trees.shared.models.get(name)

    async def artifact_roots(self, sha256: str) -> list[str]:
        """The root runs of the trees in which an artifact is named: those that its content came
        from, or was sent to."""
        return await self._store.artifact_roots(sha256)

    def held_calls(self) -> tuple[HeldCall, ...]:
        """Model calls that have not left yet, because their provider is left alone after what it
        answered to others. A run whose own call failed says so in its record."""
        return self._engine.performer.held_calls()

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
        is_member = self._known.get(run)
        if is_member is None:
            try:
                row = await self._steps.record(run)
            except NotFound:
                return False
            is_member = self._known[run] = await self.has(row.spec.parent)
        return is_member
