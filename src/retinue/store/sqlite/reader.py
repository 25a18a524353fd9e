"""Reads from the file, over a second connection, in the calling thread. In WAL mode it never waits
for the writer, and it sees every commit that has returned. An answer comes from one statement, so
from one moment (`load` precedes all commits)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from retinue.core.account import Account
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.state import RunRecord
from retinue.core.state_names import ENDS
from retinue.core.task_list import Noted
from retinue.core.values import Delivery
from retinue.errors import StoreError
from retinue.store.base import RunLine, Snapshot, Space
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
from retinue.store.sqlite.database_file import connect
from retinue.store.sqlite.reader_queries import (
    ABOVE,
    ACCOUNTS,
    BACK,
    BY_NUMBER,
    BY_SEQ,
    DELIVERIES,
    ENDED,
    HELD,
    LAST_SEQ,
    LISTING,
    MAIL,
    MESSAGES,
    OF_RUN,
    OLD,
    OLD_ACCOUNTS,
    OPEN,
    ROOTS_NAMING,
    ROW,
    SPAN,
)
from retinue.store.sqlite.sqlite_errors import reading

TREES_SCHEMA = 3
ACCOUNTS_SCHEMA = 4

END_OF_TIME = (1 << 63) - 1


class SqliteReader:
    """Everything that is asked of a database file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._db: apsw.Connection | None = None
        self._schema = 0

    def open(self) -> None:
        self._db = connect(self.path, read_only=True)

    def close(self) -> None:
        if self._db is not None:
            self._db.close(True)
            self._db = None

    def _all(self, sql: str, args: tuple[Any, ...] | dict[str, Any] = ()) -> list[Any]:
        if self._db is None:
            raise StoreError(f"{self.path} is not open.")
        return self._db.execute(sql, args).fetchall()

    def _is_before(self, schema: int) -> bool:
        """Whether no writer of a version with this schema has opened the file yet."""
        if self._schema < schema:
            self._schema = self._all("pragma user_version")[0][0]
        return self._schema < schema

    def _rows(self, sql: str, args: tuple[Any, ...] = ()) -> list[RunRecord]:
        return [RunRecord(read_spec(spec), read_run(body)) for spec, body in self._all(sql, args)]

    def load(self) -> Snapshot:
        with reading(self.path):
            accounts = OLD_ACCOUNTS if self._is_before(ACCOUNTS_SCHEMA) else ACCOUNTS
            return Snapshot(
                open=self._rows(OPEN),
                back=self._rows(BACK),
                above=self._rows(ABOVE),
                accounts=[read_account(body) for (body,) in self._all(accounts)],
                mail=[(run, read_mail(body)) for run, body in self._all(MAIL)],
                deliveries=[read_delivery(body) for (body,) in self._all(DELIVERIES)],
                definitions=[
                    read_definition(body) for (body,) in self._all("select body from definitions")
                ],
                models=[read_model(body) for (body,) in self._all("select body from models")],
                last_seq=self._all(LAST_SEQ)[0][0],
            )

    def row(self, id: str) -> RunRecord | None:
        with reading(self.path):
            rows = self._rows(f"{ROW} where id = ?", (id,))
        return rows[0] if rows else None

    def account(self, id: str) -> Account | None:
        with reading(self.path):
            is_old = self._is_before(ACCOUNTS_SCHEMA)
            sql = "select body from accounts" if is_old else "select account from runs"
            rows = self._all(f"{sql} where id = ?", (id,))
            return read_account(rows[0][0]) if rows and rows[0][0] else None

    def children(self, parent: str) -> list[RunRecord]:
        with reading(self.path):
            return self._rows(f"{ROW} where parent = ? order by slot_turn, n", (parent,))

    def started(self, since: int) -> list[RunRecord]:
        # Runs are numbered as they come, so the first that is old enough, from the newest down, is
        # where to stop.
        first = "coalesce((select n from runs where created_at < ? order by n desc limit 1), 0)"
        with reading(self.path):
            return self._rows(f"{ROW} where n > {first} and parent <> '' order by n", (since,))

    def messages(self, conversation: str, start: int, stop: int | None) -> list[Message]:
        span = {
            "conversation": conversation,
            "start": max(0, start),
            "stop": END_OF_TIME if stop is None else stop,
        }
        with reading(self.path):
            return [
                read_message(body) for (body,) in self._all(f"{SPAN} select body {MESSAGES}", span)
            ]

    def entries(
        self, after: int, run: str, limit: int, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        args = {"after": after, "run": run, "limit": limit, "tree": tree}
        with reading(self.path):
            is_old = self._is_before(TREES_SCHEMA)
            sql = BY_SEQ if tree is None else BY_NUMBER
            if is_old:
                sql = OLD
            return [
                (n, of_tree(read_entry(body), root))
                for n, body, root in self._all(sql % (run and OF_RUN), args)
            ]

    def known(self, ids: Iterable[str]) -> set[str]:
        with reading(self.path):
            rows = self._all(
                "select id from runs where id in (select value from json_each(?))", (_listed(ids),)
            )
            return {id for (id,) in rows}

    def space(self) -> Space:
        with reading(self.path):
            page, n_pages, n_free = (
                self._all(f"pragma {name}")[0][0]
                for name in ("page_size", "page_count", "freelist_count")
            )
        on_disk = _size(self.path) + _size(self.path + "-wal")
        return Space(file=on_disk, data=page * (n_pages - n_free), holes=page * n_free)

    def named(self) -> set[str]:
        """The artifacts that trees name."""
        with reading(self.path):
            return {sha.hex() for (sha,) in self._all("select distinct sha256 from artifact_refs")}

    def roots_naming(self, sha256: str) -> list[str]:
        """The root runs of the trees that name an artifact."""
        with reading(self.path):
            return [root for (root,) in self._all(ROOTS_NAMING, (sha256,))]

    def expendable(self, before: int | None, beyond: int | None, limit: int) -> list[str]:
        out: list[str] = []
        with reading(self.path):
            ended = self._all(ENDED)
            n_beyond = len(ended) - beyond if beyond is not None else 0
            for n, (id, at) in enumerate(ended):
                if len(out) >= limit or not (n < n_beyond or (before is not None and at < before)):
                    break
                if self._all(HELD, {"id": id}) == [(0, 0)]:
                    out.append(id)
        return out

    def listing(
        self, *, children: bool, limit: int, before: str, states: Sequence[str], since: int
    ) -> list[RunLine]:
        which = "true" if children else "parent = '' and slot_turn is null"
        if before:
            which += " and n < (select n from runs where id = :before)"
        if states:
            which += " and state in (select value from json_each(:states))"
            which += "" if {*states} & {*ENDS} else " and open = 1"  # there is an index of these
        if since:
            which += " and created_at >= :since"
        sql = f"{LISTING} {which} order by n desc limit :limit"
        values = {"before": before, "states": _listed(states), "since": since, "limit": limit}
        with reading(self.path):
            return [run_line(*row) for row in self._all(sql, values)]

    def deliveries(self, states: Iterable[str]) -> list[Delivery]:
        choice = list(states)
        where = "where state in (select value from json_each(?))" if choice else ""
        args = (_listed(choice),) if choice else ()
        with reading(self.path):
            return [
                read_delivery(body)
                for (body,) in self._all(f"select body from outbox {where} order by rowid", args)
            ]

    def task_list(self, root: str, after: int) -> list[Noted]:
        with reading(self.path):
            rows = self._all(
                "select n, key, body from board where root = ? and n > ? order by n", (root, after)
            )
            return [Noted(n=n, key=key, act=read_act(body)) for n, key, body in rows]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _listed(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()
