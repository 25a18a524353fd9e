"""The announce step: a last turn in the child's own session, posted to the chat that asked, then
cleaning up."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from retinue import Limits, Origin, Refused
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.testing import call
from tests.api.scripted_agents import on_virtual_time
from tests.families.sessions_world import CHAT, Chat, World, event, news, pause, spawn

THREE = Limits(delivery_tries=3)
DIG = "after 5 say found it"


async def kept(world: World, run: str) -> int:
    return len(await world.rows(run))


@on_virtual_time
async def test_the_announce_step_is_a_turn_of_the_child_in_its_own_session() -> None:
    world = World(spawn("work"), does={"work": [call("read", path="a"), "it says a"]})
    await world.go()
    *turns, last = world.of("work")
    assert [t.purpose for t in turns] == ["turn", "turn"]
    assert (last.purpose, last.run, last.tools) == ("announce", turns[0].run, ())
    *before, text, question = last.messages
    assert [m.text for m in before] == [m.text for m in turns[1].messages]
    assert isinstance(text, AssistantMessage) and text.text == "it says a"
    assert isinstance(question, UserMessage) and "Reply with exactly ANNOUNCE_SKIP" in question.text
    assert len(world.of_lead) == 2, "the session that asked takes no turn for it"


@on_virtual_time
async def test_what_is_posted_is_the_announce_reply_and_only_that() -> None:
    world = World(spawn("say the result"), announces={"say the result": "I have it: the result"})
    await world.go()
    assert world.chat.texts == ["I have it: the result"]
    (delivery,) = world.chat.sent
    assert delivery.origin == CHAT


@pytest.mark.parametrize("reply", ["ANNOUNCE_SKIP", " ANNOUNCE_SKIP\n"])
@on_virtual_time
async def test_a_child_that_replies_announce_skip_posts_nothing(reply: str) -> None:
    world = World([spawn(DIG), spawn("say more")], announces={DIG: reply})
    await world.go()
    assert world.chat.texts == ["I say more"]
    assert world.chat.tries == 1


@pytest.mark.parametrize(
    "reply", ["ANNOUNCE_SKIP.", "announce_skip", "I say ANNOUNCE_SKIP", "NO_REPLY"]
)
@on_virtual_time
async def test_any_other_reply_is_posted(reply: str) -> None:
    world = World(spawn(DIG), announces={DIG: reply})
    await world.go()
    assert world.chat.texts == [reply]


@on_virtual_time
async def test_the_skip_token_counts_in_the_announce_step_only() -> None:
    world = World(spawn("say ANNOUNCE_SKIP"), announces={"say ANNOUNCE_SKIP": "after all"})
    await world.go()
    assert world.chat.texts == ["after all"]


@on_virtual_time
async def test_a_child_that_fails_is_announced_by_the_runtime() -> None:
    """Before the announce step or in it: the chat hears that it failed, and what there was."""
    does = {"a": RuntimeError("broken"), "b": "half"}
    world = World(
        [spawn("a", label="dig"), spawn("b", label="delve")],
        does=does,
        announces={"b": RuntimeError("off")},
    )
    await world.go()
    assert world.chat.texts == [
        "dig failed (server_error): RuntimeError: broken",
        "delve failed (server_error): RuntimeError: off\nText so far: half",
    ]


@on_virtual_time
async def test_a_child_that_is_out_of_time_is_announced_as_such() -> None:
    world = World(spawn("after 100 say x", label="dig", runTimeoutSeconds=7))
    await world.go()
    assert world.chat.texts == ["dig timed out (deadline): the deadline passed"]
    assert world.chat.at == [7]


@on_virtual_time
async def test_the_children_of_a_cancelled_run_end_without_a_word() -> None:
    world = World(
        [spawn("after 100 say a", label="dig"), spawn("after 100 say b", label="delve")],
        pause(50, "x"),
    )
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.", origin=CHAT)
        await asyncio.sleep(10)
        await retinue.cancel(run)
        await asyncio.sleep(1_000)
    assert world.chat.texts == []
    assert world.of("after 100 say b") == [], "what was queued never starts"


@on_virtual_time
async def test_a_text_too_long_for_the_chat_is_cut_between_characters_and_says_so() -> None:
    world = World(spawn(DIG), announces={DIG: "é😀" * 20_000})
    await world.go()
    (text,) = world.chat.texts
    assert text.startswith("é😀" * 1_000)
    assert re.search(
        r"\n\[truncated: \d+ of 40000 characters hidden; full text in artifact [0-9a-f]{64}\]$",
        text,
    )


@on_virtual_time
async def test_where_an_announcement_goes_is_fixed_when_the_run_starts() -> None:
    world, other = World(spawn(DIG)), Chat()
    async with world.open(channels={"chat": world.chat, "other": other}) as retinue:
        for channel in ("chat", "other", "chat"):
            await retinue.run(
                world.lead, "Go.", origin=Origin(channel=channel, user=f"of {channel}", thread="7")
            )
        await asyncio.sleep(100)
    assert [d.origin for d in other.sent] == [Origin(channel="other", user="of other", thread="7")]
    assert [d.origin.channel for d in world.chat.sent] == ["chat", "chat"]


@on_virtual_time
async def test_without_a_chat_the_session_that_asked_is_told_and_stays_for_it() -> None:
    world = World(spawn(DIG, label="dig"), announces={DIG: "I found it"})
    outcome = await world.go(origin=Origin())
    (text,) = world.events
    assert (text["status"], text["taskLabel"], text["result"]) == ("ok", "dig", "I found it")
    assert world.ended_at == 5
    assert await kept(world, outcome.id) == 0, "it was told, so nothing has to be kept"


@on_virtual_time
async def test_a_session_that_was_spawned_itself_is_told_instead_of_the_chat() -> None:
    """And it is not done before its children are, so what it announces is the whole."""
    does: dict[str, Any] = {
        "lead them": [[spawn("say a"), spawn("after 9 say b")], "both are out", "both are back"]
    }
    world = World(spawn("lead them"), does=does, max_spawn_depth=2)
    await world.go()
    assert world.chat.texts == ["I lead them"]
    assert world.chat.at == [9]
    last = world.of("lead them")[-1]
    assert [event(text)["result"] for text in news(last.messages)] == ["I say a", "I after 9 say b"]
    assert last.messages[-2].text == "both are back"


# cleaning up


@on_virtual_time
async def test_a_session_is_deleted_after_it_was_announced_unless_it_is_to_be_kept() -> None:
    world = World(
        [spawn("say a"), spawn("say b", cleanup="keep"), spawn("say c", cleanup="delete")]
    )
    outcome = await world.go()
    ((spec, run),) = await world.rows(outcome.id)
    assert spec.id == world.results[1]["runId"]
    assert run.state.ending.data == "b"  # type: ignore[union-attr]
    assert world.chat.texts == ["I say a", "I say b", "I say c"]


@pytest.mark.parametrize("lives", [True, False])
@on_virtual_time
async def test_a_session_is_there_until_its_announcement_has_arrived(lives: bool) -> None:
    world = World(spawn("say a"), pause(500 if lives else 0, "done"))
    world.chat.refuses = True
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.", origin=CHAT)
        await asyncio.sleep(1)
        assert await kept(world, run) == 1
        assert world.chat.tries > 0
        world.chat.refuses = False
        await asyncio.sleep(400)
        assert world.chat.texts == ["I say a"]
        assert await kept(world, run) == 0


@on_virtual_time
async def test_a_skipped_session_is_deleted_too() -> None:
    world = World(spawn("say a"), pause(10, "done"), announces={"say a": "ANNOUNCE_SKIP"})
    outcome = await world.go()
    assert await kept(world, outcome.id) == 0


@on_virtual_time
async def test_a_chat_that_always_fails_leaves_a_dead_announcement_and_other_chats_alone() -> None:
    world, other = World(spawn("say a")), Chat()
    world.chat.refuses = True
    async with world.open(limits=THREE, channels={"chat": world.chat, "other": other}) as retinue:
        runs = [
            (await retinue.run(world.lead, "Go.", origin=Origin(channel=channel))).id
            for channel in ("chat", "other")
        ]
        await asyncio.sleep(1)
        assert other.texts == ["I say a"], "at once, whatever becomes of the others"
        await asyncio.sleep(24 * 3_600)
        (dead,) = [d async for d in retinue.deliveries(state=["dead"])]
        assert (dead.bounces, world.chat.tries, dead.error) == (
            3,
            3,
            "RuntimeError: the chat is closed",
        )
        assert dead.text == "I say a"
        assert [await kept(world, run) for run in runs] == [1, 0], (
            "what nobody has heard is not deleted"
        )
        world.chat.refuses = False
        await retinue.redeliver(dead.key)
        await asyncio.sleep(100)
        assert world.chat.texts == ["I say a"]
        assert [await kept(world, run) for run in runs] == [0, 0]
        with pytest.raises(Refused):
            await retinue.redeliver(dead.key)


@on_virtual_time
async def test_a_dead_announcement_that_is_dropped_takes_its_session_along() -> None:
    world = World(spawn("say a"))
    world.chat.refuses = True
    async with world.open(limits=THREE) as retinue:
        run = (await retinue.run(world.lead, "Go.", origin=CHAT)).id
        await asyncio.sleep(3_600)
        (dead,) = [d async for d in retinue.deliveries(state=["dead"])]
        await retinue.drop_delivery(dead.key)
        assert await kept(world, run) == 0


@on_virtual_time
async def test_announcements_of_several_sessions_each_arrive_once() -> None:
    world = World([spawn(f"after {n} say {n}") for n in range(1, 21)], max_concurrent=20)
    outcome = await world.go()
    assert world.chat.texts == [f"I after {n} say {n}" for n in range(1, 21)]
    assert world.chat.repeated == 0
    assert await kept(world, outcome.id) == 0
