"""Is the file still what was written? Bit rot inside a value passes SQLite's checks; the hash chain names its row."""

from __future__ import annotations

from hashlib import sha256
from struct import error as StructError
from typing import Any

import apsw

from retinue.store.sqlite_open import connect
from retinue.store.sqlite_write import GENESIS, link

MOST = 100
"""Sentences for one kind of fault: a torn file has thousands."""


def verify(path: str) -> list[str]:
    """One sentence for each thing that is wrong."""
    db = connect(path, read_only=True)
    try:
        return [*_chain(db), *_structure(db)]
    finally:
        db.close(True)


def _chain(db: apsw.Connection) -> list[str]:
    found: list[str] = []
    last, chain = 0, GENESIS
    try:
        for seq, run, at, body, digest, stored in db.execute(
            "select seq, run, at, body, digest, chain from events order by seq"
        ):
            if seq != last + 1:
                found.append(f"Events {last + 1} to {seq - 1} are missing from the log.")
            elif not _follows(chain, seq, run, at, digest, stored):
                found.append(f"Event {seq} does not follow from those before it: its row is not what was written.")
            if body is not None and not (isinstance(body, bytes) and sha256(body).digest() == digest):
                found.append(f"The body of event {seq} is not what was written.")
            last, chain = seq, stored
            if len(found) >= MOST:
                found.append(f"The check of the log stopped at event {seq}.")
                break
    except (apsw.Error, UnicodeDecodeError) as error:
        found.append(f"The log cannot be read behind event {last} ({error}).")
    return found


def _follows(chain: Any, seq: int, run: Any, at: Any, digest: Any, stored: Any) -> bool:
    try:
        return bool(link(chain, seq, run, at, digest) == stored)
    except (TypeError, AttributeError, ValueError, StructError):  # not even of the type that was written
        return False


def _structure(db: apsw.Connection) -> list[str]:
    found: list[str] = []
    try:
        for (text,) in db.execute(f"pragma integrity_check({MOST})"):
            if text != "ok":
                found.append(f"The structure of the file is damaged: {text}.")
        for table, row, parent, _ in db.execute("pragma foreign_key_check"):
            found.append(f"Row {row} of table {table} refers to a row of {parent} that is not there.")
    except apsw.Error as error:
        found.append(f"The structure of the file cannot be read ({error}).")
    return found
