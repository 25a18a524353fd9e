"""A log for each tree, with its own numbers and its own hash chain. The writer keeps the heads of
the trees that are written to and reads the others again when they are needed, so that its memory
does not grow with the trees there ever were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import apsw
import msgspec

from retinue.store.chains import genesis

MOST_HEADS = 4_096
MOST_NUMBERS = 20_000
LISTED = "(select value from json_each(?))"


def listed(names: Iterable[str]) -> str:
    """Names as one argument for `LISTED`."""
    return msgspec.json.encode(list(names)).decode()


@dataclass(slots=True)
class LogHead:
    """The last event of a tree. `n` is the tree's number in the file."""

    n: int
    last: int
    chain: bytes


class LogHeads:
    """Heads move only with a commit that succeeded: `of` gives copies, `keep` takes them back."""

    def __init__(self, db: apsw.Connection) -> None:
        self._known: OrderedDict[str, LogHead] = OrderedDict()
        self._next: int = db.execute("select coalesce(max(n), 0) + 1 from trees").get

    def __len__(self) -> int:
        return len(self._known)

    def of(self, db: apsw.Connection, roots: Iterable[str]) -> dict[str, LogHead]:
        """The heads of these trees; those that are new get theirs. (A number that is not used,
        because the commit failed, is a number less.)"""
        out: dict[str, LogHead] = {}
        missing = []
        for root in roots:
            head = self._known.get(root)
            if head is None:
                missing.append(root)
            else:
                out[root] = LogHead(head.n, head.last, head.chain)
        if missing:
            sql = f"select root, n, last, chain from trees where root in {LISTED}"
            out.update(
                (root, LogHead(n, last, chain))
                for root, n, last, chain in db.execute(sql, (listed(missing),))
            )
        for root in missing:
            if root not in out:
                out[root] = LogHead(self._next, 0, genesis(root))
                self._next += 1
        return out

    def keep(self, heads: dict[str, LogHead], ended: Iterable[str]) -> None:
        """After a commit. Trees in `done` will hardly be written to again."""
        logs = self._known
        for root, head in heads.items():
            logs[root] = head
            logs.move_to_end(root)
        for root in ended:
            logs.pop(root, None)
        while len(logs) > MOST_HEADS:
            logs.popitem(last=False)


class Numbers:
    """The numbers of runs, or of conversations, by their ids: what is needed often is not looked
    up, and new ones get the next. Cleared whenever rows go, by being forgotten or by a commit that
    fails."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._known: dict[str, int] = {}
        self._last: int | None = None

    def of(self, db: apsw.Connection, ids: Iterable[str]) -> dict[str, int]:
        """At least these; those that are not on record have none."""
        logs = self._known
        missing = [id for id in ids if id not in logs]
        if missing:
            if len(logs) > MOST_NUMBERS:
                logs.clear()
                missing = list(ids)
            sql = f"select id, n from {self._table} where id in {LISTED}"
            logs.update(db.execute(sql, (listed(missing),)))
        return logs

    def give(self, db: apsw.Connection, id: str) -> int:
        """The number of a new row."""
        if self._last is None:
            self._last = int(db.execute(f"select coalesce(max(n), 0) from {self._table}").get)
        self._last = self._known[id] = self._last + 1
        return self._last

    def drop(self, ids: Iterable[str]) -> None:
        """These will hardly be needed again."""
        for id in ids:
            self._known.pop(id, None)

    def clear(self) -> None:
        self._known.clear()
        self._last = None
