"""What a workload left behind, read with plain SQL and JSON: nothing here asks the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tests.crash.workload import JOURNAL, LOG, OUTCOMES, RECEIPTS, read_book

Row = dict[str, Any]
_read = msgspec.json.decode


@dataclass
class Kept:
    """A run as its rows tell of it; `messages` are those of its own, by number."""

    id: str
    parent: str
    name: str
    open: bool
    state: str
    spec: Row
    body: Row
    messages: dict[int, Row] = field(default_factory=dict)
    base: tuple[str, int] | None = None

    @property
    def ending(self) -> Row:
        row: Row = self.body["state"].get("ending", {})
        return row

    @property
    def attempt(self) -> int:
        return int(self.body.get("attempt", 0))

    def said(self) -> list[Row]:
        return [m for _, m in sorted(self.messages.items()) if m["role"] == "assistant"]

    def heard(self) -> list[str]:
        return [m["text"] for _, m in sorted(self.messages.items()) if m["role"] != "assistant"]


@dataclass(frozen=True)
class Made:
    """One tool call as the model wrote it. `key` names it for ever; a turn is the number of a
    reply."""

    key: str
    run: str
    id: str
    tool: str
    args: Row
    results: tuple[Row, ...]


@dataclass
class Event:
    tree: str
    seq: int
    number: int
    run: str
    at: int
    body: bytes
    digest: bytes
    chain: bytes
    entry: Row
    life: int


class Evidence:
    """All of it, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = read_book(folder / JOURNAL)
        self.receipts = read_book(folder / RECEIPTS)
        self.outcomes: Row = _read((folder / OUTCOMES).read_bytes())
        db = apsw.Connection(str(folder / LOG))
        try:
            self.runs = {rest.id: rest for rest in _runs(db)}
            self.events = list(_events(db))
            self.outbox: list[Row] = [
                {**_read(body), "state": state}
                for state, body in db.execute("select state, body from outbox")
            ]
            self.accounts: list[Row] = [
                _read(body)
                for (body,) in db.execute("select account from runs where account is not null")
            ]
            self.mail: list[tuple[str, Row]] = [
                (run, _read(body)) for run, body in db.execute("select run, body from mail")
            ]
        finally:
            db.close()
        self.by_name: defaultdict[str, list[Kept]] = defaultdict(list)
        for rest in self.runs.values():
            self.by_name[rest.name].append(rest)
        self.calls = {call.key: call for rest in self.runs.values() for call in _calls(rest)}
        self.lives: defaultdict[str, set[int]] = defaultdict(set)
        for event in self.events:
            if not event.entry.get("stale"):
                self.lives[event.run].add(event.life)

    def lines(self, *kinds: str) -> list[Row]:
        return [line for line in self.journal if line["is"] in kinds]


def _runs(db: apsw.Connection) -> Iterator[Kept]:
    messages: defaultdict[int, dict[int, Row]] = defaultdict(dict)
    for conversation, n, body in db.execute("select conversation, n, body from messages"):
        messages[conversation][n] = _read(body)
    for id, parent, is_open, state, spec, body, conversation, base, length in db.execute(
        "select runs.id, parent, open, state, specs.body, runs.body, conversations.n, base_id, "
        "base_length from runs"
        " join specs on specs.run = runs.n join conversations on conversations.id = "
        "runs.conversation order by runs.n"
    ):
        order = _read(spec)
        yield Kept(
            id=id,
            parent=parent,
            name=order["order"]["label"],
            open=bool(is_open),
            state=state,
            spec=order,
            body=_read(body),
            messages=messages[conversation],
            base=None if base is None else (base, length),
        )


def _events(db: apsw.Connection) -> Iterator[Event]:
    life = 0
    for tree, seq, number, run, at, body, digest, chain in db.execute(
        "select root, seq, number, run, at, body, digest, events.chain from events"
        " join bodies using (seq) join trees on n = tree order by seq"
    ):
        entry = _read(body)
        if entry["event"]["event"] == "Opened":
            life = entry["event"]["epoch"]
        yield Event(tree, seq, number, run, at, body, digest, chain, entry, life)


def _calls(record: Kept) -> Iterator[Made]:
    """The results of a reply's calls stand behind it and before the next reply."""
    turn, open_calls, results = 0, [], defaultdict(list)
    for _, message in sorted(record.messages.items()):
        if message["role"] == "assistant":
            yield from _made(record, turn, open_calls, results)
            turn, open_calls, results = turn + 1, message.get("calls", []), defaultdict(list)
        elif message["role"] == "tool":
            results[message["call_id"]].append(message)
    yield from _made(record, turn, open_calls, results)


def _made(
    record: Kept, turn: int, calls: list[Row], results: dict[str, list[Row]]
) -> Iterator[Made]:
    for index, call in enumerate(calls):
        key = f"{record.id}/{turn}/{index}"
        answers = tuple(results.pop(call["id"], ()))
        yield Made(key, record.id, call["id"], call["name"], _read(call.get("args", "{}")), answers)
    for call_id, rest in results.items():
        yield Made(f"{record.id}/{turn}/{call_id}", record.id, call_id, "", {}, tuple(rest))
