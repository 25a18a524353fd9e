"""One tree: a root run and all runs below it, with what they share: lanes, fan-ins, mailboxes,
accounts, deliveries.

The tree is the unit. A step of a run reads rows of other runs (how a child ended, what an ancestor
holds, who waits), and they are always of its own tree; what it reads beyond that is in `Shared` and
does not change under it. So a tree can be stepped, stored, lost and resumed by itself.

Nothing here knows a state's rules (those are in `run` and its neighbours) and nothing here is
stored as such: after a restart a tree is built again from its open runs. Every operation costs what
it touches, never what is live."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from retinue.core.cache_figures import Prefixes
from retinue.core.capabilities import explain, narrow
from retinue.core.changes import Changes
from retinue.core.effects import AskSlot, FreeSlot
from retinue.core.events import CancelAsked, MailReceived, RunEvent
from retinue.core.fan_in import FanIn
from retinue.core.lanes import Lanes
from retinue.core.ledger import Ledger
from retinue.core.messages import ToolCall
from retinue.core.permissions import Ruling, rule_on
from retinue.core.shared import Shared
from retinue.core.spec import Lane, RunSpec
from retinue.core.state import (
    Ended,
    Queued,
    Run,
    Stopping,
    Waiting,
    holds_slots,
    is_moving,
    limit_in_question,
    questions_of,
)
from retinue.core.values import Delivery, Mail, Permissions, ToolRisk
from retinue.core.writer_lines import WriterLines


@dataclass(slots=True)
class Index:
    """In which tree a run or a delivery is, which run asks a question, and which trees ask about a
    limit. Kept by the trees, to find them by it."""

    runs: dict[str, Tree] = field(default_factory=dict)
    deliveries: dict[str, Tree] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    asking: dict[str, Tree] = field(default_factory=dict)


class Tree:
    """The live runs below one root, and the root. `letters` are for runs of other trees: mail, or a
    request to end one of them. `successor` is the root that continues the same conversation, while
    it is open."""

    def __init__(self, root: str, shared: Shared, index: Index) -> None:
        self.root, self.shared, self._index = root, shared, index
        self.conversation = self.successor = ""
        self.runs: dict[str, Run] = {}
        self.specs: dict[str, RunSpec] = {}
        self.ledger, self.prefixes = Ledger(), Prefixes()
        self.lanes = Lanes()
        self.granted: set[str] = set()
        self.asked: set[str] = set()
        self.narrowed = False
        self.tickets = 0
        self.asking: dict[tuple[str, str], dict[str, None]] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.lingering: dict[str, int] = {}
        self._lingerers: set[str] = set()
        self.fans: dict[str, FanIn] = {}
        self.writer_lines = WriterLines()
        self.mail: dict[str, deque[Mail]] = {}
        self.deliveries: dict[str, Delivery] = {}
        self._announcing: dict[str, int] = {}
        self.groups: dict[tuple[str, str], dict[str, int]] = {}
        self._n_by_parent_end: dict[tuple[str, str], int] = {}
        self.tells: deque[tuple[str, RunEvent]] = deque()
        self.letters: list[tuple[str, MailReceived | CancelAsked, str]] = []
        self.changes = Changes()

    def hand_over(self, to: Changes) -> None:
        """Everything since the last call is theirs."""
        to.add(self.changes)
        to.accounts |= self.ledger.take_touched()
        self.changes.clear()

    def take_changes(self, new: Changes) -> Changes:
        """The same, for a new one that is empty."""
        changes, self.changes = self.changes, new
        changes.accounts = self.ledger.take_touched()
        return changes

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is open."""
        return not self.specs and not self.deliveries

    @property
    def has_news(self) -> bool:
        """Whether something is left that belongs to the transaction of the last step."""
        return bool(self.tells or self.letters or not self.ledger.is_settled)

    # who is who

    def register_run(self, spec: RunSpec, run: Run) -> None:
        self.narrowed = self.narrowed or run.permissions is not None
        self.specs[spec.id] = spec
        self.runs[spec.id] = run
        self._index.runs[spec.id] = self
        if questions_of(run) or limit_in_question(run):
            self.ask_about(None, run)
        if spec.parent:
            self.children.setdefault(spec.parent, {})[spec.id] = None
            self._bind(spec, 1)
            if run.version:
                self.writer_lines.find(spec, run)
            if spec.request.group and not isinstance(run.state, Ended):
                members = self.groups.setdefault((spec.parent, spec.request.group_kind), {})
                members[spec.request.group] = members.get(spec.request.group, 0) + 1

    def dismiss(self, id: str) -> None:
        """An ended run leaves; its rows stay. Its spec lingers while it has children, who answer to
        its ancestors."""
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
            self._index.runs.pop(id, None)
            self._leave_parent(spec)
            id = spec.parent

    def discard(self, id: str, path: str) -> None:
        """Delete an ended child that was not to be kept, once its rows are no longer needed: its
        result is in its parent's history or mailbox, and all runs below it have ended and have
        announced their results."""
        if id not in self.children and path not in self._announcing:
            self.changes.forgotten.append(id)

    def linger(self, spec: RunSpec, run: Run) -> None:
        """Keep an ended run's spec for those below it; what was taken from it while it ran stays
        taken."""
        self.narrowed = self.narrowed or run.permissions is not None
        self.specs[spec.id] = (
            spec if run.permissions is None else replace(spec, permissions=run.permissions)
        )
        self._index.runs[spec.id] = self
        if spec.parent:
            self.children.setdefault(spec.parent, {})[spec.id] = None
            self.lingering[spec.parent] = self.lingering.get(spec.parent, 0) + 1
            self._lingerers.add(spec.id)

    def _leave_parent(self, spec: RunSpec) -> None:
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
        """Open children, and open descendants of ended ones: the first to get a cancellation."""
        for child in self.children.get(id, ()):
            if child in self.runs:
                yield child
            else:
                yield from self.below(child)

    def nearest(self, id: str) -> str:
        """The run itself if it can still receive mail, or the nearest run above it that can; "" if
        none can."""
        while id:
            run, spec = self.runs.get(id), self.specs.get(id)
            if run is not None and not isinstance(run.state, Ended | Stopping):
                return id
            id = "" if spec is None else spec.parent
        return ""

    def _bind(self, spec: RunSpec, n: int) -> None:
        """Count live children by what becomes of them when their parent ends."""
        on_parent_end = spec.request.on_parent_end
        if on_parent_end in ("keep", "wait"):
            key = (on_parent_end, spec.parent)
            self._n_by_parent_end[key] = self._n_by_parent_end.get(key, 0) + n
            if not self._n_by_parent_end[key]:
                del self._n_by_parent_end[key]

    def n_children_with(self, on_parent_end: str, id: str) -> int:
        """How many open children of a run do this when it ends."""
        return self._n_by_parent_end.get((on_parent_end, id), 0)

    def n_members(self, spec: RunSpec) -> int:
        """How many of a run's group are still at work."""
        return self.groups.get((spec.parent, spec.request.group_kind), {}).get(
            spec.request.group, 0
        )

    def leave_group(self, spec: RunSpec) -> None:
        """The run has ended: it no longer counts for its group."""
        if not spec.request.group:
            return
        key = (spec.parent, spec.request.group_kind)
        members = self.groups.get(key)
        if members is None or spec.request.group not in members:
            return
        members[spec.request.group] -= 1
        if not members[spec.request.group]:
            del members[spec.request.group]
        if not members:
            del self.groups[key]

    def is_composing(self, id: str, index: int) -> bool:
        """Whether a family is putting the results of this call into words."""
        fan_in = self.fans.get(id)
        fan = None if fan_in is None else fan_in.fans.get(index)
        return fan is not None and fan.composing

    def is_moving(self, run: Run) -> bool:
        """Whether the run makes progress by itself."""
        fan_in = self.fans.get(run.id) if isinstance(run.state, Waiting) else None
        is_composing = fan_in is not None and fan_in.composing > 0
        return is_moving(run, self.specs[run.id].request.questions, is_composing=is_composing)

    def is_live(self, id: str) -> bool:
        run = self.runs.get(id)
        return run is not None and not isinstance(run.state, Ended)

    def ancestry(self, id: str) -> list[tuple[str, Permissions]]:
        """The run and its ancestors with what each holds now."""
        out = []
        while (spec := self.specs.get(id)) is not None:
            run = self.runs.get(id)
            permissions = (run.permissions if run is not None else None) or spec.permissions
            out.append((spec.request.name, permissions))
            id = spec.parent
        return out

    def deciding(self, id: str) -> list[tuple[str, Permissions]]:
        """The first of `ancestry`, which decide what the run may call: as long as no run's
        permissions were restricted since the run was started, no run above it withholds what it
        holds itself."""
        return (
            self.ancestry(id)
            if self.narrowed
            else [(self.specs[id].request.name, self.specs[id].permissions)]
        )

    def cwds(self, id: str) -> list[str]:
        """The directories of the run and its ancestors, in the order of `ancestry`."""
        out = []
        while (spec := self.specs.get(id)) is not None:
            out.append(spec.request.cwd)
            id = spec.parent
        return out

    def bounds(self, id: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The rules of the run and its ancestors, each with the directory in which they are
        meant."""
        out = []
        while (spec := self.specs.get(id)) is not None:
            run = self.runs.get(id)
            permissions = (run.permissions if run is not None else None) or spec.permissions
            if permissions.rules:
                out.append((spec.request.cwd, permissions.rules))
            id = spec.parent
        return tuple(out)

    def rule_on(self, id: str, call: ToolCall, *, asks: bool = False) -> Ruling:
        """What holds for a call of a live run now: rules, modes and what a person has granted."""
        ones, risk = (id, self.specs[id].root), self._risk(id, call.name)
        grants = [grant for one in ones if one in self.runs for grant in self.runs[one].grants]
        mode = self.shared.limits.mode
        return rule_on(self.ancestry(id), call, risk, grants, mode, self.cwds(id), asks=asks)

    def explain(self, id: str, tool: str, args: str, now: int) -> str:
        """Whether a run may call a tool, and which rule says so."""
        mode, risk = self.shared.limits.mode, self._risk(id, tool)
        return explain(self.ancestry(id), tool, now, risk, args, mode, self.cwds(id))

    def _risk(self, id: str, tool: str) -> ToolRisk:
        definition = self.shared.definitions.get(self.specs[id].request.agent)
        return ToolRisk() if definition is None else definition.tool_risks.get(tool, ToolRisk())

    def permissions_of(self, id: str) -> Permissions:
        """What a run may do now: its own set, within what every ancestor still has."""
        if not self.narrowed:
            return self.specs[id].permissions
        (_, own), *above = self.ancestry(id)
        for distance, (_, theirs) in enumerate(above, 1):
            depth = None if theirs.depth is None else theirs.depth - distance
            own = narrow(own, theirs if depth == theirs.depth else replace(theirs, depth=depth))
        return own

    # lanes

    def enter(self, id: str, lanes: tuple[Lane, ...], first: int, *, back: bool) -> int:
        """Take slots from lane `first` on. Returns how many lanes are held; fewer than all means:
        it waits in that one.

        Lanes are taken in the order of the spec (those of the tree first, narrow ones before wide
        ones) and held while waiting for the next, so that no two runs can wait for each other. One
        that trees share is always waited for: it is asked for by an effect."""
        for n in range(first, len(lanes)):
            if lanes[n].is_shared or not self.lanes.acquire(id, lanes[n], back=back):
                return n
        return len(lanes)

    def ask(self, id: str, lane: Lane, *, back: bool, ticket: int) -> None:
        """Ask for a slot in a lane that trees share; `Admitted` with this ticket grants it."""
        self.asked.add(id)
        self.changes.effects.append(AskSlot(run=id, lane=lane, back=back, ticket=ticket))

    def give_back(self, id: str, lanes: tuple[Lane, ...]) -> list[str]:
        """Give back one slot in each; returns the runs of this tree that now hold the slot they
        waited for."""
        promoted = []
        for lane in lanes:
            if lane.is_shared:
                self.changes.effects.append(FreeSlot(run=id, lane=lane))
            elif (granted := self.lanes.release(lane)) is not None:
                self.granted.add(granted[0])
                promoted.append(granted[0])
        return promoted

    def leave_queue(self, id: str, lane: Lane) -> bool:
        """A run that waited in a lane no longer wants it. Whether it was given a slot there and
        does not know it yet."""
        if lane.is_shared:
            self.asked.discard(id)
            self.changes.effects.append(FreeSlot(run=id, lane=lane))
            return False
        if id in self.granted:
            self.granted.discard(id)
            return True
        self.lanes.leave(id, lane)
        return False

    def is_waiting(self, id: str, lane: Lane) -> bool:
        """Whether a run has asked for a slot in this process."""
        return id in self.asked if lane.is_shared else self.lanes.waits(id, lane)

    def reseat(self) -> None:
        """After a restart: runs at work hold their slots, runs that waited for one ask again when
        they are notified."""
        self.lanes, self.prefixes = Lanes(), Prefixes()
        self.ledger.reopen()
        self.granted.clear()
        self.asked.clear()
        self.tickets = self.shared.epoch << 32  # above all that an earlier process has given
        for id, run in list(self.runs.items()):
            if self.is_moving(run):
                self.ledger.stir(self.ledger.chain(id), 1)
            if holds_slots(run):
                for lane in self.specs[id].request.lanes:
                    if not lane.is_shared:
                        self.lanes.hold(lane)
            elif isinstance(run.state, Queued):
                self.runs[id] = replace(run, state=replace(run.state, lane=min(run.state.lane, 0)))

    # messages between runs

    def post_event(self, id: str, event: RunEvent) -> None:
        """News for another run: a step of its own, in this transaction."""
        self.tells.append((id, event))

    def post(self, id: str, mail: Mail) -> None:
        self.mail.setdefault(id, deque()).append(mail)
        self.changes.posted[(id, mail.seq)] = mail

    def take_mail(self, id: str) -> list[Mail]:
        """Empty the mailbox: what is taken is in the conversation from this transaction on."""
        messages = list(self.mail.pop(id, ()))
        for mail in messages:
            if self.changes.posted.pop((id, mail.seq), None) is None:
                self.changes.taken.append((id, mail.seq))
        return messages

    def has_mail(self, id: str) -> bool:
        return id in self.mail

    # questions

    def ask_about(self, before: Run | None, after: Run | None) -> None:
        """An answer finds its run by the question."""
        self._ask_for_more(before, after)
        old, new = questions_of(before), questions_of(after)
        if old == new:
            return
        for old_question in old:
            self._index.questions.pop(old_question.id, None)
        if after is not None:
            self._index.questions.update((question.id, after.id) for question in new)

    def _ask_for_more(self, before: Run | None, after: Run | None) -> None:
        """Who waits for an answer about the limit of which account."""
        old, new = limit_in_question(before), limit_in_question(after)
        if old == new:
            return
        if old is not None and before is not None:
            self.asking[old].pop(before.id, None)
            if not self.asking[old]:
                del self.asking[old]
        if new is not None and after is not None:
            self.asking.setdefault(new, {})[after.id] = None
        if self.asking:
            self._index.asking[self.root] = self
        else:
            self._index.asking.pop(self.root, None)

    # announcements

    def keep_delivery(self, delivery: Delivery) -> None:
        if delivery.key not in self.deliveries:
            self._announce_at(delivery.path, 1)
        self.deliveries[delivery.key] = delivery
        self._index.deliveries[delivery.key] = self

    def drop_delivery(self, key: str) -> None:
        self._announce_at(self.deliveries.pop(key).path, -1)
        self._index.deliveries.pop(key, None)

    def _announce_at(self, path: str, n: int) -> None:
        """Count what is to be announced by a run and by all runs below it."""
        while path:
            self._announcing[path] = self._announcing.get(path, 0) + n
            if not self._announcing[path]:
                del self._announcing[path]
            path = path.rpartition("/")[0]
