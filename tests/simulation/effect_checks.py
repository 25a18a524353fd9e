"""What must hold of an effect before it is performed."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from retinue.core.effects import (
    AskSlot,
    CallModel,
    CallTool,
    Compose,
    Deliver,
    Effect,
    FreeSlot,
    Transmit,
)
from retinue.core.messages import Assistant, Result
from retinue.core.state import (
    Calls,
    Ended,
    Run,
    Stopping,
)
from tests.simulation import provenance, script
from tests.simulation.violation import broken, must

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


MARK = re.compile(r"<[^<>]*>")


def before_effect(sim: Simulation, effect: Effect) -> None:
    """I6, I7: what is performed was asked for by a committed step of a run that is still at it."""
    books = sim.books
    if isinstance(effect, (Deliver, Transmit, AskSlot, FreeSlot)):
        return
    assert isinstance(effect, (CallModel, CallTool, Compose))
    run = sim.run_of(effect.run)
    if (
        isinstance(effect, CallTool)
        and effect.woken
        and getattr(run and run.state, "calls", None) is None
    ):
        # an answer of an earlier life closed the call in the same batch; looking once more does no
        # harm
        return
    if not (run is not None and not isinstance(run.state, (Ended, Stopping))):
        broken(f"I7 {effect} after the end")
    assert run is not None
    if isinstance(effect, CallModel):
        if not (effect.attempt > books.attempts[effect.run]):
            broken(f"I6 attempt {effect.attempt} of {effect.run} again")
        books.attempts[effect.run] = effect.attempt
        _history(sim, run, effect)
    if isinstance(effect, CallTool):
        _permitted(sim, effect)
        said = books.messages[books.specs[effect.run].conversation][_calls_of(run).message]
        assert isinstance(said, Assistant)
        alone = len(said.calls) == 1
        must(
            alone or effect.call.name not in script.SUBMITS,
            "I8 a submission was taken beside other calls",
        )


def _calls_of(run: Run) -> Calls:
    calls = getattr(run.state, "calls", None)
    if not (calls is not None):
        broken(f"I7 a tool of {run.id} is started while it is {type(run.state).__name__}")
    return calls  # type: ignore[no-any-return]


def _permitted(sim: Simulation, effect: CallTool) -> None:
    """I9, by our own reading: nobody from the run up to its root withholds the tool. (What was
    narrowed a moment ago may still be under way.)"""
    id, name = effect.run, effect.call.name
    tree = sim.trees.of(id)
    assert tree is not None
    if name not in tree.shared.definitions[tree.specs[id].order.agent].tools:
        return
    said_yes = (id, effect.turn, effect.index) in sim.said_yes or tree.root in sim.said_yes
    if name == "write" and sim.rules.mode != "bypassPermissions" and not said_yes:
        broken(f"I9 {name} was run by {id} although nobody has permitted it")
    while id in tree.specs:
        held = sim.books.specs[id].capabilities
        inside = held.tools is None or name in held.tools
        if not (inside and name not in held.deny):
            broken(f"I9 {name} was run although {id} withholds it")
        ended = tree.specs[id].capabilities
        now = tree.runs[id].access if id in tree.runs else ended
        fresh = "narrow" in sim.faults or effect.again
        if not (now is None or name not in now.deny or fresh):
            broken(f"I9 {name} was run although {id} was narrowed")
        id = tree.specs[id].parent


def _history(sim: Simulation, run: Run, effect: CallModel) -> None:
    """I8, I3: calls are answered once each; every child that was counted stands in the history
    once."""
    books, spec = sim.books, sim.books.specs[run.id]
    mine = books.messages.get(spec.conversation, {})
    first = spec.base.length if spec.base else 0
    if sorted(mine) != list(range(first, run.length)):
        broken(f"I8 messages of {run.id} have a gap")
    last = mine.get(run.length - 1)
    if isinstance(last, Assistant):
        broken(f"I8 {run.id} asks the model right after its own reply")
    open_calls: dict[str, int] = {}
    marks: Counter[str] = Counter()
    mails: list[int] = []
    for n in range(first, run.length):
        message = mine[n]
        if isinstance(message, Assistant):
            open_calls = {c.id: 0 for c in message.calls}
        elif isinstance(message, Result):
            if message.call_id not in open_calls:
                broken(f"I8 a result without a call in {run.id}: {message.call_id}")
            open_calls[message.call_id] += 1
            if open_calls[message.call_id] != 1:
                broken(f"I8 two results for {message.call_id} in {run.id}")
            marks.update(set(MARK.findall(message.text)))
        else:
            found = MARK.findall(message.text)
            marks.update(set(found))
            mails += [int(m[6:-1]) for m in found if m.startswith("<mail ")]
    if mails != sorted(set(mails)):
        broken(f"I3 mail of {run.id} came twice or out of order: {mails}")
    if not (max(marks.values(), default=0) <= 1):
        broken(f"I3 a result stands twice in the history of {run.id}: {marks}")
    key = (run.id, run.turn, effect.purpose)
    if effect.purpose not in ("turn", "grace") or key in books.checked:
        return
    books.checked.add(key)
    if run.start > first:
        return
    for child in books.told.get(run.id, ()):
        text = books.ended[child].state.ending.text  # type: ignore[union-attr]
        unread = any(m.sender == child for m in sim.tree_of(run.id).mail.get(run.id, ()))
        order = books.specs[child].order
        times = 1 if order.news or order.join != "none" else 0
        if text == f"<{books.paths[child]}>" and not unread and marks[text] != times:
            broken(f"I3 the result of {child} is not in the history of {run.id}, or should not be")
    box = sim.tree_of(run.id).mail.get(run.id, ())
    found = provenance.untold(books, run.id, mine.values(), {m.sender for m in box})
    must(not found, found)
