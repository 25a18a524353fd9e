"""Listing and reading sessions, writing to them, and yielding until there is news."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from retinue import Agent, Budget, Origin
from retinue.core.messages import AssistantMessage
from retinue.models.base import ModelRequest
from retinue.testing import call
from retinue.tools.families import family_states
from tests.api.scripted_agents import on_virtual_time
from tests.families.sessions_world import (
    CHAT,
    World,
    event,
    history,
    keys,
    news,
    pause,
    read,
    refusal,
    results,
    send,
    spawn,
)

YIELD = call("sessions_yield")
LIST = call("sessions_list")


def today(*lines: Any, **settings: Any) -> World:
    return World(*lines, profile="openclaw", **settings)


# sessions_list


@on_virtual_time
async def test_the_list_shows_the_own_session_and_those_that_were_spawned_newest_first() -> None:
    world = today([spawn("say a", label="first"), spawn("after 50 say b")], pause(5, LIST))
    outcome = await world.go()
    listed = world.results[-1]
    assert list(listed) == ["count", "sessions"]
    newest, oldest, own = listed["sessions"]
    a, b = keys(world.of_lead[-1].messages)
    assert listed["count"] == 3
    assert list(newest) == [
        "key",
        "kind",
        "sessionId",
        "status",
        "model",
        "totalTokens",
        "updatedAt",
        "label",
    ]
    assert [(r["key"], r["kind"], r["status"]) for r in (newest, oldest)] == [
        (b, "subagent", "running"),
        (a, "subagent", "ok"),
    ]
    assert (oldest["label"], newest["label"], oldest["model"]) == (
        "first",
        "subagent",
        "model of lead",
    )
    assert (own["key"], own["kind"], own["sessionId"]) == ("agent:lead:main", "main", outcome.id)
    assert own["status"] == "running" and "label" not in own and "messages" not in own
    assert oldest["totalTokens"] > 0 and newest["updatedAt"] - oldest["updatedAt"] == 5_000


@on_virtual_time
async def test_the_states_shown_are_those_of_the_family() -> None:
    does: dict[str, Any] = {"fail": RuntimeError("broken"), "turns": call("read", path="a")}
    lines = [
        spawn("say a"),
        spawn("fail"),
        spawn("after 90 say c", runTimeoutSeconds=1),
        spawn("turns", agentId="b"),
    ]
    more = [spawn("after 90 say d"), spawn("after 90 say e")]
    staff = [Agent("b", model="model of lead", tools=[read], max_turns=2)]
    world = World(
        [*lines, *more],
        pause(5, LIST),
        does=does,
        cleanup="keep",
        allow_agents=["b"],
        fields={"staff": staff},
    )
    await world.go()
    status = [s["status"] for s in world.results[-1]["sessions"][:-1]][::-1]
    assert status == ["ok", "error", "timeout", "error", "running", "queued"]
    assert set(status[:4]) <= set(family_states.SESSIONS.values())


@on_virtual_time
async def test_the_list_can_be_limited_in_number_and_time_and_show_the_last_messages() -> None:
    calls = [
        call("sessions_list", limit=1),
        call("sessions_list", activeMinutes=1),
        call("sessions_list", messageLimit=1),
        call("sessions_list", activeMinutes=0, limit=2, messageLimit=20),
    ]
    world = today(
        [spawn("say a", label="a"), spawn("after 100 say b", label="b")], pause(90, calls)
    )
    await world.go()
    labels = [[s.get("label", "own") for s in r["sessions"]] for r in world.results[-4:]]
    assert labels == [["b"], ["b", "own"], ["b", "a", "own"], ["b", "own"]]
    messages = {s.get("label", "own"): s["messages"] for s in world.results[-2]["sessions"]}
    assert messages["a"] == [{"role": "assistant", "text": "a"}]
    assert [m["role"] for m in messages["b"]] == ["user"]


@on_virtual_time
async def test_a_session_that_was_deleted_is_not_listed() -> None:
    world = World([spawn("say a"), spawn("say b", cleanup="keep")], pause(5, LIST))
    await world.go()
    assert [s["sessionId"] for s in world.results[-1]["sessions"][:-1]] == [
        world.results[1]["runId"]
    ]


# sessions_history


@on_virtual_time
async def test_the_history_of_a_session_is_what_was_said_in_it() -> None:
    message = AssistantMessage(text="let me look", calls=(call("read", path="a"),))
    question = pause(
        5, lambda q: [history(0)(q), history(0, includeTools=True)(q), history(0, limit=2)(q)]
    )
    world = World(spawn("work", cleanup="keep"), question, does={"work": [message, "it says a"]})
    await world.go()
    plain, whole, last = world.results[-3:]
    assert list(plain) == ["sessionKey", "messages"]
    assert plain["sessionKey"] == world.results[0]["childSessionKey"]
    assert [(m["role"], m["text"][:11]) for m in plain["messages"]] == [
        ("user", "[Subagent c"),
        ("assistant", "let me look"),
        ("assistant", "it says a"),
        ("user", "Write the m"),
        ("assistant", "I work"),
    ]
    assert [m["role"] for m in whole["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert whole["messages"][1]["toolCalls"] == [{"name": "read", "arguments": '{"path":"a"}'}]
    assert whole["messages"][2] == {"role": "tool", "name": "read", "text": "the text of a"}
    assert last["messages"] == plain["messages"][-2:]


@on_virtual_time
async def test_a_long_message_is_cut_in_the_history_between_characters() -> None:
    world = today(spawn("say " + "é😀" * 4_000), pause(5, history(0)))
    await world.go()
    text = world.results[-1]["messages"][-1]["text"]
    parts, note = text.split("\n[truncated: ")
    assert len(text) <= 4_000 and parts and ("é😀" * 2_000).startswith(parts)
    assert re.fullmatch(
        r"\d+ of 8000 characters hidden; full text in artifact [0-9a-f]{64}\]", note
    )


@on_virtual_time
async def test_a_session_can_read_itself() -> None:
    calls = [
        call("sessions_history", sessionKey=key) for key in ("current", "main", "agent:lead:main")
    ]
    world = World(calls)
    await world.go()
    for result in world.results:
        assert result == {
            "sessionKey": "agent:lead:main",
            "messages": [{"role": "user", "text": "Go."}],
        }


@on_virtual_time
async def test_a_child_that_may_spawn_reads_itself_as_current_but_not_the_main_session() -> None:
    calls = [
        call("sessions_history", sessionKey=key) for key in ("current", "main", "agent:lead:main")
    ]
    world = World(spawn("look"), does={"look": [calls, "seen"]}, max_spawn_depth=2)
    await world.go()
    mine, *others = results(world.of("look")[1].messages)
    assert mine["sessionKey"] == world.results[0]["childSessionKey"]
    assert all("is not a session key: it looks like subagent:<uuid>" in o for o in others)


@on_virtual_time
async def test_sessions_of_others_are_not_found() -> None:
    """Neither those of another run, nor those of one's own children."""
    below = [spawn("say leaf", cleanup="keep"), YIELD, "led"]
    first = World(spawn("lead them", cleanup="keep"), does={"lead them": below}, max_spawn_depth=2)
    await first.go()
    (child,), (leaf,) = keys(first.of_lead[-1].messages), keys(first.of("lead them")[-1].messages)

    def pry(request: ModelRequest) -> Any:
        return [
            *(call("sessions_history", sessionKey=key) for key in (child, leaf)),
            *(call("sessions_send", sessionKey=key, message="hello") for key in (child, leaf)),
        ]

    first.lines = (pry,)
    await first.go()
    assert all("not found among those you have spawned" in r for r in first.results)
    first.lines = (
        spawn("say x", cleanup="keep"),
        lambda q: call("sessions_history", sessionKey=leaf),
    )
    await first.go()
    assert "not found" in first.results[-1]


# sessions_send


@on_virtual_time
async def test_a_running_session_reads_a_message_at_its_next_turn() -> None:
    does = {
        "work": [
            pause(10, call("read", path="a")),
            lambda q: f"heard {q.messages[-1].text.splitlines()[1]}",
        ]
    }
    world = today(spawn("work"), send(0, "look at b too"), does=does)
    await world.go()
    reply = world.results[1]
    assert list(reply) == ["status", "sessionKey", "runId"]
    first = world.results[0]
    assert (reply["status"], reply["sessionKey"], reply["runId"]) == (
        "accepted",
        first["childSessionKey"],
        first["runId"],
    )
    assert world.events[0]["result"] == "heard look at b too"


@on_virtual_time
async def test_a_message_that_steers_breaks_the_current_turn_off() -> None:
    does = {
        "work": [pause(1_000, "too late"), lambda q: f"heard {q.messages[-1].text.splitlines()[1]}"]
    }
    world = today(
        spawn("work"),
        pause(5, send(0, "stop that", steer=True)),
        does={"work": lambda q: _steered(q, does)},
    )
    await world.go()
    assert world.events[0]["result"] == "heard stop that"
    assert world.ended_at == 5


def _steered(request: ModelRequest, does: dict[str, Any]) -> Any:
    return does["work"][min(len(request.messages) - 1, 1)](request)


@on_virtual_time
async def test_a_label_stands_for_the_key_if_it_names_one_session() -> None:
    by_label = call("sessions_send", label="dig", message="more")
    world = today(spawn("after 50 say a", label="dig"), by_label)
    await world.go()
    assert world.results[1]["sessionKey"] == world.results[0]["childSessionKey"]
    two = [spawn("after 50 say a", label="dig"), spawn("after 50 say b", label="dig")]
    assert await refusal(two, by_label) == "label 'dig' matches 2 sessions; use the session key"
    assert await refusal(by_label) == (
        "label 'dig' matches no session; use sessions_list to see them"
    )


@pytest.mark.parametrize("profile", ["clawdbot", "openclaw"])
@on_virtual_time
async def test_a_session_that_has_ended_and_is_kept_goes_on_under_its_key(profile: str) -> None:
    """Again and again: it remembers what was said in it, and reports each time."""
    by_label = pause(5, call("sessions_send", label="dig", message="say four"))
    by_key = [pause(5, send(0, "say two")), pause(5, send(0, "say three"))]
    lines = [spawn("say one", label="dig", cleanup="keep"), *by_key, by_label, pause(5, LIST)]
    world = World(*lines, profile=profile)
    outcome = await world.go()
    first, second, third = world.results[:3]
    again = world.results[3]
    key = first["childSessionKey"]
    assert list(second) == ["status", "sessionKey", "runId", "continues", "note"]
    assert [r["sessionKey"] for r in (second, third, again)] == [key] * 3
    assert [r["continues"] for r in (second, third, again)] == [
        r["runId"] for r in (first, second, third)
    ]
    assert len({r["runId"] for r in (first, second, third, again)}) == 4
    texts = ["one", "say two", "two", "say three", "three", "say four"]
    assert [m.text for m in world.of("say four")[0].messages if m.text in texts] == texts
    listed = world.results[-1]["sessions"]
    assert [(s["key"], s["sessionId"]) for s in listed] == [
        (key, again["runId"]),
        ("agent:lead:main", outcome.id),
    ]
    if profile == "clawdbot":
        assert world.chat.texts == ["I say one", "I say two", "I say three", "I say four"]
    else:
        rows = [(e["childSessionKey"], e["result"]) for e in world.events]
        assert rows == [(key, n) for n in ("one", "two", "three", "four")]


@on_virtual_time
async def test_a_session_goes_on_with_the_tools_the_model_and_the_lane_it_had() -> None:
    first = spawn("say one", model="other", tools={"allow": ["read"]}, mode="session", thread=True)
    world = today(first, pause(5, send(0, "say two")), models=["other"], max_concurrent=3)
    outcome = await world.go()
    (request,) = world.of("say two")
    assert ({t.name for t in request.tools}, request.model) == ({"read"}, "other")
    old, new = [s.request for s, _ in await world.rows(outcome.id)]
    assert (old.lanes, old.label, old.retention, old.permissions) == (
        new.lanes,
        new.label,
        new.retention,
        new.permissions,
    )


@on_virtual_time
async def test_a_fork_that_has_ended_goes_on_too_and_takes_nothing_from_its_agent() -> None:
    fields = {"budget": Budget(tokens=200_000)}
    world = today(spawn("say one", context="fork"), pause(5, send(0, "say two")), fields=fields)
    await world.go()
    assert [e["result"] for e in world.events] == ["one", "two"]


@on_virtual_time
async def test_a_session_that_has_ended_and_is_not_kept_is_not_taken_up_again() -> None:
    world = World(spawn("say one"), pause(5, send(0, "say two")))
    world.chat.refuses = True
    await world.go(seconds=0)
    key = world.results[0]["childSessionKey"]
    why = f'{key} has ended and is not kept. Spawn another (cleanup "keep" would keep it)'
    assert world.results[1] == {"status": "error", "error": why}
    refusal_text = await refusal(spawn("say one"), pause(5, send(0, "say two")))
    assert "not found among those you have spawned" in refusal_text


@on_virtual_time
async def test_a_session_that_writes_its_announcement_is_not_written_to() -> None:
    """It would never read it."""
    late = {"say one": pause(20, "told")}
    world = World(spawn("say one", cleanup="keep"), pause(5, send(0, "say two")), announces=late)
    await world.go()
    reply = world.results[1]
    assert reply["status"] == "error"
    assert reply["error"].endswith(
        "is done and is writing its announcement. Send to it when it has ended"
    )


@on_virtual_time
async def test_the_limit_of_children_holds_for_sessions_that_go_on() -> None:
    lines = [
        spawn("say one"),
        pause(5, [spawn("after 90 say a"), spawn("after 90 say b")]),
        send(0, "say two"),
    ]
    world = today(*lines, max_children_per_agent=2)
    await world.go()
    refused = {
        "status": "forbidden",
        "error": "too many active children (2/2); wait for one to end",
    }
    assert world.results[-1] == refused


@on_virtual_time
async def test_a_session_cannot_write_to_itself() -> None:
    for key in ("current", "main", "agent:lead:main"):
        text = await refusal(call("sessions_send", sessionKey=key, message="hello"))
        assert text == "a session cannot send to itself"


# sessions_yield


@on_virtual_time
async def test_a_yielding_root_is_woken_by_each_result_at_once() -> None:
    lines = [
        [spawn("after 10 say a"), spawn("after 30 say b")],
        call("sessions_yield", message="the two"),
        YIELD,
    ]
    world = today(*lines)
    await world.go()
    assert world.results[2] == {"status": "yielded", "activeChildren": 2, "message": "the two"}
    assert world.results[3] == {"status": "yielded", "activeChildren": 1}
    woken = [[event(t)["result"] for t in news(r.messages)] for r in world.of_lead]
    assert woken == [[], [], ["a"], ["a", "b"]]
    assert world.of_lead[2].messages[-1].text.startswith("[Result of "), (
        "the result is the next message"
    )
    assert world.ended_at == 30


@pytest.mark.parametrize("profile", ["clawdbot", "openclaw"])
@on_virtual_time
async def test_a_yielding_child_is_woken_by_its_children_in_a_lane_of_one(profile: str) -> None:
    below = [[spawn("after 10 say a"), spawn("after 10 say b")], YIELD, "all are back"]
    world = World(
        spawn("lead them"),
        YIELD,
        does={"lead them": below},
        profile=profile,
        max_spawn_depth=2,
        max_concurrent=1,
    )
    await world.go()
    text = [[event(t)["result"] for t in news(r.messages)] for r in world.of("lead them")]
    both = ["a", "b"] if profile == "openclaw" else ["I after 10 say a", "I after 10 say b"]
    assert text[:3] == [[], [], both] and all(t == both for t in text[3:])
    assert world.most == 1
    assert world.ended_at == 20


@on_virtual_time
async def test_a_root_whose_results_go_to_the_chat_is_woken_when_the_last_child_has_ended() -> None:
    world = World([spawn("after 10 say a"), spawn("after 10 say b")], YIELD)
    await world.go()
    reply = world.results[2]
    assert (reply["status"], reply["activeChildren"]) == ("yielded", 2)
    assert "announced in the chat" in reply["note"]
    assert world.ended_at == 20
    assert world.chat.at == [10, 20]


@on_virtual_time
async def test_a_message_from_outside_wakes_a_yielding_run() -> None:
    for origin in (CHAT, Origin()):
        world = World(spawn("after 500 say a"), YIELD, "I am here")
        async with world.open() as retinue:
            run = await retinue.spawn(world.lead, "Go.", origin=origin)
            await asyncio.sleep(10)
            assert len(world.of_lead) == 2
            await retinue.send(run, "are you there?")
            await asyncio.sleep(1)
            assert len(world.of_lead) == 3
            assert world.of_lead[2].messages[-1].text == "are you there?"
            await retinue.cancel(run)


@on_virtual_time
async def test_a_yield_with_nobody_at_work_goes_on_at_once() -> None:
    for n, lines in enumerate(((YIELD,), (spawn("say a"), pause(5, YIELD)))):
        world = today(*lines)
        outcome = await world.go(seconds=0)
        assert world.results[-1] == {"status": "yielded", "activeChildren": 0}
        assert (outcome.state, world.ended_at) == ("completed", 5 * n)


@on_virtual_time
async def test_a_yield_among_other_calls_waits_after_all_of_them() -> None:
    world = today(
        spawn("after 10 say a"), [call("read", path="x"), YIELD, spawn("after 20 say b")], YIELD
    )
    await world.go()
    assert [e["result"] for e in world.events] == ["a", "b"]
    assert world.ended_at == 20
