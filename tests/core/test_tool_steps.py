"""Steps of a tool's function: on record before they take effect, without a slot while they are
awaited, and found again after a restart."""

from __future__ import annotations

import pytest

from retinue.core.effects import AnswerStep, CallTool
from retinue.core.events import Aborted, Answered
from retinue.core.spec import Lane, WaitForRuns
from retinue.core.state import OpenCalls, calls_of, questions_of
from retinue.core.tool_steps import REPORTED, UNKNOWN
from retinue.core.values import Budget, Limits, SpawnLimits
from tests.core.driver import Story, call, hand, send


def calling(**order: object) -> Story:
    """A root whose tool has come to its first step."""
    story = Story()
    story.start(**order)
    story.reply("root", "", call("hire"))
    return story


def calls(story: Story, id: str = "root") -> OpenCalls:
    calls = calls_of(story.run(id))
    assert calls is not None
    return calls


def started(story: Story, id: str = "root") -> list[CallTool]:
    return [e for e in story.effects if isinstance(e, CallTool) and e.run == id]


def test_a_function_that_awaits_children_is_parked_and_goes_on_when_they_have_ended() -> None:
    story = calling()
    a, b = story.stepping("root", "s", hand("a"), hand("b"))
    assert story.is_("root") == "Waiting"
    assert (calls(story).parked, calls(story).woken, calls(story).tools) == (1, 0, 0)
    story.reply(a, "<one>")
    assert calls(story).parked == 1
    story.reply(b, "two")
    assert (calls(story).parked, calls(story).woken) == (0, 1)
    assert story.is_("root") == "Waiting", "the function goes on, without a slot"
    assert len(started(story)) == 1, "nobody runs the tool again while its function lives"
    story.tool("root", text="both are done")
    assert story.is_("root") == "Thinking"
    assert [r.text for r in story.results("root")] == ["both are done"]
    assert "<one>" not in story.texts("root"), "what was awaited is no news for the model"
    assert story.run("root").n_children == 2


def test_a_run_whose_function_waits_holds_no_slot() -> None:
    story = calling(lanes=(Lane(name="narrow", size=1, scope="tree"),))
    assert story.held("narrow") == 1
    (child,) = story.stepping("root", "s", hand("a"))
    assert story.held("narrow") == 0
    story.reply(child, "one")
    assert story.held("narrow") == 0
    story.tool("root", text="done")
    assert story.held("narrow") == 1


def test_children_of_a_second_step_count_on_and_no_two_have_one_name() -> None:
    story = calling()
    first = story.stepping("root", "s", hand("a"), hand("b"))
    for id in first:
        story.reply(id, "x")
    second = story.stepping("root", "t", hand("c"))
    slots = [story.specs[id].parent_call for id in (*first, *second)]
    assert [slot.item for slot in slots if slot] == [0, 1, 2]
    assert [story.specs[id].path for id in (*first, *second)] == ["0/1.0.0", "0/1.0.1", "0/1.0.2"]
    assert len({*first, *second}) == 3


def test_items_of_a_family_that_waits_and_orders_again_count_on() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call("hire"))
    wait = WaitForRuns(runs=("nobody",), timeout_ms=0)
    story.order("root", hand("a", join="none"), wait=wait)
    story.order("root", hand("b", join="none"), answer="done")
    slots = [s.parent_call for s in story.specs.values() if s.parent]
    assert [slot.item for slot in slots if slot] == [0, 1]


def test_the_limit_of_children_in_a_call_counts_all_of_its_steps() -> None:
    story = Story(Limits(spawn_limits=SpawnLimits(per_call=2)))
    story.start()
    story.reply("root", "", call("hire"))
    (child,) = story.stepping("root", "s", hand("a"))
    story.reply(child, "x")
    why = story.step("root", "t", hand("b", join="step"), hand("c", join="step"))
    assert why == "Refused (per_call): Too many children in one call: 3 (limit 2)."
    assert len(story.specs) == 2 and calls(story).woken == 1, "nothing was changed"


def test_a_refused_step_leaves_the_call_as_it_was() -> None:
    story = calling(budget=Budget(tokens=100_000))
    why = story.step("root", "s", hand("a", join="step", budget=Budget(tokens=1_000_000)))
    assert why.startswith("Refused (budget): Not enough budget")
    assert story.is_("root") == "Working" and calls(story).tools == 1
    assert story.tool("root", text="handled") == ""
    story.reply("root", "done")
    assert story.unbalanced() == []


def test_a_child_that_was_not_waited_for_is_cancelled_when_the_function_returns() -> None:
    story = calling()
    a, b = story.stepping("root", "s", hand("a"), hand("b"))
    story.reply(a, "one")
    story.tool("root", text="one is enough")
    assert story.ended(b) == ("cancelled", "cancelled")
    assert "returned without waiting" in story.ending(b).error
    story.reply("root", "done")
    assert story.ending("root").helpers.lost == (), "whom it has called off is not missing"
    assert story.unbalanced() == []


@pytest.mark.parametrize("report", ["text", "summary"])
def test_a_reply_stands_when_the_last_child_that_was_called_off_has_stopped(report: str) -> None:
    story = calling(report=report, children_on_end="wait")
    story.keeps_aborts = True
    (child,) = story.stepping("root", "s", hand("a"))
    story.tool("root", text="not waited for")
    story.reply("root", "my last word")
    assert (story.is_("root"), story.is_(child)) == ("Waiting", "Stopping")
    before = story.n_asked("root")
    story.post(child, Aborted(attempt=1))
    if report == "summary":
        assert story.asked("root").purpose == "summary"
        story.reply("root", "in short")
    assert story.n_asked("root") - before == (report == "summary"), "nothing new is to be said"
    assert story.ended("root") == ("completed", "done")
    assert story.ending("root").text == ("in short" if report == "summary" else "my last word")


def test_background_children_outlive_the_call() -> None:
    story = calling()
    assert story.step("root", "s", hand("a", join="none"), parks=False) == ""
    assert story.is_("root") == "Working"
    (child,) = story.children("root")
    story.tool("root", text="it works in the background")
    assert story.is_(child) == "Thinking"
    story.reply(child, "<from below>")
    story.reply("root", "", call("look", "c2"))
    story.tool("root", text="seen")
    assert "<from below>" in story.texts("root")


def test_a_function_does_not_wait_for_a_child_in_the_background() -> None:
    story = calling()
    (awaited,) = story.stepping("root", "s", hand("a"))
    assert story.step("root", "t", hand("b", join="none"), parks=False) == ""
    story.reply(awaited, "one")
    assert calls(story).woken == 1


def test_the_first_failure_cancels_those_who_were_started_with_it_and_nobody_else() -> None:
    story = calling()
    (other,) = story.stepping("root", "t", hand("c"))
    a, b = story.stepping("root", "s", hand("a", fail_fast=True), hand("b", fail_fast=True))
    story.fail(a, "auth", "no key")
    assert story.ended(b)[0] == "cancelled"
    assert story.is_(other) == "Thinking"


@pytest.mark.parametrize("restart", ["pure", "keyed"])
def test_after_a_restart_children_go_on_first_and_then_the_tool_is_run_again(restart: str) -> None:
    story = calling()
    made_at = started(story)[0].made_at
    a, b = story.stepping("root", "s", hand("a"), hand("b"))
    story.reply(a, "one")
    story.later(60_000)
    story.restart(restart)  # type: ignore[arg-type]
    assert len(started(story)) == 1, "the tool is not run while a child of it works"
    assert [c.index for c in calls(story).lost] == [0]
    story.reply(b, "two")
    _, again = started(story)
    assert again.again and again.made_at == made_at and again.key == started(story)[0].key
    story.tool("root", text="both")
    assert [r.text for r in story.results("root")] == ["both"]


def test_a_second_restart_before_the_tool_was_run_again_loses_nothing() -> None:
    story = calling()
    (child,) = story.stepping("root", "s", hand("a"))
    story.restart("pure")
    story.restart("pure")
    story.reply(child, "one")
    assert len(started(story)) == 2
    story.restart("pure")
    assert len(started(story)) == 3, "it was at work when the process died"
    story.tool("root", text="done")
    assert story.is_("root") == "Thinking"


def test_an_unsafe_tool_is_not_repeated_and_its_model_reads_what_its_children_reported() -> None:
    story = calling()
    a, b = story.stepping("root", "s", hand("a"), hand("b"))
    story.reply(a, "<one>")
    story.restart("unsafe")
    assert story.is_("root") == "Waiting"
    story.reply(b, "<two>")
    (result,) = story.results("root")
    assert result.error and result.text.startswith(UNKNOWN) and REPORTED in result.text
    assert "<one>" in result.text and "<two>" in result.text
    assert len(started(story)) == 1
    assert story.is_("root") == "Thinking"


def test_a_late_result_of_the_dead_process_is_refused() -> None:
    story = calling()
    (child,) = story.stepping("root", "s", hand("a"))
    story.restart("unsafe")
    assert story.tool("root", text="too late") != "", "its function is gone"
    story.reply(child, "one")
    assert "too late" not in story.texts("root")


def asking(story: Story, step: str = "q", text: str = "Which colour?") -> str:
    assert story.step("root", step, question=text, choices=("red", "blue")) == ""
    return next(q.id for q in questions_of(story.run("root")) if q.step == step)


def answer(story: Story, question: str, text: str) -> str:
    at = story.address("root", 0)
    at.pop("name")
    return story.post("root", Answered(text=text, question=question, **at))


def test_the_answer_goes_to_the_step_that_asked_and_the_call_stays_open() -> None:
    story = calling(questions="ask")
    first, second = asking(story), asking(story, "r", "Which size?")
    assert story.is_("root") == "Asking"
    assert answer(story, second, "large") == ""
    assert story.is_("root") == "Asking", "the other question is still open"
    assert answer(story, first, "red") == ""
    rows = [(e.step, e.text) for e in story.effects if isinstance(e, AnswerStep)]
    assert rows == [("r", "large"), ("q", "red")]
    assert story.is_("root") == "Waiting" and calls(story).woken == 1
    assert answer(story, first, "blue") != "", "the first answer counts"
    story.tool("root", text="red and large")
    assert [r.text for r in story.results("root")] == ["red and large"]


def test_a_question_outlives_its_process_and_the_tool_is_run_again_with_the_answer() -> None:
    story = calling(questions="ask")
    question = asking(story)
    story.restart("pure")
    assert story.is_("root") == "Asking" and len(started(story)) == 1
    assert answer(story, question, "red") == ""
    assert len(started(story)) == 2 and started(story)[1].again
    assert [(s.key, s.text) for s in calls(story).steps] == [("q", "red")]


def test_nobody_to_ask_refuses_the_step() -> None:
    story = calling(questions="deny")
    why = story.step("root", "q", question="Which?")
    assert why.startswith("Refused (question): No one is available")
    assert calls(story).tools == 1


def test_a_child_that_is_on_record_is_not_started_by_the_same_step_again() -> None:
    story = calling()
    (child,) = story.stepping("root", "s", hand("a"))
    assert "on record already" in story.step("root", "s", hand("a", join="step"))
    story.reply(child, "one")
    assert "on record already" in story.step("root", "s", hand("a", join="step"))
    assert story.run("root").n_children == 1


def test_a_message_is_sent_once_whatever_is_repeated() -> None:
    story = calling()
    (child,) = story.stepping("root", "s", hand("a"))
    assert story.step("root", "m", parks=False, sends=(send(child, "<hello>"),)) == ""
    assert [(s.key, s.text) for s in calls(story).steps] == [("m", "")]
    assert "on record already" in story.step("root", "m", parks=False, sends=(send(child),))
    assert len([m for m in story.mail.values() if m.text == "<hello>"]) == 1


def test_a_wait_for_a_background_child_parks_until_it_has_ended_or_the_wait_is_over() -> None:
    story = calling()
    assert story.step("root", "s", hand("a", join="none"), parks=False) == ""
    (child,) = story.children("root")
    assert story.step("root", "w", run=child) == ""
    assert story.is_("root") == "Waiting" and calls(story).parked == 1
    assert story.step("root", "w", run=child, result="timed out", parks=False) == ""
    assert calls(story).woken == 1
    assert story.step("root", "v", run=child) == ""
    story.reply(child, "one")
    assert (calls(story).parked, calls(story).woken) == (0, 1)


def test_steering_breaks_the_function_off_and_its_children_report_as_news() -> None:
    story = calling()
    a, b = story.stepping("root", "s", hand("a"), hand("b"))
    story.reply(a, "<one>")
    story.mail_to("root", "Stop that.", steer=True)
    assert story.is_("root") == "Thinking"
    (result,) = story.results("root")
    assert "<one>" in result.text and b in result.text
    story.reply(b, "<two>")
    story.reply("root", "", call("look", "c2"))
    story.tool("root", text="seen")
    assert "<two>" in story.texts("root")


def test_steering_a_function_that_asks_loses_nothing_that_its_children_have_reported() -> None:
    story = calling(questions="ask")
    a, b = story.stepping("root", "s", hand("a"), hand("b"))
    story.reply(a, "<one>")
    asking(story)
    story.mail_to("root", "Stop that.", steer=True)
    assert story.is_("root") == "Thinking"
    (result,) = story.results("root")
    assert result.error and "Not run" in result.text
    assert "<one>" in result.text and b in result.text
    story.reply(b, "<two>")
    story.reply("root", "", call("look", "c2"))
    story.tool("root", text="seen")
    assert "<two>" in story.texts("root")


def test_who_did_not_return_to_the_function_is_counted_like_any_child() -> None:
    story = calling()
    a, b = story.stepping("root", "s", hand("a", label="first"), hand("b", label="second"))
    story.fail(a, "auth", "no key")
    story.reply(b, "two")
    story.tool("root", text="one of two")
    story.reply("root", "done")
    helpers = story.ending("root").helpers
    assert (helpers.n_started, [one.path for one in helpers.lost]) == (2, [("first",)])


def test_a_call_with_steps_can_still_be_handed_over() -> None:
    story = calling()
    (first,) = story.stepping("root", "s", hand("a"))
    story.reply(first, "one")
    before = set(story.specs)
    story.order("root", hand("b"))
    (second,) = set(story.specs) - before
    slot = story.specs[second].parent_call
    assert slot is not None and slot.item == 1
    story.reply(second, "<joined>")
    assert [r.text for r in story.results("root")] == ["<joined>"]
