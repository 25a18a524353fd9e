"""Terminal is terminal, for every event there is; and an event that is refused changes nothing."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from retinue.core import events
from retinue.core.changes import Changes
from retinue.core.events import (
    Aborted,
    Acked,
    ActionsReturned,
    Admitted,
    Afforded,
    AgentRegistered,
    Answered,
    AnyEvent,
    Asked,
    Bounced,
    Broken,
    CancelAsked,
    ChildEnded,
    Cleared,
    Closed,
    Decided,
    Dropped,
    Forgotten,
    Granted,
    InterruptedCall,
    LimitChanged,
    MailReceived,
    Merged,
    ModelFailed,
    ModelRegistered,
    Opened,
    PermissionsRestricted,
    Prolonged,
    Recovered,
    Replied,
    Requested,
    Requeued,
    ResultsFormatted,
    RunCreated,
    Sent,
    StepTaken,
    Submitted,
    TextReturned,
    Woke,
)
from retinue.core.merges import BranchMerge
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.core.spec import Actions, ForkPoint, RunRequest, SendMessage
from retinue.core.values import (
    Definition,
    Limits,
    Mail,
    ModelInfo,
    Origin,
    PermissionGrant,
    Permissions,
    Usage,
)
from tests.core.driver import Story, call, hand

ADDRESS: dict[str, Any] = {"turn": 1, "index": 0, "call_id": "c1"}
RUN_EVENTS: list[AnyEvent] = [
    RunCreated(),
    Aborted(attempt=1),
    Admitted(),
    Afforded(),
    Replied(
        attempt=1,
        reply=ModelReply(
            message=AssistantMessage(text="x", calls=(call(),)),
            usage=Usage(input=3),
            stop="calls",
            model="m2",
        ),
        spilled=("ab", 3),
    ),
    ModelFailed(attempt=1, kind="boom", message="no", retry=True, after_ms=5),
    TextReturned(name="look", text="x", error=True, spilled=("ab", 3), **ADDRESS),
    ActionsReturned(
        name="hire",
        actions=Actions(
            spawns=(hand(),),
            sends=(SendMessage(to="r", text="x", steer=True),),
            cancels=("r",),
            refusals={"depth": "no"},
        ),
        **ADDRESS,
    ),
    StepTaken(turn=1, index=0, call_id="c1", name="look", step="s", question="?", parks=True),
    Submitted(name="submit", text="x", data={"a": [1, 2.5, None, "é"]}, **ADDRESS),
    Asked(name="ask", question="?", **ADDRESS),
    Answered(text="yes", **ADDRESS),
    Decided(
        question="q", turn=1, index=0, call=call(), allow=True, by="me", reason="fine", always=True
    ),
    Granted(grant=PermissionGrant(rule="allow: look")),
    ResultsFormatted(turn=1, calls=((0, "c1", "hire", "words"),), error=True),
    Merged(
        turn=1,
        indices=(0,),
        merges=(BranchMerge(run="c", label="c", state="conflict", conflicts=("a.py",)),),
    ),
    ChildEnded(child="nobody"),
    MailReceived(mail=Mail(seq=0, text="x", sender="s", steer=True)),
    CancelAsked(by="me", reason="enough"),
    PermissionsRestricted(permissions=Permissions(tools=("a",), deny=("b",), depth=1)),
    Prolonged(deadline=1, until=2),
    Woke(),
    Recovered(epoch=2, alone=True, calls=(InterruptedCall(index=0, call=call(), restart="pure"),)),
    Cleared(),
]
OTHER_EVENTS: list[AnyEvent] = [
    Opened(epoch=2, limits=Limits(salt="s")),
    Closed(),
    AgentRegistered(
        definition=Definition(name="boss", tools=("look",), agents=("boss",), model="m")
    ),
    ModelRegistered(model=ModelInfo(name="m2", price_in=3)),
    Requested(
        id="x",
        request=RunRequest(agent="boss", task="t", origin=Origin(channel="c")),
        base=ForkPoint(conversation="c", length=3, start=1),
        conversation="c",
        resumes="r",
    ),
    Forgotten(root="nobody"),
    Broken(error="a defect"),
    LimitChanged(add=(1, 2, 3, 4), more_ms=5, then="ask", question="q", by="me", reason="more"),
    Sent(key="k"),
    Acked(key="k"),
    Bounced(key="k", error="e"),
    Requeued(key="k"),
    Dropped(key="k"),
]
EVERY_EVENT = [*OTHER_EVENTS, *RUN_EVENTS]


def name_of(event: AnyEvent) -> str:
    return type(event).__name__


def test_these_are_all_the_events_there_are() -> None:
    assert {type(e) for e in RUN_EVENTS} == set(get_args(events.RunEvent))
    assert {type(e) for e in EVERY_EVENT} == set(get_args(events.AnyEvent))


@pytest.mark.parametrize("event", RUN_EVENTS, ids=name_of)
def test_an_ended_run_takes_nothing(event: AnyEvent) -> None:
    story = Story()
    story.start()
    story.reply("root", "done")
    before = story.run("root"), len(story.effects), len(story.messages("root"))
    assert "not live" in story.post("root", event)
    assert (story.run("root"), len(story.effects), len(story.messages("root"))) == before
    assert story.leaks() == {}


@pytest.mark.parametrize("event", RUN_EVENTS, ids=name_of)
def test_a_run_that_never_was_takes_nothing(event: AnyEvent) -> None:
    story = Story()
    assert "not live" in story.post("ghost", event)
    assert story.leaks() == {}


def in_every_state() -> list[tuple[str, Story]]:
    from tests.core.test_endings import STATES, in_state

    return [(name, in_state(name)) for name in STATES]


@pytest.mark.parametrize("event", RUN_EVENTS, ids=name_of)
def test_a_state_takes_an_event_or_refuses_it_whole(event: AnyEvent) -> None:
    """Nothing but a refusal comes out of the machine, and what is refused leaves no trace but its
    row in the log."""
    for _, story in in_every_state():
        before = (
            story.run("root"),
            len(story.effects),
            dict(story.said["root"]),
            story.leaks(),
            dict(story.mail),
        )
        stale = story.post("root", event)
        after = (
            story.run("root"),
            len(story.effects),
            dict(story.said["root"]),
            story.leaks(),
            dict(story.mail),
        )
        assert stale == "" or before == after


@pytest.mark.parametrize("event", RUN_EVENTS, ids=name_of)
def test_whatever_was_taken_a_cancel_still_cleans_up(event: AnyEvent) -> None:
    for name, story in in_every_state():
        if name == "Queued" and isinstance(event, RunCreated):
            continue  # shown in test_lanes: told once, by the step that made the run
        story.post("root", event)
        for id in ("root", "first"):
            story.cancel(id)
        assert story.leaks() == {}, name
        assert story.unbalanced() == [], name


def test_a_stopping_run_takes_its_children_and_no_work() -> None:
    """Its child's cancel is withheld, as if the child lived in another step."""
    for event in RUN_EVENTS:
        story = Story()
        story.start()
        (child,) = story.spawning("root", hand())
        stop_without_telling(story)
        assert story.tree().runs["root"].state != story.run("root").state
        stale = story.post("root", event)
        takes = (
            MailReceived,
            CancelAsked,
            PermissionsRestricted,
            Granted,
            Prolonged,
            Woke,
            Recovered,
            Cleared,
        )
        assert (stale == "") == isinstance(event, takes), event
        story.cancel(child)
        assert story.is_("root") == "Ended"
        assert story.leaks() == {}


def stop_without_telling(story: Story) -> None:
    """The root's own step of a cancel, without the news that it causes."""
    from retinue.core.run import step
    from retinue.core.step_context import StepContext

    tree = story.tree()
    tree.runs["root"] = step(
        tree.runs["root"], CancelAsked(), StepContext(tree, tree.specs["root"], story.now)
    )
    tree.tells.clear()
    tree.hand_over(Changes())


@pytest.mark.parametrize("event", OTHER_EVENTS, ids=name_of)
def test_an_event_of_the_store_is_taken_or_refused_whole(event: AnyEvent) -> None:
    story = Story()
    story.start()
    before = story.run("root")
    story.post("", event)
    assert story.run("root") == before
    story.cancel("root")
    story.cancel("x")
    assert story.leaks() == {}


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ({"agent": "ghost"}, "refused (agent)"),
        ({"agent": "boss", "model": "ghost"}, "refused (model)"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(order: dict[str, Any], why: str) -> None:
    story = Story()
    assert why in story.post("", Requested(id="root", request=RunRequest(task="x", **order)))
    assert story.leaks() == {}


def test_an_id_and_a_conversation_belong_to_one_open_run() -> None:
    story = Story()
    story.start()
    order = RunRequest(agent="boss", task="x")
    assert "refused (id)" in story.post("", Requested(id="root", request=order))
    assert "refused (conversation)" in story.post(
        "", Requested(id="two", request=order, conversation="root")
    )
    story.reply("root", "done")
    base = ForkPoint(conversation="root", length=2)
    assert (
        story.post(
            "", Requested(id="two", request=order, conversation="root", base=base, resumes="root")
        )
        == ""
    )
    assert story.run("two").length == 3
