"""Corners of the two profiles of `sessions`, and what the later one has beyond the document: the
tool `subagents`, silent results, the archive."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Limits, Origin, SpawnLimits
from retinue.config import read_config
from retinue.core.messages import ToolMessage
from retinue.testing import Scripted, call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.sessions_world import (
    CHAT,
    World,
    event,
    keys,
    news,
    pause,
    refusal,
    results,
    send,
    spawn,
)

BOTH = pytest.mark.parametrize("profile", ["clawdbot", "openclaw"])


def today(*lines: Any, **settings: Any) -> World:
    return World(*lines, profile="openclaw", **settings)


def control(action: str, **more: Any) -> Any:
    return call("subagents", action=action, **more)


def ids(request: Any) -> list[str]:
    return [
        r["runId"]
        for r in results(request.messages)
        if isinstance(r, dict) and "childSessionKey" in r
    ]


# 13: the document's corners


@BOTH
@on_virtual_time
async def test_a_sub_agent_that_spawns_beyond_the_depth_is_forbidden_to_with_the_numbers(
    profile: str,
) -> None:
    below = [spawn("say x"), call("sessions_list")]
    for depth, lines in (
        (1, {"dig": [below, "done"]}),
        (2, {"lead": [spawn("dig"), "led"], "dig": [below, "done"]}),
    ):
        first = "dig" if depth == 1 else "lead"
        world = World(spawn(first), does=lines, profile=profile, max_spawn_depth=depth)
        await world.go()
        messages = [m for m in world.of("dig")[1].messages if isinstance(m, ToolMessage)]
        assert [m.error for m in messages] == [True] * 2
        for message, name in zip(messages, ("sessions_spawn", "sessions_list"), strict=True):
            answer = json.loads(message.text)
            assert answer["status"] == "forbidden"
            assert answer["error"].startswith(f"{name} is not allowed ")
            assert f"(current depth: {depth}, max: {depth})" in answer["error"]
        assert world.of("say x") == []


@BOTH
@on_virtual_time
async def test_an_orchestrator_that_is_woken_reads_results_in_the_order_of_creation(
    profile: str,
) -> None:
    below = [spawn(f"after {n} say {n}") for n in (30, 10, 20)]
    does = {"lead them": [below, "out", "all are back"]}
    world = World(
        spawn("lead them"), does=does, profile=profile, max_spawn_depth=2, max_concurrent=8
    )
    await world.go()
    turns = [r for r in world.of("lead them") if r.purpose == "turn"]
    assert len(turns) == 3, "it is woken once"
    assert [event(t)["result"].removeprefix("I after ")[-2:] for t in news(turns[2].messages)] == [
        "30",
        "10",
        "20",
    ]


@BOTH
@on_virtual_time
async def test_a_stop_is_silent_for_those_it_kills_also_after_the_end_of_whoever_asked(
    profile: str,
) -> None:
    for stops in ("root", "child"):
        world = World(
            [spawn("after 100 say a"), spawn("after 100 say b")], profile=profile, max_concurrent=8
        )
        async with world.open() as retinue:
            run = await retinue.spawn(world.lead, "Go.", origin=CHAT)
            await asyncio.sleep(10)
            kin = await world.rows(run)
            for id in [run] if stops == "root" else [spec.id for spec, _ in kin]:
                await retinue.cancel(id)
            await asyncio.sleep(1_000)
            assert [r.state.ending.state for _, r in await world.rows(run)] in (
                [],
                ["cancelled"] * 2,
            )
        assert world.chat.texts == []


@BOTH
@on_virtual_time
async def test_a_session_with_a_thread_tells_its_results_there(profile: str) -> None:
    world = World([spawn("say a", thread=True, cleanup="keep"), spawn("say b")], profile=profile)
    await world.go()
    key = keys(world.of_lead[-1].messages)[0]
    assert world.results[0]["thread"] == key
    own = [d for d in world.chat.sent if d.origin.thread == key]
    assert [(d.origin.channel, d.origin.user) for d in own] == [("chat", "ada")]
    assert [d.text for d in own] == ["I say a" if profile == "clawdbot" else "a"]
    assert all(d.origin == CHAT for d in world.chat.sent if d not in own)


@BOTH
@on_virtual_time
async def test_a_session_goes_on_in_its_thread(profile: str) -> None:
    first = spawn("say a", thread=True, mode="session")
    world = World(first, pause(5, send(0, "say more")), profile=profile)
    await world.go()
    key = keys(world.of_lead[-1].messages)[0]
    assert len([d for d in world.chat.sent if d.origin.thread == key]) == 2


@BOTH
@on_virtual_time
async def test_a_thread_without_a_chat_is_an_error(profile: str) -> None:
    text = await refusal(spawn("say a", thread=True), profile=profile, options={"origin": Origin()})
    assert text["status"] == "error"
    assert "thread: true needs a chat" in text["error"]


@BOTH
@on_virtual_time
async def test_a_directory_that_is_refused_is_told_in_json(profile: str, tmp_path: Path) -> None:
    absent = "is not an existing directory"
    for cwd, why in (
        ("/etc", "is outside your working directory"),
        ('no"where', absent),
        ("no\0where", absent),
    ):
        text = await refusal(
            spawn("say a", cwd=cwd), profile=profile, options={"cwd": str(tmp_path)}
        )
        assert text["status"] == "error"
        assert why in text["error"]


@on_virtual_time
async def test_whatever_the_machine_refuses_is_told_in_json() -> None:
    """A limit for which the family has no words of its own."""
    world = World([spawn("say a"), spawn("say b")])
    await world.go(rules=Limits(spawn_limits=SpawnLimits(depth=8, total=1)))
    assert [r["status"] for r in world.results] == ["accepted", "error"]
    assert ("Cannot start 1 more children: 1 were started and the limit is 1.") in world.results[1][
        "error"
    ]


@BOTH
@on_virtual_time
async def test_whoever_yields_is_told_where_results_go(profile: str) -> None:
    yields = next(
        t.schema.description for t in family(profile).tools() if t.schema.name == "sessions_yield"
    )
    assert ("are your next message" in yields) is (profile == "openclaw")
    assert ("announced in the chat" in yields) is (profile == "clawdbot")
    world = World(spawn("after 10 say a"), call("sessions_yield"), profile=profile)
    await world.go()
    assert world.ended_at == 10
    assert len(world.chat.texts) == (profile == "clawdbot")
    assert len(world.events) == (profile == "openclaw")


@on_virtual_time
async def test_a_failure_before_any_call_counts_no_calls() -> None:
    def broken(request: Any) -> Any:
        raise RuntimeError("broken")

    world = today(spawn("dig"), call("sessions_yield"), does={"dig": broken})
    await world.go()
    assert world.events[0]["result"] == "(no output)"


# 14: subagents


@on_virtual_time
async def test_only_the_later_profile_has_the_tool() -> None:
    assert "subagents" not in family("clawdbot").tool_names
    assert "subagents" in family("openclaw").tool_names
    world = today(
        spawn("lead them"), does={"lead them": [spawn("say leaf"), "led"]}, max_spawn_depth=2
    )
    await world.go()
    assert "subagents" in world.offered("lead them")
    assert "subagents" not in world.offered("say leaf")


@on_virtual_time
async def test_the_list_shows_who_is_active_and_who_was_lately() -> None:
    lines = [
        [spawn("say a", label="A"), spawn("after 500 say b", label="B")],
        pause(5, control("list")),
    ]
    world = today(
        *lines, pause(2_000, control("list")), pause(2_500, control("list", recentMinutes=600))
    )
    await world.go()
    first, second, third = world.results[2:]
    assert [(r["index"], r["label"], r["task"], r["status"]) for r in first["active"]] == [
        (1, "B", "after 500 say b", "running")
    ]
    assert [(r["index"], r["label"], r["status"]) for r in first["recent"]] == [(2, "A", "ok")]
    assert first["active"][0]["runtimeMs"] == 5_000
    assert [r["label"] for r in second["recent"]] == ["B"], "half an hour unless told otherwise"
    assert third["recent"] == [], "after an hour they are archived"


@on_virtual_time
async def test_a_look_takes_nothing_away_and_a_wait_returns_with_the_last_end() -> None:
    lines: list[Any] = [
        [spawn("after 10 say a"), spawn("after 20 say b")],
        lambda q: control("wait", runIds=ids(q), timeoutSeconds=0),
        lambda q: control("wait", runIds=ids(q)),
    ]
    world = today(*lines)
    await world.go()
    look, wait = world.results[2:]
    assert (look["reason"], [r["status"] for r in look["runs"]]) == ("timeout", ["running"] * 2)
    assert (wait["reason"], [r["reply"] for r in wait["runs"]]) == ("completed", ["a", "b"])
    assert [e["result"] for e in world.events] == ["a", "b"], "they are brought all the same"
    assert world.ended_at == 20


@on_virtual_time
async def test_a_wait_ends_with_its_time_and_names_who_is_not_there() -> None:
    lines: list[Any] = [
        spawn("after 100 say a"),
        control("wait", timeoutSeconds=7),
        lambda q: control("wait", runIds=[*ids(q), "00000000-0000-7000-8000-000000000000"]),
    ]
    world = today(*lines)
    await world.go()
    late, unknown = world.results[1:]
    assert (late["reason"], late["runs"][0]["status"]) == ("timeout", "running")
    assert (unknown["reason"], unknown["runs"][1]["status"]) == ("unavailable", "unknown")
    assert len(world.of_lead) > 3


@on_virtual_time
async def test_at_most_thirty_two_runs_are_waited_for() -> None:
    for n, is_error in ((32, False), (33, True)):
        world = today(control("wait", runIds=[f"r{i}" for i in range(n)], timeoutSeconds=0))
        await world.go()
        assert (world.results[0]["status"] == "error") is is_error
    assert "at most 32" in world.results[0]["error"]
    assert "at `$.timeoutSeconds`" in await refusal(
        control("wait", timeoutSeconds=61), profile="openclaw"
    )


@on_virtual_time
async def test_steering_breaks_a_turn_off_and_not_more_often_than_every_two_seconds() -> None:
    lines: list[Any] = [
        spawn("dig", label="digger"),
        pause(5, control("steer", target="digger", message="say left")),
        control("steer", target="1", message="say right"),
        pause(2, lambda q: control("steer", target=ids(q)[0][:20], message="say up")),
    ]
    world = today(*lines, does={"dig": pause(100, "dug")})
    await world.go()
    first, second, third = world.results[1:]
    assert first["status"] == third["status"] == "accepted"
    assert second["status"] == "rate_limited"
    texts = [m.text for m in world.requests[-1].messages if "say " in m.text]
    assert not any("right" in t for t in texts)


@on_virtual_time
async def test_both_ways_to_steer_share_one_limit() -> None:
    lines: list[Any] = [
        spawn("dig", label="digger"),
        pause(5, send(0, "say left", steer=True)),
        control("steer", target="digger", message="say right"),
        send(0, "say right", steer=True),
        send(0, "by the way"),
        pause(2, control("steer", target="digger", message="say up")),
        send(0, "say right", steer=True),
    ]
    world = today(*lines, does={"dig": pause(100, "dug")})
    await world.go()
    slow, fine = "rate_limited", "accepted"
    assert [r["status"] for r in world.results[1:]] == [fine, slow, slow, fine, fine, slow]
    assert not any("right" in m.text for r in world.requests if r.path != "0" for m in r.messages)


@on_virtual_time
async def test_all_that_are_to_be_killed_may_be_none() -> None:
    world = today(
        control("kill", target="all"),
        spawn("say a", label="a"),
        pause(5, control("kill", target="a")),
    )
    await world.go()
    assert [r.get("note") for r in world.results[::2]] == [
        "None of them is active.",
        "It has ended.",
    ]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"target": "x"}, "message must have 1 to 4000 characters"),
        ({"target": "x", "message": "y" * 4_001}, "message must have 1 to 4000 characters"),
        ({"message": "y"}, "target is missing"),
        ({"target": "9", "message": "y"}, "no sub-agent 9; the list has 2"),
        ({"target": "twin", "message": "y"}, "'twin' matches 2 of them; use the run id"),
        ({"target": "nobody", "message": "y"}, "'nobody' matches none of your sub-agents"),
    ],
)
@on_virtual_time
async def test_a_target_that_is_not_exactly_one_is_refused(more: dict[str, Any], why: str) -> None:
    twins = [spawn("after 9 say a", label="twin"), spawn("after 9 say b", label="twin")]
    assert why in await refusal(twins, control("steer", **more), profile="openclaw")


@pytest.mark.parametrize("action", ["kill", "cancel"])
@on_virtual_time
async def test_a_kill_reaches_everybody_below_and_nobody_is_told(action: str) -> None:
    below = {"lead them": [[spawn("after 900 say a"), spawn("after 900 say b")], pause(900, "led")]}
    world = today(
        spawn("lead them", label="l"),
        pause(5, control(action, target="l")),
        does=below,
        max_spawn_depth=2,
    )
    outcome = await world.go()
    killed = world.results[1]
    assert (killed["status"], killed["killed"], killed["cascaded"], killed["labels"]) == (
        "ok",
        3,
        2,
        ["l"],
    )
    assert (world.events, world.chat.texts) == ([], [])
    (child,) = outcome.children
    assert [
        r.state.ending.state
        for _, r in [*await world.rows(outcome.id), *await world.rows(child.id)]
    ] == ["cancelled"] * 3


@on_virtual_time
async def test_all_can_be_killed_and_nobody_twice() -> None:
    lines = [[spawn("after 900 say a"), spawn("after 900 say b")], control("kill", target="all")]
    world = today(*lines, pause(1, control("kill", target="1")))
    await world.go()
    assert [r.get("killed") for r in world.results[2:]] == [2, 0]


@pytest.mark.parametrize("word", ["NO_REPLY", " ANNOUNCE_SKIP\n"])
@on_virtual_time
async def test_a_result_that_says_so_is_told_to_nobody(word: str) -> None:
    world = today([spawn("dig"), spawn("say loud")], call("sessions_yield"), does={"dig": word})
    await world.go()
    assert [e["result"] for e in world.events] == ["loud"]
    assert "Reply with exactly NO_REPLY" in world.of("dig")[0].messages[0].text


@on_virtual_time
async def test_a_session_is_archived_an_hour_after_its_end_and_one_with_a_thread_is_not() -> None:
    lines: list[Any] = [
        [spawn("say a"), spawn("say b", thread=True, mode="session")],
        pause(3_590, call("sessions_list")),
        pause(20, call("sessions_list")),
        send(0, "say more"),
        lambda q: call("sessions_history", sessionKey=keys(q.messages)[0]),
        send(1, "say more"),
    ]
    world = today(*lines)
    outcome = await world.go()
    before, after = world.results[2:4]
    sent_text, read, rest = world.results[4:]
    assert [before["count"], after["count"]] == [3, 2]
    assert "is archived: it ended more than 60 minutes ago" in sent_text
    assert "is archived" in read
    assert rest["status"] == "accepted"
    assert len(await world.rows(outcome.id)) == 3, "what was said stays on record"


@pytest.mark.parametrize(
    "name", ["thinking", "sandbox", "attachments", "lightContext", "channel", "replyTo"]
)
@on_virtual_time
async def test_what_is_not_taken_is_refused_by_name_and_stands_in_the_guide(name: str) -> None:
    text = await refusal(spawn("say a", **{name: "x"}), profile="openclaw")
    assert text.startswith(f"sessions_spawn does not accept '{name}': ")
    assert f"`{name}`" in family("openclaw").guide


# the document's configuration

EXAMPLE = """
{
  agent: {
    subagents: {
      maxConcurrent: 1,
      tools: {
        // deny wins
        deny: ["gateway", "cron"],
        // if allow is set, it becomes allow-only (deny still wins)
        // allow: ["read", "bash", "process"]
      }
    }
  }
}
"""


@on_virtual_time
async def test_the_documents_configuration_is_loaded_as_it_stands_and_enforced(
    tmp_path: Path,
) -> None:
    for allow in (False, True):
        text = EXAMPLE.replace('// allow: ["read"', 'allow: ["read"') if allow else EXAMPLE
        (tmp_path / "retinue.json5").write_text(text)
        (result,) = read_config(tmp_path / "retinue.json5").families
        world = World([spawn("after 5 say a"), spawn("after 5 say b")], call("sessions_yield"))
        lead = Agent(
            "lead", model=Scripted(world.say, name="m"), tools=world.lead.tools, families=[result]
        )
        world.lead = lead
        await world.go()
        assert world.most == 1
        assert world.offered("after 5 say a") == (
            {"read", "bash"} if allow else {"read", "bash", "artifact"}
        )
