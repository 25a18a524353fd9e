"""Children that change files: side by side in copies that are merged in order, or in turns."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.effects import CallModel, Merge
from retinue.core.events import ActionsReturned, Merged, Woke
from retinue.core.merges import BranchMerge
from retinue.core.spec import Actions, RunRequest
from retinue.core.state import Ended, Queued, Thinking, Waiting, Working
from retinue.core.values import Permissions, ToolRisk
from retinue.core.writers import changes_files, edits_files, wants_copies
from tests.core.driver import Story, call, hand

GUARDS = {
    "note": ToolRisk(risk="write", guarded=True, changes_files=True),
    "look": ToolRisk(risk="execute", guarded=True, changes_files=True),
}
LOOKING = Permissions(tools=("look",))


def story(**fields: Any) -> Story:
    story = Story()
    story.define("hand", tool_risks=GUARDS)
    story.start(cwd="/w", **fields)
    return story


def copies(
    story: Story, *orders: RunRequest, snapshot: str = "c0ffee", turn: bool = True
) -> list[str]:
    """The root calls `hire` for these children; copies of its files can be made."""
    if turn:
        story.reply("root", "", call("hire"))
    before = set(story.specs)
    where = story.address("root", 0)
    story.post("root", ActionsReturned(actions=Actions(spawns=orders), snapshot=snapshot, **where))
    return [s for s in story.specs if s not in before]


def said(story: Story) -> list[Any]:
    """The root's conversation."""
    return [story.said["root"][n] for n in sorted(story.said["root"])]


def merge(story: Story) -> Merge:
    (effect,) = [e for e in story.effects if isinstance(e, Merge)]
    return effect


def merged(effect: Merge, **states: str) -> Merged:
    merges = [
        BranchMerge(run=c.run, label=c.label, state=states.get(c.label, "merged"), files=1)
        for c in effect.copies
    ]
    return Merged(turn=effect.turn, indices=effect.indices, merges=tuple(merges))


def test_who_holds_a_tool_that_changes_files_or_may_start_one_who_does_is_a_writer() -> None:
    shared = story().trees.shared
    assert changes_files(shared, "hand", Permissions())
    assert changes_files(shared, "boss", Permissions()), "its crew has one"
    assert not changes_files(shared, "hand", Permissions(mode="plan"))
    assert not changes_files(shared, "hand", Permissions(write=()))
    assert not changes_files(shared, "hand", Permissions(tools=("hire",)))
    assert changes_files(shared, "hand", LOOKING) and not edits_files(shared, "hand", LOOKING)


def test_copies_are_wanted_for_several_writers_that_are_waited_for() -> None:
    driver = story()
    driver.reply("root", "", call("hire"))
    tree = driver.trees.of("root")
    assert tree is not None

    def wants(*orders: RunRequest) -> bool:
        return wants_copies(tree, "root", 0, Actions(spawns=orders))

    assert wants(hand(), hand())
    assert not wants(hand()), "who is alone needs no copy"
    assert not wants(hand(join="none"), hand(join="none")), "there is no moment to merge"
    assert not wants(hand(writers="turns"), hand(writers="turns"))
    assert not wants(*[hand(permissions=Permissions(tools=("hire",)))] * 2)
    assert not wants(*[hand(isolation="worktree")] * 2), "its branch is to be kept"


def test_two_calls_of_one_turn_are_as_good_as_two_tasks_of_one_call() -> None:
    driver = story()
    driver.reply("root", "", call("hire", "a"), call("hire", "b"))
    tree = driver.trees.of("root")
    assert tree is not None and wants_copies(tree, "root", 0, Actions(spawns=(hand(),)))


def test_the_changes_of_all_are_merged_in_the_order_of_the_tasks_before_the_result() -> None:
    driver = story()
    ids = copies(driver, hand(label="a"), hand(label="b"), hand(label="c"))
    assert {driver.specs[id].request.copy_of for id in ids} == {"c0ffee"}
    driver.reply(ids[2], "third")
    driver.cancel(ids[1])
    assert not [e for e in driver.effects if isinstance(e, Merge)], "one is still at work"
    driver.reply(ids[0], "first")
    effect = merge(driver)
    assert [(c.label, c.is_wanted) for c in effect.copies] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    assert {(c.base, c.place) for c in effect.copies} == {("c0ffee", "/w")}
    assert isinstance(driver.state("root"), Waiting)
    assert driver.post("root", merged(effect, b="kept")) == ""
    assert isinstance(driver.state("root"), Thinking)
    words = [m.text for m in said(driver)]
    assert "first" in words[-2] and "- a: merged (1 file" in words[-1]


def test_a_tool_that_is_still_running_is_waited_for() -> None:
    driver = story()
    driver.reply("root", "", call("hire", "a"), call("look", "b"))
    ids = copies(driver, hand(), hand(), turn=False)
    for id in ids:
        driver.reply(id, "done")
    assert isinstance(driver.state("root"), Working)
    assert not [e for e in driver.effects if isinstance(e, Merge)]
    driver.tool("root", 1)
    assert merge(driver).indices == (0,)


def test_after_a_restart_it_is_asked_for_again_under_the_same_key_and_told_once() -> None:
    driver = story()
    ids = copies(driver, hand(label="a"), hand(label="b"))
    for id in ids:
        driver.reply(id, "done")
    before = merge(driver)
    driver.restart("pure")
    after = [e for e in driver.effects if isinstance(e, Merge)][-1]
    assert after == before
    driver.post("root", merged(after))
    driver.restart("pure")
    assert len([e for e in driver.effects if isinstance(e, Merge)]) <= 2, "it is done"
    notes = [m.text for m in said(driver) if "worked in copies" in m.text]
    assert len(notes) == 1


def test_a_message_that_cuts_the_wait_short_names_the_branches() -> None:
    driver = story()
    ids = copies(driver, hand(label="a"), hand(label="b"))
    driver.reply(ids[0], "done")
    driver.mail_to("root", "Hurry.", steer=True)
    assert isinstance(driver.state("root"), Thinking)
    assert any("changes of a are not merged" in m.text for m in said(driver))
    driver.reply("root", "", call("look"))
    driver.reply(ids[1], "done too")
    driver.tool("root")
    assert any("changes of b are not merged" in m.text for m in said(driver))


def test_a_parent_that_ended_while_files_were_merged_stays_ended() -> None:
    driver = story()
    for id in copies(driver, hand(), hand()):
        driver.reply(id, "done")
    effect = merge(driver)
    driver.cancel("root")
    assert "not live" in driver.post("root", merged(effect)) or isinstance(
        driver.state("root"), Ended
    )


# turns


def waiting(story: Story, ids: list[str]) -> list[bool]:
    return [isinstance(story.state(id), Queued) for id in ids]


def test_without_copies_writers_take_turns_in_order() -> None:
    driver = story()
    ids = driver.spawning("root", hand(), hand(), hand())
    assert waiting(driver, ids) == [False, True, True]
    driver.reply(ids[0], "done")
    assert waiting(driver, ids[1:]) == [False, True]
    driver.cancel(ids[1])
    assert waiting(driver, ids[2:]) == [False]
    driver.reply(ids[2], "done")
    assert isinstance(driver.state("root"), Thinking)


def test_who_cannot_edit_waits_for_nobody() -> None:
    driver = story()
    ids = driver.spawning("root", *[hand(permissions=LOOKING)] * 3)
    assert waiting(driver, ids) == [False, False, False]


def test_a_writer_in_another_directory_waits_for_nobody() -> None:
    driver = story()
    ids = driver.spawning("root", hand(cwd="/w/a"), hand(cwd="/w/b"))
    assert waiting(driver, ids) == [False, False]


def test_who_is_cancelled_while_it_waits_changes_nobodys_turn() -> None:
    driver = story()
    ids = driver.spawning("root", hand(), hand(), hand())
    driver.cancel(ids[1])
    assert waiting(driver, [ids[0], ids[2]]) == [False, True]
    driver.reply(ids[0], "done")
    assert waiting(driver, ids[2:]) == [False]


def test_turns_are_the_same_after_a_restart() -> None:
    driver = story()
    ids = driver.spawning("root", hand(), hand(), hand())
    driver.restart("pure")
    assert waiting(driver, ids) == [False, True, True]
    driver.reply(ids[0], "done")
    driver.restart("pure")
    assert waiting(driver, ids[1:]) == [False, True]


def test_a_background_writer_takes_its_turn_too() -> None:
    driver = story()
    first = driver.spawning("root", hand(join="none"))
    second = driver.spawning("root", hand(join="none"))
    assert waiting(driver, [*first, *second]) == [False, True]


# silence


@pytest.mark.parametrize("at_work", ["model", "tool"])
def test_a_run_of_which_nothing_is_heard_has_stalled(at_work: str) -> None:
    story = Story()
    (id,) = _silent(story)
    if at_work == "tool":
        story.reply(id, "", call("look"))
    story.now += 59_999
    story.post(id, Woke())
    assert not isinstance(story.state(id), Ended)
    story.now += 1
    story.post(id, Woke())
    ending = story.ending(id)
    assert (ending.state, ending.stop) == ("timed_out", "stalled")
    assert "for 1 minutes" in ending.error


def _silent(story: Story) -> list[str]:
    story.start()
    return story.spawning("root", hand(silence_ms=60_000))


def test_each_sign_of_life_counts_and_a_wait_for_others_is_no_silence() -> None:
    story = Story()
    (id,) = _silent(story)
    for _ in range(5):
        story.now += 50_000
        story.reply(id, "", call("look"))
        story.now += 50_000
        story.tool(id)
    (below,) = story.spawning(id, hand())
    story.now += 10 * 60_000
    story.post(id, Woke())
    assert isinstance(story.state(id), Waiting)
    story.reply(below, "done")
    assert [e for e in story.effects if isinstance(e, CallModel) and e.run == id]
