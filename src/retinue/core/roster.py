"""All live runs, and what they share: lanes, fan-ins, mailboxes, accounts, deliveries.

Nothing here knows a state's rules (those are in `run` and its neighbours) and nothing here is stored as such: after a
restart the roster is built again from the open runs. Every operation costs what it touches, never what is live.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from retinue.core.effects import Abort, ChildOutcome, Deliver, Effect, Transmit
from retinue.core.events import Entry, RunEvent
from retinue.core.ledger import Account, Ledger
from retinue.core.orders import Lane, Spec
from retinue.core.policy import narrow
from retinue.core.state import Ended, Queued, Run, is_seated
from retinue.core.values import Capabilities, Definition, Delivery, Mail, Message, ModelInfo, Rules


@dataclass(slots=True)
class Changes:
    """What a batch of steps must write in one transaction, and what may be performed after it."""

    entries: list[Entry] = field(default_factory=list)
    specs: list[Spec] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    messages: list[tuple[str, int, Message]] = field(default_factory=list)
    posted: dict[tuple[str, int], Mail] = field(default_factory=dict)
    taken: list[tuple[str, int]] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    models: list[ModelInfo] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)


@dataclass(slots=True)
class LaneState:
    """Who holds slots, and who waits: those who come back from a wait of their own go before those who are new."""

    size: int
    held: int = 0
    back: OrderedDict[str, None] = field(default_factory=OrderedDict)
    new: OrderedDict[str, None] = field(default_factory=OrderedDict)

    @property
    def waiting(self) -> int:
        return len(self.back) + len(self.new)

    def __contains__(self, id: object) -> bool:
        return id in self.back or id in self.new

    def leave(self, id: str) -> None:
        self.back.pop(id, None)
        self.new.pop(id, None)

    def next(self) -> str:
        id, _ = (self.back or self.new).popitem(last=False)
        return id


@dataclass(slots=True)
class Fan:
    """The joined children of one open call: who is still out, and the outcomes of those who are back."""

    join: str
    call_id: str
    name: str
    results: str
    compose: bool
    fail_fast: bool = False
    composing: bool = False
    discard: list[Spec] = field(default_factory=list)
    pending: dict[str, None] = field(default_factory=dict)
    ended: list[ChildOutcome] = field(default_factory=list)


@dataclass(slots=True)
class FanIn:
    """The fans of a run's current turn by call. `by_turn` counts those that are joined by turn, `out` their children
    that are not back."""

    fans: dict[int, Fan] = field(default_factory=dict)
    by_turn: int = 0
    out: int = 0

    def add(self, index: int, fan: Fan) -> None:
        self.fans[index] = fan
        self.by_turn += fan.join == "turn"

    def drop(self, index: int) -> Fan:
        fan = self.fans.pop(index)
        self.by_turn -= fan.join == "turn"
        return fan


class Roster:
    """The live runs of one runtime."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.epoch = 0
        self.runs: dict[str, Run] = {}
        self.specs: dict[str, Spec] = {}
        self.definitions: dict[str, Definition] = {}
        self.models: dict[str, ModelInfo] = {}
        self.ledger = Ledger()
        self.lanes: dict[str, LaneState] = {}
        self.granted: set[str] = set()
        self.narrowed = False
        self.tickets = 0
        self.children: dict[str, dict[str, None]] = {}
        self.lingering: dict[str, int] = {}
        self._lingerers: set[str] = set()
        self.fans: dict[str, FanIn] = {}
        self.mail: dict[str, deque[Mail]] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.groups: dict[tuple[str, str], dict[str, int]] = {}
        self._bonds: dict[tuple[str, str], int] = {}
        self.tells: deque[tuple[str, RunEvent]] = deque()
        self.changes = Changes()

    def take_changes(self) -> Changes:
        """Everything since the last call; the caller now owns it."""
        changes, self.changes = self.changes, Changes()
        changes.accounts, self.ledger.touched = self.ledger.touched, {}
        if any(isinstance(e, Abort) for e in changes.effects):
            changes.effects = _without_aborted(changes.effects)
        return changes

    # who is who

    def enlist(self, spec: Spec, run: Run) -> None:
        self.narrowed = self.narrowed or run.access is not None
        self.specs[spec.id] = spec
        self.runs[spec.id] = run
        if spec.parent:
            self.children.setdefault(spec.parent, {})[spec.id] = None
            self._bind(spec, 1)
            if spec.order.group and not isinstance(run.state, Ended):
                members = self.groups.setdefault((spec.parent, spec.order.group_kind), {})
                members[spec.order.group] = members.get(spec.order.group, 0) + 1

    def dismiss(self, id: str) -> None:
        """An ended run leaves; its rows stay. Its spec lingers while it has children, who answer to its ancestors."""
        run = self.runs.pop(id, None)
        self.mail.pop(id, None)
        self.fans.pop(id, None)
        if run is not None:
            self._bind(self.specs[id], -1)
            if id in self.children:
                self.linger(self.specs[id], run)
        while id and id not in self.children and id not in self.runs:
            spec = self.specs.pop(id, None)
            if spec is None:
                return
            self._leave_parent(spec)
            id = spec.parent

    def discard(self, id: str, root: str, path: str) -> None:
        """Delete an ended child that was not to be kept, once nobody needs its rows: its result is in its parent's
        history or mailbox, and everybody below it has ended and has announced what there was to announce."""
        below = f"{path}/"
        waits = any(x.root == root and f"{x.path}/".startswith(below) for x in self.deliveries.values())
        if id not in self.children and not waits:
            self.changes.forgotten.append(id)

    def linger(self, spec: Spec, run: Run) -> None:
        """Keep an ended run's spec for those below it; what was taken from it while it ran stays taken."""
        self.narrowed = self.narrowed or run.access is not None
        self.specs[spec.id] = spec if run.access is None else replace(spec, capabilities=run.access)
        if spec.parent:
            self.children.setdefault(spec.parent, {})[spec.id] = None
            self.lingering[spec.parent] = self.lingering.get(spec.parent, 0) + 1
            self._lingerers.add(spec.id)

    def _leave_parent(self, spec: Spec) -> None:
        siblings = self.children.get(spec.parent)
        if siblings is None or spec.id not in siblings:
            return
        del siblings[spec.id]
        if spec.id in self._lingerers:
            self._lingerers.discard(spec.id)
            self.lingering[spec.parent] -= 1
        if not siblings:
            del self.children[spec.parent]
            self.lingering.pop(spec.parent, None)

    def n_live(self, id: str) -> int:
        """How many children of a run are live, without counting them."""
        return len(self.children.get(id, ())) - self.lingering.get(id, 0)

    def below(self, id: str) -> Iterator[str]:
        """Live children, and live descendants of ended ones: whoever hears of a cancel first."""
        for child in self.children.get(id, ()):
            if child in self.runs:
                yield child
            else:
                yield from self.below(child)

    def _bind(self, spec: Spec, n: int) -> None:
        """Count live children by what becomes of them when their parent ends."""
        bond = spec.order.bond
        if bond in ("keep", "wait"):
            key = (bond, spec.parent)
            self._bonds[key] = self._bonds.get(key, 0) + n
            if not self._bonds[key]:
                del self._bonds[key]

    def bonds(self, bond: str, id: str) -> int:
        """How many live children of a run have this bond to it."""
        return self._bonds.get((bond, id), 0)

    def n_members(self, spec: Spec) -> int:
        """How many of a run's group are still at work."""
        return self.groups.get((spec.parent, spec.order.group_kind), {}).get(spec.order.group, 0)

    def leave_group(self, spec: Spec) -> None:
        """The run has ended: it does not count for its group any more."""
        key = (spec.parent, spec.order.group_kind)
        members = self.groups.get(key)
        if members is None or spec.order.group not in members:
            return
        members[spec.order.group] -= 1
        if not members[spec.order.group]:
            del members[spec.order.group]
        if not members:
            del self.groups[key]

    def is_composing(self, id: str, index: int) -> bool:
        """Whether a family is putting the results of this call into words."""
        fan_in = self.fans.get(id)
        fan = None if fan_in is None else fan_in.fans.get(index)
        return fan is not None and fan.composing

    def is_live(self, id: str) -> bool:
        run = self.runs.get(id)
        return run is not None and not isinstance(run.state, Ended)

    def ancestry(self, id: str) -> list[tuple[str, Capabilities]]:
        """The run and its ancestors with what each holds now."""
        out = []
        while (spec := self.specs.get(id)) is not None:
            run = self.runs.get(id)
            held = run.access if run is not None and run.access is not None else spec.capabilities
            out.append((spec.order.label or spec.order.agent, held))
            id = spec.parent
        return out

    def cwds(self, id: str) -> list[str]:
        """The directories of the run and its ancestors, in the order of `ancestry`."""
        out = []
        while (spec := self.specs.get(id)) is not None:
            out.append(spec.order.cwd)
            id = spec.parent
        return out

    def bounds(self, id: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The rules of the run and its ancestors, each with the directory in which they are meant."""
        pairs = zip(self.cwds(id), self.ancestry(id), strict=True)
        return tuple((cwd, held.rules) for cwd, (_, held) in pairs if held.rules)

    def held(self, id: str) -> Capabilities:
        """What a run may do now: its own set, within what every ancestor still has."""
        if not self.narrowed:
            return self.specs[id].capabilities
        (_, own), *above = self.ancestry(id)
        for distance, (_, theirs) in enumerate(above, 1):
            left = None if theirs.depth is None else theirs.depth - distance
            own = narrow(own, theirs if left == theirs.depth else replace(theirs, depth=left))
        return own

    # lanes

    def acquire(self, id: str, lanes: tuple[Lane, ...], first: int, *, back: bool) -> int:
        """Take slots from lane `first` on. Returns how many lanes are held; fewer than all means: it waits in that one.

        Lanes are taken in the order of the spec (narrow ones first) and held while waiting for the next, so that no two
        runs can wait for each other.
        """
        for n in range(first, len(lanes)):
            lane = self._lane(lanes[n])
            if lane.held >= lane.size:
                (lane.back if back else lane.new)[id] = None
                return n
            lane.held += 1
        return len(lanes)

    def reseat(self) -> None:
        """After a restart: those at work hold their slots, those that waited for one ask again when they are told."""
        self.lanes.clear()
        self.granted.clear()
        self.tickets = 0
        for id, run in list(self.runs.items()):
            if is_seated(run):
                for lane in self.specs[id].order.lanes:
                    self._lane(lane).held += 1
            elif isinstance(run.state, Queued):
                self.tickets = max(self.tickets, run.state.ticket)
                self.runs[id] = replace(run, state=replace(run.state, lane=0))

    def release(self, lanes: tuple[Lane, ...]) -> list[str]:
        """Give back one slot in each; returns the runs that now hold the slot they waited for."""
        promoted = []
        for lane_value in lanes:
            lane = self._lane(lane_value)
            lane.held -= 1
            if lane.waiting and lane.held < lane.size:
                lane.held += 1
                id = lane.next()
                self.granted.add(id)
                promoted.append(id)
            elif not lane.held and not lane.waiting:
                del self.lanes[lane_value.name]
        return promoted

    def leave_queue(self, id: str, lane: Lane) -> None:
        """A run that waited in `lane` does not want it any more."""
        state = self.lanes.get(lane.name)
        if state is not None:
            state.leave(id)

    def waits(self, id: str, lane: Lane) -> bool:
        state = self.lanes.get(lane.name)
        return state is not None and id in state

    def room(self, lane: Lane) -> int:
        """How many more runs would find a slot in a lane at once."""
        state = self.lanes.get(lane.name)
        return lane.size if state is None else max(0, state.size - state.held - state.waiting)

    def _lane(self, lane: Lane) -> LaneState:
        state = self.lanes.get(lane.name)
        if state is None:
            state = self.lanes[lane.name] = LaneState(size=lane.size)
        return state

    # messages between runs

    def tell(self, id: str, event: RunEvent) -> None:
        """News for another run: a step of its own, in this transaction."""
        self.tells.append((id, event))

    def post(self, id: str, mail: Mail) -> None:
        self.mail.setdefault(id, deque()).append(mail)
        self.changes.posted[(id, mail.seq)] = mail

    def take_mail(self, id: str) -> list[Mail]:
        """Empty the mailbox: what is taken is in the conversation from this transaction on."""
        taken = list(self.mail.pop(id, ()))
        for mail in taken:
            if self.changes.posted.pop((id, mail.seq), None) is None:
                self.changes.taken.append((id, mail.seq))
        return taken

    def has_mail(self, id: str) -> bool:
        return id in self.mail


def _without_aborted(effects: list[Effect]) -> list[Effect]:
    """What a later step of the same batch called off is never begun."""
    last = {e.run: n for n, e in enumerate(effects) if isinstance(e, Abort)}
    return [e for n, e in enumerate(effects) if isinstance(e, (Deliver, Transmit, Abort)) or n > last.get(e.run, -1)]
