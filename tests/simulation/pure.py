"""The pure machine under random schedules: answers in any order, duplicates, late answers, crashes, cancels, messages.

The driver plays engine and world: it commits, performs, crashes and recovers. It keeps its own books (what was really
started, what was really spent, what was really said) and `invariants` compares the machine with them after every step.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

from retinue.core import machine
from retinue.core.effects import Abort, CallModel, CallTool, Compose, Deliver, Effect, Transmit
from retinue.core.events import (
    Acked,
    Answered,
    AnyEvent,
    Asked,
    Bounced,
    CancelAsked,
    ChildEnded,
    Composed,
    Decided,
    Described,
    ModelFailed,
    Narrowed,
    Opened,
    Ordered,
    Recovered,
    Registered,
    Replied,
    Requested,
    Sent,
    Submitted,
    ToolReturned,
    Woke,
)
from retinue.core.policy import allows
from retinue.core.roster import Changes, Roster
from retinue.core.state import Asking, Working
from retinue.core.values import Capabilities, Origin, Restart
from retinue.runtime import recover
from retinue.store.memory import MemoryStore
from tests.simulation import invariants, script

FAULTS = ("crash", "duplicate", "late", "cancel", "mail", "steer", "narrow", "slow", "bounce")


class Violation(AssertionError):
    """An invariant does not hold. `schedule` replays it."""


def now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never really waits (the memory store's)."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the memory store waited")


class Simulation:
    """One schedule."""

    def __init__(self, seed: int, most_actions: int = 120) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        # A swarm: each schedule has its own set of faults, so that rare ones are not always masked by frequent ones.
        self.faults = {f for f in FAULTS if self.random.random() < 0.5} | ({"crash"} if seed % 4 else set())
        self.most_actions = most_actions
        self.store = MemoryStore()
        self.at = 1_800_000_000_000
        self.rules = script.rules(seed)
        self.flying: list[Effect] = []
        self.heard: list[tuple[str, AnyEvent]] = []
        self.steps = self.crashes = 0
        self.said_yes: set[object] = set()
        self.books = invariants.Books()
        self.crash_rate = 0.0
        self.boot()
        for definition in script.DEFINITIONS:
            self.take("", Registered(definition=definition))
        self.take("", Described(model=script.MODEL))
        origin = Origin(channel="hook") if self.random.random() < 0.5 else None
        order = script._with(script.root_order(seed), {"origin": origin, "announce": origin is not None})
        self.root = "00000000-0000-7000-8000-000000000000"
        self.take("", Requested(id=self.root, order=order, capabilities=Capabilities(depth=3)))
        self.commit()
        self.crash_rate = self.random.choice((0.03, 0.1, 0.25)) if "crash" in self.faults else 0.0

    # life and death

    def boot(self) -> None:
        self.store = self.store.survivor()
        epoch = now(self.store.open())
        snapshot = now(self.store.load())
        self.roster = Roster(self.rules)
        found = recover.rebuild(self.roster, snapshot)
        self.flying.clear()
        self.booting = True
        self.take("", Opened(epoch=epoch, rules=self.rules))
        for delivery in snapshot.deliveries:
            if delivery.state in ("pending", "sent"):
                self.flying.append(Deliver(key=delivery.key, at=delivery.next_at))
        scanned = [(self.roster.specs[id], self.roster.runs[id]) for id in found]
        for spec, run in scanned:
            if spec.id not in self.roster.runs:
                continue
            calls = now(recover.open_calls(spec, run, self.store.messages, restart_class))
            self.take(spec.id, Recovered(epoch=epoch, turn=run.turn, attempt=run.attempt, calls=calls))
        self.booting = False
        invariants.after_step(self)

    def crash(self) -> None:
        """Everything that was not committed is gone. Answers that were on their way may still arrive, late."""
        self.crashes += 1
        self.at += self.random.choice((0, 10, 2_000, 30_000))
        if "late" in self.faults:
            for effect in self.flying[:3]:
                self.heard.extend((run, event) for run, event in [self.answer(effect)] if event is not None)
        self.books.forget_uncommitted()
        self.boot()
        self.commit()

    # steps

    def take(self, run: str, event: AnyEvent) -> None:
        self.steps += 1
        machine.apply(self.roster, run, self.at, event)
        invariants.after_step(self)

    def commit(self) -> None:
        """One transaction; a crash may come before it, or before its effects are performed."""
        if self.random.random() < self.crash_rate and self.crashes < 40:
            return self.crash()
        changes: Changes = self.roster.take_changes()
        now(self.store.commit(changes))
        self.books.committed(changes)
        if self.random.random() < self.crash_rate and self.crashes < 40:
            return self.crash()
        for effect in changes.effects:
            self.perform(effect)
        return invariants.after_commit(self)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, Abort):
            stopped = [e for e in self.flying if getattr(e, "run", None) == effect.run and not isinstance(e, Compose)]
            if "late" in self.faults:
                self.heard.extend((e.run, self.answer(e)[1]) for e in stopped)  # type: ignore[misc]
            self.flying = [e for e in self.flying if e not in stopped]
            return
        invariants.before_effect(self, effect)
        self.books.started(self, effect)
        self.flying.append(effect)

    # the world

    def answer(self, effect: Effect) -> tuple[str, AnyEvent | None]:
        """What the world answers to an effect. Pure, so that a repeated effect is answered alike."""
        match effect:
            case CallModel():
                return effect.run, self._model_answer(effect)
            case CallTool():
                return effect.run, self._tool_answer(effect)
            case Compose():
                texts = [
                    (j.index, j.call_id, j.name, " ".join(o.ending.text for o in j.outcomes)) for j in effect.calls
                ]
                return effect.run, Composed(turn=effect.turn, calls=tuple(texts))
            case Deliver():
                return "", Sent(key=effect.key, text="in words")
            case Transmit():
                if "bounce" in self.faults and self.random.random() < 0.3:
                    return "", Bounced(key=effect.key, error="busy")
                self.books.received[effect.key] += 1
                return "", Acked(key=effect.key)
            case _:
                return "", None

    def _model_answer(self, effect: CallModel) -> AnyEvent:
        path = self.books.paths[effect.run]
        fails = script.failure(self.seed, path, effect.attempt)
        if fails is not None:
            kind, retry, after = fails
            return ModelFailed(attempt=effect.attempt, kind=kind, message=kind, retry=retry, after_ms=after)
        return Replied(attempt=effect.attempt, reply=self.books.replies[(effect.run, effect.attempt)])

    def _tool_answer(self, effect: CallTool) -> AnyEvent:
        turn, index, call = effect.turn, effect.index, effect.call
        where = {"turn": turn, "index": index, "call_id": call.id, "name": call.name}
        if call.name == "hand_out":
            return Ordered(**where, orders=script.orders(self.seed, self.books.paths[effect.run], turn, index))
        if call.name == "watch" and not effect.woken:
            children = tuple(self.roster.children.get(effect.run, ()))
            return Ordered(**where, orders=script.watch(self.seed, self.books.paths[effect.run], turn, index, children))
        if call.name == "submit_result":
            return Submitted(**where, text="" if turn == 3 else f"<{self.books.paths[effect.run]}>")
        if call.name == "ask":
            return Asked(**where, question="?")
        return ToolReturned(**where, text=f"{call.name} done", error=call.name == "nothing")

    # the schedule

    def run(self) -> None:
        """Random actions, then no more faults: everything must come to its end."""
        for _ in range(self.most_actions):
            if not self.roster.runs and not self._due():
                break
            self.act()
        self.faults, self.crash_rate = set(), 0.0
        for _ in range(2_000):
            if not self.roster.runs and not self._due():
                break
            self.act()
        else:
            raise Violation(f"I20 something never ends: {self.roster.runs}")
        invariants.at_the_end(self)

    def _due(self) -> bool:
        return any(isinstance(e, (Deliver, Transmit)) for e in self.flying)

    def act(self) -> None:
        r = self.random
        for _ in range(r.choice((1, 1, 2, 3))):
            self._one()
        self.commit()

    def _one(self) -> None:
        """One thing happens: a fault of this schedule's kinds, an answer, or time."""
        r, live = self.random, list(self.roster.runs)
        if live and r.random() < 0.15 and self._fault(r.choice(sorted(FAULTS)), live):
            return None
        asking = [i for i in live if isinstance(self.roster.runs[i].state, (Asking, Working))]
        if asking and (not self.flying or r.random() < 0.3) and self._reply_to_question(r.choice(asking)):
            return None
        if self.flying and r.random() < (0.8 if "slow" in self.faults else 0.95):
            effect = self.flying.pop(r.randrange(len(self.flying)))
            run, event = self.answer(effect)
            if event is not None:
                if isinstance(effect, Deliver):
                    self.at = max(self.at, effect.at)
                self.heard.append((run, event))
                self.take(run, event)
            return None
        return self._wake()

    def _fault(self, kind: str, live: list[str]) -> bool:
        r = self.random
        if kind not in self.faults:
            return False
        if kind == "duplicate" and self.heard:
            if r.random() < 0.3:
                self.take(r.choice(live), ChildEnded(child=r.choice([*live, *self.books.ended, "nobody"])))
            else:
                self.take(*r.choice(self.heard))
        elif kind == "late" and self.heard:
            self.take(*self.heard.pop(r.randrange(len(self.heard))))
        elif kind == "cancel" and r.random() < 0.3:
            self.take(r.choice(live), CancelAsked(reason="sim"))
        elif kind in ("mail", "steer"):
            self.take(r.choice(live), self.books.mail(self, steer=kind == "steer"))
        elif kind == "narrow":
            self.take(r.choice(live), Narrowed(access=Capabilities(deny=(r.choice(script.TOOLS),))))
        else:
            return False
        return True

    def _reply_to_question(self, id: str) -> bool:
        run = self.roster.runs[id]
        calls = run.state.calls  # type: ignore[union-attr]
        if not calls.asks:
            return False
        index = (calls.asks & -calls.asks).bit_length() - 1
        asked = next(q for q in calls.questions if q.index == index)
        if asked.kind == "permission":
            at = (self.roster.specs[id].conversation, calls.message)
            said = self.books.messages.get(at[0], {}).get(at[1])
            said = said or next(m for c, n, m in self.roster.changes.messages if (c, n) == at)
            call, allow = said.calls[index], self.random.random() < 0.7  # type: ignore[union-attr]
            always = self.random.random() < 0.2
            decided = Decided(question=asked.id, turn=run.turn, index=index, call=call, allow=allow, always=always)
            if allow:
                self.said_yes.add((id, run.turn, index))
            if allow and always:
                self.said_yes.add(self.roster.specs[id].root)
            self.take(id, decided)
            return True
        self.take(id, Answered(turn=run.turn, index=index, call_id=f"t{run.turn - 1}i{index}", text="yes"))
        return True

    def _wake(self) -> None:
        """Move the clock to the next timer, or a little."""
        if self.roster.changes.effects:
            return None
        timers = sorted((run.wake_at, id) for id, run in self.roster.runs.items() if run.wake_at is not None)
        if timers and (not self.flying or self.random.random() < 0.3):
            at, id = timers[0]
            if not self.flying or at - self.at < 10_000:
                self.at = max(self.at, at)
                return self.take(id, Woke())
        self.at += self.random.choice((1, 20, 400))
        return None


def restart_class(agent: str, name: str) -> Restart:
    return script.RESTART.get(name, "unsafe")  # type: ignore[return-value]


def tools_of(sim: Simulation, id: str) -> tuple[str, ...]:
    spec = sim.roster.specs[id]
    definition = sim.roster.definitions[spec.order.agent]
    return tuple(t for t in definition.tools if allows(spec.capabilities, t))
