"""`sessions_spawn` as its document has it: a session of its own, one lane, a reply if one waits for
it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.spec import Retry
from retinue.errors import ModelUnavailable
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.sessions_world import (
    CHAT,
    SESSION_TOOLS,
    UUID,
    World,
    pause,
    read,
    refusal,
    results,
    spawn,
    task_of,
)

NOTE = (
    "You will be notified when it ends; do not poll. Continue with other work, or call "
    "sessions_yield to wait."
)


@on_virtual_time
async def test_a_session_has_a_key_that_names_its_run() -> None:
    world = World(spawn("say hello"))
    outcome = await world.go()
    (reply,) = world.results
    assert list(reply) == ["status", "childSessionKey", "runId", "mode", "note"]
    assert re.fullmatch(f"subagent:{UUID}", reply["childSessionKey"])
    assert reply["childSessionKey"] == f"subagent:{reply['runId']}"
    assert (reply["status"], reply["mode"], reply["note"]) == ("accepted", "run", NOTE)
    assert [r.run for r in world.of("say hello")] == [reply["runId"]] * 2
    assert (outcome.state, outcome.text) == ("completed", "done")


@on_virtual_time
async def test_the_spawner_goes_on_at_once() -> None:
    """By default, and with 0, nobody waits: the lead has ended long before its sub-agents."""
    world = World([spawn("after 100 say a"), spawn("after 100 say b", timeoutSeconds=0)])
    async with world.open() as retinue:
        await retinue.run(world.lead, "Go.", origin=CHAT)
        assert asyncio.get_running_loop().time() == 0
        await asyncio.sleep(1_000)
    assert world.chat.texts == ["I after 100 say a", "I after 100 say b"]


@on_virtual_time
async def test_a_child_sees_its_task_and_nothing_of_the_conversation() -> None:
    world = World(call("read", path="secret"), spawn("say {braces} and [Task]"))
    await world.go()
    (first, *_) = [r for r in world.requests if r.path != "0"]
    (message,) = first.messages
    assert isinstance(message, UserMessage)
    assert message.text.startswith("[Subagent context] You are a subagent at depth 1/1,")
    assert "You cannot start subagents." in message.text
    assert message.text.endswith("\n\n[Task] say {braces} and [Task]")
    assert first.instructions == "Lead well.", (
        "the guide for spawners is not for those who cannot spawn"
    )


@on_virtual_time
async def test_a_child_has_all_tools_but_those_for_sessions() -> None:
    world = World(spawn("say x"))
    await world.go()
    assert {t.name for t in world.of_lead[0].tools} >= {"read", "bash", "cron", *SESSION_TOOLS}
    assert world.offered("say x") == {"read", "bash", "cron", "artifact"}


@on_virtual_time
async def test_a_child_that_calls_a_session_tool_is_refused_and_goes_on() -> None:
    world = World(spawn("nest"), does={"nest": [spawn("deeper"), "I could not"]})
    await world.go()
    (result,) = [
        m for m in world.of("nest")[1].messages if getattr(m, "name", "") == "sessions_spawn"
    ]
    assert result.error  # type: ignore[union-attr]
    assert world.of("deeper") == []
    assert world.chat.texts == ["I nest"]


@on_virtual_time
async def test_only_the_announcement_of_a_child_reaches_the_chat() -> None:
    world = World(
        spawn("work"),
        does={"work": [call("read", path="a"), call("bash", command="b"), "the result"]},
    )
    await world.go()
    assert world.chat.texts == ["I work"]
    assert world.chat.sent[0].origin == CHAT


# label, model


@on_virtual_time
async def test_a_label_names_the_session_for_people() -> None:
    spawns = [
        spawn("say a", label=" dig "),
        spawn("say b", taskName="delve"),
        spawn("say c", label="x", taskName="y"),
    ]
    world = World([*spawns, spawn("say d"), spawn("say e", label="", taskName=None)])
    outcome = await world.go()
    assert [c.label for c in outcome.children] == ["dig", "delve", "x", "subagent", "subagent"]


@on_virtual_time
async def test_another_model_is_used_and_reported() -> None:
    world = World(
        [spawn("say a", model="other"), spawn("say b"), spawn("say c", model=" ")], models=["other"]
    )
    await world.go()
    assert [r.get("modelApplied") for r in world.results] == [True, None, None]
    used = {t: {r.model for r in world.of(f"say {t}")} for t in "abc"}
    assert used == {"a": {"other"}, "b": {"model of lead"}, "c": {"model of lead"}}


@pytest.mark.parametrize("model", ["nonsense", "MODEL OF LEAD", "é" * 3_000])
@on_virtual_time
async def test_an_unknown_model_is_an_error_and_starts_nobody(model: str) -> None:
    world = World(spawn("say a", model=model), models=["other"])
    await world.go()
    (reply,) = world.results
    assert list(reply) == ["status", "error"]
    assert reply["status"] == "error"
    assert reply["error"].startswith(f"unknown model '{model[:100]}")
    assert len(model) > 1_000 or reply["error"].endswith("known: model of lead, other")
    assert len(world.requests) == 2


@on_virtual_time
async def test_a_model_of_the_settings_stands_behind_the_parameter() -> None:
    world = World(
        [spawn("say a"), spawn("say b", model="third")], models=["other", "third"], model="other"
    )
    await world.go()
    assert {r.model for r in world.of("say a")} == {"other"}
    assert {r.model for r in world.of("say b")} == {"third"}
    assert "modelApplied" not in world.results[0]
    unknown = await refusal(spawn("say a"), model="gone")
    assert unknown == {"status": "error", "error": "unknown model 'gone'; known: model of lead"}


@on_virtual_time
async def test_a_child_runs_on_the_model_of_its_spawner() -> None:
    world = World(spawn("say a"), spawn("say b", context="fork"), models=["other"])
    await world.go(model="other")
    assert {r.model for r in world.requests} == {"other"}


# timeoutSeconds


@on_virtual_time
async def test_with_a_timeout_the_call_waits_for_the_childs_reply_which_is_announced_too() -> None:
    world = World(spawn("after 5 say found it", timeoutSeconds=20))
    await world.go(seconds=0)
    assert asyncio.get_running_loop().time() == 5
    (reply,) = world.results
    assert list(reply) == ["status", "childSessionKey", "runId", "mode", "reply"]
    assert (reply["status"], reply["reply"]) == ("ok", "found it")
    assert world.chat.texts == ["I after 5 say found it"]


@on_virtual_time
async def test_a_wait_that_is_too_short_says_so_and_the_child_goes_on() -> None:
    world = World(spawn("after 50 say found it", timeoutSeconds=20))
    await world.go()
    (reply,) = world.results
    assert list(reply) == ["status", "childSessionKey", "runId", "mode", "note"]
    assert (reply["status"], reply["note"]) == ("timeout", f"It is still running. {NOTE}")
    assert world.ended_at == 20
    assert world.chat.texts == ["I after 50 say found it"]
    assert world.chat.at == [50]


@on_virtual_time
async def test_a_wait_that_ends_while_the_child_announces_has_its_reply() -> None:
    world = World(
        spawn("say found it", timeoutSeconds=20), announces={"say found it": pause(60, "told")}
    )
    await world.go()
    assert (world.results[0]["status"], world.results[0]["reply"]) == ("ok", "found it")
    assert world.ended_at == 20
    assert world.chat.texts == ["told"]


@on_virtual_time
async def test_the_reply_to_a_wait_is_there_also_when_nothing_is_announced() -> None:
    world = World(
        spawn("say found it", timeoutSeconds=20), announces={"say found it": "ANNOUNCE_SKIP"}
    )
    outcome = await world.go()
    assert world.results[0]["reply"] == "found it"
    assert world.chat.texts == []
    assert await world.rows(outcome.id) == []


@on_virtual_time
async def test_a_wait_for_a_child_that_fails_or_stops_early_tells_how() -> None:
    def cut(request: ModelRequest) -> Any:
        return [call("read", path="a")] if request.turn < 3 else "never"

    does = {"fail": [call("read", path="a"), RuntimeError("broken")], "turns": cut}
    lines = [spawn("fail", timeoutSeconds=9), spawn("turns", timeoutSeconds=9, agentId="short")]
    short = Agent("short", model="model of lead", tools=[read], max_turns=2)
    world = World(
        lines, does=does, allow_agents=["short"], fields={"staff": [short]}, max_concurrent=2
    )
    await world.go()
    failed, stopped = world.results
    assert list(failed) == list(stopped) == ["status", "childSessionKey", "runId", "mode", "error"]
    assert (failed["status"], failed["error"]) == ("error", "RuntimeError: broken")
    assert (stopped["status"], stopped["error"]) == ("error", "turn_limit")
    assert sorted(world.chat.texts) == [
        "subagent failed (server_error): RuntimeError: broken",
        "subagent incomplete (turn_limit)",
    ]


@on_virtual_time
async def test_what_a_child_had_said_when_it_was_stopped_is_shown_as_partial() -> None:
    world = World(
        spawn("say half", timeoutSeconds=9), announces={"say half": call("read", path="a")}
    )
    await world.go()
    reply = world.results[0]
    assert (reply["status"], reply["error"], reply["partial"]) == ("error", "no_report", "half")
    assert "reply" not in reply
    assert world.chat.texts == ["subagent incomplete (no_report)\nText so far: half"]


@on_virtual_time
async def test_a_wait_for_a_child_that_fails_does_not_show_partial_text() -> None:
    message = AssistantMessage(text="half of it", calls=(call("read", path="a"),))
    world = World(spawn("work", timeoutSeconds=9), does={"work": [message, RuntimeError("broken")]})
    await world.go()
    assert list(world.results[0]) == ["status", "childSessionKey", "runId", "mode", "error"]


@on_virtual_time
async def test_a_child_tries_its_model_as_often_as_its_spawner_would() -> None:
    options = {"retry": Retry(attempts=2, then="fail")}
    world = World(
        spawn("work"), does={"work": ModelUnavailable("down")}, fields={"options": options}
    )
    await world.go()
    assert len(world.of("work")) == 2
    assert world.chat.texts == ["subagent failed (server_error): Failed after 2 attempts: down"]


@on_virtual_time
async def test_several_waits_of_one_turn_go_on_side_by_side() -> None:
    lines = [spawn(f"after {n} say {n}", timeoutSeconds=50) for n in (30, 10, 20)]
    world = World(lines, max_concurrent=3)
    await world.go()
    assert [r["reply"] for r in world.results] == ["30", "10", "20"]
    assert world.ended_at == 30


# the lane


@on_virtual_time
async def test_one_session_runs_at_a_time_and_the_others_queue() -> None:
    world = World([spawn(f"after 10 say {n}") for n in range(4)])
    await world.go()
    assert world.most == 1
    assert world.chat.at == [10, 20, 30, 40]
    assert [r["status"] for r in world.results] == ["accepted"] * 4
    assert world.chat.texts == [f"I after 10 say {n}" for n in range(4)], (
        "in the order of the calls"
    )


@on_virtual_time
async def test_as_many_sessions_run_as_max_concurrent_says() -> None:
    world = World([spawn(f"after 10 say {n}") for n in range(5)], max_concurrent=2)
    await world.go()
    assert world.most == 2
    assert world.chat.at == [10, 10, 20, 20, 30]


@on_virtual_time
async def test_the_lane_is_one_for_all_spawners() -> None:
    world, other = World(spawn("after 10 say a")), World(spawn("after 10 say b"))
    second = Agent(
        "second", model=Scripted(other.say, name="of second"), families=[family("clawdbot")]
    )
    async with world.open() as retinue:
        for agent in (world.lead, second):
            await retinue.run(agent, "Go.", origin=CHAT)
        await asyncio.sleep(100)
    assert world.chat.at == [10, 20]


@on_virtual_time
async def test_a_child_is_in_the_lane_named_subagent() -> None:
    world = World(spawn("say a", cleanup="keep"), max_concurrent=3)
    outcome = await world.go()
    ((spec, _),) = await world.rows(outcome.id)
    assert [(lane.name, lane.size, lane.on_full) for lane in spec.request.lanes] == [
        ("subagent", 3, "queue")
    ]


@on_virtual_time
async def test_a_waiting_parent_holds_no_slot() -> None:
    """One slot, three levels, each waiting for the next."""

    def passed_on(request: ModelRequest) -> str:
        return f"{task_of(request)}, {results(request.messages)[0]['reply']}"

    does = {
        "one": [spawn("two", timeoutSeconds=100), passed_on],
        "two": [spawn("after 10 say three", timeoutSeconds=100), passed_on],
    }
    world = World(spawn("one", timeoutSeconds=100), does=does, max_spawn_depth=3)
    await world.go()
    assert (world.results[0]["status"], world.results[0]["reply"]) == ("ok", "one, two, three")
    assert (world.ended_at, world.most) == (10, 1)


@on_virtual_time
async def test_a_child_works_in_the_directory_it_is_given_or_in_its_spawners(
    tmp_path: Path,
) -> None:
    here = tmp_path
    (here / "there").mkdir()
    world = World([spawn("say a", cwd="there", cleanup="keep"), spawn("say b", cleanup="keep")])
    outcome = await world.go(cwd=str(here))
    assert [s.request.cwd for s, _ in await world.rows(outcome.id)] == [
        str(here / "there"),
        str(here),
    ]


@pytest.mark.parametrize("cwd", ["/", "../..", "/hereafter", "/here/../there"])
@on_virtual_time
async def test_a_child_is_not_sent_outside_of_where_its_spawner_works(cwd: str) -> None:
    world = World([spawn("say a", cwd=cwd, cleanup="keep")])
    outcome = await world.go(cwd="/here")
    assert await world.rows(outcome.id) == []


def test_the_description_and_the_guide_tell_a_model_what_it_needs() -> None:
    for profile, says in (("clawdbot", "does not wait"), ("openclaw", "limit the run")):
        world = World(profile=profile)
        properties = world.properties()
        assert says in properties["timeoutSeconds"]["description"]
        default = "(delete)" if profile == "clawdbot" else "(keep)"
        assert default in properties["cleanup"]["description"]
        guide = family(profile).guide
        assert "poll" in guide and "sessions_yield" in guide and "do short tasks yourself" in guide
    assert [t.schema.name for t in family("sessions").tools()] == [
        "sessions_spawn",
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "sessions_yield",
    ]
