"""A new process finds open runs: what it repeats, what it books, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.effects import CallModel, CallTool, FormatResults
from retinue.core.events import Answered, Asked, Cleared, Woke
from retinue.core.messages import UserMessage
from retinue.core.restarts import UNKNOWN
from retinue.core.spec import Lane
from retinue.core.state import Queued, Suspicion, Thinking
from retinue.core.values import Budget, Limits, Permissions
from tests.core.driver import Story, call, hand, send

ONE = (Lane(name="one", size=1),)
TWO = (Lane(name="narrow", size=1), Lane(name="wide", size=1))


def started(rules: Limits | None = None, **order: Any) -> Story:
    story = Story(rules)
    story.start(**order)
    return story


def test_a_lost_model_call_is_booked_and_made_again() -> None:
    story = started(budget=Budget(tokens=100_000))
    state = story.state("root")
    assert isinstance(state, Thinking)
    story.restart()
    assert story.asked("root").attempt == 2
    run = story.run("root")
    assert (run.usage.estimated, run.restarts, run.suspicion) == (
        state.hold[0],
        1,
        Suspicion(deaths=1),
    )
    assert story.account("root").spent[0] == state.hold[0]
    story.reply("root", "back again")
    assert story.ended("root") == ("completed", "done")
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_a_lost_call_that_leaves_too_little_ends_the_run_and_is_booked_once() -> None:
    story = started(
        Limits(min_output=100, final_output=100), budget=Budget(tokens=1_500), task="x" * 1_000
    )
    hold = story.state("root")
    assert isinstance(hold, Thinking)
    story.restart()
    if story.is_("root") == "Thinking":
        story.restart()
    assert story.ended("root")[0] == "incomplete"
    assert story.accounts["root"].spent[0] <= 1_500
    assert story.unbalanced() == []


def test_a_run_that_waited_to_try_again_still_waits() -> None:
    story = started()
    story.fail("root", retry=True, after_ms=5_000)
    before = story.state("root")
    story.restart()
    assert story.state("root") == before
    assert story.run("root").suspicion is None
    story.wake("root")
    story.reply("root", "ok")
    assert story.unbalanced() == []


@pytest.mark.parametrize("restart", ["pure", "keyed", "reconcile", "adoptable"])
def test_a_tool_that_may_is_run_again_with_the_same_key(restart: Any) -> None:
    story = started()
    story.reply("root", "", call(id="x"), call(id="y"))
    story.tool("root", 0)
    before = story.tool_call("root", 1)
    story.restart(restart)
    after = story.tool_call("root", 1)
    assert (after.key, after.call, after.again, before.again) == (
        before.key,
        before.call,
        True,
        False,
    )
    assert story.did(CallTool, "root") == 3
    story.tool("root", 1)
    assert len(story.results("root")) == 2
    assert story.n_asked("root") == 2


def test_an_unsafe_tool_is_never_run_again() -> None:
    story = started()
    story.reply("root", "", call(id="x"), call(id="y"))
    story.tool("root", 0)
    story.restart("unsafe")
    assert story.did(CallTool, "root") == 2
    assert story.results("root")[-1].text == UNKNOWN
    assert story.results("root")[-1].error
    assert story.n_asked("root") == 2


def test_children_that_were_back_are_not_lost_and_not_counted_twice() -> None:
    story = started()
    a, b = story.spawning("root", hand("a"), hand("b"))
    story.reply(a, "one")
    story.restart()
    assert story.results("root") == []
    story.reply(b, "two")
    text = story.results("root")[-1].text
    assert (text.count("one"), text.count("two")) == (1, 1)
    story.reply("root", "done")
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_calls_that_join_by_turn_are_rebuilt_too() -> None:
    story = started()
    story.reply("root", "", call("hire", "x"), call("hire", "y"))
    story.order("root", hand("a", join="turn"), index=0)
    story.order("root", hand("b", join="turn"), index=1)
    a, b = story.children("root")
    story.reply(b, "two")
    story.restart()
    story.reply(a, "one")
    assert [r.call_id for r in story.results("root")] == ["x", "y"]


def test_words_that_were_being_composed_are_composed_again() -> None:
    story = started()
    (a,) = story.spawning("root", hand(format_results=True))
    story.reply(a, "one")
    story.restart()
    assert story.did(FormatResults, "root") == 2
    story.format_results("root", "words")
    assert [r.text for r in story.results("root")] == ["words"]


def test_a_question_is_still_open() -> None:
    story = started()
    story.reply("root", "", call())
    story.post("root", Asked(question="?", **story.address("root", 0)))
    story.restart()
    assert story.is_("root") == "Asking"
    story.post("root", Answered(turn=1, index=0, call_id="c1", text="yes"))
    assert story.n_asked("root") == 2


def test_a_host_rests_on_and_reads_its_mail() -> None:
    story = started(stay_open=True)
    story.reply("root", "ready")
    story.restart()
    assert story.is_("root") == "Waiting"
    story.mail_to("root", "go")
    assert story.n_asked("root") == 2


def test_mail_is_kept_and_read_once() -> None:
    story = started()
    (a,) = story.spawning("root", hand(join="none"))
    story.reply("root", "", call("note"))
    story.order("root", sends=(send(a, "remember"),))
    story.restart()
    story.reply(a, "", call())
    story.tool(a)
    mails = [m for m in story.messages(a) if isinstance(m, UserMessage) and m.kind == "mail"]
    assert len(mails) == 1
    assert story.mail == {}


def test_those_at_work_keep_their_slots_and_those_who_waited_keep_their_order() -> None:
    story = Story()
    for id in "abcd":
        story.start(id, lanes=ONE)
    story.restart()
    assert story.held("one") == 1
    assert [story.is_(id) for id in "abcd"] == ["Thinking", "Queued", "Queued", "Queued"]
    for now, following in (("a", "b"), ("b", "c"), ("c", "d")):
        story.reply(now, "x")
        assert story.is_(following) == "Thinking"
    story.reply("d", "x")
    assert story.leaks() == {}


@pytest.mark.parametrize("how", ["woke", "cancel"])
def test_a_queued_run_that_ends_before_it_is_told_gives_back_only_what_it_held(how: str) -> None:
    story = Story()
    story.start("w", lanes=TWO[1:])
    story.start("q", lanes=TWO, timeout_ms=10, timeout_from="created")
    assert isinstance(story.state("q"), Queued)
    story.crash()
    story.later(100)
    if how == "woke":
        story.post("q", Woke())
    else:
        story.cancel("q")
    assert story.is_("q") == "Ended"
    assert story.held("narrow") == 0
    story.recover("w")
    story.reply("w", "x")
    assert story.leaks() == {}


def test_a_parent_that_fails_at_its_restart_takes_its_queued_children_along() -> None:
    story = Story()
    story.start("w", lanes=TWO[1:])
    story.start("p", on_restart="fail")
    story.spawning("p", hand(lanes=TWO))
    story.restart()
    assert story.ended("p") == ("interrupted", "restart")
    story.reply("w", "x")
    assert story.leaks() == {}


@pytest.mark.parametrize(
    "name", ["Queued", "Thinking", "Retrying", "Working", "Waiting", "Asking", "Resting"]
)
def test_a_run_may_ask_not_to_be_taken_up(name: str) -> None:
    story = Story()
    lanes = ONE if name == "Queued" else ()
    if lanes:
        story.start("first", lanes=lanes)
    story.start(on_restart="fail", stay_open=name == "Resting", lanes=lanes)
    if name == "Retrying":
        story.fail("root", retry=True)
    if name in ("Working", "Asking"):
        story.reply("root", "", call())
    if name == "Asking":
        story.post("root", Asked(question="?", **story.address("root", 0)))
    if name == "Waiting":
        story.spawning("root", hand())
    if name == "Resting":
        story.reply("root", "ready")
    story.restart()
    assert story.ended("root") == ("interrupted", "restart")
    story.cancel("first")
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_a_run_can_be_too_old() -> None:
    story = started(Limits(max_age_ms=1_000))
    story.later(1_001)
    story.restart()
    assert story.ended("root") == ("interrupted", "too_old")


def test_restarts_are_counted_and_capped() -> None:
    story = started(Limits(max_restarts=2), stay_open=True)
    story.reply("root", "ready")
    story.restart()
    story.restart()
    assert story.run("root").restarts == 2
    story.restart()
    assert story.ended("root") == ("interrupted", "restarts")


@pytest.mark.parametrize("at_work", ["thinking", "working"])
def test_a_run_that_keeps_killing_the_process_is_put_aside(at_work: str) -> None:
    story = started()
    if at_work == "working":
        story.reply("root", "", call())
    story.restart("pure")
    story.restart("pure", alone="root")
    assert story.run("root").suspicion == Suspicion(deaths=2, on_trial=True)
    story.restart("pure", alone="root")
    story.restart("pure", alone="root")
    assert story.run("root").suspicion == Suspicion(deaths=4, alone=2, on_trial=True)
    story.restart("pure", alone="root")
    assert story.ended("root") == ("interrupted", "quarantined")
    assert "3 times in a row" in story.ending("root").error


def test_a_death_is_held_only_against_those_whom_that_process_had_taken_up() -> None:
    story = started(Limits(max_deaths=1))
    story.start("other")
    story.restart()
    for _ in range(3):
        story.crash()
        story.recover("other")
    assert story.run("other").suspicion == Suspicion(deaths=4)
    story.crash()
    story.recover("root")
    assert story.run("root").suspicion == Suspicion(deaths=1)


def test_who_was_about_to_be_blamed_and_was_not_there_is_blamed_less_easily() -> None:
    story = started(Limits(max_deaths=2))
    story.restart()
    story.restart(alone="root")
    story.restart(alone="root")
    assert story.run("root").suspicion == Suspicion(deaths=3, alone=1, on_trial=True)
    story.crash()
    story.restart(alone="root")
    assert story.run("root").suspicion == Suspicion(deaths=3, cleared=1, on_trial=True)
    story.restart(alone="root")
    story.restart(alone="root")
    assert story.is_("root") == "Thinking"
    story.restart()
    assert story.ended("root") == ("interrupted", "quarantined")


def test_a_run_that_was_cleared_begins_anew_and_closing_in_good_order_is_no_death() -> None:
    story = started(Limits(max_deaths=1))
    story.restart()
    story.restart(alone="root")
    story.post("root", Cleared())
    assert story.run("root").suspicion == Suspicion(cleared=1)
    story.restart(alone="root")
    story.restart(alone="root", clean=True)
    assert story.run("root").suspicion == Suspicion(deaths=1, cleared=1, on_trial=True)
    story.restart()
    assert story.is_("root") == "Thinking"
    assert story.run("root").suspicion == Suspicion(deaths=2, alone=1, cleared=1)
    story.reply("root", "back")
    assert story.run("root").suspicion is None


def test_progress_forgives_deaths() -> None:
    story = started()
    for _ in range(4):
        story.restart("pure")
        story.restart("pure")
        story.reply("root", "", call())
        story.restart("pure")
        story.tool("root")
        assert story.run("root").suspicion is None
    story.reply("root", "survived")
    assert story.ended("root") == ("completed", "done")


def test_a_parent_hears_of_the_child_that_was_put_aside() -> None:
    story = started(Limits(max_deaths=1))
    (child,) = story.spawning("root", hand())
    story.restart(alone=child)
    story.restart()
    assert story.ended(child) == ("interrupted", "quarantined")
    assert "quarantined" in story.results("root")[-1].text
    assert story.is_("root") == "Thinking"


def test_a_deadline_that_passed_while_down_is_a_timeout_and_no_cancel() -> None:
    story = started(timeout_ms=100)
    (child,) = story.spawning("root", hand())
    story.crash()
    story.later(5_000)
    story.post(child, Woke())
    assert story.ended(child) == ("timed_out", "deadline")
    story.post("root", Woke())
    assert story.ended("root") == ("timed_out", "deadline")
    assert story.leaks() == {}


def test_kept_orphans_survive_the_restart_of_an_ended_parent() -> None:
    story = started(
        children_on_end="keep",
        capabilities=Permissions(deny=("note",)),
        budget=Budget(tokens=100_000),
    )
    (child,) = story.spawning("root", hand(join="none"))
    story.reply("root", "done")
    story.restart()
    story.reply(child, "", call("note"))
    assert "denies 'note'" in story.results(child)[-1].text
    story.reply(child, "x")
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_a_hundred_crashes_cost_a_hundred_calls_and_nothing_else() -> None:
    story = started(Limits(max_deaths=1_000))
    (child,) = story.spawning("root", hand())
    for _ in range(100):
        story.restart()
    assert story.did(CallModel, child) == 101
    assert story.did(CallModel, "root") == 1
    story.reply(child, "x")
    story.reply("root", "y")
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_a_crash_inside_the_recovery_changes_nothing_more() -> None:
    story = started()
    a, b = story.spawning("root", hand("a"), hand("b"))
    for id in story.crash()[:1]:
        story.recover(id)
    story.restart()
    story.reply(a, "one")
    story.reply(b, "two")
    assert story.is_("root") == "Thinking"
    assert len(story.results("root")) == 1


@pytest.mark.parametrize("steers", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_what_had_come_back_is_told_in_the_order_of_the_calls_also_after_a_restart(
    restarts: bool, steers: bool
) -> None:
    story = Story()
    story.start()
    story.reply("root", "", call("hire", "c0"), call("hire", "c1"))
    story.order("root", hand("d"), hand("c"), index=1)
    story.order("root", hand("b"), hand("a"), index=0)
    for child in story.children("root"):
        if story.specs[child].request.task in ("a", "d"):
            story.reply(child, f"<{story.specs[child].request.task}>")
    if restarts:
        story.restart()
    if steers:
        story.mail_to("root", "stop waiting", steer=True)
        text = story.texts("root")
        still = [line for line in text.splitlines() if line.startswith("Still running")]
        tasks = [
            [
                t
                for t in "abcd"
                if any(story.specs[c].request.task == t and c in line for c in story.specs)
            ]
            for line in still
        ]
        assert tasks == [["b"], ["c"]]
    else:
        story.cancel("root")
        text = story.ending("root").text
    assert text.index("<a>") < text.index("<d>")
