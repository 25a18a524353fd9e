"""What must hold of an effect before it is performed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.effects import (
    CallModel,
    CallTool,
    Effect,
    FormatResults,
    Merge,
    ScheduleDelivery,
    SendDelivery,
)
from retinue.core.messages import AssistantMessage
from retinue.core.state import (
    Ended,
    OpenCalls,
    Run,
    Stopping,
)
from tests.simulation import functions, history_checks, script
from tests.simulation.violation import broken

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


def before_effect(sim: Simulation, effect: Effect) -> None:
    """I6, I7: what is performed was asked for by a committed step of a run that is still at it."""
    books = sim.books
    if isinstance(effect, ScheduleDelivery | SendDelivery):
        return
    assert isinstance(effect, CallModel | CallTool | FormatResults | Merge)
    run = sim.run_of(effect.run)
    if (
        isinstance(effect, CallTool)
        and effect.woken
        and getattr(run and run.state, "calls", None) is None
    ):
        # an answer of an earlier life closed the call in the same batch; looking once more does no
        # harm
        return
    if run is None or isinstance(run.state, Ended | Stopping):
        broken(f"I7 {effect} after the end")
    if isinstance(effect, CallModel):
        if effect.attempt <= books.attempts[effect.run]:
            broken(f"I6 attempt {effect.attempt} of {effect.run} again")
        books.attempts[effect.run] = effect.attempt
        _priced(sim, effect)
        history_checks.check(sim, run, effect)
    if isinstance(effect, CallTool):
        _permitted(sim, effect)
        functions.before_run(sim, effect)
        message = books.messages[books.specs[effect.run].conversation][_calls_of(run).message]
        assert isinstance(message, AssistantMessage)
        if len(message.calls) > 1 and effect.call.name in script.SUBMITS:
            broken("I8 a submission was taken beside other calls")


def _calls_of(run: Run) -> OpenCalls:
    calls = getattr(run.state, "calls", None)
    if calls is None:
        broken(f"I7 a tool of {run.id} is started while it is {type(run.state).__name__}")
    return calls  # type: ignore[no-any-return]


def _priced(sim: Simulation, effect: CallModel) -> None:
    """I10: a limit in dollars binds every call below it. (What was begun before the price was lost
    is paid at the price it had.)"""
    tree, id = sim.tree_of(effect.run), effect.run
    while id and not tree.shared.models["sim"].priced:
        if sim.books.accounts[id].limit[1] is not None:
            broken(f"I10 {effect.run} calls a model without a price below the limit of {id}")
        id = sim.books.specs[id].parent


def _permitted(sim: Simulation, effect: CallTool) -> None:
    """I9, by our own reading: nobody from the run up to its root withholds the tool. (What was
    narrowed a moment ago may still be under way.)"""
    id, name = effect.run, effect.call.name
    tree = sim.trees.of(id)
    assert tree is not None
    if name not in tree.shared.definitions[tree.specs[id].request.agent].tools:
        return
    said_yes = (id, effect.turn, effect.index) in sim.said_yes or tree.root in sim.said_yes
    if name == "write" and sim.rules.mode != "bypassPermissions" and not said_yes:
        broken(f"I9 {name} was run by {id} although nobody has permitted it")
    while id in tree.specs:
        permissions = sim.books.specs[id].permissions
        inside = permissions.tools is None or name in permissions.tools
        if not (inside and name not in permissions.deny):
            broken(f"I9 {name} was run although {id} withholds it")
        ended = tree.specs[id].permissions
        now = tree.runs[id].permissions if id in tree.runs else ended
        fresh = "narrow" in sim.faults or effect.again
        if not (now is None or name not in now.deny or fresh):
            broken(f"I9 {name} was run although {id} was narrowed")
        id = tree.specs[id].parent
