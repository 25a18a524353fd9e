"""A commit as rows: `encode` builds them in the writer's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

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
from retinue.core.values import Definition, Delivery, Mail, ModelInfo, Origin
from retinue.errors import StoreError
from retinue.store.artifact_files import names_in
from retinue.store.base import RunLine

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


def in_turn(batches: list[RowBatch]) -> list[RowBatch]:
    """Several commits as few: what is forgotten by one is gone before the next is written, which
    may bring it anew."""
    out: list[RowBatch] = []
    start = 0
    for stop, batch in enumerate(batches, 1):
        if batch.forgotten or stop == len(batches):
            part = batches[start:stop]
            out.append(part[0] if len(part) == 1 else merge(part))
            start = stop
    return out


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


class _Named(msgspec.Struct):
    agent: str
    task: str = ""
    label: str = ""
    group: str = ""
    group_size: int = 0


class _Head(msgspec.Struct):
    """As much of a spec as a listing shows."""

    order: _Named
    origin: Origin = Origin()
    meta: dict[str, str] = msgspec.field(default_factory=dict)


_read_head = msgspec.json.Decoder(_Head).decode


def run_line(
    id: str,
    root: str,
    parent: str,
    spec: str | bytes,
    state: str,
    created_at: int,
    ended_at: int | None,
) -> RunLine:
    head = _read_head(spec)
    order = head.order
    return RunLine(
        id=id,
        root=root,
        parent=parent,
        label=order.label or order.agent,
        state=state,
        created_at=created_at,
        ended_at=ended_at,
        user_initiated=not parent,
        group=order.group if order.group_size else "",
        agent=order.agent,
        task=order.task,
        user=head.origin.user,
        meta=head.meta,
    )


def of_tree(entry: LogEntry, root: str) -> LogEntry:
    """Events of older versions do not say to which tree they belong."""
    return entry if entry.tree == root else msgspec.structs.replace(entry, tree=root)
