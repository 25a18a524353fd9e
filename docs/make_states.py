"""Prints docs/states.md by asking the machine: for each state and each event, is it taken, and where does it lead?"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import get_args

from retinue.core import machine
from retinue.core.effects import Purpose
from retinue.core.events import (
    Admitted,
    Answered,
    Asked,
    CancelAsked,
    ChildEnded,
    Composed,
    Decided,
    Described,
    Enlisted,
    Granted,
    ModelFailed,
    Narrowed,
    Ordered,
    Posted,
    Recovered,
    Registered,
    Replied,
    Requested,
    RunEvent,
    Submitted,
    ToolReturned,
    Woke,
)
from retinue.core.orders import Lane, Order, Orders
from retinue.core.permits import question_id
from retinue.core.roster import Roster
from retinue.core.state import Ended
from retinue.core.values import Assistant, Call, Capabilities, Definition, Grant, Mail, ModelInfo, Reply, Rules, Usage

RUN = "run"
TEXT = Reply(message=Assistant(text="done"), usage=Usage(input=5, output=5))
WHERE = {"turn": 1, "index": 0, "call_id": "c0", "name": "t"}
CALL = Call(id="c0", name="t")
ASKED = question_id(RUN, 1, 0, CALL)
SPAWN = Orders(spawns=(Order(agent="a", task="child", max_turns=9),))
EVENTS: tuple[RunEvent, ...] = (
    Enlisted(),
    Admitted(),
    Replied(attempt=1, reply=TEXT),
    ModelFailed(attempt=1, kind="network", message="lost", retry=True),
    ToolReturned(**WHERE, text="result"),
    Ordered(**WHERE, orders=SPAWN),
    Submitted(**WHERE, text="result"),
    Asked(**WHERE, question="?"),
    Answered(turn=1, index=0, call_id="c0", text="yes"),
    Decided(question=ASKED, turn=1, index=0, call=CALL, allow=True),
    Granted(grant=Grant(rule="allow: t")),
    Composed(turn=1, calls=((0, "c0", "t", "all"),)),
    ChildEnded(child="child"),
    Posted(mail=Mail(seq=0, text="hello")),
    CancelAsked(),
    Narrowed(access=Capabilities(deny=("t",))),
    Woke(),
    Recovered(epoch=2, turn=1, attempt=1),
)


def story(*events: RunEvent, **order: object) -> Roster:
    """A roster with one run, after these events."""
    roster = Roster(Rules())
    definition = Definition(name="a", model="m", tools=("t",), reach=("t",), crew=("a",))
    machine.apply(roster, "", 1, Registered(definition=definition))
    machine.apply(roster, "", 1, Described(model=ModelInfo(name="m")))
    if order.get("lanes"):
        machine.apply(roster, "", 1, Requested(id="first", order=Order(agent="a", task="t", **order)))  # type: ignore[arg-type]
    machine.apply(roster, "", 1, Requested(id=RUN, order=Order(agent="a", task="t", **order)))  # type: ignore[arg-type]
    for event in events:
        machine.apply(roster, RUN, 1, event)
    return roster


def calling() -> Replied:
    said = Assistant(calls=(CALL,))
    return Replied(attempt=1, reply=Reply(message=said, usage=Usage(input=5, output=5), stop="calls"))


def stories() -> dict[str, Roster]:
    spawned = Ordered(**WHERE, orders=SPAWN)
    return {
        "Queued": story(lanes=(Lane(name="one", size=1),)),
        "Thinking": story(),
        "Working": story(calling()),
        "Waiting (for children)": story(calling(), spawned),
        "Waiting (for mail)": story(Replied(attempt=1, reply=TEXT), host=True),
        "Asking": story(calling(), Asked(**WHERE, question="?")),
        "Asking (for a permission)": story(calling(), questions="ask", access=Capabilities(rules=("ask: t",))),
        "Ended": story(CancelAsked()),
    }


def lead(roster: Roster, event: RunEvent) -> str:
    """Where the event leads, or "-" when it is refused."""
    roster = copy.deepcopy(roster)
    roster.take_changes()
    if isinstance(event, ChildEnded) and roster.children.get(RUN):
        (child,) = roster.children[RUN]
        machine.apply(roster, child, 2, Replied(attempt=1, reply=TEXT))
        return _where(roster)
    machine.apply(roster, RUN, 2, event)
    entry = next(e for e in roster.changes.entries if e.event is event)
    return "-" if entry.stale else _where(roster)


def _where(roster: Roster) -> str:
    run = roster.runs.get(RUN) or roster.changes.runs.get(RUN)
    assert run is not None
    state = run.state
    return f"Ended: {state.ending.state}" if isinstance(state, Ended) else type(state).__name__


def page() -> str:
    lines = [
        "# States",
        "",
        "Made by `python docs/make_states.py`, which asks the machine; a test fails when this page is old.",
        "A dash means that the event is refused (`InvalidTransition`), recorded as stale, and changes nothing.",
        "`Stopping` is not in the table: a run is in it only while its children end, within one transaction.",
        "",
        "| event | " + " | ".join(stories()) + " |",
        "|---|" + "---|" * len(stories()),
    ]
    told = stories()
    for event in EVENTS:
        row = [lead(roster, event) for roster in told.values()]
        lines.append(f"| {type(event).__name__} | " + " | ".join(row) + " |")
    lines += ["", f"A model is called for one of these purposes: {', '.join(get_args(Purpose))}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("states.md").write_text(page())
    sys.stdout.write(page())
