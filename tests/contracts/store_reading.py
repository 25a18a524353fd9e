"""What every store must answer: messages, listings, what a restart needs."""

from __future__ import annotations

from pathlib import Path

from retinue.core.events import (
    Acked,
    AgentRegistered,
    Forgotten,
    MailReceived,
    ModelRegistered,
    Requested,
    Sent,
)
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage
from retinue.core.spec import ForkPoint, History
from retinue.core.state import Ended
from retinue.core.values import Definition, Mail, ModelInfo, Origin
from tests.contracts.world import Opening, World, run_async, texts


class Reading(Opening):
    # messages

    @run_async
    async def test_messages_are_given_by_their_place(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start("zero")
        world.call(root, "read")
        world.result(root, text="two")
        world.say(root, "three")
        await store.commit(world.take())
        assert await store.messages(root, 1, 3) == [
            AssistantMessage(text="Working.", calls=(ToolCall(id="c0", name="read"),)),
            ToolMessage(call_id="c0", name="read", text="two"),
        ]
        assert texts(await store.messages(root)) == ["zero", "Working.", "two", "three"]
        assert texts(await store.messages(root, 3)) == ["three"]
        assert texts(await store.messages(root, stop=1)) == ["zero"]
        assert (
            await store.messages(root, 2, 2)
            == await store.messages(root, 9)
            == await store.messages("?")
            == []
        )
        await store.close()

    @run_async
    async def test_a_fork_has_the_messages_of_its_base_and_of_the_base_of_that(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start("root")
        world.call(root, "read")
        world.result(root)
        world.call(root, "spawn")
        (child,) = world.spawn(root, "child", history=History(kind="fork"))
        world.call(child, "spawn")
        (grandchild,) = world.spawn(child, "grandchild", history=History(kind="fork"))
        await store.commit(world.take())
        assert texts(await store.messages(root)) == ["root", "Working.", "ok", "Working."]
        assert texts(await store.messages(child)) == ["root", "Working.", "ok", "child", "Working."]
        whole = ["root", "Working.", "ok", "child", "grandchild"]
        assert texts(await store.messages(grandchild)) == whole
        for start in range(6):
            for stop in range(start, 7):
                assert texts(await store.messages(grandchild, start, stop)) == whole[start:stop]
        await store.close()

    @run_async
    async def test_a_fork_of_a_fork_may_end_inside_the_first_base(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        one = world.start("zero")
        world.call(one, "read")
        world.result(one)
        world.say(one, "three")
        two = world.start("new four", base=ForkPoint(conversation=one, length=4))
        world.say(two, "five")
        three = world.start("new two", base=ForkPoint(conversation=two, length=2))
        await store.commit(world.take())
        assert texts(await store.messages(two)) == [
            "zero",
            "Working.",
            "ok",
            "three",
            "new four",
            "five",
        ]
        assert texts(await store.messages(three)) == ["zero", "Working.", "new two"]
        await store.close()

    @run_async
    async def test_a_resumed_conversation_goes_on_where_it_ended(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first, "answer")
        await store.commit(world.take())
        base = ForkPoint(conversation=first, length=2)
        second = world.start("second", conversation=first, resumes=first, base=base)
        world.call(second, "spawn")
        (child,) = world.spawn(second, "child of the second")
        await store.commit(world.take())
        assert texts(await store.messages(first)) == ["first", "answer", "second", "Working."]
        assert [row.spec.id for row in await store.children(second)] == [child]
        assert await store.children(first) == []
        assert (await store.row(second)).spec.conversation == first
        await store.close()

    @run_async
    async def test_a_conversation_that_was_forgotten_meanwhile_has_only_what_is_new(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first, "answer")
        await store.commit(world.take())
        world.apply("", Forgotten(root=first))
        await store.commit(world.take())
        second = world.start(
            "second",
            conversation=first,
            resumes=first,
            base=ForkPoint(conversation=first, length=2),
        )
        await store.commit(world.take())
        assert (
            texts(await store.messages(first))
            == texts(await store.messages(first, 2))
            == ["second"]
        )
        assert (await store.row(second)).run.length == 3
        await store.close()

    # listings

    @run_async
    async def test_children_come_oldest_first_whether_open_or_ended(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, children = world.family("a", "b", "c", "d")
        world.say(children[2])
        await store.commit(world.take())
        rows = await store.children(root)
        assert [row.spec.id for row in rows] == children
        assert [isinstance(row.run.state, Ended) for row in rows] == [False, False, True, False]
        assert await store.children(children[0]) == []
        await store.close()

    @run_async
    async def test_what_runs_have_started_since_a_time_comes_oldest_first(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root, (old,) = world.family("old")
        world.say(old)
        world.at += 1_000
        since = world.at
        world.call(root, "spawn")
        new, other = world.spawn(root, "new", "other")
        world.say(new)
        world.start()
        await store.commit(world.take())
        assert [row.spec.id for row in await store.started(since)] == [new, other]
        assert [row.spec.id for row in await store.started(0)] == [old, new, other]
        assert await store.started(world.at + 1) == []
        await store.close()

    @run_async
    async def test_a_listing_is_newest_first_and_hides_children_unless_asked(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        old, children = world.family("a", "b", label="kid")
        new = world.start(label="second")
        world.say(new)
        await store.commit(world.take())
        assert [s.id for s in await store.listing()] == [new, old]
        assert [s.id for s in await store.listing(children=True)] == [new, *reversed(children), old]
        ended = await store.listing(children=True, states=("completed", "failed"))
        assert [s.id for s in ended] == [new]
        assert [s.id for s in await store.listing(states=("waiting",))] == [old]
        assert [s.id for s in await store.listing(since=ended[0].created_at)][:1] == [new]
        assert await store.listing(since=ended[0].created_at + 1) == []
        kid = (await store.listing(children=True))[1]
        assert (kid.root, kid.parent, kid.label, kid.user_initiated) == (old, old, "kid", False)
        top = (await store.listing())[0]
        assert (top.label, top.state, top.user_initiated) == ("second", "completed", True)
        assert top.ended_at is not None and top.ended_at >= top.created_at
        assert (await store.listing())[1].state == "waiting" and (await store.listing())[
            1
        ].label == "worker"
        await store.close()

    @run_async
    async def test_a_listing_can_be_read_in_pages(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        ids = [world.start() for _ in range(7)]
        await store.commit(world.take())
        results: list[str] = []
        while page := await store.listing(limit=3, before=results[-1] if results else ""):
            results += [s.id for s in page]
        assert results == ids[::-1]
        await store.close()

    @run_async
    async def test_entries_are_given_by_number_and_by_run(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, children = world.family()
        changes = world.take()
        await store.commit(changes)
        everything = await store.entries()
        assert [entry for _, entry in everything] == changes.entries
        assert await store.entries(limit=2) == everything[:2]
        assert await store.entries(after=everything[1][0], limit=2) == everything[2:4]
        assert await store.entries(after=10_000) == []
        mine = [e for e in everything if e[1].run == children[0]]
        assert mine and await store.entries(run=children[0]) == mine
        # the request belongs to the run that it made
        of_root = await store.entries(run=root)
        assert isinstance(of_root[0][1].event, Requested)
        assert await store.entries(after=of_root[0][0], run=root, limit=1) == of_root[1:2]
        await store.close()

    # what a restart needs

    @run_async
    async def test_a_snapshot_has_what_is_open_and_what_it_hangs_on(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, (first, second, third) = world.family()
        world.say(first, "a is done")
        world.call(second, "spawn")
        (grandchild,) = world.spawn(second, "deep", join="none")
        run = world.start()
        world.say(run)
        await store.commit(world.take())
        snapshot = await store.load()
        assert {row.spec.id for row in snapshot.open} == {root, second, third, grandchild}
        assert [row.spec.id for row in snapshot.back] == [first]
        assert snapshot.above == []
        assert {account.id for account in snapshot.accounts} == {root, second, third, grandchild}
        assert snapshot.last_seq == (await store.entries())[-1][0]
        assert [d.name for d in snapshot.definitions] == ["worker"]
        assert [m.name for m in snapshot.models] == ["m"]
        for row in snapshot.open:
            assert row.run == world.trees.run(row.spec.id)
        await store.close()

    @run_async
    async def test_a_snapshot_has_the_ended_ancestors_of_an_open_run(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start(children_on_end="keep")
        world.call(root, "spawn")
        (child,) = world.spawn(root, "child", join="none", children_on_end="keep")
        world.call(child, "spawn")
        (grandchild,) = world.spawn(child, "grandchild", join="none")
        world.say(child)
        world.say(root)
        world.say(root, "after the news of its child")
        await store.commit(world.take())
        snapshot = await store.load()
        assert [row.spec.id for row in snapshot.open] == [grandchild]
        assert {row.spec.id for row in snapshot.above} == {root, child}
        assert snapshot.back == []
        assert {account.id for account in snapshot.accounts} == {root, child, grandchild}
        await store.close()

    @run_async
    async def test_only_the_children_of_the_turn_that_is_open_are_back(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root, (old,) = world.family("old")
        world.say(old)
        world.call(root, "spawn")
        new, other = world.spawn(root, "new", "other")
        world.say(new)
        await store.commit(world.take())
        snapshot = await store.load()
        assert [row.spec.id for row in snapshot.back] == [new]
        assert {row.spec.id for row in snapshot.open} == {root, other}
        await store.close()

    @run_async
    async def test_mail_is_there_until_it_is_taken(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        for text in ("one", "two"):
            world.apply(root, MailReceived(mail=Mail(seq=0, text=text)))
        await store.commit(world.take())
        mail = (await store.load()).mail
        assert [(run, m.seq, m.text) for run, m in mail] == [(root, 1, "one"), (root, 2, "two")]
        world.say(root)
        await store.commit(world.take())
        assert (await store.load()).mail == []
        assert "two" in texts(await store.messages(root))
        await store.close()

    @run_async
    async def test_deliveries_are_found_by_state(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        origin = Origin(channel="chat", user="ada")
        for _ in range(3):
            world.say(world.start(announce=True, origin=origin))
        changes = world.take()
        await store.commit(changes)
        one, two, three = changes.deliveries
        world.apply("", Sent(key=two))
        world.apply("", Sent(key=three))
        world.apply("", Acked(key=three))
        await store.commit(world.take())
        states = {d.key: d.state for d in await store.deliveries()}
        assert states == {one: "pending", two: "sent", three: "acked"}
        assert [d.key for d in await store.deliveries(["acked"])] == [three]
        assert {d.key for d in (await store.load()).deliveries} == {one, two}
        await store.close()

    @run_async
    async def test_definitions_and_models_are_replaced_by_name(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        await store.commit(world.take())
        world.apply("", ModelRegistered(model=ModelInfo(name="m", window=7)))
        world.apply("", AgentRegistered(definition=Definition(name="worker", instructions="New.")))
        await store.commit(world.take())
        snapshot = await store.load()
        assert [m.window for m in snapshot.models] == [7]
        assert [d.instructions for d in snapshot.definitions] == ["New."]
        await store.close()
