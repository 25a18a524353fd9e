"""What the world answers to an effect: models, tools, channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.effects import (
    AbortRun,
    CallModel,
    CallTool,
    Effect,
    FormatResults,
    Merge,
    ScheduleDelivery,
    SendDelivery,
)
from retinue.core.events import (
    Aborted,
    Acked,
    ActionsReturned,
    AnyEvent,
    Asked,
    Bounced,
    Merged,
    ModelFailed,
    Replied,
    ResultsFormatted,
    Sent,
    Submitted,
    TextReturned,
)
from retinue.core.ids import digest
from retinue.core.merges import BranchMerge
from tests.simulation import functions, script

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


def answer(sim: Simulation, effect: Effect) -> tuple[str, AnyEvent | None]:
    """What the world answers to an effect. Pure, so that a repeated effect is answered
    alike."""
    match effect:
        case CallModel():
            return effect.run, _model(sim, effect)
        case CallTool():
            return effect.run, _tool(sim, effect)
        case FormatResults():
            texts = [
                (j.index, j.call_id, j.name, " ".join(o.ending.text for o in j.outcomes))
                for j in effect.calls
            ]
            return effect.run, ResultsFormatted(turn=effect.turn, calls=tuple(texts))
        case Merge():
            merges = [
                BranchMerge(run=c.run, label=c.label, state="merged" if c.is_wanted else "kept")
                for c in effect.copies
            ]
            return effect.run, Merged(
                turn=effect.turn, indices=effect.indices, merges=tuple(merges)
            )
        case AbortRun():
            reply = sim.books.replies.get((effect.run, effect.attempt))
            is_told = reply is not None and sim.random.random() < 0.5
            is_sent = (effect.run, effect.attempt) in sim.books.left
            usage = reply.usage if reply is not None and is_told and is_sent else None
            return effect.run, Aborted(attempt=effect.attempt, sent=is_sent, usage=usage)
        case ScheduleDelivery():
            return "", Sent(key=effect.key, text="in words")
        case SendDelivery():
            if "bounce" in sim.faults and sim.random.random() < 0.3:
                return "", Bounced(key=effect.key, error="busy")
            sim.books.received[effect.key] += 1
            return "", Acked(key=effect.key)
        case _:
            return "", None


def _model(sim: Simulation, effect: CallModel) -> AnyEvent:
    sim.books.leave(sim, effect)
    fails = sim.books.failure(sim, effect)
    if fails is not None:
        kind, retry, after = fails
        return ModelFailed(
            attempt=effect.attempt, kind=kind, message=kind, retry=retry, after_ms=after
        )
    return Replied(attempt=effect.attempt, reply=sim.books.replies[(effect.run, effect.attempt)])


def _tool(sim: Simulation, effect: CallTool) -> AnyEvent:
    turn, index, call = effect.turn, effect.index, effect.call
    where = {"turn": turn, "index": index, "call_id": call.id, "name": call.name}
    if call.name in script.STEP_TOOLS:
        return functions.begin(sim, effect)
    if call.name == "hand_out":
        orders = script.orders(sim.seed, sim.books.paths[effect.run], turn, index)
        if effect.run in script.ROOTS:
            orders = replace(
                orders, sends=script.letters(sim.seed, effect.run, turn, index, script.ROOTS)
            )
        # Half of the trees work where copies can be made.
        snapshot = "c0ffee" if digest(sim.seed, effect.run)[0] in "01234567" else ""
        return ActionsReturned(**where, actions=orders, snapshot=snapshot)
    if call.name == "watch" and not effect.woken:
        tree = sim.trees.of(effect.run)
        children = tuple(tree.children.get(effect.run, ())) if tree is not None else ()
        return ActionsReturned(
            **where,
            actions=script.watch(sim.seed, sim.books.paths[effect.run], turn, index, children),
        )
    if call.name == "submit_result":
        return Submitted(**where, text="" if turn == 3 else f"<{sim.books.paths[effect.run]}>")
    if call.name == "ask":
        return Asked(**where, question="?")
    return TextReturned(**where, text=f"{call.name} done", error=call.name == "nothing")
