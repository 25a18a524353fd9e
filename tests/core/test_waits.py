"""Calls that wait for children they have not joined: woken by an end or by time, without a slot,
through restarts."""

from __future__ import annotations

from retinue.core.effects import CallTool
from retinue.core.spec import Lane, WaitForRuns
from tests.core.driver import Story, call, hand


def waiting(
    first: bool = False, timeout_ms: int = 1_000, **order: object
) -> tuple[Story, str, str]:
    """A root with two children in the background and a call that waits for them."""
    story = Story()
    story.start(**order)
    a, b = story.spawning("root", hand("a", join="none"), hand("b", join="none"))
    story.reply("root", "", call("look"))
    story.order(
        "root", wait=WaitForRuns(runs=(a, b), timeout_ms=timeout_ms, first=first, then='{"n": 1}')
    )
    return story, a, b


def woken(story: Story) -> list[CallTool]:
    return [e for e in story.effects if isinstance(e, CallTool) and e.woken]


def test_a_call_waits_for_all_and_is_run_again_with_its_own_arguments() -> None:
    story, a, b = waiting()
    assert story.is_("root") == "Waiting"
    story.reply(a, "one")
    assert woken(story) == []
    story.reply(b, "two")
    (again,) = woken(story)
    assert (again.call.name, again.call.arguments_json) == ("look", '{"n": 1}')
    assert story.is_("root") == "Waiting"
    story.tool("root", text="both are done")
    assert story.is_("root") == "Thinking"
    assert "both are done" in story.texts("root")


def test_waiting_takes_nothing_away_the_news_come_as_well_and_once() -> None:
    story, a, b = waiting()
    story.reply(a, "one")
    story.reply(b, "two")
    story.tool("root", text="seen")
    assert story.texts("root").count("one") == 1
    assert story.texts("root").count("two") == 1


def test_a_wait_for_the_first_is_over_with_the_first() -> None:
    story, a, _ = waiting(first=True)
    story.reply(a, "one")
    assert len(woken(story)) == 1


def test_a_wait_is_over_when_its_time_is() -> None:
    story, a, b = waiting(timeout_ms=500)
    story.later(500)
    story.wake("root")
    assert len(woken(story)) == 1
    story.tool("root", text="still at it")
    assert story.is_("root") == "Thinking"
    assert story.is_(a) == story.is_(b) == "Thinking"


def test_a_wait_for_nobody_is_over_at_once() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call("look"))
    story.order("root", wait=WaitForRuns(runs=("unknown",), timeout_ms=1_000))
    assert len(woken(story)) == 1


def test_a_tool_may_wait_again() -> None:
    story, a, b = waiting(timeout_ms=500)
    story.later(500)
    story.wake("root")
    story.order("root", wait=WaitForRuns(runs=(a, b), timeout_ms=1_000))
    story.reply(a, "one")
    story.reply(b, "two")
    assert len(woken(story)) == 2
    story.tool("root", text="done")
    assert len([r for r in story.results("root") if r.text == "done"]) == 1


def test_a_waiting_run_holds_no_slot_and_needs_none_to_look() -> None:
    lane = (Lane(name="one", size=1),)
    story = Story()
    story.start(lanes=lane)
    (a,) = story.spawning("root", hand("a", join="none", lanes=lane))
    story.reply("root", "", call("look"))
    assert story.is_(a) == "Queued"
    story.order("root", wait=WaitForRuns(runs=(a,), timeout_ms=60_000))
    assert story.is_(a) == "Thinking"
    story.reply(a, "one")
    story.tool("root", text="seen")
    assert story.is_("root") == "Thinking"
    story.reply("root", "end")
    assert story.leaks() == {}


def test_a_wait_goes_on_after_a_restart() -> None:
    story, a, b = waiting()
    story.restart()
    assert story.is_("root") == "Waiting"
    story.reply(a, "one")
    story.reply(b, "two")
    assert len(woken(story)) == 1
    story.tool("root", text="seen")
    assert story.is_("root") == "Thinking"


def test_what_was_woken_when_the_process_died_is_run_again_also_when_it_is_unsafe() -> None:
    story, a, b = waiting()
    story.reply(a, "one")
    story.reply(b, "two")
    story.restart("unsafe")
    first, again = woken(story)
    assert (first.call, again.call, again.again) == (first.call, first.call, True)
    story.tool("root", text="seen")
    assert [r.text for r in story.results("root")][-1] == "seen"


def test_a_wait_whose_time_passed_while_nobody_lived_is_over_after_the_restart() -> None:
    story, _, _ = waiting(timeout_ms=500)
    story.later(10_000)
    story.restart()
    assert len(woken(story)) == 1


def test_a_wait_keeps_the_end_of_a_child_that_is_not_kept_also_through_a_restart() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand("a", join="none", tell_parent=False, retention="delete"))
    story.reply("root", "", call("look"))
    story.order("root", wait=WaitForRuns(runs=(a,), timeout_ms=1_000))
    story.reply(a, "one")
    assert story.forgotten == [a]
    story.restart()
    for effect in woken(story):
        assert [(o.id, o.ending.text) for o in effect.back] == [(a, "one")]
    assert len(woken(story)) == 2


def test_a_steering_message_breaks_a_wait_off_and_the_history_says_so() -> None:
    story, a, _ = waiting()
    story.mail_to("root", "stop waiting", steer=True)
    assert story.is_("root") == "Thinking"
    assert "interrupted" in story.texts("root")
    story.reply(a, "one")
    assert woken(story) == []


def test_a_cancel_reaches_a_waiting_run() -> None:
    story, a, b = waiting()
    story.cancel("root")
    assert story.ended("root") == ("cancelled", "cancelled")
    assert story.ended(a) == story.ended(b) == ("cancelled", "cancelled")
    assert story.leaks() == {}


def test_a_call_cannot_join_children_and_wait_for_them_too() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call("hire"))
    story.order("root", hand("a", join="call"), wait=WaitForRuns(runs=(), timeout_ms=5))
    assert "not both" in story.texts("root")
    assert story.children("root") == []
