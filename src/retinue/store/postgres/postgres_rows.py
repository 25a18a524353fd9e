"""Writes a commit's rows, inside its transaction: one statement per table, one list per column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retinue.errors import StoreError
from retinue.store.chains import genesis, link
from retinue.store.row_batch import RowBatch, in_turn

if TYPE_CHECKING:
    import psycopg

    Cursor = psycopg.Cursor[Any]


@dataclass(slots=True)
class TreeHead:
    """The last event of a tree."""

    last: int
    chain: bytes


@dataclass(slots=True)
class FencedBatch:
    """The rows of one commit, all of the tree `fence`, or of any if it is "". A commit for another
    epoch is refused. `inbox`: rows to delete. `also`: more statements of its transaction."""

    fence: str
    epoch: int
    rows: RowBatch
    inbox: Sequence[int] = ()
    also: Sequence[tuple[str, tuple[Any, ...]]] = ()


class Unnest:
    """One statement for any number of rows. `types` are those of its columns."""

    def __init__(self, types: str, sql: str) -> None:
        self._n_columns = len(types.split())
        lists = ", ".join(f"%s::{one}[]" for one in types.split())
        names = ", ".join(f"c{n}" for n in range(1, self._n_columns + 1))
        self._sql = sql.format(rows=f"unnest({lists}) as u ({names})")

    def __call__(self, db: Cursor, rows: Iterable[Sequence[Any]]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        if columns:
            db.execute(self._sql, columns)


LOCK = """
select t.root, t.last, t.chain, t.epoch from trees t where t.root = any(%s::text[])
order by t.root for no key update"""
MOVE_HEADS = Unnest(
    "text bigint bytea",
    "insert into trees (root, last, chain) select * from {rows} on conflict (root) do update set "
    "last = excluded.last, chain = excluded.chain",
)
# The columns of a row are evaluated in the order of the lists, so positions are in order, too.
INSERT_EVENTS = Unnest(
    "text bigint text bigint bytea bytea bytea",
    "insert into events (seq, root, number, run, at, digest, chain, body)"
    " select nextval('positions'), u.* from {rows} returning seq",
)
# A parent in the same batch has no row yet: its conversation then is what is given here.
INSERT_CONVERSATIONS = Unnest(
    "text text text bigint bigint bigint text",
    "insert into conversations (id, parent_id, base_id, base_length, base_start, created_at, "
    "title) "
    "select c1, coalesce((select conversation from runs where id = c2), c2), c3, c4, c5, c6, c7 "
    "from {rows} on conflict (id) do nothing",
)
INSERT_RUNS = Unnest(
    "text text text text bigint bigint bool bigint text bigint bigint bytea bytea",
    "insert into runs (id, conversation, root, parent, slot_turn, slot_index, open, turn, state, "
    "created_at, ended_at, body, account) select * from {rows}",
)
INSERT_SPECS = Unnest("text bytea", "insert into specs (run, body) select * from {rows}")
INSERT_MESSAGES = Unnest(
    "text bigint bytea", "insert into messages (conversation, n, body) select * from {rows}"
)
CHANGE_RUNS = Unnest(
    "text bigint text bytea bytea",
    "update runs set turn = c2, state = c3, body = c4, account = coalesce(c5, account) "
    "from {rows} where id = c1",
)
END_RUNS = Unnest(
    "text bigint text bytea bytea bigint",
    "update runs set open = false, turn = c2, state = c3, body = c4, "
    "account = coalesce(c5, account), ended_at = c6 from {rows} where id = c1",
)
CHANGE_ACCOUNTS = Unnest("text bytea", "update runs set account = c2 from {rows} where id = c1")
POST = Unnest("text bigint bytea", "insert into mail (run, seq, body) select * from {rows}")
TAKE = Unnest("text bigint", "delete from mail using {rows} where run = c1 and seq = c2")
DELIVER = Unnest(
    "text text text bigint bytea",
    "insert into outbox (key, run, state, next_at, body) select * from {rows} on conflict (key) "
    "do update set state = excluded.state, next_at = excluded.next_at, body = excluded.body",
)
# Workers register the same again and again: what is there already locks nothing. The order of the
# names is that in which all of them lock.
_BY_NAME = (
    "insert into {0} (name, body) select c1, c2 from {{rows}} where not exists (select 1 from {0} "
    "where name = c1 and body = c2) order by c1 on conflict (name) do update set body = "
    "excluded.body"
)
DEFINE_AGENTS = Unnest("text bytea", _BY_NAME.format("definitions"))
DEFINE_MODELS = Unnest("text bytea", _BY_NAME.format("models"))
NOTE = Unnest(
    "text text bigint bytea",
    "insert into board (root, key, at, body) select * from {rows} where exists (select 1 from "
    "runs where id = c1) on conflict (root, key) do nothing",
)
_TREE_OF = {
    "named_in_trees": "select c2 as root",
    "named_in_conversations": (
        "select root from runs where conversation = c2 order by n desc limit 1"
    ),
    "named_in_runs": "select root from runs where id = c2",
}
REFER = {
    name: Unnest(
        "text text",
        "insert into artifact_refs (sha256, root) select distinct a.sha256, t.root from {rows} "
        f"join artifacts a on a.sha256 = decode(c1, 'hex') cross join lateral ({tree}) t "
        "on conflict do nothing",
    )
    for name, tree in _TREE_OF.items()
}
"""What names an artifact, and how the tree is found in which it does."""
HOLD = (
    "select 1 from artifacts where sha256 in (select decode(name, 'hex') from unnest(%s::text[]) "
    "as n (name)) order by sha256 for no key update"
)
NAMED = (
    "update artifacts set waiting_since = null where waiting_since is not null and sha256 in "
    "(select decode(name, 'hex') from unnest(%s::text[]) as n (name))"
)
LEAVE = "delete from inbox where n = any(%s::bigint[])"


def write(db: Cursor, batches: list[FencedBatch], heads: dict[str, TreeHead], at: int) -> list[int]:
    """All rows of these; returns the positions of their events, in order. The trees of `heads` are
    locked; their heads are moved here."""
    seqs: list[int] = []
    # What one commit forgets another may bring anew; else many are written as few.
    for batch in in_turn([_of_tree(one) for one in batches]):
        _write_rows(db, batch)
        if batch.events:
            seqs += _append(db, batch, heads)
        _refer(db, batch)
        if batch.forgotten:
            from retinue.store.postgres.postgres_deletion import forget

            forget(db, batch.forgotten, batch.events[-1][2] if batch.events else at)
    numbers = [n for one in batches for n in one.inbox]
    if numbers:
        db.execute(LEAVE, (numbers,))
    for one in batches:
        for sql, args in one.also:
            db.execute(sql, args)
    return seqs


def _of_tree(batch: FencedBatch) -> RowBatch:
    """With one tree's epoch only that tree is written to. What concerns the whole store is then
    noted in its log: two workers never wait for each other."""
    rows, fence = batch.rows, batch.fence
    if fence:
        strange = {event[0] for event in rows.events} - {"", fence}
        strange |= {str(row[2]) for row in rows.added.values()} - {fence}
        if strange:
            raise StoreError(
                f"Tree {fence} was to write to tree {min(strange)}. This batch was not saved."
            )
        rows.events = [(fence, *event[1:]) for event in rows.events]
        rows.named_in_trees = [(name, fence) for name, _ in rows.named_in_trees]
    return rows


def roots_of(batches: Iterable[FencedBatch]) -> set[str]:
    """The trees that these write to or are fenced by."""
    roots: set[str] = set()
    for batch in batches:
        roots.add(batch.fence)
        if not batch.fence:
            roots.update(event[0] for event in batch.rows.events)
    return roots


def _write_rows(db: Cursor, batch: RowBatch) -> None:
    if batch.added:
        resumed = batch.resumed
        INSERT_CONVERSATIONS(
            db,
            [
                (id, resumed.get(parent or "", parent), *row[1:6])
                for id, (parent, row) in batch.conversations.items()
            ],
        )
        INSERT_RUNS(db, batch.added.values())
        INSERT_SPECS(db, batch.specs.items())
    INSERT_MESSAGES(db, batch.messages)
    accounts, changed, ended = batch.accounts, batch.changed, batch.ended
    CHANGE_RUNS(db, [(id, *row, accounts.get(id)) for id, row in changed.items()])
    END_RUNS(db, [(id, *row[:3], accounts.get(id), row[3]) for id, row in ended.items()])
    CHANGE_ACCOUNTS(
        db, [(id, body) for id, body in accounts.items() if id not in changed and id not in ended]
    )
    POST(db, batch.posted.values())
    TAKE(db, batch.taken)
    DELIVER(db, batch.deliveries.values())
    DEFINE_AGENTS(db, batch.definitions.values())
    DEFINE_MODELS(db, batch.models.values())
    NOTE(db, batch.board)


def _append(db: Cursor, batch: RowBatch, heads: dict[str, TreeHead]) -> list[int]:
    """The events, each behind the last of its tree."""
    events = []
    moved: dict[str, TreeHead] = {}
    for tree, run, at, body, digest in batch.events:
        head = heads.get(tree)
        if head is None:
            head = heads[tree] = TreeHead(0, genesis(tree))
        head.last += 1
        head.chain = link(head.chain, head.last, run, at, digest)
        events.append((tree, head.last, run, at, digest, head.chain, body))
        moved[tree] = head
    INSERT_EVENTS(db, events)
    seqs = [seq for (seq,) in db.fetchall()]
    MOVE_HEADS(db, [(root, head.last, head.chain) for root, head in sorted(moved.items())])
    return seqs


def _refer(db: Cursor, batch: RowBatch) -> None:
    """Remember which trees name an artifact. Most that looks like a name is the hash of something
    else."""
    names: set[str] = set()
    for place in REFER:
        names.update(name for name, _ in getattr(batch, place))
    if names:
        listed = (sorted(names),)
        db.execute(HOLD, listed)
        for place, refer in REFER.items():
            refer(db, dict.fromkeys(getattr(batch, place)))
        db.execute(NAMED, listed)
