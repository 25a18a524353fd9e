"""Reading: a second connection, used in the thread that asks. In WAL mode it never waits for the writer, and it sees
every commit that has returned. An answer comes from one statement, so from one moment (`load` precedes all commits).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw
import msgspec

from retinue.core.board import Noted
from retinue.core.events import Entry
from retinue.core.ledger import Account
from retinue.core.values import Delivery, Message
from retinue.errors import StoreError
from retinue.store.base import Row, Snapshot, Summary
from retinue.store.sqlite_faults import reading
from retinue.store.sqlite_open import connect
from retinue.store.sqlite_rows import (
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
)

# A conversation is its own messages from `low` on, behind those of its base, which may have a base of its own. Only
# the parts that reach below :start are followed.
SPAN = """
with recursive part (n, low, high, base) as (
    select n, coalesce(base_length, 0), :stop, base_id from conversations where id = :conversation
    union
    select c.n, coalesce(c.base_length, 0), min(part.low, part.high), c.base_id
    from part join conversations c on c.id = part.base
    where part.low > :start
)"""
MESSAGES = """
from part cross join messages
on messages.conversation = part.n and messages.n >= max(part.low, :start) and messages.n < part.high
order by messages.n"""

_UP = """
with recursive up (id) as (
    select parent from runs where open = 1 and parent <> ''
    union
    select parent from up join runs using (id) where parent <> ''
)"""
_ROW = "select specs.body, runs.body from runs cross join specs on run = n"
_OPEN = f"{_ROW} where open = 1 order by n"
_BACK = f"""
{_ROW} where n in (
    select c.n from runs p cross join runs c on c.parent = p.id and c.slot_turn = p.turn where p.open = 1 and c.open = 0
) order by n"""
_ABOVE = f"{_UP} {_ROW} where open = 0 and id in (select id from up) order by n"
_ACCOUNTS = f"{_UP} select body from accounts where id in (select id from runs where open = 1 union select id from up)"
_MAIL = "select mail.run, mail.body from runs join mail on run = id where open = 1 order by run, seq"
_DELIVERIES = "select body from outbox where state in ('pending', 'sent', 'dead') order by rowid"
_LISTING = """
select id, root, parent, specs.body, state, created_at, ended_at from runs cross join specs on run = n where"""

END_OF_TIME = (1 << 63) - 1


class _Named(msgspec.Struct):
    agent: str
    label: str = ""


class _Head(msgspec.Struct):
    """As much of a spec as a listing shows."""

    order: _Named


_read_head = msgspec.json.Decoder(_Head).decode


class Reader:
    """Everything that is asked of a database file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._db: apsw.Connection | None = None

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

    def _rows(self, sql: str, args: tuple[Any, ...] = ()) -> list[Row]:
        return [Row(read_spec(spec), read_run(body)) for spec, body in self._all(sql, args)]

    def load(self) -> Snapshot:
        with reading(self.path):
            return Snapshot(
                open=self._rows(_OPEN),
                back=self._rows(_BACK),
                above=self._rows(_ABOVE),
                accounts=[read_account(body) for (body,) in self._all(_ACCOUNTS)],
                mail=[(run, read_mail(body)) for run, body in self._all(_MAIL)],
                deliveries=[read_delivery(body) for (body,) in self._all(_DELIVERIES)],
                definitions=[read_definition(body) for (body,) in self._all("select body from definitions")],
                models=[read_model(body) for (body,) in self._all("select body from models")],
                last_seq=self._all("select coalesce(max(seq), 0) from events")[0][0],
            )

    def row(self, id: str) -> Row | None:
        with reading(self.path):
            rows = self._rows(f"{_ROW} where id = ?", (id,))
        return rows[0] if rows else None

    def account(self, id: str) -> Account | None:
        with reading(self.path):
            rows = self._all("select body from accounts where id = ?", (id,))
            return read_account(rows[0][0]) if rows else None

    def children(self, parent: str) -> list[Row]:
        with reading(self.path):
            return self._rows(f"{_ROW} where parent = ? order by slot_turn, n", (parent,))

    def started(self, since: int) -> list[Row]:
        # Runs are numbered as they come, so the first that is old enough, from the newest down, is where to stop.
        first = "coalesce((select n from runs where created_at < ? order by n desc limit 1), 0)"
        with reading(self.path):
            return self._rows(f"{_ROW} where n > {first} and parent <> '' order by n", (since,))

    def messages(self, conversation: str, start: int, stop: int | None) -> list[Message]:
        span = {"conversation": conversation, "start": max(0, start), "stop": END_OF_TIME if stop is None else stop}
        with reading(self.path):
            return [read_message(body) for (body,) in self._all(f"{SPAN} select body {MESSAGES}", span)]

    def entries(self, after: int, run: str, limit: int) -> list[tuple[int, Entry]]:
        of_run = "owner = (select n from runs where id = ?) and" if run else ""
        sql = f"select seq, body from events where {of_run} seq > ? and body is not null order by seq limit ?"
        with reading(self.path):
            rows = self._all(sql, (run, after, limit) if run else (after, limit))
            return [(seq, read_entry(body)) for seq, body in rows]

    def listing(self, *, children: bool, limit: int, before: str) -> list[Summary]:
        which = "true" if children else "parent = '' and slot_turn is null"
        page = "and n < (select n from runs where id = ?)" if before else ""
        sql = f"{_LISTING} {which} {page} order by n desc limit ?"
        with reading(self.path):
            return [
                Summary(
                    id=id,
                    root=root,
                    parent=parent,
                    label=(order := _read_head(spec).order).label or order.agent,
                    state=state,
                    created_at=created_at,
                    ended_at=ended_at,
                    user_initiated=not parent,
                )
                for id, root, parent, spec, state, created_at, ended_at in self._all(
                    sql, (before, limit) if before else (limit,)
                )
            ]

    def deliveries(self, states: Iterable[str]) -> list[Delivery]:
        wanted = list(states)
        where = "where state in (select value from json_each(?))" if wanted else ""
        args = (msgspec.json.encode(wanted).decode(),) if wanted else ()
        with reading(self.path):
            return [
                read_delivery(body) for (body,) in self._all(f"select body from outbox {where} order by rowid", args)
            ]

    def board(self, root: str, after: int) -> list[Noted]:
        with reading(self.path):
            rows = self._all("select n, key, body from board where root = ? and n > ? order by n", (root, after))
            return [Noted(n=n, key=key, act=read_act(body)) for n, key, body in rows]
