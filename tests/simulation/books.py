"""What really happened, kept apart from the machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.core import capabilities
from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.effects import (
    CallModel,
    CallTool,
    Effect,
)
from retinue.core.events import (
    ActionsReturned,
    CancelAsked,
    ChildEnded,
    LimitChanged,
    LogEntry,
    MailReceived,
    Recovered,
    Requested,
)
from retinue.core.messages import Message, ModelReply
from retinue.core.spec import RunSpec
from retinue.core.state import (
    Ended,
    Run,
    Stopping,
    Thinking,
)
from retinue.core.values import Delivery, Ending, Mail
from tests.simulation import commit_checks, functions, script
from tests.simulation.history_checks import Reading
from tests.simulation.violation import broken

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


LOOKED_AT = {Requested, Recovered, ChildEnded, CancelAsked, LimitChanged, ActionsReturned}


@dataclass
class Books:
    """What really happened, kept apart from the machine."""

    paths: dict[str, str] = field(default_factory=dict)
    specs: dict[str, RunSpec] = field(default_factory=dict)
    replies: dict[tuple[str, int], ModelReply] = field(default_factory=dict)
    left: set[tuple[str, int]] = field(default_factory=set)
    failures: dict[tuple[str, int], tuple[str, bool, int] | None] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    messages: dict[str, dict[int, Message]] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    nanos: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    tool_starts: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Run] = field(default_factory=dict)
    cancels: dict[str, CancelAsked] = field(default_factory=dict)
    stopping: dict[str, Ending] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    sent: int = 0
    checked: set[tuple[str, int, str]] = field(default_factory=set)
    attempts: Counter[str] = field(default_factory=Counter)
    log: list[LogEntry] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    purged: set[int] = field(default_factory=set)
    alone_by_then: dict[str, list[str]] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    boxes: dict[str, dict[int, Mail]] = field(default_factory=dict)
    raised: dict[str, list[int]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    children: dict[str, list[RunSpec]] = field(default_factory=dict)
    tools: dict[str, tuple[str, ...]] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    questions: set[tuple[str, int, int, str]] = field(default_factory=set)
    places: set[tuple[str, str]] = field(default_factory=set)

    def is_deaf(self, id: str) -> bool:
        """Whether a run takes no more news."""
        return id in self.ended or id in self.stopping

    def mail(self, sim: Simulation, *, steer: bool) -> MailReceived:
        self.sent += 1
        return MailReceived(mail=Mail(seq=0, text=f"<mail {self.sent}>", steer=steer))

    def committed(self, changes: Changes) -> None:
        """The transaction is durable: what it says can be held against the machine from now on."""
        for spec in changes.specs:
            self._enlist(spec)
        for conversation, n, message in changes.messages:
            mine = self.messages.setdefault(conversation, {})
            if n in mine:
                broken(f"I14 message {n} of {conversation} was written twice")
            mine[n] = message
        self.log += changes.entries
        self.accounts.update(changes.accounts)
        self._entries(changes)
        if changes.deliveries:
            commit_checks.asked_once(self, changes)
            self.deliveries.update(changes.deliveries)
        if changes.forgotten:
            commit_checks.deleted(self, changes)
        ended = self._runs(changes)
        functions.committed(self, changes)
        self._mail(changes)
        for run in ended:
            commit_checks.ended(self, run, changes, {one.id for one in ended})
        for delivery in changes.deliveries.values():
            if delivery.group:
                commit_checks.summed_up(self, delivery)
        for id, below in self.alone_by_then.items():
            if not all(b in self.ended for b in below):
                broken(f"I7 {id} ended before those it answers for: {below}")
        self.alone_by_then.clear()

    def _enlist(self, spec: RunSpec) -> None:
        """I1, I9, I11: it is new, and neither deeper nor more powerful than its parent allows."""
        if spec.id in self.specs:
            broken(f"I1 {spec.id} was started twice")
        if (spec.root, spec.path) in self.places:
            broken(f"I36 two runs have the place {spec.path}")
        self.places.add((spec.root, spec.path))
        self.specs[spec.id] = spec
        self.paths[spec.id] = spec.path if spec.root.endswith("0") else f"b{spec.path}"
        if not spec.parent:
            return
        parent = self.specs[spec.parent]
        self.children.setdefault(spec.parent, []).append(spec)
        why = capabilities.exceeds(spec.permissions, parent.permissions)
        if why is not None:
            broken(f"I9 {spec.id} has more {why} than its parent")
        if not spec.depth == parent.depth + 1 <= 3:
            broken(f"I11 {spec.id} is too deep")

    def _entries(self, changes: Changes) -> None:
        for entry in changes.entries:
            event = entry.event
            if type(event) not in LOOKED_AT:
                continue
            if entry.stale:
                if isinstance(event, Requested | Recovered):
                    broken(f"refused: {entry.stale}")
            elif isinstance(event, ChildEnded):
                deliveries = self.told.setdefault(entry.run, set())
                if event.child in deliveries:
                    broken(f"I3 {entry.run} was told twice that {event.child} ended")
                deliveries.add(event.child)
            elif isinstance(event, CancelAsked):
                self.cancels.setdefault(entry.run, event)
            elif isinstance(event, LimitChanged):
                commit_checks.decided(self, entry.run, event)
            elif isinstance(event, ActionsReturned) and event.actions.sends:
                commit_checks.letters(self, entry.run, event, changes)

    def _runs(self, changes: Changes) -> list[Run]:
        """Who has ended now."""
        ended = []
        for id, run in changes.runs.items():
            if id in self.ended:
                broken(f"I1 {id} lives after its end, or has ended twice")
            if isinstance(run.state, Ended):
                ended.append(run)
            elif isinstance(run.state, Stopping):
                self.stopping[id] = run.state.ending
        self.ended.update((run.id, run) for run in ended)
        return ended

    def _mail(self, changes: Changes) -> None:
        for (id, seq), mail in changes.posted.items():
            self.boxes.setdefault(id, {})[seq] = mail
        for id, seq in changes.taken:
            del self.boxes[id][seq]

    def started(self, sim: Simulation, effect: Effect) -> None:
        """Something is really done now."""
        if isinstance(effect, CallTool):
            self.tool_starts[effect.key] += 1
            unsafe = script.RESTART.get(effect.call.name, "unsafe") == "unsafe"
            if unsafe and self.tool_starts[effect.key] != 1:
                broken(f"I5 {effect.call.name} {effect.key} was started twice")
        if isinstance(effect, CallModel):
            run = sim.run_of(effect.run)
            assert run is not None
            state = run.state
            assert isinstance(state, Thinking)
            most_in = state.hold[0] - effect.max_output
            path = self.paths[effect.run]
            reply = script.reply(
                sim.seed,
                path,
                run.turn,
                effect.purpose,
                self._tools(sim, effect.run),
                most_in,
                effect.max_output,
            )
            self.replies[(effect.run, effect.attempt)] = reply
            if script.leaves_at_once(sim.seed, path, effect.attempt):
                self.leave(sim, effect)

    def _tools(self, sim: Simulation, id: str) -> tuple[str, ...]:
        """Which tools the model of a run is shown."""
        tools = self.tools.get(id)
        if tools is None:
            spec, shared = self.specs[id], sim.trees.shared
            all_of_them = shared.definitions[spec.request.agent].tools
            tools = tuple(t for t in all_of_them if capabilities.allows(spec.permissions, t))
            self.tools[id] = tools
        return tools

    def failure(self, sim: Simulation, effect: CallModel) -> tuple[str, bool, int] | None:
        at = (effect.run, effect.attempt)
        if at not in self.failures:
            path = self.paths[effect.run]
            self.failures[at] = script.failure(sim.seed, path, effect.attempt)
        return self.failures[at]

    def leave(self, sim: Simulation, effect: CallModel) -> None:
        """A model call reaches its provider: from now on it costs something, unless it fails."""
        at = (effect.run, effect.attempt)
        if at not in self.left:
            self.left.add(at)
            if self.failure(sim, effect) is None:
                self._meter(sim, effect.run, self.replies[at])

    def _meter(self, sim: Simulation, id: str, reply: ModelReply) -> None:
        """Money that is really gone, whether or not the answer ever arrives: on the run and on all
        above it."""
        tokens = reply.usage.input + reply.usage.output
        nanos = script.MODEL.cost_of(reply.usage)
        while id:
            spec = self.specs[id]
            self.spent[id] += tokens
            self.nanos[id] += nanos
            self.turns[id] += 1
            budget, more = spec.request.budget, self.raised.get(id, (0, 0, 0, 0))
            if not (budget.tokens is None or self.spent[id] <= budget.tokens + more[0]):
                broken(f"I10 {id} spent {self.spent[id]} tokens")
            if not (budget.usd is None or self.nanos[id] <= round(budget.usd * 1e9) + more[1]):
                broken(f"I10 {id} spent too much money")
            if not (budget.turns is None or self.turns[id] <= budget.turns + more[2]):
                broken(f"I10 {id} took {self.turns[id]} turns")
            id = spec.parent
