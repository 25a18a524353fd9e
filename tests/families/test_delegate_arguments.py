"""What `delegate_tasks` refuses, in which order and words; every refusal is a result that the model
can act on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue import Agent
from retinue.core.messages import ToolCall
from retinue.testing import call
from retinue.tools.families.delegate.delegate_family import DelegateFamily
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.delegate_world import Recorder, World, parallel, task

GOOD = task("a")


async def told(*lines: Any, **settings: Any) -> tuple[list[str], World]:
    """The results that the lead gets for its calls; nobody was started and nothing was
    announced."""
    world, channel = World(*lines, **settings), Recorder()
    await world.go(channel, seconds=1)
    assert channel.texts == []
    assert all(r.agent == "lead" for r in world.requests)
    return world.results, world


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "Missing 'mode' parameter"),
        ({"mode": 7, "tasks": [GOOD]}, "Missing 'mode' parameter"),
        ({"mode": None, "tasks": [GOOD]}, "Missing 'mode' parameter"),
        (
            {"mode": "serial", "tasks": [GOOD]},
            "Invalid mode 'serial'. Must be 'parallel' or 'background'.",
        ),
        (
            {"mode": "Parallel", "tasks": [GOOD]},
            "Invalid mode 'Parallel'. Must be 'parallel' or 'background'.",
        ),
        ({"mode": "parallel"}, "Missing or invalid 'tasks' parameter"),
        ({"mode": "parallel", "tasks": {"a": 1}}, "Missing or invalid 'tasks' parameter"),
        ({"mode": "parallel", "tasks": json.dumps([GOOD])}, "Missing or invalid 'tasks' parameter"),
        ({"mode": "parallel", "tasks": []}, "'tasks' array cannot be empty"),
        ({"mode": "background", "tasks": []}, "'tasks' array cannot be empty"),
        ({"mode": "parallel", "tasks": [{"prompt": "p", "tools": []}]}, "Task 0 missing 'task_id'"),
        (
            {"mode": "parallel", "tasks": [GOOD, {"task_id": 3, "prompt": "p", "tools": []}]},
            "Task 1 missing 'task_id'",
        ),
        ({"mode": "parallel", "tasks": [task(" ")]}, "Task 0 missing 'task_id'"),
        ({"mode": "parallel", "tasks": [{"task_id": "a", "tools": []}]}, "Task 0 missing 'prompt'"),
        ({"mode": "parallel", "tasks": [task("a", " ")]}, "Task 0 missing 'prompt'"),
        (
            {"mode": "parallel", "tasks": [{"task_id": "a", "prompt": "p"}]},
            "Task 0 missing 'tools'",
        ),
        ({"mode": "parallel", "tasks": [{**GOOD, "tools": "look_up"}]}, "Task 0 missing 'tools'"),
        ({"mode": "parallel", "tasks": ["do it"]}, "Task 0 missing 'task_id'"),
        ({"mode": "parallel", "tasks": [json.dumps(GOOD)]}, "Task 0 missing 'task_id'"),
        ({"mode": "parallel", "tasks": [[[GOOD]]]}, "Task 0 missing 'task_id'"),
    ],
)
@on_virtual_time
async def test_what_is_missing_or_malformed_is_named_in_the_words_of_the_document(
    args: Any, text: str
) -> None:
    assert (await told(call("delegate_tasks", **args)))[0] == [text]


@pytest.mark.parametrize("mode", ["parallel", "background"])
@on_virtual_time
async def test_an_eleventh_task_is_refused(mode: str) -> None:
    tasks = [task(f"t{n}") for n in range(11)]
    results, _ = await told(call("delegate_tasks", mode=mode, tasks=tasks))
    assert results == ["Too many sub-tasks: 11 (max 10)"]


@on_virtual_time
async def test_ten_tasks_are_taken() -> None:
    world = World(parallel(*(f"t{n}" for n in range(10))))
    await world.go()
    assert world.results[0].count("(completed)") == 10


@on_virtual_time
async def test_checks_come_in_the_order_of_the_document() -> None:
    bad = {"mode": "serial", "tasks": "x"}
    many = [{**task("a"), "odd": 1} for _ in range(3)]
    lines = [
        {"tasks": "x", "odd": 1},
        bad,
        {**bad, "mode": "background"},
        {"mode": "background", "tasks": [], "odd": 1},
        {"mode": "background", "tasks": [{}] * 3},
        {"mode": "background", "tasks": [{"task_id": "a"}] * 3},
        {"mode": "background", "tasks": [{"task_id": "a", "prompt": "p"}] * 3},
        {"mode": "background", "tasks": many, "odd": 1},
        {"mode": "background", "tasks": many[:2], "odd": 1},
        {"mode": "background", "tasks": many[:2]},
        {"mode": "background", "tasks": [task("a", tools=["nothing"])] * 2},
    ]
    results, _ = await told(
        [call("delegate_tasks", **a) for a in lines], max_subtasks_per_request=2
    )
    heads = [
        "Missing 'mode'",
        "Invalid mode",
        "Missing or invalid 'tasks'",
        "'tasks' array",
        "Task 0 missing 'task_id'",
        "Task 0 missing 'prompt'",
        "Task 0 missing 'tools'",
        "Too many sub-tasks: 3 (max 2)",
        "unknown field 'odd'",
        "Task 0: unknown field 'odd'",
        "Duplicate task_id",
    ]
    assert [r[: len(h)] for r, h in zip(results, heads, strict=True)] == heads


@on_virtual_time
async def test_wrong_arguments_are_reported_before_a_full_set_of_groups() -> None:
    busy = [task("x", "after 100 say x")]
    first = call("delegate_tasks", mode="background", tasks=busy)
    second = [
        call("delegate_tasks", mode="background", tasks=[task(f"t{n}") for n in range(11)]),
        call("delegate_tasks", mode="background", tasks=[task("y")]),
    ]
    world = World(first, second, max_background_groups=1)
    await world.go()
    assert world.results[1:] == [
        "Too many sub-tasks: 11 (max 10)",
        "Too many background task groups running: 1 (max 1)",
    ]


@on_virtual_time
async def test_unknown_fields_are_named_together_with_the_known_ones() -> None:
    results, _ = await told(
        [
            call("delegate_tasks", mode="parallel", tasks=[GOOD], timeout=5),
            call(
                "delegate_tasks", mode="parallel", tasks=[GOOD, {**task("b"), "allowed_tools": []}]
            ),
        ]
    )
    assert results == [
        "unknown field 'timeout'. Known fields: mode, tasks",
        "Task 1: unknown field 'allowed_tools'. Known fields: task_id, prompt, tools, "
        "context_summary, model",
    ]


@on_virtual_time
async def test_optional_fields_must_be_texts_and_null_is_as_good_as_absent() -> None:
    calls = [
        parallel(task("a", context_summary={"x": 1})),
        parallel(task("a", model=["m"])),
    ]
    results, _ = await told(calls)
    assert [
        r.startswith("Task 0: Expected `str`") and name in r
        for r, name in zip(results, ("summary", "model"), strict=True)
    ]
    world = World(parallel(task("a", context_summary=None, model=None)))
    assert "### a (completed)" in await world.go()


@on_virtual_time
async def test_two_tasks_of_a_call_cannot_have_one_id() -> None:
    results, _ = await told(parallel("a", "b", "a"))
    assert results == ["Duplicate task_id 'a': tasks 0 and 2. Give each task its own id."]


@pytest.mark.parametrize("id", ["two\nlines", "x" * 201, "bell\x07"])
@on_virtual_time
async def test_an_id_that_would_break_a_heading_is_refused(id: str) -> None:
    results, _ = await told(parallel(task(id, "p")))
    assert results == ["Task 0: 'task_id' must be one line of at most 200 characters"]


@on_virtual_time
async def test_a_tool_that_the_lead_does_not_have_is_named_with_those_there_are() -> None:
    world = World(parallel("a", task("b", tools=["look_up", "rocket"])))
    assert (await world.go()).endswith(
        "### b (completed)\nb\n\n(It was not given 'rocket': unknown tool. Available: "
        "look_up, write_down, artifact)"
    )


@on_virtual_time
async def test_entries_that_are_no_names_are_dropped_from_a_list_of_tools() -> None:
    world = World(parallel(task("a", tools=[1, None, {"x": []}, "look_up", "look_up"])))
    await world.go()
    assert [t.name for t in world.of("say a")[0].tools] == ["look_up"]


@pytest.mark.parametrize("mode", ["parallel", "background"])
@on_virtual_time
async def test_the_tools_of_the_family_are_stripped_from_every_list(mode: str) -> None:
    value = task("a", tools=["delegate_tasks", "look_up", "cancel_tasks"])
    world = World(
        call("delegate_tasks", mode=mode, tasks=[value, task("b", tools=["delegate_tasks"])])
    )
    await world.go()
    assert [[t.name for t in world.of(f"say {x}")[0].tools] for x in "ab"] == [["look_up"], []]


@pytest.mark.parametrize(
    "args", ["{", "[]", '"x"', '{"mode": "parallel", "mode": "background"}', "[" * 100]
)
@on_virtual_time
async def test_arguments_that_are_no_object_are_an_error_that_says_so(args: str) -> None:
    results, _ = await told(ToolCall(id="", name="delegate_tasks", arguments_json=args))
    assert results[0].startswith("Invalid parameters: ")


@on_virtual_time
async def test_refusals_are_marked_as_errors_and_the_lead_goes_on() -> None:
    _, world = await told(call("delegate_tasks"))
    answer = world.requests[-1].messages[-1]
    assert answer.error, "a provider shows it as a failed call"  # type: ignore[union-attr]


@on_virtual_time
async def test_the_tool_without_its_family_says_that_it_is_not_initialized() -> None:
    world = World(parallel("a"))
    world.lead = Agent("bare", model=world.model, tools=family("delegate").tools())
    assert await world.go() == "Orchestrator registry not initialized"
    world.lines = (call("delegate_tasks"),)
    assert await world.go() == "Orchestrator registry not initialized", (
        "before anything else is looked at"
    )


def test_the_schema_is_that_of_the_document_and_says_what_may_be_left_out() -> None:
    tool, *more = DelegateFamily().tools()
    schema = tool.schema.parameters
    tasks = schema["properties"]["tasks"]
    assert (tool.schema.name, [t.schema.name for t in more]) == (
        "delegate_tasks",
        ["cancel_tasks", "list_tasks"],
    )
    assert schema["properties"]["mode"]["enum"] == ["parallel", "background"]
    assert schema["required"] == ["mode", "tasks"]
    assert (tasks["type"], tasks["minItems"], tasks["maxItems"]) == ("array", 1, 10)
    assert tasks["items"]["required"] == ["task_id", "prompt", "tools"]
    assert list(tasks["items"]["properties"]) == [
        "task_id",
        "prompt",
        "context_summary",
        "tools",
        "model",
    ]
    assert tasks["items"]["properties"]["tools"]["items"] == {"type": "string"}
    assert "parallel" in tool.schema.description and "background" in tool.schema.description


def test_the_guide_says_when_to_delegate_and_that_polling_is_wrong() -> None:
    guide = DelegateFamily().guide
    assert "Use it for requests" in guide and "yourself" in guide and "Do not poll" in guide


@on_virtual_time
async def test_a_lead_with_the_family_reads_the_guide_unless_it_is_switched_off() -> None:
    texts = []
    for options, settings in (
        ({}, {}),
        ({}, {"guide": False}),
        ({"families": {"delegate": False}}, {}),
    ):
        world = World("done", **settings)
        await world.go(seconds=0, **options)
        names = [t.name for t in world.requests[0].tools]
        texts.append(("Do not poll" in world.requests[0].instructions, "delegate_tasks" in names))
    assert texts == [(True, True), (False, True), (False, False)]
