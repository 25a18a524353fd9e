"""How runs end: cancels, deadlines, orphans; and how they stay: hosts, pauses, questions."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.effects import AbortRun
from retinue.core.events import Answered, Asked, ChildEnded, PermissionsRestricted, Replied, Woke
from retinue.core.messages import AssistantMessage, ModelReply, ToolMessage
from retinue.core.spec import Lane
from retinue.core.state import Asking, Waiting
from retinue.core.values import Budget, Limits, Origin, Permissions
from tests.core.driver import Story, call, hand


def in_state(name: str) -> Story:
    """A story whose root is in that state."""
    story = Story()
    if name == "Queued":
        story.start("first", lanes=(Lane(name="one", size=1),))
        story.start(lanes=(Lane(name="one", size=1),))
        return story
    story.start(stay_open=name == "Resting")
    match name:
        case "Retrying":
            story.fail("root", retry=True)
        case "Working":
            story.reply("root", "", call())
        case "Waiting":
            story.spawning("root", hand())
        case "Asking":
            story.reply("root", "", call())
            story.post("root", Asked(question="?", **story.address("root", 0)))
        case "Resting":
            story.reply("root", "ready")
    return story


STATES = ["Queued", "Thinking", "Retrying", "Working", "Waiting", "Asking", "Resting"]


@pytest.mark.parametrize("name", STATES)
def test_a_cancel_ends_a_run_in_every_state(name: str) -> None:
    story = in_state(name)
    assert story.cancel("root", by="ann", reason="enough") == ""
    assert story.ended("root") == ("cancelled", "cancelled")
    assert story.ending("root").error == "enough"
    assert story.cancel("root") != ""
    story.cancel("first")
    assert story.leaks() == {}
    assert story.unbalanced() == []


@pytest.mark.parametrize("name", ["Thinking", "Working"])
def test_a_cancel_stops_what_is_under_way(name: str) -> None:
    story = in_state(name)
    story.cancel("root")
    assert story.did(AbortRun, "root") == 1


def test_a_cancel_says_who_asked() -> None:
    story = in_state("Thinking")
    story.cancel("root")
    assert story.ending("root").error == "cancelled by the user"


def test_a_cancelled_parent_waits_for_its_children() -> None:
    """A tree of three levels ends from below, in one step, with one end each."""
    story = Story()
    story.start()
    a, b = story.spawning("root", hand("a"), hand("b"))
    (d,) = story.spawning(a, hand("d", join="none"))
    (c,) = story.spawning(a, hand("c"))
    story.cancel("root")
    for id in ("root", a, b, c, d):
        assert story.ended(id)[0] == "cancelled"
    rows = [
        (e.run, e.event.child)
        for e in story.entries
        if isinstance(e.event, ChildEnded) and not e.stale
    ]
    assert sorted(rows) == sorted([("root", a), ("root", b), (a, c), (a, d)])
    assert max(rows.index((a, c)), rows.index((a, d))) < rows.index(("root", a))
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_the_first_end_wins() -> None:
    story = Story()
    story.start()
    attempt = story.asked("root").attempt
    story.cancel("root")
    late = Replied(attempt=attempt, reply=ModelReply(message=AssistantMessage(text="done")))
    assert "not live" in story.post("root", late)
    assert story.ended("root") == ("cancelled", "cancelled")
    story.start("two")
    story.reply("two", "done")
    assert story.cancel("two") != ""
    assert story.ended("two") == ("completed", "done")


def test_a_cancel_keeps_what_was_said() -> None:
    story = Story()
    story.start()
    story.reply("root", "half way", call())
    story.cancel("root")
    assert story.ending("root").text == "half way"
    assert story.ending("root").last_tool == "look"


def test_a_deadline_counts_from_the_start() -> None:
    story = Story()
    lanes = (Lane(name="one", size=1),)
    story.start("first", lanes=lanes)
    story.start(timeout_ms=100, lanes=lanes)
    story.later(500)
    story.reply("first", "x")
    assert story.run("root").deadline == story.now + 100
    story.later(99)
    story.post("root", Woke())
    assert story.is_("root") == "Thinking"
    story.later(1)
    story.post("root", Woke())
    assert story.ended("root") == ("timed_out", "deadline")


def test_or_from_when_it_was_asked_for_even_in_a_queue() -> None:
    story = Story()
    lanes = (Lane(name="one", size=1),)
    story.start("first", lanes=lanes)
    story.start(timeout_ms=100, timeout_from="created", lanes=lanes)
    story.wake("root")
    assert story.ended("root") == ("timed_out", "deadline")
    assert story.n_asked("root") == 0


@pytest.mark.parametrize("name", STATES)
def test_a_deadline_ends_a_run_in_every_state(name: str) -> None:
    story = Story()
    if name == "Queued":
        story.start("first", lanes=(Lane(name="one", size=1),))
    lanes = (Lane(name="one", size=1),) if name == "Queued" else ()
    story.start(timeout_ms=50, timeout_from="created", stay_open=name == "Resting", lanes=lanes)
    if name == "Retrying":
        story.fail("root", retry=True, after_ms=10_000)
    if name in ("Working", "Asking"):
        story.reply("root", "", call())
    if name == "Asking":
        story.post("root", Asked(question="?", **story.address("root", 0)))
    if name == "Waiting":
        story.spawning("root", hand())
    if name == "Resting":
        story.reply("root", "ready")
    assert story.run("root").wake_at == story.now + 50
    story.wake("root")
    assert story.ended("root") == ("timed_out", "deadline")
    story.cancel("first")
    assert story.leaks() == {}


def test_a_child_inherits_the_deadline_and_may_have_a_sooner_one() -> None:
    story = Story()
    story.start(timeout_ms=1_000)
    deadline = story.run("root").deadline
    assert deadline is not None
    a, b = story.spawning("root", hand(timeout_ms=5_000), hand(timeout_ms=100))
    assert story.run(a).deadline == deadline
    assert story.run(b).deadline == story.now + 100
    story.wake(b)
    assert story.ended(b) == ("timed_out", "deadline")
    story.wake("root")
    assert story.ended(a)[0] == "cancelled"
    assert story.ended("root")[0] == "timed_out"


def test_an_early_bell_is_harmless() -> None:
    for name in STATES:
        story = in_state(name)
        story.post("root", Woke())
        assert story.is_("root") != "Ended"
        assert story.run("root").wake_at is not None


@pytest.mark.parametrize("name", ["Working", "Waiting", "Asking"])
def test_no_wait_is_endless(name: str) -> None:
    story = in_state(name)
    assert story.run("root").wake_at == story.now + story.trees.shared.limits.wait_ms
    story.wake("root")
    assert story.ended("root") == ("timed_out", "waited_too_long")


def test_a_host_rests_and_works_again_when_somebody_writes() -> None:
    story = Story()
    story.start(stay_open=True)
    story.reply("root", "ready")
    assert isinstance(story.state("root"), Waiting)
    story.mail_to("root", "work")
    story.reply("root", "done")
    assert isinstance(story.state("root"), Waiting)
    story.wake("root")
    assert story.ended("root") == ("completed", "idle")
    assert story.ending("root").text == "done"


def test_orphans_end_with_their_parent_unless_it_says_otherwise() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand(join="none"))
    story.reply("root", "done")
    assert story.ended(a) == ("cancelled", "cancelled")
    assert story.ended("root") == ("completed", "done")
    assert story.leaks() == {}


def test_kept_orphans_outlive_their_parent_and_pay_from_its_account() -> None:
    story = Story()
    story.start(children_on_end="keep", budget=Budget(tokens=100_000))
    (a,) = story.spawning("root", hand(join="none"))
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")
    assert story.is_(a) == "Thinking"
    assert story.account("root").closed
    story.reply(a, "", call())
    story.tool(a)
    story.reply(a, "late")
    assert story.ended(a) == ("completed", "done")
    assert story.leaks() == {}
    assert story.unbalanced() == []
    assert story.accounts["root"].spent[0] == 15 * 4


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_kept_orphans_are_not_kept_from_a_cancel_or_a_deadline(how: str) -> None:
    story = Story()
    story.start(children_on_end="keep", timeout_ms=100)
    (a,) = story.spawning("root", hand(join="none"))
    if how == "cancel":
        story.cancel("root")
    else:
        story.wake("root")
    assert story.is_(a) == "Ended"
    assert story.leaks() == {}


def test_a_parent_may_wait_for_its_orphans() -> None:
    story = Story()
    story.start(children_on_end="wait")
    a, b = story.spawning("root", hand("a", join="none"), hand("b", join="none"))
    story.reply("root", "waiting for them")
    assert isinstance(story.state("root"), Waiting)
    story.reply(a, "one")
    assert isinstance(story.state("root"), Waiting)
    story.reply(b, "two")
    assert story.is_("root") == "Thinking"
    assert "one" in story.texts("root")
    assert "two" in story.texts("root")
    story.reply("root", "all there")
    assert story.ending("root").text == "all there"
    assert story.leaks() == {}


def test_a_pause_ends_the_turn_until_there_is_news() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand(join="none"), pause=True)
    state = story.state("root")
    assert isinstance(state, Waiting)
    assert state.calls is None
    assert story.n_asked("root") == 1
    story.reply(a, "news!")
    assert story.n_asked("root") == 2
    assert "news!" in story.messages("root")[-1].text


def test_a_pause_with_nobody_to_wait_for_goes_on() -> None:
    story = Story()
    story.start()
    story.spawning("root", pause=True)
    assert story.n_asked("root") == 2


def test_a_pause_with_news_already_there_goes_on() -> None:
    story = Story()
    story.start()
    a, _ = story.spawning("root", hand("a", join="none"), hand("b", join="none"))
    story.reply(a, "x")
    story.spawning("root", pause=True)
    assert story.n_asked("root") == 3


def test_a_question_waits_for_its_answer() -> None:
    story = in_state("Asking")
    assert isinstance(story.state("root"), Asking)
    answer = Answered(turn=1, index=0, call_id="c1", text="yes")
    assert "not open" in story.post("root", Answered(turn=1, index=1, call_id="c2", text="yes"))
    assert "not open" in story.post("root", Answered(turn=0, index=0, call_id="c1", text="yes"))
    assert story.post("root", answer) == ""
    assert story.results("root")[-1] == ToolMessage(call_id="c1", text="yes")
    assert "cannot reach" in story.post("root", answer)
    assert story.n_asked("root") == 2


def test_a_question_among_other_calls_leaves_them_be() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call(id="x"), call(id="y"), call("hire", id="z"))
    story.post("root", Asked(question="?", **story.address("root", 0)))
    assert story.is_("root") == "Working"
    story.order("root", hand(), index=2)
    story.tool("root", 1)
    assert story.is_("root") == "Asking"
    (child,) = story.children("root")
    story.reply(child, "x")
    assert story.is_("root") == "Asking"
    story.post("root", Answered(turn=1, index=0, call_id="x", text="yes"))
    assert story.n_asked("root") == 2


def test_a_question_with_children_out_waits_for_both() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call(id="x"), call("hire", id="z"))
    story.order("root", hand(join="turn"), index=1)
    story.post("root", Asked(question="?", **story.address("root", 0)))
    story.post("root", Answered(turn=1, index=0, call_id="x", text="yes"))
    assert story.is_("root") == "Waiting"
    story.reply(story.children("root")[0], "x")
    assert story.n_asked("root") == 2


def test_a_parent_hears_that_its_child_was_cancelled() -> None:
    story = Story()
    story.start()
    (child,) = story.spawning("root", hand())
    (grandchild,) = story.spawning(child, hand())
    story.cancel(child)
    assert story.ended(grandchild)[0] == "cancelled"
    assert story.results("root")[-1].error
    assert "cancelled" in story.results("root")[-1].text


def test_an_announcement_of_a_failure_says_so() -> None:
    story = Story()
    story.start(announce=True, origin=Origin(channel="chat", user="ann"), label="scout")
    story.fail("root", "boom", "it broke")
    (delivery,) = story.deliveries.values()
    assert delivery.text == "scout failed (boom): it broke"
    assert delivery.origin.user == "ann"


def test_without_a_channel_nothing_is_announced() -> None:
    story = Story()
    story.start(announce=True)
    story.reply("root", "x")
    assert story.deliveries == {}


def test_an_origin_is_handed_down() -> None:
    story = Story()
    story.start(origin=Origin(channel="chat"))
    a, b = story.spawning("root", hand(), hand(origin=Origin(channel="mail")))
    assert story.specs[a].origin.channel == "chat"
    assert story.specs[b].origin.channel == "mail"


@pytest.mark.parametrize("name", STATES)
def test_a_narrowed_run_goes_on_in_every_state(name: str) -> None:
    story = in_state(name)
    before: Any = story.state("root")
    story.post("root", PermissionsRestricted(permissions=Permissions(deny=("look",))))
    assert story.state("root") == before
    access = story.run("root").permissions
    assert access is not None
    assert access.deny == ("look",)


def test_a_silent_tool_may_not_hang_a_run_for_ever() -> None:
    story = Story(Limits(wait_ms=1_000))
    story.start()
    story.reply("root", "", call())
    story.later(999)
    story.post("root", Woke())
    assert story.is_("root") == "Working"
    story.later(1)
    story.post("root", Woke())
    assert story.ended("root") == ("timed_out", "waited_too_long")


def test_an_ordinary_end_leaves_those_alone_whom_an_ended_child_has_left_behind() -> None:
    story = Story()
    story.start(children_on_end="cancel")
    (a,) = story.spawning("root", hand(children_on_end="keep"))
    (orphan,) = story.spawning(a, hand(join="none"))
    story.reply(a, "done")
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")
    assert story.is_(orphan) == "Thinking"
    story.reply(orphan, "late, and kept")
    assert story.ended(orphan) == ("completed", "done")
    assert story.leaks() == {}
