"""Moves one store into another: both kinds read and write every table as the same stream of rows,
so the copy can be compared with the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import zip_longest
from typing import Any, Protocol

from retinue.errors import StoreError

Row = tuple[Any, ...]
Moved = Callable[[str, int, int], None]
"""What is being done, how many rows are done, and of how many."""

TABLES: dict[str, tuple[str, ...]] = {
    "trees": ("root", "last", "chain", "cut", "cut_chain", "forgotten_at"),
    "conversations": (
        *("id", "parent_id", "base_id", "base_length", "base_start", "created_at", "title"),
    ),
    "runs": (
        *("id", "conversation", "root", "parent", "slot_turn", "slot_index", "open", "turn"),
        *("state", "created_at", "ended_at", "body", "account"),
    ),
    "specs": ("run", "body"),
    "messages": ("conversation", "n", "body"),
    "mail": ("run", "seq", "body"),
    "outbox": ("key", "run", "state", "next_at", "body"),
    "definitions": ("name", "body"),
    "models": ("name", "body"),
    "board": ("n", "root", "key", "at", "body"),
    "events": ("seq", "root", "number", "run", "at", "digest", "chain", "body"),
    "artifacts": ("sha256", "body"),
    "artifact_refs": ("sha256", "root"),
}
"""The rows of each table, in the order in which they are written. Those of `runs`, `conversations`
and others that have a number come in its order and get new ones; ids tie them together."""


class MovingSource(Protocol):
    """A store that nothing else writes to meanwhile."""

    name: str

    def counters(self) -> Mapping[str, int]:
        """`epoch`, the highest so far, and `seq`, the last position."""

    def count(self, table: str) -> int:
        """How many rows it has."""

    def rows(self, table: str) -> Iterator[Row]:
        """All of them, sorted the same way in every store."""

    def close(self) -> None:
        """Let go of it; what was not finished is not a store."""


class MovingTarget(MovingSource, Protocol):
    """A store that is empty, and that nothing opens before it is finished."""

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        """Write all rows of a table."""

    def finish(self, counters: Mapping[str, int]) -> None:
        """From now on it is a store."""

    def verify(self) -> list[str]:
        """One sentence for each thing that is wrong with its chains."""


def move(source: MovingSource, target: MovingTarget, moved: Moved) -> dict[str, int]:
    """Copy everything, compare it, and only then call it finished. Returns how many rows of each
    table there are."""
    counts = {table: source.count(table) for table in TABLES}
    total = sum(counts.values())
    n_done = 0
    sums: dict[str, bytes] = {}
    for table in TABLES:
        hashed = sha256()

        def passing(rows: Iterable[Row], hashed: Any = hashed) -> Iterator[Row]:
            nonlocal n_done
            for row in rows:
                row = tuple(map(mended, row))
                hashed.update(repr(row).encode())
                yield row
                n_done += 1
                if n_done % 1_000 == 0:
                    moved("Copying", n_done, total)

        target.fill(table, passing(source.rows(table)))
        sums[table] = hashed.digest()
    moved("Copying", total, total)
    _compare(source, target, sums, moved, total)
    target.finish(source.counters())
    return counts


def _compare(
    source: MovingSource,
    target: MovingTarget,
    sums: Mapping[str, bytes],
    moved: Moved,
    total: int,
) -> None:
    n_done = 0
    heads = zip_longest(map(_mended_row, source.rows("trees")), target.rows("trees"))
    for old, new in heads:
        if old != new:
            raise _differs(target, f"the log of tree {(old or new or ('?',))[0]!r} ends elsewhere")
    for table in TABLES:
        hashed = sha256()
        for row in target.rows(table):
            hashed.update(repr(row).encode())
            n_done += 1
            if n_done % 1_000 == 0:
                moved("Comparing", n_done, total)
        if hashed.digest() != sums[table]:
            raise _differs(target, f"{table} differ")
    if wrong := target.verify():
        raise _differs(target, " ".join(wrong[:3]))
    moved("Comparing", total, total)


def _differs(target: MovingTarget, what: str) -> StoreError:
    return StoreError(
        f"The copy in {target.name} is not what was sent: {what} It was not finished, and the "
        "store that it was made from was not changed. Run `retinue doctor` on that."
    )


def _mended_row(row: Row) -> Row:
    return tuple(map(mended, row))


def mended(value: Any) -> Any:
    """As every store can hold it: PostgreSQL knows no NUL in a text."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value
