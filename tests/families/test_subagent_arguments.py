"""What a call may say: each limit, each error in its order and words, and what a model gets for
nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue import Permissions, Retinue
from retinue.core.messages import ToolCall
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.subagent_world import NESTING, PLAIN, Stage, many, one, task

TASK_FIELDS = "label, task_prompt, summary_prompt, allowed_tools, max_turns"


async def refused(args: dict[str, Any] | str, name: str = "subagent", **settings: Any) -> str:
    text = args if isinstance(args, str) else json.dumps(args)
    return (await Stage(ToolCall(id="c", name=name, arguments_json=text), **settings).go()).refusal


def good(**more: Any) -> dict[str, Any]:
    return {"label": "l", "task_prompt": "p", **more}


@on_virtual_time
async def test_the_schema_says_what_is_required_what_is_optional_and_which_turns_are_taken() -> (
    None
):
    one_tool, many_tool = family("subagent", default_max_turns=7).tools()
    schema = one_tool.schema.parameters
    assert one_tool.schema.name == "subagent"
    assert list(schema["properties"]) == [
        "label",
        "task_prompt",
        "summary_prompt",
        "allowed_tools",
        "max_turns",
    ]
    assert schema["required"] == ["label", "task_prompt"]
    turns = schema["properties"]["max_turns"]
    assert (turns["minimum"], turns["maximum"]) == (1, 50)
    assert "(7)" in turns["description"], "the default is the one that is set"
    assert schema["properties"]["allowed_tools"]["type"] == ["array", "null"]
    batch = many_tool.schema.parameters
    assert many_tool.schema.name == "parallel_subagent"
    assert list(batch["properties"]) == ["tasks", "max_concurrent", "fail_fast"]
    assert batch["required"] == ["tasks"]
    assert batch["properties"]["tasks"]["items"] == schema
    assert "(5)" in batch["properties"]["max_concurrent"]["description"]


@pytest.mark.parametrize("prompt", ["", " ", "\n\t "])
@on_virtual_time
async def test_an_empty_prompt_is_refused(prompt: str) -> None:
    assert await refused(good(task_prompt=prompt)) == "task_prompt cannot be empty"


@pytest.mark.parametrize("label", ["", " ", "\n\t "])
@on_virtual_time
async def test_an_empty_label_is_refused(label: str) -> None:
    assert await refused(good(label=label)) == "label cannot be empty"


@pytest.mark.parametrize("turns", [0, -1, 51, 10**9, 10**400])
@on_virtual_time
async def test_turns_below_1_and_above_50_are_refused(turns: int) -> None:
    assert await refused(good(max_turns=turns)) == "max_turns must be between 1 and 50"


@pytest.mark.parametrize("turns", [1, 50, None])
@on_virtual_time
async def test_turns_from_1_to_50_are_taken_and_null_is_the_default(turns: int | None) -> None:
    assert (await Stage(one("p", max_turns=turns)).go()).result["success"] is True


@pytest.mark.parametrize("name", ["subagent", "parallel_subagent"])
@on_virtual_time
async def test_a_list_of_tools_cannot_name_the_tools_that_start_others(name: str) -> None:
    expected = f"Subagent cannot have '{name}' in allowed_tools"
    assert await refused(good(allowed_tools=[name])) == expected
    assert await refused(good(allowed_tools=["nonsense", "look_up", name])) == expected, (
        "before unknown names"
    )


@pytest.mark.parametrize(
    "name", ["look-up", "", "LOOK_UP", "look_up ", "submit_result", "agent_spawn", "*"]
)
@on_virtual_time
async def test_an_unknown_tool_is_an_error_result_that_names_it(name: str) -> None:
    assert (
        await refused(good(allowed_tools=["look_up", name]))
        == f"Unknown tool in allowed_tools: {name}"
    )


@on_virtual_time
async def test_a_tool_that_was_taken_from_the_caller_is_unknown_to_it() -> None:
    stage = Stage(one("p", allowed_tools=["write_down"]))
    access = Permissions(deny=("write_down",))
    assert (
        await stage.go(permissions=access)
    ).refusal == "Unknown tool in allowed_tools: write_down"


@on_virtual_time
async def test_a_tool_that_was_taken_from_the_caller_while_it_ran_is_unknown_to_it() -> None:
    async def take(retinue: Retinue, run: str) -> None:
        await retinue.restrict(run, Permissions(deny=("write_down",)))

    stage = Stage(one("p", allowed_tools=["write_down"]), seconds=1.0)
    assert (await stage.go(take)).refusal == "Unknown tool in allowed_tools: write_down"


@on_virtual_time
async def test_the_first_thing_that_is_wrong_is_told_in_the_order_of_the_document() -> None:
    """Depth, quota, form, prompt, label, turns, tools that start others, unknown tools."""
    wrong = good(task_prompt=" ", label=" ", max_turns=0, allowed_tools=["nonsense", "subagent"])
    nonsense = {**wrong, "label": 5}
    deep: dict[str, Any] = {"max_depth": 1}
    assert (await refused(nonsense, max_executions=0, **deep)).startswith(
        "Maximum subagent recursion depth (1) exce"
    )
    assert (await refused(nonsense, max_executions=0)).startswith("Resource quota exceeded: ")
    assert (await refused(nonsense)).startswith("Invalid parameters: ")
    assert await refused(wrong) == "task_prompt cannot be empty"
    assert await refused({**wrong, "task_prompt": "p"}) == "label cannot be empty"
    assert (
        await refused({**wrong, "task_prompt": "p", "label": "l"})
        == "max_turns must be between 1 and 50"
    )
    assert (
        await refused({**wrong, **good(), "max_turns": 1})
        == "Subagent cannot have 'subagent' in allowed_tools"
    )
    last = {**wrong, **good(), "max_turns": 1, "allowed_tools": ["nonsense"]}
    assert await refused(last) == "Unknown tool in allowed_tools: nonsense"


MALFORMED: list[tuple[Any, str]] = [
    ({}, "missing required field `label`"),
    ({"label": "l"}, "missing required field `task_prompt`"),
    ({"task_prompt": "p"}, "missing required field `label`"),
    (good(label=None), "missing required field `label`"),
    (good(label=5), "Expected `str`, got `int` - at `$.label`"),
    (good(task_prompt={"text": "p"}), "Expected `str`, got `object` - at `$.task_prompt`"),
    (good(summary_prompt=["x"]), "`$.summary_prompt`"),
    (good(max_turns="5"), "`$.max_turns`"),
    (good(max_turns=5.5), "`$.max_turns`"),
    (good(max_turns=True), "`$.max_turns`"),
    (good(allowed_tools={"a": 1}), "`$.allowed_tools`"),
    (good(allowed_tools=["look_up", 5]), "`$.allowed_tools[1]`"),
    (good(allowed_tools="look_up"), "`allowed_tools` is a string but not valid JSON"),
    (good(prompt="p"), f"unknown field 'prompt'. Known fields: {TASK_FIELDS}"),
    ("[]", "must be a JSON object"),
    ("{", "not valid JSON"),
    ('{"label": "a", "label": "b"}', "duplicate key: label"),
    ('{"label": "l", "task_prompt": ' + "[" * 100 + "]" * 100 + "}", "nested more than"),
]


@pytest.mark.parametrize(("args", "says"), MALFORMED, ids=lambda x: str(x)[:40])
@on_virtual_time
async def test_malformed_arguments_are_told_with_what_was_expected(args: Any, says: str) -> None:
    text = await refused(args)
    assert text.startswith("Invalid parameters: ") and says in text


BATCHES: list[tuple[Any, str]] = [
    ({}, "missing required field `tasks`"),
    ({"tasks": None}, "missing required field `tasks`"),
    ({"tasks": {}}, "Expected `array`, got `object` - at `$.tasks`"),
    ({"tasks": ["p"]}, "Expected `object`, got `str` - at `$.tasks[0]`"),
    ({"tasks": "p"}, "`tasks` is a string but not valid JSON"),
    ({"tasks": [{"label": "l"}]}, "missing required field `task_prompt` - at `$.tasks[0]`"),
    (
        {"tasks": [good(), good(model="x")]},
        f"tasks[1]: unknown field 'model'. Known fields: {TASK_FIELDS}",
    ),
    (
        {"tasks": [good()], "parallel": 2},
        "unknown field 'parallel'. Known fields: tasks, max_concurrent, fail_fast",
    ),
    ({"tasks": [good()], "fail_fast": "yes"}, "Expected `bool`, got `str` - at `$.fail_fast`"),
    ({"tasks": [good()], "max_concurrent": 1.5}, "`$.max_concurrent`"),
]


@pytest.mark.parametrize(("args", "says"), BATCHES, ids=lambda x: str(x)[:40])
@on_virtual_time
async def test_a_malformed_batch_is_told_with_what_was_expected(args: Any, says: str) -> None:
    text = await refused(args, "parallel_subagent")
    assert text.startswith("Invalid parameters: ") and says in text


@on_virtual_time
async def test_a_list_that_was_written_as_a_string_is_read() -> None:
    stage = Stage(one("p", allowed_tools='["look_up"]'))
    assert (await stage.go()).result["success"] is True
    assert stage.offered("p") == {"look_up", "artifact"} | NESTING
    batch = many(task("p", allowed_tools='["look_up"]'))
    assert (await Stage(batch).go()).result["successful"] == 1
    text = ToolCall(
        id="c", name="parallel_subagent", arguments_json=json.dumps({"tasks": json.dumps([good()])})
    )
    assert (await Stage(text).go()).result["successful"] == 1


@on_virtual_time
async def test_null_is_the_same_as_nothing_for_whatever_is_optional() -> None:
    stage = Stage(one("p", summary_prompt=None, allowed_tools=None, max_turns=None))
    assert (await stage.go()).result["success"] is True
    assert stage.offered("p") == PLAIN | NESTING
    batch = many(
        task("p", summary_prompt=None, allowed_tools=None), max_concurrent=None, fail_fast=None
    )
    assert (await Stage(batch).go()).result["successful"] == 1


@on_virtual_time
async def test_a_batch_needs_a_task_and_room_for_one() -> None:
    assert await refused({"tasks": []}, "parallel_subagent") == "At least one task required"
    for n in (0, -5):
        args = {"tasks": [good()], "max_concurrent": n}
        assert await refused(args, "parallel_subagent") == "max_concurrent must be at least 1"
    result = await Stage(many("p", max_concurrent=10**400)).go()
    assert result.result["successful"] == 1


@on_virtual_time
async def test_a_mistake_in_one_task_of_a_batch_starts_nobody_and_says_which() -> None:
    cases = [
        (good(task_prompt=""), "task_prompt cannot be empty"),
        (good(label=""), "label cannot be empty"),
        (good(max_turns=51), "max_turns must be between 1 and 50"),
        (
            good(allowed_tools=["parallel_subagent"]),
            "Subagent cannot have 'parallel_subagent' in allowed_tools",
        ),
        (good(allowed_tools=["nonsense"]), "Unknown tool in allowed_tools: nonsense"),
    ]
    for wrong, says in cases:
        assert (
            await refused({"tasks": [good(), wrong, good()]}, "parallel_subagent")
            == f"tasks[1]: {says}"
        )


@on_virtual_time
async def test_a_batch_is_checked_in_the_same_order() -> None:
    nonsense = {"tasks": 5}
    text = await refused(nonsense, "parallel_subagent", max_executions=0, max_depth=1)
    assert text == "Maximum subagent depth 1 reached"
    text = await refused(nonsense, "parallel_subagent", max_executions=0)
    assert text.startswith("Resource quota exceeded: ")
    assert (await refused(nonsense, "parallel_subagent")).startswith("Invalid parameters: ")


@on_virtual_time
async def test_a_long_nonsense_gets_a_short_answer() -> None:
    text = await refused(good(allowed_tools=["é" * 100_000]))
    assert text.startswith("Unknown tool in allowed_tools: é") and len(text) < 5_000


@on_virtual_time
async def test_labels_and_prompts_may_be_anything_else() -> None:
    label = "ünï😀 \u202e\x00\n{label} {text}"
    result = await Stage(one("p" * 50_000, label)).go()
    assert result.result["metadata"]["subagent_label"] == label
    both = (await Stage(many(task("a", "same"), task("b", "same"))).go()).result["results"]
    assert [line["output"] for line in both] == ["sum of a", "sum of b"], "labels need not differ"


@on_virtual_time
async def test_after_a_refusal_the_model_can_try_again() -> None:
    stage = Stage(one(" ", "l"), one("p", allowed_tools=["nonsense"]), one("p"))
    result = await stage.go()
    assert [r.error for r in result.told] == [True, True, False]
    assert len(result.outcome.children) == 1
