"""Reads a whole run from a store without its host: tree, conversation and steps."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.core.events import ChildEnded, LogEntry, Requested
from retinue.core.messages import Message
from retinue.core.shared import Shared
from retinue.core.state import Ended, RunRecord
from retinue.core.values import Limits
from retinue.errors import NotFound
from retinue.event_translation import Translator, learn
from retinue.events import Event
from retinue.events import RunStarted as RunStartedEvent
from retinue.host.message_cursor import MessageCursor, inherited
from retinue.host.message_times import message_times
from retinue.host.project_paths import ProjectPaths
from retinue.host.stored_runs import reader_of
from retinue.host.tree_items import RunAdded, RunChanged, Stepped, StoredRun, TreeItem
from retinue.runtime.bus import Step
from retinue.tree_record import TreeRecord

PAGE = 1_000
"""Steps that are read in one query."""


class RecordReader:
    """A store, read only."""

    def __init__(self, paths: ProjectPaths) -> None:
        if not paths.exists:
            raise NotFound(f'No runs in {paths.root} yet. Start one with `retinue run "..."`.')
        reader = reader_of(paths.store, paths.database)
        reader.open()
        self.row, self.children, self.account = reader.row, reader.children, reader.account
        self.messages, self.entries, self.load = reader.messages, reader.entries, reader.load
        self.deliveries, self.close = reader.deliveries, reader.close

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def tree(self, run: str) -> TreeRecord:
        """A run and everything below it, parents before their children."""
        top = self.row(run)
        if top is None:
            raise NotFound(f"Run {run!r} not found. Run `retinue ps --all` to list runs.")
        rows, todo = [], [top]
        while todo:
            row = todo.pop(0)
            rows.append(row)
            todo.extend(self.children(row.spec.id))
        models = {m.name: m for m in self.load().models}
        priced = all((info := models.get(row.spec.model)) is None or info.priced for row in rows)
        return TreeRecord(rows=tuple(rows), account=self.account(run), priced=priced)

    def conversation(self, row: RunRecord, start: int = 0) -> list[Message]:
        return self.messages(row.spec.conversation, start, row.run.length)

    def steps(self, run: str, after: int = 0) -> Iterator[tuple[int, LogEntry]]:
        """The recorded steps of a run with their positions in the log, page by page."""
        while page := self.entries(after, run, PAGE):
            after = page[-1][0]
            yield from page

    def n_before(self, row: RunRecord, since: int) -> int:
        """How many messages of a conversation come before the first one recorded since a time in
        milliseconds. What a fork has from another run is as old as the fork."""
        n, messages = inherited(row), self.conversation(row)
        entries = (entry for _, entry in self.steps(row.spec.id))
        times = [row.spec.created_at] * n + message_times(messages[n:], entries)
        return next((i for i, at in enumerate(times) if at >= since), len(times))

    def events(self, run: RunRecord) -> Iterator[Event]:
        """The public events of a run and of everything below it, as far as they are on record."""
        root, inside = run.spec.root, {run.spec.id}
        first = self.entries(0, root, 1)
        after, at = (first[0][0] - 1, first[0][1].at) if first else (0, 0)
        translator = Translator(self._facts(at))
        while page := self.entries(after, "", PAGE):
            for after, entry in page:
                if entry.tree not in ("", root):
                    continue
                for event in translator.take(Step(after, entry)):
                    if isinstance(event, RunStartedEvent) and event.parent in inside:
                        inside.add(str(event.run))
                    if event.run in inside:
                        yield event

    def _facts(self, at: int) -> Shared:
        """What trees shared at a time; what the log no longer has as it is now."""
        now = self.load()
        definitions = {agent.name: agent for agent in now.definitions}
        facts = Shared(Limits(), 0, definitions, {model.name: model for model in now.models})
        page = self.entries(0, "", PAGE, tree="")
        while page:
            for _, entry in page:
                if entry.at > at:
                    return facts
                learn(facts, entry.event)
            page = self.entries(page[-1][0], "", PAGE, tree="")
        return facts

    def history(self, final: TreeRecord) -> Iterator[TreeItem]:
        """The history of a tree, as far as it is recorded: what a watcher would have received."""
        rows = {row.spec.id: row for row in final.rows}
        readers = {
            id: MessageCursor(inherited(row), self.conversation(row)) for id, row in rows.items()
        }
        ids: set[str] = set()
        first = self.entries(0, final.rows[0].spec.id, 1)
        after = first[0][0] - 1 if first else 0
        last = max(
            (row.run.state.ending.at for row in final.rows if isinstance(row.run.state, Ended)),
            default=None,
        )
        is_open = any(not isinstance(row.run.state, Ended) for row in final.rows)
        while page := self.entries(after, "", PAGE):
            for after, entry in page:
                event = entry.event
                id = event.id if isinstance(event, Requested) else entry.run
                row = rows.get(id)
                if row is None:
                    continue
                if id not in ids:
                    ids.add(id)
                    yield RunAdded(spec=row.spec)
                yield Stepped(seq=after, entry=entry)
                yield from readers[id].take(id, entry)
                if isinstance(event, ChildEnded) and event.child in rows:
                    yield RunChanged(row=StoredRun.of(rows[event.child]))
            if not is_open and last is not None and page[-1][1].at > last:
                break
        for id, place in readers.items():
            yield from place.rest(id)
        yield RunChanged(row=StoredRun.of(final.rows[0]))
