"""Migrations that need more than SQL. Each runs inside of its migration's transaction, behind the
SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from struct import error as StructError
from typing import Any

import apsw

from retinue.store.artifact_files import Artifacts, names_in
from retinue.store.chains import follows, genesis, link
from retinue.store.sqlite.tree_logs import LogHead

CHUNK = 1_000

Moved = tuple[int, str, int | None, int, bytes | None, bytes, bytes, str | None]


def split_log(db: apsw.Connection, path: str) -> None:
    """One log becomes one for each tree. What was purged with its run stays away; a row that did
    not follow from those before it does not follow from them afterwards either."""
    heads = {"": LogHead(1, 0, genesis(""))}
    names = _Names(path)
    rows: list[tuple[Any, ...]] = []
    bodies: list[tuple[Any, ...]] = []
    before = bytes(32)
    last = 0
    for seq, run, owner, at, body, digest, stored, root in _old_rows(db):
        is_whole = seq == last + 1 and follows(before, seq, run, at, digest, stored)
        last, before = seq, stored
        if body is None and root is None:
            continue
        head = heads.get(root or "")
        if head is None:
            assert root is not None
            head = heads[root] = LogHead(len(heads) + 1, 0, genesis(root))
        head.last += 1
        above = head.chain if is_whole else sha256(b"damaged" + head.chain).digest()
        head.chain = _link(above, head.last, run, at, digest)
        rows.append((seq, head.n, head.last, run, owner, at, digest, head.chain))
        if body is not None:
            bodies.append((seq, body))
            names.add(body, head.n)
        if len(rows) >= CHUNK:
            _flush(db, rows, bodies)
    _flush(db, rows, bodies)
    trees = ((head.n, root, head.last, head.chain) for root, head in heads.items())
    db.executemany("insert into trees (n, root, last, chain) values (?, ?, ?, ?)", trees)
    db.execute(
        "insert into meta values ('seq', ?) on conflict (key) do update set value = excluded.value",
        (last,),
    )
    db.execute("create unique index events_tree on events (tree, number)")
    db.execute("create index events_owner on events (owner) where owner is not null")
    if names.known:
        for body, root in db.execute(_MESSAGES):
            if root in heads:
                names.add(body, heads[root].n)
        db.executemany(
            "insert into artifact_refs (sha256, tree) values (?, ?)", sorted(names.found)
        )
    db.execute("drop table events_2")


def _old_rows(db: apsw.Connection) -> Iterator[Moved]:
    # The order of `seq` needs no sorting, and rows are read while others are written: they are of
    # another table.
    sql = """
    select e.seq, e.run, e.owner, e.at, e.body, e.digest, e.chain, r.root
    from events_2 e left join runs r on r.n = e.owner order by e.seq"""
    yield from db.execute(sql)


_MESSAGES = """
select m.body, r.root
from messages m join conversations c on c.n = m.conversation join runs r on r.conversation = c.id"""


def _link(chain: bytes, number: int, run: Any, at: Any, digest: Any) -> bytes:
    try:
        return link(chain, number, run, at, digest)
    except (
        TypeError,
        AttributeError,
        ValueError,
        StructError,
    ):  # damaged: it will be named by number
        return bytes(32)


def _flush(db: apsw.Connection, rows: list[tuple[Any, ...]], bodies: list[tuple[Any, ...]]) -> None:
    insert = (
        "insert into events (seq, tree, number, run, owner, at, digest, chain) values (?, ?, "
        "?, ?, ?, ?, ?, ?)"
    )
    db.executemany(insert, rows)
    db.executemany("insert into bodies (seq, body) values (?, ?)", bodies)
    rows.clear()
    bodies.clear()


class _Names:
    """Which trees name which artifacts that are there."""

    def __init__(self, path: str) -> None:
        self.known = set(Artifacts(path + ".artifacts").names())
        self.found: set[tuple[bytes, int]] = set()

    def add(self, body: bytes, tree: int) -> None:
        if self.known:
            self.found.update(
                (bytes.fromhex(name), tree) for name in names_in(body) if name in self.known
            )


STEPS: dict[int, Callable[[apsw.Connection, str], None]] = {3: split_log}
