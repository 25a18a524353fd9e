"""What a reply, or the lack of one, makes a run do."""

from __future__ import annotations

import pytest

from retinue.core.effects import AbortRun, CallModel, CallTool
from retinue.core.events import Replied, Woke
from retinue.core.messages import AssistantMessage, ModelReply, UserMessage
from retinue.core.spec import Retry
from retinue.core.state import Thinking, Working
from retinue.core.turn import COMPACT, GRACE, SUMMARY
from retinue.core.values import Definition, Limits, ModelInfo, Origin, Usage
from tests.core.driver import Story, call, hand


def submitting() -> Story:
    story = Story()
    story.define(
        "boss",
        tools=("look", "hire", "submit_result"),
        submit_tools=("submit_result",),
        agents=("boss", "hand"),
    )
    return story


def test_a_text_without_calls_completes_the_run() -> None:
    story = Story()
    story.start()
    story.reply("root", "the answer")
    assert story.ended("root") == ("completed", "done")
    assert story.ending("root").text == "the answer"
    assert story.run("root").usage == Usage(input=10, output=5, nanos=35, turns=1)
    assert story.leaks() == {}
    assert story.unbalanced() == []


def test_the_task_is_the_first_message_and_a_turn_is_one_model_call() -> None:
    story = Story()
    story.start(task="count the sheep")
    assert story.messages("root") == [UserMessage(text="count the sheep")]
    assert story.n_asked("root") == 1
    assert story.asked("root").purpose == "turn"


def test_parallel_calls_run_side_by_side_and_the_last_result_ends_the_turn() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call(id="a"), call(id="b"), call(id="c"))
    assert story.did(CallTool, "root") == 3
    story.tool("root", 2, "third")
    story.tool("root", 0, "first")
    assert isinstance(story.state("root"), Working)
    assert story.n_asked("root") == 1
    story.tool("root", 1, "second")
    assert story.n_asked("root") == 2
    assert [r.call_id for r in story.results("root")] == ["c", "a", "b"]
    assert story.run("root").usage.calls == 3


def test_a_call_has_one_result() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call(id="a"), call(id="b"))
    assert story.tool("root", 0) == ""
    assert "not open" in story.tool("root", 0, "again")
    assert len(story.results("root")) == 1


def test_a_late_reply_of_an_earlier_attempt_is_refused() -> None:
    story = Story()
    story.start()
    before = story.run("root")
    reply = ModelReply(message=AssistantMessage(text="late"))
    assert "not the current one" in story.post("root", Replied(attempt=0, reply=reply))
    assert story.run("root") == before


def test_a_mixed_submit_is_answered_with_errors_and_asked_again() -> None:
    story = submitting()
    story.start()
    story.reply("root", "", call("look", "a"), call("submit_result", "b"))
    assert story.did(CallTool, "root") == 0
    assert [r.error for r in story.results("root")] == [True, True]
    assert "must be the only call" in story.results("root")[1].text
    assert story.n_asked("root") == 2


def test_a_submit_alone_completes_the_run_with_its_data() -> None:
    story = submitting()
    story.start()
    story.reply("root", "", call("submit_result"))
    story.submit("root", "text", data={"n": 1})
    assert story.ended("root") == ("completed", "submitted")
    assert story.ending("root").data == {"n": 1}
    assert story.results("root")[-1].text == "Recorded."


def test_a_submitted_error_fails_the_run() -> None:
    story = submitting()
    story.start()
    story.reply("root", "so far", call("submit_result"))
    story.submit("root", "cannot be done", ok=False)
    assert story.ended("root") == ("failed", "sub_agent_error")
    assert story.ending("root").error == "cannot be done"
    assert story.ending("root").text == "so far"


def test_an_empty_reply_is_asked_again_twice_and_then_fails() -> None:
    story = Story()
    story.start()
    story.reply("root", "")
    story.reply("root", "  \n")
    assert story.n_asked("root") == 3
    story.reply("root", "")
    assert story.ended("root") == ("failed", "empty")
    assert story.unbalanced() == []


def test_a_run_that_only_called_tools_never_succeeds() -> None:
    story = Story(Limits(empty_replies=0))
    story.start()
    story.reply("root", "", call())
    story.tool("root")
    story.reply("root", "")
    assert story.ended("root") == ("failed", "empty")


def test_a_submission_of_nothing_is_no_success() -> None:
    story = submitting()
    story.start()
    story.reply("root", "", call("submit_result"))
    story.submit("root", "  ")
    assert story.ended("root") == ("failed", "empty")


def test_a_turn_limit_keeps_what_was_said() -> None:
    story = Story()
    story.start(max_turns=1)
    story.reply("root", "looking", call())
    story.tool("root")
    assert story.ended("root") == ("incomplete", "turn_limit")
    assert story.ending("root").text == "looking"
    assert story.ending("root").last_tool == "look"
    assert story.leaks() == {}


def test_a_grace_turn_may_hand_in_the_result() -> None:
    story = submitting()
    story.start(max_turns=1, grace_turns=1)
    story.reply("root", "", call())
    story.tool("root")
    assert story.asked("root").purpose == "grace"
    assert story.messages("root")[-1].text == GRACE
    story.reply("root", "", call("submit_result"))
    story.submit("root", "just in time")
    assert story.ended("root") == ("completed", "submitted")


@pytest.mark.parametrize(
    "calls", [(call("look"),), (call("submit_result", "a"), call("look", "b")), ()]
)
def test_a_grace_turn_that_does_anything_else_is_the_end(calls: tuple) -> None:
    story = submitting()
    story.start(max_turns=1, grace_turns=1)
    story.reply("root", "early", call())
    story.tool("root")
    story.reply("root", "late", *calls)
    assert story.ended("root") == ("incomplete", "turn_limit")
    assert story.ending("root").text == "late"


def test_a_grace_turn_with_a_bad_submission_is_the_end() -> None:
    story = submitting()
    story.start(max_turns=1, grace_turns=1)
    story.reply("root", "", call())
    story.tool("root")
    story.reply("root", "", call("submit_result"))
    story.tool("root", 0, "does not match", error=True)
    assert story.ended("root") == ("incomplete", "turn_limit")


def test_a_summary_is_a_turn_of_its_own() -> None:
    story = Story()
    story.start(report="summary")
    story.reply("root", "a long story")
    assert story.asked("root").purpose == "summary"
    assert story.messages("root")[-1].text == SUMMARY
    story.reply("root", "in short")
    assert story.ending("root").text == "in short"


def test_a_report_has_its_own_prompt_and_calls_in_it_are_no_report() -> None:
    story = Story()
    story.start(report="summary", report_prompt="tell me")
    story.reply("root", "a long story")
    assert story.messages("root")[-1].text == "tell me"
    story.reply("root", "", call())
    assert story.ended("root") == ("incomplete", "no_report")
    assert story.ending("root").text == "a long story"


def test_an_announcement_goes_out_and_a_skip_token_keeps_it_in() -> None:
    for text, state in (("all done", "pending"), (" NO_REPLY ", "suppressed")):
        story = Story()
        story.start(
            report="announce", announce=True, skip_token="NO_REPLY", origin=Origin(channel="chat")
        )
        story.reply("root", "found it")
        story.reply("root", text)
        (delivery,) = story.deliveries.values()
        assert delivery.state == state
        assert delivery.origin.channel == "chat"
        assert bool(story.trees.index.deliveries) == (state == "pending")


def test_a_refusal_fails_the_run() -> None:
    story = Story()
    story.start()
    story.reply("root", "I will not", stop="refusal")
    assert story.ended("root") == ("failed", "refused")
    assert story.unbalanced() == []


def test_a_text_cut_by_length_goes_on_and_is_put_together() -> None:
    story = Story()
    story.start()
    story.reply("root", "once upon ", stop="length")
    assert story.n_asked("root") == 2
    assert "Continue exactly where it stops" in story.texts("root")
    story.reply("root", "a ti", stop="length")
    story.reply("root", "me")
    assert story.ended("root") == ("completed", "done")
    assert story.ending("root").text == "once upon a time"
    assert story.unbalanced() == []


def test_a_text_that_is_cut_again_and_again_is_incomplete() -> None:
    story = Story()
    story.start()
    for _ in range(9):
        story.reply("root", "and ", stop="length")
    assert story.ended("root") == ("incomplete", "length")
    assert story.ending("root").text == "and " * 9


def test_calls_after_a_cut_text_begin_anew() -> None:
    story = Story()
    story.start()
    story.reply("root", "I will ", stop="length")
    story.reply("root", "look.", call())
    story.tool("root")
    story.reply("root", "seen")
    assert story.ending("root").text == "seen"


def test_calls_cut_by_length_are_not_run() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call(), stop="length")
    assert story.did(CallTool, "root") == 0
    assert "truncated" in story.results("root")[0].text
    assert story.n_asked("root") == 2


def test_a_storm_of_calls_is_run_up_to_the_limit() -> None:
    story = Story(Limits(calls_per_turn=64))
    story.start()
    story.reply("root", "", *(call(id=f"c{i}") for i in range(200)))
    assert story.did(CallTool, "root") == 64
    assert len(story.results("root")) == 136
    for i in range(64):
        story.tool("root", i)
    assert len(story.results("root")) == 200
    assert story.n_asked("root") == 2


def test_a_failed_call_is_tried_again_after_a_jittered_wait() -> None:
    story = Story()
    story.start(retry=Retry(attempts=3, base_ms=100, cap_ms=1_000))
    story.fail("root", retry=True, after_ms=2_000)
    state = story.state("root")
    assert isinstance(state, Thinking)
    assert state.retry_at is not None
    assert story.now + 2_000 <= state.retry_at <= story.now + 2_100
    assert story.n_asked("root") == 1
    story.post("root", Woke())
    assert story.n_asked("root") == 1
    story.wake("root")
    assert story.n_asked("root") == 2
    assert story.asked("root").attempt == 2
    story.reply("root", "at last")
    assert story.ended("root") == ("completed", "done")
    assert story.unbalanced() == []


def test_waits_grow_and_stay_below_the_cap_and_tries_are_counted() -> None:
    story = Story()
    story.start(retry=Retry(attempts=4, base_ms=100, cap_ms=150, then="fail"))
    for _ in range(3):
        story.fail("root", "overloaded", retry=True)
        assert (story.run("root").wake_at or 0) <= story.now + 150
        story.wake("root")
    story.fail("root", "overloaded", "busy", retry=True)
    assert story.ended("root") == ("failed", "overloaded")
    assert story.ending("root").error == "Failed after 4 attempts: busy"
    assert story.unbalanced() == []


def test_after_its_tries_a_run_waits_for_its_provider_says_why_and_goes_on() -> None:
    story = Story()
    story.start(retry=Retry(attempts=2, base_ms=100, cap_ms=1_000))
    for _ in range(50):
        story.fail("root", "overloaded", "busy", retry=True)
        story.wake("root")
    story.fail("root", "overloaded", "busy", retry=True)
    state = story.state("root")
    assert isinstance(state, Thinking)
    assert state.waits_for == "overloaded: busy"
    assert story.now + 1_000 <= (state.retry_at or 0) <= story.now + 2_000
    story.wake("root")
    story.reply("root", "at last")
    assert story.ended("root") == ("completed", "done")
    assert story.unbalanced() == []


def test_a_spent_account_is_not_asked_again_at_once() -> None:
    story = Story()
    story.start(retry=Retry(attempts=6, base_ms=100, cap_ms=60_000))
    story.fail("root", "quota", "no credit", retry=True)
    state = story.state("root")
    assert isinstance(state, Thinking)
    assert (state.waits_for, (state.retry_at or 0) >= story.now + 60_000) == (
        "quota: no credit",
        True,
    )


def test_patience_ends_with_the_longest_wait() -> None:
    story = Story(Limits(wait_ms=10_000))
    story.start(retry=Retry(attempts=1, base_ms=0, cap_ms=1_000))
    for _ in range(12):
        if story.is_("root") == "Ended":
            break
        story.fail("root", "network", "gone", retry=True)
        if story.is_("root") == "Thinking":
            story.wake("root")
    assert story.ended("root") == ("failed", "network")


def test_a_failure_that_cannot_be_helped_ends_the_run_at_once() -> None:
    story = Story()
    story.start()
    story.fail("root", "authentication", "bad key")
    assert story.ended("root") == ("failed", "authentication")
    assert story.ending("root").error == "bad key"


def talkative(turns: int = 3, **rules: object) -> Story:
    story = Story(Limits(**rules), ModelInfo(name="m", window=1_000, max_output=100))
    story.start()
    for _ in range(turns):
        story.reply("root", "", call())
        story.tool("root")
    return story


def test_a_full_window_is_compacted_and_the_run_goes_on_from_the_summary() -> None:
    story = talkative()
    story.reply("root", "", call(), usage=Usage(input=700, output=90))
    story.tool("root", text="x" * 50)
    assert story.asked("root").purpose == "compact"
    assert story.messages("root")[-1].text == COMPACT
    story.reply("root", "we know this")
    run = story.run("root")
    assert story.asked("root").purpose == "turn"
    assert run.start == run.length - 1
    last = story.messages("root")[-1]
    assert isinstance(last, UserMessage)
    assert last.kind == "summary"
    assert "we know this" in last.text
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")


def test_compaction_names_the_children_that_are_still_at_work() -> None:
    story = talkative()
    (child,) = story.spawning("root", hand("dig a hole", join="none", label="mole"))
    story.reply("root", "", call(), usage=Usage(input=900, output=50))
    story.tool("root")
    story.reply("root", "short")
    text = story.messages("root")[-1].text
    assert f"- {child} (mole): dig a hole" in text


@pytest.mark.parametrize("kind", ["context_exhausted", "too_large"])
def test_an_exhausted_context_is_compacted_with_the_prompt_for_it_and_the_task_that_was_cut_off(
    kind: str,
) -> None:
    story = talkative()
    story.fail("root", kind, "too long")
    assert story.asked("root").purpose == "compact"
    nudge = story.messages("root")[-1].text
    assert nudge.startswith(COMPACT) and nudge.endswith(story.tree().specs["root"].request.task)
    story.reply("root", "we know this")
    assert (
        story.asked("root").purpose == "turn" and "we know this" in story.messages("root")[-1].text
    )


def test_a_half_that_is_still_too_long_is_halved_until_there_is_nothing_to_leave_out() -> None:
    story = talkative(turns=20)
    starts, length = [story.run("root").start], story.run("root").length + 1
    while story.is_("root") == "Thinking":
        story.fail("root", "too_large", "413")
        starts.append(story.run("root").start)
    assert story.ended("root") == ("failed", "context_exhausted")
    assert len(starts) >= 5 and starts[:-1] == sorted(set(starts))
    assert story.run("root").length == length, "the prompt for it is given once"


def test_a_compaction_after_an_exhausted_context_shows_the_model_less_than_what_was_too_much() -> (
    None
):
    story = talkative()
    before = story.run("root")
    story.fail("root", "context_exhausted", "too long")
    assert story.asked("root").purpose == "compact"
    assert story.run("root").start > before.start


def test_an_exhausted_context_that_is_short_already_fails() -> None:
    story = Story()
    story.start(task="x" * 100)
    story.fail("root", "context_exhausted", "too long")
    assert story.ended("root") == ("failed", "context_exhausted")


def test_an_over_long_text_is_cut_and_says_where_the_whole_is() -> None:
    story = Story(Limits(text_cap=10))
    story.start()
    story.reply("root", "0123456789abc", spilled=("f" * 64, 13))
    ending = story.ending("root")
    assert ending.text.startswith("0123456789\n[truncated: 3 of 13")
    assert "f" * 64 in ending.text
    assert ending.artifacts[0].size == 13


def test_the_model_that_really_answered_is_on_record() -> None:
    story = Story()
    story.start()
    story.reply("root", "hi", model="m-2024")
    assert story.run("root").model_used == "m-2024"


def test_a_definition_can_change_while_its_run_is_open() -> None:
    story = Story()
    story.start()
    story.define("boss", instructions="new")
    assert isinstance(story.trees.shared.definitions["boss"], Definition)
    story.reply("root", "fine")
    assert story.ended("root") == ("completed", "done")


def test_an_effect_that_was_called_off_in_the_same_batch_is_never_begun() -> None:
    story = Story()
    story.start()
    story.cancel("root")
    assert story.did(AbortRun, "root") == 1
    assert story.did(CallModel, "root") == 1  # of an earlier batch


def test_a_run_that_goes_round_in_circles_is_stopped() -> None:
    """Without a limit of its own, and with a model that only ever calls a tool."""
    story = Story(Limits(max_turns=20))
    story.start()
    for _ in range(20):
        story.reply("root", "", call())
        story.tool("root")
    assert story.ended("root") == ("incomplete", "turn_limit")
