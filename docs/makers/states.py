"""The table of states, made by asking the state machine: for each state and each event, is it
accepted, and which state follows?"""

from __future__ import annotations

import copy
from typing import get_args

from retinue.core.changes import Changes
from retinue.core.effects import AskSlot, FreeSlot, Purpose
from retinue.core.events import (
    Aborted,
    ActionsReturned,
    Admitted,
    Afforded,
    AgentRegistered,
    Answered,
    AnyEvent,
    Asked,
    CancelAsked,
    ChildEnded,
    Cleared,
    Decided,
    Granted,
    MailReceived,
    Merged,
    ModelFailed,
    ModelRegistered,
    PermissionsRestricted,
    Prolonged,
    Recovered,
    Replied,
    Requested,
    ResultsFormatted,
    RunCreated,
    RunEvent,
    Submitted,
    TextReturned,
    Woke,
)
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.permissions import question_id
from retinue.core.spec import Actions, Lane, RunRequest
from retinue.core.state import Ended
from retinue.core.trees import Trees
from retinue.core.values import (
    Budget,
    Definition,
    Limits,
    Mail,
    ModelInfo,
    PermissionGrant,
    Permissions,
    Usage,
)

RUN = "run"
TEXT = ModelReply(message=AssistantMessage(text="done"), usage=Usage(input=5, output=5))
WHERE = {"turn": 1, "index": 0, "call_id": "c0", "name": "t"}
CALL = ToolCall(id="c0", name="t")
ASKED = question_id(RUN, 1, 0, CALL)
SPAWN = Actions(spawns=(RunRequest(agent="a", task="child", max_turns=9),))
EVENTS: tuple[RunEvent, ...] = (
    RunCreated(),
    Admitted(),
    Afforded(),
    Replied(attempt=1, reply=TEXT),
    ModelFailed(attempt=1, kind="network", message="lost", retry=True),
    Aborted(attempt=1),
    TextReturned(**WHERE, text="result"),
    ActionsReturned(**WHERE, actions=SPAWN),
    Submitted(**WHERE, text="result"),
    Asked(**WHERE, question="?"),
    Answered(turn=1, index=0, call_id="c0", text="yes"),
    Decided(question=ASKED, turn=1, index=0, call=CALL, allow=True),
    Granted(grant=PermissionGrant(rule="allow: t")),
    ResultsFormatted(turn=1, calls=((0, "c0", "t", "all"),)),
    Merged(turn=1, indices=(0,), merges=()),
    ChildEnded(child="child"),
    MailReceived(mail=Mail(seq=0, text="hello")),
    CancelAsked(),
    PermissionsRestricted(permissions=Permissions(deny=("t",))),
    Prolonged(deadline=1, until=2),
    Woke(),
    Recovered(epoch=2, turn=1, attempt=1),
    Cleared(),
)


def story(*events: RunEvent, **order: object) -> Trees:
    """One run, or another before it that holds what it needs, after these events."""
    trees = Trees(Limits())
    definition = Definition(
        name="a", model="m", tools=("t",), reachable_tools=("t",), agents=("a",)
    )
    take(trees, "", 1, AgentRegistered(definition=definition))
    take(trees, "", 1, ModelRegistered(model=ModelInfo(name="m")))
    if order.get("lanes"):
        take(trees, "", 1, Requested(id="first", request=RunRequest(agent="a", task="t", **order)))  # type: ignore[arg-type]
    take(trees, "", 1, Requested(id=RUN, request=RunRequest(agent="a", task="t", **order)))  # type: ignore[arg-type]
    for event in events:
        take(trees, RUN, 1, event)
    return trees


def take(trees: Trees, run: str, at: int, event: AnyEvent) -> Changes:
    """One event, and the slots that it asks for."""
    trees.apply(run, at, event)
    changes = trees.take_changes()
    for effect in changes.effects:
        if isinstance(effect, AskSlot | FreeSlot) and (granted := trees.seat(effect)) is not None:
            changes.runs.update(take(trees, granted[0], at, Admitted(ticket=granted[1])).runs)
    return changes


def calling() -> Replied:
    message = AssistantMessage(calls=(CALL,))
    return Replied(
        attempt=1, reply=ModelReply(message=message, usage=Usage(input=5, output=5), stop="calls")
    )


def stories() -> dict[str, Trees]:
    spawned = ActionsReturned(**WHERE, actions=SPAWN)
    return {
        "Queued": story(lanes=(Lane(name="one", size=1),)),
        "Thinking": story(),
        "Short": short(),
        "Short (asks a person)": story(budget=Budget(turns=1, on_limit="ask")),
        "Working": story(calling()),
        "Waiting (for children)": story(calling(), spawned),
        "Waiting (for mail)": story(Replied(attempt=1, reply=TEXT), stay_open=True),
        "Asking": story(calling(), Asked(**WHERE, question="?")),
        "Asking (for a permission)": story(
            calling(), questions="ask", permissions=Permissions(rules=("ask: t",))
        ),
        "Stopping": story(CancelAsked()),
        "Ended": story(Replied(attempt=1, reply=TEXT)),
    }


def short() -> Trees:
    """Two children of one root, of which the first holds all that is left; the second one is looked
    at."""
    trees = story(calling(), budget=Budget(tokens=12_000))
    orders = Actions(spawns=(RunRequest(agent="a", task="one"), RunRequest(agent="a", task="two")))
    take(trees, RUN, 1, ActionsReturned(**WHERE, actions=orders))
    return trees


def lead(trees: Trees, event: RunEvent) -> str:
    """Where the event leads, or "-" when it is refused."""
    trees = copy.deepcopy(trees)
    tree = trees.of(RUN)
    children = list(tree.children.get(RUN, ())) if tree is not None else []
    run = children[-1] if len(children) > 1 else RUN
    is_about_another = isinstance(event, Afforded) and run is not RUN
    if is_about_another or (isinstance(event, ChildEnded) and len(children) == 1):
        return _where(trees, run, take(trees, children[0], 2, Replied(attempt=1, reply=TEXT)))
    changes = take(trees, run, 2, event)
    entry = next(e for e in changes.entries if e.event is event)
    return "-" if entry.stale else _where(trees, run, changes)


def _where(trees: Trees, id: str, changes: Changes) -> str:
    run = trees.run(id) or changes.runs.get(id)
    assert run is not None
    state = run.state
    return f"Ended: {state.ending.state}" if isinstance(state, Ended) else type(state).__name__


def page() -> str:
    lines = [
        "# States",
        "",
        "Which event is accepted in which state, and which state follows. This page is generated "
        "by `make docs`, which asks the state machine. [Events](events.md) lists the fields.",
        "",
        "A dash means that the event is refused (`InvalidTransition`): it is recorded as stale and "
        "changes nothing. A run is `Stopping` until its children have ended and the cost of its "
        "stopped model call is known.",
        "",
        "| event | " + " | ".join(stories()) + " |",
        "|---|" + "---|" * len(stories()),
    ]
    text = stories()
    for event in EVENTS:
        row = [lead(trees, event) for trees in text.values()]
        lines.append(f"| {type(event).__name__} | " + " | ".join(row) + " |")
    lines += [
        "",
        f"A model is called for one of these purposes: {', '.join(get_args(Purpose))}.",
        "",
    ]
    return "\n".join(lines)
