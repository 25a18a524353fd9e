"""Budgets, lanes, deadlines, retries and large trees, on virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import pytest

from retinue import (
    Agent,
    Budget,
    Lane,
    Limits,
    ModelInfo,
    ModelRejected,
    ModelReply,
    ModelUnavailable,
    Refused,
    Retinue,
    Retry,
    SpawnLimits,
    Usage,
    tool,
)
from retinue.core.messages import AssistantMessage
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, VirtualClock, call
from tests.api.scripted_agents import agent, ended, hiring, last, lead_of, on_virtual_time

WIDE = Limits(calls_per_turn=10_000)


@tool(restart="pure")
async def look() -> str:
    """Look."""
    return "seen " * 40


class Greedy:
    """A model that uses up all that a call may cost."""

    info = ModelInfo(name="greedy", max_output=200, price_in=1, price_out=1)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        await asyncio.sleep(1)
        usage = Usage(
            input=sum(len(m.text) + 24 for m in request.messages), output=request.max_output
        )
        return ModelReply(message=AssistantMessage(text="part"), usage=usage)


@on_virtual_time
async def test_a_thousand_parallel_children_never_spend_one_unit_more_than_the_tree_was_given() -> (
    None
):
    cap, most, store = 150_000, 0, MemoryStore()
    lead = lead_of(Agent("child", model=Greedy()), 1_000)
    async with Retinue(store, clock=VirtualClock(), limits=WIDE) as retinue:
        run = await retinue.spawn(lead, "Go.", budget=Budget(tokens=cap))
        while await retinue.outcome(run) is None:
            await asyncio.sleep(0.5)
            account = await store.account(run)
            assert account is not None
            most = max(most, account.spent[0] + account.held[0])
        outcome = await ended(retinue, run)
    states = [c.state for c in outcome.children]
    assert len(states) == 1_000
    assert most <= cap and outcome.tree_tokens <= cap
    assert states.count("completed") > 300 and states.count("incomplete") > 300
    assert {c.stop for c in outcome.children} == {"done", "tokens_budget"}


@on_virtual_time
async def test_a_lead_whose_children_spent_the_budget_still_has_something_to_show() -> None:
    lead = lead_of(Agent("child", model=Greedy()), 400)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead, "Go.", budget=Budget(tokens=60_000))
    assert [c.state for c in outcome.children].count("completed") > 30
    assert outcome.state in ("completed", "incomplete")
    assert "part" in outcome.text, "a limit yields a partial result, never nothing"


@on_virtual_time
async def test_a_budget_ends_in_a_paid_last_turn_with_a_partial_result() -> None:
    purposes: list[str] = []

    def script(request: ModelRequest) -> object:
        purposes.append(request.purpose)
        return "as far as I came" if request.purpose == "final" else call("look")

    info = ModelInfo(name="m", max_output=200)
    one = Agent("one", model=Scripted(script, info=info), tools=[look])
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(one, "Go.", budget=Budget(tokens=4_000))
    assert (outcome.state, outcome.stop, outcome.text) == (
        "incomplete",
        "budget",
        "as far as I came",
    )
    assert purposes.count("turn") > 1 and purposes[-1] == "final" and purposes.count("final") == 1
    assert outcome.tree_tokens <= 4_000


@pytest.mark.parametrize(
    ("budget", "stop"),
    [
        (Budget(tokens=10), "tokens_budget"),
        (Budget(usd=0.0), "usd_budget"),
        (Budget(turns=0), "turns_budget"),
        (Budget(turns=3), "budget"),
    ],
)
@on_virtual_time
async def test_what_cannot_be_paid_is_not_begun(budget: Budget, stop: str) -> None:
    info = ModelInfo(name="m", price_in=1, price_out=1)
    one = Agent(
        "one",
        model=Scripted(lambda q: "last" if q.purpose == "final" else call("look"), info=info),
        tools=[look],
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(one, "Go.", budget=budget)
    assert (outcome.state, outcome.stop) == ("incomplete", stop)
    assert outcome.tree_turns <= (budget.turns if budget.turns is not None else 0)
    assert outcome.error


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (
            Budget(tokens=500),
            "one turn needs up to 9,{n} tokens (1,{n} for the prompt, 8,000 for the "
            "reply); {has} 500 left",
        ),
        (
            Budget(usd=0.005),
            "one turn needs up to $0.05 (1,{n} for the prompt, 8,000 for the reply, in "
            "tokens); {has} $0.01 left",
        ),
        (Budget(turns=0), "one more turn is needed; {has} 0 left"),
    ],
)
@on_virtual_time
async def test_a_budget_too_small_for_one_turn_says_how_much_one_needs(
    budget: Budget, words: str
) -> None:
    info = ModelInfo(name="m", price_in=5_000, price_out=5_000, max_output=8_000)
    one = Agent("one", model=Scripted(["never"], info=info))
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(one, "x" * 1_000, budget=budget)
    assert (outcome.state, outcome.text, outcome.tree_turns) == ("incomplete", "", 0)
    pattern = (
        re.escape(words)
        .replace(re.escape("{n}"), r"\d{3}")
        .replace(re.escape("{has}"), "the budget has")
    )
    assert re.fullmatch(pattern, outcome.error), outcome.error


@on_virtual_time
async def test_a_parent_reads_how_much_one_turn_of_its_child_needs() -> None:
    child = Agent("child", model=Scripted(["never"], info=ModelInfo(name="m", max_output=8_000)))
    hire = hiring(child, budget=Budget(tokens=40))
    lead = agent(
        "lead",
        lambda q: last(q) if q.turn else call("hire", tasks=["one"]),
        tools=[hire],
        staff=[child],
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert re.search(
        r"child incomplete \(tokens_budget\): one turn needs up to 8,\d{3} tokens", outcome.text
    )
    assert outcome.text.endswith("; the budget has 40 left")


@on_virtual_time
async def test_a_last_turn_for_want_of_money_says_what_another_would_have_needed() -> None:
    one = Agent("one", model=Scripted(["what I have"], info=ModelInfo(name="m", max_output=8_000)))
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(one, "Go.", budget=Budget(tokens=1_100))
    assert (outcome.state, outcome.stop, outcome.text) == ("incomplete", "budget", "what I have")
    assert outcome.error.startswith("one turn needs up to 8,")


@on_virtual_time
async def test_calls_beyond_the_budget_of_calls_are_refused_one_by_one() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        one = agent("one", [[call("look")] * 5, "done"], tools=[look])
        outcome = await retinue.run(one, "Go.", budget=Budget(calls=3))
        results = (await retinue.messages(outcome.id))[2:7]
    assert (
        sorted("the budget for tool calls is spent" in m.text for m in results)
        == [False] * 3 + [True] * 2
    )
    assert outcome.tree_calls == 3


@on_virtual_time
async def test_a_budget_in_dollars_needs_a_price() -> None:
    one = Agent("one", model=Scripted(["x"], info=ModelInfo(name="m")))
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(Refused, match="The price of 'm' is unknown"):
            await retinue.run(one, "Go.", budget=Budget(usd=1.0))


@on_virtual_time
async def test_usage_counts_for_children_that_failed_were_cancelled_or_ran_out_of_time() -> None:
    good, bad = agent("good", ["x"]), agent("bad", [call("look"), ValueError("no")], tools=[look])
    slow = agent("slow", [call("look"), "never"], tools=[look], seconds=30)
    for child, state in ((good, "completed"), (bad, "failed"), (slow, "timed_out")):
        async with Retinue(clock=VirtualClock()) as retinue:
            options = {"timeout_ms": 45_000} if state == "timed_out" else {}
            outcome = await retinue.run(lead_of(child, **options), "Go.")
            (end,) = outcome.children
            part = await retinue.outcome(end.id)
        assert part is not None
        assert end.state == state
        assert part.usage.tokens > 0
        assert outcome.tree_tokens == outcome.usage.tokens + part.usage.tokens


@on_virtual_time
async def test_a_lane_of_one_finishes_three_levels_that_all_wait_for_each_other() -> None:
    one = (Lane(name="one", size=1),)
    busy, most = 0, 0

    async def work(request: ModelRequest) -> object:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(1)
        busy -= 1
        return "leaf"

    leaf = agent("leaf", work)
    middle = lead_of(leaf, 3, name="middle", seconds=1, lanes=one)
    top = lead_of(middle, 3, name="top", seconds=1, lanes=one)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(top, "Go.", lanes=one)
        tree = await retinue.tree(outcome.id)
    assert outcome.state == "completed" and most == 1
    assert [len(n.children) for n in tree.children] == [3, 3, 3]
    # 9 leaves with one turn, 3 middles and the top with two each, one second a turn, one at a time.
    assert outcome.ended_ms - outcome.created_ms == (9 + 4 * 2) * 1_000


@on_virtual_time
async def test_a_full_lane_queues_or_refuses_as_it_was_told() -> None:
    child = agent("child", ["x"], seconds=10)
    async with Retinue(clock=VirtualClock()) as retinue:
        queue = await retinue.run(lead_of(child, 3, lanes=(Lane(name="q", size=1),)), "Go.")
        assert [c.state for c in queue.children] == ["completed"] * 3
        assert queue.ended_ms - queue.created_ms == 30_000
        refuse = (Lane(name="r", size=1, on_full="refuse"),)
        turned_away = await retinue.run(lead_of(child, 2, name="two", lanes=refuse), "Go.")
        assert turned_away.children == () and "lane 'r' is full" in turned_away.text
        assert (
            len((await retinue.run(lead_of(child, 1, name="one", lanes=refuse), "Go.")).children)
            == 1
        )


@on_virtual_time
async def test_trees_share_a_lane_and_each_tree_has_its_own() -> None:
    child = agent("child", ["x"], seconds=10)

    async def both(scope: Literal["all", "tree"]) -> int:
        lanes = (Lane(name=scope, size=1, scope=scope),)
        async with Retinue(clock=VirtualClock()) as retinue:
            leads = [lead_of(child, 1, name=name, lanes=lanes) for name in ("one", "other")]
            first, second = await asyncio.gather(*(retinue.run(lead, "Go.") for lead in leads))
        return max(first.ended_ms, second.ended_ms) - min(first.created_ms, second.created_ms)

    assert await both("all") == 20_000
    assert await both("tree") == 10_000


@on_virtual_time
async def test_limits_on_depth_and_children_are_told_to_the_model() -> None:
    leaf = agent("leaf", ["x"])
    middle, wide = lead_of(leaf, 1, name="middle"), lead_of(leaf, 5, name="wide")
    top = lead_of(middle, 1, name="top")
    async with Retinue(
        clock=VirtualClock(), limits=Limits(spawn_limits=SpawnLimits(depth=1, children=4))
    ) as retinue:
        assert (
            "The depth limit is reached (current depth: 1, limit: 1)"
            in (await retinue.run(top, "Go.")).text
        )
        assert (
            "Cannot start 5 more children: 0 are running and the limit is 4"
            in (await retinue.run(wide, "Go.")).text
        )


@on_virtual_time
async def test_a_deadline_ends_a_run_and_everything_below_it() -> None:
    child = agent("child", ["x"], seconds=1_000)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead_of(child, 3), "Go.", timeout=60)
        assert (outcome.state, outcome.stop) == ("timed_out", "deadline")
        assert outcome.ended_ms - outcome.created_ms == 60_000
        assert {c.state for c in outcome.children} <= {"cancelled", "timed_out"}
        by_budget = await retinue.run(child, "Go.", budget=Budget(seconds=5.5))
        assert (by_budget.state, by_budget.ended_ms - by_budget.created_ms) == ("timed_out", 5_500)


@on_virtual_time
async def test_a_child_that_runs_out_of_time_does_not_take_its_parent_along() -> None:
    child = agent("child", ["x"], seconds=1_000)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead_of(child, timeout_ms=10_000), "Go.")
    assert (outcome.state, [c.state for c in outcome.children]) == ("completed", ["timed_out"])
    assert "child timed out (deadline)" in outcome.text


@on_virtual_time
async def test_retries_wait_longer_each_time_and_not_less_than_they_are_told() -> None:
    at: list[float] = []

    def busy(request: ModelRequest) -> object:
        at.append(asyncio.get_running_loop().time())
        if len(at) < 5:
            raise ModelUnavailable("overloaded", retry_after=30 if len(at) == 2 else 0)
        return "at last"

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(
            agent("one", busy), "Go.", retry=Retry(attempts=6, base_ms=1_000, cap_ms=3_000)
        )
    waits = [b - a for a, b in pairwise(at)]
    assert outcome.text == "at last"
    assert [w <= most for w, most in zip(waits, (1, 32, 3, 3), strict=True)] == [True] * 4
    assert waits[1] >= 30
    assert outcome.usage.turns == 1


@on_virtual_time
async def test_retries_end_and_a_rejected_call_is_not_repeated() -> None:
    tries: list[str] = []

    def never(error: Exception) -> object:
        def script(request: ModelRequest) -> object:
            tries.append(request.agent)
            return error

        return script

    async with Retinue(clock=VirtualClock()) as retinue:
        busy = agent("busy", never(ModelUnavailable("overloaded", kind="overloaded")))
        outcome = await retinue.run(busy, "Go.", retry=Retry(attempts=3, base_ms=10, then="fail"))
        assert (outcome.state, outcome.stop, outcome.error) == (
            "failed",
            "overloaded",
            "Failed after 3 attempts: overloaded",
        )
        outcome = await retinue.run(
            agent("barred", never(ModelRejected("bad key", kind="auth"))), "Go."
        )
        assert (outcome.state, outcome.stop, outcome.error) == ("failed", "auth", "bad key")
    assert tries == ["busy"] * 3 + ["barred"]


@on_virtual_time
async def test_cancelling_a_tree_of_a_thousand_runs_ends_them_all() -> None:
    leaf = agent("leaf", ["x"], seconds=1_000)
    middle = lead_of(leaf, 36, name="middle")
    top = lead_of(middle, 27, name="top")
    async with Retinue(clock=VirtualClock(), limits=WIDE) as retinue:
        run = await retinue.spawn(top, "Go.")
        await asyncio.sleep(10)
        everybody = [r async for r in retinue.runs(children=True, limit=2_000)]
        assert len(everybody) == 1 + 27 + 27 * 36 == 1_000
        assert (await retinue.cancel(run)).state == "cancelled"
        rows = [r async for r in retinue.runs(children=True, limit=2_000)]
        assert {r.state for r in rows} == {"cancelled"}
        at = {r.ended_at for r in rows}
        assert len(at) == 1, "all in one moment"
        assert (await ended(retinue, run)).tree_tokens > 0


@on_virtual_time
async def test_equal_failures_in_a_row_stop_the_spawning() -> None:
    child = agent("child", [ModelRejected("bad key", kind="auth")])
    texts: list[str] = []

    def script(request: ModelRequest) -> object:
        texts.append(last(request))
        return call("hire", tasks=["try"]) if request.turn < 7 else "I give up."

    lead = Agent(
        "lead", model=Scripted(script, name="lead"), tools=lead_of(child).tools, staff=[child]
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert len(outcome.children) == 5
    assert (
        "The last 5 children failed with the same error (auth: bad key). Try again in 60 s."
    ) in texts[-1]
