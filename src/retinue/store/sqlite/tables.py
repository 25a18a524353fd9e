"""What is written where: `encode` turns changes into rows, in the writer's thread, since no one
changes them. `TABLES` are the statements that write the rows, in the order that foreign keys
need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Any

import apsw
import msgspec

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry, Requested
from retinue.core.messages import Message
from retinue.core.spec import RunSpec
from retinue.core.state import (
    Asking,
    Ended,
    Queued,
    Run,
    Short,
    Stopping,
    Thinking,
    Waiting,
    Working,
)
from retinue.core.task_list import Act
from retinue.core.values import Definition, Delivery, Mail, ModelInfo
from retinue.errors import StoreError
from retinue.store.artifact_files import names_in

dumps = msgspec.json.Encoder().encode

read_entry = msgspec.json.Decoder(LogEntry).decode
read_message = msgspec.json.Decoder[Message](Message).decode
read_run = msgspec.json.Decoder(Run).decode
read_spec = msgspec.json.Decoder(RunSpec).decode
read_account = msgspec.json.Decoder(Account).decode
read_mail = msgspec.json.Decoder(Mail).decode
read_delivery = msgspec.json.Decoder(Delivery).decode
read_definition = msgspec.json.Decoder(Definition).decode
read_act = msgspec.json.Decoder[Act](Act).decode
read_model = msgspec.json.Decoder(ModelInfo).decode

STATES = {
    Queued: "queued",
    Thinking: "thinking",
    Short: "short",
    Working: "working",
    Waiting: "waiting",
    Asking: "asking",
    Stopping: "stopping",
}

Value = str | bytes | int | None
Values = tuple[Value, ...]

SIZES = (*range(256, 16, -16), *range(16, 0, -1))
"""Any number up to 16 is one statement, and any up to 256 at most two."""


class Many:
    """One statement for many rows, in chunks of a few sizes, so that each statement is prepared
    once.

    A statement gives the interpreter's lock away once, however many rows it has. `executemany` does
    so for each row, and beside a busy event loop every return costs up to a switch interval: 1,400
    µs a row against 110 were measured."""

    def __init__(self, head: str, n_columns: int, tail: str = "") -> None:
        row = f"({','.join('?' * n_columns)})"
        self._n_columns = n_columns
        self._sizes = [(size, head + ",".join([row] * size) + tail) for size in SIZES]

    def __call__(self, db: apsw.Connection, rows: Iterable[Values]) -> None:
        self.write(db, list(chain.from_iterable(rows)))

    def write(self, db: apsw.Connection, flat: list[Value]) -> None:
        """The values of all rows, one after the other."""
        if not flat:
            return
        remaining, start, n_columns = len(flat) // self._n_columns, 0, self._n_columns
        for size, sql in self._sizes:
            while remaining >= size:
                stop = start + size * n_columns
                remaining -= size
                db.execute(sql, flat if not remaining and not start else flat[start:stop])
                start = stop
                if not remaining:
                    return


@dataclass(slots=True)
class RowBatch:
    """The rows of one commit; of those with a key, the last one counts. An event's row (tree, run,
    time, body, digest) lacks its numbers and chain; runs and conversations are named by their ids,
    which the writer turns into numbers. What may be an artifact's name is kept with the tree,
    conversation or run it is in."""

    events: list[tuple[str, str, int, bytes, bytes]] = field(default_factory=list)
    conversations: dict[str, tuple[str | None, Values]] = field(default_factory=dict)
    added: dict[str, Values] = field(default_factory=dict)
    specs: dict[str, bytes] = field(default_factory=dict)
    messages: list[tuple[str, int, bytes]] = field(default_factory=list)
    changed: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    ended: dict[str, tuple[int, str, bytes, int]] = field(default_factory=dict)
    accounts: dict[str, bytes] = field(default_factory=dict)
    posted: dict[tuple[str, int], Values] = field(default_factory=dict)
    taken: list[Values] = field(default_factory=list)
    deliveries: dict[str, Values] = field(default_factory=dict)
    definitions: dict[str, Values] = field(default_factory=dict)
    models: dict[str, Values] = field(default_factory=dict)
    board: list[Values] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    resumed: dict[str, str] = field(default_factory=dict)
    named_in_trees: list[tuple[str, str]] = field(default_factory=list)
    named_in_conversations: list[tuple[str, str]] = field(default_factory=list)
    named_in_runs: list[tuple[str, str]] = field(default_factory=list)


INSERT_EVENTS = Many(
    "insert into events (seq, tree, number, run, owner, at, digest, chain) values ", 8
)
INSERT_BODIES = Many("insert into bodies (seq, body) values ", 2)
MOVE_HEADS = Many(
    "insert into trees (n, root, last, chain) values ",
    4,
    " on conflict (n) do update set last = excluded.last, chain = excluded.chain",
)
# A parent in the same batch has no row yet. Its conversation then has its id, or was put here by
# the writer.
INSERT_CONVERSATIONS = Many(
    "insert into conversations (n, id, parent_id, user_initiated, base_id, base_length, "
    "base_start, created_at, title)"
    " select column1, column2, coalesce((select conversation from runs where id = column3),"
    " column3), column4, column5, column6, column7, column8, column9 from (values ",
    9,
    ")",
)
INSERT_RUNS = Many(
    "insert into runs (n, id, conversation, root, parent, slot_turn, slot_index, open, turn, "
    "state, created_at, ended_at, body, account) values ",
    14,
)
INSERT_SPECS = Many("insert into specs (run, body) values ", 2)
INSERT_MESSAGES = Many("insert into messages (conversation, n, body) values ", 3)
# No index changes with a run that stays open.
CHANGE_RUNS = Many(
    "update runs set turn = column2, state = column3, body = column4,"
    " account = coalesce(column5, account) from (values ",
    5,
    ") where n = column1",
)
END_RUNS = Many(
    "update runs set open = 0, turn = column2, state = column3, body = column4,"
    " account = coalesce(column5, account), ended_at = column6 from (values ",
    6,
    ") where n = column1",
)
CHANGE_ACCOUNTS = Many("update runs set account = column2 from (values ", 2, ") where n = column1")
REFER = {
    "named_in_trees": "select n from trees where root = column2",
    "named_in_conversations": "select n from trees where root = (select root from runs where "
    "conversation = column2"
    " order by n desc limit 1)",
    "named_in_runs": "select n from trees where root = (select root from runs where id = column2)",
}
"""How the tree is found in which an artifact is named."""

_BY_NAME = " on conflict (name) do update set body = excluded.body"

TABLES: dict[str, Many] = {
    "posted": Many("insert into mail (run, seq, body) values ", 3),
    "taken": Many("delete from mail where (run, seq) in (values ", 2, ")"),
    "deliveries": Many(
        "insert into outbox (key, run, state, next_at, body) values ",
        5,
        " on conflict (key) do update set state = excluded.state, next_at = excluded.next_at, "
        "body = excluded.body",
    ),
    "definitions": Many("insert into definitions (name, body) values ", 2, _BY_NAME),
    "models": Many("insert into models (name, body) values ", 2, _BY_NAME),
    # A refused row would take down the batches that share its transaction, so what is out of place
    # is passed over.
    "board": Many(
        "insert into board (root, key, at, body) select column1, column2, column3, column4 from "
        "(values ",
        4,
        ") where exists (select 1 from runs where id = column1) on conflict (root, key) do nothing",
    ),
}


def encode(changes: Changes, *, has_artifacts: bool = True) -> RowBatch:
    """The rows of `changes`. What cannot be written as JSON raises `StoreError`."""
    try:
        try:
            batch = _encode(changes, dumps)
        except UnicodeEncodeError:
            batch = _encode(changes, _dumps_mended)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unwritable(error) from error
    if has_artifacts:
        _find_names(batch)
    return batch


def encode_act(root: str, key: str, at: int, act: Act) -> RowBatch:
    """The row of one act on a to-do list."""
    body = _whole(act)
    root = _mended(root)
    named = [(name, root) for name in names_in(body)]
    return RowBatch(board=[(root, _mended(key), at, body)], named_in_runs=named)


def _find_names(batch: RowBatch) -> None:
    """What names an artifact: it was put before the commit that names it."""
    for tree, _, _, body, _ in batch.events:
        if names := names_in(body):
            batch.named_in_trees += [(name, tree) for name in names]
    for conversation, _, body in batch.messages:
        if names := names_in(body):
            batch.named_in_conversations += [(name, conversation) for name in names]
    for id, (_, _, body, _) in batch.ended.items():
        if names := names_in(body):
            batch.named_in_runs += [(name, id) for name in names]


def _whole(value: Any) -> bytes:
    try:
        try:
            return dumps(value)
        except UnicodeEncodeError:
            return _dumps_mended(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unwritable(error) from error


def _unwritable(error: Exception) -> StoreError:
    return StoreError(f"Cannot write a batch as JSON ({error}). This batch was not saved.")


def _encode(changes: Changes, dump: Callable[[Any], bytes]) -> RowBatch:
    batch = RowBatch(forgotten=changes.forgotten[:], taken=[*changes.taken])
    accounts = batch.accounts = {id: dump(account) for id, account in changes.accounts.items()}
    runs = changes.runs
    for spec in changes.specs:
        _add(batch, spec, runs[spec.id], accounts.pop(spec.id, None), dump)
    for id, run in runs.items():
        if id in batch.added:
            continue
        state = run.state
        if type(state) is Ended:
            batch.ended[id] = (run.turn, state.ending.state, dump(run), state.ending.at)
        else:
            batch.changed[id] = (run.turn, STATES[type(state)], dump(run))
    for entry in changes.entries:
        event = entry.event
        body = dump(entry)
        # A request counts as the first row of its run, so that it is listed and purged with it.
        run_id = event.id if type(event) is Requested else entry.run
        batch.events.append((entry.tree, run_id, entry.at, body, sha256(body).digest()))
    batch.messages = [
        (conversation, n, dump(message)) for conversation, n, message in changes.messages
    ]
    if changes.posted:
        batch.posted = {key: (*key, dump(mail)) for key, mail in changes.posted.items()}
    for key, delivery in changes.deliveries.items():
        batch.deliveries[key] = (
            key,
            delivery.run,
            delivery.state,
            delivery.next_at,
            dump(delivery),
        )
    for definition in changes.definitions:
        batch.definitions[definition.name] = (_mended(definition.name), dump(definition))
    for model in changes.models:
        batch.models[model.name] = (_mended(model.name), dump(model))
    return batch


def _add(
    batch: RowBatch, spec: RunSpec, run: Run, account: bytes | None, dump: Callable[[Any], bytes]
) -> None:
    """The row of a new run, and of its conversation, which may exist already."""
    conversation, slot, state = spec.conversation, spec.parent_call, run.state
    if conversation != spec.id:
        batch.resumed[spec.id] = conversation
    base = spec.base
    if base is None or base.conversation == conversation:
        source: Values = (None, None, None)
    else:
        source = (base.conversation, base.length, base.start)
    title = _mended(spec.request.label or spec.request.agent)
    parent = spec.parent or None
    batch.conversations.setdefault(
        conversation, (parent, (parent is None, *source, spec.created_at, title))
    )
    at = state.ending.at if type(state) is Ended else None
    batch.added[spec.id] = (
        spec.id,
        conversation,
        spec.root,
        spec.parent,
        slot.turn if slot else None,
        slot.index if slot else None,
        at is None,
        run.turn,
        state.ending.state if type(state) is Ended else STATES[type(state)],
        spec.created_at,
        at,
        dump(run),
        account,
    )
    batch.specs[spec.id] = dump(spec)


def merge(batches: list[RowBatch]) -> RowBatch:
    """Several commits as one; a later row replaces an earlier one of the same key."""
    whole = RowBatch()
    for batch in batches:
        for name in RowBatch.__slots__:
            rows = getattr(batch, name)
            if rows:
                mine = getattr(whole, name)
                if type(mine) is list:
                    mine.extend(rows)
                elif name == "conversations":
                    mine.update((id, row) for id, row in rows.items() if id not in mine)
                else:
                    mine.update(rows)
    return whole


def _mended(text: str) -> str:
    """Half a surrogate pair is a character that neither JSON nor SQLite can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _dumps_mended(value: object) -> bytes:
    return dumps(_mend(msgspec.to_builtins(value)))


def _mend(value: object) -> object:
    if isinstance(value, str):
        return _mended(value)
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mend(item) for item in value]
    return value
