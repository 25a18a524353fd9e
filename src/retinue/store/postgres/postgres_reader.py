"""Reads from the database, over connections used by threads. An answer comes from one statement, so
from one moment (`load` precedes all commits)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.account import Account
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.state import RunRecord
from retinue.core.state_names import ENDS
from retinue.core.task_list import Noted
from retinue.core.values import Delivery
from retinue.errors import NotFound, StoreCorrupt
from retinue.formats.database_address import shown
from retinue.store.base import RunLine, Snapshot, Space
from retinue.store.postgres import queries
from retinue.store.postgres.connections import Readers
from retinue.store.row_batch import (
    of_tree,
    read_account,
    read_act,
    read_definition,
    read_delivery,
    read_entry,
    read_mail,
    read_message,
    read_model,
    read_run,
    read_spec,
    run_line,
)

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

END_OF_TIME = (1 << 63) - 1
Args = Sequence[Any] | dict[str, Any]


class PostgresReader:
    """Everything that is asked of a database. Each call blocks its thread. With `is_shared`, others
    write at the same time, and entries over all trees end where something may be on its way."""

    def __init__(self, url: str, *, is_shared: bool = False) -> None:
        self.url = url
        self._is_shared = is_shared
        self._readers = Readers(url)

    def open(self) -> None:
        self._readers.open()

    def close(self) -> None:
        self._readers.close()

    def all(self, sql: str, args: Args = ()) -> list[Any]:
        return self._readers.read(lambda db: db.execute(sql, args).fetchall())

    def _records(self, sql: str, args: Args = ()) -> list[RunRecord]:
        return self._readers.read(lambda db: _records(db, sql, args))

    def load(self, root: str | None = None) -> Snapshot:
        """Everything that is open, in the whole store or in one tree."""

        def ask(db: Connection) -> Snapshot:
            args = {"root": root}

            def bodies(sql: str) -> list[bytes]:
                return [body for (body,) in db.execute(sql, args)]

            with db.transaction():
                db.execute("set transaction isolation level repeatable read, read only")
                return Snapshot(
                    open=_records(db, queries.OPEN, args),
                    back=_records(db, queries.BACK, args),
                    above=_records(db, queries.ABOVE, args),
                    accounts=[read_account(body) for body in bodies(queries.ACCOUNTS)],
                    mail=[(run, read_mail(body)) for run, body in db.execute(queries.MAIL, args)],
                    deliveries=[read_delivery(body) for body in bodies(queries.DELIVERIES)],
                    definitions=[read_definition(body) for body in bodies(queries.DEFINITIONS)],
                    models=[read_model(body) for body in bodies(queries.MODELS)],
                    last_seq=db.execute(queries.LAST_SEQ).fetchall()[0][0],
                )

        return self._readers.read(ask)

    def row(self, id: str) -> RunRecord | None:
        rows = self._records(f"{queries.ROW} where runs.id = %s", (id,))
        return rows[0] if rows else None

    def account(self, id: str) -> Account | None:
        rows = self.all("select account from runs where id = %s", (id,))
        return read_account(rows[0][0]) if rows and rows[0][0] else None

    def children(self, parent: str) -> list[RunRecord]:
        which = "where parent = %s and parent <> '' order by slot_turn, runs.n"
        return self._records(f"{queries.ROW} {which}", (parent,))

    def started(self, since: int) -> list[RunRecord]:
        return self._records(queries.STARTED, (since,))

    def messages(self, conversation: str, start: int, stop: int | None) -> list[Message]:
        span = {
            "conversation": conversation,
            "start": max(0, start),
            "stop": END_OF_TIME if stop is None else stop,
        }
        sql = f"{queries.SPAN} select body {queries.MESSAGES}"

        return self._readers.read(
            lambda db: [read_message(body) for (body,) in db.execute(sql, span)]
        )

    def entries(
        self, after: int, run: str, limit: int, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        args = {"after": after, "run": run, "limit": limit, "tree": tree, "below": END_OF_TIME}
        of_run = " and run = %(run)s" if run else ""
        if tree is None:
            sql = f"{queries.ENTRIES}{of_run} and seq > %(after)s and seq < %(below)s order by seq"
        else:
            sql = f"{queries.OF_TREE}{of_run} and root = %(tree)s and number > %(after)s"
            sql += " order by number"

        def ask(db: Connection) -> list[tuple[int, LogEntry]]:
            if tree is None and self._is_shared:
                args["below"] = _safe(db)
            rows = db.execute(f"{sql} limit %(limit)s", args)
            return [(n, of_tree(read_entry(body), root)) for n, body, root in rows]

        return self._readers.read(ask)

    def agents(self) -> Snapshot:
        """The agents and models that are known, and nothing else."""
        return Snapshot(
            definitions=[read_definition(body) for (body,) in self.all(queries.DEFINITIONS)],
            models=[read_model(body) for (body,) in self.all(queries.MODELS)],
        )

    def position(self) -> int:
        """The last position that was given out."""
        last: int = self.all(queries.LAST_SEQ)[0][0]
        return last

    def safe_position(self) -> int:
        """The last position below which nothing is on its way."""
        return self._readers.read(_safe) - 1

    def known(self, ids: Iterable[str]) -> set[str]:
        rows = self.all("select id from runs where id = any(%s)", (list(ids),))
        return {id for (id,) in rows}

    def space(self) -> Space:
        sql = """
        select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
        where relnamespace = current_schema()::regnamespace and relkind = 'r'
        and relname = any(%s)"""
        (size,) = self.all(sql, (list(TABLES),))[0]
        (artifacts,) = self.all("select coalesce(sum(size), 0)::bigint from artifacts")[0]
        return Space(file=size, data=size, artifacts=artifacts)

    def artifact(self, sha256: str, offset: int, limit: int | None) -> bytes:
        part = "body" if not offset and limit is None else "substring(body from %(start)s)"
        if limit is not None:
            part = "substring(body from %(start)s for %(limit)s)"
        args = {
            "sha": bytes.fromhex(sha256),
            "start": min(max(0, offset), (1 << 31) - 2) + 1,
            "limit": min(max(0, limit or 0), (1 << 30)),
        }
        rows = self.all(f"select {part} from artifacts where sha256 = %(sha)s", args)
        if not rows:
            raise NotFound(f"Artifact {sha256} not found.", "artifact", sha256)
        return bytes(rows[0][0])

    def artifact_names(self, start: str) -> list[str]:
        """Those that begin with these digits."""
        sql = "select encode(sha256, 'hex') from artifacts where encode(sha256, 'hex') like %s"
        return [name for (name,) in self.all(f"{sql} order by 1 limit 100", (f"{start}%",))]

    def is_held(self) -> bool:
        """Whether a process has the store, or workers have."""
        return bool(self.all(queries.HOLDERS))

    def roots_naming(self, sha256: str) -> list[str]:
        return [root for (root,) in self.all(queries.ROOTS_NAMING, (sha256,))]

    def expendable(self, before: int | None, beyond: int | None, limit: int) -> list[str]:
        out: list[str] = []
        ended = self.all(queries.ENDED)
        n_beyond = len(ended) - beyond if beyond is not None else 0
        for n, (id, at) in enumerate(ended):
            if len(out) >= limit or not (n < n_beyond or (before is not None and at < before)):
                break
            if self.all(queries.HELD, {"id": id}) == [(0, 0)]:
                out.append(id)
        return out

    def listing(
        self, *, children: bool, limit: int, before: str, states: Sequence[str], since: int
    ) -> list[RunLine]:
        which = "true" if children else "parent = '' and slot_turn is null"
        if before:
            which += " and n < (select n from runs where id = %(before)s)"
        if states:
            which += " and state = any(%(states)s)"
            which += "" if {*states} & {*ENDS} else " and open"  # there is an index of these
        if since:
            which += " and created_at >= %(since)s"
        sql = f"{queries.LISTING} {which} order by n desc limit %(limit)s"
        values = {"before": before, "states": list(states), "since": since, "limit": limit}
        return self._readers.read(lambda db: [run_line(*row) for row in db.execute(sql, values)])

    def deliveries(self, states: Iterable[str]) -> list[Delivery]:
        choice = list(states)
        sql = "select body from outbox where state = any(%s) order by n"
        if not choice:
            sql = "select body from outbox where %s::text[] is not null order by n"
        return self._readers.read(
            lambda db: [read_delivery(body) for (body,) in db.execute(sql, (choice,))]
        )

    def task_list(self, root: str, after: int) -> list[Noted]:
        sql = "select n, key, body from board where root = %s and n > %s order by n"
        return self._readers.read(
            lambda db: [
                Noted(n=n, key=key, act=read_act(body))
                for n, key, body in db.execute(sql, (root, after))
            ]
        )

    def damaged(self, what: str) -> StoreCorrupt:
        return StoreCorrupt(f"{shown(self.url)} is damaged: {what}. Restore a backup.")


TABLES = (
    *("store", "trees", "workers", "inbox", "events", "conversations", "messages", "runs"),
    *("specs", "mail", "outbox", "definitions", "models", "board", "artifact_refs"),
)


def _records(db: Connection, sql: str, args: Args) -> list[RunRecord]:
    return [RunRecord(read_spec(spec), read_run(body)) for spec, body in db.execute(sql, args)]


def _safe(db: Connection) -> int:
    """The position below which nothing is on its way."""
    last: int = db.execute(queries.LAST_SEQ).fetchall()[0][0]
    lowest = db.execute(queries.WRITING).fetchall()[0][0]
    return min(last, END_OF_TIME if lowest is None else lowest) + 1
