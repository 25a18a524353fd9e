"""The engine of one tree. It is the engine of a single machine; only what trees share is asked for
elsewhere, and its store writes for this tree alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from retinue.core.effects import AskSlot, FreeSlot
from retinue.core.exposure import exposure
from retinue.core.shared import Shared
from retinue.core.state import Queued, holds_slots
from retinue.core.trees import Trees
from retinue.core.values import Limits
from retinue.core.writer_lines import TURN
from retinue.runtime.engine import Engine

Touch = Callable[[str], None]
Offers = Callable[[str], bool]


class Needs(NamedTuple):
    """What a tree needs of its machine: the names, whether runs are at work with it, and whether
    this worker offers it."""

    names: tuple[str, ...]
    is_held: bool
    is_here: bool


class TreeWithSharedLanes(Trees):
    """The slots of lanes that trees share are rows, which the commit has written: a grant comes
    later, as an event. What a run needs of its machine it is granted if this worker `offers` it;
    otherwise it waits until the tree is driven elsewhere."""

    def __init__(self, limits: Limits, shared: Shared, touch: Touch, offers: Offers) -> None:
        super().__init__(limits)
        self._offers = offers
        self.shared.definitions, self.shared.models = shared.definitions, shared.models
        self._touch = touch

    def seat(self, effect: AskSlot | FreeSlot) -> tuple[str, int] | None:
        if effect.lane.is_need:
            if isinstance(effect, FreeSlot) or not self._offers(effect.lane.name):
                return None
            return effect.run, effect.ticket
        self._touch(effect.lane.name)
        return None


class TreeEngine(Engine):
    """`handed_over`: the worker that had the tree before let go of it, or was cut off; it has not
    crashed."""

    def __init__(
        self,
        *ports: Any,
        shared: Shared,
        touch: Touch,
        offers: Offers,
        handed_over: bool,
        **own: Any,
    ) -> None:
        super().__init__(*ports, **own)
        self.trees = TreeWithSharedLanes(shared.limits, shared, touch, offers)
        self._offers = offers
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

    def exposure(self) -> tuple[int, int]:
        """What the tree may have cost, in tokens and nano-dollars, when its calls are over."""
        costs = [exposure(tree.ledger, root) for root, tree in self.trees.by_root.items()]
        return sum(tokens for tokens, _ in costs), sum(nanos for _, nanos in costs)

    def slots_in_use(self) -> list[tuple[str, str, int, bool]]:
        """The slots of shared lanes that runs hold or queue for: run, name and size of the lane,
        and whether the slot is held."""
        return [
            (spec.id, lane.name, lane.size, holds_slots(run))
            for spec, run in self.trees.live()
            if holds_slots(run) or isinstance(run.state, Queued)
            for lane in spec.request.lanes
            if lane.is_shared and not lane.is_need
        ]

    @property
    def needs(self) -> Needs:
        """What the worker of this tree must offer: what runs at work hold; and if there are none,
        what the first of those needs that wait."""
        uses: set[str] = set()
        waiting: dict[int, tuple[str, ...]] = {}
        for spec, run in self.trees.live():
            if not spec.request.needs:
                continue
            match run.state:
                case Queued(lane=lane, ticket=ticket) if lane < len(spec.request.needs):
                    if lane > TURN:
                        waiting[ticket] = spec.request.needs
                case Queued():
                    uses.update(spec.request.needs)
                case _ if holds_slots(run):
                    uses.update(spec.request.needs)
        names = tuple(sorted(uses)) or (waiting[min(waiting)] if waiting else ())
        return Needs(names, bool(uses), all(map(self._offers, names)))
