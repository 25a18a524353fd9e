"""Who ended a run is data, whoever did it is not told, and a result always finds somebody who can
hear it."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.effects import AbortRun
from retinue.core.events import Aborted, Requested
from retinue.core.spec import ForkPoint, RunRequest
from retinue.core.values import Origin
from tests.core.driver import Story, call, hand


def started(**order: Any) -> Story:
    story = Story()
    story.start(**order)
    return story


def test_who_cancelled_a_run_is_told_by_its_ending() -> None:
    for who, event in {
        "user": {},
        "system": {"who": "system", "reason": "the parent said: cancelled by the user"},
    }.items():
        story = started()
        story.cancel("root", **event)
        assert (story.ending("root").by, story.ending("root").along) == (who, "")


def test_who_ends_with_its_parent_is_ended_by_whoever_ended_that() -> None:
    story = started(timeout_ms=100)
    (child,) = story.spawning("root", hand())
    (below,) = story.spawning(child, hand())
    story.wake("root")
    assert [(story.ending(id).by, story.ending(id).along) for id in (child, below)] == [
        ("limit", "root"),
        ("limit", child),
    ]
    story = started()
    (child,) = story.spawning("root", hand(join="none"))
    story.reply("root", "done")
    assert (story.ending(child).by, story.ending(child).along) == ("parent", "root")


def test_a_parent_that_cancels_a_child_is_not_told_that_it_has() -> None:
    story = started()
    a, b = story.spawning("root", hand("a", join="none"), hand("b", join="none"))
    story.reply("root", "", call("hire"))
    story.order("root", cancels=(a,))
    assert (story.ended(a), story.ending(a).by) == (("cancelled", "cancelled"), "parent")
    assert not story.tree().has_mail("root")
    story.cancel(b)
    assert "cancelled by the user" in story.texts("root") or story.tree().has_mail("root")


def test_those_who_end_with_their_parent_announce_nothing() -> None:
    story = started(origin=Origin(channel="hook"), announce=True)
    story.spawning(
        "root", hand("a", join="none", announce=True), hand("b", join="none", announce=True)
    )
    story.cancel("root")
    states = {d.run: d.state for d in story.deliveries.values()}
    assert states.pop("root") == "pending"
    assert set(states.values()) == {"suppressed"}


def test_a_result_whose_parent_has_ended_goes_to_the_nearest_that_lives() -> None:
    story = started()
    (child,) = story.spawning("root", hand("a", join="none", children_on_end="keep"))
    (below,) = story.spawning(child, hand("b", join="none", children_on_end="keep"))
    (deep,) = story.spawning(below, hand("c", join="none"))
    story.reply(below, "b is done")
    for _ in range(2):
        story.reply(child, "a is done")
    assert story.ended(child) == ("completed", "done")
    story.reply(deep, "c is done")
    story.reply("root", "", call())
    story.tool("root")
    assert [story.texts("root").count(f"{x} is done") for x in "abc"] == [1, 0, 1]


def test_a_result_for_which_nobody_is_left_goes_to_the_channel_that_asked() -> None:
    story = started(children_on_end="keep", origin=Origin(channel="hook"))
    (child,) = story.spawning("root", hand("a", join="none"))
    story.reply("root", "done")
    assert story.deliveries == {}
    story.reply(child, "found it")
    assert [d.text for d in story.deliveries.values()] == ["found it"]
    assert story.leaks() == {}


def test_news_that_an_ended_run_has_not_read_is_read_by_its_parent() -> None:
    story = started()
    (child,) = story.spawning("root", hand("a", timeout_ms=100, children_on_end="keep"))
    (below,) = story.spawning(child, hand("b", join="none"))
    story.reply(below, "b is done")
    story.wake(child)
    assert story.ended(child) == ("timed_out", "deadline")
    story.reply("root", "So?", call())
    story.tool("root")
    assert story.texts("root").count("b is done") == 1


def late(story: Story, parent: str, **order: Any) -> tuple[str, str]:
    """A child that has said its last word and waits for its own child's stopped call; returns
    both."""
    (child,) = story.spawning(parent, hand("a", join="none", **order))
    (below,) = story.spawning(child, hand("b", join="none"))
    story.keeps_aborts = True
    story.reply(child, "a is done")
    assert story.is_(child) == "Stopping"
    return child, below


def arrive(story: Story, below: str) -> None:
    (abort,) = [
        e for e in story.effects if isinstance(e, AbortRun) and e.run == below and e.attempt
    ]
    story.post(below, Aborted(attempt=abort.attempt))


@pytest.mark.parametrize("how", ["fail", "wake"])
def test_a_result_that_reaches_a_stopping_root_goes_to_the_channel(how: str) -> None:
    story = started(origin=Origin(channel="hook"), timeout_ms=1_000)
    child, below = late(story, "root")
    if how == "fail":
        story.fail("root", kind="auth", retry=False)
    else:
        story.wake("root")
    assert story.is_("root") == "Stopping"
    arrive(story, below)
    if story.is_("root") == "Stopping":
        arrive(story, "root")
    assert story.ended(child) == ("completed", "done")
    assert [d.text for d in story.deliveries.values()] == ["a is done"]
    assert story.leaks() == {}


def test_a_result_that_reaches_a_stopping_run_is_read_by_its_parent() -> None:
    story = started()
    (middle,) = story.spawning("root", hand("m", join="none"))
    child, below = late(story, middle)
    story.fail(middle, kind="auth", retry=False)
    assert story.is_(middle) == "Stopping"
    arrive(story, below)
    assert story.ended(child) == ("completed", "done")
    story.reply("root", "", call())
    story.tool("root")
    assert story.texts("root").count("a is done") == 1


def test_news_that_an_ended_root_has_not_read_goes_to_the_channel() -> None:
    story = started(origin=Origin(channel="hook"))
    (child,) = story.spawning("root", hand("a", join="none"))
    story.reply(child, "a is done")
    story.fail("root", kind="auth", retry=False)
    assert [d.text for d in story.deliveries.values()] == ["a is done"]


def test_what_the_channel_was_told_by_the_child_itself_is_not_told_again() -> None:
    story = started(origin=Origin(channel="hook"))
    (child,) = story.spawning("root", hand("a", join="none", announce=True))
    story.reply(child, "a is done")
    story.fail("root", kind="auth", retry=False)
    assert [(d.run, d.text) for d in story.deliveries.values()] == [(child, "a is done")]


def test_news_that_a_cancelled_run_has_not_read_is_read_by_whoever_lives_above_it() -> None:
    story = started()
    (child,) = story.spawning("root", hand("a", join="none"))
    (below,) = story.spawning(child, hand("b", join="none"))
    story.reply(below, "b is done")
    story.cancel(child)
    story.reply("root", "", call())
    story.tool("root")
    assert story.texts("root").count("b is done") == 1


def test_a_tree_that_was_cancelled_stays_silent_about_what_nobody_has_read() -> None:
    story = started(origin=Origin(channel="hook"))
    (child,) = story.spawning("root", hand("a", join="none"))
    (below,) = story.spawning(child, hand("b", join="none"))
    (other,) = story.spawning(child, hand("c", join="none"))
    story.reply(below, "b is done")
    story.reply(other, "c is done")
    story.cancel("root")
    assert story.deliveries == {}
    assert story.leaks() == {}


@pytest.mark.parametrize("restarts", [False, True])
def test_news_of_an_earlier_root_goes_to_the_channel_when_the_one_that_goes_on_has_ended_too(
    restarts: bool,
) -> None:
    story = started(children_on_end="keep", origin=Origin(channel="hook"))
    (child,) = story.spawning("root", hand("a", join="none"))
    story.reply("root", "started")
    order = RunRequest(
        agent="boss", task="go on", children_on_end="keep", origin=Origin(channel="hook")
    )
    base = ForkPoint(conversation="root", length=story.run("root").length)
    story.post(
        "", Requested(id="root2", request=order, conversation="root", resumes="root", base=base)
    )
    (second,) = story.spawning("root2", hand("b", join="none"))
    story.reply("root2", "started too")
    if restarts:
        story.restart()
    story.reply(child, "a is done")
    assert [d.text for d in story.deliveries.values()] == ["a is done"]
    story.reply(second, "b is done")
    assert story.leaks() == {}


def test_results_that_were_to_be_joined_are_part_of_what_a_run_leaves() -> None:
    story = started(timeout_ms=1_000)
    a, _ = story.spawning("root", hand("a", label="a"), hand("b", label="b"))
    story.reply(a, "a is done")
    story.wake("root")
    assert story.ending("root").text == "Results received so far:\n\n## a (completed)\na is done"
