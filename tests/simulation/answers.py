"""What the world answers to an effect: models, tools, channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.effects import (
    Abort,
    CallModel,
    CallTool,
    Compose,
    Deliver,
    Effect,
    Transmit,
)
from retinue.core.events import (
    Aborted,
    Acked,
    AnyEvent,
    Asked,
    Bounced,
    Composed,
    ModelFailed,
    Ordered,
    Replied,
    Sent,
    Submitted,
    ToolReturned,
)
from tests.simulation import script

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
        case Compose():
            texts = [
                (j.index, j.call_id, j.name, " ".join(o.ending.text for o in j.outcomes))
                for j in effect.calls
            ]
            return effect.run, Composed(turn=effect.turn, calls=tuple(texts))
        case Abort():
            reply = sim.books.replies.get((effect.run, effect.attempt))
            is_told = reply is not None and sim.random.random() < 0.5
            is_sent = (effect.run, effect.attempt) in sim.books.left
            usage = reply.usage if reply is not None and is_told and is_sent else None
            return effect.run, Aborted(attempt=effect.attempt, sent=is_sent, usage=usage)
        case Deliver():
            return "", Sent(key=effect.key, text="in words")
        case Transmit():
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
    if call.name == "hand_out":
        orders = script.orders(sim.seed, sim.books.paths[effect.run], turn, index)
        if effect.run in script.ROOTS:
            orders = replace(
                orders, sends=script.letters(sim.seed, effect.run, turn, index, script.ROOTS)
            )
        return Ordered(**where, orders=orders)
    if call.name == "watch" and not effect.woken:
        tree = sim.trees.of(effect.run)
        children = tuple(tree.children.get(effect.run, ())) if tree is not None else ()
        return Ordered(
            **where,
            orders=script.watch(sim.seed, sim.books.paths[effect.run], turn, index, children),
        )
    if call.name == "submit_result":
        return Submitted(**where, text="" if turn == 3 else f"<{sim.books.paths[effect.run]}>")
    if call.name == "ask":
        return Asked(**where, question="?")
    return ToolReturned(**where, text=f"{call.name} done", error=call.name == "nothing")
