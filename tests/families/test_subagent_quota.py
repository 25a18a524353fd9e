"""Executions, tokens and time that all helpers of one tree share: never more, however many ask at
once, and no less."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from retinue import Actions, Agent, Budget, Context, Permissions, Retinue, tool
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import Limits, ModelInfo, Usage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import on_virtual_time
from tests.families.subagent_world import (
    TOOLS,
    Played,
    Stage,
    many,
    one,
    pause,
    played,
    results,
    task,
)

SPENT = "Resource quota exceeded: "


def told(match: Played) -> list[str]:
    """For each call of the lead: what was refused, or how many have worked."""
    out = []
    for result in match.told:
        if result.error:
            out.append(result.text)
        else:
            data = msgspec.json.decode(result.text)
            out.append(str(len(data["results"]) if "results" in data else 1))
    return out


# executions


@on_virtual_time
async def test_executions_are_counted_and_the_one_too_many_is_refused() -> None:
    result = await Stage(one("a"), one("b"), one("c"), max_executions=2).go()
    assert told(result) == ["1", "1", f"{SPENT}2 of 2 executions are used, 1 more requested"]


@on_virtual_time
async def test_a_batch_beyond_the_quota_is_refused_with_its_own_number() -> None:
    result = await Stage(one("a"), many("b", "c", "d"), many("e", "f"), max_executions=1).go()
    assert told(result)[1:] == [
        f"{SPENT}1 of 1 executions are used, {n} more requested" for n in (3, 2)
    ]


@on_virtual_time
async def test_a_quota_of_nothing_refuses_everything() -> None:
    quotas: list[dict[str, Any]] = [
        {"max_executions": 0},
        {"max_total_tokens": 0},
        {"max_total_time": 0},
    ]
    for quota in quotas:
        for question in (one("a"), many("a")):
            assert (await Stage(question, **quota).go()).refusal.startswith(SPENT)


@pytest.mark.parametrize("tokens", [1, 50, 300])
@on_virtual_time
async def test_a_quota_that_does_not_pay_one_call_is_told_as_one_with_the_numbers(
    tokens: int,
) -> None:
    for question in (one("a"), many("a", "b")):
        result = await Stage(question, max_total_tokens=tokens).go()
        text = result.told[0].text
        if result.told[0].error:
            assert text == f"{SPENT}1 tokens left, too few for 2 more"
            continue
        lines = result.result.get("results", [result.result])
        for line in lines:
            assert not line["success"]
            assert line["error"].startswith(SPENT)
            assert re.search(r"one turn needs up to [\d,]+ tokens", line["error"])
            assert f"the budget has {tokens // len(lines)} left" in line["error"]


@on_virtual_time
async def test_each_task_of_a_batch_is_an_execution_and_a_batch_starts_whole_or_not_at_all() -> (
    None
):
    result = await Stage(
        many("a", "b", "c"), many("d", "e"), many("f"), many("g"), max_executions=4
    ).go()
    assert told(result) == [
        "3",
        f"{SPENT}3 of 4 executions are used, 2 more requested",
        "1",
        f"{SPENT}4 of 4 executions are used, 1 more requested",
    ]
    assert sorted(result.below) == ["a", "b", "c", "f"]


@on_virtual_time
async def test_calls_of_one_turn_cannot_take_the_same_execution_twice() -> None:
    calls = [one(f"a{n}") for n in range(10)] + [many(f"b{n}", f"c{n}") for n in range(10)]
    result = await Stage(calls, max_executions=7).go()
    assert len(result.below) == 7
    assert sum(r.error for r in result.told) == 20 - 7


@on_virtual_time
async def test_children_of_children_count_for_the_same_quota() -> None:
    stage = Stage(one("a"), one("d"), does={"a": [one("b"), one("c")]}, max_executions=2)
    result = await stage.go()
    assert sorted(result.below) == ["a", "b"]
    assert (
        stage.of("a")[2].messages[-1].text == f"{SPENT}2 of 2 executions are used, 1 more requested"
    )
    assert told(result)[1] == f"{SPENT}2 of 2 executions are used, 1 more requested"


@on_virtual_time
async def test_children_that_ask_at_the_same_moment_do_not_get_more_together() -> None:
    does: dict[str, Any] = {
        f"t{n}": [many(*(f"t{n}.{m}" for m in range(4)), max_concurrent=4)] for n in range(5)
    }
    result = await Stage(many(*does), does=does, max_executions=5 + 8).go()
    assert len(result.below) == 5 + 8


@on_virtual_time
async def test_a_call_that_was_wrong_costs_nothing_and_one_that_failed_does() -> None:
    stage = Stage(
        one(" ", "x"),
        one("a", allowed_tools=["nonsense"]),
        one("bad"),
        one("b"),
        one("c"),
        max_executions=2,
    )
    stage.does = {"bad": RuntimeError("no")}
    result = await stage.go()
    assert told(result)[2:] == ["1", "1", f"{SPENT}2 of 2 executions are used, 1 more requested"]


@on_virtual_time
async def test_what_the_machine_refused_is_not_used() -> None:
    """Only one child may be live at a time: the second call of the turn is refused after it was
    granted its part."""
    stage = Stage(
        [one("a"), one("b")], one("c"), one("d"), max_executions=2, max_total_tokens=10**6
    )
    result = await stage.go(permissions=Permissions(fanout=1))
    refused, *others = sorted(told(result), reverse=True)
    assert refused.startswith(SPENT) and others[0].startswith("Refused (children)")
    assert sorted(result.below) == ["a", "c"]


@on_virtual_time
async def test_what_the_machine_refused_is_free_at_once_also_for_those_further_down() -> None:
    stage = Stage([one("a"), one("b")], does={"a": [one("deep")]}, max_executions=2)
    result = await stage.go(permissions=Permissions(fanout=1))
    assert sorted(result.below) == ["a", "deep"]


@on_virtual_time
async def test_each_tree_has_its_own_quota() -> None:
    stage = Stage(many("a", "b"), max_executions=2)
    async with Retinue(clock=VirtualClock()) as retinue:
        runs = [await retinue.spawn(stage.lead, "Go.") for _ in range(5)]
        for run in runs:
            assert told(await played(retinue, run)) == ["2"]


@on_virtual_time
async def test_a_tree_that_was_started_by_key_is_counted_like_any_other() -> None:
    result = await Stage(one("a"), one("b"), max_executions=1).go(key="monday")
    assert told(result) == ["1", f"{SPENT}1 of 1 executions are used, 1 more requested"]


@pytest.mark.parametrize("last", [one("z"), many("y", "z")])
@on_virtual_time
async def test_nothing_is_remembered_of_those_that_are_on_record(last: Any) -> None:
    stage = Stage([one("a"), many("b", "c")], last, max_executions=100, max_total_tokens=10**6)
    await stage.go()
    (family,) = stage.lead.family_list
    assert family.quotas._grants == {}  # type: ignore[attr-defined]


# tokens


def spent(result: Played) -> int:
    return sum(o.usage.tokens for o in result.below.values())


def digger(turns: int) -> Any:
    """A helper that works for so many turns and writes as much as it may."""

    def dig(request: ModelRequest) -> Any:
        if request.turn >= turns or request.purpose != "turn":
            return "x" * 40
        return call("write_down", text="x" * 400)

    return dig


@on_virtual_time
async def test_helpers_stop_when_the_tokens_of_all_are_spent_and_return_what_they_have() -> None:
    stage = Stage(
        many("a", "b", "c"),
        one("d"),
        does={p: digger(100) for p in "abcd"},
        max_total_tokens=60_000,
    )
    result = await stage.go()
    assert 0 < spent(result) <= 60_000
    batch = result.result
    assert all(line["output"] for line in batch["results"])
    assert {o.stop for p, o in result.below.items() if p in "abc"} <= {
        "budget",
        "turn_limit",
        "tokens_budget",
    }


@on_virtual_time
async def test_a_part_that_was_granted_is_not_granted_again_while_it_can_be_spent() -> None:
    """The first child has all of it and sleeps; a nested one lives on that grant, so it is not
    refused."""
    stage = Stage(one("a"), does={"a": [one("b"), pause(10, "x")]}, max_total_tokens=50_000)
    result = await stage.go()
    assert sorted(result.below) == ["a", "b"] and result.result["success"]
    assert spent(result) <= 50_000


@on_virtual_time
async def test_what_a_child_has_not_spent_goes_back_to_all() -> None:
    stage = Stage(*(one(p) for p in "abcdef"), max_total_tokens=30_000)
    result = await stage.go()
    assert len(result.below) == 6 and all(r["success"] for r in results(result.told))


@on_virtual_time
async def test_calls_of_one_turn_get_equal_parts_whatever_else_is_called_beside_them() -> None:
    info = ModelInfo(name="big", max_output=10**6, price_in=0, price_out=0)
    for beside in ([], [call("look_up", word="x")] * 6):
        stage = Stage([one("a"), many("b", "c"), *beside, one("d")], max_total_tokens=120_000)
        stage.model.info = info
        result = await stage.go(rules=Limits(budget_output=10**6))
        assert len(result.below) == 4 and all(o.state == "completed" for o in result.below.values())
        first = [q for q in stage.requests if q.path != "0" and q.purpose == "turn"]
        room = {q.messages[0].text: q.max_output for q in first}
        assert room["a"] == room["d"] > 1.5 * room["b"] and room["b"] == room["c"]
        assert room["a"] > 120_000 / 3 / 2 - 10_000, "a third each, half of it kept for a last turn"


@on_virtual_time
async def test_too_few_tokens_for_so_many_are_refused() -> None:
    result = await Stage(many(*"abcde"), max_total_tokens=4).go()
    assert result.refusal == f"{SPENT}4 tokens left, too few for 5 more"


@on_virtual_time
async def test_spent_tokens_are_told() -> None:
    """A provider that counts more than its bound: what it told is spent, and the next one is
    refused."""
    reply = ModelReply(message=AssistantMessage(text="x"), usage=Usage(input=70_000, output=10))
    result = await Stage(one("a"), one("b"), does={"a": reply}, max_total_tokens=60_000).go()
    assert told(result) == ["1", f"{SPENT}70010 of 60000 tokens are used or granted"]


@on_virtual_time
async def test_a_tree_whose_own_budget_is_smaller_than_the_quota_can_still_delegate() -> None:
    for question in ([one("a")], [one("a"), one("b"), many("c", "d")]):
        stage = Stage(question, one("z"), max_total_tokens=10**9)
        result = await stage.go(budget=Budget(tokens=150_000))
        assert all(
            r["success"] if "success" in r else r["successful"] == 2 for r in results(result.told)
        ), result.told
        assert result.outcome.tree_tokens <= 150_000


@on_virtual_time
async def test_other_amounts_of_the_tree_stay_one_pool() -> None:
    stage = Stage(
        [one("a"), one("b"), one("c")], max_total_tokens=10**6, does={p: digger(3) for p in "abc"}
    )
    result = await stage.go(budget=Budget(turns=40, calls=50, usd=1.0))
    assert [o.state for o in result.below.values()] == ["completed"] * 3


@tool(restart="pure")
async def clone(context: Context, prompt: str) -> Actions:
    """Let another one of your kind do it."""
    return context.spawn_actions(context.spec.request.agent, prompt, label=prompt)


@on_virtual_time
async def test_what_runs_spend_that_a_helper_has_started_by_other_means_counts_too() -> None:
    does = {
        "a": [call("clone", prompt="b")],
        "b": [one("c"), call("clone", prompt="d")],
        "c": digger(5),
        "d": digger(9),
    }
    stage = Stage(
        *[one("a")] * 60, does=does, tools=[*TOOLS, clone], max_total_tokens=40_000, max_depth=5
    )
    result = await stage.go()
    assert sum(not r.error for r in result.told) >= 2
    assert 30_000 < result.outcome.tree_tokens - result.outcome.usage.tokens <= 40_000


# time


@on_virtual_time
async def test_time_is_counted_from_the_first_start_for_all_together() -> None:
    stage = Stage(
        one("a"),
        pause(30, one("b")),
        one("c"),
        max_total_time=50,
        does={p: pause(15, p) for p in "abc"},
    )
    result = await stage.go()
    assert result.below["a"].state == "completed"
    assert (result.below["b"].state, result.below["b"].stop) == ("timed_out", "deadline")
    assert result.below["b"].ended_ms - result.below["a"].created_ms == 50_000
    assert told(result)[2] == f"{SPENT}50 of 50 seconds are used"


@on_virtual_time
async def test_those_that_wait_for_room_get_no_more_time_than_the_others() -> None:
    does = {f"t{n}": pause(3, "x") for n in range(10)}
    result = await Stage(many(*does, max_concurrent=1), does=does, max_total_time=10).go()
    assert result.result["total_duration_ms"] == 10_000
    assert [line["success"] for line in result.result["results"]] == [True] * 3 + [False] * 7


@on_virtual_time
async def test_a_child_of_a_child_has_no_more_time_than_all() -> None:
    stage = Stage(
        one("a"), does={"a": [pause(6, one("b"))], "b": pause(100, "x")}, max_total_time=10
    )
    result = await stage.go()
    assert result.below["a"].ended_ms - result.below["a"].created_ms == 10_000
    assert {o.state for o in result.below.values()} <= {"timed_out", "cancelled"}
    assert result.result["metadata"]["completion_status"] == "incomplete"


@on_virtual_time
async def test_a_helper_out_of_time_returns_what_it_has_said() -> None:
    start = AssistantMessage(
        text="half of it", calls=(ToolCall(id="c", name="look_up", arguments_json='{"word": "x"}'),)
    )
    result = await Stage(one("a"), does={"a": [start, pause(100, "x")]}, max_total_time=10).go()
    assert (result.result["success"], result.result["output"]) == (False, "half of it")
    assert result.result["error"] == "Subagent task execution failed: the deadline passed"
    assert result.result["metadata"]["stop_reason"] == "deadline"


@on_virtual_time
async def test_without_quotas_nothing_is_read_or_limited() -> None:
    stage = Stage(many(*(f"t{n}" for n in range(50))), many(*(f"u{n}" for n in range(50))))
    result = await stage.go()
    assert len(result.below) == 100
    (family,) = stage.lead.family_list
    assert family.quotas._grants == {}  # type: ignore[attr-defined]


@on_virtual_time
async def test_a_lead_on_the_staff_of_another_shares_the_quota_of_the_tree() -> None:
    stage = Stage(max_executions=3)
    inner = Scripted(lambda q: many("a", "b") if q.turn == 0 else q.messages[-1].text, name="inner")
    lead = Agent("lead", model=inner, tools=TOOLS, families=stage.lead.families)

    @tool(restart="pure")
    async def hire(context: Context) -> Actions:
        """Hire both."""
        return context.spawn_actions(lead, "Go.", "Go.")

    top = Agent(
        "top", model=Scripted([call("hire"), "end"], name="top"), tools=[hire], staff=[lead]
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(top, "Go.")
        ends = [await retinue.outcome(c.id) for c in outcome.children]
    assert sorted(len(end.children) for end in ends if end is not None) == [0, 2]


@pytest.mark.parametrize(
    "question", [one("a", max_turns=50), many(task("a", max_turns=50), task("b", max_turns=50))]
)
@on_virtual_time
async def test_a_lead_that_goes_on_asking_and_helpers_that_never_stop_spend_no_more(
    question: Any,
) -> None:
    stage = Stage(
        *[question] * 30, does={"a": digger(1_000), "b": digger(1_000)}, max_total_tokens=40_000
    )
    result = await stage.go()
    total = result.outcome.tree_tokens - result.outcome.usage.tokens
    assert 20_000 < total <= 40_000
