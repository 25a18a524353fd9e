"""Sets aside a tree in which a defect of Retinue showed, as if the process had crashed; all others
continue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from retinue.core.changes import Changes
from retinue.core.effects import Effect, FreeSlot, ScheduleDelivery, SendDelivery
from retinue.core.state import Ended
from retinue.errors import Defect

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine

log = logging.getLogger("retinue.runs")


def set_aside_failed(engine: Engine) -> None:
    """A defect of ours, in the steps or effects of some trees: they stop as if this process were
    dead, and the next one takes them up as they are on record. All others continue."""
    failed, engine.trees.failed = engine.trees.failed, []
    for root, error in failed:
        text = f"{type(error).__name__}: {error}"
        log.critical("internal error: the run %s is set aside: %s", root, text, exc_info=error)
        if not root or root in engine.aside:
            continue
        defect = Defect(
            f"An internal error stopped run {root}: {text}. Recorded work is safe, and "
            "other runs continue. This run continues when the runtime is restarted."
        )
        row = engine.commits.run(root) or engine.on_record.get(root)
        row = None if row is None or isinstance(row.state, Ended) else row
        live = engine.trees.set_aside(root, engine.clock.now(), text, row)
        for id in _members(engine, root, live):
            engine.aside[id] = defect
            engine.on_record.pop(id, None)
            engine.roots.pop(id, None)
            engine.timers.drop(id)
            engine.performer.over(id)
            engine.end_waiters.release(id, defect)
        for future, _, of in engine.waiting:
            if of == root and not future.done():
                future.set_exception(defect)


def _members(engine: Engine, root: str, live: list[str]) -> list[str]:
    """Who is open in a tree that is set aside: in memory, on record, or in what is being written.
    Runs that have ended stay ended."""
    batch = engine.commits.under_way
    new = [] if batch is None else [spec.id for spec in batch.changes.specs if spec.root == root]
    member_ids = [id for id, of in engine.roots.items() if of == root]
    members = dict.fromkeys((root, *live, *member_ids, *new))
    return [
        id
        for id in members
        if (run := engine.commits.run(id)) is None or not isinstance(run.state, Ended)
    ]


def without_set_aside(engine: Engine, changes: Changes) -> Changes:
    """Without the runs that were set aside while it was written."""
    if engine.aside:
        changes.specs = [spec for spec in changes.specs if spec.id not in engine.aside]
        changes.runs = {id: run for id, run in changes.runs.items() if id not in engine.aside}
    return changes


def is_set_aside(engine: Engine, effect: Effect) -> bool:
    """Whether its tree was, while it was written. Slots are given back all the same."""
    return getattr(effect, "run", "") in engine.aside and not isinstance(effect, FreeSlot)


def root_of(engine: Engine, effect: Effect) -> str:
    if not isinstance(effect, (ScheduleDelivery, SendDelivery)):
        return engine.roots.get(effect.run, "")
    tree = engine.trees.index.deliveries.get(effect.key)
    return "" if tree is None else tree.root
