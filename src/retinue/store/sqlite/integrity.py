"""Checks that the file is intact. Bit rot inside a value passes SQLite's checks; the hash chain of
its tree names its row. The rows are read in pages, each from one moment: a check that takes long is
in no one's way."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import apsw

from retinue.store.chain_check import MOST, PAGE, ChainWalk
from retinue.store.chains import follows
from retinue.store.sqlite.database_file import connect
from retinue.store.sqlite.reader import TREES_SCHEMA

# What a tree should be, and its events behind the one that was read last; one row of nulls if there
# are none.
_ROWS = """
select t.n, t.root, t.last, t.chain, t.cut, t.cut_chain,
    e.seq, e.number, e.run, e.at, e.digest, e.chain, b.body
from trees t left join events e on e.tree = t.n {behind} left join bodies b on b.seq = e.seq
where t.n {which} ? order by t.n, e.number limit ?"""
_REST = _ROWS.format(behind="and e.number > ?", which="=")
_NEXT = _ROWS.format(behind="", which=">")


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
    walk = ChainWalk(
        lambda tree, number: db.execute(_REST, (number, tree, PAGE)).fetchall(),
        lambda tree: db.execute(_NEXT, (tree or 0, PAGE)).fetchall(),
    )
    try:
        is_old = int(db.pragma("user_version")) < TREES_SCHEMA
        for sentence in _old_chain(db) if is_old else walk.all_trees():
            problems.append(sentence)
            if len(problems) >= MOST:
                problems.append("The check of the log stopped here.")
                return problems
        if not is_old:
            problems += _strays(db)
    except (apsw.Error, UnicodeDecodeError) as error:
        problems.append(f"The log cannot be read after event {walk.seq} ({error}).")
    return problems


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
