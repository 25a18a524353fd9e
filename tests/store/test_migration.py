"""Files of older versions are brought up to date: their events keep verifying, and what was damaged
stays known."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from retinue.core.changes import Changes
from retinue.core.events import Forgotten
from retinue.core.task_list import Added
from retinue.errors import NotFound
from retinue.host.listing import RunListing
from retinue.host.project_paths import ProjectPaths
from retinue.store.artifact_files import Artifacts
from retinue.store.sqlite.integrity import verify
from retinue.store.sqlite.reader import SqliteReader
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World, all_of, run_async, texts
from tests.store.old_databases import Old


class Made:
    """An old file with trees that are open, ended, forgotten, and without one of their children."""

    def __init__(self, path: Path, schema: int = 2) -> None:
        self.path, self.world, self.entries = path, World(), list[Any]()
        self.old = Old(path, schema)
        world = self.world
        self.write()
        self.open, (first, *_) = world.family()
        world.say(first)
        self.write()
        self.done = world.start("ended")
        world.say(self.done)
        self.write()
        self.gone = world.start("gone")
        world.say(self.gone)
        self.write()
        self.thin, (self.lost, other) = world.family("a", "b")
        world.say(self.lost)
        world.say(other)
        self.write()
        self.old.purge([self.gone, self.lost])
        world.start()
        self.write()

    def write(self) -> None:
        changes = self.world.take()
        self.entries += changes.entries
        self.old.write(changes)

    @property
    def kept(self) -> Iterator[Any]:
        """What must still be told. Older versions did not say of what tree an event is."""
        dead = (self.gone, self.lost)
        return (e for e in self.entries if e.run not in dead and e.tree not in dead)


@pytest.mark.parametrize("schema", [1, 2])
@run_async
async def test_an_old_log_is_split_into_trees_and_verifies(tmp_path: Path, schema: int) -> None:
    result = Made(tmp_path / "log.db", schema)
    result.old.close()
    store = SqliteStore(tmp_path / "log.db")
    await store.open()
    assert await store.verify() == []
    entries = await store.entries()
    assert [entry for _, entry in entries] == list(result.kept)
    seqs = [seq for seq, _ in entries]
    assert (
        seqs == sorted(set(seqs))
        and seqs[-1] == len(result.entries) == (await store.load()).last_seq
    )
    for tree in ("", result.open, result.done, result.thin):
        numbers = [n for n, _ in await store.entries(tree=tree)]
        assert numbers == list(range(1, len(numbers) + 1))
    assert await store.entries(tree=result.gone) == await store.entries(run=result.lost) == []
    assert texts(await store.messages(result.done)) == ["ended", "Done."]
    last = await store.commit(
        Changes(entries=[replace(entry, at=entry.at + 1) for _, entry in entries[-2:]])
    )
    assert last == seqs[-1] + 2
    await store.note(result.open, "k", 1, Added(titles=("now there is a list",)))
    assert len(await store.task_list(result.open)) == 1
    result.world.apply("", Forgotten(root=result.done))
    await store.commit(result.world.take())
    assert await store.verify() == []
    before = await all_of(store)
    await store.close()
    assert verify(str(tmp_path / f"log.db.before-000{schema + 1}")) == []
    again = SqliteStore(tmp_path / "log.db")
    await again.open()
    assert await all_of(again) == before
    await again.close()


def test_a_file_that_no_writer_has_opened_yet_can_be_read_and_checked(tmp_path: Path) -> None:
    result = Made(tmp_path / "log.db")
    result.old.close()
    assert verify(str(tmp_path / "log.db")) == []
    reader = SqliteReader(str(tmp_path / "log.db"))
    reader.open()
    assert [replace(e, tree="") for e in result.kept] == [
        entry for _, entry in reader.entries(0, "", 1_000)
    ]
    assert reader.entries(0, result.done, 1)[0][1].event.id == result.done
    assert reader.load().last_seq == len(result.entries)
    reader.close()


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "update events set at = at + 1 where seq = 5",
            "Event 3 of tree {open} breaks the hash chain",
        ),
        (
            "update events set body = replace(body, 'Done', 'Gone') where seq = 10",
            "body of event 8 of tree {open} was changed",
        ),
        ("delete from events where seq = 5", "Event 3 of tree {open} breaks the hash chain"),
        (
            "update events set chain = zeroblob(32) where seq = 5",
            "Event 4 of tree {open} breaks the hash chain",
        ),
        (
            "update events set at = 'noon' where seq = 5",
            "Event 3 of tree {open} breaks the hash chain",
        ),
    ],
)
@run_async
async def test_what_was_damaged_before_is_still_known_to_be(
    tmp_path: Path, sql: str, says: str
) -> None:
    result = Made(tmp_path / "log.db")
    result.old.db.execute(sql)
    result.old.close()
    assert verify(str(tmp_path / "log.db")) != []
    store = SqliteStore(tmp_path / "log.db")
    await store.open()
    problems = await store.verify()
    assert any(says.format(open=result.open) in sentence for sentence in problems), problems
    await store.close()


@run_async
async def test_artifacts_of_old_events_are_known_by_their_trees(tmp_path: Path) -> None:
    result = Made(tmp_path / "log.db")
    artifacts = Artifacts(str(tmp_path / "log.db.artifacts"))
    named, shared, loose = (artifacts.put(text).sha256 for text in (b"named", b"shared", b"loose"))
    for text in (
        f"in artifact {named} and {shared}",
        f"in {shared} not {sha256(b'other').hexdigest()}",
    ):
        root = result.world.start()
        result.world.say(root, text)
        result.write()
    result.old.close()
    store = SqliteStore(tmp_path / "log.db")
    await store.open()
    roots = [line.id for line in (await store.listing(limit=2))]
    await store.commit(Changes(forgotten=[roots[1]]))
    with pytest.raises(NotFound):
        await store.get_artifact(named)
    assert await store.get_artifact(shared) == b"shared"
    await store.commit(Changes(forgotten=[roots[0]]))
    with pytest.raises(NotFound):
        await store.get_artifact(shared)
    assert await store.get_artifact(loose) == b"loose"
    await store.close()


def as_schema_3(path: Path) -> None:
    """Turn a file back into what the version before left: accounts have a table of their own."""
    db = apsw.Connection(str(path))
    db.execute(
        "create table accounts (id text primary key not null, body blob not null);"
        " insert into accounts select id, account from runs where account is not null;"
        " alter table runs drop column account; pragma user_version = 3"
    )
    db.close()


@run_async
async def test_accounts_of_an_old_file_are_read_before_it_is_migrated_and_after(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"
    store, world = SqliteStore(path), World()
    await store.open()
    root, children = world.family()
    await store.commit(world.take())
    accounts = {id: await store.account(id) for id in (root, *children)}
    open_accounts = (await store.load()).accounts
    assert None not in accounts.values() and len(open_accounts) == 1 + len(children)
    await store.close()
    as_schema_3(path)

    reader = SqliteReader(str(path))
    reader.open()
    listing = RunListing(ProjectPaths(str(tmp_path), str(tmp_path), str(path), "", ""))
    assert {id: reader.account(id) for id in accounts} == accounts
    assert sorted(reader.load().accounts, key=str) == sorted(open_accounts, key=str)
    lines = [line._replace(state="") for line in listing.roots() + listing.below(root)]
    assert len(lines) == 1 + len(children)

    again = SqliteStore(path)
    await again.open()
    assert {id: await again.account(id) for id in accounts} == accounts
    assert sorted((await again.load()).accounts, key=str) == sorted(open_accounts, key=str)
    assert await again.verify() == []
    assert (tmp_path / "log.db.before-0004").exists()
    # Whoever had it open while it was migrated goes on reading.
    assert {id: reader.account(id) for id in accounts} == accounts
    assert lines == [line._replace(state="") for line in listing.roots() + listing.below(root)]
    reader.close()
    await again.close()
