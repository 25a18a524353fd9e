"""What the world does wrong: a full disk, a lost or slow store, a channel that does not take what
it is given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Limits,
    NotFound,
    Origin,
    Refused,
    Retinue,
    StoreError,
    StoreFull,
    tool,
)
from retinue.core.events import Replied
from retinue.runtime.bus import Step
from retinue.runtime.text_pieces import TextPiece
from retinue.testing import MemoryStore, VirtualClock, call
from tests.api.scripted_agents import STORES, Home, agent, ended, lead_of, on_virtual_time

both = pytest.mark.parametrize("kind", STORES)
ADA = Origin(channel="post", user="ada")


class Faulty:
    """A store in front of another. `full` and `full_artifacts` are how often it says that there is
    no space."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.full = self.full_artifacts = self.refused = 0
        self.gone = False
        self.commit_seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, changes: Any) -> int:
        await asyncio.sleep(self.commit_seconds)
        if self.gone:
            raise StoreError("the disk was pulled out")
        if self.full:
            self.full -= 1
            self.refused += 1
            raise StoreFull("no space left")
        return await self.store.commit(changes)  # type: ignore[no-any-return]

    async def put_artifact(self, data: bytes) -> Any:
        if self.full_artifacts:
            self.full_artifacts -= 1
            raise StoreFull("no space left")
        return await self.store.put_artifact(data)


@both
@on_virtual_time
async def test_a_full_store_parks_everything_and_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    home, questions, faulty = Home(kind, tmp_path), list[str](), list[Faulty]()

    def wrap(store: Any) -> Faulty:
        faulty.append(Faulty(store))
        return faulty[-1]

    def work(request: Any) -> str:
        questions.append(request.messages[0].text)
        return "part"

    lead = lead_of(agent("child", work, seconds=5), 5, seconds=5)
    async with home.open(wrap) as retinue:
        run = await retinue.spawn(lead, "Go.")
        faulty[0].full = 6
        await asyncio.sleep(6)
        assert retinue.blocked_reason == "no space left"
        assert questions == [], "nothing is performed before it is on record"
        outcome = await ended(retinue, run)
        assert retinue.blocked_reason == ""
        assert faulty[0].refused == 6
        assert outcome.state == "completed" and outcome.text.count("part") == 5
        assert sorted(questions) == [f"task {n}" for n in range(5)]
        assert await retinue.verify() == []


@on_virtual_time
async def test_a_long_tool_result_waits_for_space_too() -> None:
    @tool
    async def dump() -> str:
        """Dump."""
        return "x" * 100_000

    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        store.full_artifacts = 2
        run = await retinue.spawn(agent("one", [call("dump"), "done"], tools=[dump]), "Go.")
        outcome = await retinue.wait(run, timeout=60)
    assert outcome is not None, (
        "the call was lost: its result could not be kept, and nobody tried again"
    )
    assert (outcome.state, outcome.text) == ("completed", "done")


@on_virtual_time
async def test_a_long_reply_waits_for_space_too() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        store.full_artifacts = 2
        run = await retinue.spawn(agent("one", ["x" * 100_000]), "Go.")
        outcome = await retinue.wait(run, timeout=60)
    assert outcome is not None
    assert (outcome.state, outcome.error) == ("completed", ""), "a paid reply was thrown away"


@on_virtual_time
async def test_a_store_that_is_gone_stops_the_runtime_and_everybody_is_told() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        one = agent("one", ["x"], seconds=5)
        run = await retinue.spawn(one, "Go.")
        waiting = asyncio.create_task(retinue.wait(run))
        store.gone = True
        with pytest.raises(StoreError, match="the disk was pulled out"):
            await asyncio.wait_for(waiting, 60)
        assert "the disk was pulled out" in retinue.blocked_reason
        with pytest.raises(StoreError, match="The runtime has stopped"):
            await asyncio.wait_for(retinue.spawn(one, "Go."), 60)
        with pytest.raises(StoreError):
            await asyncio.wait_for(retinue.wait(run), 60)


@on_virtual_time
async def test_whoever_asked_for_the_step_that_could_not_be_written_is_told() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        one = agent("one", ["x"])
        await retinue.run(one, "Go.")
        store.gone = True
        with pytest.raises(StoreError, match="the disk was pulled out"):
            await asyncio.wait_for(retinue.spawn(one, "Go."), 60)


@on_virtual_time
async def test_waiting_for_a_run_whose_end_is_being_written_waits_for_it() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        store.commit_seconds = 10
        run = await retinue.spawn(agent("one", ["x"]), "Go.")
        await asyncio.sleep(5)
        with pytest.raises(TimeoutError):
            await retinue.wait(run, timeout=1)
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.text == "x"


@on_virtual_time
async def test_a_stream_does_not_end_before_the_end_is_written() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        store.commit_seconds = 10
        run = await retinue.spawn(agent("one", ["hello"]), "Go.")
        items = []
        async for item in retinue.steps(run, tree=False, deltas=True):
            items.append(item)
            await asyncio.sleep(3)
    assert any(isinstance(i, TextPiece) for i in items)
    steps = [i.entry.event for i in items if isinstance(i, Step)]
    assert isinstance(steps[-1], Replied)


@on_virtual_time
async def test_a_stream_ends_when_the_runtime_closes() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=1_000), "Go.")

        async def watch() -> None:
            async for _ in retinue.steps(run, tree=False, deltas=True):
                pass

        watching = asyncio.create_task(watch())
        await asyncio.sleep(1)
    tasks, _ = await asyncio.wait([watching], timeout=60)
    watching.cancel()
    assert tasks, "whoever watches would wait for ever"


class Post:
    """A channel that fails as often as it is told, and remembers what it took."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.tries = 0
        self.took: list[tuple[str, str]] = []

    async def send(self, delivery: Any) -> None:
        self.tries += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("nobody at home")
        self.took.append((delivery.origin.user, delivery.text))


def announcing(**options: Any) -> dict[str, Any]:
    return {"origin": ADA, "announce": True, **options}


@both
@on_virtual_time
async def test_an_announcement_is_tried_until_it_is_taken_and_taken_once(
    kind: str, tmp_path: Path
) -> None:
    home, post = Home(kind, tmp_path), Post(failures=3)
    async with home.open(channels={"post": post}) as retinue:
        await retinue.run(agent("one", ["It is done."]), "Go.", **announcing())
        await asyncio.sleep(3_600)
        (delivery,) = [d async for d in retinue.deliveries()]
    assert post.took == [("ada", "It is done.")]
    assert (delivery.state, post.tries) == ("acked", 4)


@both
@on_virtual_time
async def test_a_channel_that_never_takes_it_leaves_a_dead_delivery_that_can_be_sent_again(
    kind: str, tmp_path: Path
) -> None:
    home, post = Home(kind, tmp_path), Post(failures=5)
    async with home.open(channels={"post": post}, limits=Limits(delivery_tries=3)) as retinue:
        outcome = await retinue.run(agent("one", ["It is done."]), "Go.", **announcing())
        await asyncio.sleep(3_600)
        (dead,) = [d async for d in retinue.deliveries(state=["dead"])]
        assert (dead.run, dead.attempts, dead.error) == (
            outcome.id,
            3,
            "ConnectionError: nobody at home",
        )
        assert (post.tries, post.took) == (3, [])
    async with home.open(channels={"post": post}, limits=Limits(delivery_tries=3)) as retinue:
        assert [d.key async for d in retinue.deliveries(state=["dead"])] == [dead.key]
        await retinue.redeliver(dead.key)
        await asyncio.sleep(3_600)
        assert post.took == [("ada", "It is done.")]
        assert [d.state async for d in retinue.deliveries()] == ["acked"]


@on_virtual_time
async def test_a_channel_that_hangs_is_not_waited_for_for_ever() -> None:
    class Silent:
        tries = 0

        async def send(self, delivery: Any) -> None:
            self.tries += 1
            await asyncio.sleep(10_000_000)

    silent = Silent()
    async with Retinue(
        clock=VirtualClock(), channels={"post": silent}, limits=Limits(delivery_tries=3)
    ) as retinue:
        await retinue.run(agent("one", ["It is done."]), "Go.", **announcing())
        await asyncio.sleep(7 * 24 * 3_600)
        (delivery,) = [d async for d in retinue.deliveries()]
    assert (delivery.state, silent.tries) == ("dead", 3)


@on_virtual_time
async def test_a_dead_delivery_can_be_given_up() -> None:
    post = Post(failures=100)
    async with Retinue(
        clock=VirtualClock(), channels={"post": post}, limits=Limits(delivery_tries=1)
    ) as retinue:
        await retinue.run(agent("one", ["It is done."]), "Go.", **announcing())
        await asyncio.sleep(60)
        (dead,) = [d async for d in retinue.deliveries(state=["dead"])]
        await retinue.drop_delivery(dead.key)
        assert [d.state async for d in retinue.deliveries()] == ["suppressed"]


@both
@on_virtual_time
async def test_an_announcement_that_was_not_sent_yet_is_sent_after_a_restart(
    kind: str, tmp_path: Path
) -> None:
    home, post = Home(kind, tmp_path), Post()
    async with home.open(channels={"post": Post(failures=1)}) as retinue:
        await retinue.run(agent("one", ["It is done."]), "Go.", **announcing())
    async with home.open(channels={"post": post}) as retinue:
        await asyncio.sleep(600)
        assert [d.state async for d in retinue.deliveries()] == ["acked"]
    assert post.took == [("ada", "It is done.")]


@on_virtual_time
async def test_an_announcement_can_have_words_of_its_own_or_none() -> None:
    post = Post()
    async with Retinue(clock=VirtualClock(), channels={"post": post}) as retinue:
        wordy = agent("wordy", lambda q: "Good news!" if q.purpose == "announce" else "42")
        quiet = agent("quiet", lambda q: "SKIP" if q.purpose == "announce" else "nothing new")
        await retinue.run(wordy, "Go.", **announcing(report="announce"))
        await retinue.run(quiet, "Go.", **announcing(report="announce", skip_token="SKIP"))
        await asyncio.sleep(60)
        states = sorted([d.state async for d in retinue.deliveries()])
    assert post.took == [("ada", "Good news!")]
    assert states == ["acked", "suppressed"]


@on_virtual_time
async def test_a_background_child_is_announced_to_whoever_asked_and_told_to_its_parent() -> None:
    post = Post()
    child = agent("child", ["built"], seconds=60)
    lead = lead_of(child, 1, options={"children_on_end": "wait"}, join="none", announce=True)
    async with Retinue(clock=VirtualClock(), channels={"post": post}) as retinue:
        outcome = await retinue.run(lead, "Go.", origin=ADA)
        await asyncio.sleep(1)
    assert post.took == [("ada", "built")]
    assert "built" in outcome.text and outcome.children[0].id in outcome.text


@on_virtual_time
async def test_a_delivery_that_is_not_there_cannot_be_sent_again() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises((NotFound, Refused)):
            await retinue.redeliver("nothing")
        with pytest.raises((NotFound, Refused)):
            await retinue.drop_delivery("nothing")


@on_virtual_time
async def test_a_program_can_wait_until_its_announcements_have_arrived() -> None:
    post = Post(failures=2)
    async with Retinue(clock=VirtualClock(), channels={"post": post}) as retinue:
        assert await retinue.settle(timeout=30) is True
        await retinue.run(agent("one", ["It is done."]), "Go.", **announcing())
        assert await retinue.settle(timeout=0.01) is False
        assert await retinue.settle(timeout=600) is True
        assert [d.state async for d in retinue.deliveries()] == ["acked"]


@on_virtual_time
async def test_a_key_that_started_another_task_is_refused() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        one = agent("one", ["x"])
        run = await retinue.spawn(one, "Go.", key="k")
        await retinue.wait(run)
        assert await retinue.spawn(one, "Go.", key="k") == run
        with pytest.raises(Refused, match="different task"):
            await retinue.spawn(one, "Go elsewhere.", key="k")


@on_virtual_time
async def test_what_is_shown_of_a_run_is_on_record() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("slow", ["One."], seconds=30), "Go.")
        store.commit_seconds = 1.0
        sending = asyncio.create_task(retinue.send(run, "More."))
        for _ in range(20):
            await asyncio.sleep(0.1)
            output, row = await retinue._row(run), await store.row(run)
            assert output.run.version == row.run.version
        await sending
        assert (await retinue._row(run)).run.mail_seq == 1


@on_virtual_time
async def test_who_waits_for_the_record_to_catch_up_sees_what_was_decided() -> None:
    store = Faulty(MemoryStore())
    async with Retinue(store, clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("slow", ["One."], seconds=30), "Go.")
        store.commit_seconds = 1.0
        sending = asyncio.create_task(retinue.send(run, "More."))
        await asyncio.sleep(0.5)
        assert (await retinue._row(run)).run.mail_seq == 0
        await retinue._engine.caught_up()
        assert (await retinue._row(run)).run.mail_seq == 1
        await sending
        await retinue._engine.caught_up()
