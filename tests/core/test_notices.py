"""How ends are told: to the parent by mail, to the channel by announcement, in the words of the
tool that began it."""

from __future__ import annotations

import pytest

from retinue.core.effects import ScheduleDelivery, SendDelivery
from retinue.core.events import Acked, Requested, Sent
from retinue.core.ids import digest
from retinue.core.notices import fill
from retinue.core.spec import ForkPoint, History, RunRequest
from retinue.core.values import Budget, NoticeTexts, Origin, Permissions, SpawnLimits
from tests.core.driver import TOOLS, Story, call, hand

HOOK = Origin(channel="hook", user="u", thread="t")
WORDS = NoticeTexts(
    notice={"completed": "{label} is done: {brief}", "": "{label} {state}: {error}"},
    announcement={"": "'{label}' {state} ({done}/{size})"},
    denied="no {tool} here ({why})",
)


def told(**order: object) -> Story:
    story = Story()
    story.define("boss", agents=("boss", "hand"), notices={"hire": WORDS})
    story.start(origin=HOOK, **order)
    return story


def posted(story: Story) -> list[str]:
    return [d.text for d in story.deliveries.values()]


def test_a_parent_reads_of_its_child_in_the_words_of_the_tool() -> None:
    story = told()
    a, b = story.spawning(
        "root", hand("a", join="none", label="A"), hand("b", join="none", label="B")
    )
    story.reply(a, "x" * 300)
    story.fail(b, kind="auth", message="bad key")
    story.reply("root", "", call("look"))
    story.tool("root")
    assert f"A is done: {'x' * 200}..." in story.texts("root")
    assert "B failed: bad key" in story.texts("root")


def test_names_that_a_template_does_not_know_stay_and_what_replaces_is_not_replaced_again() -> None:
    assert fill("{a} {b} {c}", {"a": "{b}", "b": "2"}) == "{b} 2 {c}"


def test_a_child_that_reports_elsewhere_does_not_tell_its_parent() -> None:
    story = told()
    (a,) = story.spawning("root", hand("a", join="none", tell_parent=False))
    story.reply(a, "secret")
    story.reply("root", "", call("look"))
    story.tool("root")
    assert "secret" not in story.texts("root")


def test_a_joined_child_always_tells_its_parent() -> None:
    story = told()
    (a,) = story.spawning("root", hand("a", tell_parent=False))
    story.mail_to("root", "stop", steer=True)
    story.reply(a, "kept")
    story.reply("root", "", call("look"))
    story.tool("root")
    assert "kept" in story.texts("root")


def test_a_group_announces_each_member_in_order_of_completion_and_then_itself() -> None:
    story = told(children_on_end="keep")
    fields = {"join": "none", "announce": True, "group": "g", "group_size": 3, "group_kind": "k"}
    a, b, c = story.spawning("root", *(hand(x, label=x, **fields) for x in "abc"))
    story.reply("root", "started")
    story.reply(c, "third")
    story.fail(a, kind="auth", message="no")
    assert len(story.deliveries) == 2
    story.reply(b, "second")
    assert posted(story) == ["'c' completed (1/3)", "'a' failed (2/3)", "'b' completed (3/3)", ""]
    summary = list(story.deliveries.values())[-1]
    assert (summary.run, summary.group, summary.tool, summary.origin) == ("root", "g", "hire", HOOK)
    assert story.leaks() == {}


def test_the_count_of_a_group_is_right_after_a_restart() -> None:
    story = told(children_on_end="keep")
    fields = {"join": "none", "announce": True, "group": "g", "group_size": 2}
    a, b = story.spawning("root", *(hand(x, label=x, **fields) for x in "ab"))
    story.reply("root", "started")
    story.reply(b, "two")
    story.restart()
    story.reply(a, "one")
    assert posted(story) == ["'b' completed (1/2)", "'a' completed (2/2)", ""]


def test_a_group_that_is_cancelled_at_once_is_counted_to_its_end_and_summed_up_once() -> None:
    story = told()
    fields = {"join": "none", "announce": True, "group": "g", "group_size": 3}
    for child in story.spawning("root", *(hand(x, label=x, **fields) for x in "abc")):
        story.cancel(child)
    assert posted(story) == [f"'{x}' cancelled ({n}/3)" for n, x in enumerate("abc", 1)] + [""]


def test_a_summary_gets_its_words_when_it_is_sent_and_keeps_them() -> None:
    story = told()
    (a,) = story.spawning("root", hand("a", join="none", announce=True, group="g", group_size=1))
    story.reply(a, "one")
    key = digest("root", "", "g", "summary")
    story.post("", Sent(key=key, text="all of it"))
    story.post("", Sent(key=key, text="something else"))
    assert story.deliveries[key].text == "all of it"
    assert sum(isinstance(e, SendDelivery) for e in story.effects) == 2
    story.post("", Acked(key=key))
    assert story.deliveries[key].state == "acked"


def test_members_of_a_group_are_kept_for_its_summary() -> None:
    story = told()
    fields = {
        "join": "none",
        "announce": True,
        "group": "g",
        "group_size": 1,
        "retention": "delete",
    }
    (a,) = story.spawning("root", hand("a", **fields))
    story.reply(a, "one")
    assert story.forgotten == []


def test_a_tool_can_tell_the_channel_that_asked_before_anybody_ends() -> None:
    story = told()
    story.spawning("root", hand("a", join="none"), posts=("Working on 1 tasks...",))
    (post,) = story.deliveries.values()
    assert (post.text, post.origin, post.run) == ("Working on 1 tasks...", HOOK, "root")
    assert sum(isinstance(e, ScheduleDelivery) for e in story.effects) == 1


def test_nothing_is_posted_when_the_order_is_refused_or_nobody_asked_from_a_channel() -> None:
    story = told()
    story.reply("root", "", call("hire"))
    story.order("root", hand("a", limits=SpawnLimits(depth=0)), posts=("Working",))
    assert story.deliveries == {}
    quiet = Story()
    quiet.start()
    quiet.spawning("root", hand("a", join="none"), posts=("Working",))
    assert quiet.deliveries == {}


def test_a_child_that_calls_what_it_may_not_is_told_in_the_words_of_the_tool() -> None:
    story = told()
    (a,) = story.spawning("root", hand("a", join="none", permissions=Permissions(tools=("note",))))
    story.reply(a, "", call("look"))
    (result,) = story.results(a)
    assert result.error
    assert result.text.startswith("no look here (")


@pytest.mark.parametrize("bond", ["cancel", "keep", "wait"])
def test_each_child_has_its_own_bond_to_its_parent(bond: str) -> None:
    story = Story()
    story.start(children_on_end="keep" if bond == "cancel" else "cancel")
    a, b = story.spawning(
        "root",
        hand("a", join="none", on_parent_end=bond),
        hand("b", join="none", on_parent_end="keep"),
    )
    story.reply("root", "done")
    if bond == "cancel":
        assert story.ended(a) == ("cancelled", "cancelled")
        assert story.ended("root") == ("completed", "done")
    elif bond == "keep":
        assert story.is_(a) == "Thinking"
        assert story.ended("root") == ("completed", "done")
    else:
        assert story.is_("root") == "Waiting"
        story.reply(a, "one")
        story.reply("root", "now")
        assert story.ended("root") == ("completed", "done")
    assert story.is_(b) == "Thinking"
    story.reply(b, "late")
    for id in (a,):
        if story.is_(id) == "Thinking":
            story.reply(id, "late too")
    assert story.leaks() == {}


def test_a_stopping_parent_waits_only_for_those_that_may_not_outlive_it() -> None:
    story = Story()
    story.start()
    a, b = story.spawning(
        "root",
        hand("a", join="none", on_parent_end="keep"),
        hand("b", join="none", on_parent_end="cancel"),
    )
    (c,) = story.spawning(b, hand("c", join="none", on_parent_end="keep"))
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")
    assert story.ended(b) == story.ended(c) == ("cancelled", "cancelled")
    assert story.is_(a) == "Thinking"


def test_a_child_can_go_on_from_where_another_ended() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand("a"))
    story.reply(a, "first part")
    length = story.run(a).length
    base = ForkPoint(conversation=story.specs[a].conversation, length=length)
    context = History(kind="run", run=a, base=base, tokens=15)
    (b,) = story.spawning("root", RunRequest(agent="hand", task="and now?", history=context))
    spec = story.specs[b]
    assert (spec.base, spec.resumes, spec.conversation) == (base, a, b)
    assert story.run(b).context == 15
    story.reply(b, "second part")
    assert "second part" in story.texts("root")
    story.reply("root", "end")
    assert story.leaks() == {}


def test_an_allow_list_of_nothing_that_exists_is_refused() -> None:
    story = Story()
    story.start()
    story.reply("root", "", call("hire"))
    story.order(
        "root", hand("a", permissions=Permissions(tools=("nope",)), on_unknown_tool="ignore")
    )
    assert "none of its tools" in story.texts("root")
    (b,) = story.spawning(
        "root", hand("b", permissions=Permissions(tools=()), on_unknown_tool="ignore")
    )
    assert set(TOOLS) & set(story.specs[b].permissions.tools or ()) == set()


def test_words_can_tell_one_reason_from_another() -> None:
    story = Story()
    words = NoticeTexts(notice={"incomplete/turn_limit": "out of turns", "incomplete": "cut short"})
    story.define("boss", agents=("boss", "hand"), notices={"hire": words})
    story.start()
    a, b = story.spawning("root", hand("a", join="none", max_turns=0), hand("b", join="none"))
    for _ in range(9):
        story.reply(b, "so far", stop="length")
    story.reply("root", "", call("look"))
    story.tool("root")
    assert story.ended(a) == ("incomplete", "turn_limit")
    assert "out of turns" in story.texts("root")
    assert "cut short" in story.texts("root")


def test_a_name_that_the_agent_never_had_is_denied_in_the_same_words() -> None:
    story = told()
    (a,) = story.spawning("root", hand("a", join="none"))
    story.reply(a, "", call("invented"))
    (result,) = story.results(a)
    assert result.text.startswith("no invented here (")


def test_an_ended_run_whose_children_go_on_can_be_resumed() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand("a", join="none", on_parent_end="keep"))
    story.reply("root", "started")
    fields = {
        "conversation": "root",
        "resumes": "root",
        "base": ForkPoint(conversation="root", length=story.run("root").length),
    }
    event = Requested(id="next", request=RunRequest(agent="boss", task="and?"), **fields)
    assert story.post("", event) == ""
    assert story.is_("next") == "Thinking"
    again = Requested(id="third", request=RunRequest(agent="boss", task="and?"), **fields)
    assert "has an open run" in story.post("", again)
    assert story.is_(a) == "Thinking"


def test_instructions_of_the_order_count_for_the_budget() -> None:
    story = Story()
    story.start(budget=Budget(tokens=20_000), instructions="x" * 30_000)
    assert story.ended("root") == ("incomplete", "tokens_budget")


def test_a_child_that_has_nothing_to_announce_tells_its_parent_nothing_either() -> None:
    story = Story()
    story.start()
    (a,) = story.spawning("root", hand("a", join="none", report="announce", skip_token="SKIP"))
    story.reply(a, "the work is done")
    story.reply(a, "SKIP")
    assert story.ending(a).data == "the work is done"
    story.reply("root", "", call("look"))
    story.tool("root")
    assert "SKIP" not in story.texts("root")
