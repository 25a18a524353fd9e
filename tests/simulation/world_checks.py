"""What must hold between the machine and the world before and after each commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.changes import Changes
from retinue.core.effects import (
    AbortRun,
    CallModel,
    CallTool,
    FormatResults,
)
from retinue.core.events import (
    Broken,
)
from retinue.core.lanes import Lanes
from retinue.core.spec import Lane
from retinue.core.state import (
    Queued,
    Run,
    Stopping,
    Thinking,
    calls_of,
    holds_slots,
)
from retinue.core.tree import Tree
from retinue.core.writer_lines import TURN
from tests.simulation import functions
from tests.simulation.memory import now
from tests.simulation.violation import broken, must

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


def set_aside(sim: Simulation, before: dict[str, dict[str, Run]], failed: list[str]) -> None:
    """I31: a tree with a defect of ours is not held any more, and nobody else has changed."""
    for root, runs in before.items():
        tree = sim.trees.by_root.get(root)
        if root in failed:
            must(
                tree is None and not any(id in sim.trees.index.runs for id in runs),
                f"I31 {root} is still held",
            )
        else:
            must(
                tree is not None and tree.runs == runs,
                f"I31 {root} was changed by a defect in {failed}",
            )
    if len(failed) > 1:
        events = [e for e in sim.trees._own.entries if isinstance(e.event, Broken)]
        must(len(events) >= len(failed), f"I31 not all of {failed} are on record")


def before_commit(sim: Simulation, changes: Changes) -> None:
    """I31: of a tree that was set aside only its root's row is written, which says why."""
    if not sim.aside:
        return
    for id, run in changes.runs.items():
        spec = sim.books.specs.get(id)
        if spec is not None and spec.root in sim.aside and not (run.defect and id == spec.root):
            broken(f"I31 {id} was changed by a step that failed")
    if any(spec.root in sim.aside for spec in changes.specs):
        broken("I31 a failed step has started somebody")


def after_commit(sim: Simulation, changes: Changes) -> None:
    """I15: what a run waits for in the world is really under way. Where nothing was written,
    nothing has changed."""
    if not changes.entries:
        return
    _shared_lanes(sim)
    for root, has_row in sim.aside.items():
        if has_row and not now(sim.store.row(root)).run.defect:
            broken(f"I31 the row of {root} does not say why it was set aside")
    functions.told(sim)
    flying = _flying(sim)
    for root in {entry.tree for entry in changes.entries}:
        tree = sim.trees.by_root.get(root)
        for run in tree.runs.values() if tree is not None else ():
            _under_way(tree, run, flying)


def _flying(sim: Simulation) -> set[object]:
    flying: set[object] = set(sim.functions)
    for effect in sim.flying:
        if isinstance(effect, CallModel | AbortRun):
            flying.add((type(effect), effect.run, effect.attempt))
        elif isinstance(effect, CallTool):
            flying.add((effect.run, effect.turn, effect.index))
        elif isinstance(effect, FormatResults):
            flying.add(effect.run)
    return flying


def _under_way(tree: Tree, run: Run, flying: set[object]) -> None:
    id, state = run.id, run.state
    for call in run.broken_off:
        if (AbortRun, id, call.attempt) not in flying:
            broken(f"I15 nobody says what a stopped call of {id} has cost")
    if isinstance(state, Thinking):
        if state.retry_at is None and (CallModel, id, state.attempt) not in flying:
            broken(f"I15 nobody asks the model for {id}")
        return
    calls = calls_of(run)
    running = calls.tools | calls.woken | calls.parked if calls is not None else 0
    for index in range(running.bit_length()):
        if running >> index & 1 and (id, run.turn, index) not in flying:
            broken(f"I15 nobody runs call {index} of {id}")
    fan_in = None if isinstance(state, Stopping) else tree.fans.get(id)
    if fan_in is not None and any(f.composing for f in fan_in.fans.values()) and id not in flying:
        broken(f"I15 nobody composes the results of {id}")


def _shared_lanes(sim: Simulation) -> None:
    """I11, I15: a slot is held by who is at work, or is about to hear of it; who waits is in the
    queue."""
    shared, amounts = sim.trees.lanes.lanes, dict[str, int]()
    texts = {id for id, _ in sim.admissions}
    for tree in sim.trees.by_root.values():
        for id, run in tree.runs.items():
            if lanes := tree.specs[id].request.lanes:
                for name in _held_by(run, lanes, texts, shared):
                    amounts[name] = amounts.get(name, 0) + 1
    for name, lane in shared.by_name.items():
        n = amounts.pop(name, 0)
        if lane.held != n:
            broken(f"I11 lane {name} counts {lane.held}, {n} hold it")
        # Whoever is taken up again after a defect goes on at once, though its slot was given to
        # somebody else.
        if lane.held > lane.size and not sim.had_defect:
            broken(f"I11 lane {name} holds more than its size")
        if lane.held < lane.size and lane.waiting:
            broken(f"I15 lane {name} has room and somebody waits")
    if amounts:
        broken(f"I11 {amounts} are not known")


def _held_by(run: Run, lanes: tuple[Lane, ...], texts: set[str], shared: Lanes) -> list[str]:
    """In which lanes that trees share a run holds a slot."""
    state = run.state
    if holds_slots(run):
        return [lane.name for lane in lanes if lane.is_shared]
    if not isinstance(state, Queued) or state.lane == TURN:
        return []
    names = [lane.name for lane in lanes[: state.lane] if lane.is_shared]
    lane = lanes[state.lane]
    if lane.is_shared and run.id in texts:
        names.append(lane.name)
    elif lane.is_shared and not shared.waits(run.id, lane):
        broken(f"I15 {run.id} waits for a lane that does not know of it")
    return names
