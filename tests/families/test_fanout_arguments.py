"""What a model may write into a call of `spawn_agents`, and what it is told when something is wrong
with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Context, Permissions
from retinue.core.messages import ToolCall
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from retinue.tools.families.fanout.fanout_texts import EMPTY
from tests.api.scripted_agents import on_virtual_time
from tests.families.fanout_world import Cast, lead, play, reader, spawn, writer

FIELDS = "Known fields: task, mode, cwd, model, max_turns, read_first"


def written(args: Any) -> ToolCall:
    return ToolCall(
        id="",
        name="spawn_agents",
        arguments_json=args if isinstance(args, str) else json.dumps(args),
    )


def one(**fields: Any) -> dict[str, Any]:
    return {"tasks": [{"task": "a", **fields}]}


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "Invalid input: Object missing required field `tasks`"),
        ("", "Invalid input: Object missing required field `tasks`"),
        ("{", "Invalid input: the arguments are not valid JSON"),
        ("[]", "Invalid input: the arguments must be a JSON object, not list"),
        ({"tasks": None}, "Invalid input: Expected `array`, got `null` - at `$.tasks`"),
        ({"tasks": {"task": "a"}}, "Invalid input: Expected `array`, got `object` - at `$.tasks`"),
        ({"tasks": 7}, "Invalid input: Expected `array`, got `int` - at `$.tasks`"),
        ({"tasks": "do it"}, "Invalid input: `tasks` is a string but not valid JSON"),
        ({"tasks": ["do it"]}, "Invalid input: Expected `object`, got `str` - at `$.tasks[0]`"),
        (
            {"tasks": ['{"task": "a"}']},
            "Invalid input: Expected `object`, got `str` - at `$.tasks[0]`",
        ),
        ({"tasks": [[["a"]]]}, "Invalid input: Expected `object`, got `array` - at `$.tasks[0]`"),
        ({"tasks": [{}]}, "Invalid input: Object missing required field `task` - at `$.tasks[0]`"),
        (
            {"tasks": [{"task": 7}]},
            "Invalid input: Expected `str`, got `int` - at `$.tasks[0].task`",
        ),
        (
            {"tasks": [{"task": {"deep": ["er"]}}]},
            "Expected `str`, got `object` - at `$.tasks[0].task`",
        ),
        (
            {"tasks": [{"task": "a"}, {"task": " \n"}]},
            "Invalid input: the task is empty - at `$.tasks[1].task`",
        ),
        ({"tasks": [{"task": "a"}], "wait": True}, "unknown field `wait`. Known fields: tasks"),
        (one(timeout_seconds=5), "Invalid input: Object contains unknown field `timeout_seconds`"),
        (one(timeout_seconds=5), FIELDS),
        (
            one(mode="plan"),
            "Invalid enum value 'plan' - at `$.tasks[0].mode`. Known modes: explore, work",
        ),
        (one(mode=["work"]), "at `$.tasks[0].mode`"),
        (one(cwd=7), "Invalid input: Expected `str | null`, got `int` - at `$.tasks[0].cwd`"),
        (one(model={"name": "big"}), "at `$.tasks[0].model`"),
        (one(max_turns=0), "Invalid input: Expected `int` >= 1 - at `$.tasks[0].max_turns`"),
        (one(max_turns=-3), "Invalid input: Expected `int` >= 1 - at `$.tasks[0].max_turns`"),
        (one(max_turns=1_001), "Invalid input: Expected `int` <= 1000 - at `$.tasks[0].max_turns`"),
        (one(max_turns=10**30), "Invalid input"),
        (
            one(max_turns="5"),
            "Invalid input: Expected `int | null`, got `str` - at `$.tasks[0].max_turns`",
        ),
        (
            one(max_turns=2.5),
            "Invalid input: Expected `int | null`, got `float` - at `$.tasks[0].max_turns`",
        ),
        (
            one(read_first="a.txt"),
            "Invalid input: Expected `array | null`, got `str` - at `$.tasks[0].read_first`",
        ),
        (
            one(read_first=[7]),
            "Invalid input: Expected `str`, got `int` - at `$.tasks[0].read_first[0]`",
        ),
        (
            one(read_first=["f"] * 21),
            "Invalid input: at most 20 files in read_first - at `$.tasks[0].read_first`",
        ),
        ({"tasks": []}, EMPTY),
        ({"tasks": "[]"}, EMPTY),
    ],
)
@on_virtual_time
async def test_what_is_wrong_with_a_call_is_an_error_that_says_what(args: Any, text: str) -> None:
    scene = await play(lead(Cast([written(args), "I see."])))
    assert text in scene.refusal
    assert scene.outcome.text == "I see."


def test_the_error_for_no_tasks_is_the_documents() -> None:
    assert EMPTY == "At least one task is required"


@on_virtual_time
async def test_tasks_that_were_written_as_a_string_are_taken() -> None:
    scene = await play(lead(Cast([written({"tasks": json.dumps([{"task": "a"}])}), "thanks"])))
    assert [r["task"] for r in scene.json] == ["a"]


@on_virtual_time
async def test_null_and_blank_are_the_same_as_absent() -> None:
    nothing: dict[str, Any] = {
        "mode": None,
        "cwd": None,
        "model": None,
        "max_turns": None,
        "read_first": None,
    }
    blank: dict[str, Any] = {"cwd": "", "model": "", "read_first": []}
    contexts: list[Context] = []
    cast = Cast([spawn({"task": "a", **nothing}, {"task": "b", **blank}), "thanks"], look_once)
    scene = await play(lead(cast, tools=[reader(contexts), writer()]), cwd="/site")
    assert [list(r["outcome"]) for r in scene.json] == [["success"], ["success"]]
    for caller in contexts:
        order = caller.spec.request
        assert (order.cwd, order.model, order.max_turns, order.history.text) == (
            "/site",
            "",
            20,
            "",
        )
        assert caller.spec.permissions.write == ()


def look_once(request: ModelRequest) -> Any:
    return call("look") if request.turn == 0 else call("submit_result", result="x")


@on_virtual_time
async def test_ten_tasks_are_taken_and_eleven_are_not() -> None:
    scene = await play(lead(Cast([spawn(*"abcdefghij"), "thanks"])))
    assert len(scene.json) == 10
    scene = await play(lead(Cast([spawn(*"abcdefghijk"), "thanks"])))
    assert scene.refusal == "At most 10 tasks in one call, not 11"
    scene = await play(lead(Cast([spawn(*"abc"), "thanks"]), max_tasks=2))
    assert scene.refusal == "At most 2 tasks in one call, not 3"


@on_virtual_time
async def test_several_calls_of_a_turn_may_have_ten_tasks_each() -> None:
    scene = await play(lead(Cast([[spawn(*"abcdefghij"), spawn(*"abcdefghij")], "thanks"])))
    assert len(scene.outcome.children) == 20


@pytest.mark.parametrize(
    "bad", [{"model": "huge"}, {"read_first": ["nowhere.txt"]}, {"cwd": "/elsewhere"}]
)
@on_virtual_time
async def test_one_bad_task_starts_nobody(bad: dict[str, Any]) -> None:
    cast = Cast([spawn("a", "b", {"task": "c", **bad}), "thanks"])
    scene = await play(lead(cast), cwd="/site")
    assert scene.refusal
    assert cast.of_children == []


@on_virtual_time
async def test_a_limit_of_the_runtime_starts_nobody_either() -> None:
    cast = Cast([spawn("a", "b", "c"), "thanks"])
    scene = await play(lead(cast), permissions=Permissions(fanout=2))
    assert "Refused (children)" in scene.refusal
    scene = await play(lead(cast), permissions=Permissions(depth=0))
    assert "Refused (depth)" in scene.refusal


def real(path: Path) -> str:
    return os.path.realpath(path)


@on_virtual_time
async def test_a_child_works_in_its_parents_directory_unless_told_otherwise(tmp_path: Path) -> None:
    site = real(tmp_path)
    for name in ("src", "docs", "lib"):
        (tmp_path / name).mkdir()
    contexts: list[Context] = []
    places: list[dict[str, Any]] = [
        {},
        {"cwd": "src"},
        {"cwd": f"{site}/docs"},
        {"cwd": "src/../lib"},
    ]
    cast = Cast([spawn(*({"task": "a", **p} for p in places)), "thanks"], look_once)
    await play(lead(cast, tools=[reader(contexts)]), cwd=site)
    assert [c.cwd for c in contexts] == [site, f"{site}/src", f"{site}/docs", f"{site}/lib"]
    assert f"Your working directory is {site}/src." in cast.of_children[1].instructions
    assert len({q.instructions for q in cast.of_children}) == 4


@pytest.mark.parametrize(
    ("read", "question"), [(None, "../"), (None, "/site2"), (("/data",), "/etc"), ((), "/etc")]
)
@on_virtual_time
async def test_a_directory_outside_the_parents_is_refused(read: Any, question: str) -> None:
    cast = Cast([spawn({"task": "a", "cwd": question}), "thanks"])
    scene = await play(lead(cast), cwd="/site", permissions=Permissions(read=read))
    assert scene.refusal.startswith(
        f"tasks[0].cwd {question!r} is outside your working directory. Use one inside /site"
    )


@on_virtual_time
async def test_a_directory_that_may_be_read_can_be_worked_in(tmp_path: Path) -> None:
    contexts: list[Context] = []
    site, data = (real(tmp_path / name) for name in ("site", "data"))
    for place in (f"{site}/sub", f"{data}/set"):
        os.makedirs(place)
    for cwd, read, path in [
        (site, (data,), f"{data}/set"),
        (site, None, "sub"),
        ("", (data,), data),
    ]:
        cast = Cast([spawn({"task": "a", "cwd": path}), "thanks"], look_once)
        await play(
            lead(cast, tools=[reader(contexts)]), cwd=cwd, permissions=Permissions(read=read)
        )
    assert [c.cwd for c in contexts] == [f"{data}/set", f"{site}/sub", data]
    for read in ((), None):
        cast = Cast([spawn({"task": "a", "cwd": "/anywhere"}), "thanks"])
        scene = await play(lead(cast), permissions=Permissions(read=read))
        assert "is outside your working directory" in scene.refusal


def with_small(cast: Cast, **settings: Any) -> Agent:
    """A lead that knows a second model."""
    return lead(cast, staff=[Agent("spare", model=Scripted(cast, name="small"))], **settings)


@on_virtual_time
async def test_a_task_may_have_its_own_model() -> None:
    cast = Cast(
        [spawn("a", {"task": "b", "model": "small"}, {"task": "c", "model": "big"}), "thanks"]
    )
    scene = await play(with_small(cast))
    assert sorted((q.messages[0].text, q.model) for q in cast.of_children) == [
        ("a", "big"),
        ("b", "small"),
        ("c", "big"),
    ]
    assert [scene.ends[r["agent_id"]].model_used for r in scene.json] == ["big", "small", "big"]


@on_virtual_time
async def test_an_unknown_model_is_refused_with_a_list_of_those_there_are() -> None:
    cast = Cast([spawn("a", {"task": "b", "model": "huge"}), "thanks"])
    assert (
        await play(with_small(cast))
    ).refusal == "tasks[1]: unknown model 'huge'. Available models: big, small"
    scene = await play(with_small(cast), permissions=Permissions(models=("big",)))
    assert scene.refusal == "tasks[1]: unknown model 'huge'. Available models: big"


@on_virtual_time
async def test_a_model_that_the_parent_may_not_use_is_not_lent() -> None:
    cast = Cast([spawn({"task": "b", "model": "small"}), "thanks"])
    scene = await play(with_small(cast), permissions=Permissions(models=("big",)))
    assert scene.refusal == "tasks[0]: unknown model 'small'. Available models: big"


@on_virtual_time
async def test_explorers_may_have_a_model_of_their_own_and_writers_have_their_parents() -> None:
    work = {"task": "b", "mode": "work"}
    cast = Cast([spawn("a", work, {"task": "c", "model": "big"}), "thanks"])
    await play(with_small(cast, explore_model="small"))
    assert {q.messages[0].text: q.model for q in cast.of_children} == {
        "a": "small",
        "b": "big",
        "c": "big",
    }


WORK = {"task": "a", "mode": "work"}


@pytest.mark.parametrize(
    ("args", "access", "text"),
    [
        ({"tasks": [], "extra": 1}, {}, "Invalid input"),
        ({"tasks": [{"task": ""}] * 11}, {}, "Invalid input"),
        ({"tasks": [WORK] * 11}, {"write": ()}, "At most 10 tasks"),
        (
            {"tasks": [WORK, WORK]},
            {"write": ()},
            "tasks[0] has mode 'work', but you cannot write yourself",
        ),
        (one(model="huge", cwd="/else"), {}, "unknown model"),
        (one(cwd="/else", read_first=["x"]), {}, "tasks[0].cwd"),
    ],
)
@on_virtual_time
async def test_what_is_wrong_is_told_in_the_order_of_the_document(
    args: Any, access: Any, text: str
) -> None:
    scene = await play(
        lead(Cast([written(args), "I see."])), cwd="/site", permissions=Permissions(**access)
    )
    assert text in scene.refusal
