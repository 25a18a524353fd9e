"""Several helpers at once: results in the order of the tasks, so many at a time, and a failure that
stops the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Limits, Retinue
from retinue.core.messages import AssistantMessage, ToolCall
from retinue.core.values import SpawnLimits
from retinue.testing import VirtualClock, call
from tests.api.scripted_agents import STORES, Home, ended, on_virtual_time
from tests.families.subagent_world import Stage, many, one, pause, played, results, task


def lines(batch: dict[str, Any]) -> list[tuple[str, bool, str]]:
    return [(line["label"], line["success"], line["output"]) for line in batch["results"]]


@on_virtual_time
async def test_a_batch_returns_a_line_for_each_task_and_the_totals() -> None:
    does = {"a": pause(30, "x"), "b": pause(10, "x")}
    result = await Stage(many(task("a", "first"), task("b", "second")), does=does).go()
    a, b = result.below["first"].usage, result.below["second"].usage
    assert result.result == {
        "results": [
            {
                "label": "first",
                "success": True,
                "output": "sum of a",
                "duration_ms": 30_000,
                "tokens_used": a.tokens,
            },
            {
                "label": "second",
                "success": True,
                "output": "sum of b",
                "duration_ms": 10_000,
                "tokens_used": b.tokens,
            },
        ],
        "total_duration_ms": 30_000,
        "successful": 2,
        "failed": 0,
    }
    assert a.tokens > 0


@on_virtual_time
async def test_results_stand_in_the_order_of_the_tasks_whoever_ends_first() -> None:
    does = {f"t{n}": pause(100 - n, "x") for n in range(12)}
    result = await Stage(many(*does, max_concurrent=12), does=does).go()
    assert [line["label"] for line in result.result["results"]] == list(does)


@pytest.mark.parametrize(
    ("values", "most"),
    [({}, 5), ({"max_concurrent": 1}, 1), ({"max_concurrent": 3}, 3), ({"max_concurrent": 99}, 12)],
)
@on_virtual_time
async def test_five_work_at_a_time_unless_told_otherwise(values: dict[str, Any], most: int) -> None:
    does = {f"t{n}": pause(10, "x") for n in range(12)}
    stage = Stage(many(*does, **values), does=does)
    result = await stage.go()
    assert stage.most == most
    assert result.result["successful"] == 12
    assert result.result["total_duration_ms"] == 10_000 * -(-12 // most)
    assert all(line["duration_ms"] == 10_000 for line in result.result["results"]), (
        "waiting is not working"
    )


@on_virtual_time
async def test_two_batches_of_one_turn_have_their_own_room() -> None:
    does = {f"t{n}": pause(10, "x") for n in range(8)}
    stage = Stage(
        [many(*list(does)[:4], max_concurrent=2), many(*list(does)[4:], max_concurrent=2)],
        does=does,
    )
    result = await stage.go()
    assert stage.most == 4
    assert [r["total_duration_ms"] for r in results(result.told)] == [20_000, 20_000]


@on_virtual_time
async def test_a_failure_leaves_the_others_alone_unless_asked() -> None:
    does = {"a": pause(5, RuntimeError("broken")), "b": pause(10, "x"), "c": pause(1, "x")}
    result = await Stage(many("a", "b", "c"), does=does).go()
    assert lines(result.result) == [
        ("a", False, ""),
        ("b", True, "sum of b"),
        ("c", True, "sum of c"),
    ]
    assert (
        result.result["results"][0]["error"]
        == "Subagent task execution failed: RuntimeError: broken"
    )
    assert (result.result["successful"], result.result["failed"]) == (2, 1)


@on_virtual_time
async def test_fail_fast_stops_the_others_at_once_and_keeps_every_result_in_order() -> None:
    does = {
        "done": pause(1, "x"),
        "busy": [call("look_up", word="x"), pause(1_000, "late")],
        "bad": pause(5, RuntimeError("broken")),
        "next": pause(1_000, "late"),
        "last": "never asked",
    }
    stage = Stage(many(*does, fail_fast=True, max_concurrent=3), does=does)
    result = await stage.go()
    assert result.result["total_duration_ms"] == 5_000, "nobody waits for those that were stopped"
    assert [line["label"] for line in result.result["results"]] == list(does)
    assert [line["success"] for line in result.result["results"]] == [
        True,
        False,
        False,
        False,
        False,
    ]
    errors = [line.get("error") for line in result.result["results"]]
    stopped = "Cancelled by fail_fast: bad failed"
    assert errors == [
        None,
        stopped,
        "Subagent task execution failed: RuntimeError: broken",
        stopped,
        stopped,
    ]
    assert (result.result["successful"], result.result["failed"]) == (1, 4)
    assert [result.below[p].state for p in does] == [
        "completed",
        "cancelled",
        "failed",
        "cancelled",
        "cancelled",
    ]
    assert result.result["fail_fast"] == {
        "failed": {"index": 2, "label": "bad"},
        "cancelled": [{"index": n, "label": list(does)[n]} for n in (1, 3, 4)],
    }
    assert stage.of("last") == [], "who waited for room never starts"


@on_virtual_time
async def test_fail_fast_keeps_what_those_that_were_stopped_had_said() -> None:
    start = AssistantMessage(
        text="half of it", calls=(ToolCall(id="c", name="look_up", arguments_json='{"word": "x"}'),)
    )
    does = {"busy": [start, pause(1_000, "late")], "bad": pause(5, RuntimeError("broken"))}
    result = await Stage(many(*does, fail_fast=True), does=does).go()
    assert lines(result.result) == [("busy", False, "half of it"), ("bad", False, "")]


@on_virtual_time
async def test_fail_fast_stops_also_those_below_the_others() -> None:
    does = {
        "a": [one("deep")],
        "deep": pause(1_000, "late"),
        "bad": pause(5, RuntimeError("broken")),
    }
    result = await Stage(many("a", "bad", fail_fast=True), does=does).go()
    assert result.below["deep"].state == "cancelled"
    assert result.result["total_duration_ms"] == 5_000


@on_virtual_time
async def test_fail_fast_counts_a_helper_that_ran_out_of_turns_with_nothing_to_show() -> None:
    does = {"dig": [call("look_up", word="x")] * 9, "b": pause(60, "b")}
    result = await Stage(many(task("dig", max_turns=2), "b", fail_fast=True), does=does).go()
    assert [line["success"] for line in result.result["results"]] == [False, False]
    assert result.result["results"][1]["error"] == "Cancelled by fail_fast: dig failed"
    assert result.result["fail_fast"] == {
        "failed": {"index": 0, "label": "dig"},
        "cancelled": [{"index": 1, "label": "b"}],
    }


@on_virtual_time
async def test_fail_fast_without_a_failure_changes_nothing() -> None:
    result = await Stage(many("a", "b", "c", fail_fast=True)).go()
    assert "fail_fast" not in result.result
    assert (result.result["successful"], result.result["failed"]) == (3, 0)


@on_virtual_time
async def test_a_task_out_of_turns_is_partial_and_no_reason_to_stop_the_others() -> None:
    def dig(request: Any) -> Any:
        return "half of it" if request.purpose == "grace" else call("look_up", word="x")

    does = {"dig": dig, "b": pause(60, "x")}
    result = await Stage(many(task("dig", max_turns=2), "b", fail_fast=True), does=does).go()
    assert lines(result.result) == [("dig", True, "half of it"), ("b", True, "sum of b")]
    assert result.result["results"][0]["completion_status"] == "incomplete"
    assert "completion_status" not in result.result["results"][1]


@on_virtual_time
async def test_each_task_has_its_own_turns_tools_and_summary() -> None:
    def dig(request: Any) -> Any:
        return "enough" if request.purpose == "grace" else call("look_up", word="x")

    first = task("a", max_turns=1, allowed_tools=["look_up"], summary_prompt="And?")
    second = task("b", max_turns=4)
    stage = Stage(many(first, second, "c", "d"), does={"a": dig, "b": dig, "c": dig})
    await stage.go()
    turns = {p: len([q for q in stage.of(p) if q.purpose == "turn"]) for p in "abc"}
    assert turns == {"a": 1, "b": 4, "c": 10}
    assert stage.offered("a") == {"look_up", "artifact", "subagent", "parallel_subagent"}
    assert "write_down" in stage.offered("b")
    stage = Stage(many(first, "d"))
    await stage.go()
    assert stage.of("a")[-1].messages[-1].text == "And?"
    assert stage.of("d")[-1].messages[-1].text != "And?"


@on_virtual_time
async def test_every_task_is_counted_also_those_that_crash() -> None:
    does: dict[str, Any] = {f"t{n}": RuntimeError(f"broken {n}") for n in range(4)}
    result = await Stage(many(*does, "ok"), does=does).go()
    assert [line["success"] for line in result.result["results"]] == [False] * 4 + [True]
    assert (result.result["successful"], result.result["failed"]) == (1, 4)


@on_virtual_time
async def test_a_batch_of_one_is_a_batch() -> None:
    result = await Stage(many("a")).go()
    assert lines(result.result) == [("a", True, "sum of a")]


@on_virtual_time
async def test_a_batch_beyond_the_limits_of_the_runtime_starts_nobody_and_costs_nothing() -> None:
    stage = Stage(many(*"abcd"), many(*"abc"), max_executions=4)
    result = await stage.go(rules=Limits(spawn_limits=SpawnLimits(per_call=3)))
    assert result.told[0].text == "Refused (per_call): Too many children in one call: 4 (limit 3)."
    assert results(result.told[1:])[0]["successful"] == 3


@on_virtual_time
async def test_children_can_start_batches_within_one_slot_without_blocking_each_other() -> None:
    does = {p: [many(f"{p}1", f"{p}2", max_concurrent=1)] for p in "abc"}
    result = await Stage(many(*does, max_concurrent=1), does=does).go()
    assert result.result["successful"] == 3
    assert len(result.below) == 9


@on_virtual_time
async def test_a_message_that_steers_the_lead_leaves_helpers_at_work_and_their_ends_are_news() -> (
    None
):
    stage = Stage(
        many("a", "b"),
        pause(100, "waiting"),
        "end",
        does={"a": pause(50, "x"), "b": pause(60, "x")},
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
        await retinue.send(run, "How is it going?", steer=True)
        outcome = await ended(retinue, run)
        texts = [m.text for m in await retinue.messages(run)]
    assert outcome.text == "end"
    assert any("Still running" in text for text in texts)
    assert (
        sum("sum of a" in text for text in texts) == sum("sum of b" in text for text in texts) == 1
    )


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_fail_fast_holds_after_a_restart(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)
    does = {
        "done": pause(1, "x"),
        "bad": pause(50, RuntimeError("broken")),
        "busy": pause(10_000, "late"),
    }
    stage = Stage(many(*does, fail_fast=True), does=does)
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(20)
    async with home.open(agents=[stage.lead]) as retinue:
        output = await played(retinue, run)
    assert [line["success"] for line in output.result["results"]] == [True, False, False]
    assert [output.below[p].state for p in does] == ["completed", "failed", "cancelled"]
    assert len(stage.of("done")) == 2, "what had ended is not run again"
