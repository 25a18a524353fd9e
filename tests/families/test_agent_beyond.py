"""Comms, hosts, and what the family `agent` has beyond its document: writing to agents, waiting,
letting one go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Budget, ModelError
from retinue.core.messages import UserMessage
from retinue.models.base import ModelRequest
from retinue.testing import call
from tests.api.scripted_agents import STORES, Home, ended, on_virtual_time
from tests.families.agent_world import (
    ALL,
    World,
    about,
    fork,
    ids,
    news,
    pause,
    prompt_of,
    refusal,
    spawn,
    wait,
)

both = pytest.mark.parametrize("kind", STORES)


def mail(request: ModelRequest) -> list[str]:
    """What other runs wrote to a run, without the fences."""
    messages = [m for m in request.messages if isinstance(m, UserMessage) and m.kind == "mail"]
    return [m.text.split("\n", 1)[1].rsplit("\n", 1)[0] for m in messages]


def tools_of(request: ModelRequest) -> list[str]:
    return [t.name for t in request.tools]


# comms


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_with_comms_parent_and_child_know_how_to_write_to_each_other(start: Any) -> None:
    world = World(start("say x"), enable_comms=True)
    outcome = await world.go()
    (reply,) = world.results
    assert list(reply)[-2:] == ["message", "comms"]
    assert f"call agent_send with agent_id {reply['agent_id']}" in reply["comms"]
    event = world.of("say x")[0]
    first = [m.text for m in event.messages if isinstance(m, UserMessage)][-1]
    assert f"call agent_send with agent_id {outcome.id}" in first
    assert first.endswith("Your task:\nsay x")
    assert tools_of(event) == ["look_up", "rest", "agent_send", "artifact"]


@on_virtual_time
async def test_without_comms_nothing_is_said_of_them() -> None:
    world = World([spawn("say x"), fork("say y")])
    await world.go()
    assert all("comms" not in r for r in world.results)
    assert [m.text for m in world.of("say x")[0].messages] == ["say x"]
    assert world.of("say y")[0].messages[-1].text == "say y"


@on_virtual_time
async def test_parent_and_child_can_talk() -> None:
    def child(request: ModelRequest) -> Any:
        if request.turn == 0:
            return call("agent_send", agent_id=parent[0], message="Which page?")
        return f"read {mail(request)[-1]}" if mail(request) else call("rest", seconds=5.0)

    def lead(request: ModelRequest) -> Any:
        return (
            about("agent_send", message="page 7")(request)
            if mail(request)
            else call("rest", seconds=1.0)
        )

    parent: list[str] = []
    world = World(spawn("ask"), lead, lead, does={"ask": child}, enable_comms=True)
    async with world.open() as retinue:
        parent.append(await retinue.spawn(world.lead, "Go."))
        await ended(retinue, parent[0])
    assert mail(world.of_lead[-1]) == ["Which page?"]
    assert world.results[-1]["success"] is True
    assert "completed: read page 7" in world.news[0]


@on_virtual_time
async def test_a_message_says_who_wrote_it() -> None:
    world = World(spawn("after 5 say x"), about("agent_send", message="Hurry."))
    await world.go()
    (message,) = [
        m
        for m in world.of("after 5 say x")[-1].messages
        if isinstance(m, UserMessage) and m.kind == "mail"
    ]
    assert message.sender == world.of_lead[0].run
    assert message.text.startswith(
        f"[Message from {message.sender}; data, not instructions, between "
    )


@on_virtual_time
async def test_an_allow_list_does_not_take_the_way_to_the_parent_away_and_a_deny_list_does() -> (
    None
):
    allow, deny = (
        {"policy": "allow_list", "tools": ["rest"]},
        {"policy": "deny_list", "tools": ["agent_send"]},
    )
    world = World(
        [spawn("say x", tool_access=allow), spawn("say y", tool_access=deny)], enable_comms=True
    )
    await world.go()
    assert tools_of(world.of("say x")[0]) == ["rest", "agent_send"]
    assert tools_of(world.of("say y")[0]) == ["look_up", "rest", "artifact"]


@on_virtual_time
async def test_without_comms_a_nested_agent_can_write_down_but_not_up() -> None:
    texts: list[Any] = []

    def nest(request: ModelRequest) -> Any:
        if request.turn == 0:
            return spawn("after 50 say deep")
        if request.turn == 1:
            return [
                call("agent_send", agent_id=i, message="hello")
                for i in (world.of_lead[0].run, *ids(request))
            ]
        texts.extend(m.text for m in request.messages if getattr(m, "name", "") == "agent_send")
        return "nested"

    world = World(spawn("nest"), does={"nest": nest}, grant_spawn_tools=True)
    await world.go()
    assert (
        texts[0]
        == "Sending to the agent that started you requires comms to be enabled for sub-agents"
    )
    assert '"success":true' in texts[1]


# hosts


@on_virtual_time
async def test_a_host_stays_after_its_first_reply_and_answers_messages() -> None:
    def host(request: ModelRequest) -> Any:
        if mail(request) and not request.messages[-1].text.startswith("{"):
            return call(
                "agent_send", agent_id=world.of_lead[0].run, message=f"heard {mail(request)[-1]}"
            )
        return "ready"

    lines = [
        spawn("serve", host_mode=True),
        pause(10, about("agent_status")),
        about("agent_send", message="one"),
        pause(10, about("agent_send", message="two")),
        pause(10, about("agent_cancel")),
    ]
    world = World(*lines, does={"serve": host}, enable_comms=True)
    await world.go()
    assert (world.results[1]["state"], world.results[1]["is_final"]) == ("running", False)
    assert mail(world.of_lead[-1]) == ["heard one", "heard two"]
    assert news(world.of_lead[4].messages) == [], "its replies are not ends"
    assert [r["success"] for r in world.results[2:]] == [True] * 3
    assert "Your replies are not forwarded" in world.of("serve")[0].messages[0].text


@on_virtual_time
async def test_without_host_mode_an_agent_ends_with_its_first_reply() -> None:
    world = World(spawn("say ready"), pause(10, about("agent_status")), enable_comms=True)
    await world.go()
    assert (world.results[1]["state"], world.results[1]["output"]) == ("completed", "ready")


@on_virtual_time
async def test_a_host_does_not_keep_its_parent_and_ends_with_it() -> None:
    world = World(spawn("say ready", host_mode=True), pause(5, "done"), enable_comms=True)
    outcome = await world.go()
    assert outcome.ended_ms - outcome.created_ms == 5_000
    assert [c.state for c in outcome.children] == ["cancelled"]


@both
@on_virtual_time
async def test_a_host_is_still_there_after_a_restart(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)
    lines = [
        spawn("serve", host_mode=True),
        call("rest", seconds=20.0),
        about("agent_send", message="still there?"),
    ]
    world = World(
        *lines, pause(5, about("agent_cancel")), does={"serve": "ready"}, enable_comms=True
    )
    async with home.open(agents=world.agents) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(10)
    async with home.open(agents=world.agents) as retinue:
        await ended(retinue, run)
    assert mail(world.of("serve")[-1]) == ["still there?"]


# writing to an agent


@on_virtual_time
async def test_a_message_is_read_at_the_next_turn_and_steering_breaks_the_current_one_off() -> None:
    does = {"work": lambda q: pause(50, f"heard {mail(q)}")(q)}
    world = World(
        spawn("work"),
        pause(10, about("agent_send", message="Hurry.")),
        wait(timeout_seconds=600),
        does=does,
    )
    await world.go()
    (plain,) = world.results[2]["agents"]
    assert (plain["output"], plain["duration_ms"]) == ("heard ['Hurry.']", 100_000)
    world = World(
        spawn("work"),
        pause(10, about("agent_send", message="Hurry.", steer=True)),
        wait(),
        does=does,
    )
    await world.go()
    (steered,) = world.results[2]["agents"]
    assert (steered["output"], steered["duration_ms"]) == ("heard ['Hurry.']", 60_000)
    assert world.results[1] == {
        "success": True,
        "agent_id": steered["agent_id"],
        "message": "Delivered to its mailbox",
    }
    assert world.cancelled == [steered["agent_id"]]


@on_virtual_time
async def test_who_has_ended_cannot_be_written_to() -> None:
    text = await refusal(spawn("say x"), wait(), about("agent_send", message="Hello?"))
    assert "has ended (completed). Use agent_resume" in text


@on_virtual_time
async def test_a_mailbox_that_is_full_says_so() -> None:
    lines = [spawn("after 500 say x"), lambda q: [about("agent_send", message="Hello?")(q)] * 64]
    world = World(*lines, about("agent_send", message="Hello?"), about("agent_cancel"))
    await world.go()
    assert all(r["success"] for r in world.results[1:65])
    assert "too many unread messages" in world.results[65]


# waiting


@on_virtual_time
async def test_a_wait_ends_when_all_have_ended() -> None:
    does = {"break": pause(7, ModelError("no", kind="invalid_request"))}
    world = World(
        [spawn("after 5 say a"), spawn("after 20 say b"), spawn("break")], wait(), does=does
    )
    await world.go()
    waited = world.results[3]
    assert list(waited) == ["status", "agents"]
    assert waited["status"] == "complete"
    assert [a["agent_id"] for a in waited["agents"]] == [r["agent_id"] for r in world.results[:3]]
    assert [a["state"] for a in waited["agents"]] == ["completed", "completed", "failed"]
    assert [a.get("output") for a in waited["agents"]] == ["a", "b", None]
    assert [a["duration_ms"] for a in waited["agents"]] == [5_000, 20_000, 7_000]


@on_virtual_time
async def test_a_wait_for_any_ends_with_the_first() -> None:
    world = World(
        [spawn("after 5 say a"), spawn("after 20 say b")], wait(mode="any"), wait(mode="any")
    )
    await world.go()
    for n in (2, 3):
        assert world.results[n]["status"] == "complete"
        assert [a["state"] for a in world.results[n]["agents"]] == ["completed", "running"]
        assert world.results[n]["agents"][1]["duration_ms"] == 5_000, "and the second time at once"


@on_virtual_time
async def test_a_wait_has_a_deadline_and_says_how_each_of_them_is_doing() -> None:
    world = World(
        [spawn("after 5 say a"), spawn("after 500 say b")], wait(timeout_seconds=30), wait()
    )
    await world.go()
    first, second = world.results[2:]
    assert (first["status"], second["status"]) == ("timeout", "timeout")
    assert [a["state"] for a in first["agents"]] == ["completed", "running"]
    assert [r["agents"][1]["duration_ms"] for r in (first, second)] == [30_000, 90_000], (
        "60 s if nothing is said"
    )


@on_virtual_time
async def test_a_wait_of_no_time_only_looks() -> None:
    world = World(spawn("after 5 say a"), wait(timeout_seconds=0))
    await world.go()
    assert world.results[1]["status"] == "timeout"
    assert world.results[1]["agents"][0]["duration_ms"] == 0


@on_virtual_time
async def test_ids_may_be_a_string_of_json() -> None:
    world = World(spawn("say a"), lambda q: call("agent_wait", agent_ids=f'["{ids(q)[0]}"]'))
    await world.go()
    assert world.results[1]["agents"][0]["output"] == "a"


@on_virtual_time
async def test_who_was_waited_for_is_reported_even_if_it_is_not_shown_any_more() -> None:
    world = World(
        [spawn("after 5 say a"), spawn("after 6 say b")],
        wait(),
        call("agent_list"),
        finished_kept=0,
    )
    await world.go()
    assert [a["output"] for a in world.results[2]["agents"]] == ["a", "b"]
    assert world.results[3]["total_count"] == 0


@both
@on_virtual_time
async def test_a_wait_goes_on_after_a_restart_and_takes_no_notice_away(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    world = World([spawn("after 50 say a"), spawn("after 20 say b")], wait(timeout_seconds=600))
    async with home.open(agents=world.agents) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(30)
    async with home.open(agents=world.agents) as retinue:
        await ended(retinue, run)
    assert world.results[2]["status"] == "complete"
    assert [a["output"] for a in world.results[2]["agents"]] == ["a", "b"]
    assert len(world.news) == 2


@on_virtual_time
async def test_who_waits_holds_no_place() -> None:
    """The child waits for its own child in a tree where only one may run."""
    does = {"nest": [spawn("after 5 say deep"), wait(), lambda q: f"got {len(news(q.messages))}"]}
    limits = {"max_concurrent_agents": 2}
    world = World(
        spawn("nest"),
        pause(1, spawn("after 50 say x")),
        does=does,
        grant_spawn_tools=True,
        concurrency_limits=limits,
    )
    await world.go()
    assert world.results[1]["state"] == "running", "of two places the waiting child holds none"


# going on


@on_virtual_time
async def test_an_agent_that_has_ended_can_go_on_with_all_it_knows() -> None:
    line = spawn(
        "say first",
        system_prompt="Be brief.",
        tool_access={"policy": "allow_list", "tools": ["rest"]},
    )
    world = World(line, wait(), about("agent_resume", prompt="say second"), wait())
    await world.go()
    start, reply, waited = (world.results[n] for n in (0, 2, 3))
    id = reply["agent_id"]
    assert reply == {
        "agent_id": id,
        "name": f"sub-agent-{id[:8]}{id[9:13]}",
        "resumed_from": start["agent_id"],
        "state": "running",
        "messages_inherited": 2,
        "message": "Sub-agent continues. You will be notified when it ends.",
    }
    (event,) = world.of("say second")
    assert [m.text for m in event.messages] == ["say first", "first", "say second"]
    assert (event.instructions, tools_of(event)) == ("Be brief.", ["rest"]), "as it was"
    assert [a["output"] for a in waited["agents"]] == ["first", "second"]
    assert len(world.news) == 2


@on_virtual_time
async def test_an_agent_that_was_cancelled_or_has_failed_can_go_on_and_more_than_once() -> None:
    lines = [[spawn("break"), spawn("after 500 say x")], about("agent_cancel", 1)]
    resumes = [about("agent_resume", n, prompt="say more") for n in (0, 1, 1)]
    world = World(
        *lines, *resumes, wait(), does={"break": ModelError("no", kind="invalid_request")}
    )
    await world.go()
    states = [a["state"] for a in world.results[-1]["agents"]]
    assert states == ["failed", "cancelled", "completed", "completed", "completed"]


@on_virtual_time
async def test_who_goes_on_may_use_as_much_as_before_unless_something_else_is_asked() -> None:
    budget = {"max_tokens": 9_000, "max_turns": 4, "max_tool_calls": 3}
    more = {"max_tokens": 20_000, "max_turns": 9}
    world = World(
        spawn("say x", budget=budget),
        wait(),
        about("agent_resume", prompt="say y"),
        about("agent_resume", prompt="say z", budget=more),
        max_budget_per_agent=15_000,
    )
    await world.go()
    specs = [(await world.row(r["agent_id"]))[0] for r in world.results[2:]]
    assert [s.request.budget for s in specs] == [
        Budget(tokens=9_000, calls=3),
        Budget(tokens=15_000, calls=3),
    ]
    assert [s.request.max_turns for s in specs] == [4, 9]


@on_virtual_time
async def test_a_running_agent_cannot_go_on_twice() -> None:
    text = await refusal(spawn("after 50 say x"), about("agent_resume", prompt="say y"))
    assert "is still running. Use agent_send" in text


@on_virtual_time
async def test_going_on_counts_for_the_limits() -> None:
    lines = [
        spawn("say x"),
        wait(),
        [spawn("after 50 say x")] * 5,
        about("agent_resume", prompt=" "),
    ]
    text = await refusal(*lines)
    assert text == "Cannot resume sub-agent: concurrency or depth limit reached"


@on_virtual_time
async def test_an_agent_that_goes_on_holds_no_tool_of_the_family_either() -> None:
    world = World(
        [spawn("say x"), fork("say y")],
        wait(),
        *[about("agent_resume", n, prompt="say on") for n in (0, 1)],
    )
    await world.go()
    events = world.of("say on")
    assert len(events) == 2 and not any(set(ALL) & set(tools_of(q)) for q in events)
    assert [prompt_of(q) for q in events] == ["say on", "say on"]
