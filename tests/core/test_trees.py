"""Trees beside each other: what goes between them, and what a defect in one of them means for the
others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from retinue.core import machine
from retinue.core.events import Broken, Forgotten, Requested
from retinue.core.spec import ForkPoint, Lane, RunRequest
from retinue.core.tree import Tree
from retinue.core.values import Budget, Permissions
from tests.core.driver import Story, call, hand, send


def two(**first: object) -> Story:
    story = Story()
    story.start("a", **first)
    story.start("b")
    return story


def test_each_event_is_in_the_log_of_its_tree() -> None:
    story = two()
    (child,) = story.spawning("a", hand())
    story.reply(child, "x")
    assert {e.tree for e in story.entries if e.run in ("a", child)} == {"a"}
    assert {e.tree for e in story.entries if e.run == "b"} == {"b"}
    assert {e.tree for e in story.entries if not e.run and not isinstance(e.event, Requested)} == {
        ""
    }


def test_a_letter_to_a_peer_in_another_tree_arrives_once() -> None:
    story = two(capabilities=Permissions(comms=("b",)))
    story.reply("a", "", call("hire"))
    story.order("a", sends=(send("b", "psst"),), answer="sent")
    assert [m.text for m in story.tree("b").mail["b"]] == ["psst"]
    assert story.tree("b").mail["b"][0].sender == "a"


@pytest.mark.parametrize("why", ["ended", "full"])
def test_a_letter_that_cannot_arrive_is_told_to_its_sender(why: str) -> None:
    story = two(capabilities=Permissions(comms=("b",)))
    if why == "ended":
        story.reply("b", "done")
    else:
        for n in range(story.trees.shared.limits.mail_per_sender):
            story.mail_to("b", f"{n}", sender="a")
    story.reply("a", "", call("hire"))
    story.order("a", sends=(send("b", "psst"),), answer="sent")
    assert "was not delivered" in story.tree("a").mail["a"][0].text


def test_who_is_no_peer_is_not_written_to_in_another_tree_either() -> None:
    story = two()
    story.reply("a", "", call("hire"))
    story.order("a", sends=(send("b", "psst"),), answer="sent")
    assert "is not an open run that you can send to" in story.texts("a")


def broken_by(story: Story, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of this run raises what no step should."""
    real = machine.step  # type: ignore[attr-defined]

    def step(value: object, *rest: object) -> object:
        if getattr(value, "id", "") == run:
            raise KeyError("a defect")
        return real(value, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(machine, "step", step)


def test_a_defect_concerns_its_own_tree_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = (Lane(name="one", size=1),)
    story = Story()
    story.start("a", lanes=lanes)
    story.start("b", lanes=lanes)
    story.start("c", budget=Budget(tokens=100_000))
    broken_by(story, "a", monkeypatch)
    trees = story.trees
    trees.apply("c", story.now, story.entries[-1].event)
    reason = trees.apply("a", story.now, story.entries[-1].event)
    assert reason.startswith("internal error: KeyError") and [root for root, _ in trees.failed] == [
        "a"
    ]
    assert trees.set_aside("a", story.now, "KeyError", story.run("a")) == ["a"]
    changes = trees.take_changes()
    assert changes.runs["a"].defect == "KeyError" and changes.runs["a"].state == story.state("a")
    assert [e.event for e in changes.entries if e.tree == "a"] == [Broken(error="KeyError")]
    assert trees.of("a") is None and trees.run("b") is not None
    granted = [seat for e in changes.effects if (seat := trees.seat(e)) is not None]  # type: ignore[arg-type]
    assert [id for id, _ in granted] == ["b"], "its slot goes to the next"


def test_what_a_broken_tree_has_done_since_the_last_commit_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    story.start("a")
    trees = story.trees
    trees.apply("a", story.now, Requested(id="a", request=RunRequest(agent="boss", task="again")))
    trees.apply("", story.now, Requested(id="z", request=RunRequest(agent="boss", task="t")))
    broken_by(story, "z", monkeypatch)
    tree = trees.by_root["z"]
    assert isinstance(tree, Tree)
    trees.apply("z", story.now, Broken(error="x"))
    trees.set_aside("z", story.now, "KeyError", None)
    changes = trees.take_changes()
    assert not changes.specs and not changes.messages and "z" not in changes.runs


def test_a_conversation_that_goes_on_is_not_forgotten() -> None:
    story = Story()
    story.start("a")
    story.reply("a", "done")
    base = ForkPoint(conversation="a", length=story.run("a").length)
    event = Requested(
        id="b",
        request=RunRequest(agent="boss", task="and?"),
        conversation="a",
        resumes="a",
        base=base,
    )
    assert story.post("", event) == ""
    assert "still open" in story.post("", Forgotten(root="a"))
    story.reply("b", "done")
    assert story.post("", Forgotten(root="a")) == ""
    assert story.leaks() == {}


def test_a_run_that_ends_before_it_is_taken_up_again_has_no_defect() -> None:
    """What is on record of an ended run is the fold of its log, and says nothing of a tree that was
    set aside."""
    story = two()
    story.tree("a").runs["a"] = replace(story.run("a"), defect="KeyError")
    story.cancel("a")
    assert story.row("a").run.state == story.state("a") and story.rows["a"].defect == ""
