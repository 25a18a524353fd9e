"""A limit can be a question: who needs more waits, one person is asked once, and the answer holds
for everybody."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.budget_shares import written
from retinue.core.effects import CallTool
from retinue.core.events import LimitChanged
from retinue.core.limit_questions import LimitQuestion, open_questions
from retinue.core.spec import Lane
from retinue.core.state import Short
from retinue.core.values import Budget, Limits, ModelInfo, Origin, Usage
from tests.core.driver import Story, call, hand

SMALL = Limits(min_output=100, final_output=100, asking_output=200, wait_ms=3_600_000)


def asking(story: Story, root: str = "root") -> list[LimitQuestion]:
    return open_questions(story.tree(root))


def add(
    story: Story,
    id: str = "root",
    *,
    tokens: int = 0,
    turns: int = 0,
    calls: int = 0,
    **fields: Any,
) -> str:
    return story.post(id, LimitChanged(add=(tokens, 0, turns, calls), **fields))


def at_its_limit(**fields: Any) -> Story:
    """A root with 1,500 tokens of which 600 are spent, and 100 more in its prompt."""
    story = Story(SMALL)
    story.start(task="x" * 76, budget=Budget(tokens=1_500, on_limit="ask"), **fields)
    story.reply("root", "thinking", call(), usage=Usage(input=100, output=500))
    story.tool("root", text="y" * 76)
    return story


def crowd(n: int, tokens: int, **fields: Any) -> tuple[Story, list[str]]:
    """So many children of a root that asks; each may say 1,000 tokens."""
    story = Story(SMALL)
    story.start(budget=Budget(tokens=tokens, on_limit="ask"), **fields)
    return story, story.spawning("root", *(hand("y" * 76) for _ in range(n)))


def work_off(story: Story, children: list[str], usage: Usage) -> None:
    root = story.account("root")
    while thinking := [c for c in children if story.is_(c) == "Thinking"]:
        story.reply(thinking[0], "x", usage=usage)
        assert root.spent[0] + root.held[0] <= (root.limit[0] or 0)


def test_a_run_at_its_limit_asks_and_holds_nothing() -> None:
    story = at_its_limit(lanes=(Lane(name="l", size=1, scope="tree"),))
    state = story.state("root")
    assert isinstance(state, Short) and (state.account, state.lack) == ("root", "tokens")
    assert state.asks.startswith("600 of 1,500 tokens spent; one more turn may need 1,")
    assert story.account("root").held == (0, 0, 0, 0) and story.held("l") == 0
    (question,) = asking(story)
    assert (question.account, question.lack, question.waiting) == ("root", "tokens", ("root",))
    assert question.text == state.asks and question.suggested == (state.more, 0, 0, 0)
    need = state.need[0] + state.last[0]
    assert state.more == 2 * need - 900 > 1_500, (
        "enough for two turns like this one, and no less than there was"
    )


def test_a_raised_limit_lets_it_go_on_where_it_was() -> None:
    story = at_its_limit()
    n = story.n_asked("root")
    assert add(story, tokens=5_000) == ""
    assert story.is_("root") == "Thinking" and story.asked("root").purpose == "turn"
    assert story.n_asked("root") == n + 1 and asking(story) == []
    assert story.account("root").limit[0] == 6_500
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")
    assert story.leaks() == {} and story.trees.index.asking == {}


def test_it_can_be_let_land() -> None:
    story = at_its_limit()
    (question,) = asking(story)
    assert story.post("root", LimitChanged(then="land", question=question.id)) == ""
    assert story.asked("root").purpose == "final"
    story.reply("root", "this is what I have", usage=Usage(input=700, output=20))
    assert story.ended("root") == ("incomplete", "budget")


def test_a_limit_that_stops_keeps_nothing_back_for_a_last_turn() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(turns=2, on_limit="stop"))
    story.reply("root", "one", call())
    story.tool("root")
    assert story.asked("root").purpose == "turn"
    story.reply("root", "two", call())
    story.tool("root")
    assert (
        story.ended("root") == ("incomplete", "turns_budget") and story.ending("root").text == "two"
    )


def test_a_raise_that_is_too_small_asks_again_about_the_new_limit() -> None:
    story = at_its_limit(origin=Origin(channel="c"))
    (before,) = asking(story)
    add(story, tokens=1)
    (after,) = asking(story)
    assert (
        story.is_("root") == "Short" and after.id != before.id and "of 1,501 tokens" in after.text
    )
    assert "no longer open" in add(story, tokens=9_000, question=before.id), (
        "an answer to the old one is too late"
    )
    assert add(story, tokens=9_000, question=after.id) == "" and story.is_("root") == "Thinking"
    assert "no longer open" in add(story, tokens=9_000, question=after.id), (
        "the first answer counts"
    )
    assert len([d for d in story.deliveries.values() if "asks:" in d.text]) == 2


def test_many_who_wait_are_one_question_and_go_on_in_their_turn() -> None:
    story, children = crowd(12, 6_000, origin=Origin(channel="c"))
    work_off(story, children, Usage(input=100, output=900))
    waiting = [c for c in children if story.is_(c) == "Short"]
    (question,) = asking(story)
    assert len(waiting) > 4 and question.waiting == tuple(waiting) and question.account == "root"
    assert len([d for d in story.deliveries.values() if "asks:" in d.text]) == 1
    n = len(story.entries)
    add(story, tokens=20_000)
    runs = [e.run for e in story.entries[n:] if type(e.event).__name__ == "Afforded"]
    assert runs == waiting and {story.is_(c) for c in waiting} == {"Thinking"}
    work_off(story, children, Usage(input=100, output=10))
    assert {story.ended(c)[0] for c in children} == {"completed"}


def test_nobody_asks_for_what_there_is_wherever_it_stands_in_line() -> None:
    story = Story(SMALL)
    story.start(task="x", budget=Budget(tokens=5_000, on_limit="ask"))
    small, first, second = story.spawning("root", hand("a"), hand("b" * 5_000), hand("c" * 5_000))
    assert [story.is_(small), len(asking(story)[0].waiting)] == ["Thinking", 2]
    add(story, tokens=2_500)
    states = [story.state(c) for c in (first, second)]
    assert [(type(s).__name__, getattr(s, "asks", "")) for s in states] == [("Short", "")] * 2, (
        "both wait for the first"
    )
    assert asking(story) == []
    for child in (small, first, second):
        story.reply(child, "x")
    assert {story.ended(c)[0] for c in (small, first, second)} == {"completed"}


def test_a_raise_for_some_of_them_lets_the_first_go_on_and_the_others_ask() -> None:
    story, children = crowd(12, 6_000)
    work_off(story, children, Usage(input=100, output=900))
    waiting = list(asking(story)[0].waiting)
    add(story, tokens=1_500)
    assert story.is_(waiting[0]) == "Thinking" and {story.is_(c) for c in waiting[1:]} == {"Short"}
    work_off(story, children, Usage(input=100, output=900))
    (question,) = asking(story)
    assert question.waiting == tuple(waiting[1:])


def test_a_tree_that_is_let_land_ends_with_its_owners_last_turn() -> None:
    story, children = crowd(6, 6_000)
    work_off(story, children, Usage(input=100, output=900))
    story.post("root", LimitChanged(then="land"))
    assert {story.ended(c)[0] for c in children} == {"completed", "incomplete"}
    assert story.asked("root").purpose == "final"
    story.reply("root", "what there is", usage=Usage(input=100, output=50))
    assert story.ended("root") == ("incomplete", "budget")
    assert story.accounts["root"].spent[0] <= 6_000 and story.unbalanced() == []


def test_several_amounts_are_several_questions_of_one_account() -> None:
    story = Story(SMALL)
    story.start(task="x", budget=Budget(tokens=6_000, turns=3, on_limit="ask"))
    small, large = story.spawning("root", hand("a"), hand("b" * 5_000))
    story.reply(small, "x", call())
    story.tool(small)
    assert [(q.lack, q.waiting) for q in asking(story)] == [
        ("tokens", (large, small)),
        ("turns", (large, small)),
    ]
    add(story, turns=3)
    assert [story.is_(c) for c in (large, small)] == ["Short", "Short"], "who came first goes first"
    add(story, tokens=9_000)
    assert [story.is_(c) for c in (large, small)] == ["Thinking", "Thinking"]


@pytest.mark.parametrize("n", [1, 5])
def test_a_question_survives_restarts_and_is_not_asked_twice(n: int) -> None:
    story, children = crowd(12, 6_000, origin=Origin(channel="c"))
    work_off(story, children, Usage(input=100, output=900))
    (question,) = asking(story)
    until = story.run(question.waiting[0]).wake_at
    for _ in range(n):
        story.later(1_000)
        order = story.crash()
        assert asking(story) == [question], "it is there before anybody is taken up"
        for id in order:
            story.recover(id)
    assert asking(story) == [question] and story.run(question.waiting[0]).wake_at == until
    assert len([d for d in story.deliveries.values() if "asks:" in d.text]) == 1
    add(story, tokens=20_000, question=question.id)
    assert {story.is_(c) for c in question.waiting} == {"Thinking"}


def test_a_limit_that_was_raised_before_anybody_was_taken_up_holds() -> None:
    story = at_its_limit()
    order = story.crash()
    assert add(story, tokens=5_000) == ""
    assert story.is_("root") == "Short"
    for id in order:
        story.recover(id)
    assert story.is_("root") == "Thinking" and story.account("root").limit[0] == 6_500


def test_nobody_answers_for_ever_and_the_work_lands() -> None:
    story, children = crowd(12, 6_000)
    work_off(story, children, Usage(input=100, output=900))
    waiting = asking(story)[0].waiting
    asker = next(c for c in waiting if getattr(story.state(c), "asks", ""))
    behind = next(c for c in waiting if not getattr(story.state(c), "asks", ""))
    story.rows[asker] = story.tree().runs[asker] = replace(
        story.run(asker), wake_at=story.now + 4_000_000
    )
    story.wake(behind)
    assert story.is_(behind) == "Short" and story.run(behind).wake_at == story.run(asker).wake_at
    story.wake(asker)
    assert {story.ended(c) for c in waiting} == {("incomplete", "tokens_budget")}
    assert story.is_("root") != "Waiting" and asking(story) == []


def test_a_deadline_ends_who_waits_for_an_answer() -> None:
    story = at_its_limit(timeout_ms=60_000)
    story.later(60_000)
    story.wake("root")
    assert story.ended("root") == ("timed_out", "deadline") and asking(story) == []


@pytest.mark.parametrize("how", ["cancel", "mail", "narrow"])
def test_who_waits_for_an_answer_can_be_cancelled_and_written_to(how: str) -> None:
    story = at_its_limit()
    if how == "cancel":
        story.cancel("root")
        assert story.ended("root")[0] == "cancelled" and asking(story) == [] and story.leaks() == {}
        assert "not live" in add(story, tokens=5_000)
    else:
        story.mail_to("root", "hurry", steer=True)
        assert story.is_("root") == "Short"
        add(story, tokens=5_000)
        assert "hurry" in story.texts("root") and story.is_("root") == "Thinking"


def test_a_limit_is_raised_also_when_nobody_asked() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(tokens=5_000, turns=3))
    assert add(story, tokens=1_000, turns=2) == ""
    assert story.account("root").limit == (6_000, None, 5, None)
    assert story.accounts["root"].limit == (6_000, None, 5, None), "it is on record"
    assert (
        story.post("root", LimitChanged(then="ask")) == ""
        and story.accounts["root"].on_limit == "ask"
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (LimitChanged(), "above zero"),
        (LimitChanged(add=(-5, 0, 0, 0)), "above zero"),
        (LimitChanged(add=(5, -5, 0, 0)), "above zero"),
        (LimitChanged(add=(0, 5, 0, 0)), "no limit of usd of its own"),
        (LimitChanged(add=(1 << 63, 0, 0, 0)), "more than can be counted"),
        (LimitChanged(more_ms=5), "no deadline"),
        (LimitChanged(then="land", question="0123456789abcdef"), "no longer open"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(event: LimitChanged, why: str) -> None:
    story = Story(SMALL)
    story.start(budget=Budget(tokens=5_000))
    assert why in story.post("root", event)
    assert (
        story.account("root").limit == (5_000, None, None, None) and story.is_("root") == "Thinking"
    )
    assert why in story.entries[-1].stale


def test_what_a_child_gets_more_is_taken_from_its_parent_or_refused_with_numbers() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(tokens=9_000))
    (child,) = story.spawning("root", hand(budget=Budget(tokens=3_000, on_limit="ask")))
    before = story.account("root").held[0]
    why = add(story, child, tokens=8_000)
    assert (
        "8,000 tokens more would come from the budget of the run above it, which has" in why
        and "Raise that limit first" in why
    )
    assert story.account("root").held[0] == before and story.account(child).limit[0] == 3_000
    assert add(story, child, tokens=1_000) == ""
    assert (
        story.account("root").held[0] == before + 1_000 and story.account(child).limit[0] == 4_000
    )
    story.reply(child, "done")
    assert story.account("root").held == story.account("root").held
    story.reply("root", "done")
    assert story.unbalanced() == [] and story.leaks() == {}


def test_a_child_with_a_budget_of_its_own_lands_while_its_parent_would_ask() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(tokens=50_000, on_limit="ask"))
    (child,) = story.spawning("root", hand("y" * 76, budget=Budget(tokens=1_500)))
    story.reply(child, "thinking", call(), usage=Usage(input=100, output=500))
    story.tool(child, text="y" * 76)
    assert story.asked(child).purpose == "final" and asking(story) == []


def test_a_child_whose_own_limit_asks_is_asked_about_by_its_own_name() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(tokens=50_000))
    (child,) = story.spawning("root", hand("y" * 76, budget=Budget(tokens=1_500, on_limit="ask")))
    story.reply(child, "thinking", call(), usage=Usage(input=100, output=500))
    story.tool(child, text="y" * 76)
    (question,) = asking(story)
    assert question.account == child
    add(story, child, tokens=5_000)
    assert story.is_(child) == "Thinking"


def test_those_who_outlive_the_owner_of_a_limit_are_asked_about_by_its_name() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(tokens=6_000, on_limit="ask"))
    (child,) = story.spawning("root", hand("y" * 76, join="none", on_parent_end="keep"))
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")
    story.reply(child, "a", call(), usage=Usage(input=100, output=4_900))
    story.tool(child)
    (question,) = asking(story)
    assert (question.account, question.waiting) == ("root", (child,))
    assert add(story, tokens=5_000, question=question.id) == "" and story.is_(child) == "Thinking"


def test_calls_beyond_the_budget_are_asked_about_before_the_next_turn() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(calls=2, on_limit="ask"))
    story.reply("root", "", call(id="a"), call(id="b"), call(id="c"))
    assert (
        story.did(CallTool, "root") == 2 and "make the call again" in story.results("root")[0].text
    )
    story.tool("root", 0)
    story.tool("root", 1)
    (question,) = asking(story)
    assert question.lack == "calls" and "All 2 tool calls of the budget are used" in question.text
    add(story, calls=1)
    story.reply("root", "", call(id="d"))
    assert story.did(CallTool, "root") == 3 and story.is_("root") == "Working"
    story.tool("root", 0)
    assert story.is_("root") == "Thinking", "nobody is asked about calls that nobody wants to make"
    story.reply("root", "", call(id="e"))
    (question,) = asking(story)
    story.post("root", LimitChanged(then="land", question=question.id))
    assert story.asked("root").purpose == "final"


def test_the_answer_about_one_tree_is_none_about_another() -> None:
    story = at_its_limit()
    story.start("other", task="x" * 76, budget=Budget(tokens=1_500, on_limit="ask"))
    story.reply("other", "thinking", call(), usage=Usage(input=100, output=500))
    story.tool("other", text="y" * 76)
    (mine,), (theirs,) = asking(story), asking(story, "other")
    assert mine.id != theirs.id and "no longer open" in add(
        story, "other", tokens=5_000, question=mine.id
    )
    add(story, "other", tokens=5_000, question=theirs.id)
    assert story.is_("other") == "Thinking" and story.is_("root") == "Short"


def test_the_fold_of_the_log_knows_raised_limits() -> None:
    story = at_its_limit()
    add(story, tokens=5_000)
    story.reply("root", "", call())
    story.tool("root")
    folded = Story(SMALL)
    for entry in story.entries:
        folded.trees.fold(entry)
    tree = folded.trees.by_root["root"]
    assert tree.ledger.accounts["root"].limit == story.account("root").limit
    assert tree.runs["root"] == story.run("root")


def test_a_deadline_that_is_moved_moves_for_all_who_have_it_from_there() -> None:
    story = Story(SMALL)
    story.start(budget=Budget(seconds=60.0))
    one, two = story.spawning("root", hand("a"), hand("b", timeout_ms=1_000))
    before = story.run("root").deadline
    assert before is not None and story.run(one).deadline == before
    assert story.post("root", LimitChanged(more_ms=30_000)) == ""
    assert story.run("root").deadline == story.run(one).deadline == before + 30_000
    assert (
        story.run(one).wake_at == before + 30_000 and story.run(two).deadline == story.now + 1_000
    )
    story.now = before
    assert story.wake(two) == "" and story.is_(one) == "Thinking"
    story.wake("root")
    assert story.ended("root") == ("timed_out", "deadline")


def test_a_limit_in_dollars_is_counted_as_its_calls_are_held() -> None:
    """A prompt may be written to a cache, which costs more than to send it."""
    model = ModelInfo(
        name="m",
        window=100_000,
        max_output=1_000,
        price_in=100,
        price_out=500,
        price_cache_write=125,
    )
    story = Story(SMALL, model)
    story.start(task="x" * 976, budget=Budget(usd=0.001))
    records = {story.is_("root")}
    while story.is_("root") == "Thinking":
        story.reply("root", "more", call(), usage=Usage(input=1_000, output=100))
        if story.is_("root") == "Working":
            story.tool("root")
        records.add(story.is_("root"))
    assert story.is_("root") == "Ended" and "Short" not in records, (
        "nobody holds anything: there is nothing to wait for"
    )


def test_amounts_are_written_for_people() -> None:
    assert [written(1, n) for n in (0, 10, 1_500, 1_000_000_000, 1_234_567_890, 25_000_000)] == [
        "$0.00", "$0.00000001", "$0.000001", "$1.00", "$1.234567", "$0.025"
    ]  # fmt: skip
    assert written(0, 12_345) == "12,345 tokens" and written(3, 2) == "2 tool calls"
