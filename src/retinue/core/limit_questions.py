"""Limits that a person decides about: the one question of an account, and the effect of an
answer.

An account whose `on_limit` is `ask` is asked about when what is spent leaves too little for a run's
next turn. A run that needs more, the owner or any run below it, queues there, holds neither slots
nor budget, and has the question in its own row (`Short.asks`); the tree keeps which run asks about
which account and amount. So it is one question, however many wait; it survives a restart with the
rows; and its id names the limit that was reached: a raised limit is another one, and an answer to
the old question counts for nothing.

An answer is `LimitChanged`, an event of the tree and not of a run: an account may outlive its run,
and the change applies to all runs below it. A limit can be raised, or what it does can be changed,
also without a question. No tool can do either: only those outside post this event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from retinue.core.account import DIMENSIONS, UNLIMITED, Account, Draw, funded, limits_of
from retinue.core.budget_shares import written, written_bare
from retinue.core.events import LimitChanged, Prolonged
from retinue.core.hold_request import HoldRequest
from retinue.core.ids import digest
from retinue.core.ledger import Ledger
from retinue.core.spec import RunSpec
from retinue.core.state import NOTHING, Amounts, ByDimension, Short
from retinue.core.tree import Tree
from retinue.core.values import NANOS_PER_USD, Budget
from retinue.errors import InvalidTransition

MOST = (1 << 63) - 1


class LimitQuestion(NamedTuple):
    """What is asked about an account: which amount is short, the text, the runs that queue there
    (also for other amounts, or after those that asked), and what a plain yes adds."""

    id: str
    account: str
    lack: str
    text: str
    waiting: tuple[str, ...]
    suggested: Amounts


def question_id(account: Account, lack: str) -> str:
    """Names exactly this limit: once it is raised, an answer to the old question counts for
    nothing."""
    return digest(account.id, lack, account.limit[DIMENSIONS.index(lack)])[:16]


def question_text(tree: Tree, draw: Draw, lack: str, ask: HoldRequest) -> str:
    account, i = draw.account, DIMENSIONS.index(lack)
    limit = account.limit[i] or 0
    if lack == "calls":
        spent = f"All {written(i, limit)} of the budget are used, and the run needs more."
    else:
        need = ask.need[i] + (ask.last[i] if draw.is_own else 0)
        is_kept = not draw.is_own and account.reserve[i]
        reservation = (
            f", {written(i, account.held[i])} reserved by other runs" if account.held[i] else ""
        )
        reserve = f", {written(i, account.reserve[i])} kept for a last turn" if is_kept else ""
        last = ", including a last turn after it" if draw.is_own and ask.last[i] else ""
        used = written_bare(i, account.spent[i])
        spent = (
            f"{used} of {written(i, limit)} spent{reservation}{reserve}; one more turn may need "
            f"{written(i, need)}{last}."
        )
    return f"{spent} Add to the limit, let the run finish with one last turn, or cancel it?"


def needed_more(tree: Tree, draw: Draw, lack: str, asks: Sequence[HoldRequest]) -> int:
    """What to add usually: as much as the limit was at first, or what two more turns like these
    would need if that is more. (For one turn exactly enough would soon be too little.)"""
    i = DIMENSIONS.index(lack)
    began = limits_of(tree.specs[draw.account.id].request.budget)[i] or 0
    need = sum(ask.need[i] + (ask.last[i] if draw.is_own else 0) for ask in asks)
    return max(began, 2 * need - max(0, tree.ledger.left(draw, i)), 1)


def open_questions(tree: Tree) -> list[LimitQuestion]:
    """What is asked about the accounts of a tree, the oldest first."""
    out = []
    for (id, lack), asking in tree.asking.items():
        account = tree.ledger.accounts[id]
        if account.on_limit != "ask":
            continue  # the run that asked does not know it yet
        line = {
            r.id: r.state
            for r in tree.runs.values()
            if isinstance(r.state, Short) and r.state.account == id
        }
        order = sorted(line, key=lambda run: (line[run].kept.ticket, run))
        first = next(run for run in order if run in asking)
        draw = next(draw for draw in tree.ledger.draws(first) if draw.account is account)
        add = [0, 0, 0, 0]
        asks = [HoldRequest(line[run].need, line[run].last) for run in asking]
        add[DIMENSIONS.index(lack)] = needed_more(tree, draw, lack, asks)
        suggested = (add[0], add[1], add[2], add[3])
        out.append(
            LimitQuestion(
                question_id(account, lack), id, lack, line[first].asks, tuple(order), suggested
            )
        )
    return out


def budget_of(spec: RunSpec, account: Account) -> Budget:
    """The budget of a run as it is now: that of its request, or its share, raised since."""
    limit = ByDimension(*account.limit)
    return Budget(
        tokens=limit.tokens,
        usd=None if limit.nanos is None else limit.nanos / NANOS_PER_USD,
        turns=limit.turns,
        calls=limit.calls,
        seconds=spec.request.budget.seconds,
        on_limit=account.on_limit,
    )


def with_budget_of_now(tree: Tree, spec: RunSpec) -> RunSpec:
    """The request as its tools should see it: a limit that was raised is not the one that was
    requested."""
    account, ordered = tree.ledger.accounts.get(spec.id), limits_of(spec.request.budget)
    if ordered is UNLIMITED:
        return spec
    limits = () if account is None else zip(ordered, account.limit, strict=True)
    if account is None or not any(was is not None and (now or 0) > was for was, now in limits):
        return spec
    return replace(spec, request=replace(spec.request, budget=budget_of(spec, account)))


def cannot_raise(ledger: Ledger, id: str, add: Amounts) -> str:
    """Why the limits of an account cannot be raised by so much, or "". What was taken from the
    accounts above it when it was opened must also be there for more."""
    account = ledger.accounts[id]
    if not any(add) or min(add) < 0:
        return "A limit is raised by an amount above zero."
    for i, more in enumerate(add):
        limit = account.limit[i]
        if more and limit is None:
            return f"It has no limit of {DIMENSIONS[i]} of its own."
        if more and limit is not None and limit + more > MOST:
            return f"{written(i, more)} is more than can be counted."
    for i, more in enumerate(funded(account, add)):
        free = ledger.free(account.parent, i) if more else None
        if free is not None and free < more:
            return (
                f"{written(i, more)} more would come from the budget of the run above it, "
                f"which has {written(i, free)} left. Raise that limit first."
            )
    return ""


def cannot_change(tree: Tree, id: str, event: LimitChanged) -> str:
    """Why the limits of a run are not changed like that, or ""."""
    account, run = tree.ledger.accounts.get(id), tree.runs.get(id)
    if account is None:
        return f"The budget of {id} is no longer in use."
    if event.question and (why := _is_no_answer(tree, id, event)):
        return why
    if event.add != NOTHING and (why := cannot_raise(tree.ledger, id, event.add)):
        return f"The limit of {id} was not raised: {why}"
    if event.more_ms < 0 or (event.more_ms and (run is None or run.deadline is None)):
        return f"{id} has no deadline to move."
    if event.then and account.limit == UNLIMITED:
        return f"{id} has no limit of its own."
    if event.add == NOTHING and not event.more_ms and not event.then:
        return "A limit is raised by an amount above zero."
    return ""


def _is_no_answer(tree: Tree, id: str, event: LimitChanged) -> str:
    question = next(
        (q for q in open_questions(tree) if q.id == event.question and q.account == id), None
    )
    if question is None:
        return "This question is no longer open. It may already have been answered."
    if event.then not in ("land", "stop") and not event.add[DIMENSIONS.index(question.lack)]:
        return f"The question is about {question.lack}. Add to that limit."
    return ""


def change(tree: Tree, id: str, event: LimitChanged) -> None:
    """A person has decided. The runs that wait there continue in their turn, each by an `Afforded`
    event."""
    if why := cannot_change(tree, id, event):
        raise InvalidTransition(why)
    if event.add != NOTHING:
        tree.ledger.raise_limit(id, event.add)
    if event.then:
        tree.ledger.set_on_limit(id, event.then)
    run = tree.runs.get(id)
    if event.more_ms and run is not None and run.deadline is not None:
        tree.post_event(id, Prolonged(deadline=run.deadline, until=run.deadline + event.more_ms))
