"""From a run's end to the other side of a channel, through the real runtime: once, or dead and seen
to be."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import Delivery, Limits, Origin, Retinue
from retinue.channels.console import Console
from retinue.channels.file import JsonLines
from retinue.channels.webhook import Webhook
from tests.api.scripted_agents import STORES, Home, agent, lead_of, on_virtual_time
from tests.channels.receiver import SECRET, Receiver, hang, status
from tests.contracts.world import run_async
from tests.waiting import SECONDS

ROOT = Path(__file__).resolve().parents[2]
THREE = Limits(delivery_tries=3)
QUICK = Limits(delivery_tries=3, delivery_base_ms=1)


def to(channel: str) -> dict[str, Any]:
    return {"announce": True, "origin": Origin(channel=channel, user="ada", thread="42")}


async def settled(retinue: Retinue) -> bool:
    """Whether all announcements have arrived or are given up, and that is on record."""
    for _ in range(24_000):
        if not [d async for d in retinue.deliveries(state=["pending", "sent"])]:
            return True
        await asyncio.sleep(0.005)
    return False


def texts(path: Path) -> list[str]:
    return (
        [msgspec.json.decode(line)["text"] for line in path.read_bytes().splitlines()]
        if path.exists()
        else []
    )


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@run_async
async def test_an_announcement_arrives_once_on_the_channel_of_its_origin(
    kind: str, tmp_path: Path
) -> None:
    path, stream = tmp_path / "out.jsonl", io.StringIO()
    async with Receiver() as receiver:
        hook = Webhook(receiver.url, SECRET)
        channels = {"hook": hook, "file": JsonLines(path), "console": Console(stream)}
        store = None if kind == "memory" else tmp_path / "log.db"
        async with Retinue(store, channels=channels) as retinue:
            for name in channels:
                await retinue.run(agent(name, [f"for the {name}"]), "Go.", **to(name))
            await retinue.run(agent("quiet", ["for nobody"]), "Go.", origin=Origin(channel="hook"))
            assert await settled(retinue)
            states = [(d.origin.channel, d.state, d.attempts) async for d in retinue.deliveries()]
        await hook.close()
    assert sorted(states) == [("console", "acked", 1), ("file", "acked", 1), ("hook", "acked", 1)]
    assert (receiver.texts, len(receiver.requests)) == (["for the hook"], 1)
    assert texts(path) == ["for the file"]
    assert stream.getvalue() == "[user ada, thread 42]\n  for the console\n"


@run_async
async def test_a_child_in_the_background_is_announced_to_whoever_asked(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        hook = Webhook(receiver.url, SECRET)
        lead = lead_of(
            agent("child", ["built"]),
            3,
            options={"children_on_end": "wait"},
            join="none",
            announce=True,
        )
        async with Retinue(channels={"hook": hook}) as retinue:
            outcome = await retinue.run(
                lead, "Go.", origin=Origin(channel="hook", user="ada", thread="42")
            )
            assert await settled(retinue)
            keys = {d.key async for d in retinue.deliveries(state=["acked"])}
        await hook.close()
    assert set(receiver.taken) == keys
    bodies = [body["data"] for body in receiver.taken.values()]
    assert {d["run"] for d in bodies} == {c.id for c in outcome.children}
    assert {(d["root"], d["user"], d["thread"], d["text"]) for d in bodies} == {
        (outcome.id, "ada", "42", "built")
    }


class Blocked:
    """Channels that refuse everything, until they are let."""

    def __init__(self, folder: Path) -> None:
        self.wall = folder / "wall"
        self.wall.write_text("a file where a folder should be")
        self.channel = JsonLines(self.wall / "out.jsonl")

    def let(self) -> None:
        self.wall.unlink()


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_channel_that_always_fails_leaves_a_dead_delivery_and_the_others_alone(
    kind: str, tmp_path: Path
) -> None:
    home, blocked = Home(kind, tmp_path), Blocked(tmp_path)
    path, stream = tmp_path / "out.jsonl", io.StringIO()
    hook = Webhook("http://127.0.0.1:1/hook", SECRET, timeout=1)
    channels = {
        "blocked": blocked.channel,
        "hook": hook,
        "file": JsonLines(path),
        "console": Console(stream),
    }
    async with home.open(channels=channels, limits=THREE) as retinue:
        for name in channels:
            await retinue.run(agent(name, [f"for the {name}"]), "Go.", **to(name))
        await asyncio.sleep(24 * 3_600)
        await hook.close()
        deliveries = {d.origin.channel: d async for d in retinue.deliveries()}
        assert {name: (d.state, d.bounces) for name, d in deliveries.items()} == {
            "blocked": ("dead", 3),
            "hook": ("dead", 3),
            "file": ("acked", 0),
            "console": ("acked", 0),
        }
        assert {d.key async for d in retinue.deliveries(state=["dead"])} == {
            deliveries["blocked"].key,
            deliveries["hook"].key,
        }
        assert "(Not a directory)" in deliveries["blocked"].error
        assert deliveries["hook"].error.startswith("RetinueError: 127.0.0.1:1 ")
        assert texts(path) == ["for the file"]
        assert "for the console" in stream.getvalue()
    blocked.let()
    async with home.open(channels=channels, limits=THREE) as retinue:
        await retinue.redeliver(deliveries["blocked"].key)
        await asyncio.sleep(60)
        states = {d.origin.channel: d.state async for d in retinue.deliveries()}
    assert states == {"blocked": "acked", "hook": "dead", "file": "acked", "console": "acked"}
    assert texts(blocked.wall / "out.jsonl") == ["for the blocked"]


@run_async
async def test_a_dead_webhook_can_be_sent_again_and_arrives_once() -> None:
    async with Receiver() as receiver:
        hook = Webhook(receiver.url, SECRET)
        receiver.answer = status(410)
        async with Retinue(channels={"hook": hook}, limits=QUICK) as retinue:
            await retinue.run(agent("one", ["It is done."]), "Go.", **to("hook"))
            assert await settled(retinue)
            (dead,) = [d async for d in retinue.deliveries(state=["dead"])]
            assert (dead.bounces, len(receiver.requests), receiver.taken) == (3, 3, {})
            assert (
                dead.error
                == f"RetinueError: 127.0.0.1:{receiver.url.split(':')[2].split('/')[0]} answered "
                "410"
            )
            receiver.answer = None
            await retinue.redeliver(dead.key)
            assert await settled(retinue)
            (delivery,) = [d async for d in retinue.deliveries()]
            assert (delivery.state, delivery.key, delivery.error) == ("acked", dead.key, "")
        await hook.close()
    assert receiver.texts == ["It is done."]
    assert {headers["webhook-id"] for headers, _ in receiver.requests} == {dead.key}


@run_async
async def test_an_answer_that_was_lost_does_not_make_two_announcements() -> None:
    async with Receiver() as receiver:
        hook = Webhook(receiver.url, SECRET, timeout=2)

        async def hang_once(request: Any = None) -> Any:
            hook._timeout = 120.0  # only the first answer is lost
            await hang()

        receiver.after = hang_once
        async with Retinue(channels={"hook": hook}, limits=QUICK) as retinue:
            await retinue.run(agent("one", ["It is done."]), "Go.", **to("hook"))
            assert await settled(retinue)
            (delivery,) = [d async for d in retinue.deliveries()]
        await hook.close()
    assert (delivery.state, delivery.attempts, delivery.bounces) == ("acked", 2, 1)
    assert (receiver.texts, len(receiver.requests)) == (["It is done."], 2)


@on_virtual_time
async def test_what_two_channels_of_one_file_are_given_after_a_restart_is_written_once(
    tmp_path: Path,
) -> None:
    """The process dies after the line is written and before that is on record: the next one sends
    it again."""
    home, path = Home("memory", tmp_path), tmp_path / "out.jsonl"
    deliveries = list[Delivery]()

    class Interrupted:
        async def send(self, delivery: Delivery) -> None:
            deliveries.append(delivery)
            await JsonLines(path).send(delivery)
            await asyncio.sleep(3_600)

    async with home.open(channels={"file": Interrupted()}) as retinue:
        await retinue.run(agent("one", ["It is done."]), "Go.", **to("file"))
        await asyncio.sleep(1)
    assert len(deliveries) == 1
    async with home.open(channels={"file": JsonLines(path)}) as retinue:
        assert await settled(retinue)
        (late_delivery,) = [d async for d in retinue.deliveries()]
    assert (late_delivery.state, late_delivery.attempts) == ("acked", 2)
    assert texts(path) == ["It is done."]


async def announcer(store: Path, url: str) -> Process:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-W", "error", "-m", "tests.channels.announcer", str(store), url]
    return await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "PYTHONPATH": path}, stdout=PIPE
    )


@pytest.mark.parametrize("moment", ["before", "after"])
@run_async
async def test_a_process_killed_before_the_webhook_was_answered_announces_once(
    moment: str, tmp_path: Path
) -> None:
    """The child has ended; its announcement is with the receiver, which has taken it or not, and
    has not answered."""
    reached = asyncio.Event()

    async def stall() -> None:
        reached.set()
        await hang()

    async with Receiver() as receiver:
        setattr(receiver, moment, stall)
        process = await announcer(tmp_path / "log.db", receiver.url)
        await asyncio.wait_for(reached.wait(), SECONDS)
        process.kill()
        assert (await process.communicate(), process.returncode) == ((b"", None), -9)
        assert receiver.texts == (["built"] if moment == "after" else [])
        setattr(receiver, moment, None)
        process = await announcer(tmp_path / "log.db", receiver.url)
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        assert (process.returncode, output) == (0, b"acked 2 0")
        assert (receiver.texts, len(receiver.requests)) == (["built"], 2)
        ((_, first), (_, second)) = receiver.requests
        assert first == second
        hook = Webhook(receiver.url, SECRET)
        async with Retinue(tmp_path / "log.db", channels={"hook": hook}):
            await asyncio.sleep(0.1)
        await hook.close()
        assert len(receiver.requests) == 2, "what was acknowledged is not sent again"


@on_virtual_time
async def test_an_announcement_for_a_channel_that_a_new_process_does_not_have_is_dead_and_says_so(
    tmp_path: Path,
) -> None:
    home, blocked = Home("memory", tmp_path), Blocked(tmp_path)
    async with home.open(channels={"hook": blocked.channel}, limits=THREE) as retinue:
        await retinue.run(agent("one", ["It is done."]), "Go.", **to("hook"))
    async with home.open(channels={"file": Console(io.StringIO())}, limits=THREE) as retinue:
        await asyncio.sleep(3_600)
        (dead,) = [d async for d in retinue.deliveries()]
    assert (dead.state, dead.error) == (
        "dead",
        "RetinueError: unknown channel 'hook' in this process",
    )
