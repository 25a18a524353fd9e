"""Checks the hash chains of logs: whether each event follows the one before it, and each tree ends
where it should. The rows are read in pages, each from one moment: a check that takes long is in no
one's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from retinue.store.chains import follows, genesis

MOST = 100
"""Sentences for one kind of fault: a torn file has thousands."""
PAGE = 500


class LogRow(NamedTuple):
    """A tree as it should be, and one of its events; nulls where it has none. `tree` is what the
    pages are in the order of."""

    tree: Any
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


class ChainWalk:
    """The position of a check: the tree, and the last row of it that was read. `rest` reads a page
    behind a number of a tree, `next` one of the trees behind a tree, or of the first."""

    def __init__(
        self, rest: Callable[[Any, int], list[Any]], next: Callable[[Any], list[Any]]
    ) -> None:
        self.seq = 0
        self._rest, self._next = rest, next
        self._tree: Any = None
        self._root: Any = ""
        self._number = 0
        self._chain: Any = b""

    def all_trees(self) -> Iterator[str]:
        """Pages until there are no more. A tree is compared with its head in the page that has its
        end."""
        page: list[Any] = []
        head: LogRow | None = None
        while True:
            if len(page) == PAGE:
                page = self._rest(self._tree, self._number)
            else:
                if head is not None:
                    yield from self._end(head)
                page = self._next(self._tree)
                head = None
                if not page:
                    return
            for row in map(LogRow._make, page):
                if head is not None and row.tree != self._tree:
                    yield from self._end(head)
                    head = None
                if head is None:
                    self._begin(row)
                head = row
                yield from self._row(row)

    def _begin(self, row: LogRow) -> None:
        self._tree, self._root = row.tree, row.root
        self._number, self._chain = 0, genesis(str(self._root))
        if row.cut:
            self._number, self._chain = row.cut, row.cut_chain

    def _row(self, row: LogRow) -> Iterator[str]:
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

    def _end(self, head: LogRow) -> Iterator[str]:
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
