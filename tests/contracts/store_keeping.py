"""What every store must forget, and what it must keep: deleted trees, artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.core.changes import Changes
from retinue.core.events import CancelAsked, Dropped, Forgotten, MailReceived, Requested
from retinue.core.messages import UserMessage
from retinue.core.spec import ForkPoint
from retinue.core.task_list import Added
from retinue.core.values import Mail, Origin
from retinue.errors import NotFound, StoreError
from tests.contracts.world import Opening, World, all_of, run_async, texts


class Keeping(Opening):
    # forgetting

    @run_async
    async def test_a_forgotten_root_takes_everything_below_it_along(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, (child, *_) = world.family(announce=True, origin=Origin(channel="chat"))
        world.call(child, "spawn")
        (grandchild,) = world.spawn(child, "deep")
        other = world.start("another tree")
        for _ in range(2):
            world.apply(root, CancelAsked())
        changes = world.take()
        await store.commit(changes)
        assert changes.deliveries
        for key in changes.deliveries:
            world.apply("", Dropped(key=key))
        await store.commit(world.take())
        entries = await store.entries(run=other)
        last = (await store.entries())[-1][0]
        world.apply("", Forgotten(root=root))
        assert await store.commit(world.take()) == last + 1
        for id in (root, child, grandchild):
            assert await store.row(id) is None
            assert await store.account(id) is None
            assert await store.children(id) == []
            assert await store.messages(id) == []
            assert await store.entries(run=id) == []
        assert await store.deliveries() == []
        assert await store.entries(run=other) == entries
        assert [s.id for s in await store.listing(children=True)] == [other]
        assert not any(e.run in (root, child, grandchild) for _, e in await store.entries())
        assert not any(
            isinstance(e.event, Requested) and e.event.id == root for _, e in await store.entries()
        )
        assert await store.verify() == []
        world.say(other)
        assert await store.commit(world.take()) > last + 1
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_a_fork_keeps_the_messages_of_a_base_that_is_forgotten(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("zero")
        world.say(first, "one")
        second = world.start("two", base=ForkPoint(conversation=first, length=2))
        world.say(second, "three")
        third = world.start("four", base=ForkPoint(conversation=second, length=4))
        world.say(third, "five")
        await store.commit(world.take())
        world.apply("", Forgotten(root=second))
        await store.commit(world.take())
        assert texts(await store.messages(third)) == ["zero", "one", "two", "three", "four", "five"]
        world.apply("", Forgotten(root=first))
        await store.commit(world.take())
        assert await store.messages(first) == await store.messages(second) == []
        assert texts(await store.messages(third)) == ["zero", "one", "two", "three", "four", "five"]
        assert texts(await store.messages(third, 1, 5)) == ["one", "two", "three", "four"]
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_forgetting_one_run_of_a_conversation_forgets_the_conversation(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first)
        base = ForkPoint(conversation=first, length=2)
        second = world.start("second", conversation=first, resumes=first, base=base)
        world.call(second, "spawn")
        (child,) = world.spawn(second, "child")
        world.say(child)
        world.say(second)
        await store.commit(world.take())
        world.apply("", Forgotten(root=first))
        await store.commit(world.take())
        assert [await store.row(id) for id in (first, second, child)] == [None, None, None]
        assert await store.messages(first) == await store.messages(child) == []
        await store.close()

    @run_async
    async def test_a_conversation_with_an_open_run_is_not_forgotten(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first)
        base = ForkPoint(conversation=first, length=2)
        world.start("second", conversation=first, resumes=first, base=base)
        await store.commit(world.take())
        before = await all_of(store)
        with pytest.raises(StoreError, match="still open"):
            await store.commit(Changes(forgotten=[first]))
        assert await all_of(store) == before
        await store.close()

    @run_async
    async def test_forgetting_what_is_not_there_does_nothing(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        world.start()
        await store.commit(world.take())
        before = await all_of(store)
        await store.commit(Changes(forgotten=["nobody"]))
        assert await all_of(store) == before
        await store.close()

    # artifacts

    @run_async
    async def test_an_artifact_is_kept_under_its_hash(self, tmp_path: Path) -> None:
        store = await self.opened(tmp_path)
        data = b"0123456789" * 1_000
        artifact = await store.put_artifact(data)
        assert artifact == await store.put_artifact(data)
        assert (artifact.size, artifact.path) == (len(data), artifact.sha256)
        assert await store.get_artifact(artifact.sha256) == data
        assert await store.get_artifact(artifact.sha256, 5, 10) == data[5:15]
        assert await store.get_artifact(artifact.sha256, 9_995) == data[-5:]
        assert await store.get_artifact(artifact.sha256, 20_000) == b""
        heir = store.survivor()
        await heir.open()
        assert await heir.get_artifact(artifact.sha256) == data
        empty = await heir.put_artifact(b"")
        assert await heir.get_artifact(empty.sha256) == b""
        await heir.close()

    @run_async
    async def test_an_artifact_goes_with_the_last_tree_that_names_it(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        one, two = world.start(), world.start()
        own, shared, noted = [
            (await store.put_artifact(text)).sha256 for text in (b"own", b"shared", b"noted")
        ]
        world.say(one, f"full text in artifact {own} and in {shared}")
        world.call(two, "read")
        world.result(two, text=f"see {shared}, which is not {'0' * 64}")
        world.say(two)
        await store.commit(world.take())
        await store.note(two, "k", 1, Added(titles=(f"read {noted}",)))
        await store.commit(Changes(forgotten=[one]))
        with pytest.raises(NotFound):
            await store.get_artifact(own)
        assert [await store.get_artifact(name) for name in (shared, noted)] == [b"shared", b"noted"]
        heir = store.survivor()
        await heir.open()
        await heir.commit(Changes(forgotten=[two]))
        with pytest.raises(NotFound):
            await heir.get_artifact(shared)
        assert await heir.verify() == []
        await heir.close()

    @run_async
    async def test_a_store_knows_which_trees_name_an_artifact(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        one, two, other = world.start(), world.start(), world.start()
        name, unnamed = [(await store.put_artifact(t)).sha256 for t in (b"named", b"unnamed")]
        world.say(one, f"full text in artifact {name}")
        world.call(two, "read")
        world.result(two, text=f"see {name}")
        world.say(other, f"nothing of {'0' * 64}")
        await store.commit(world.take())
        assert sorted(await store.artifact_roots(name)) == sorted([one, two])
        assert await store.artifact_roots(unnamed) == []
        assert await store.artifact_roots("0" * 64) == []
        await store.close()

    @run_async
    async def test_an_artifact_that_waits_for_the_commit_that_names_it_is_kept(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        name = (await store.put_artifact(b"again")).sha256
        one, two = world.start(), world.start()
        world.say(one, name)
        await store.commit(world.take())
        assert (await store.put_artifact(b"again")).sha256 == name
        await store.commit(Changes(forgotten=[one]))
        assert await store.get_artifact(name) == b"again"
        world.say(two, name)
        await store.commit(world.take())
        await store.commit(Changes(forgotten=[two]))
        with pytest.raises(NotFound):
            await store.get_artifact(name)
        await store.close()

    @run_async
    async def test_a_fork_keeps_the_artifacts_of_a_base_that_is_forgotten(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        name = (await store.put_artifact(b"of the base")).sha256
        first = world.start("zero")
        world.say(first, name)
        second = world.start("two", base=ForkPoint(conversation=first, length=2))
        world.say(second)
        await store.commit(world.take())
        await store.commit(Changes(forgotten=[first]))
        assert texts(await store.messages(second))[1] == name
        assert await store.get_artifact(name) == b"of the base"
        await store.commit(Changes(forgotten=[second]))
        with pytest.raises(NotFound):
            await store.get_artifact(name)
        await store.close()

    @run_async
    async def test_a_child_that_was_not_to_be_kept_leaves_its_artifacts_to_its_tree(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        name = (await store.put_artifact(b"found below")).sha256
        root, (child,) = world.family("a", retention="delete")
        world.say(child, f"see {name}")
        await store.commit(world.take())
        assert await store.known([child]) == set()
        assert await store.get_artifact(name) == b"found below"
        world.say(root)
        await store.commit(world.take())
        await store.commit(Changes(forgotten=[root]))
        with pytest.raises(NotFound):
            await store.get_artifact(name)
        await store.close()

    @run_async
    async def test_an_artifact_that_is_not_there_is_not_found(self, tmp_path: Path) -> None:
        store = await self.opened(tmp_path)
        for name in ("0" * 64, "", "../../secret", "F" * 64, "0" * 63 + "/", "a" * 65):
            with pytest.raises(NotFound):
                await store.get_artifact(name)
        await store.close()

    @run_async
    async def test_an_unknown_name_has_nothing(self, tmp_path: Path) -> None:
        store = await self.opened(tmp_path)
        assert await store.row("?") is None
        assert await store.account("?") is None
        assert await store.children("?") == []
        assert await store.listing(before="?") == await store.listing() == []
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_a_message_from_the_user_and_its_reading_are_kept(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        world.apply(root, MailReceived(mail=Mail(seq=0, text="hello")))
        world.call(root, "read")
        world.result(root)
        await store.commit(world.take())
        assert (await store.messages(root))[-1] == UserMessage(text="hello", kind="mail")
        assert (await store.load()).mail == []
        await store.close()
