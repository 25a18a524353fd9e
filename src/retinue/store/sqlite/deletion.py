"""Deletes a conversation with everything below it, the logs of its trees, and the names of
artifacts that nothing uses afterwards. Of each tree one row stays, which says that it was there."""

from __future__ import annotations

from typing import Any

import apsw

from retinue.errors import StoreError
from retinue.store.artifact_files import names_in
from retinue.store.sqlite.reader_queries import HELD, MESSAGES, SPAN
from retinue.store.sqlite.tree_logs import LISTED, listed

RUNS_AT_ONCE = 200
EVENTS_AT_ONCE = 5_000

TREE = f"""
with recursive tree (id) as (
    select conversation from runs where id in {LISTED}
    union
    select c.id from tree join conversations c on c.parent_id = tree.id
)
select id from tree
"""
_COPY = "select (select n from conversations where id = :target), messages.n, messages.body"
_REFER = """
insert into artifact_refs (sha256, tree)
select unhex(value), t.n from json_each(?) cross join trees t
where t.root = (select root from runs where conversation = ? order by n desc limit 1)
and unhex(value) in (select sha256 from artifact_refs) on conflict do nothing"""


def forget(db: apsw.Connection, tops: list[str], at: int) -> tuple[list[str], list[str]]:
    """Delete the conversations of runs and everything below them. Returns the trees that are gone,
    and the artifacts that nothing names. A run that leaves its tree (a child that was not to be
    kept) leaves its place in the chain."""
    tree = [id for (id,) in db.execute(TREE, (listed(tops),))]
    if not tree:
        return [], []
    sql = f"select id, open, root from runs where conversation in {LISTED}"
    runs: list[Any] = db.execute(sql, (listed(tree),)).fetchall()
    still_open = [id for id, is_open, _ in runs if is_open]
    if still_open:
        named = ", ".join(tops[:3])
        raise StoreError(
            f"Cannot delete {named}: its run {still_open[0]} is still open. Nothing was changed."
        )
    _part(db, tree)
    ids = listed(id for id, _, _ in runs)
    roots = [id for id, _, top in runs if id == top and not _stays(db, id, ids)]
    owned = f"select seq from events where owner in (select n from runs where id in {LISTED})"
    db.execute(f"delete from bodies where seq in ({owned})", (ids,))
    for table, key in (("mail", "run"), ("outbox", "run")):
        db.execute(f"delete from {table} where {key} in {LISTED}", (ids,))
    db.execute(f"delete from conversations where id in {LISTED}", (listed(tree),))
    return roots, _drop(db, roots, at)


def _stays(db: apsw.Connection, root: str, ids: str) -> bool:
    """Whether a run of this tree lives on in another conversation."""
    sql = f"select 1 from runs where root = ? and parent <> '' and id not in {LISTED} limit 1"
    return db.execute(sql, (root, ids)).get is not None


def _part(db: apsw.Connection, tree: list[str]) -> None:
    """Forks that live on get the messages that they shared, and the names in them."""
    inside = set(tree)
    forks = db.execute(
        f"select id, base_id, base_length from conversations where base_id in {LISTED}",
        (listed(tree),),
    )
    for id, base, length in forks.fetchall():
        if id not in inside:
            span = {"conversation": base, "start": 0, "stop": length, "target": id}
            names = {
                name
                for (body,) in db.execute(f"{SPAN} select body {MESSAGES}", span)
                for name in names_in(body)
            }
            db.execute(
                f"insert into messages (conversation, n, body) {SPAN} {_COPY} {MESSAGES}", span
            )
            db.execute(
                "update conversations set base_id = null, base_length = null, base_start = null "
                "where id = ?",
                (id,),
            )
            if names:
                db.execute(_REFER, (listed(sorted(names)), id))


def _drop(db: apsw.Connection, roots: list[str], at: int) -> list[str]:
    """The logs of these trees, but for one row each."""
    if not roots:
        return []
    trees = f"(select n from trees where root in {LISTED})"
    args = (listed(roots),)
    db.execute(
        f"delete from bodies where seq in (select seq from events where tree in {trees})", args
    )
    # The position over all trees must not be given out twice, even if the last rows are deleted.
    db.execute(
        "insert into meta select 'seq', coalesce(max(seq), 0) from events where true"
        " on conflict (key) do update set value = max(value, excluded.value)"
    )
    db.execute(f"delete from events where tree in {trees}", args)
    named = [
        sha
        for (sha,) in db.execute(
            f"select distinct sha256 from artifact_refs where tree in {trees}", args
        )
    ]
    db.execute(f"delete from artifact_refs where tree in {trees}", args)
    db.execute(
        f"update trees set cut = last, cut_chain = chain, forgotten_at = ? where root in {LISTED}",
        (at, listed(roots)),
    )
    query = "select 1 from artifact_refs where sha256 = ? limit 1"
    return [sha.hex() for sha in named if db.execute(query, (sha,)).get is None]


def thin(db: apsw.Connection, root: str, at: int) -> tuple[bool, list[str]]:
    """Delete a piece of a tree that has ended and is about to be forgotten: some runs at its end,
    or, when few are left, the beginning of its log. Returns whether it may still be too big to be
    forgotten in one step, in a transaction that others have to wait for; and artifacts that nothing
    names."""
    if db.execute(HELD, {"id": root}).fetchone() != (0, 0):
        return False, []
    below = "select id from runs where root = ? and parent <> '' order by n desc limit ?"
    ids = [id for (id,) in db.execute(below, (root, RUNS_AT_ONCE + 1))]
    if len(ids) > RUNS_AT_ONCE:
        return True, forget(db, ids[:RUNS_AT_ONCE], at)[1]
    tree: Any = db.execute("select n, cut, last from trees where root = ?", (root,)).fetchone()
    if tree is None or tree[2] - tree[1] <= EVENTS_AT_ONCE:
        return False, []
    n, cut = tree[0], tree[1] + EVENTS_AT_ONCE
    rows = "select seq from events where tree = ? and number <= ?"
    db.execute(
        "update trees set cut = ?, cut_chain = (select chain from events where tree = ? and "
        "number = ?) where n = ?",
        (cut, n, cut, n),
    )
    db.execute(f"delete from bodies where seq in ({rows})", (n, cut))
    db.execute("delete from events where tree = ? and number <= ?", (n, cut))
    return True, []
