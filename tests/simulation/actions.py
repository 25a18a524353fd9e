"""What happens next in a schedule: a fault, an answer, or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core import limit_questions, machine
from retinue.core.effects import (
    Effect,
    ScheduleDelivery,
    SendDelivery,
)
from retinue.core.events import (
    Admitted,
    Answered,
    CancelAsked,
    ChildEnded,
    Decided,
    LimitChanged,
    PermissionsRestricted,
    RunEvent,
    Woke,
)
from retinue.core.state import Asking, Ended, Queued, Run, Working
from retinue.core.step_context import StepContext
from retinue.core.values import Permissions
from tests.simulation import (
    answers,
    functions,
    script,
    world_checks,
)
from tests.simulation.books import Books
from tests.simulation.memory import now
from tests.simulation.violation import must

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation

BY_NAME = sorted(script.FAULTS)
MORE = ((1, 400, 3_000), (10, 900, 9_000), (1, 2), (1, 3))
"""By how much a person raises a limit: hardly, by less than a turn, by more."""


def act(sim: Simulation) -> None:
    r = sim.random
    for _ in range(r.choice((1, 1, 2, 3))):
        _one(sim)
    sim.commit()


def _one(sim: Simulation) -> None:
    """One thing happens: a fault of this schedule's kinds, an answer, or time."""
    r, is_live = sim.random, sim.trees.has_runs
    if "defect" in sim.faults and sim.trees._letters and is_live and r.random() < 0.3:
        return _break_a_tree(sim, r.choice(_live(sim)))
    if is_live and r.random() < 0.15 and _fault(sim, r.choice(BY_NAME)):
        return None
    if sim.admissions and r.random() < 0.5:
        id, ticket = sim.admissions.pop(r.randrange(len(sim.admissions)))
        sim.heard.append((id, Admitted(ticket=ticket)))
        sim.take(id, Admitted(ticket=ticket))
        return None
    asking = [
        id
        for tree in sim.trees.by_root.values()
        for id, run in tree.runs.items()
        if isinstance(run.state, Asking | Working)
    ]
    if (
        asking
        and (not sim.flying or r.random() < 0.3)
        and _reply_to_question(sim, r.choice(asking))
    ):
        return None
    trees = [tree for tree in sim.trees.index.asking.values() if tree.asking]
    if trees and r.random() < (0.5 if not sim.flying else 0.1):
        question = r.choice(limit_questions.open_questions(r.choice(trees)))
        return _change_limit(sim, question.account, question.id)
    if sim.functions and (able := functions.ready(sim)) and r.random() < 0.6:
        return functions.go_on(sim, r.choice(able))
    if sim.flying and r.random() < (0.8 if "slow" in sim.faults else 0.95):
        effect = sim.flying.pop(r.randrange(len(sim.flying)))
        run, event = answers.answer(sim, effect)
        if event is not None:
            if isinstance(effect, ScheduleDelivery):
                sim.at = max(sim.at, effect.at)
            sim.heard.append((run, event))
            sim.take(run, event)
        return None
    return _wake(sim)


def _live(sim: Simulation) -> list[str]:
    return [id for tree in sim.trees.by_root.values() for id in tree.runs]


def _fault(sim: Simulation, kind: str) -> bool:
    if kind not in sim.faults:
        return False
    r, live = sim.random, _live(sim)
    if kind == "duplicate" and sim.heard:
        if r.random() < 0.3:
            sim.take(
                r.choice(live), ChildEnded(child=r.choice([*live, *sim.books.ended, "nobody"]))
            )
        else:
            queued = {s.id for s, run in sim.trees.live() if isinstance(run.state, Queued)}
            old = [one for one in sim.heard if one[0] in queued and isinstance(one[1], Admitted)]
            sim.take(*r.choice(old or sim.heard))
    elif kind == "late" and sim.heard:
        sim.take(*sim.heard.pop(r.randrange(len(sim.heard))))
    elif kind == "cancel" and r.random() < 0.3:
        sim.take(r.choice(live), CancelAsked(reason="sim"))
    elif kind in ("mail", "steer"):
        sim.take(r.choice(live), sim.books.mail(sim, steer=kind == "steer"))
    elif kind == "generous":
        _change_limit(sim, r.choice(live), "")
    elif kind == "defect" and r.random() < 0.1:
        _break_a_tree(sim, r.choice(live))
    elif kind == "narrow":
        sim.take(
            r.choice(live),
            PermissionsRestricted(permissions=Permissions(deny=(r.choice(script.TOOLS),))),
        )
    else:
        return False
    return True


def _change_limit(sim: Simulation, account: str, question: str) -> None:
    """A person raises a limit, or says what becomes of it; asked or not, enough or not."""
    r, tree = sim.random, sim.tree_of(account)
    limit, then = tree.ledger.accounts[account].limit, r.choice(("", "", "", "", "land", "ask"))
    more = tuple(
        0 if of is None or r.random() < 0.3 else r.choice(MORE[i]) for i, of in enumerate(limit)
    )
    event = LimitChanged(add=(0, 0, 0, 0) if then else more, then=then, question=question)
    sim.heard.append((account, event))
    sim.take(account, event)


def _break_a_tree(sim: Simulation, id: str) -> None:
    """A step fails by a defect of ours: what its tree has changed since the last commit is
    dropped, everybody else goes on."""
    root, real = sim.tree_of(id).root, machine.step  # type: ignore[attr-defined]
    before = {r: dict(tree.runs) for r, tree in sim.trees.by_root.items()}

    def fails(run: Run, event: RunEvent, d: StepContext) -> Run:
        real(run, event, d)
        raise RuntimeError("planted")

    machine.step = fails  # type: ignore[attr-defined]
    try:
        sim.trees.apply(id, sim.at, sim.books.mail(sim, steer=False))
    finally:
        machine.step = real  # type: ignore[attr-defined]
    failed, sim.trees.failed = [r for r, _ in sim.trees.failed], []
    must(failed[:1] == [root], f"a planted defect broke {failed} and not {root}")
    for call in failed:
        result = now(sim.store.row(call))
        row = None if result is None or isinstance(result.run.state, Ended) else result.run
        sim.trees.set_aside(call, sim.at, "planted", row)
        sim.aside[call] = row is not None
        members = {s.id for s in sim.books.specs.values() if s.root == call}
        sim.flying = [e for e in sim.flying if not _is_of(e, call, members, sim.books)]
        sim.admissions = [a for a in sim.admissions if a[0] not in members]
    sim.had_defect = True
    world_checks.set_aside(sim, before, failed)


def _reply_to_question(sim: Simulation, id: str) -> bool:
    run, tree = sim.run_of(id), sim.tree_of(id)
    assert run is not None
    calls = run.state.calls  # type: ignore[union-attr]
    if not calls.asks:
        return False
    index = (calls.asks & -calls.asks).bit_length() - 1
    question = next(q for q in calls.questions if q.index == index)
    id = sim.trees.index.questions[
        question.id
    ]  # whoever has an answer knows the question, not the run
    if question.kind == "permission":
        at = (tree.specs[id].conversation, calls.message)
        message = sim.books.messages.get(at[0], {}).get(at[1])
        message = message or next(m for c, n, m in tree.changes.messages if (c, n) == at)
        call, allow = message.calls[index], sim.random.random() < 0.7  # type: ignore[union-attr]
        always = sim.random.random() < 0.2
        decided = Decided(
            question=question.id, turn=run.turn, index=index, call=call, allow=allow, always=always
        )
        if allow:
            sim.said_yes.add((id, run.turn, index))
        if allow and always:
            sim.said_yes.add(tree.root)
        sim.take(id, decided)
        return True
    sim.take(
        id, Answered(turn=run.turn, index=index, call_id=f"t{run.turn - 1}i{index}", text="yes")
    )
    return True


def _wake(sim: Simulation) -> None:
    """Move the clock to the next timer, or a little."""
    if any(tree.changes.effects for tree in sim.trees.by_root.values()) or sim.admissions:
        return
    timers = sorted((run.wake_at, run.id) for _, run in sim.trees.live() if run.wake_at is not None)
    if timers and (not sim.flying or sim.random.random() < 0.3):
        at, id = timers[0]
        if not sim.flying or at - sim.at < 10_000:
            sim.at = max(sim.at, at)
            sim.take(id, Woke())
            return
    sim.at += sim.random.choice((1, 20, 400))
    return


def _is_of(effect: Effect, root: str, members: set[str], books: Books) -> bool:
    """Whether an effect belongs to this tree."""
    if isinstance(effect, ScheduleDelivery | SendDelivery):
        return books.deliveries[effect.key].root == root
    return effect.run in members
