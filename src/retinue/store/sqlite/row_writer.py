"""Writes the rows of a commit, inside its transaction. Ids become numbers here: what the writer
needs again and again it does not look up."""

from __future__ import annotations

import apsw

from retinue.store.artifact_files import Artifacts
from retinue.store.chains import link
from retinue.store.row_batch import RowBatch, Value
from retinue.store.sqlite.tables import (
    CHANGE_ACCOUNTS,
    CHANGE_RUNS,
    END_RUNS,
    INSERT_BODIES,
    INSERT_CONVERSATIONS,
    INSERT_EVENTS,
    INSERT_MESSAGES,
    INSERT_RUNS,
    INSERT_SPECS,
    MOVE_HEADS,
    REFER,
    TABLES,
)
from retinue.store.sqlite.tree_logs import LogHead, LogHeads, Numbers


class RowWriter:
    """Of one connection. `heads` are given to each commit as copies and kept when it succeeded."""

    def __init__(self, db: apsw.Connection, artifacts: Artifacts) -> None:
        self.heads = LogHeads(db)
        self._runs, self._conversations = Numbers("runs"), Numbers("conversations")
        self._artifacts = artifacts

    def drop(self, runs: list[str]) -> None:
        """These have ended, and their end is on record."""
        self._runs.drop(runs)
        self._conversations.drop(runs)

    def clear(self) -> None:
        """Rows are gone, or a commit has failed: numbers may be others now."""
        self._runs.clear()
        self._conversations.clear()

    def write(
        self,
        db: apsw.Connection,
        batch: RowBatch,
        seq: int,
        heads: dict[str, LogHead],
        named: set[str],
    ) -> int:
        if batch.added:
            self._add(db, batch)
        self._change(db, batch)
        for name, write_rows in TABLES.items():
            rows = getattr(batch, name)
            if rows:
                write_rows(db, rows.values() if type(rows) is dict else rows)
        if batch.events:
            seq = self._append(db, batch, seq, heads)
        for name, tree in REFER.items():
            if names := getattr(batch, name):
                named |= self._refer(db, names, tree)
        return seq

    def _add(self, db: apsw.Connection, batch: RowBatch) -> None:
        """New runs; each begins a conversation, or continues with one that may be there."""
        there = self._conversations.of(db, batch.resumed.values()) if batch.resumed else {}
        conversations: list[Value] = []
        for id, (parent, row) in batch.conversations.items():
            if id not in there:
                n = self._conversations.give(db, id)
                conversations += (n, id, batch.resumed.get(parent or "", parent), *row)
        runs: list[Value] = []
        specs: list[Value] = []
        for id, run in batch.added.items():
            n = self._runs.give(db, id)
            runs += (n, *run)
            specs += (n, batch.specs[id])
        INSERT_CONVERSATIONS.write(db, conversations)
        INSERT_RUNS.write(db, runs)
        INSERT_SPECS.write(db, specs)

    def _change(self, db: apsw.Connection, batch: RowBatch) -> None:
        """Runs with their accounts, and what was said. What is not on record does not change."""
        accounts, changed, ended = batch.accounts, batch.changed, batch.ended
        if batch.messages:
            numbers = self._conversations.of(db, [message[0] for message in batch.messages])
            messages: list[Value] = []
            for id, place, body in batch.messages:
                messages += (numbers.get(id), place, body)
            INSERT_MESSAGES.write(db, messages)
        numbers = self._runs.of(db, (*changed, *ended, *accounts))
        rows: list[Value] = []
        for id, (turn, state, body) in changed.items():
            rows += (numbers.get(id), turn, state, body, accounts.get(id))
        CHANGE_RUNS.write(db, rows)
        rows = []
        for id, (turn, state, body, at) in ended.items():
            rows += (numbers.get(id), turn, state, body, accounts.get(id), at)
        END_RUNS.write(db, rows)
        rows = []
        for id, body in accounts.items():
            if id not in changed and id not in ended:
                rows += (numbers.get(id), body)
        CHANGE_ACCOUNTS.write(db, rows)

    def _append(
        self, db: apsw.Connection, batch: RowBatch, seq: int, heads: dict[str, LogHead]
    ) -> int:
        """The events, each behind the last of its tree."""
        roots = dict.fromkeys([event[0] for event in batch.events])
        new = [root for root in roots if root not in heads]
        if new:
            heads.update(self.heads.of(db, new))
        owners = self._runs.of(db, [event[1] for event in batch.events if event[1]])
        events: list[Value] = []
        bodies: list[Value] = []
        for tree, run, at, body, digest in batch.events:
            seq += 1
            head = heads[tree]
            head.last = number = head.last + 1
            head.chain = chain = link(head.chain, number, run, at, digest)
            events += (seq, head.n, number, run, owners.get(run), at, digest, chain)
            bodies += (seq, body)
        INSERT_EVENTS.write(db, events)
        INSERT_BODIES.write(db, bodies)
        moved: list[Value] = []
        for root in roots:
            head = heads[root]
            moved += (head.n, root, head.last, head.chain)
        MOVE_HEADS.write(db, moved)
        return seq

    def _refer(self, db: apsw.Connection, names: list[tuple[str, str]], tree: str) -> set[str]:
        """Remember which trees name an artifact. Most that looks like a name is the hash of
        something else."""
        there = self._artifacts.present({name for name, _ in names})
        for name, where in dict.fromkeys(names):
            if name in there:
                sql = f"select column1, ({tree}) as tree from (values (unhex(?), ?))"
                db.execute(
                    f"insert into artifact_refs (sha256, tree) select * from ({sql}) where tree "
                    "is not null"
                    " on conflict do nothing",
                    (name, where),
                )
        return there
