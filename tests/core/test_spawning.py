"""Orders become children: joins, fan-ins, contexts, limits; all of them exist, or none."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.effects import FormatResults
from retinue.core.events import ChildEnded, ModelRegistered
from retinue.core.messages import ToolMessage, UserMessage
from retinue.core.spec import History, Lane, RunRequest
from retinue.core.state import Waiting, Working
from retinue.core.values import Budget, Limits, ModelInfo, Permissions, SpawnLimits
from tests.core.driver import Story, call, hand


def started(**order: Any) -> Story:
    story = Story()
    story.start(**order)
    return story


def refused(story: Story, *spawns: RunRequest, **orders: Any) -> str:
    """What the model is told; nothing was started."""
    story.reply("root", "", call("hire"))
    before = set(story.specs), story.account("root").below
    assert story.order("root", *spawns, **orders) == ""
    assert (set(story.specs), story.account("root").below) == before
    last = story.results("root")[-1]
    assert last.error
    return last.text


def test_a_call_that_joins_waits_for_its_children_and_answers_with_what_they_said() -> None:
    story = started()
    (child,) = story.spawning("root", hand("look up"))
    assert isinstance(story.state("root"), Waiting)
    story.reply(child, "found")
    assert story.results("root")[-1].text == "found"
    story.reply("root", "thanks")
    assert story.ended("root") == ("completed", "done")
    assert story.leaks() == {}


def test_several_children_come_back_in_the_order_they_were_asked_for() -> None:
    story = started()
    a, b, c = story.spawning("root", hand("a"), hand("b"), hand("c"))
    for child, text in ((c, "three"), (a, "one"), (b, "two")):
        story.later(1)
        story.reply(child, text)
    text = story.results("root")[-1].text
    assert text.index("one") < text.index("two") < text.index("three")


def test_or_in_the_order_they_came_back() -> None:
    story = started()
    a, b = story.spawning(
        "root", hand("a", result_order="completion"), hand("b", result_order="completion")
    )
    story.reply(b, "two")
    story.later(1)
    story.reply(a, "one")
    text = story.results("root")[-1].text
    assert text.index("two") < text.index("one")


def test_calls_that_join_by_call_are_answered_one_by_one() -> None:
    story = started()
    story.reply("root", "", call("hire", "x"), call("hire", "y"))
    story.order("root", hand("a"), index=0)
    story.order("root", hand("b"), index=1)
    a, b = story.children("root")
    story.reply(b, "second")
    assert [r.call_id for r in story.results("root")] == ["y"]
    assert story.n_asked("root") == 1
    story.reply(a, "first")
    assert [r.call_id for r in story.results("root")] == ["y", "x"]
    assert story.n_asked("root") == 2


def test_two_spawning_calls_of_one_turn_share_one_fan_in() -> None:
    story = started()
    story.reply("root", "", call("hire", "x"), call("hire", "y"))
    story.order("root", hand("a", join="turn"), hand("b", join="turn"), index=0)
    story.order("root", hand("c", join="turn"), index=1)
    a, b, c = story.children("root")
    story.reply(c, "three")
    assert story.results("root") == []
    story.reply(a, "one")
    assert story.results("root") == []
    story.reply(b, "two")
    assert [r.call_id for r in story.results("root")] == ["x", "y"]
    assert story.tree().fans == {}


@pytest.mark.parametrize("compose", [False, True])
def test_the_results_of_a_turn_may_stand_together_in_the_answer_to_its_last_call(
    compose: bool,
) -> None:
    story = started()
    story.reply("root", "", call("hire", "x"), call("hire", "y"), call("hire", "z"))
    for index, names in enumerate(("ab", "c", "d")):
        together: Any = {
            "join": "turn",
            "format_results": compose,
            "aggregate": "turn" if index < 2 else "call",
        }
        story.order("root", *(hand(name, **together) for name in names), index=index)
    (a, b), (c, e) = story.children("root")[:2], story.children("root")[2:]
    for child in (c, a, e, b):
        assert story.results("root") == []
        story.reply(child, f"by {child[-4:]}")
    if compose:
        story.restart()
    story.format_results("root", "all of it")
    texts = {r.call_id: r.text for r in story.results("root")}
    assert texts["x"] == f"Started 2: {a}, {b}. " + texts["x"].partition(". ")[2]
    assert texts["y"] == "all of it"
    assert texts["z"] == ("all of it" if compose else f"by {e[-4:]}")
    effect = next(e for e in story.effects if isinstance(e, FormatResults))
    assert [[o.id for o in joined.outcomes] for joined in effect.calls if joined.index == 1] == [
        [a, b, c]
    ]
    assert story.tree().fans == {}
    assert story.n_asked("root") == 2


@pytest.mark.parametrize("join", ["call", "turn"])
def test_an_early_result_is_counted_once(join: Any) -> None:
    """The child is back before the last tool of the turn."""
    story = started()
    story.reply("root", "", call("hire", "x"), call("look", "y"))
    story.order("root", hand("quick", join=join))
    (child,) = story.children("root")
    story.reply(child, "early")
    assert isinstance(story.state("root"), Working)
    assert story.n_asked("root") == 1
    assert story.post("root", ChildEnded(child=child)) != ""
    story.tool("root", 1)
    assert sorted(r.call_id for r in story.results("root")) == ["x", "y"]
    assert story.n_asked("root") == 2


def test_a_child_that_nobody_joins_reports_as_news() -> None:
    story = started()
    (child,) = story.spawning("root", hand(join="none", label="scout"))
    assert story.results("root")[-1].text == f"Started: {child}"
    assert story.n_asked("root") == 2
    story.reply(child, "land ahoy")
    story.reply("root", "I am done")
    assert story.n_asked("root") == 3
    news = story.messages("root")[-1]
    assert isinstance(news, UserMessage)
    assert (news.kind, news.sender) == ("news", child)
    assert "land ahoy" in news.text
    story.reply("root", "now really")
    assert story.leaks() == {}


def test_the_answer_of_the_tool_is_what_the_model_reads() -> None:
    story = started()
    story.spawning("root", hand(join="none"), answer="on it")
    assert story.results("root")[-1].text == "on it"


def test_an_answer_closes_the_call_at_once_unless_children_are_joined() -> None:
    story = started()
    story.spawning("root", hand(join="none"), answer="on it")
    assert [r.text for r in story.results("root")] == ["on it"]
    (child,) = story.spawning("root", hand(), answer="on it")
    assert [r.text for r in story.results("root")] == ["on it"]
    story.reply(child, "done")
    assert [r.text for r in story.results("root")] == ["on it", "done"]


@pytest.mark.parametrize("child", ["nobody", "root", "stranger", "living"])
def test_an_unknown_own_foreign_or_living_child_is_refused_and_changes_nothing(child: str) -> None:
    story = started()
    story.start("stranger")
    (living,) = story.spawning("root", hand())
    before, entries = story.run("root"), len(story.stale())
    child = living if child == "living" else child
    assert "not an ended child" in story.post("root", ChildEnded(child=child))
    assert story.run("root") == before
    assert len(story.stale()) == entries + 1


def test_a_child_that_was_counted_is_not_counted_again() -> None:
    story = started()
    a, b = story.spawning("root", hand("a"), hand("b"))
    story.reply(a, "one")
    before = story.run("root")
    assert story.post("root", ChildEnded(child=a))
    assert story.run("root") == before
    story.reply(b, "two")
    assert story.results("root")[-1].text.count("one") == 1


def test_a_family_puts_the_outcomes_into_its_own_words() -> None:
    story = started()
    a, b = story.spawning("root", hand("a", format_results=True), hand("b", format_results=True))
    story.reply(a, "one")
    assert story.did(FormatResults, "root") == 0
    story.reply(b, "two")
    assert story.did(FormatResults, "root") == 1
    assert story.results("root") == []
    story.format_results("root", "one and two")
    assert story.results("root")[-1].text == "one and two"
    assert story.format_results("root", "again") != ""
    assert len(story.results("root")) == 1
    assert story.tree().fans == {}


def test_a_failed_child_is_an_error_with_the_true_state() -> None:
    story = started()
    (child,) = story.spawning("root", hand(label="scout"))
    story.reply(child, "half", call())
    story.tool(child)
    story.fail(child, "server_error", "boom")
    result = story.results("root")[-1]
    assert result.error
    assert result.text == "scout failed (server_error): boom\nText so far: half"


def test_a_clean_child_knows_its_task_only() -> None:
    story = started()
    (child,) = story.spawning("root", hand("just this"))
    assert story.messages(child) == [UserMessage(text="just this")]
    assert story.specs[child].base is None


def test_a_child_may_be_given_a_summary() -> None:
    story = started()
    (child,) = story.spawning(
        "root", hand("dig", history=History(kind="summary", text="the garden is wet"))
    )
    assert "the garden is wet" in story.messages(child)[0].text
    assert story.messages(child)[0].text.endswith("dig")


def test_a_fork_sees_what_stands_before_the_open_calls_and_copies_nothing() -> None:
    story = started()
    story.reply("root", "", call())
    story.tool("root")
    (child,) = story.spawning("root", hand("go on", history=History(kind="fork")))
    base = story.specs[child].base
    assert base is not None
    assert (base.conversation, base.length, base.start) == ("root", 3, 0)
    assert story.messages(child) == [UserMessage(text="go on")]
    run = story.run(child)
    assert (run.start, run.length) == (0, 4)


def test_a_fork_excludes_the_results_of_the_turn_that_is_open() -> None:
    story = started()
    story.reply("root", "", call("look", "x"), call("hire", "y"))
    story.tool("root", 0)
    story.order("root", hand(history=History(kind="fork")), index=1)
    (child,) = story.children("root")
    base = story.specs[child].base
    assert base is not None
    assert base.length == 1


def test_the_last_turns_are_a_window_on_the_parent() -> None:
    story = started()
    for _ in range(3):
        story.reply("root", "", call())
        story.tool("root")
    (child,) = story.spawning("root", hand(history=History(kind="last", n=2)))
    base = story.specs[child].base
    assert base is not None
    assert (base.start, base.length) == (3, 7)
    assert story.run(child).start == 3


def test_a_fork_of_a_fork_hangs_on_the_fork() -> None:
    story = started()
    (a,) = story.spawning("root", hand(history=History(kind="fork")))
    (b,) = story.spawning(a, hand(history=History(kind="fork")))
    base = story.specs[b].base
    assert base is not None
    assert (base.conversation, base.length) == (a, 2)
    assert story.specs[b].path.startswith(story.specs[a].path)
    assert story.specs[b].depth == 2


LIMITS: list[tuple[str, SpawnLimits, Permissions, int]] = [
    ("depth", SpawnLimits(depth=0), Permissions(), 1),
    ("per_call", SpawnLimits(per_call=2), Permissions(), 3),
    ("children", SpawnLimits(children=1), Permissions(), 2),
    ("total", SpawnLimits(total=1), Permissions(), 2),
    ("depth", SpawnLimits(), Permissions(depth=0), 1),
    ("depth", SpawnLimits(), Permissions(may_spawn=False), 1),
    ("children", SpawnLimits(), Permissions(fanout=1), 2),
]


@pytest.mark.parametrize(("name", "limits", "permissions", "n"), LIMITS)
def test_a_limit_refuses_by_name_and_nothing_is_started(
    name: str, limits: SpawnLimits, permissions: Permissions, n: int
) -> None:
    story = started(capabilities=permissions)
    spawns = [hand(f"t{i}", limits=limits) for i in range(n)]
    assert refused(story, *spawns).startswith(f"Refused ({name}): ")


@pytest.mark.parametrize(("name", "limits", "permissions", "n"), LIMITS)
def test_a_family_has_its_own_words_for_a_limit(
    name: str, limits: SpawnLimits, permissions: Permissions, n: int
) -> None:
    story = started(capabilities=permissions)
    spawns = [hand(f"t{i}", limits=limits) for i in range(n)]
    assert refused(story, *spawns, refusals={name: "No more!"}) == "No more!"


def test_live_children_count_and_ended_ones_only_in_the_total() -> None:
    story = started()
    (a,) = story.spawning("root", hand(join="none", limits=SpawnLimits(children=1)))
    assert "children" in refused(story, hand(limits=SpawnLimits(children=1)))
    story.reply(a, "done")
    story.spawning("root", hand(join="none", limits=SpawnLimits(children=1)))
    assert "2 were started" in refused(story, hand(limits=SpawnLimits(total=2)))


def test_the_outer_limits_of_the_runtime_hold_too() -> None:
    story = Story(Limits(spawn_limits=SpawnLimits(depth=1)))
    story.start()
    (child,) = story.spawning("root", hand())
    story.reply(child, "", call("hire"))
    story.order(child, hand())
    assert "depth limit is reached (current depth: 1, limit: 1)" in story.results(child)[-1].text


def test_groups_are_limited_by_kind() -> None:
    story = started()
    limits = SpawnLimits(groups=1)
    (a,) = story.spawning("root", hand(join="none", group="g1", group_kind="bg", limits=limits))
    story.spawning("root", hand(join="none", group="g1", group_kind="bg", limits=limits))
    assert "groups" in refused(story, hand(group="g2", group_kind="bg", limits=limits))
    story.spawning("root", hand(join="none", group="g2", group_kind="fg", limits=limits))
    story.reply(a, "x")
    assert "groups" in refused(story, hand(group="g2", group_kind="bg", limits=limits))
    for child in story.children("root")[1:]:
        story.reply(child, "x")
    assert story.tree().groups == {}


def test_each_order_of_a_call_is_held_to_the_group_limit() -> None:
    story = started()
    limits = SpawnLimits(groups=1)
    spawns = [hand(group=f"g{i}", limits=limits) for i in range(3)]
    assert "groups" in refused(story, *spawns)


def test_a_lane_that_refuses_takes_no_more_than_its_size_from_one_call() -> None:
    story = started()
    lane = Lane(name="narrow", size=2, on_full="refuse")
    assert "running" in refused(story, *(hand(lanes=(lane,)) for _ in range(3)))


@pytest.mark.parametrize(
    ("limit", "bad"),
    [
        ("agent", RunRequest(agent="ghost", task="x")),
        ("model", hand(model="ghost")),
        ("tools", hand(permissions=Permissions(tools=("fly",)))),
        ("share", hand(budget_share="most")),
        ("budget", hand(budget=Budget(tokens=10**9))),
    ],
)
def test_one_bad_order_refuses_all_of_them(limit: str, bad: RunRequest) -> None:
    story = started(budget=Budget(tokens=100_000))
    spawns = (bad, hand("good")) if limit == "share" else (hand("good"), bad)
    assert f"({limit})" in refused(story, *spawns)
    assert story.leaks()["runs"] == ["root"]
    assert story.account("root").below == 0


def test_children_are_named_by_their_place_and_sort_by_creation() -> None:
    story = started()
    children = story.spawning("root", *(hand(f"t{i}") for i in range(20)))
    assert len(set(children)) == 20
    assert sorted(children) == list(children)


def test_the_children_of_one_call_are_joined_in_one_way() -> None:
    story = started()
    assert "(mixed)" in refused(story, hand("a"), hand("b", join="none"))


def test_an_agent_must_be_on_the_staff() -> None:
    story = started(capabilities=Permissions(agents=("boss",)))
    assert "Unknown agent 'hand'" in refused(story, hand())


def test_a_model_must_be_allowed() -> None:
    story = started(capabilities=Permissions(models=("m",)))
    story.post("", ModelRegistered(model=ModelInfo(name="big")))
    assert "Model 'big' is not allowed. Allowed: m" in refused(story, hand(model="big"))


def test_a_child_without_any_of_its_tools_is_refused() -> None:
    story = started(capabilities=Permissions(deny=("look", "note")))
    story.define("hand", tools=("look", "note"))
    assert "would start with none of its tools" in refused(story, hand())


def test_unknown_tools_are_an_error_or_are_ignored() -> None:
    story = started()
    assert "has no tool named 'fly'" in refused(
        story, hand(permissions=Permissions(tools=("fly", "look")))
    )
    access = Permissions(tools=("fly", "look"))
    (child,) = story.spawning("root", hand(permissions=access, on_unknown_tool="ignore"))
    assert story.specs[child].permissions.tools == ("look",)


def test_what_the_parent_may_not_use_it_may_not_lend() -> None:
    story = started(capabilities=Permissions(deny=("note",)))
    assert "cannot give a child these tools: 'note'" in refused(
        story, hand(permissions=Permissions(tools=("look", "note")))
    )


def test_orders_without_children_are_answered() -> None:
    story = started()
    story.spawning("root")
    assert story.results("root")[-1] == ToolMessage(call_id="c1", name="hire", text="Done.")


def test_an_ended_member_with_children_of_its_own_does_not_keep_its_group_running() -> None:
    story = started()
    fields = {"group": "one", "limits": SpawnLimits(groups=1), "children_on_end": "keep"}
    (member,) = story.spawning("root", hand(join="none", **fields))
    (orphan,) = story.spawning(member, hand(join="none"))
    story.reply(member, "done")
    assert story.is_(orphan) == "Thinking"
    assert story.tree().groups == {}
