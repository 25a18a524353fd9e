"""Databases as older versions left them: their migrations, and their way to write an event."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import apsw

from retinue.core.changes import Changes
from retinue.store.sqlite import database_file as sqlite_open
from retinue.store.sqlite.tables import TABLES, encode
from retinue.store.sqlite.tree_logs import link

INSERT = """
insert into events (seq, run, owner, at, body, digest, chain)
values (?1, ?2, (select n from runs where id = ?2), ?3, ?4, ?5, ?6)"""
PURGE = "update events set body = null where owner = (select n from runs where id = ?)"


class Old:
    """A database of schema 1 or 2. One chain for all events, whose bodies are in their rows."""

    def __init__(self, path: Path, schema: int) -> None:
        self.db = apsw.Connection(str(path))
        self.db.execute("pragma journal_mode = wal")
        for file in sqlite_open.migrations()[:schema]:
            self.db.execute(file.read_text())
        self.db.pragma("user_version", schema)
        self.db.execute("insert into meta values ('epoch', 1)")
        self.db.execute("pragma synchronous = off")
        self.seq, self.chain = 0, bytes(32)

    def write(self, *all_of: Changes) -> None:
        self.db.execute("begin")
        for changes in all_of:
            batch = encode(changes)
            for name, write_rows in TABLES.items():
                rows = getattr(batch, name)
                if rows:
                    write_rows(self.db, rows.values() if isinstance(rows, dict) else rows)
            for tree, run, at, body, _ in batch.events:
                body = body.replace(b',"tree":"' + tree.encode() + b'"', b"")
                digest = sha256(body).digest()
                self.seq += 1
                self.chain = link(self.chain, self.seq, run, at, digest)
                self.db.execute(INSERT, (self.seq, run, at, body, digest, self.chain))
        self.db.execute("commit")

    def purge(self, runs: Iterable[str]) -> None:
        """What `forget` did with runs."""
        for run in runs:
            self.db.execute(PURGE, (run,))
            self.db.execute(
                "delete from specs where run = (select n from runs where id = ?)", (run,)
            )
            self.db.execute("delete from runs where id = ?", (run,))
            self.db.execute("delete from accounts where id = ?", (run,))

    def close(self) -> None:
        self.db.close()
