"""No tree spends more than it was given, and a limit yields what there is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.account import limits_of
from retinue.core.budget_shares import shares
from retinue.core.effects import CallTool
from retinue.core.events import ModelRegistered, Requested
from retinue.core.spec import History, Lane, RunRequest
from retinue.core.state import Thinking
from retinue.core.step_context import weight
from retinue.core.turn import prompt_bound
from retinue.core.values import Budget, Limits, ModelInfo, Usage
from tests.core.driver import MODEL, Story, call, hand


def held(story: Story, id: str) -> tuple[int, int, int, int]:
    state = story.state(id)
    assert isinstance(state, Thinking)
    return state.hold


def test_a_call_holds_its_bound_before_and_settles_what_it_cost_after() -> None:
    story = Story()
    story.start(task="x" * 76, budget=Budget(tokens=10_000))
    assert held(story, "root") == (1_100, 100 + 5_000, 1, 0)
    assert story.account("root").held == (1_100, 5_100, 1, 0)
    story.reply("root", "", call(), usage=Usage(input=90, output=20))
    assert story.account("root").held == (0, 0, 0, 0)
    assert story.account("root").spent == (110, 190, 1, 1)


def test_a_last_turn_is_paid_from_what_was_kept_for_it() -> None:
    story = Story(Limits(min_output=100, final_output=100))
    story.start(task="x" * 76, budget=Budget(tokens=1_500))
    message = story.messages("root")[-1]
    assert "allows a reply of at most 600 tokens" in message.text, "it is not cut short in silence"
    assert story.asked("root").max_output == (1_500 - 2 * (100 + weight(message)) - 100) // 2
    story.reply("root", "thinking", call(), usage=Usage(input=100, output=500))
    story.tool("root", text="y" * 26)
    assert story.asked("root").purpose == "final"
    assert "the tokens budget is spent" in story.messages("root")[-1].text
    story.reply("root", "this is what I have", usage=Usage(input=700, output=20))
    assert story.ended("root") == ("incomplete", "budget")
    assert story.ending("root").text == "this is what I have"
    assert story.accounts["root"].spent[0] <= 1_500


def test_a_last_turn_that_calls_tools_is_the_end() -> None:
    story = Story(Limits(min_output=100, final_output=100))
    story.start(task="x" * 76, budget=Budget(tokens=1_500))
    story.reply("root", "thinking", call(), usage=Usage(input=100, output=500))
    story.tool("root")
    story.reply("root", "", call())
    assert story.ended("root") == ("incomplete", "budget")
    assert story.ending("root").text == "thinking"


def test_a_last_turn_that_says_nothing_fails() -> None:
    story = Story()
    story.start(budget=Budget(turns=1))
    assert story.asked("root").purpose == "final"
    story.reply("root", "")
    assert story.ended("root") == ("failed", "empty")


def test_a_budget_of_turns_keeps_one_for_the_last() -> None:
    story = Story()
    story.start(budget=Budget(turns=2))
    story.reply("root", "", call())
    story.tool("root")
    assert story.asked("root").purpose == "final"
    story.reply("root", "that is all")
    assert story.ended("root") == ("incomplete", "budget")
    assert story.accounts["root"].spent[2] == 2


@pytest.mark.parametrize(
    ("budget", "stop"),
    [
        (Budget(tokens=0), "tokens_budget"),
        (Budget(usd=0.0), "usd_budget"),
        (Budget(turns=0), "turns_budget"),
    ],
)
def test_a_budget_of_nothing_ends_the_run_before_anything_is_spent(
    budget: Budget, stop: str
) -> None:
    story = Story()
    story.start(budget=budget)
    assert story.ended("root") == ("incomplete", stop)
    assert story.n_asked("root") == 0
    assert story.leaks() == {}


def test_a_budget_of_dollars_limits_the_reply() -> None:
    story = Story(Limits(min_output=1))
    story.start(
        task="x" * 76, budget=Budget(usd=0.000_010)
    )  # 10,000 nanos: 200 for two prompts, 5,120 for the last
    prompt = 100 + weight(story.messages("root")[-1])
    assert story.asked("root").max_output == (10_000 - 2 * prompt - 5 * 1_024) // 6


def test_a_model_that_costs_nothing_can_be_used_on_a_budget_of_no_dollars() -> None:
    story = Story(model=ModelInfo(name="m", price_in=0, price_out=0))
    story.start(budget=Budget(usd=0.0))
    assert story.is_("root") == "Thinking"


def test_a_budget_of_calls_answers_those_beyond_it() -> None:
    story = Story()
    story.start(budget=Budget(calls=2))
    story.reply("root", "", call(id="a"), call(id="b"), call(id="c"))
    assert story.did(CallTool, "root") == 2
    assert "budget for tool calls is spent" in story.results("root")[0].text


def test_a_budget_of_seconds_is_a_deadline_from_the_start() -> None:
    story = Story()
    story.start(budget=Budget(seconds=1.5))
    assert story.run("root").deadline == story.now + 1_500
    story.wake("root")
    assert story.ended("root") == ("timed_out", "deadline")


def test_an_unknown_price_refuses_a_budget_in_dollars() -> None:
    story = Story(model=ModelInfo(name="m"))
    event = Requested(id="root", request=RunRequest(agent="boss", task="x", budget=Budget(usd=1.0)))
    assert "refused (price)" in story.post("", event)
    story.start()
    story.reply("root", "", call("hire"))
    story.order("root", hand(budget=Budget(usd=1.0)))
    assert "Refused (price)" in story.results("root")[-1].text


def test_a_grant_is_held_from_the_parent_and_the_rest_comes_back() -> None:
    story = Story()
    story.start(budget=Budget(tokens=100_000))
    (child,) = story.spawning("root", hand(budget=Budget(tokens=30_000)))
    spent = story.account("root").spent[0]
    assert story.account("root").held[0] == 30_000
    assert story.account(child).funded == (True, False, False, False)
    story.reply(child, "x", usage=Usage(input=100, output=50))
    assert story.accounts[child].closed
    assert story.accounts["root"].spent[0] == spent + 150
    assert story.account("root").held[0] == held(story, "root")[0]


def test_a_child_without_a_grant_draws_from_its_parent() -> None:
    story = Story(Limits(min_output=50, final_output=50))
    story.start(budget=Budget(tokens=5_000))
    (child,) = story.spawning("root", hand("y" * 76))
    root = story.account("root")
    assert story.account(child).limit == (None, None, None, None)
    assert root.held == (held(story, child)[0], *root.held[1:])
    story.reply(child, "", call(), usage=Usage(input=100, output=900))
    story.tool(child, text="z" * 3_000)
    assert story.ended(child) == ("incomplete", "tokens_budget")
    assert root.spent[0] + root.held[0] <= 5_000
    assert root.spent[0] == 15 + 1_000


def test_a_pool_keeps_the_last_turn_of_its_owner_out_of_reach() -> None:
    story = Story(Limits(min_output=50, final_output=50))
    story.start(budget=Budget(tokens=4_000))
    children = story.spawning("root", *(hand("y" * 76) for _ in range(20)))
    root = story.account("root")
    assert root.reserve[0] > 0
    assert root.spent[0] + root.held[0] + root.reserve[0] <= 4_000
    assert {story.is_(c) for c in children} == {"Thinking", "Short"}
    while thinking := [c for c in children if story.is_(c) == "Thinking"]:
        story.reply(thinking[0], "x", usage=Usage(input=100, output=10))
        assert root.spent[0] + root.held[0] + root.reserve[0] <= 4_000
    assert [story.ended(c) for c in children] == [("completed", "done")] * 20
    assert story.is_("root") == "Thinking"


@pytest.mark.parametrize(
    ("share", "weights", "expected"),
    [
        ("equal", [1, 1, 1], [33, 33, 33]),
        ("remaining", [1, 1, 1], [100, 0, 0]),
        ("proportional", [1, 3, 0], [25, 75, 0]),
        ("proportional", [0, 0], [0, 0]),
        ("fixed:7", [1, 1], [7, 7]),
    ],
)
def test_shares_divide_what_is_free(share: str, weights: list[int], expected: list[int]) -> None:
    assert [limit[0] for limit in shares((100, None, None, None), share, weights)] == expected


@pytest.mark.parametrize(
    "share", ["most", "fixed:", "fixed:-1", "fixed:1.5", "fixed:\u0661", "fixed:" + "9" * 5_000]
)
def test_an_unknown_share_is_refused(share: str) -> None:
    with pytest.raises(ValueError, match=r"share|limit"):
        shares((100, None, None, None), share, [1])


@pytest.mark.parametrize("share", ["equal", "remaining", "proportional", "fixed:1000"])
def test_children_get_their_share_and_the_sum_is_held(share: str) -> None:
    story = Story()
    story.start(budget=Budget(tokens=100_000, turns=50))
    spawns = [hand("t" * (i + 1), budget_share=share, budget_weight=i + 1) for i in range(3)]
    children = story.spawning("root", *spawns)
    grants = [story.accounts[c].limit[0] or 0 for c in children]
    root = story.account("root")
    funded = sum((story.accounts[c].limit[0] or 0) - story.accounts[c].spent[0] for c in children)
    ended = sum(grants[i] for i, c in enumerate(children) if story.is_(c) == "Ended")
    assert sum(grants) <= 100_000
    assert root.held[0] == funded - ended
    assert root.spent[0] + root.held[0] + root.reserve[0] <= 100_000


def test_a_negative_weight_cannot_make_a_share_larger_than_the_whole() -> None:
    with pytest.raises(ValueError, match="weight must be 0 or more"):
        hand(budget_share="proportional", budget_weight=-1)


def test_more_than_is_left_is_refused() -> None:
    story = Story()
    story.start(budget=Budget(tokens=50_000))
    story.reply("root", "", call("hire"))
    story.order("root", hand(budget=Budget(tokens=30_000)), hand(budget=Budget(tokens=30_000)))
    text = story.results("root")[-1].text
    assert (
        "Not enough budget: 60,000 tokens requested, 47,932 tokens left in the parent's budget"
        in text
    )
    assert story.children("root") == []


def test_a_child_of_a_child_is_covered_by_all_above() -> None:
    story = Story()
    story.start(budget=Budget(tokens=100_000))
    (a,) = story.spawning("root", hand(budget=Budget(tokens=40_000)))
    (b,) = story.spawning(a, hand())
    story.reply(b, "x", usage=Usage(input=200, output=100))
    assert story.account(a).spent[0] == 15 + 300
    assert story.account("root").spent[0] == 15 + 15 + 300
    assert story.account("root").held[0] == 40_000 - 315
    story.reply(a, "y")
    story.reply("root", "z")
    assert story.leaks() == {}
    assert story.unbalanced() == []
    assert story.accounts["root"].spent[0] == 15 * 4 + 300


def test_a_cancelled_call_is_booked_at_its_bound() -> None:
    story = Story()
    story.start(budget=Budget(tokens=100_000))
    tokens = held(story, "root")[0]
    story.cancel("root")
    assert story.run("root").usage.estimated == tokens
    assert story.accounts["root"].spent[0] == tokens
    assert story.unbalanced() == []


def test_a_provider_that_counts_nothing_is_booked_at_the_bound() -> None:
    story = Story()
    story.start(task="x" * 1_000, budget=Budget(tokens=100_000))
    story.reply("root", "y" * 500, call(), usage=Usage())
    assert story.account("root").spent[0] > 0


def test_without_a_count_the_bound_still_covers_the_reply() -> None:
    story = Story()
    story.start(task="x" * 1_000)
    story.reply("root", "y" * 500, call(), usage=Usage())
    story.tool("root", text="z" * 100)
    assert story.asked("root").purpose == "turn"
    assert held(story, "root")[0] - 1_000 >= 1_000 + 500 + 100


def test_the_bound_covers_the_instructions_and_every_byte_since() -> None:
    story = Story()
    story.define("boss", prompt_bytes=5_000)
    story.start(task="\u00e9" * 100)
    assert held(story, "root")[0] - 1_000 >= 5_000 + 200
    story.reply("root", "", call(), usage=Usage(input=5_300, output=10))
    story.tool("root", text="\u20ac" * 100)
    assert held(story, "root")[0] - 1_000 >= 5_310 + 300


def test_the_bound_of_a_fork_covers_what_it_shares() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call(), usage=Usage(input=3_000, output=10))
    story.tool("root", text="x" * 500)
    (child,) = story.spawning("root", hand(history=History(kind="fork")))
    assert held(story, child)[0] - 1_000 >= 15
    assert story.run(child).context >= 15


def test_limits_are_exact_in_nano_dollars() -> None:
    assert limits_of(Budget(usd=0.1)) == (None, 100_000_000, None, None)
    assert limits_of(Budget(tokens=0, turns=3, calls=4)) == (0, None, 3, 4)


@pytest.mark.parametrize("field", ["tokens", "usd", "turns", "calls", "seconds"])
@pytest.mark.parametrize("amount", [-1, float("nan")])
def test_a_budget_below_nothing_is_refused(field: str, amount: Any) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Budget(**{field: amount})


@pytest.mark.parametrize(
    "budget", [{"usd": float("inf")}, {"seconds": float("inf")}, {"seconds": 1e300}]
)
def test_an_endless_amount_is_refused_or_works_but_never_breaks_the_machine(
    budget: dict[str, float],
) -> None:
    try:
        result = Budget(**budget)
    except ValueError:
        return
    story = Story()
    story.start(budget=result)
    assert story.is_("root") == "Thinking"


def test_the_test_model_has_a_price() -> None:
    assert MODEL.priced
    assert MODEL.cost(2, 3) == 17
    assert prompt_bound.__doc__


WAITS = Limits(min_output=50, final_output=50)


def crowd(n: int, tokens: int, **fields: Any) -> tuple[Story, list[str]]:
    """So many children of one root with a budget; each may say 1,000 tokens and says ten."""
    story = Story(WAITS)
    story.start(budget=Budget(tokens=tokens), **fields)
    return story, story.spawning("root", *(hand("y" * 76) for _ in range(n)))


CHEAP = Usage(input=100, output=10)


def work_off(story: Story, children: list[str], usage: Usage = CHEAP) -> None:
    root = story.account("root")
    while thinking := [c for c in children if story.is_(c) == "Thinking"]:
        story.reply(thinking[-1], "x", usage=usage)
        assert root.spent[0] + root.held[0] <= (root.limit[0] or 0)


def test_who_finds_everything_held_by_others_waits_and_goes_on() -> None:
    story, children = crowd(50, 12_000)
    states = [story.is_(c) for c in children]
    assert 5 < states.count("Thinking") < 20 and states.count("Short") == 50 - states.count(
        "Thinking"
    )
    assert states == sorted(states, reverse=True), "the first come first"
    work_off(story, children)
    assert [story.ended(c) for c in children] == [("completed", "done")] * 50
    story.reply("root", "all")
    assert story.leaks() == {} and story.unbalanced() == []


def test_who_waits_ends_when_so_much_is_spent_that_there_is_nothing_to_wait_for() -> None:
    story, children = crowd(50, 12_000)
    work_off(story, children, Usage(input=100, output=900))
    ends = {story.ended(c) for c in children}
    assert ends == {("completed", "done"), ("incomplete", "tokens_budget")}
    assert story.accounts["root"].spent[0] <= 12_000


def test_who_waits_for_budget_holds_no_slot_and_takes_one_when_it_goes_on() -> None:
    lanes = (Lane(name="l", size=3, scope="tree"),)
    story = Story(WAITS)
    story.start(budget=Budget(tokens=6_000))
    children = story.spawning("root", *(hand("y" * 76, lanes=lanes) for _ in range(9)))
    assert story.held("l") == sum(story.is_(c) == "Thinking" for c in children)
    work_off(story, children)
    assert {story.ended(c) for c in children} == {("completed", "done")}
    assert story.held("l") == 0


@pytest.mark.parametrize("how", ["cancel", "restart", "deadline"])
def test_who_waits_for_budget_can_be_cancelled_found_again_and_late(how: str) -> None:
    timeout = {"timeout_ms": 60_000} if how == "deadline" else {}
    story, children = crowd(20, 9_000, **timeout)
    short = [c for c in children if story.is_(c) == "Short"]
    if how == "cancel":
        for child in short:
            story.cancel(child)
        assert {story.ended(c) for c in short} == {("cancelled", "cancelled")}
    if how == "restart":
        story.restart()
        assert {story.is_(c) for c in short} <= {"Thinking", "Short", "Ended"}
    if how == "deadline":
        story.later(60_001)
        for child in short:
            story.wake(child)
        assert {story.ended(c) for c in short} == {("timed_out", "deadline")}
    if story.is_("root") == "Waiting":
        work_off(story, children)
    assert story.tree().ledger.waits == {}
    assert story.is_("root") in ("Thinking", "Ended")


def test_who_comes_later_waits_behind_who_waits_already() -> None:
    story = Story(WAITS)
    story.start(budget=Budget(tokens=5_500))
    (first, large, small) = story.spawning("root", hand("a"), hand("y" * 3_000), hand("b"))
    assert [story.is_(c) for c in (first, large, small)] == ["Thinking", "Short", "Short"]
    story.reply(first, "x", usage=Usage(input=50, output=10))
    assert story.is_(large) == "Thinking"


def test_a_child_on_a_model_without_a_price_is_refused_where_dollars_are_limited() -> None:
    story = Story()
    story.post("", ModelRegistered(model=ModelInfo(name="unpriced")))
    story.start(budget=Budget(usd=1.0))
    story.reply("root", "", call("hire"))
    story.order("root", hand("a", model="unpriced"))
    assert "The price of 'unpriced' is unknown" in story.texts("root")
    assert story.children("root") == []


@pytest.mark.parametrize("when", ["next turn", "next try", "restart", "child"])
def test_a_price_that_is_lost_under_a_limit_in_dollars_ends_the_run(when: str) -> None:
    """The list of prices is another one than when the run was accepted: nothing is called whose
    cost would be booked as nothing."""
    story = Story()
    story.start(budget=Budget(usd=1.0))
    run = story.spawning("root", hand("a"))[0] if when == "child" else "root"
    if when == "next try":
        story.fail(run, retry=True)
    calls = story.n_asked(run)
    story.post("", ModelRegistered(model=ModelInfo(name="m")))
    if when == "restart":
        story.restart()
    elif when == "next try":
        story.wake(run)
    else:
        story.reply(run, "", call("look"))
        story.tool(run)
    assert story.ended(run) == ("failed", "price")
    assert "The price of 'm' is unknown" in story.ending(run).error
    assert story.n_asked(run) == calls


def test_a_price_that_is_lost_matters_to_no_other_limit() -> None:
    story = Story()
    story.start(budget=Budget(tokens=100_000))
    story.post("", ModelRegistered(model=ModelInfo(name="m")))
    story.reply("root", "", call("look"))
    story.tool("root")
    assert story.is_("root") == "Thinking"


def test_what_a_provider_adds_by_itself_is_held_too_until_it_has_counted() -> None:
    story = Story(model=replace(MODEL, preamble=700))
    story.start(task="x" * 76)
    assert held(story, "root")[0] == 100 + 700 + MODEL.max_output
    story.reply("root", "", call(), usage=Usage(input=90, output=20))
    story.tool("root", text="y" * 26)
    assert held(story, "root")[0] < 300 + MODEL.max_output


def test_what_a_provider_did_not_count_and_was_estimated_is_booked() -> None:
    story = Story()
    story.start(budget=Budget(tokens=10_000))
    story.reply("root", "", call(), usage=Usage(output=20, estimated=300))
    assert story.account("root").spent[0] == 320
    assert story.run("root").usage.estimated == 300
