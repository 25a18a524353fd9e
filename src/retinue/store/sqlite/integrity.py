"""Is the file still what was written? Bit rot inside a value passes SQLite's checks; the hash chain
of its tree names its row. The rows are read in pages, each from one moment: a check that takes long
is in no one's way."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import apsw

from retinue.store.sqlite.database_file import connect
from retinue.store.sqlite.migration_steps import follows
from retinue.store.sqlite.reader import TREES_SCHEMA
from retinue.store.sqlite.tree_logs import genesis

MOST = 100
"""Sentences for one kind of fault: a torn file has thousands."""
PAGE = 500

# What a tree should be, and its events behind the one that was read last; one row of nulls if there
# are none.
_ROWS = """
select t.n, t.root, t.last, t.chain, t.cut, t.cut_chain,
    e.seq, e.number, e.run, e.at, e.digest, e.chain, b.body
from trees t left join events e on e.tree = t.n {behind} left join bodies b on b.seq = e.seq
where t.n {which} ? order by t.n, e.number limit ?"""
_REST = _ROWS.format(behind="and e.number > ?", which="=")
_NEXT = _ROWS.format(behind="", which=">")


class _LogRow(NamedTuple):
    """A row of `_ROWS`: a tree, and one of its events."""

    tree: int
    root: Any
    last: int
    last_chain: Any
    cut: int
    cut_chain: Any
    seq: int | None
    number: int
    run: Any
    at: Any
    digest: Any
    chain: Any
    body: Any


def verify(path: str) -> list[str]:
    """One sentence for each thing that is wrong."""
    db = connect(path, read_only=True)
    try:
        return [*check_chains(db), *check_structure(db)]
    finally:
        db.close(True)


def check_chains(db: apsw.Connection) -> list[str]:
    """The numbers and the hash chain of each tree, and whether its end is where it was."""
    problems: list[str] = []
    walk = _Walk()
    try:
        is_old = int(db.pragma("user_version")) < TREES_SCHEMA
        for sentence in _old_chain(db) if is_old else walk.all_trees(db):
            problems.append(sentence)
            if len(problems) >= MOST:
                problems.append("The check of the log stopped here.")
                return problems
        if not is_old:
            problems += _strays(db)
    except (apsw.Error, UnicodeDecodeError) as error:
        problems.append(f"The log cannot be read after event {walk.seq} ({error}).")
    return problems


class _Walk:
    """The position of a check: the tree, and the last row of it that was read."""

    def __init__(self) -> None:
        self.seq = 0
        self._tree = 0
        self._root: Any = ""
        self._number = 0
        self._chain: Any = b""

    def all_trees(self, db: apsw.Connection) -> Iterator[str]:
        """Pages until there are no more. A tree is compared with its head in the page that has its
        end."""
        page: list[Any] = []
        head: _LogRow | None = None
        while True:
            if len(page) == PAGE:
                page = db.execute(_REST, (self._number, self._tree, PAGE)).fetchall()
            else:
                if head is not None:
                    yield from self._end(head)
                page = db.execute(_NEXT, (self._tree, PAGE)).fetchall()
                head = None
                if not page:
                    return
            for row in map(_LogRow._make, page):
                if head is not None and row.tree != self._tree:
                    yield from self._end(head)
                    head = None
                if head is None:
                    self._begin(row)
                head = row
                yield from self._row(row)

    def _begin(self, row: _LogRow) -> None:
        self._tree, self._root = row.tree, row.root
        self._number, self._chain = 0, genesis(str(self._root))
        if row.cut:
            self._number, self._chain = row.cut, row.cut_chain

    def _row(self, row: _LogRow) -> Iterator[str]:
        if row.cut > self._number:  # forgotten while it was being checked
            self._number, self._chain = row.cut, row.cut_chain
        if row.seq is None:
            return
        self.seq, number, body = row.seq, row.number, row.body
        what = f"Event {number} of {self._named()}"
        if number != self._number + 1:
            yield (
                f"Events {self._number + 1} to {number - 1} of {self._named()} are missing from "
                "the log."
            )
        elif not follows(self._chain, number, row.run, row.at, row.digest, row.chain):
            yield f"{what} breaks the hash chain: its row was changed after it was written."
        is_same = isinstance(body, bytes) and sha256(body).digest() == row.digest
        if body is not None and not is_same:
            yield f"The body of event {number} of {self._named()} was changed after it was written."
        self._number, self._chain = number, row.chain

    def _end(self, head: _LogRow) -> Iterator[str]:
        last, chain = head.last, head.last_chain
        if self._number < last:
            yield (
                f"Events {self._number + 1} to {last} of {self._named()} are missing from the log."
            )
        elif self._number > last or self._chain != chain:
            yield (
                f"The log of {self._named()} ends at another event than its row in `trees` says."
            )

    def _named(self) -> str:
        return f"tree {self._root}" if self._root else "the store"


def _strays(db: apsw.Connection) -> list[str]:
    out = []
    n: Any = db.execute("select count(*) from events where tree not in (select n from trees)").get
    if n:
        out.append(f"{n} events belong to trees that do not exist.")
    n = db.execute("select count(*) from bodies where seq not in (select seq from events)").get
    if n:
        out.append(f"{n} bodies belong to events that do not exist.")
    return out


def _old_chain(db: apsw.Connection) -> Iterator[str]:
    """A file of an older version, which has one chain for all."""
    last, chain = 0, bytes(32)
    for seq, run, at, body, digest, stored in db.execute(
        "select seq, run, at, body, digest, chain from events order by seq"
    ):
        if seq != last + 1:
            yield f"Events {last + 1} to {seq - 1} are missing from the log."
        elif not follows(chain, seq, run, at, digest, stored):
            yield (f"Event {seq} breaks the hash chain: its row was changed after it was written.")
        if body is not None and not (isinstance(body, bytes) and sha256(body).digest() == digest):
            yield f"The body of event {seq} was changed after it was written."
        last, chain = seq, stored


def check_structure(db: apsw.Connection) -> list[str]:
    """What SQLite itself finds."""
    problems: list[str] = []
    try:
        for (text,) in db.execute(f"pragma integrity_check({MOST})"):
            if text != "ok":
                problems.append(f"The structure of the file is damaged: {text}.")
        for table, row, parent, _ in db.execute("pragma foreign_key_check"):
            problems.append(
                f"Row {row} of table {table} refers to a row of {parent} that does not exist."
            )
    except apsw.Error as error:
        problems.append(f"The structure of the file cannot be read ({error}).")
    return problems
