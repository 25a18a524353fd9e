"""The family `agent`: when its tools are there, what they look like, and what each of them
answers."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from retinue import Agent, ConfigError, Retinue
from retinue.core.messages import ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from retinue.tools.families.family_states import AGENT
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.agent_world import (
    ALL,
    FIVE,
    World,
    about,
    fork,
    news,
    pause,
    results,
    spawn,
    wait,
)

# when the tools are there


@on_virtual_time
async def test_an_agent_without_the_family_has_none_of_its_tools() -> None:
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> str:
        requests.append(request)
        return "done"

    async with Retinue(clock=VirtualClock()) as retinue:
        await retinue.run(Agent("plain", model=Scripted(script, name="m")), "Go.")
    assert [t.name for t in requests[0].tools] == []


@on_virtual_time
async def test_the_family_gives_five_tools_and_three_more() -> None:
    world = World("done")
    await world.go()
    assert world.offered == ["look_up", "rest", *ALL, "artifact"]
    assert ALL[:5] == FIVE


@pytest.mark.parametrize(
    ("enabled", "is_asked", "there"),
    [
        (True, None, True),
        (False, None, False),
        (False, True, True),
        (True, False, False),
        (True, True, True),
    ],
)
@on_virtual_time
async def test_a_request_turns_the_family_on_or_off(
    enabled: bool, is_asked: bool | None, there: bool
) -> None:
    world = World("done", enabled=enabled)
    await world.go(**({} if is_asked is None else {"families": {"agent": is_asked}}))
    assert [name in world.offered for name in ALL] == [there] * 8
    assert ("agent_spawn" in world.of_lead[0].instructions) == there, (
        "the guide goes with the tools"
    )


@on_virtual_time
async def test_a_tool_that_was_turned_off_cannot_be_called_all_the_same() -> None:
    world = World(spawn("say x"), enabled=False)
    outcome = await world.go()
    assert "agent_spawn" in world.results[0] and world.results[0].startswith("Refused")
    assert outcome.children == ()


@on_virtual_time
async def test_a_family_that_the_agent_does_not_have_cannot_be_turned_on() -> None:
    world = World("done", fields={"families": []})
    with pytest.raises(ConfigError, match="has no family 'agent'"):
        await world.go(families={"agent": True})


@on_virtual_time
async def test_the_guide_says_when_to_delegate_when_not_and_not_to_poll() -> None:
    world = World("done")
    await world.go()
    guide = world.of_lead[0].instructions
    assert guide.startswith("Lead well.\n\n")
    for words in (
        "`agent_spawn`: independent work",
        "`agent_fork`: work that",
        "not for small steps",
        "do not poll",
    ):
        assert words in guide
    quiet = World("done", guide=False)
    await quiet.go()
    assert quiet.of_lead[0].instructions == "Lead well."


# what they look like


@on_virtual_time
async def test_the_parameters_are_those_of_the_document() -> None:
    world = World("done")
    await world.go()
    shape = {
        t.name: (list(t.parameters["properties"]), t.parameters["required"])
        for t in world.of_lead[0].tools
    }
    assert shape["agent_spawn"] == (
        ["prompt", "provider", "model", "tool_access", "budget", "system_prompt"],
        ["prompt"],
    )
    assert shape["agent_fork"] == (
        ["prompt", "provider", "model", "tool_access", "budget_policy"],
        ["prompt"],
    )
    assert shape["agent_status"] == shape["agent_cancel"] == (["agent_id"], ["agent_id"])
    assert shape["agent_list"] == ([], [])
    assert list(world.properties("agent_spawn")["budget"]["properties"]) == [
        "max_tokens",
        "max_turns",
        "max_tool_calls",
    ]
    assert world.properties("agent_fork")["provider"]["enum"] == ["anthropic", "openai", "gemini"]
    policies = [
        option["properties"]["policy"]["enum"]
        for option in world.properties("agent_spawn")["tool_access"]["anyOf"]
        if option["type"] == "object"
    ]
    assert policies == [["inherit", "allow_list", "deny_list"]]
    assert all(
        t.parameters["additionalProperties"] is False
        for t in world.of_lead[0].tools
        if t.name in ALL
    )
    assert all(len(t.description) > 60 for t in world.of_lead[0].tools if t.name in ALL)


@pytest.mark.parametrize(("comms", "there"), [(False, False), (True, True)])
@on_virtual_time
async def test_host_mode_is_a_parameter_only_with_comms(comms: bool, there: bool) -> None:
    world = World("done", enable_comms=comms)
    await world.go()
    assert ("host_mode" in world.properties("agent_spawn")) == there
    assert "host_mode" not in world.properties("agent_fork")


# what they answer


@on_virtual_time
async def test_a_spawn_answers_at_once_with_the_keys_of_the_document() -> None:
    world = World(
        spawn("after 100 say x"), "done at once", profile="meerkat", model="claude-opus-5-5"
    )
    await world.go()
    (reply,) = world.results
    assert list(reply) == ["agent_id", "name", "provider", "model", "state", "message"]
    id = reply["agent_id"]
    assert reply == {
        "agent_id": id,
        "name": f"sub-agent-{id[:8]}{id[9:13]}",
        "provider": "anthropic",
        "model": "claude-opus-5-5",
        "state": "running",
        "message": "Sub-agent spawned successfully. Use agent_status to check progress.",
    }
    assert (uuid.UUID(id).version, uuid.UUID(id).variant) == (7, uuid.RFC_4122)
    spec, _ = await world.row(id)
    assert int(id[:8] + id[9:13], 16) == spec.created_at, "the time is in the id"
    assert (spec.request.label, spec.request.join) == (reply["name"], "none")
    assert news(world.of_lead[1].messages) == [], "the lead went on before the sub-agent had ended"


@on_virtual_time
async def test_a_spawned_agent_knows_its_prompt_and_nothing_else() -> None:
    world = World(call("look_up", word="secret"), spawn("say x"))
    await world.go()
    (event,) = world.of("say x")
    assert [m.text for m in event.messages] == ["say x"]
    assert event.instructions == "Lead well.", (
        "the parent's instructions, without the guide to tools it does not have"
    )


@on_virtual_time
async def test_a_fork_inherits_the_whole_conversation_and_says_how_much_of_it() -> None:
    world = World(call("look_up", word="secret"), fork("say x"), model="gpt-6.1-sol")
    await world.go()
    _, reply = world.results
    assert list(reply) == [
        "agent_id",
        "name",
        "provider",
        "model",
        "state",
        "messages_inherited",
        "message",
    ]
    id = reply["agent_id"]
    assert reply == {
        "agent_id": id,
        "name": f"fork-{id[:8]}{id[9:13]}",
        "provider": "openai",
        "model": "gpt-6.1-sol",
        "state": "running",
        "messages_inherited": 3,
        "message": "Forked agent spawned successfully. Use agent_status to check progress.",
    }
    assert uuid.UUID(id).version == 7
    (event,) = world.of("say x")
    assert list(event.messages[:3]) == list(world.of_lead[1].messages)
    assert [m.text for m in event.messages[3:]] == ["say x"], (
        "the prompt stands behind it, as a message of its own"
    )
    assert event.instructions == world.of_lead[0].instructions


@on_virtual_time
async def test_a_fork_in_the_first_turn_inherits_the_task() -> None:
    world = World(fork("say x"))
    await world.go()
    assert world.results[0]["messages_inherited"] == 1
    assert [m.text for m in world.of("say x")[0].messages] == ["Go.", "say x"]


@on_virtual_time
async def test_the_status_of_a_running_agent_has_no_output_and_no_tokens() -> None:
    world = World(spawn("after 100 say x"), pause(12.5, about("agent_status")))
    await world.go()
    start, status = world.results
    assert status == {
        "agent_id": start["agent_id"],
        "state": "running",
        "is_final": False,
        "duration_ms": 12_500,
    }


@on_virtual_time
async def test_the_status_of_a_completed_agent_has_its_output_duration_and_tokens() -> None:
    world = World(spawn("after 12.5 say the analysis"), wait(), about("agent_status"))
    await world.go()
    id = world.results[0]["agent_id"]
    _, run = await world.row(id)
    assert run.usage.tokens > 0
    assert world.results[2] == {
        "agent_id": id,
        "state": "completed",
        "output": "the analysis",
        "is_final": True,
        "duration_ms": 12_500,
        "tokens_used": run.usage.tokens,
    }


@on_virtual_time
async def test_the_status_of_a_failed_agent_has_its_error_and_what_it_really_spent() -> None:
    does = {"break": [call("look_up", word="x"), ValueError("out of ink")]}
    world = World(spawn("break"), wait(timeout_seconds=600), about("agent_status"), does=does)
    await world.go()
    status = world.results[2]
    assert list(status) == ["agent_id", "state", "error", "is_final", "duration_ms", "tokens_used"]
    assert (status["state"], status["is_final"]) == ("failed", True)
    assert "out of ink" in status["error"]
    assert status["tokens_used"] > 0


@on_virtual_time
async def test_the_status_of_a_cancelled_agent_has_neither_output_nor_error() -> None:
    world = World(spawn("after 100 say x"), pause(5, about("agent_cancel")), about("agent_status"))
    await world.go()
    status = world.results[2]
    fields = ["agent_id", "state", "is_final", "duration_ms", "tokens_used", "tokens_estimated"]
    assert list(status) == fields, "what a call has cost that was cancelled is not known"
    assert (status["state"], status["is_final"], status["duration_ms"]) == (
        "cancelled",
        True,
        5_000,
    )


@on_virtual_time
async def test_a_cancel_answers_with_the_keys_of_the_document() -> None:
    world = World(spawn("after 100 say x"), about("agent_cancel"))
    await world.go()
    assert world.results[1] == {
        "success": True,
        "previous_state": "running",
        "message": "Sub-agent cancelled successfully",
        "agent_id": world.results[0]["agent_id"],
    }


@pytest.mark.parametrize(
    ("prompt", "state"),
    [("say x", "completed"), ("break", "failed"), ("after 9 say x", "cancelled")],
)
@on_virtual_time
async def test_cancelling_what_has_ended_is_no_error(prompt: str, state: str) -> None:
    first = about("agent_cancel") if state == "cancelled" else call("rest", seconds=900.0)
    world = World(spawn(prompt), first, about("agent_cancel"), does={"break": ValueError("x")})
    await world.go()
    answer = world.results[2]
    assert (answer["success"], answer["previous_state"]) == (False, state)
    assert (
        state in answer["message"] and "Only running agents can be cancelled" in answer["message"]
    )
    results = [m for m in world.of_lead[-1].messages if isinstance(m, ToolMessage)]
    assert not results[2].error


@on_virtual_time
async def test_a_list_shows_everybody_in_the_order_of_their_ids_and_counts_them() -> None:
    does = {"break": ValueError("x")}
    lines = [
        spawn("after 100 say a"),
        spawn("after 3 say b"),
        spawn("break"),
        fork("after 50 say d"),
    ]
    world = World(
        *(pause(1, line) for line in lines),
        about("agent_cancel", 3),
        call("rest", seconds=90.0),
        call("agent_list"),
        does=does,
    )
    await world.go()
    started, listing = world.results[:-3], world.results[-1]
    assert list(listing) == [
        "agents",
        "running_count",
        "completed_count",
        "failed_count",
        "total_count",
    ]
    assert [list(a) for a in listing["agents"]] == [
        ["id", "name", "state", "depth", "running_ms"]
    ] * 4
    assert [a["id"] for a in listing["agents"]] == [s["agent_id"] for s in started]
    assert [a["id"] for a in listing["agents"]] == sorted(a["id"] for a in listing["agents"])
    assert [a["name"] for a in listing["agents"]] == [s["name"] for s in started]
    assert [a["state"] for a in listing["agents"]] == [
        "running",
        "completed",
        "failed",
        "cancelled",
    ]
    assert [a["depth"] for a in listing["agents"]] == [1] * 4
    assert [listing["agents"][n]["running_ms"] for n in (0, 1, 3)] == [93_000, 3_000, 0]
    counts = [listing[f"{name}_count"] for name in ("running", "completed", "failed", "total")]
    assert counts == [1, 1, 2, 4], "who was cancelled counts among the failed"


@on_virtual_time
async def test_a_list_of_nobody_is_empty() -> None:
    world = World(call("agent_list"))
    await world.go()
    assert world.results == [
        {
            "agents": [],
            "running_count": 0,
            "completed_count": 0,
            "failed_count": 0,
            "total_count": 0,
        }
    ]


@on_virtual_time
async def test_an_agent_is_there_as_soon_as_its_spawn_has_answered() -> None:
    world = World(spawn("after 100 say x"), about("agent_status"), call("agent_list"))
    await world.go()
    assert (world.results[1]["state"], world.results[1]["duration_ms"]) == ("running", 0)
    assert world.results[2]["running_count"] == 1


def test_every_end_has_one_of_the_four_states() -> None:
    assert AGENT == {
        "completed": "completed",
        "incomplete": "completed",
        "failed": "failed",
        "timed_out": "failed",
        "cancelled": "cancelled",
        "interrupted": "failed",
    }


@on_virtual_time
async def test_who_waits_for_a_place_is_called_running() -> None:
    """A host that is woken while all places are taken stands in a queue; a model sees only that it
    runs."""
    lines = [
        spawn("say hello", host_mode=True),
        pause(1, [spawn("after 100 say x"), spawn("after 100 say y")]),
        about("agent_send", message="wake up"),
        pause(5, about("agent_status")),
        about("agent_cancel"),
    ]
    world = World(*lines, enable_comms=True, concurrency_limits={"max_concurrent_agents": 2})
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(3)
        assert [c.state for c in (await retinue.tree(run)).children] == [
            "queued",
            "thinking",
            "thinking",
        ]
        await retinue.wait(run)
    assert world.results[4]["state"] == "running"


@on_virtual_time
async def test_the_tools_show_all_agents_of_the_run_whichever_family_started_them() -> None:
    families: list[Any] = [family("agent"), family("sessions", announce="requester")]
    lines = [
        [call("sessions_spawn", task="say x", cleanup="keep"), spawn("after 50 say y")],
        call("agent_list"),
        lambda q: call("agent_cancel", agent_id=results(q.messages)[0]["runId"]),
    ]
    world = World(*lines, fields={"families": families})
    await world.go()
    assert world.results[2]["total_count"] == 2
    assert world.results[3]["previous_state"] == "completed"


@on_virtual_time
async def test_the_lead_goes_on_while_its_agents_work() -> None:
    world = World(
        [spawn("after 100 say a"), spawn("after 100 say b")], call("look_up", word="x"), "I go on"
    )
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(1)
        assert len(world.of_lead) == 3, "three turns while both are at work"
        outcome = await retinue.wait(run)
    assert outcome is not None and outcome.ended_ms - outcome.created_ms == 100_000
