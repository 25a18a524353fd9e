"""What really happened, kept apart from the machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.effects import (
    CallModel,
    CallTool,
    Effect,
)
from retinue.core.events import (
    CancelAsked,
    ChildEnded,
    LogEntry,
    Posted,
    Recovered,
    Requested,
)
from retinue.core.messages import Message, Reply
from retinue.core.spec import Spec
from retinue.core.state import (
    Ended,
    Run,
    Stopping,
    Thinking,
)
from retinue.core.values import Delivery, Ending, Mail
from tests.simulation import commit_checks, provenance, script
from tests.simulation.violation import broken, must

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


@dataclass
class Books:
    """What really happened, kept apart from the machine."""

    paths: dict[str, str] = field(default_factory=dict)
    specs: dict[str, Spec] = field(default_factory=dict)
    replies: dict[tuple[str, int], Reply] = field(default_factory=dict)
    left: set[tuple[str, int]] = field(default_factory=set)
    accounts: dict[str, Account] = field(default_factory=dict)
    messages: dict[str, dict[int, Message]] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    nanos: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    tool_starts: Counter[str] = field(default_factory=Counter)
    call_keys: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Run] = field(default_factory=dict)
    cancels: dict[str, CancelAsked] = field(default_factory=dict)
    stopping: dict[str, Ending] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    sent: int = 0
    checked: set[tuple[str, int, str]] = field(default_factory=set)
    attempts: Counter[str] = field(default_factory=Counter)
    mail_sent: dict[str, list[str]] = field(default_factory=dict)
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
    lawful: dict[str, Spec] = field(default_factory=dict)

    def mail(self, sim: Simulation, *, steer: bool) -> Posted:
        self.sent += 1
        return Posted(mail=Mail(seq=0, text=f"<mail {self.sent}>", steer=steer))

    def committed(self, changes: Changes) -> None:
        """The transaction is durable: what it says can be held against the machine from now on."""
        for spec in changes.specs:
            if not (spec.id not in self.specs):
                broken(f"I1 {spec.id} was started twice")
            self.specs[spec.id] = spec
            self.paths[spec.id] = spec.path if spec.root.endswith("0") else f"b{spec.path}"
        for conversation, n, message in changes.messages:
            mine = self.messages.setdefault(conversation, {})
            if not (n not in mine):
                broken(f"I14 message {n} of {conversation} was written twice")
            mine[n] = message
        for entry in changes.entries:
            if entry.stale and isinstance(entry.event, (Requested, Recovered)):
                broken(f"refused: {entry.stale}")
        self.log += changes.entries
        commit_checks.decided(self, changes)
        self.deliveries.update(changes.deliveries)
        self.accounts.update({id: replace(account) for id, account in changes.accounts.items()})
        commit_checks.deleted(self, changes)
        commit_checks.letters(self, changes)
        for entry in changes.entries:
            if isinstance(entry.event, ChildEnded) and not entry.stale:
                if not (entry.event.child not in self.told.setdefault(entry.run, set())):
                    broken(f"I3 {entry.run} was told twice that {entry.event.child} ended")
                self.told[entry.run].add(entry.event.child)
        asked = [
            (e.run, e.event)
            for e in changes.entries
            if isinstance(e.event, CancelAsked) and not e.stale
        ]
        self.cancels = {**dict(reversed(asked)), **self.cancels}
        before = set(self.ended)
        for id, run in changes.runs.items():
            if isinstance(run.state, Ended):
                if not (id not in self.ended):
                    broken(f"I1 {id} ended twice")
                self.ended[id] = run
            else:
                if not (id not in self.ended):
                    broken(f"I1 {id} lives after its end")
                if isinstance(run.state, Stopping):
                    self.stopping[id] = run.state.ending
        self._mail(changes)
        for id in self.ended.keys() - before:
            commit_checks.truthful(self, id, self.ended[id])
            commit_checks.heard_of(self, id, changes, before)
            found = provenance.count(self, id, before)
            found = found or provenance.unheard(self, id, self.boxes.pop(id, {}).values(), changes)
            must(not found, found)
        for delivery in changes.deliveries.values():
            members = [
                s
                for s in self.specs.values()
                if s.parent == delivery.run and s.order.group == delivery.group
            ]
            if delivery.group and any(s.id not in self.ended for s in members):
                broken(f"I4 group {delivery.group} was summed up before its last member ended")
        for id, below in self.alone_by_then.items():
            if not (all(b in self.ended for b in below)):
                broken(f"I7 {id} ended before those it answers for: {below}")
        self.alone_by_then.clear()

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
            from tests.simulation.pure import tools_of

            most_in = state.hold[0] - effect.max_output
            path = self.paths[effect.run]
            reply = script.reply(
                sim.seed,
                path,
                run.turn,
                effect.purpose,
                tools_of(sim, effect.run),
                most_in,
                effect.max_output,
            )
            self.replies[(effect.run, effect.attempt)] = reply
            if script.leaves_at_once(sim.seed, path, effect.attempt):
                self.leave(sim, effect)

    def leave(self, sim: Simulation, effect: CallModel) -> None:
        """A model call reaches its provider: from now on it costs something, unless it fails."""
        at = (effect.run, effect.attempt)
        if at not in self.left:
            self.left.add(at)
            if script.failure(sim.seed, self.paths[effect.run], effect.attempt) is None:
                self._meter(sim, effect.run, self.replies[at])

    def _meter(self, sim: Simulation, id: str, reply: Reply) -> None:
        """Money that is really gone, whether or not the answer ever arrives: on the run and on all
        above it."""
        tokens = reply.usage.input + reply.usage.output
        nanos = script.MODEL.cost(reply.usage.input, reply.usage.output)
        while id:
            spec = self.specs[id]
            self.spent[id] += tokens
            self.nanos[id] += nanos
            self.turns[id] += 1
            budget, more = spec.order.budget, self.raised.get(id, (0, 0, 0, 0))
            if not (budget.tokens is None or self.spent[id] <= budget.tokens + more[0]):
                broken(f"I10 {id} spent {self.spent[id]} tokens")
            if not (budget.usd is None or self.nanos[id] <= round(budget.usd * 1e9) + more[1]):
                broken(f"I10 {id} spent too much money")
            if not (budget.turns is None or self.turns[id] <= budget.turns + more[2]):
                broken(f"I10 {id} took {self.turns[id]} turns")
            id = spec.parent
