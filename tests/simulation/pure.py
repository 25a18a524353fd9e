"""The pure machine under random schedules: answers in any order, duplicates, late answers, crashes,
cancels, messages.

The driver plays engine and world: it commits, performs, crashes and recovers. It keeps its own
books (what was really started, what was really spent, what was really said) and the checks
compare the machine with them: what a step can break after it, the rest when it is written."""

from __future__ import annotations

import random

from msgspec.structs import replace

from retinue.core import limit_questions as limits
from retinue.core import machine
from retinue.core.effects import (
    Abort,
    AskSlot,
    CallModel,
    CallTool,
    Compose,
    Deliver,
    Effect,
    FreeSlot,
    Transmit,
)
from retinue.core.events import (
    Aborted,
    Acked,
    Admitted,
    Answered,
    AnyEvent,
    Asked,
    Bounced,
    CancelAsked,
    ChildEnded,
    Composed,
    Decided,
    Described,
    LimitChanged,
    ModelFailed,
    Narrowed,
    Opened,
    Ordered,
    Recovered,
    Registered,
    Replied,
    Requested,
    RunEvent,
    Sent,
    Submitted,
    ToolReturned,
    Woke,
)
from retinue.core.state import Asking, Ended, Queued, Run, Working, attempts_of
from retinue.core.step_context import StepContext
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Capabilities, Origin, Restart
from retinue.runtime import recover
from retinue.store.memory import MemoryStore
from tests.simulation import effect_checks, end_checks, script, tree_checks, waits, world_checks
from tests.simulation.books import Books
from tests.simulation.memory import now
from tests.simulation.violation import Violation, must

FAULTS = (
    "crash",
    "duplicate",
    "late",
    "cancel",
    "mail",
    "steer",
    "narrow",
    "slow",
    "bounce",
    "generous",
    "defect",
)
BY_NAME = sorted(FAULTS)


MORE = ((1, 400, 3_000), (10, 900, 9_000), (1, 2), (1, 3))
"""By how much a person raises a limit: hardly, by less than a turn, by more."""
ROOTS = ("00000000-0000-7000-8000-000000000000", "00000000-0000-7000-8000-000000000001")


class Simulation:
    """One schedule."""

    def __init__(self, seed: int, most_actions: int = 120) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        # A swarm: each schedule has its own set of faults, so that rare ones are not always masked
        # by frequent ones.
        self.faults = {f for f in FAULTS if self.random.random() < 0.5} | (
            {"crash"} if seed % 4 else set()
        )
        self.most_actions = most_actions
        self.store = MemoryStore()
        self.at = 1_800_000_000_000
        self.rules = script.rules(seed)
        self.flying: list[Effect] = []
        self.heard: list[tuple[str, AnyEvent]] = []
        self.admissions: list[tuple[str, int]] = []
        self.steps = self.crashes = 0
        self.said_yes: set[object] = set()
        self.aside: dict[str, bool] = {}
        self.had_defect = False
        self.books, self.order = Books(), waits.Order()
        self.crash_rate = 0.0
        self.boot()
        for definition in script.DEFINITIONS:
            self.take("", Registered(definition=definition))
        self.take("", Described(model=script.MODEL))
        origin = Origin(channel="hook") if self.random.random() < 0.5 else None
        order = script._with(
            script.root_order(seed), {"origin": origin, "announce": origin is not None}
        )
        first, second = ROOTS
        self.take(
            "",
            Requested(id=first, order=order, capabilities=Capabilities(depth=3, comms=(second,))),
        )
        if self.random.random() < 0.4:
            # A second tree: it shares lanes with the first, and their roots write to each other;
            # nothing else.
            other = script._with(script.root_order(seed + 1), {"lanes": order.lanes})
            self.take(
                "",
                Requested(
                    id=second, order=other, capabilities=Capabilities(depth=3, comms=(first,))
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
        found = recover.rebuild(self.trees, snapshot)
        self.flying.clear()
        self.admissions.clear()
        self.aside.clear()
        self.booting = True
        self.take("", Opened(epoch=epoch, rules=self.rules))
        for delivery in snapshot.deliveries:
            if delivery.state in ("pending", "sent"):
                self.flying.append(Deliver(key=delivery.key, at=delivery.next_at))
        known = {spec.id: (spec, run) for spec, run in self.trees.live()}
        for spec, run in [known[id] for id in found]:
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
            for effect in filter(self._has_left, self.flying[:3]):
                self.heard.extend(
                    (run, event) for run, event in [self.answer(effect)] if event is not None
                )
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

    def take(self, run: str, event: AnyEvent) -> None:
        self.steps += 1
        self.trees.apply(run, self.at, event)
        if not self.booting:
            tree_checks.after_step(self)

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
        if isinstance(effect, Abort):
            begun = [e for e in self.flying if isinstance(e, CallModel | CallTool)]
            stopped = [e for e in begun if e.run == effect.run]
            if "late" in self.faults:
                self.heard.extend((e.run, self.answer(e)[1]) for e in stopped if self._has_left(e))  # type: ignore[misc]
            self.flying = [e for e in self.flying if e not in stopped]
            if effect.attempt:
                self.flying.append(effect)
            return
        if isinstance(effect, AskSlot | FreeSlot):
            if (granted := self.trees.seat(effect)) is not None:
                self.admissions.append(granted)
            else:
                gone = [a for a in self.admissions if a[0] == effect.run]
                self.heard.extend((id, Admitted(ticket=ticket)) for id, ticket in gone)
                self.admissions = [a for a in self.admissions if a not in gone]
            return
        effect_checks.before_effect(self, effect)
        self.books.started(self, effect)
        self.flying.append(effect)

    # the world

    def _has_left(self, effect: Effect) -> bool:
        return not isinstance(effect, CallModel) or (effect.run, effect.attempt) in self.books.left

    def answer(self, effect: Effect) -> tuple[str, AnyEvent | None]:
        """What the world answers to an effect. Pure, so that a repeated effect is answered
        alike."""
        match effect:
            case CallModel():
                return effect.run, self._model_answer(effect)
            case CallTool():
                return effect.run, self._tool_answer(effect)
            case Compose():
                texts = [
                    (j.index, j.call_id, j.name, " ".join(o.ending.text for o in j.outcomes))
                    for j in effect.calls
                ]
                return effect.run, Composed(turn=effect.turn, calls=tuple(texts))
            case Abort():
                reply = self.books.replies.get((effect.run, effect.attempt))
                is_told = reply is not None and self.random.random() < 0.5
                is_sent = (effect.run, effect.attempt) in self.books.left
                usage = reply.usage if reply is not None and is_told and is_sent else None
                return effect.run, Aborted(attempt=effect.attempt, sent=is_sent, usage=usage)
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
        self.books.leave(self, effect)
        fails = self.books.failure(self, effect)
        if fails is not None:
            kind, retry, after = fails
            return ModelFailed(
                attempt=effect.attempt, kind=kind, message=kind, retry=retry, after_ms=after
            )
        return Replied(
            attempt=effect.attempt, reply=self.books.replies[(effect.run, effect.attempt)]
        )

    def _tool_answer(self, effect: CallTool) -> AnyEvent:
        turn, index, call = effect.turn, effect.index, effect.call
        where = {"turn": turn, "index": index, "call_id": call.id, "name": call.name}
        if call.name == "hand_out":
            orders = script.orders(self.seed, self.books.paths[effect.run], turn, index)
            if effect.run in ROOTS:
                orders = replace(
                    orders, sends=script.letters(self.seed, effect.run, turn, index, ROOTS)
                )
            return Ordered(**where, orders=orders)
        if call.name == "watch" and not effect.woken:
            tree = self.trees.of(effect.run)
            children = tuple(tree.children.get(effect.run, ())) if tree is not None else ()
            return Ordered(
                **where,
                orders=script.watch(self.seed, self.books.paths[effect.run], turn, index, children),
            )
        if call.name == "submit_result":
            return Submitted(**where, text="" if turn == 3 else f"<{self.books.paths[effect.run]}>")
        if call.name == "ask":
            return Asked(**where, question="?")
        return ToolReturned(**where, text=f"{call.name} done", error=call.name == "nothing")

    # the schedule

    def run(self) -> None:
        """Random actions, then no more faults: everything must come to its end."""
        for _ in range(self.most_actions):
            if self._is_over():
                break
            self.act()
        self.faults, self.crash_rate = set(), 0.0
        for _ in range(2_000):
            if self._is_over():
                break
            self.act()
        else:
            raise Violation(f"I20 something never ends: {list(self.trees.live())}")
        end_checks.at_the_end(self)

    def _is_over(self) -> bool:
        """Whether nothing is left to do. What was set aside is taken up by another process."""
        if not self.trees.has_runs and not self._due() and self.aside:
            self.crash()
        return not self.trees.has_runs and not self._due() and not self.aside

    def _due(self) -> bool:
        return any(isinstance(e, (Deliver, Transmit)) for e in self.flying)

    def act(self) -> None:
        r = self.random
        for _ in range(r.choice((1, 1, 2, 3))):
            self._one()
        self.commit()

    def _one(self) -> None:
        """One thing happens: a fault of this schedule's kinds, an answer, or time."""
        r, is_live = self.random, self.trees.has_runs
        if "defect" in self.faults and self.trees._letters and is_live and r.random() < 0.3:
            return self.break_a_tree(r.choice(self._live()))
        if is_live and r.random() < 0.15 and self._fault(r.choice(BY_NAME)):
            return None
        if self.admissions and r.random() < 0.5:
            id, ticket = self.admissions.pop(r.randrange(len(self.admissions)))
            self.heard.append((id, Admitted(ticket=ticket)))
            return self.take(id, Admitted(ticket=ticket))
        asking = [
            id
            for tree in self.trees.by_root.values()
            for id, run in tree.runs.items()
            if isinstance(run.state, Asking | Working)
        ]
        if (
            asking
            and (not self.flying or r.random() < 0.3)
            and self._reply_to_question(r.choice(asking))
        ):
            return None
        trees = [tree for tree in self.trees.index.asking.values() if tree.asking]
        if trees and r.random() < (0.5 if not self.flying else 0.1):
            question = r.choice(limits.open_questions(r.choice(trees)))
            return self._change_limit(question.account, question.id)
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

    def _live(self) -> list[str]:
        return [id for tree in self.trees.by_root.values() for id in tree.runs]

    def _fault(self, kind: str) -> bool:
        if kind not in self.faults:
            return False
        r, live = self.random, self._live()
        if kind == "duplicate" and self.heard:
            if r.random() < 0.3:
                self.take(
                    r.choice(live), ChildEnded(child=r.choice([*live, *self.books.ended, "nobody"]))
                )
            else:
                queued = {s.id for s, run in self.trees.live() if isinstance(run.state, Queued)}
                old = [
                    one for one in self.heard if one[0] in queued and isinstance(one[1], Admitted)
                ]
                self.take(*r.choice(old or self.heard))
        elif kind == "late" and self.heard:
            self.take(*self.heard.pop(r.randrange(len(self.heard))))
        elif kind == "cancel" and r.random() < 0.3:
            self.take(r.choice(live), CancelAsked(reason="sim"))
        elif kind in ("mail", "steer"):
            self.take(r.choice(live), self.books.mail(self, steer=kind == "steer"))
        elif kind == "generous":
            self._change_limit(r.choice(live), "")
        elif kind == "defect" and r.random() < 0.1:
            self.break_a_tree(r.choice(live))
        elif kind == "narrow":
            self.take(r.choice(live), Narrowed(access=Capabilities(deny=(r.choice(script.TOOLS),))))
        else:
            return False
        return True

    def _change_limit(self, account: str, question: str) -> None:
        """A person raises a limit, or says what becomes of it; asked or not, enough or not."""
        r, tree = self.random, self.tree_of(account)
        limit, then = tree.ledger.accounts[account].limit, r.choice(("", "", "", "", "land", "ask"))
        more = tuple(
            0 if of is None or r.random() < 0.3 else r.choice(MORE[i]) for i, of in enumerate(limit)
        )
        event = LimitChanged(add=(0, 0, 0, 0) if then else more, then=then, question=question)
        self.heard.append((account, event))
        self.take(account, event)

    def break_a_tree(self, id: str) -> None:
        """A step fails by a defect of ours: what its tree has changed since the last commit is
        dropped, everybody else goes on."""
        root, real = self.tree_of(id).root, machine.step  # type: ignore[attr-defined]
        before = {r: dict(tree.runs) for r, tree in self.trees.by_root.items()}

        def fails(run: Run, event: RunEvent, d: StepContext) -> Run:
            real(run, event, d)
            raise RuntimeError("planted")

        machine.step = fails  # type: ignore[attr-defined]
        try:
            self.trees.apply(id, self.at, self.books.mail(self, steer=False))
        finally:
            machine.step = real  # type: ignore[attr-defined]
        failed, self.trees.failed = [r for r, _ in self.trees.failed], []
        must(failed[:1] == [root], f"a planted defect broke {failed} and not {root}")
        for broken in failed:
            found = now(self.store.row(broken))
            row = None if found is None or isinstance(found.run.state, Ended) else found.run
            self.trees.set_aside(broken, self.at, "planted", row)
            self.aside[broken] = row is not None
            members = {s.id for s in self.books.specs.values() if s.root == broken}
            self.flying = [e for e in self.flying if not _is_of(e, broken, members, self.books)]
            self.admissions = [a for a in self.admissions if a[0] not in members]
        self.had_defect = True
        world_checks.set_aside(self, before, failed)

    def _reply_to_question(self, id: str) -> bool:
        run, tree = self.run_of(id), self.tree_of(id)
        assert run is not None
        calls = run.state.calls  # type: ignore[union-attr]
        if not calls.asks:
            return False
        index = (calls.asks & -calls.asks).bit_length() - 1
        asked = next(q for q in calls.questions if q.index == index)
        id = self.trees.index.questions[
            asked.id
        ]  # whoever has an answer knows the question, not the run
        if asked.kind == "permission":
            at = (tree.specs[id].conversation, calls.message)
            said = self.books.messages.get(at[0], {}).get(at[1])
            said = said or next(m for c, n, m in tree.changes.messages if (c, n) == at)
            call, allow = said.calls[index], self.random.random() < 0.7  # type: ignore[union-attr]
            always = self.random.random() < 0.2
            decided = Decided(
                question=asked.id, turn=run.turn, index=index, call=call, allow=allow, always=always
            )
            if allow:
                self.said_yes.add((id, run.turn, index))
            if allow and always:
                self.said_yes.add(tree.root)
            self.take(id, decided)
            return True
        self.take(
            id, Answered(turn=run.turn, index=index, call_id=f"t{run.turn - 1}i{index}", text="yes")
        )
        return True

    def _wake(self) -> None:
        """Move the clock to the next timer, or a little."""
        if any(tree.changes.effects for tree in self.trees.by_root.values()) or self.admissions:
            return None
        timers = sorted(
            (run.wake_at, run.id) for _, run in self.trees.live() if run.wake_at is not None
        )
        if timers and (not self.flying or self.random.random() < 0.3):
            at, id = timers[0]
            if not self.flying or at - self.at < 10_000:
                self.at = max(self.at, at)
                return self.take(id, Woke())
        self.at += self.random.choice((1, 20, 400))
        return None


def _is_of(effect: Effect, root: str, members: set[str], books: Books) -> bool:
    """Whether an effect belongs to this tree."""
    if isinstance(effect, Deliver | Transmit):
        return books.deliveries[effect.key].root == root
    return effect.run in members


def restart_class(agent: str, name: str) -> Restart:
    return script.RESTART.get(name, "unsafe")  # type: ignore[return-value]
