"""What every store must do. A subclass says how to make one; changes come from the real core."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from retinue.core import machine
from retinue.core.events import (
    Acked,
    AnyEvent,
    CancelAsked,
    Described,
    Dropped,
    Forgotten,
    Ordered,
    Posted,
    Registered,
    Replied,
    Requested,
    Sent,
    ToolReturned,
)
from retinue.core.roster import Changes, Roster
from retinue.core.state import Ended
from retinue.core.text import run_id
from retinue.core.values import (
    Assistant,
    Base,
    Budget,
    Call,
    Context,
    Definition,
    Mail,
    ModelInfo,
    Order,
    Orders,
    Origin,
    Reply,
    Result,
    Rules,
    Usage,
    User,
)
from retinue.errors import NotFound, StoreError

START = 1_763_000_000_000


class World:
    """A roster that is driven by hand; `take` gives what has to be written."""

    def __init__(self) -> None:
        self.roster = Roster(Rules())
        self.at = START
        tools = ("read", "spawn")
        self.apply("", Described(model=ModelInfo(name="m", price_in=3, price_out=15)))
        definition = Definition(name="worker", model="m", tools=tools, reach=tools, crew=("worker",), size=40)
        self.apply("", Registered(definition=definition))

    def apply(self, run: str, event: AnyEvent) -> None:
        self.at += 1
        machine.apply(self.roster, run, self.at, event)

    def take(self) -> Changes:
        return self.roster.take_changes()

    def start(self, task: str = "Do it.", **request: Any) -> str:
        """A root that is thinking."""
        id = request.pop("id", "") or run_id(self.at, "root", self.at)
        names = ("base", "conversation", "resumes")
        event = Requested(
            id=id,
            **{name: request.pop(name) for name in names if name in request},
            order=Order(agent="worker", task=task, budget=Budget(tokens=1_000_000), **request),
        )
        self.apply("", event)
        return id

    def call(self, run: str, *names: str) -> None:
        calls = tuple(Call(id=f"c{n}", name=name) for n, name in enumerate(names))
        self._reply(run, Assistant(text="Working.", calls=calls), "calls")

    def say(self, run: str, text: str = "Done.") -> None:
        """A last word: the run ends, unless it has more to do."""
        self._reply(run, Assistant(text=text), "end")

    def _reply(self, run: str, message: Assistant, stop: Any) -> None:
        reply = Reply(message=message, usage=Usage(input=100, output=10), stop=stop)
        self.apply(run, Replied(attempt=self.roster.runs[run].attempt, reply=reply))

    def result(self, run: str, index: int = 0, text: str = "ok") -> None:
        turn = self.roster.runs[run].turn
        self.apply(run, ToolReturned(turn=turn, index=index, call_id=f"c{index}", name="read", text=text))

    def spawn(self, run: str, *tasks: str, index: int = 0, **order: Any) -> list[str]:
        """Children of a run that has just called `spawn`."""
        before = set(self.roster.specs)
        orders = Orders(spawns=tuple(Order(agent="worker", task=task, **order) for task in tasks))
        turn = self.roster.runs[run].turn
        self.apply(run, Ordered(turn=turn, index=index, call_id=f"c{index}", name="spawn", orders=orders))
        return [id for id in self.roster.specs if id not in before]

    def family(self, *tasks: str, **order: Any) -> tuple[str, list[str]]:
        root = self.start()
        self.call(root, "spawn")
        return root, self.spawn(root, *(tasks or ("a", "b", "c")), **order)


def run_async(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def texts(messages: list[Any]) -> list[str]:
    return [message.text for message in messages]


async def all_of(store: Any) -> dict[str, Any]:
    """Everything that can be asked, to compare two stores or two moments."""
    runs = await store.listing(children=True, limit=10_000)
    return {
        "load": await store.load(),
        "runs": [await store.row(one.id) for one in runs],
        "listing": runs,
        "entries": await store.entries(limit=100_000),
        "deliveries": await store.deliveries(),
        "accounts": [await store.account(one.id) for one in runs],
        "messages": {one.id: await store.messages((await store.row(one.id)).spec.conversation) for one in runs},
    }


class StoreContract:
    def make(self, folder: Path) -> Any:
        """A store that is not open yet; each folder has its own data."""
        raise NotImplementedError

    async def opened(self, folder: Path) -> Any:
        store = self.make(folder)
        await store.open()
        return store

    # what is written stays

    @run_async
    async def test_a_commit_that_returned_survives_a_crash(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, (first, *_) = world.family()
        world.say(first, "a is done")
        await store.commit(world.take())
        before = await all_of(store)
        heir = store.survivor()
        await heir.open()
        assert await all_of(heir) == before
        assert (await heir.row(root)).run == world.roster.runs[root]
        await heir.close()

    @run_async
    async def test_a_commit_returns_the_number_of_its_last_event(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        changes = world.take()
        assert await store.commit(changes) == len(changes.entries) == 2
        world.start()
        changes = world.take()
        assert await store.commit(changes) == 2 + len(changes.entries)
        assert await store.commit(world.take()) == 2 + len(changes.entries)
        assert [seq for seq, _ in await store.entries()] == list(range(1, 3 + len(changes.entries)))
        await store.close()

    @run_async
    async def test_commits_sent_together_are_numbered_in_the_order_of_sending(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        batches = [world.take()]
        for n in range(20):
            world.start(f"task {n}")
            batches.append(world.take())
        numbers = await asyncio.gather(*(store.commit(batch) for batch in batches))
        sizes = [len(batch.entries) for batch in batches]
        assert numbers == [sum(sizes[: n + 1]) for n in range(len(sizes))]
        assert [e for _, e in await store.entries()] == [e for batch in batches for e in batch.entries]
        await store.close()

    @run_async
    async def test_of_commits_sent_together_the_last_state_counts(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        batches = []
        root = world.start()
        batches.append(world.take())
        world.call(root, "read")
        batches.append(world.take())
        world.result(root)
        batches.append(world.take())
        world.say(root)
        batches.append(world.take())
        await asyncio.gather(*(store.commit(batch) for batch in batches))
        assert isinstance((await store.row(root)).run.state, Ended)
        assert (await store.load()).open == []
        assert texts(await store.messages(root)) == ["Do it.", "Working.", "ok", "Done."]
        await store.close()

    @run_async
    async def test_the_log_folds_into_the_runs_that_are_stored(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, children = world.family()
        world.call(children[0], "read")
        world.say(children[1], "b is done")
        await store.commit(world.take())
        again = Roster(Rules())
        for _, entry in await store.entries():
            machine.fold(again, entry)
        for row in (await store.load()).open:
            assert row.run == again.runs[row.spec.id]
            assert row.spec == again.specs[row.spec.id]
        assert root in again.runs
        await store.close()

    @run_async
    async def test_what_changes_after_a_commit_does_not_reach_the_store(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        changes = world.take()
        commit = asyncio.ensure_future(store.commit(changes))
        await asyncio.sleep(0)
        held = list(changes.accounts[root].held)
        assert any(held)
        changes.accounts[root].held[0] += 1_000
        await commit
        kept = await store.account(root)
        assert kept.held == held
        kept.spent[0] += 5
        assert (await store.account(root)).spent == [0, 0, 0, 0]
        await store.close()

    @run_async
    async def test_odd_text_is_kept(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        odd = "nul \0, right to left \u202e, astral \U0001f9ea, control \x1b[2J, line \u2028"
        root = world.start(odd, label=odd)
        await store.commit(world.take())
        assert texts(await store.messages(root)) == [odd]
        assert (await store.listing())[0].label == odd
        await store.close()

    @run_async
    async def test_half_a_character_does_not_stop_a_commit(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start("broken \ud800 pair", label="l\udfff")
        await store.commit(world.take())
        (text,) = texts(await store.messages(root))
        assert text.startswith("broken ") and text.endswith(" pair")
        assert (await store.row(root)).spec.id == root
        await store.close()

    # who may write

    @run_async
    async def test_each_opening_has_a_higher_epoch(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        first = await store.open()
        heir = store.survivor()
        assert await heir.open() > first
        await heir.close()

    @run_async
    async def test_a_commit_of_an_older_epoch_is_refused_and_changes_nothing(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        await store.commit(world.take())
        heir = store.survivor()
        await heir.open()
        before = await all_of(heir)
        world.start()
        changes = world.take()
        with pytest.raises(StoreError):
            await store.commit(changes)
        assert await all_of(heir) == before
        await heir.commit(changes)
        await heir.close()

    @run_async
    async def test_a_store_that_is_closed_takes_nothing(self, tmp_path: Path) -> None:
        store, world = self.make(tmp_path), World()
        with pytest.raises(StoreError, match="not open"):
            await store.commit(world.take())
        await store.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreError):
            await store.commit(world.take())

    @run_async
    async def test_a_run_with_a_known_id_is_refused_and_nothing_changes(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start(id="same")
        world.say(root)
        await store.commit(world.take())
        before = await all_of(store)
        world.start("again", id="same")
        with pytest.raises(StoreError, match=r"[Nn]othing of"):
            await store.commit(world.take())
        assert await all_of(store) == before
        await store.close()

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
            Assistant(text="Working.", calls=(Call(id="c0", name="read"),)),
            Result(call_id="c0", name="read", text="two"),
        ]
        assert texts(await store.messages(root)) == ["zero", "Working.", "two", "three"]
        assert texts(await store.messages(root, 3)) == ["three"]
        assert texts(await store.messages(root, stop=1)) == ["zero"]
        assert await store.messages(root, 2, 2) == await store.messages(root, 9) == await store.messages("?") == []
        await store.close()

    @run_async
    async def test_a_fork_has_the_messages_of_its_base_and_of_the_base_of_that(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start("root")
        world.call(root, "read")
        world.result(root)
        world.call(root, "spawn")
        (child,) = world.spawn(root, "child", context=Context(kind="fork"))
        world.call(child, "spawn")
        (grandchild,) = world.spawn(child, "grandchild", context=Context(kind="fork"))
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
        two = world.start("new four", base=Base(conversation=one, length=4))
        world.say(two, "five")
        three = world.start("new two", base=Base(conversation=two, length=2))
        await store.commit(world.take())
        assert texts(await store.messages(two)) == ["zero", "Working.", "ok", "three", "new four", "five"]
        assert texts(await store.messages(three)) == ["zero", "Working.", "new two"]
        await store.close()

    @run_async
    async def test_a_resumed_conversation_goes_on_where_it_ended(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first, "answer")
        await store.commit(world.take())
        base = Base(conversation=first, length=2)
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
    async def test_a_conversation_that_was_forgotten_meanwhile_has_only_what_is_new(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first, "answer")
        await store.commit(world.take())
        world.apply("", Forgotten(root=first))
        await store.commit(world.take())
        second = world.start("second", conversation=first, resumes=first, base=Base(conversation=first, length=2))
        await store.commit(world.take())
        assert texts(await store.messages(first)) == texts(await store.messages(first, 2)) == ["second"]
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
    async def test_a_listing_is_newest_first_and_hides_children_unless_asked(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        old, children = world.family("a", "b", label="kid")
        new = world.start(label="second")
        world.say(new)
        await store.commit(world.take())
        assert [s.id for s in await store.listing()] == [new, old]
        assert [s.id for s in await store.listing(children=True)] == [new, *reversed(children), old]
        kid = (await store.listing(children=True))[1]
        assert (kid.root, kid.parent, kid.label, kid.user_initiated) == (old, old, "kid", False)
        top = (await store.listing())[0]
        assert (top.label, top.state, top.user_initiated) == ("second", "completed", True)
        assert top.ended_at is not None and top.ended_at >= top.created_at
        assert (await store.listing())[1].state == "waiting" and (await store.listing())[1].label == "worker"
        await store.close()

    @run_async
    async def test_a_listing_can_be_read_in_pages(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        ids = [world.start() for _ in range(7)]
        await store.commit(world.take())
        found: list[str] = []
        while page := await store.listing(limit=3, before=found[-1] if found else ""):
            found += [s.id for s in page]
        assert found == ids[::-1]
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
        done = world.start()
        world.say(done)
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
            assert row.run == world.roster.runs[row.spec.id]
        await store.close()

    @run_async
    async def test_a_snapshot_has_the_ended_ancestors_of_an_open_run(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start(orphans="keep")
        world.call(root, "spawn")
        (child,) = world.spawn(root, "child", join="none", orphans="keep")
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
    async def test_only_the_children_of_the_turn_that_is_open_are_back(self, tmp_path: Path) -> None:
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
            world.apply(root, Posted(mail=Mail(seq=0, text=text)))
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
        found = {d.key: d.state for d in await store.deliveries()}
        assert found == {one: "pending", two: "sent", three: "acked"}
        assert [d.key for d in await store.deliveries(["acked"])] == [three]
        assert {d.key for d in (await store.load()).deliveries} == {one, two}
        await store.close()

    @run_async
    async def test_definitions_and_models_are_replaced_by_name(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        await store.commit(world.take())
        world.apply("", Described(model=ModelInfo(name="m", window=7)))
        world.apply("", Registered(definition=Definition(name="worker", instructions="New.")))
        await store.commit(world.take())
        snapshot = await store.load()
        assert [m.window for m in snapshot.models] == [7]
        assert [d.instructions for d in snapshot.definitions] == ["New."]
        await store.close()

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
        kept = await store.entries(run=other)
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
        assert await store.entries(run=other) == kept
        assert [s.id for s in await store.listing(children=True)] == [other]
        assert not any(e.run in (root, child, grandchild) for _, e in await store.entries())
        assert not any(isinstance(e.event, Requested) and e.event.id == root for _, e in await store.entries())
        assert await store.verify() == []
        world.say(other)
        assert await store.commit(world.take()) > last + 1
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_a_fork_keeps_the_messages_of_a_base_that_is_forgotten(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("zero")
        world.say(first, "one")
        second = world.start("two", base=Base(conversation=first, length=2))
        world.say(second, "three")
        third = world.start("four", base=Base(conversation=second, length=4))
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
    async def test_forgetting_one_run_of_a_conversation_forgets_the_conversation(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first)
        base = Base(conversation=first, length=2)
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
        base = Base(conversation=first, length=2)
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
        kept = await store.put_artifact(data)
        assert kept == await store.put_artifact(data)
        assert (kept.bytes, kept.path) == (len(data), kept.sha256)
        assert await store.get_artifact(kept.sha256) == data
        assert await store.get_artifact(kept.sha256, 5, 10) == data[5:15]
        assert await store.get_artifact(kept.sha256, 9_995) == data[-5:]
        assert await store.get_artifact(kept.sha256, 20_000) == b""
        heir = store.survivor()
        await heir.open()
        assert await heir.get_artifact(kept.sha256) == data
        empty = await heir.put_artifact(b"")
        assert await heir.get_artifact(empty.sha256) == b""
        await heir.close()

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
        world.apply(root, Posted(mail=Mail(seq=0, text="hello")))
        world.call(root, "read")
        world.result(root)
        await store.commit(world.take())
        assert (await store.messages(root))[-1] == User(text="hello", kind="mail")
        assert (await store.load()).mail == []
        await store.close()
