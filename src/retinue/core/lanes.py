"""Lanes: which runs hold slots, and which wait for one. A tree keeps its own; those that trees
share are kept beside them, asked for by an effect and granted by an event. What a run needs of its
machine is such a lane, too: a process that is alone has everything, and each of several what it
offers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec.structs import replace

from retinue.core.spec import Lane, RunRequest


def in_lane_order(request: RunRequest, parent: RunRequest | None = None) -> RunRequest:
    """Every run takes its lanes in the same sequence and each once, so that no two runs wait for
    each other: what it needs of its machine first, then those of the tree, so that no run holds up
    other trees while it waits for its own, and narrow ones before wide ones. A child works where
    its parent does: it needs the same directories."""
    inherited = () if parent is None else filter(is_directory, parent.needs)
    needs = tuple(sorted({*request.needs, *inherited}))
    if len(request.lanes) < 2 and not needs:
        return request
    by_name = {lane.name: lane for lane in reversed(request.lanes) if not lane.is_need}
    lanes = sorted(by_name.values(), key=lambda lane: (lane.is_shared, lane.size, lane.name))
    places = [Lane(name=need, size=1, scope="node") for need in needs]
    return replace(request, needs=needs, lanes=(*places, *lanes))


def is_directory(need: str) -> bool:
    """Whether a need is a directory; others are labels that workers offer."""
    return need.startswith("/")


@dataclass(slots=True)
class LaneState:
    """Who holds slots, and who waits: those who come back from a wait of their own go before those
    who are new."""

    size: int
    held: int = 0
    back: OrderedDict[str, int] = field(default_factory=OrderedDict)
    new: OrderedDict[str, int] = field(default_factory=OrderedDict)

    @property
    def waiting(self) -> int:
        return len(self.back) + len(self.new)

    def __contains__(self, id: object) -> bool:
        return id in self.back or id in self.new

    def leave(self, id: str) -> bool:
        """Whether it waited."""
        return self.back.pop(id, None) is not None or self.new.pop(id, None) is not None

    def next(self) -> tuple[str, int]:
        """Who is given the slot that became free, and its ticket."""
        return (self.back or self.new).popitem(last=False)


class Lanes:
    """Lanes by name. A lane that no run uses is not kept."""

    def __init__(self) -> None:
        self.by_name: dict[str, LaneState] = {}

    def hold(self, lane: Lane) -> None:
        """A slot is held already: by a run that an earlier process has let in."""
        self._state(lane).held += 1

    def acquire(self, id: str, lane: Lane, *, back: bool, ticket: int = 0) -> bool:
        """Take a slot, or wait for one."""
        state = self._state(lane)
        if state.held >= state.size:
            (state.back if back else state.new)[id] = ticket
            return False
        state.held += 1
        return True

    def release(self, lane: Lane) -> tuple[str, int] | None:
        """Give one slot back; returns who now holds it, with its ticket."""
        state = self._state(lane)
        state.held -= 1
        if state.waiting and state.held < state.size:
            state.held += 1
            return state.next()
        if not state.held and not state.waiting:
            del self.by_name[lane.name]
        return None

    def leave(self, id: str, lane: Lane) -> bool:
        """A run that waited no longer wants a slot. Whether it waited."""
        state = self.by_name.get(lane.name)
        return state is not None and state.leave(id)

    def waits(self, id: str, lane: Lane) -> bool:
        state = self.by_name.get(lane.name)
        return state is not None and id in state

    def room(self, lane: Lane) -> int:
        """How many more runs would get a slot in a lane immediately."""
        state = self.by_name.get(lane.name)
        return lane.size if state is None else max(0, state.size - state.held - state.waiting)

    def _state(self, lane: Lane) -> LaneState:
        state = self.by_name.get(lane.name)
        if state is None:
            state = self.by_name[lane.name] = LaneState(size=lane.size)
        return state


class SharedLanes:
    """The lanes that trees share. Every slot has the name of the run that holds it: to free one
    twice, or one that was never given, changes nothing."""

    def __init__(self) -> None:
        self.lanes = Lanes()
        self.holders: dict[tuple[str, str], None] = {}

    def hold(self, id: str, lane: Lane) -> None:
        if (id, lane.name) not in self.holders and not lane.is_need:
            self.holders[(id, lane.name)] = None
            self.lanes.hold(lane)

    def ask(self, id: str, lane: Lane, *, back: bool, ticket: int) -> bool:
        """Whether the run has its slot now; otherwise a later `free` names it."""
        if (id, lane.name) in self.holders or lane.is_need:
            return True
        self.lanes.leave(id, lane)
        if not self.lanes.acquire(id, lane, back=back, ticket=ticket):
            return False
        self.holders[(id, lane.name)] = None
        return True

    def free(self, id: str, lane: Lane) -> tuple[str, int] | None:
        """The run wants its slot, or its place in the queue, no more; returns who has the slot now,
        and its ticket."""
        if lane.is_need:
            return None
        if (id, lane.name) not in self.holders:
            self.lanes.leave(id, lane)
            return None
        del self.holders[(id, lane.name)]
        granted = self.lanes.release(lane)
        if granted is not None:
            self.holders[(granted[0], lane.name)] = None
        return granted
