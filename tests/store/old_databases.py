"""Databases as older versions left them: their migrations, and their way to write an event."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import apsw

from retinue.core.changes import Changes
from retinue.store.chains import link
from retinue.store.row_batch import RowBatch, encode
from retinue.store.sqlite import database_file
from retinue.store.sqlite.tables import TABLES

INSERT = """
insert into events (seq, run, owner, at, body, digest, chain)
values (?1, ?2, (select n from runs where id = ?2), ?3, ?4, ?5, ?6)"""
CONVERSATION = """
insert into conversations
(id, parent_id, user_initiated, base_id, base_length, base_start, created_at, title)
values (?1, coalesce((select conversation from runs where id = ?2), ?2), ?3, ?4, ?5, ?6, ?7, ?8)
on conflict (id) do nothing"""
RUN = """
insert into runs
(id, conversation, root, parent, slot_turn, slot_index, open, turn, state, created_at, ended_at,
 body)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
CHANGE = "update runs set turn = ?, state = ?, body = ?"
ACCOUNT = "insert into accounts values (?, ?) on conflict (id) do update set body = excluded.body"
PURGE = "update events set body = null where owner = (select n from runs where id = ?)"


class Old:
    """A database of schema 1 or 2. One chain for all events, whose bodies are in their rows."""

    def __init__(self, path: Path, schema: int) -> None:
        self.db = apsw.Connection(str(path))
        self.db.execute("pragma journal_mode = wal")
        for file in database_file.migrations()[:schema]:
            self.db.execute(file.read_text())
        self.db.pragma("user_version", schema)
        self.db.execute("insert into meta values ('epoch', 1)")
        self.db.execute("pragma synchronous = off")
        self.seq, self.chain = 0, bytes(32)

    def write(self, *all_of: Changes) -> None:
        self.db.execute("begin")
        for changes in all_of:
            batch = encode(changes)
            self._write_rows(batch)
            for tree, run, at, body, _ in batch.events:
                body = body.replace(b',"tree":"' + tree.encode() + b'"', b"")
                digest = sha256(body).digest()
                self.seq += 1
                self.chain = link(self.chain, self.seq, run, at, digest)
                self.db.execute(INSERT, (self.seq, run, at, body, digest, self.chain))
        self.db.execute("commit")

    def _write_rows(self, batch: RowBatch) -> None:
        """Accounts had a table of their own."""
        run = "(select n from runs where id = ?)"
        for id, (parent, row) in batch.conversations.items():
            self.db.execute(CONVERSATION, (id, parent, *row))
        for id, (*row, account) in batch.added.items():
            self.db.execute(RUN, row)
            self.db.execute(f"insert into specs values ({run}, ?)", (id, batch.specs[id]))
            if account is not None:
                self.db.execute(ACCOUNT, (id, account))
        for id, row in batch.changed.items():
            self.db.execute(f"{CHANGE} where id = ?", (*row, id))
        for id, row in batch.ended.items():
            self.db.execute(f"{CHANGE}, ended_at = ?, open = 0 where id = ?", (*row, id))
        for account in batch.accounts.items():
            self.db.execute(ACCOUNT, account)
        conversation = "(select n from conversations where id = ?)"
        for message in batch.messages:
            self.db.execute(f"insert into messages values ({conversation}, ?, ?)", message)
        for name, write_rows in TABLES.items():
            rows = getattr(batch, name)
            if rows:
                write_rows(self.db, rows.values() if isinstance(rows, dict) else rows)

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
