"""What a sub-agent of the family `agent` may use, and that it ends with what it has when that is
spent."""

from __future__ import annotations

import re
from typing import Any

import pytest

from retinue import Budget
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage
from retinue.core.values import Usage
from retinue.models.base import ModelRequest
from retinue.testing import call
from tests.api.scripted_agents import on_virtual_time
from tests.families.agent_world import World, about, fork, pause, spawn, wait

LESS = (
    "it would get more than is left of your budget (Not enough budget: {asked} requested, "
    "{free} left in the parent's budget). Request less"
)


async def tokens(line: Any, *, lead: Budget | None = None, **settings: Any) -> int | None:
    """The limit of tokens in the account of the one that `line` starts."""
    world = World(line, **settings)
    await world.go(**({} if lead is None else {"budget": lead}))
    (reply,) = world.results
    assert isinstance(reply, dict), reply
    account = await world.store.account(reply["agent_id"])
    assert account is not None
    result: int | None = account.limit[0]
    return result


async def status(
    line: Any, does: Any, **settings: Any
) -> tuple[dict[str, Any], list[ModelRequest]]:
    """How a sub-agent ends, and what was asked of its model."""
    world = World(line, wait(timeout_seconds=600), does={"work": does}, **settings)
    await world.go()
    (agents,) = world.results[1]["agents"]
    return agents, world.of("work")


def busily(request: ModelRequest) -> AssistantMessage:
    """Says something in each turn, and always has another call."""
    calls = tuple(
        ToolCall(id=f"t{request.turn}c{n}", name="look_up", arguments_json='{"word": "x"}')
        for n in range(2)
    )
    return AssistantMessage(text=f"after {request.turn} turns", calls=calls)


# of a spawn


@on_virtual_time
async def test_a_spawn_gets_fifty_thousand_tokens_unless_it_asks() -> None:
    assert await tokens(spawn("say x")) == 50_000
    assert await tokens(spawn("say x", budget={})) == 50_000
    assert await tokens(spawn("say x", budget={"max_turns": 3})) == 50_000
    assert await tokens(spawn("say x", budget={"max_tokens": 7_000})) == 7_000
    assert await tokens(spawn("say x", budget={"max_tokens": 70_000})) == 70_000


@on_virtual_time
async def test_the_default_budget_is_a_setting_and_may_be_none() -> None:
    assert await tokens(spawn("say x"), default_budget=9_000) == 9_000
    assert await tokens(spawn("say x"), default_budget=None) is None
    world = World("done", default_budget=9_000)
    await world.go()
    assert "Default: 9000 tokens" in world.properties("agent_spawn")["budget"]["description"]


@on_virtual_time
async def test_what_is_asked_for_is_clamped_to_the_most_for_one_agent_and_the_default_is_not() -> (
    None
):
    cap = {"max_budget_per_agent": 20_000}
    assert await tokens(spawn("say x", budget={"max_tokens": 30_000}), **cap) == 20_000
    assert await tokens(spawn("say x", budget={"max_tokens": 10_000}), **cap) == 10_000
    assert await tokens(spawn("say x"), **cap) == 50_000


@on_virtual_time
async def test_a_budget_may_be_a_string_of_json_and_absurdly_large() -> None:
    assert await tokens(spawn("say x", budget='{"max_tokens": 8000}')) == 8_000
    many = 10**30
    huge = spawn("say x", budget={"max_tokens": many, "max_turns": many, "max_tool_calls": many})
    assert await tokens(huge) == 10**12
    assert await tokens(fork("say x", budget_policy="fixed:" + "9" * 5_000)) == 10**12


@on_virtual_time
async def test_the_number_of_turns_is_kept() -> None:
    ended, question = await status(spawn("work", budget={"max_turns": 2}), busily)
    assert len(question) == 2
    assert (ended["state"], ended["is_final"], ended["output"]) == (
        "completed",
        True,
        "after 1 turns",
    )


@on_virtual_time
async def test_the_number_of_tool_calls_is_kept() -> None:
    messages: list[ToolMessage] = []

    def work(request: ModelRequest) -> Any:
        if request.turn < 2:
            return busily(request)
        messages.extend(m for m in request.messages if isinstance(m, ToolMessage))
        return "what I have"

    ended, _ = await status(spawn("work", budget={"max_tool_calls": 3}), work)
    assert [m.text for m in messages[:3]] == ["x is a word"] * 3
    assert messages[3].error and "budget for tool calls is spent" in messages[3].text
    assert (ended["state"], ended["output"]) == ("completed", "what I have")


@on_virtual_time
async def test_a_spent_budget_ends_as_completed_with_the_text_so_far() -> None:
    def work(request: ModelRequest) -> ModelReply:
        return ModelReply(message=busily(request), usage=Usage(input=500, output=500), stop="calls")

    line = spawn("work", budget={"max_tokens": 12_000})
    world = World(line, wait(timeout_seconds=600), about("agent_status"), does={"work": work})
    await world.go()
    ended = world.results[2]
    assert (ended["state"], ended["is_final"]) == ("completed", True)
    assert ended["output"].startswith("after ") and "error" not in ended
    assert 1_000 <= ended["tokens_used"] <= 12_000
    account = await world.store.account(ended["agent_id"])
    assert account is not None and account.spent[0] == ended["tokens_used"]
    assert "completed with a partial result (" in world.news[0] and "after " in world.news[0]


@on_virtual_time
async def test_before_its_budget_is_spent_an_agent_is_asked_for_what_it_has() -> None:
    def work(request: ModelRequest) -> Any:
        if request.purpose == "final":
            return "my last word"
        return ModelReply(message=busily(request), usage=Usage(input=500, output=500), stop="calls")

    ended, question = await status(spawn("work", budget={"max_tokens": 12_000}), work)
    assert (ended["state"], ended["output"]) == ("completed", "my last word")
    assert [q.purpose for q in question].count("final") == 1


@pytest.mark.parametrize(
    "zero", [{"max_tokens": 0}, {"max_turns": 0}, {"max_tokens": 0, "max_tool_calls": 0}]
)
@on_virtual_time
async def test_a_budget_of_nothing_completes_with_no_turn(zero: dict[str, int]) -> None:
    ended, question = await status(spawn("work", budget=zero), "never said")
    assert question == []
    assert (ended["state"], ended["output"], ended["is_final"], ended["tokens_used"]) == (
        "completed",
        "",
        True,
        0,
    )


@on_virtual_time
async def test_no_tool_calls_at_all_may_be_allowed() -> None:
    ended, _ = await status(
        spawn("work", budget={"max_tool_calls": 0}), [call("look_up", word="x"), "without it"]
    )
    assert ended["output"] == "without it"


@on_virtual_time
async def test_the_notice_of_an_end_without_a_word_says_so() -> None:
    world = World(spawn("say x", budget={"max_tokens": 0}), "done")
    await world.go()
    assert "completed with a partial result (tokens_budget): (no output)" in world.news[0]


# of a fork


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (None, 50_000), ("equal", 50_000), ("remaining", 50_000), ("proportional", 50_000),
        ("fixed:1234", 1_234), ("fixed:0", 0), ("fixed:007", 7), (" fixed:1234 ", 1_234),
        ("fixed:", 50_000), ("fixed:-5", 50_000), ("fixed:1.5", 50_000), ("fixed:²", 50_000),
        ("fixed:1_000", 50_000), ("fixed", 50_000), ("half", 50_000), ("", 50_000),
    ],
)  # fmt: skip
@on_virtual_time
async def test_the_budget_of_a_fork_follows_its_policy_and_what_cannot_be_read_is_equal(
    policy: str | None, limit: int
) -> None:
    line = fork("say x") if policy is None else fork("say x", budget_policy=policy)
    assert await tokens(line) == limit


@on_virtual_time
async def test_a_fixed_budget_is_capped_by_the_most_for_one_agent_and_an_equal_one_is_not() -> None:
    cap = {"max_budget_per_agent": 20_000}
    assert await tokens(fork("say x", budget_policy="fixed:30000"), **cap) == 20_000
    assert await tokens(fork("say x", budget_policy="fixed:10000"), **cap) == 10_000
    assert await tokens(fork("say x", budget_policy="equal"), **cap) == 50_000


def spending(each: int, turns: int) -> Any:
    """Spends so many tokens in each of so many turns."""

    def work(request: ModelRequest) -> ModelReply:
        usage = Usage(input=each - 10, output=10)
        message = AssistantMessage(text="enough") if request.turn >= turns - 1 else busily(request)
        return ModelReply(message=message, usage=usage, stop="calls" if message.calls else "end")

    return work


@on_virtual_time
async def test_a_fork_with_the_remaining_budget_may_use_all_that_is_left_and_no_more() -> None:
    line = fork("work", budget_policy="remaining")
    world = World(line, wait(timeout_seconds=600), does={"work": spending(10_000, 12)})
    outcome = await world.go(budget=Budget(tokens=200_000))
    assert world.results[1]["agents"][0]["output"] == "enough"
    assert world.results[1]["agents"][0]["tokens_used"] == 120_000
    world = World(line, wait(timeout_seconds=600), does={"work": spending(10_000, 100)})
    outcome = await world.go(budget=Budget(tokens=200_000))
    assert world.results[1]["agents"][0]["state"] == "completed"
    assert 120_000 < world.results[1]["agents"][0]["tokens_used"] <= outcome.tree_tokens <= 200_000


@on_virtual_time
async def test_a_parent_goes_on_while_its_fork_has_the_remaining_budget() -> None:
    """Nothing is set aside for the fork, so the parent is not driven to its end, which would end
    the fork too."""

    def lead(request: ModelRequest) -> Any:
        return ModelReply(
            message=busily(request), usage=Usage(input=9_000, output=100), stop="calls"
        )

    world = World(fork("after 50 say x", budget_policy="remaining"), *[pause(1, lead)] * 8)
    outcome = await world.go(budget=Budget(tokens=150_000))
    assert outcome.state == "completed"
    assert [c.state for c in outcome.children] == ["completed"]


@on_virtual_time
async def test_the_remaining_budget_is_capped_by_the_most_for_one_agent() -> None:
    line, lead = fork("say x", budget_policy="remaining"), Budget(tokens=200_000)
    assert await tokens(line, lead=lead, max_budget_per_agent=30_000) == 30_000
    assert await tokens(line, lead=lead, max_budget_per_agent=300_000) is None, (
        "what is left is less than that"
    )


@on_virtual_time
async def test_a_fork_may_take_as_many_turns_as_its_parent() -> None:
    world = World(fork("work"), wait(timeout_seconds=600), does={"work": busily})
    await world.go(max_turns=4)
    assert len(world.of("work")) == 4
    assert world.results[1]["agents"][0]["state"] == "completed"


# within the parent's own budget


@on_virtual_time
async def test_the_default_is_a_limit_and_nothing_is_set_aside_for_it() -> None:
    for start in (spawn, fork):
        for lead in (30_000, 60_000, 100_000, 200_000):
            world = World(*[start("after 5 say x")] * 3, wait(timeout_seconds=600))
            outcome = await world.go(budget=Budget(tokens=lead))
            assert [r["state"] for r in world.results[:3]] == ["running"] * 3
            accounts = [await world.store.account(child.id) for child in outcome.children]
            assert [a and a.limit[0] for a in accounts] == [50_000] * 3
            assert outcome.tree_tokens <= lead


@on_virtual_time
async def test_a_child_keeps_to_the_default_when_its_parent_has_more() -> None:
    world = World(spawn("work"), wait(timeout_seconds=600), does={"work": spending(5_000, 100)})
    await world.go(budget=Budget(tokens=500_000))
    assert 30_000 < world.results[1]["agents"][0]["tokens_used"] <= 50_000


@on_virtual_time
async def test_a_child_of_a_parent_with_little_draws_on_its_account() -> None:
    for start in (spawn, fork):
        world = World(start("work"), wait(timeout_seconds=600), does={"work": spending(1_000, 100)})
        outcome = await world.go(budget=Budget(tokens=40_000))
        (ended,) = world.results[1]["agents"]
        assert (ended["state"], outcome.state) == ("completed", "completed")
        assert 5_000 < ended["tokens_used"] < outcome.tree_tokens <= 40_000


@on_virtual_time
async def test_more_than_is_left_is_refused_and_nothing_starts() -> None:
    world = World(
        spawn("say x", budget={"max_tokens": 90_000}), fork("say x", budget_policy="fixed:90000")
    )
    outcome = await world.go(budget=Budget(tokens=80_000))
    free = [re.search(r"requested, ([\d,]+) tokens", text)[1] for text in world.results]  # type: ignore[index]
    texts = [LESS.format(asked="90,000 tokens", free=f"{n} tokens") for n in free]
    first, second = (int(n.replace(",", "")) for n in free)
    # What the call itself holds is not free; how much that is depends on how long the tools
    # describe themselves.
    assert 60_000 < first < second < 75_000
    assert world.results == [
        f"Failed to spawn sub-agent: {texts[0]}",
        f"Failed to spawn forked agent: {texts[1]}",
    ]
    assert outcome.children == ()


@on_virtual_time
async def test_what_a_child_has_not_used_is_its_parents_again() -> None:
    half = {"max_tokens": 50_000}
    world = World(
        spawn("say x", budget=half),
        wait(),
        spawn("say y", budget=half),
        wait(),
        spawn("say z", budget=half),
    )
    await world.go(budget=Budget(tokens=80_000))
    assert [r["state"] for r in world.results if "name" in r] == ["running"] * 3


@on_virtual_time
async def test_calls_come_from_the_parents_budget_too() -> None:
    world = World(
        spawn("work", budget={"max_tool_calls": 100}),
        wait(timeout_seconds=600),
        does={"work": busily},
    )
    outcome = await world.go(budget=Budget(calls=10))
    assert outcome.tree_calls == 10
    world = World(spawn("say x", budget={"max_tool_calls": 100, "max_tokens": 20_000}))
    await world.go(budget=Budget(calls=10))
    assert world.results == [
        f"Failed to spawn sub-agent: {LESS.format(asked='100 calls', free='9 calls')}"
    ]
