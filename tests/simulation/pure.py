"""The pure machine under random schedules: answers in any order, duplicates, late answers, crashes,
cancels, messages.

The driver plays engine and world: it commits, performs, crashes and recovers. It keeps its own
books (what was really started, what was really spent, what was really said) and the checks
compare the machine with them: what a step can break after it, the rest when it is written."""

from __future__ import annotations

import random
from collections.abc import Sequence

from retinue.core.effects import (
    AbortRun,
    AnswerStep,
    AskSlot,
    CallModel,
    CallTool,
    Effect,
    FreeSlot,
    ScheduleDelivery,
    SendDelivery,
)
from retinue.core.events import (
    Admitted,
    AgentRegistered,
    AnyEvent,
    MailReceived,
    ModelRegistered,
    Opened,
    Recovered,
    Requested,
)
from retinue.core.state import Run, attempts_of
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Origin, Permissions, Restart
from retinue.runtime import recover
from retinue.store.memory import MemoryStore
from tests.simulation import (
    actions,
    answers,
    effect_checks,
    end_checks,
    functions,
    script,
    tree_checks,
    waits,
    world_checks,
)
from tests.simulation.books import Books
from tests.simulation.memory import now
from tests.simulation.violation import Violation


class Simulation:
    """One schedule."""

    def __init__(self, seed: int, most_actions: int = 120) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        # A swarm: each schedule has its own set of faults, so that rare ones are not always masked
        # by frequent ones.
        self.faults = {f for f in script.FAULTS if self.random.random() < 0.5} | (
            {"crash"} if seed % 4 else set()
        )
        self.most_actions = most_actions
        self.store = MemoryStore()
        self.at = 1_800_000_000_000
        self.rules = script.rules(seed)
        self.flying: list[Effect] = []
        self.heard: list[tuple[str, AnyEvent]] = []
        self.admissions: list[tuple[str, int]] = []
        self.functions: dict[functions.Key, functions.Function] = {}
        self.steered: set[str] = set()
        self.hurried: set[str] = set()
        self.steps = self.crashes = 0
        self.said_yes: set[object] = set()
        self.aside: dict[str, bool] = {}
        self.had_defect = False
        self.books, self.order = Books(), waits.Order()
        self.crash_rate = 0.0
        self.boot()
        for definition in script.DEFINITIONS:
            self.take("", AgentRegistered(definition=definition))
        self.take("", ModelRegistered(model=script.MODEL))
        origin = Origin(channel="hook") if self.random.random() < 0.5 else None
        order = script._with(
            script.root_order(seed), {"origin": origin, "announce": origin is not None}
        )
        first, second = script.ROOTS
        self.take(
            "",
            Requested(id=first, request=order, permissions=Permissions(depth=3, comms=(second,))),
        )
        if self.random.random() < 0.4:
            # A second tree: it shares lanes with the first, and their roots write to each other;
            # nothing else.
            other = script._with(script.root_order(seed + 1), {"lanes": order.lanes})
            self.take(
                "",
                Requested(
                    id=second, request=other, permissions=Permissions(depth=3, comms=(first,))
                ),
            )
        self.commit()
        self.crash_rate = self.random.choice((0.03, 0.1, 0.25)) if "crash" in self.faults else 0.0

    # life and death

    def boot(self) -> None:
        self.store = self.store.survivor()
        epoch = now(self.store.open())
        snapshot = now(self.store.load())
        self.trees = Trees(self.rules)
        snapshot_runs = recover.rebuild(self.trees, snapshot)
        self.flying.clear()
        self.functions.clear()
        self.admissions.clear()
        self.aside.clear()
        self.booting = True
        self.take("", Opened(epoch=epoch, limits=self.rules))
        if self.crashes and script.loses_price(self.seed):
            self.take("", ModelRegistered(model=script.UNPRICED))
        for delivery in snapshot.deliveries:
            if delivery.state in ("pending", "sent"):
                self.flying.append(ScheduleDelivery(key=delivery.key, at=delivery.next_at))
        specs = {spec.id: (spec, run) for spec, run in self.trees.live()}
        for spec, run in [specs[id] for id in snapshot_runs]:
            if self.run_of(spec.id) is None:
                continue
            calls = now(recover.open_calls(spec, run, self.store.messages, restart_class))
            unsent = tuple(a for a in attempts_of(run) if (spec.id, a) not in self.books.left)
            found_open = Recovered(
                epoch=epoch, turn=run.turn, attempt=run.attempt, calls=calls, unsent=unsent
            )
            self.take(spec.id, found_open)
        self.booting = False
        self.order.boot(self)

    def crash(self) -> None:
        """Everything that was not committed is gone. Answers that were on their way may still
        arrive, late."""
        self.crashes += 1
        self.at += self.random.choice((0, 10, 2_000, 30_000))
        if "late" in self.faults:
            self._hear_late(self.flying[:3])
            self.heard.extend((id, Admitted(ticket=ticket)) for id, ticket in self.admissions)
        self.boot()
        self.commit()

    def run_of(self, id: str) -> Run | None:
        return self.trees.run(id)

    def tree_of(self, id: str) -> Tree:
        tree = self.trees.of(id)
        assert tree is not None
        return tree

    # steps

    def take(self, run: str, event: AnyEvent) -> str:
        """One step; returns why it was refused, or ""."""
        self.steps += 1
        if isinstance(event, MailReceived) and event.mail.steer:
            self.steered.add(run)
        why = self.trees.apply(run, self.at, event)
        if not self.booting:
            tree_checks.after_step(self)
        return why

    def commit(self) -> None:
        """One transaction; a crash may come before it, or before its effects are performed."""
        tree_checks.before_commit(self)
        if self.random.random() < self.crash_rate and self.crashes < 40:
            return self.crash()
        changes = self.trees.take_changes()
        world_checks.before_commit(self, changes)
        now(self.store.commit(changes))
        self.books.committed(changes)
        if self.random.random() < self.crash_rate and self.crashes < 40:
            return self.crash()
        for effect in changes.effects:
            self.perform(effect)
        return world_checks.after_commit(self, changes)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, AbortRun):
            starts = [e for e in self.flying if isinstance(e, CallModel | CallTool)]
            stopped = [e for e in starts if e.run == effect.run]
            if "late" in self.faults:
                self._hear_late(stopped)
            self.flying = [e for e in self.flying if e not in stopped]
            for key in [k for k in self.functions if k[0] == effect.run]:
                del self.functions[key]
            if effect.attempt:
                self.flying.append(effect)
            return
        if isinstance(effect, AskSlot | FreeSlot):
            if (granted := self.trees.seat(effect)) is not None:
                self.admissions.append(granted)
            else:
                admissions = [a for a in self.admissions if a[0] == effect.run]
                self.heard.extend((id, Admitted(ticket=ticket)) for id, ticket in admissions)
                self.admissions = [a for a in self.admissions if a not in admissions]
            return
        if isinstance(effect, AnswerStep):
            functions.answered(self, effect)
            return
        effect_checks.before_effect(self, effect)
        self.books.started(self, effect)
        self.flying.append(effect)

    def _hear_late(self, effects: Sequence[Effect]) -> None:
        for effect in filter(self.has_left, effects):
            run, event = answers.answer(self, effect)
            if event is not None:
                self.heard.append((run, event))

    def has_left(self, effect: Effect) -> bool:
        return not isinstance(effect, CallModel) or (effect.run, effect.attempt) in self.books.left

    def run(self) -> None:
        """Random actions, then no more faults: everything must come to its end."""
        for _ in range(self.most_actions):
            if self._is_over():
                break
            actions.act(self)
        self.faults, self.crash_rate = set(), 0.0
        for _ in range(2_000):
            if self._is_over():
                break
            actions.act(self)
        else:
            raise Violation(f"I20 something never ends: {list(self.trees.live())}")
        end_checks.at_the_end(self)

    def _is_over(self) -> bool:
        """Whether nothing is left to do. What was set aside is taken up by another process."""
        if not self.trees.has_runs and not self._due() and self.aside:
            self.crash()
        return not self.trees.has_runs and not self._due() and not self.aside

    def _due(self) -> bool:
        return any(isinstance(e, (ScheduleDelivery, SendDelivery)) for e in self.flying)


def restart_class(agent: str, name: str) -> Restart:
    return script.RESTART.get(name, "unsafe")  # type: ignore[return-value]
