"""Deletes a conversation with everything below it, the logs of its trees, and artifacts that
nothing names afterwards. Of each tree one row stays, which says that it was there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retinue.errors import StoreError
from retinue.store.artifact_files import names_in
from retinue.store.postgres.queries import HELD, MESSAGES, SPAN

if TYPE_CHECKING:
    import psycopg

    Cursor = psycopg.Cursor[Any]

RUNS_AT_ONCE = 200
EVENTS_AT_ONCE = 5_000

BELOW = """
with recursive tree (id) as (
    select conversation from runs where id = any(%s)
    union
    select c.id from tree join conversations c on c.parent_id = tree.id
)
select id from tree"""
STAYS = """
select distinct r.root from runs r
where r.root = any(%(roots)s) and r.parent <> '' and not r.id = any(%(ids)s)"""
COPY = f"""
insert into messages (conversation, n, body)
{SPAN} select %(target)s, messages.n, messages.body {MESSAGES}"""
REFER = """
insert into artifact_refs (sha256, root)
select a.sha256, t.root from artifacts a cross join lateral (
    select root from runs where conversation = %s order by n desc limit 1
) t where a.sha256 in (select decode(name, 'hex') from unnest(%s::text[]) as n (name))
on conflict do nothing"""
UNNAMED = """
delete from artifacts a where a.sha256 = any(%s) and a.waiting_since is null
and not exists (select 1 from artifact_refs r where r.sha256 = a.sha256)"""


def forget(db: Cursor, tops: list[str], at: int) -> None:
    """Delete the conversations of runs and everything below them. A run that leaves its tree (a
    child that was not to be kept) leaves its place in the chain."""
    tree = [id for (id,) in db.execute(BELOW, (tops,))]
    if not tree:
        return
    runs = db.execute(
        "select id, open, root from runs where conversation = any(%s)", (tree,)
    ).fetchall()
    still_open = [id for id, is_open, _ in runs if is_open]
    if still_open:
        named = ", ".join(tops[:3])
        raise StoreError(
            f"Cannot delete {named}: its run {still_open[0]} is still open. Nothing was changed."
        )
    _part(db, tree)
    ids = [id for id, _, _ in runs]
    roots = [id for id, _, top in runs if id == top]
    if roots:
        staying = db.execute(STAYS, {"roots": roots, "ids": ids}).fetchall()
        roots = [id for id in roots if (id,) not in staying]
    db.execute(
        "update events set body = null where run = any(%s) and run <> '' and root <> all(%s)",
        (ids, roots),
    )
    for sql in (
        "delete from mail where run = any(%s)",
        "delete from outbox where run = any(%s)",
        "delete from board where root = any(%s)",
        "delete from specs where run = any(%s)",
        "delete from runs where id = any(%s)",
    ):
        db.execute(sql, (ids,))
    db.execute("delete from messages where conversation = any(%s)", (tree,))
    db.execute("delete from conversations where id = any(%s)", (tree,))
    _drop(db, roots, at)


def _part(db: Cursor, tree: list[str]) -> None:
    """Forks that live on get the messages that they shared, and the names in them."""
    inside = set(tree)
    forks = db.execute(
        "select id, base_id, base_length from conversations where base_id = any(%s) order by n",
        (tree,),
    ).fetchall()
    for id, base, length in forks:
        if id in inside:
            continue
        span = {"conversation": base, "start": 0, "stop": length, "target": id}
        bodies = db.execute(f"{SPAN} select body {MESSAGES}", span).fetchall()
        names = {name for (body,) in bodies for name in names_in(body)}
        db.execute(COPY, span)
        db.execute(
            "update conversations set base_id = null, base_length = null, base_start = null "
            "where id = %s",
            (id,),
        )
        if names:
            db.execute(REFER, (id, sorted(names)))


def _drop(db: Cursor, roots: list[str], at: int) -> None:
    """The logs of these trees, but for one row each, and what only they named."""
    if not roots:
        return
    db.execute("delete from events where root = any(%s)", (roots,))
    db.execute("delete from inbox where root = any(%s)", (roots,))
    db.execute(
        "update trees set cut = last, cut_chain = chain, forgotten_at = %s, wake_at = null "
        "where root = any(%s)",
        (at, roots),
    )
    named = [
        sha
        for (sha,) in db.execute(
            "delete from artifact_refs where root = any(%s) returning sha256", (roots,)
        )
    ]
    if named:
        # Who is about to name one of them is waited for here; the next statement sees what it did.
        db.execute(
            "select 1 from artifacts where sha256 = any(%s) order by sha256 for update", (named,)
        )
        db.execute(UNNAMED, (named,))


def thin(db: Cursor, root: str, at: int) -> bool:
    """Delete a piece of a tree that has ended and is about to be forgotten: some runs at its end,
    or, when few are left, the beginning of its log. Returns whether it may still be too big to be
    forgotten in one step, in a transaction that others have to wait for."""
    if db.execute(HELD, {"id": root}).fetchone() != (0, 0):
        return False
    below = "select id from runs where root = %s and parent <> '' order by n desc limit %s"
    ids = [id for (id,) in db.execute(below, (root, RUNS_AT_ONCE + 1))]
    if len(ids) > RUNS_AT_ONCE:
        forget(db, ids[:RUNS_AT_ONCE], at)
        return True
    tree = db.execute("select cut, last from trees where root = %s", (root,)).fetchone()
    if tree is None or tree[1] - tree[0] <= EVENTS_AT_ONCE:
        return False
    cut = tree[0] + EVENTS_AT_ONCE
    db.execute(
        "update trees set cut = %s, cut_chain = (select chain from events where root = %s and "
        "number = %s) where root = %s",
        (cut, root, cut, root),
    )
    db.execute("delete from events where root = %s and number <= %s", (root, cut))
    return True
