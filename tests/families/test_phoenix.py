"""The profile `phoenix` is its document: the parent's plain tools, one aggregate a turn, nobody
speaks meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import Agent, Retinue
from retinue.config import read_config
from retinue.core.events import ChildEnded
from retinue.core.messages import AssistantMessage, ToolMessage
from retinue.errors import ConfigError, ModelRejected, Refused
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.testing import Scripted, call
from retinue.tools.families.family_states import KINDS
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import STORES, Home, on_virtual_time
from tests.families.fanout_world import (
    Cast,
    failure,
    lead,
    play,
    played,
    reader,
    results,
    spawn,
    task_of,
    writer,
)


def phoenix(cast: Cast, **settings: Any) -> Agent:
    return Agent(
        "lead",
        "Lead them.",
        model=Scripted(cast, name="big"),
        tools=[reader(), writer()],
        families=[family("phoenix", **settings)],
    )


def after(**seconds: float) -> Any:
    async def child(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds.get(task_of(request), 0))
        return call("submit_result", result=f"did {task_of(request)}")

    return child


@on_virtual_time
async def test_a_sub_agent_has_the_plain_tools_of_its_parent_and_no_mode() -> None:
    cast = Cast([spawn("a", "b"), "thanks"])
    scene = await play(phoenix(cast))
    assert [r["task"] for r in scene.json] == ["a", "b"]
    for request in cast.of_children:
        assert {t.name for t in request.tools} == {
            "look",
            "write",
            "artifact",
            "submit_result",
            "submit_error",
        }
        assert "only look" not in request.instructions


def test_the_tools_are_those_of_the_document() -> None:
    result = family("phoenix")
    (tool,) = result.tools()
    (tasks,) = tool.schema.parameters["properties"].values()
    assert tool.schema.parameters["required"] == ["tasks"]
    assert (tasks["minItems"], list(tasks["items"]["properties"])) == (1, ["task", "cwd"])
    assert tasks["items"]["required"] == ["task"]
    for tool, field in zip(result.helper_tools(), ("result", "error"), strict=True):
        (text,) = tool.schema.parameters["properties"].items()
        assert (text[0], text[1]["type"]) == (field, "string")
        assert len(text[1]["description"]) > 20
        assert tool.schema.parameters["required"] == [field]


@pytest.mark.parametrize(
    "field", [{"mode": "work"}, {"model": "big"}, {"max_turns": 3}, {"read_first": ["x"]}]
)
@on_virtual_time
async def test_what_the_document_does_not_offer_is_an_unknown_field(field: dict[str, Any]) -> None:
    scene = await play(phoenix(Cast([spawn({"task": "a", **field}), "thanks"])))
    (name,) = field
    assert (
        scene.refusal
        == f"Invalid input: unknown field `{name}` - at `$.tasks[0]`. Known fields: task, cwd"
    )


@on_virtual_time
async def test_the_calls_of_a_turn_get_one_aggregate_of_all_results() -> None:
    cast = Cast([[spawn("a", "b"), call("look"), spawn("c")], "thanks"], after(a=20, b=10, c=5))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(15)
        assert [
            m.name for m in (await retinue.messages(run))[2:] if isinstance(m, ToolMessage)
        ] == ["look"]

    scene = await play(phoenix(cast), then)
    assert len(cast.of_lead) == 2, "the turn waits once"
    first, last = (r for r in scene.told if r.name == "spawn_agents")
    assert [r["task"] for r in results(last)] == ["c", "b", "a"]
    assert first.text.startswith("Spawning 2 sub-agent(s): ")
    ids = [r["agent_id"] for r in results(last) if r["task"] != "c"]
    assert all(id in first.text for id in ids) and last.call_id in first.text
    assert {r.call_id for r in scene.told} == {c.id for c in _calls(cast.of_lead[1])}


def _calls(request: ModelRequest) -> list[Any]:
    return [c for m in request.messages if isinstance(m, AssistantMessage) for c in m.calls]


@on_virtual_time
async def test_an_aggregate_stands_in_the_last_call_that_started_somebody() -> None:
    scene = await play(phoenix(Cast([[spawn("a"), spawn("b"), spawn()], "thanks"])))
    first, second, wrong = sorted(scene.told, key=lambda r: r.call_id)
    assert wrong.error and first.text.startswith("Spawning 1 sub-agent(s): ")
    assert sorted(r["task"] for r in results(second)) == ["a", "b"]


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_death_at_any_end_leaves_one_aggregate(kind: str, tmp_path: Path) -> None:
    """The process dies right after each of the three ends."""
    for nth in range(1, 4):
        (tmp_path / f"{nth}").mkdir()
        home = Home(kind, tmp_path / f"{nth}")
        cast = Cast([[spawn("a", "b"), spawn("c")], "thanks"], after(a=20, b=10, c=5))
        agent = phoenix(cast)
        async with home.open(agents=[agent]) as retinue:
            run, n_seen = await retinue.spawn(agent, "Go."), 0
            async for step in retinue.steps(run, tree=False, deltas=True):
                n_seen += isinstance(step, Step) and isinstance(step.entry.event, ChildEnded)
                if n_seen >= nth:
                    break
        async with home.open(agents=[agent]) as retinue:
            scene = await played(retinue, run)
            assert await retinue.verify() == []
        first, last = scene.told
        assert first.text.startswith("Spawning 2 sub-agent(s): ")
        assert [r["task"] for r in results(last)] == ["c", "b", "a"]


@on_virtual_time
async def test_per_call_stays_the_other_setting() -> None:
    scene = await play(phoenix(Cast([[spawn("a", "b"), spawn("c")], "thanks"]), aggregate="call"))
    assert [
        sorted(r["task"] for r in results(one))
        for one in sorted(scene.told, key=lambda r: r.call_id)
    ] == [
        ["a", "b"],
        ["c"],
    ]


@pytest.mark.parametrize("steer", [False, True])
@on_virtual_time
async def test_a_message_to_a_lead_that_waits_is_refused_as_busy(steer: bool) -> None:
    cast = Cast([spawn("a"), "thanks"], after(a=20))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        with pytest.raises(Refused, match="is waiting for its children"):
            await retinue.send(run, "hello?", steer=steer)
        (child,) = (await retinue.tree(run)).children
        await retinue.send(child.id, "hurry")

    scene = await play(phoenix(cast), then)
    assert [r["task"] for r in scene.json] == ["a"]
    assert not any("hello?" in m.text for m in cast.of_lead[-1].messages)


@on_virtual_time
async def test_a_message_is_kept_where_the_settings_say_so() -> None:
    cast = Cast([spawn("a"), "thanks"], after(a=20))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        await retinue.send(run, "hello?")

    await play(phoenix(cast, while_waiting="keep"), then)
    assert any("hello?" in m.text for m in cast.of_lead[-1].messages)


def mixed(request: ModelRequest) -> Any:
    return [call("submit_result", result="x"), call("look")] if request.turn == 0 else "in the end"


@on_virtual_time
async def test_a_submission_beside_other_calls_is_asked_again_or_fails_when_that_is_strict() -> (
    None
):
    scene = await play(phoenix(Cast([spawn("a"), "thanks"], mixed)))
    assert scene.json[0]["outcome"] == {"success": {"result": "in the end"}}
    strict = await play(phoenix(Cast([spawn("a"), "thanks"], mixed), strict=True))
    error, kind = failure(strict)
    assert kind == "sub_agent_error"
    assert (
        "submit_result was called together with other calls, and must be the only call in a reply"
    ) in error
    (child,) = strict.ends.values()
    assert (child.state, child.usage.turns) == ("failed", 1)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("not_found", "invalid_request"),
        ("bad_schema", "invalid_request"),
        ("invalid_request", "invalid_request"),
        ("too_large", "context_exhausted"),
        ("forbidden", "auth"),
        ("tls", "network"),
        ("response_too_large", "server_error"),
        ("anything", "sub_agent_error"),
    ],
)
@on_virtual_time
async def test_every_refusal_of_a_provider_is_one_of_the_documents_kinds(
    kind: str, text: str
) -> None:
    assert text in KINDS
    scene = await play(lead(Cast([spawn("a"), "thanks"], lambda q: ModelRejected("no", kind=kind))))
    assert failure(scene)[1] == text


@on_virtual_time
async def test_a_directory_that_does_not_exist_is_an_error_of_the_spawn(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for cwd in ("nowhere", "file", str(tmp_path / "gone"), "no\0where"):
        cast = Cast([spawn("a", {"task": "b", "cwd": cwd}), "thanks"])
        scene = await play(phoenix(cast), cwd=str(tmp_path))
        assert (
            scene.refusal
            == f"tasks[1].cwd {cwd!r} is not an existing directory. Name one, or omit it"
        )


@on_virtual_time
async def test_a_file_that_names_the_profile_gives_the_document_and_what_it_sets(
    tmp_path: Path,
) -> None:
    (tmp_path / "retinue.toml").write_text(
        'profiles = ["phoenix"]\n\n[families.fanout]\nmax_tasks = 2\n'
    )
    (result,) = read_config(tmp_path / "retinue.toml").families
    assert msgspec.structs.asdict(result.settings) == {
        **msgspec.structs.asdict(family("phoenix").settings),
        "max_tasks": 2,
    }
    cast = Cast([spawn("a", "b", "c"), "thanks"])
    agent = Agent("lead", model=Scripted(cast, name="big"), tools=[reader()], families=[result])
    assert (await play(agent)).refusal == "At most 2 tasks in one call, not 3"
    with pytest.raises(ConfigError, match="task_fields"):
        family("phoenix", task_fields=["timeout"])
