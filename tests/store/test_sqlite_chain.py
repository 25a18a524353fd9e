"""The chain of hashes over the log: whatever is not as it was written is named."""

from pathlib import Path

import apsw
import pytest

from retinue.core.events import CancelAsked, Forgotten
from retinue.store.sqlite import tree_logs
from tests.contracts.store import World, run_async
from tests.store.sqlite_files import alter, filled, flip, opened


@run_async
async def test_the_chain_holds_and_goes_on_after_reopening(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    assert await store.verify() == []
    await store.close()
    again, world = await opened(tmp_path), World()
    await again.commit(world.take())
    assert await again.verify() == []
    await again.close()


OF_FIRST = "tree = (select tree from events where run <> '' limit 1)"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "update bodies set body = replace(body, 'Done', 'Gone') where instr(body, 'Done')",
            ["The body of event 8 of tree {tree} was changed"],
        ),
        (
            f"update events set at = at + 1 where {OF_FIRST} and number = 4",
            ["Event 4 of tree {tree} breaks the hash chain"],
        ),
        (
            f"update events set run = 'x' where {OF_FIRST} and number = 4",
            ["Event 4 of tree {tree} breaks the hash chain"],
        ),
        (
            f"update events set digest = zeroblob(32) where {OF_FIRST} and number = 4",
            ["Event 4 of tree {tree} breaks the hash chain", "body of event 4 of tree {tree}"],
        ),
        (
            f"update events set chain = zeroblob(32) where {OF_FIRST} and number = 3",
            [
                "Event 3 of tree {tree} breaks the hash chain",
                "Event 4 of tree {tree} breaks the hash chain",
            ],
        ),
        (
            f"delete from events where {OF_FIRST} and number = 4",
            ["Events 4 to 4 of tree {tree} are missing", "1 bodies"],
        ),
        (
            f"delete from events where {OF_FIRST} and number < 3",
            ["Events 1 to 2 of tree {tree} are missing"],
        ),
        (
            f"delete from events where {OF_FIRST} and number > 4",
            ["Events 5 to {last} of tree {tree} are missing"],
        ),
        (f"delete from events where {OF_FIRST}", ["Events 1 to {last} of tree {tree} are missing"]),
        (
            f"update events set number = 1000 where {OF_FIRST} and number = 4",
            ["Events 4 to 4 of tree {tree} are missing"],
        ),
        (
            f"update events set at = 'noon' where {OF_FIRST} and number = 3",
            ["Event 3 of tree {tree} breaks the hash chain"],
        ),
        ("update events set at = 0 where seq = 1", ["Event 1 of the store breaks the hash chain"]),
        (
            "update events set tree = 77, number = -seq where seq > 8",
            ["belong to trees that do not exist"],
        ),
        (
            "update trees set chain = zeroblob(32) where root = ''",
            ["log of the store ends at another event"],
        ),
        (
            "update trees set last = last - 1 where root <> ''",
            ["log of tree {tree} ends at another event"],
        ),
        (
            "update trees set root = 'another' where root = '{tree}'",
            ["Event 1 of tree another breaks the hash chain"],
        ),
        (
            "delete from conversations where id = (select id from conversations limit 1)",
            ["refers to a row"],
        ),
    ],
)
@run_async
async def test_a_row_that_is_not_what_was_written_is_named(
    tmp_path: Path, sql: str, says: list[str]
) -> None:
    store = await filled(tmp_path)
    ((tree, last),) = store._reader._all("select root, last from trees where n = 2")
    alter(tmp_path / "log.db", "update bodies set body = body")
    assert await store.verify() == []
    alter(tmp_path / "log.db", sql.replace("{tree}", tree))
    problems = await store.verify()
    for text in says:
        assert any(text.format(tree=tree, last=last) in sentence for sentence in problems), problems
    await store.close()


@run_async
async def test_bit_rot_inside_a_value_is_named_by_its_number(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    seqs = [seq for seq, entry in await store.entries() if "Done." in repr(entry)]
    (body,) = store._reader._all("select body from bodies where seq = ?", (seqs[1],))[0]
    ((number, tree),) = store._reader._all(
        "select number, root from events join trees on tree = n where seq = ?", (seqs[1],)
    )
    await store.close()
    flip(tmp_path / "log.db", body, body.find(b"Done."))
    again = await opened(tmp_path)
    assert again._reader._all("pragma integrity_check") == [("ok",)]
    assert await again.verify() == [
        f"The body of event {number} of tree {tree} was changed after it was written."
    ]
    await again.close()


@run_async
async def test_a_forgotten_tree_leaves_one_row(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    root, _ = world.family("the secret of the tomb")
    world.apply(root, CancelAsked())
    await store.commit(world.take())
    ((n, chain),) = store._reader._all("select last, chain from trees where root = ?", (root,))
    world.apply("", Forgotten(root=root))
    last = await store.commit(world.take())
    assert await store.verify() == []
    await store.close()
    db = apsw.Connection(str(tmp_path / "log.db"))
    assert db.execute("select count(*) from events").get == 3
    row = db.execute(
        "select last, chain, cut, cut_chain, forgotten_at from trees where root = ?", (root,)
    ).fetchone()
    assert row == (n, chain, n, chain, world.at)
    for table in ("bodies", "messages", "runs", "specs", "mail", "outbox"):
        assert db.execute(f"select count(*) from {table} where instr(body, 'tomb')").get == 0
    db.execute("delete from events")
    db.execute("delete from bodies")
    db.close()
    again = await opened(tmp_path)
    assert (await again.load()).last_seq == last, "a position is not given out twice"
    await again.close()


@run_async
async def test_a_child_that_was_not_to_be_kept_keeps_its_place_in_the_chain(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    root, (child, other) = world.family("the secret of the tomb", "b", retention="delete")
    world.say(child)
    world.say(other)
    await store.commit(world.take())
    assert await store.row(child) is None and await store.row(root) is not None
    rest = store._reader._all(
        "select count(*) from events e left join bodies using (seq) where e.run = ?", (child,)
    )
    assert rest[0][0] and await store.entries(run=child) == []
    assert store._reader._all("select count(*) from bodies where instr(body, 'Done.')") == [(0,)]
    numbers = [n for n, _ in await store.entries(tree=root)]
    assert numbers != list(range(1, len(numbers) + 1))
    assert await store.verify() == []
    await store.close()


@run_async
async def test_the_heads_and_numbers_that_are_kept_in_memory_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_logs, "MOST_HEADS", 5)
    store, world = await opened(tmp_path), World()
    roots = [world.start() for _ in range(20)]
    await store.commit(world.take())
    assert len(store._writer._rows.heads) == 5
    for root in roots:
        world.say(root)
        await store.commit(world.take())
    rows = store._writer._rows
    for name in (rows.heads._known, rows._runs._known, rows._conversations._known):
        assert not any(root in name for root in roots)
    assert await store.verify() == []
    await store.close()
