"""Stories of an adversary: what a model, a provider, a crash or bad luck could do to break what
must hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core import capabilities
from retinue.core.effects import FormatResults
from retinue.core.events import Recovered, Requested, ResultsFormatted, RunCreated
from retinue.core.spec import Lane, Retry, RunRequest
from retinue.core.values import Budget, Limits, Permissions, SpawnLimits, Usage
from tests.core.driver import Story, call, hand, send

ONE = (Lane(name="one", size=1),)
ROOT = Path(__file__).resolve().parents[2]


def test_a_kept_orphan_that_ends_in_the_step_of_its_parents_end_leaves_nothing_behind() -> None:
    """The parent's slot goes to its queued child, which has no turns to take: both end in one
    step."""
    story = Story()
    story.start()
    (parent,) = story.spawning("root", hand(children_on_end="keep", lanes=ONE))
    story.spawning(parent, hand(join="none", lanes=ONE, max_turns=0))
    story.reply(parent, "done")
    story.reply("root", "done")
    assert "(turn_limit)" in story.texts("root"), "somebody has to hear of it"
    story.reply("root", "done")
    assert story.leaks() == {}


def test_a_parent_that_ends_in_the_step_that_cancels_its_children_leaves_nothing_behind() -> None:
    story = Story()
    story.start()
    (parent,) = story.spawning("root", hand(children_on_end="keep", max_turns=2))
    a, b = story.spawning(parent, hand(join="none"), hand(join="none"))
    story.reply(parent, "", call("note"))
    story.order(parent, cancels=(a, b))
    assert story.ended(parent) == ("incomplete", "turn_limit")
    story.reply("root", "done")
    assert story.leaks() == {}


def test_a_cancel_reaches_what_outlived_its_own_parent() -> None:
    """`CancelAsked`: "somebody wants the run and everything below it to end"."""
    story = Story()
    story.start()
    (parent,) = story.spawning("root", hand(children_on_end="keep"))
    (orphan,) = story.spawning(parent, hand(join="none"))
    story.reply(parent, "done")
    assert story.is_(orphan) == "Thinking"
    story.cancel("root")
    assert story.is_(orphan) == "Ended"


def test_a_composition_that_nobody_asked_for_closes_nothing() -> None:
    """A child is still out: words for its call are refused, and its result stands in the history
    once."""
    story = Story()
    story.start()
    (child,) = story.spawning("root", hand(format_results=True))
    forged = ResultsFormatted(turn=1, calls=((0, "c1", "hire", "forged"),))
    assert story.post("root", forged) != ""
    story.reply(child, "true")
    story.format_results("root", "words")
    assert [r.text for r in story.results("root")] == ["words"]


def test_a_composition_cannot_answer_one_call_twice() -> None:
    story = Story()
    story.start()
    (child,) = story.spawning("root", hand(format_results=True))
    story.reply(child, "x")
    story.post(
        "root", ResultsFormatted(turn=1, calls=((0, "c1", "hire", "a"), (0, "c1", "hire", "b")))
    )
    assert len(story.results("root")) <= 1


def test_being_found_twice_takes_no_second_slot() -> None:
    lanes = (Lane(name="narrow", size=1), Lane(name="wide", size=1))
    story = Story()
    story.start("w", lanes=lanes[1:])
    story.start("q", lanes=lanes)
    story.post("q", Recovered(epoch=1))
    assert story.held("narrow") == 1
    for id in ("w", "q"):
        story.cancel(id)
    assert story.leaks() == {}


def test_a_run_without_a_name_is_refused() -> None:
    story = Story()
    assert story.post("", Requested(id="", request=RunRequest(agent="boss", task="x"))) != ""
    assert story.leaks() == {}


def test_a_run_that_waits_for_the_same_lane_twice_is_refused_or_runs() -> None:
    story = Story()
    event = Requested(id="root", request=RunRequest(agent="boss", task="x", lanes=ONE * 2))
    if story.post("", event) == "":
        assert story.is_("root") == "Thinking"


def test_two_runs_that_name_their_lanes_in_another_order_do_not_wait_for_each_other() -> None:
    a, b = Lane(name="a", size=1), Lane(name="b", size=1)
    story = Story()
    story.start("x", lanes=(a,))
    story.start("y", lanes=(b,))
    story.start("ab", lanes=(a, b))
    story.start("ba", lanes=(b, a))
    story.reply("x", "done")
    story.reply("y", "done")
    assert "Thinking" in (story.is_("ab"), story.is_("ba"))


def test_empty_replies_that_lie_far_apart_do_not_add_up() -> None:
    story = Story()
    story.start(stay_open=True)
    for _ in range(4):
        story.reply("root", "")
        story.reply("root", "here I am")
        if story.is_("root") == "Ended":
            break
        story.mail_to("root", "and?")
    assert story.is_("root") == "Thinking"


def test_the_key_of_a_call_names_what_is_asked() -> None:
    """A steered turn asks something else: a provider that honours keys must not answer with the old
    reply."""
    story = Story()
    story.start()
    before = story.asked("root").key
    story.mail_to("root", "something else", steer=True)
    assert story.asked("root").key != before


def test_a_negative_count_does_not_refill_a_budget() -> None:
    story = Story()
    story.start(budget=Budget(tokens=50_000))
    story.reply("root", "", call(), usage=Usage(input=-1_000_000, output=5))
    assert story.account("root").spent[0] >= 0


def test_a_retry_policy_cannot_break_the_machine() -> None:
    for fields in ({"attempts": 0}, {"base_ms": -1}, {"cap_ms": -1}):
        with pytest.raises(ValueError, match="at least one attempt and no negative times"):
            Retry(**fields)
    story = Story()
    story.start(retry=Retry(attempts=3, base_ms=0, cap_ms=0))
    assert story.fail("root", retry=True) == ""
    assert story.is_("root") == "Thinking"


def test_a_fan_in_of_many_long_results_stays_below_the_cap() -> None:
    story = Story(Limits(text_cap=1_000))
    story.start()
    children = story.spawning("root", *(hand(f"t{i}") for i in range(20)))
    for child in children:
        story.reply(child, "x" * 1_000)
    (joined,) = next(e for e in story.effects if isinstance(e, FormatResults)).calls
    assert joined.plain
    assert len(joined.outcomes) == 20
    assert story.results("root") == []


def test_a_message_between_runs_is_cut_at_the_cap_for_mail() -> None:
    story = Story(Limits(mail_cap=100))
    story.start()
    (child,) = story.spawning("root", hand(join="none"))
    story.reply("root", "", call("note"))
    story.order("root", sends=(send(child, "x" * 10_000),))
    assert len(story.tree().mail[child][0].text) < 1_000


def test_an_ended_child_with_children_of_its_own_is_not_a_live_child() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand(children_on_end="keep"))
    (orphan,) = story.spawning(a, hand(join="none"))
    story.reply(a, "done")
    assert story.spawning("root", hand(limits=SpawnLimits(children=1)))
    assert story.is_(orphan) == "Thinking"


@pytest.mark.parametrize("end", ["timed_out", "cancelled", "completed"])
def test_any_other_end_closes_the_breaker(end: str) -> None:
    """`_count_failure`: "Equal failures in a row open the breaker; any other end closes it"."""
    story = Story(Limits(breaker_after=2))
    story.start()
    for n in range(3):
        (child,) = story.spawning("root", hand(timeout_ms=10))
        if n != 1:
            story.fail(child, "boom")
        elif end == "timed_out":
            story.wake(child)
        elif end == "cancelled":
            story.cancel(child)
        else:
            story.reply(child, "fine")
    breaker = story.run("root").breaker
    assert breaker is not None
    assert breaker.count == 1


def test_equal_sets_give_equal_sets_whether_or_not_they_are_the_same_object() -> None:
    """A restart decodes new objects; `Permissions` are sorted tuples, so a derived set must be one
    too."""
    tools = ("note", "look")
    same = capabilities.derive(
        Permissions(tools=tools, read=tools), Permissions(tools=tools, read=tools)
    )
    assert (same.tools, same.read) == (("look", "note"), ("look", "note"))


def test_a_ledger_forgets_those_who_left() -> None:
    story = Story()
    story.start()
    for _ in range(50):
        (child,) = story.spawning("root", hand(budget=Budget(turns=3)))
        story.reply(child, "x")
    story.reply("root", "done")
    remembered = [v for v in vars(story.tree().ledger).values() if isinstance(v, dict)]
    assert all(len(v) <= 1 for v in remembered if v is not story.tree().ledger.touched)


HASHED = """
from tests.core.driver import Story, hand, call
from retinue.core.values import Limits
from retinue.core.values import SpawnLimits
story = Story(Limits(spawn_limits=SpawnLimits(per_call=1)))
story.start()
story.reply("root", "", call("hire"))
story.order("root", *(hand(limits=SpawnLimits(children=1)) for _ in range(3)))
print(story.results("root")[-1].text)
"""


def test_a_refusal_is_the_same_in_every_process() -> None:
    """Two limits refuse; which one is named must not depend on a hash."""
    text = set()
    for seed in range(8):
        out = subprocess.run(
            [sys.executable, "-c", HASHED],
            cwd=ROOT,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": "src:."},
            capture_output=True,
            text=True,
            check=True,
        )
        text.add(out.stdout)
    assert len(text) == 1


class Counted(dict[str, None]):
    """Counts how many keys were looked at by walking."""

    n_seen = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.n_seen += 1
            yield key


def walked(story: Story) -> Counted:
    story.tree().children["root"] = counted = Counted(story.tree().children["root"])
    return counted


def test_the_cancel_of_many_children_does_not_walk_them_all_for_each() -> None:
    story = Story()
    story.start()
    story.spawning("root", *(hand(join="none") for _ in range(500)))
    counted = walked(story)
    story.cancel("root")
    assert story.leaks() == {}
    assert counted.n_seen <= 5 * 500


def test_children_that_report_to_a_resting_parent_do_not_have_it_walk_all_the_others() -> None:
    story = Story()
    story.start(children_on_end="wait")
    children = story.spawning("root", *(hand(join="none") for _ in range(300)))
    story.reply("root", "waiting")
    counted = walked(story)
    for child in children:
        story.reply(child, "x")
    assert story.is_("root") == "Thinking"
    assert counted.n_seen <= 5 * 300


def test_a_second_enlistment_of_a_run_that_came_back_is_refused() -> None:
    story = Story()
    story.start("a", lanes=ONE)
    (child,) = story.spawning("a", hand())
    story.start("b", lanes=ONE)
    story.reply(child, "x")
    assert story.is_("a") == "Queued"
    assert story.post("a", RunCreated()) != ""
