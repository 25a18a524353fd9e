"""What must hold between the machine and the world before and after each commit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from retinue.core.changes import Changes
from retinue.core.effects import (
    Abort,
    CallModel,
    CallTool,
    Compose,
)
from retinue.core.events import (
    Broken,
)
from retinue.core.state import (
    Queued,
    Run,
    Stopping,
    Thinking,
    is_seated,
)
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
        sent = [e for e in sim.trees._own.entries if isinstance(e.event, Broken)]
        must(len(sent) >= len(failed), f"I31 not all of {failed} are on record")


def before_commit(sim: Simulation, changes: Changes) -> None:
    """I31: of a tree that was set aside only its root's row is written, which says why."""
    for id, run in changes.runs.items():
        spec = sim.books.specs.get(id)
        if spec is not None and spec.root in sim.aside:
            must(run.defect and id == spec.root, f"I31 {id} was changed by a step that failed")
    must(
        not any(spec.root in sim.aside for spec in changes.specs),
        "I31 a failed step has started somebody",
    )


def after_commit(sim: Simulation) -> None:
    """I15: what a run waits for in the world is really under way."""
    from tests.simulation.pure import now

    models = {(e.run, e.attempt) for e in sim.flying if isinstance(e, CallModel)}
    tools = {(e.run, e.turn, e.index) for e in sim.flying if isinstance(e, CallTool)}
    composing = {e.run for e in sim.flying if isinstance(e, Compose)}
    _shared_lanes(sim)
    for root, has_row in sim.aside.items():
        must(
            not has_row or now(sim.store.row(root)).run.defect,
            f"I31 the row of {root} does not say why it was set aside",
        )
    stopped = {(e.run, e.attempt) for e in sim.flying if isinstance(e, Abort)}
    for spec, run in sim.trees.live():
        id, state = spec.id, run.state
        if any((id, lost.attempt) not in stopped for lost in run.broken_off):
            broken(f"I15 nobody says what a stopped call of {id} has cost")
        if (
            isinstance(state, Thinking)
            and state.retry_at is None
            and (id, state.attempt) not in models
        ):
            broken(f"I15 nobody asks the model for {id}")
        calls = getattr(state, "calls", None)
        for index in range(calls.count if calls is not None else 0):
            if (calls.tools | calls.woken) >> index & 1 and (id, run.turn, index) not in tools:
                broken(f"I15 nobody runs call {index} of {id}")
        fan_in = None if isinstance(state, Stopping) else sim.tree_of(id).fans.get(id)
        if (
            fan_in is not None
            and any(f.composing for f in fan_in.fans.values())
            and id not in composing
        ):
            broken(f"I15 nobody composes the results of {id}")


def _shared_lanes(sim: Simulation) -> None:
    """I11, I15: a slot is held by who is at work, or is about to hear of it; who waits is in the
    queue."""
    shared, told = sim.trees.lanes, {id for id, _ in sim.admissions}
    held: Counter[str] = Counter()
    for spec, run in sim.trees.live():
        state = run.state
        if not spec.order.lanes and not isinstance(state, Queued):
            continue
        n = (
            len(spec.order.lanes)
            if is_seated(run)
            else state.lane
            if isinstance(state, Queued)
            else 0
        )
        held.update(lane.name for lane in spec.order.lanes[:n] if lane.is_shared)
        if isinstance(state, Queued) and spec.order.lanes[state.lane].is_shared:
            held[spec.order.lanes[state.lane].name] += spec.id in told
            if spec.id not in told and not shared.lanes.waits(
                spec.id, spec.order.lanes[state.lane]
            ):
                broken(f"I15 {spec.id} waits for a lane that does not know of it")
    for name, lane in shared.lanes.by_name.items():
        must(lane.held == held[name], f"I11 lane {name} counts {lane.held}, {held[name]} hold it")
        # Whoever is taken up again after a defect goes on at once, though its slot was given to
        # somebody else.
        must(lane.held <= lane.size or sim.had_defect, f"I11 lane {name} holds more than its size")
        must(
            lane.held >= lane.size or not lane.waiting,
            f"I15 lane {name} has room and somebody waits",
        )
    must(
        set(held) - {n for n, k in held.items() if not k} <= set(shared.lanes.by_name),
        "I11 a lane is not known",
    )
