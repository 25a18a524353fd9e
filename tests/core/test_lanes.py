"""Lanes: who runs, who waits, and who comes first."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.events import Admitted, Asked, RunCreated
from retinue.core.lanes import SharedLanes
from retinue.core.spec import Lane
from retinue.core.state import Queued
from retinue.core.values import Budget
from tests.core.driver import Story, call, hand

ONE = (Lane(name="one", size=1),)
TWO = (Lane(name="narrow", size=1), Lane(name="wide", size=2))


def test_a_full_lane_is_a_queue_and_the_first_in_is_the_first_out() -> None:
    story = Story()
    for id in "abcd":
        story.start(id, lanes=ONE)
    assert [story.is_(id) for id in "abcd"] == ["Thinking", "Queued", "Queued", "Queued"]
    for now, following in (("a", "b"), ("b", "c"), ("c", "d")):
        story.reply(now, "x")
        assert story.is_(following) == "Thinking"
    story.reply("d", "x")
    assert story.leaks() == {}


def test_a_lane_of_one_finishes_a_tree_of_three_levels_that_all_join() -> None:
    story = Story()
    story.start(lanes=ONE)
    (a,) = story.spawning("root", hand(lanes=ONE))
    (b,) = story.spawning(a, hand(lanes=ONE))
    (c,) = story.spawning(b, hand(lanes=ONE))
    for id in (c, b, a, "root"):
        assert story.held("one") == 1
        story.reply(id, f"{id} is done")
        assert story.ended(id) == ("completed", "done")
    assert story.leaks() == {}


def test_a_lane_that_refuses_says_so() -> None:
    story = Story()
    lane = Lane(name="one", size=1, on_full="refuse")
    story.start()
    (a,) = story.spawning("root", hand(lanes=(lane,), join="none"))
    story.reply("root", "", call("hire"))
    story.order("root", hand(lanes=(lane,)))
    assert "lane 'one' is full (limit 1)" in story.results("root")[-1].text
    story.reply(a, "x")
    assert story.spawning("root", hand(lanes=(lane,)))


def test_asking_whether_a_lane_is_full_leaves_nothing_behind() -> None:
    story = Story()
    lane = Lane(name="one", size=1, on_full="refuse")
    story.start()
    story.reply("root", "", call("hire"))
    story.order("root", hand(lanes=(lane,), model="ghost"))
    story.reply("root", "done")
    assert story.leaks() == {}


def test_who_has_run_before_comes_before_who_has_not() -> None:
    story = Story()
    story.start("a", lanes=ONE)
    (child,) = story.spawning("a", hand())
    story.start("b", lanes=ONE)
    story.start("c", lanes=ONE)
    story.reply(child, "x")
    state = story.state("a")
    assert isinstance(state, Queued)
    assert state.back
    story.reply("b", "x")
    assert (story.is_("a"), story.is_("c")) == ("Thinking", "Queued")


def test_of_those_who_come_back_the_first_is_first() -> None:
    story = Story()
    story.start("a", lanes=ONE)
    (of_a,) = story.spawning("a", hand())
    story.start("b", lanes=ONE)
    (of_b,) = story.spawning("b", hand())
    story.start("c", lanes=ONE)
    story.reply(of_a, "x")
    story.reply(of_b, "x")
    assert [story.is_(id) for id in "abc"] == ["Queued", "Queued", "Thinking"]
    story.reply("c", "x")
    assert (story.is_("a"), story.is_("b")) == ("Thinking", "Queued")


def test_lanes_are_taken_in_order_and_held_while_waiting_for_the_next() -> None:
    story = Story()
    story.start("w1", lanes=TWO[1:])
    story.start("w2", lanes=TWO[1:])
    story.start("a", lanes=TWO)
    story.start("b", lanes=TWO)
    assert (story.held("narrow"), story.held("wide")) == (1, 2)
    a, b = story.state("a"), story.state("b")
    assert isinstance(a, Queued)
    assert isinstance(b, Queued)
    assert (a.lane, b.lane) == (1, 0)
    story.reply("w1", "x")
    assert story.is_("a") == "Thinking"
    story.reply("a", "x")
    assert story.is_("b") == "Thinking"
    story.reply("b", "x")
    story.reply("w2", "x")
    assert story.leaks() == {}


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_cancel_while_queued_gives_back_what_was_held(who: str) -> None:
    story = Story()
    story.start("w1", lanes=TWO[1:])
    story.start("w2", lanes=TWO[1:])
    story.start("a", lanes=TWO)
    story.start("b", lanes=TWO)
    story.cancel(who)
    assert story.ended(who) == ("cancelled", "cancelled")
    assert story.n_asked(who) == 0
    assert story.held("narrow") == 1
    for id in ("a", "b"):
        story.cancel(id)
    for id in ("w1", "w2"):
        story.reply(id, "x")
    assert story.leaks() == {}


def test_a_cancel_that_meets_the_grant_gives_the_slot_on() -> None:
    """The parent ends, its slot goes to its queued child, and its cancel reaches the child in the
    same step."""
    story = Story()
    story.start("p", lanes=ONE)
    (child,) = story.spawning("p", hand(join="none", lanes=ONE))
    story.start("next", lanes=ONE)
    assert story.is_(child) == "Queued"
    story.cancel("p")
    assert story.ended(child)[0] == "cancelled"
    assert story.ended("p")[0] == "cancelled"
    assert story.is_("next") == "Thinking"
    story.reply("next", "x")
    assert story.leaks() == {}


def test_an_admission_that_nobody_gave_is_refused() -> None:
    story = Story()
    story.start("a", lanes=ONE)
    story.start("b", lanes=ONE)
    before = story.run("b")
    assert "no slot was given" in story.post("b", Admitted())
    assert story.run("b") == before


def test_a_second_enlistment_takes_no_second_slot() -> None:
    story = Story()
    story.start("w1", lanes=TWO[1:])
    story.start("w2", lanes=TWO[1:])
    story.start("a", lanes=TWO)
    story.post("a", RunCreated())
    assert story.held("narrow") == 1
    for id in ("w1", "w2", "a"):
        story.cancel(id)
    assert story.leaks() == {}


def test_asking_and_waiting_and_resting_runs_hold_no_slot() -> None:
    story = Story()
    story.start("host", stay_open=True, lanes=ONE)
    story.reply("host", "ready")
    assert story.held("one") == 0
    story.mail_to("host", "go")
    assert story.held("one") == 1
    story.reply("host", "", call())
    story.post("host", Asked(question="?", **story.address("host", 0)))
    assert story.held("one") == 0
    story.cancel("host")
    assert story.leaks() == {}


@pytest.mark.parametrize(
    "order", [{"max_turns": 0}, {"budget": Budget(tokens=0)}, {"budget": Budget(turns=0)}]
)
def test_a_run_that_ends_before_its_first_turn_gives_its_slot_back(order: dict[str, Any]) -> None:
    story = Story()
    story.start("a", lanes=TWO, **order)
    assert story.ended("a")[0] == "incomplete"
    assert story.leaks() == {}


def test_a_run_that_ends_when_it_comes_back_gives_its_slot_back() -> None:
    story = Story()
    story.start("a", lanes=TWO, max_turns=1)
    (child,) = story.spawning("a", hand())
    story.reply(child, "x")
    assert story.ended("a") == ("incomplete", "turn_limit")
    assert story.leaks() == {}


def test_a_run_that_waits_to_try_again_keeps_its_slot() -> None:
    story = Story()
    story.start("a", lanes=ONE)
    story.fail("a", retry=True)
    assert story.held("one") == 1
    story.cancel("a")
    assert story.leaks() == {}


def test_three_hundred_runs_in_a_lane_of_three_never_exceed_it() -> None:
    story = Story()
    lanes = (Lane(name="three", size=3),)
    story.start()
    children = story.spawning("root", *(hand(lanes=lanes) for _ in range(300)))
    n_done = 0
    while n_done < len(children):
        thinking = [c for c in children if story.is_(c) == "Thinking"]
        assert len(thinking) == min(3, len(children) - n_done)
        story.reply(thinking[0], "x")
        n_done += 1
    assert story.is_("root") == "Thinking"
    assert story.trees.lanes.lanes.by_name == {}


def test_only_the_ticket_that_was_asked_for_admits_to_a_lane_that_trees_share() -> None:
    story = Story()
    story.start("a", lanes=ONE)
    story.start("b", lanes=ONE)
    state = story.state("b")
    assert isinstance(state, Queued)
    assert "no slot" in story.post("b", Admitted(ticket=state.ticket + 1))
    assert "no slot" in story.post("b", Admitted())
    assert story.is_("b") == "Queued"


def test_to_free_a_slot_twice_frees_it_once() -> None:
    lanes, (lane,) = SharedLanes(), ONE
    assert lanes.ask("a", lane, back=False, ticket=1)
    assert not lanes.ask("b", lane, back=False, ticket=2)
    assert not lanes.ask("c", lane, back=False, ticket=3)
    assert lanes.free("a", lane) == ("b", 2)
    assert lanes.free("a", lane) is None
    assert lanes.free("c", lane) is None, "it only waited"
    assert lanes.free("b", lane) is None
    assert lanes.lanes.by_name == {} and lanes.holders == {}


def test_lanes_of_the_tree_are_taken_before_those_that_trees_share() -> None:
    own, shared = Lane(name="own", size=9, scope="tree"), Lane(name="shared", size=1)
    story = Story()
    story.start("a", lanes=(shared, own))
    assert [lane.name for lane in story.specs["a"].request.lanes] == ["own", "shared"]


def test_after_a_restart_who_was_at_work_holds_its_slot_in_a_shared_lane() -> None:
    story = Story()
    for id in "abc":
        story.start(id, lanes=ONE)
    story.restart()
    assert [story.is_(id) for id in "abc"] == ["Thinking", "Queued", "Queued"]
    assert story.held("one") == 1
    for id in "abc":
        story.reply(id, "x")
    assert story.leaks() == {}
