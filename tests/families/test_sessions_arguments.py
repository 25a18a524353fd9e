"""Malformed arguments and the order of the checks: every refusal is something that a model can act
on."""

from __future__ import annotations

from typing import Any

import pytest

from retinue import Agent
from retinue.core.messages import ToolCall, ToolMessage
from retinue.testing import call
from tests.api.scripted_agents import agent, hiring, on_virtual_time
from tests.families.sessions_world import World, read, refusal, results, spawn, value_of

PARAMETERS = (
    "task, label, taskName, agentId, runtime, model, timeoutSeconds, runTimeoutSeconds, cleanup, "
    "mode, thread, "
    "context, cwd, tools"
)
NOBODY = "subagent:00000000-0000-7000-8000-000000000000"


def raw(name: str, text: str) -> ToolCall:
    return ToolCall(id="", name=name, arguments_json=text)


BAD_SPAWNS: list[tuple[dict[str, Any], str]] = [
    ({}, "Invalid parameters: Object missing required field `task`"),
    ({"task": None}, "Invalid parameters: Object missing required field `task`"),
    ({"task": ""}, "Invalid parameters: task cannot be empty"),
    ({"task": " \n\t"}, "Invalid parameters: task cannot be empty"),
    ({"task": 5}, "Invalid parameters: Expected `str`, got `int` - at `$.task`"),
    ({"task": ["a"]}, "Invalid parameters: Expected `str`, got `array` - at `$.task`"),
    ({"task": "x", "label": 5}, "Invalid parameters: Expected `str`, got `int` - at `$.label`"),
    ({"task": "x", "model": {}}, "Invalid parameters: Expected `str`, got `object` - at `$.model`"),
    (
        {"task": "x", "timeoutSeconds": "5"},
        "Invalid parameters: Expected `float | null`, got `str` - at `$.timeoutSeconds`",
    ),
    (
        {"task": "x", "timeoutSeconds": True},
        "Invalid parameters: Expected `float | null`, got `bool` - at `$.timeoutSeconds`",
    ),
    (
        {"task": "x", "timeoutSeconds": -1},
        "Invalid parameters: Expected `float` >= 0.0 - at `$.timeoutSeconds`",
    ),
    (
        {"task": "x", "timeoutSeconds": 86_401},
        "Invalid parameters: Expected `float` <= 86400.0 - at `$.timeoutSeconds`",
    ),
    (
        {"task": "x", "runTimeoutSeconds": -0.5},
        "Invalid parameters: Expected `float` >= 0.0 - at `$.runTimeoutSeconds`",
    ),
    (
        {"task": "x", "cleanup": "remove"},
        "Invalid parameters: Invalid enum value 'remove' - at `$.cleanup`",
    ),
    (
        {"task": "x", "cleanup": True},
        "Invalid parameters: Expected `str | null`, got `bool` - at `$.cleanup`",
    ),
    (
        {"task": "x", "mode": "forever"},
        "Invalid parameters: Invalid enum value 'forever' - at `$.mode`",
    ),
    (
        {"task": "x", "runtime": "acp"},
        "Invalid parameters: Invalid enum value 'acp' - at `$.runtime`",
    ),
    (
        {"task": "x", "context": "all"},
        "Invalid parameters: Invalid enum value 'all' - at `$.context`",
    ),
    (
        {"task": "x", "thread": "yes"},
        "Invalid parameters: Expected `bool`, got `str` - at `$.thread`",
    ),
    (
        {"task": "x", "tools": ["read"]},
        "Invalid parameters: Expected `object | null`, got `array` - at `$.tools`",
    ),
    (
        {"task": "x", "tools": {"allow": "read"}},
        "Invalid parameters: Expected `array | null`, got `str` - at `$.tools.allow`",
    ),
    (
        {"task": "x", "tools": {"deny": [[5]]}},
        "Invalid parameters: Expected `str`, got `array` - at `$.tools.deny[0]`",
    ),
    (
        {"task": "x", "tools": {"alow": []}},
        "Invalid parameters: Object contains unknown field `alow` - at `$.tools`. Known: "
        "allow, deny",
    ),
    (
        {"task": "x", "tools": "{"},
        "Invalid parameters: `tools` is a string but not valid JSON",
    ),
    (
        {"task": "x", "prompt": "y"},
        f"Invalid parameters: unknown parameter 'prompt'. Known: {PARAMETERS}",
    ),
    (
        {"task": "x", "timeout": 5},
        f"Invalid parameters: unknown parameter 'timeout'. Known: {PARAMETERS}",
    ),
    (
        {"task": "x", "timeout_seconds": 5},
        "Invalid parameters: unknown parameter 'timeout_seconds'",
    ),
    ({"task": "x", "é" * 500: 5}, "Invalid parameters: unknown parameter 'éééé"),
]


@pytest.mark.parametrize(("args", "says"), BAD_SPAWNS, ids=lambda x: str(x)[:50])
@on_virtual_time
async def test_a_malformed_spawn_is_refused_in_words(args: dict[str, Any], says: str) -> None:
    text = await refusal(call("sessions_spawn", **args))
    assert text.startswith(says)
    assert len(text) < 700


@pytest.mark.parametrize("name", ["target", "transport", "channel", "to", "threadId", "replyTo"])
@on_virtual_time
async def test_where_a_result_goes_cannot_be_said(name: str) -> None:
    text = await refusal(spawn("say x", **{name: "elsewhere"}))
    assert text == (
        f"sessions_spawn does not accept '{name}': results go to where the request came from"
    )


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '"text"', "{", '{"task": "a", "task": "b"}', '{"task": NaN}']
)
@on_virtual_time
async def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    assert (await refusal(raw("sessions_spawn", text))).startswith("Invalid parameters: ")


@on_virtual_time
async def test_a_list_of_tools_may_be_a_string_of_json_and_a_null_is_left_out() -> None:
    nulls = dict.fromkeys(PARAMETERS.split(", ")[1:])
    world = World([spawn("say a", tools='{"allow": ["read"]}'), spawn("say b", **nulls)])
    await world.go()
    assert [r["status"] for r in world.results] == ["accepted", "accepted"]
    assert world.offered("say a") == {"read"}


@pytest.mark.parametrize("name", ["Lead", "-lead", "a" * 65, "a.b", "a b", "ä", "../etc"])
@on_virtual_time
async def test_an_agent_id_that_cannot_be_one_is_an_error(name: str) -> None:
    text = await refusal(spawn("say x", agentId=name), allow_agents=["*"])
    assert list(text) == ["status", "error"]
    assert text["status"] == "error"
    assert text["error"].startswith(
        f"invalid agentId '{name}': use lower-case letters, digits, - and _ (at most 64)"
    )


@pytest.mark.parametrize("name", ["a", "9", "a" * 64, "a_b-c"])
@on_virtual_time
async def test_an_agent_id_that_could_be_one_is_looked_for(name: str) -> None:
    assert "is not allowed" in (await refusal(spawn("say x", agentId=name)))["error"]


@on_virtual_time
async def test_a_session_without_a_thread_is_an_error() -> None:
    text = await refusal(spawn("say x", mode="session"))
    assert text == {"status": "error", "error": 'mode "session" requires thread: true'}


@on_virtual_time
async def test_the_checks_come_in_their_order() -> None:
    """Each spawn has all the faults that are still to come: the first of them is named."""
    faults: list[tuple[dict[str, Any], str]] = [
        ({"to": "me"}, "does not accept 'to'"),
        ({"cleanup": "remove"}, "Invalid enum value 'remove'"),
        ({"task": " "}, "task cannot be empty"),
        ({"agentId": "No!"}, "invalid agentId"),
        ({"mode": "session"}, "requires thread"),
    ]
    later: dict[str, Any] = {"task": "say x", "agentId": "cook", "model": "nonsense"}
    calls = []
    for n in range(len(faults)):
        args: dict[str, Any] = dict(later)
        for fault, _ in reversed(faults[n:]):
            args |= fault
        calls.append(call("sessions_spawn", **args))
    calls.append(call("sessions_spawn", **later))
    world = World(calls, max_spawn_depth=1)
    boss = agent(
        "boss",
        [call("hire", tasks=["Go."]), "hired"],
        tools=[hiring(world.lead)],
        staff=[world.lead],
    )
    async with world.open() as retinue:
        await retinue.run(boss, "Go.")
    messages = [r for r in world.requests if r.agent == "lead"][-1].messages
    result = [str(value_of(m.text)) for m in messages if isinstance(m, ToolMessage)]
    for text, (_, says) in zip(result, faults, strict=False):
        assert says in text
    assert "agentId 'cook' is not allowed" in result[-1], "the agent before the model"


@on_virtual_time
async def test_after_the_depth_come_the_children_the_agents_and_the_model() -> None:
    staff = [Agent("cook", model="model of lead", tools=[read])]
    full = [spawn("after 9 say a"), spawn("say x", agentId="ghost", model="nonsense")]
    text = await refusal(*full, max_children_per_agent=1, fields={"staff": staff})
    assert text["error"] == "too many active children (1/1); wait for one to end"
    text = await refusal(spawn("say x", agentId="cook", model="nonsense"), fields={"staff": staff})
    assert text["error"] == "agentId 'cook' is not allowed (allowed: none)"
    text = await refusal(
        spawn("say x", agentId="cook", model="nonsense"),
        allow_agents=["cook"],
        fields={"staff": staff},
    )
    assert text["error"].startswith("unknown model 'nonsense'")
    assert text["status"] == "error"


BAD_TALK: list[tuple[str, dict[str, Any], str]] = [
    ("sessions_list", {"limit": 0}, "Invalid parameters: Expected `int` >= 1 - at `$.limit`"),
    ("sessions_list", {"limit": 201}, "Invalid parameters: Expected `int` <= 200 - at `$.limit`"),
    (
        "sessions_list",
        {"limit": "5"},
        "Invalid parameters: Expected `int`, got `str` - at `$.limit`",
    ),
    (
        "sessions_list",
        {"messageLimit": 21},
        "Invalid parameters: Expected `int` <= 20 - at `$.messageLimit`",
    ),
    (
        "sessions_list",
        {"messageLimit": -1},
        "Invalid parameters: Expected `int` >= 0 - at `$.messageLimit`",
    ),
    (
        "sessions_list",
        {"activeMinutes": -1},
        "Invalid parameters: Expected `float` >= 0.0 - at `$.activeMinutes`",
    ),
    (
        "sessions_list",
        {"kinds": []},
        "Invalid parameters: unknown parameter 'kinds'. Known: limit, activeMinutes, messageLimit",
    ),
    ("sessions_history", {}, "Invalid parameters: Object missing required field `sessionKey`"),
    (
        "sessions_history",
        {"sessionKey": 5},
        "Invalid parameters: Expected `str`, got `int` - at `$.sessionKey`",
    ),
    (
        "sessions_history",
        {"sessionKey": "current", "limit": 501},
        "Invalid parameters: Expected `int` <= 500 - at `$.limit`",
    ),
    (
        "sessions_history",
        {"sessionKey": ""},
        "'' is not a session key: it looks like subagent:<uuid>",
    ),
    ("sessions_history", {"sessionKey": "x" * 5_000}, "'xxxx"),
    (
        "sessions_history",
        {"sessionKey": NOBODY},
        f"session '{NOBODY}' not found among those you have spawned. Use sessions_list to see them",
    ),
    ("sessions_send", {}, "Invalid parameters: Object missing required field `message`"),
    ("sessions_send", {"message": "x"}, "Invalid parameters: give either sessionKey or label"),
    (
        "sessions_send",
        {"message": "x", "sessionKey": NOBODY, "label": "y"},
        "Invalid parameters: give either sessionKey or label",
    ),
    (
        "sessions_send",
        {"message": " ", "label": "y"},
        "Invalid parameters: message must have 1 to 32000 characters",
    ),
    (
        "sessions_send",
        {"message": "é" * 32_001, "label": "y"},
        "Invalid parameters: message must have 1 to 32000 characters",
    ),
    (
        "sessions_send",
        {"message": "é" * 4_001, "label": "y", "steer": True},
        "Invalid parameters: message must have 1 to 4000 characters",
    ),
    ("sessions_send", {"message": "x", "sessionKey": NOBODY}, f"session '{NOBODY}' not found"),
    ("sessions_send", {"message": "x", "sessionKey": "nobody"}, "'nobody' is not a session key"),
    (
        "sessions_send",
        {"message": "x", "steer": 1},
        "Invalid parameters: Expected `bool`, got `int` - at `$.steer`",
    ),
    (
        "sessions_yield",
        {"message": 5},
        "Invalid parameters: Expected `str`, got `int` - at `$.message`",
    ),
    (
        "sessions_yield",
        {"seconds": 5},
        "Invalid parameters: unknown parameter 'seconds'. Known: message",
    ),
]


@pytest.mark.parametrize(("name", "args", "says"), BAD_TALK, ids=lambda x: str(x)[:40])
@on_virtual_time
async def test_other_malformed_calls_are_refused_in_words(
    name: str, args: dict[str, Any], says: str
) -> None:
    text = await refusal(call(name, **args))
    assert text.startswith(says)
    assert len(text) < 400


@on_virtual_time
async def test_what_is_allowed_at_the_limits_is_taken() -> None:
    world = World(
        [
            spawn("say x", timeoutSeconds=86_400, runTimeoutSeconds=86_400),
            call("sessions_list", limit=200, messageLimit=20, activeMinutes=1e12),
            call("sessions_history", sessionKey="current", limit=500),
        ],
        spawn("after 9 say y", label="y"),
        call("sessions_send", label="y", message="é" * 32_000),
        call("sessions_send", label="y", message="é" * 4_000, steer=True),
    )
    await world.go()
    messages = [m for m in world.of_lead[-1].messages if isinstance(m, ToolMessage)]
    assert [m.error for m in messages] == [False] * 6
    assert results(world.of_lead[-1].messages)[0]["status"] == "ok"
