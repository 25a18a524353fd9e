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
    told = Story()
    told.define("hand", tool_risks=GUARDS)
    told.start(cwd="/w", **fields)
    return told


def copies(
    told: Story, *orders: RunRequest, snapshot: str = "c0ffee", turn: bool = True
) -> list[str]:
    """The root calls `hire` for these children; copies of its files can be made."""
    if turn:
        told.reply("root", "", call("hire"))
    before = set(told.specs)
    where = told.address("root", 0)
    told.post("root", ActionsReturned(actions=Actions(spawns=orders), snapshot=snapshot, **where))
    return [s for s in told.specs if s not in before]


def said(told: Story) -> list[Any]:
    """The root's conversation."""
    return [told.said["root"][n] for n in sorted(told.said["root"])]


def merge(told: Story) -> Merge:
    (found,) = [e for e in told.effects if isinstance(e, Merge)]
    return found


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
    told = story()
    told.reply("root", "", call("hire"))
    tree = told.trees.of("root")
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
    told = story()
    told.reply("root", "", call("hire", "a"), call("hire", "b"))
    tree = told.trees.of("root")
    assert tree is not None and wants_copies(tree, "root", 0, Actions(spawns=(hand(),)))


def test_the_changes_of_all_are_merged_in_the_order_of_the_tasks_before_the_result() -> None:
    told = story()
    ids = copies(told, hand(label="a"), hand(label="b"), hand(label="c"))
    assert {told.specs[id].request.copy_of for id in ids} == {"c0ffee"}
    told.reply(ids[2], "third")
    told.cancel(ids[1])
    assert not [e for e in told.effects if isinstance(e, Merge)], "one is still at work"
    told.reply(ids[0], "first")
    effect = merge(told)
    assert [(c.label, c.is_wanted) for c in effect.copies] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    assert {(c.base, c.place) for c in effect.copies} == {("c0ffee", "/w")}
    assert isinstance(told.state("root"), Waiting)
    assert told.post("root", merged(effect, b="kept")) == ""
    assert isinstance(told.state("root"), Thinking)
    words = [m.text for m in said(told)]
    assert "first" in words[-2] and "- a: merged (1 file" in words[-1]


def test_a_tool_that_is_still_running_is_waited_for() -> None:
    told = story()
    told.reply("root", "", call("hire", "a"), call("look", "b"))
    ids = copies(told, hand(), hand(), turn=False)
    for id in ids:
        told.reply(id, "done")
    assert isinstance(told.state("root"), Working)
    assert not [e for e in told.effects if isinstance(e, Merge)]
    told.tool("root", 1)
    assert merge(told).indices == (0,)


def test_after_a_restart_it_is_asked_for_again_under_the_same_key_and_told_once() -> None:
    told = story()
    ids = copies(told, hand(label="a"), hand(label="b"))
    for id in ids:
        told.reply(id, "done")
    before = merge(told)
    told.restart("pure")
    after = [e for e in told.effects if isinstance(e, Merge)][-1]
    assert after == before
    told.post("root", merged(after))
    told.restart("pure")
    assert len([e for e in told.effects if isinstance(e, Merge)]) <= 2, "it is done"
    notes = [m.text for m in said(told) if "worked in copies" in m.text]
    assert len(notes) == 1


def test_a_message_that_cuts_the_wait_short_names_the_branches() -> None:
    told = story()
    ids = copies(told, hand(label="a"), hand(label="b"))
    told.reply(ids[0], "done")
    told.mail_to("root", "Hurry.", steer=True)
    assert isinstance(told.state("root"), Thinking)
    assert any("changes of a are not merged" in m.text for m in said(told))
    told.reply("root", "", call("look"))
    told.reply(ids[1], "done too")
    told.tool("root")
    assert any("changes of b are not merged" in m.text for m in said(told))


def test_a_parent_that_ended_while_files_were_merged_stays_ended() -> None:
    told = story()
    for id in copies(told, hand(), hand()):
        told.reply(id, "done")
    effect = merge(told)
    told.cancel("root")
    assert "not live" in told.post("root", merged(effect)) or isinstance(told.state("root"), Ended)


# turns


def waiting(told: Story, ids: list[str]) -> list[bool]:
    return [isinstance(told.state(id), Queued) for id in ids]


def test_without_copies_writers_take_turns_in_order() -> None:
    told = story()
    ids = told.spawning("root", hand(), hand(), hand())
    assert waiting(told, ids) == [False, True, True]
    told.reply(ids[0], "done")
    assert waiting(told, ids[1:]) == [False, True]
    told.cancel(ids[1])
    assert waiting(told, ids[2:]) == [False]
    told.reply(ids[2], "done")
    assert isinstance(told.state("root"), Thinking)


def test_who_cannot_edit_waits_for_nobody() -> None:
    told = story()
    ids = told.spawning("root", *[hand(permissions=LOOKING)] * 3)
    assert waiting(told, ids) == [False, False, False]


def test_a_writer_in_another_directory_waits_for_nobody() -> None:
    told = story()
    ids = told.spawning("root", hand(cwd="/w/a"), hand(cwd="/w/b"))
    assert waiting(told, ids) == [False, False]


def test_who_is_cancelled_while_it_waits_changes_nobodys_turn() -> None:
    told = story()
    ids = told.spawning("root", hand(), hand(), hand())
    told.cancel(ids[1])
    assert waiting(told, [ids[0], ids[2]]) == [False, True]
    told.reply(ids[0], "done")
    assert waiting(told, ids[2:]) == [False]


def test_turns_are_the_same_after_a_restart() -> None:
    told = story()
    ids = told.spawning("root", hand(), hand(), hand())
    told.restart("pure")
    assert waiting(told, ids) == [False, True, True]
    told.reply(ids[0], "done")
    told.restart("pure")
    assert waiting(told, ids[1:]) == [False, True]


def test_a_background_writer_takes_its_turn_too() -> None:
    told = story()
    first = told.spawning("root", hand(join="none"))
    second = told.spawning("root", hand(join="none"))
    assert waiting(told, [*first, *second]) == [False, True]


# silence


@pytest.mark.parametrize("at_work", ["model", "tool"])
def test_a_run_of_which_nothing_is_heard_has_stalled(at_work: str) -> None:
    told = Story()
    (id,) = _silent(told)
    if at_work == "tool":
        told.reply(id, "", call("look"))
    told.now += 59_999
    told.post(id, Woke())
    assert not isinstance(told.state(id), Ended)
    told.now += 1
    told.post(id, Woke())
    ending = told.ending(id)
    assert (ending.state, ending.stop) == ("timed_out", "stalled")
    assert "for 1 minutes" in ending.error


def _silent(told: Story) -> list[str]:
    told.start()
    return told.spawning("root", hand(silence_ms=60_000))


def test_each_sign_of_life_counts_and_a_wait_for_others_is_no_silence() -> None:
    told = Story()
    (id,) = _silent(told)
    for _ in range(5):
        told.now += 50_000
        told.reply(id, "", call("look"))
        told.now += 50_000
        told.tool(id)
    (below,) = told.spawning(id, hand())
    told.now += 10 * 60_000
    told.post(id, Woke())
    assert isinstance(told.state(id), Waiting)
    told.reply(below, "done")
    assert [e for e in told.effects if isinstance(e, CallModel) and e.run == id]
