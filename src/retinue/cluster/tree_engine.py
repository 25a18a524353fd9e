"""The engine of one tree. It is the engine of a single machine; only what trees share is asked for
elsewhere, and its store writes for this tree alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from retinue.core.effects import AskSlot, FreeSlot
from retinue.core.shared import Shared
from retinue.core.state import Queued, holds_slots
from retinue.core.trees import Trees
from retinue.core.values import Limits
from retinue.runtime.engine import Engine

Touch = Callable[[str], None]


class TreeWithSharedLanes(Trees):
    """The slots of lanes that trees share are rows, which the commit has written: a grant comes
    later, as an event."""

    def __init__(self, limits: Limits, shared: Shared, touch: Touch) -> None:
        super().__init__(limits)
        self.shared.definitions, self.shared.models = shared.definitions, shared.models
        self._touch = touch

    def seat(self, effect: AskSlot | FreeSlot) -> tuple[str, int] | None:
        self._touch(effect.lane.name)
        return None


class TreeEngine(Engine):
    """`handed_over`: the worker that had the tree before let go of it, or was cut off; it has not
    crashed."""

    def __init__(
        self, *ports: Any, shared: Shared, touch: Touch, handed_over: bool, **own: Any
    ) -> None:
        super().__init__(*ports, **own)
        self.trees = TreeWithSharedLanes(shared.limits, shared, touch)
        self._handed_over = handed_over

    async def start(self) -> None:
        await super().start()
        self.found.handed_over = self._handed_over

    async def _was_closed(self, last: int) -> bool:
        return self._handed_over

    @property
    def is_resting(self) -> bool:
        """Whether nothing is under way: no step, no call, no announcement."""
        return not (
            self.performer.tasks()
            or self._queue
            or self.trees.has_changes
            or self.commits.under_way
            or self._is_performing
        )

    @property
    def wake_at(self) -> int | None:
        """When the next run wants to be woken by itself."""
        times = [run.wake_at for _, run in self.trees.live() if run.wake_at is not None]
        times += [
            delivery.next_at
            for tree in self.trees.by_root.values()
            for delivery in tree.deliveries.values()
            if delivery.state in ("pending", "sent")
        ]
        return min(times, default=None)

    def slots_in_use(self) -> list[tuple[str, str, int, bool]]:
        """The slots of shared lanes that runs hold or queue for: run, name and size of the lane,
        and whether the slot is held."""
        return [
            (spec.id, lane.name, lane.size, holds_slots(run))
            for spec, run in self.trees.live()
            if holds_slots(run) or isinstance(run.state, Queued)
            for lane in spec.request.lanes
            if lane.is_shared
        ]
