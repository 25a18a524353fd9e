"""I15 and a part of I10: who waits for budget waits in its turn, for something that comes back;
what others wait for is not held without need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.account import DIMENSIONS, UNLIMITED, Account
from retinue.core.budget_queues import LATEST
from retinue.core.ledger import Ledger
from retinue.core.state import NOTHING, Asking, Queued, Run, Short, Thinking, Waiting
from retinue.core.tree import Tree
from retinue.core.writer_lines import TURN

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


def check(tree: Tree) -> str:
    """What is wrong with those who wait in a tree, "" when nothing is."""
    ledger = tree.ledger
    if ledger.waits and (stuck := _in_a_circle(tree)):
        return f"I15 these wait for budget that nobody will give back: {stuck}"
    for (account, _), line in ledger.lines.by_spot.items():
        first = next(iter(line))
        if not all(isinstance(tree.runs[id].state, Short) for id in line):
            return f"I15 somebody stands in line at {account} and does not wait"
        ask, ticket, verdict = ledger.waits[first]
        shortage, state = ledger.check(first, ask, ticket), tree.runs[first].state
        asks = shortage.word == "short" and ledger.accounts[shortage.account].on_limit == "ask"
        heads = [
            ledger.lines.first(shortage.account, has_grant=has_grant) for has_grant in (True, False)
        ]
        if asks and first not in [head[0] for head in heads if head is not None]:
            continue  # it is short, too, and hears of it when those before it were answered
        if (
            shortage.word == "short"
            and shortage.account != account
            and _lacks(ledger, first, account, free=True)
        ):
            # others have spent more above meanwhile: it hears of that when it has its turn here
            continue
        if verdict.account == account and shortage[:2] != verdict[:2]:
            return f"I15 {first} could go on and waits for its budget at {account}"
        is_silent = not (asks and isinstance(state, Short) and state.asks)
        if verdict.account == account and shortage.word == "short" and is_silent:
            return f"I30 {first} waits at {account} for an answer, and nobody is asked"
    for id, (ask, ticket, verdict) in ledger.waits.items():
        is_news = ask.asked and ledger.check(id, ask, ticket) != verdict
        if is_news and not _lacks(ledger, id, verdict.account, only=ask.asked):
            return f"I30 {id} asks about the limit of {verdict.account} and would not have to"
    for id, run in tree.runs.items():
        if isinstance(run.state, Thinking) and (why := _thinking(tree, id, run.state)):
            return why
    return ""


def _thinking(tree: Tree, id: str, state: Thinking) -> str:
    if state.retry_at is not None:
        if state.patient_until is not None and state.hold != NOTHING:
            return f"I15 {id} waits for its provider and holds {state.hold}"
        return ""
    account = tree.ledger.accounts[id]
    is_last = state.purpose not in ("turn", "compact")
    if is_last or account.limit is UNLIMITED or tree.specs[id].request.budget.on_limit == "stop":
        return ""
    amounts = (state.hold[0] + tree.shared.limits.final_output, 0, 1, 0)
    for i, limit in enumerate(account.limit):
        if limit is not None and account.reserve[i] < amounts[i]:
            return f"I10 {id} could not pay a last turn after its call: {account}"
    return ""


def _lacks(ledger: Ledger, id: str, account: str, *, only: str = "", free: bool = False) -> bool:
    """Whether a call of `id` is too large for what this account has: even if all came back that is
    held for calls and grants, or as it is now (`free`). Of one amount, or of any."""
    ask = ledger.waits[id][0]
    draw = next(draw for draw in ledger.draws(id) if draw.account.id == account)
    for i in draw.amounts:
        if only in ("", DIMENSIONS[i]):
            need = ask.need[i] + (ask.last[i] if draw.is_own and not ask.is_last else 0)
            n_left = draw.unspent(i) - draw.account.held[i] if free else ledger.left(draw, i)
            if ask.need[i] and n_left < need:
                return True
    return False


class Order:
    """By our own reading: who began to wait first, and who began a call since. A run that is the
    same value as after the step before has done neither."""

    def __init__(self) -> None:
        self._came: dict[str, int] = {}
        self._n = 0
        self._waited: dict[str, str] = {}
        self._known: dict[str, Run] = {}

    def boot(self, sim: Simulation) -> None:
        """After a restart places are what the rows say."""
        self._came.clear()
        self._waited.clear()
        self._known.clear()
        self.after(sim)
        rows = [
            (run.state.kept.ticket, id)
            for id, run in self._known.items()
            if isinstance(run.state, Short | Queued) and run.state.kept.ticket
        ]
        for _, id in sorted(rows):
            self._n += 1
            self._came[id] = self._n

    def after(self, sim: Simulation) -> str:
        """Who went before whom in the last step, "" when nobody did."""
        name, why = self._known, ""
        changed = [
            (id, run)
            for tree in sim.trees.by_root.values()
            for id, run in tree.runs.items()
            if name.get(id) is not run
        ]
        for id, run in changed if self._waited else ():
            if not why and _began(name.get(id), run):
                why = self._overtook(sim, run)
        newcomers = []
        for id, run in changed:
            name[id], state = run, run.state
            if not isinstance(state, Short | Queued):
                self._came.pop(id, None)
            elif isinstance(state, Short) and id not in self._came:
                newcomers.append((state.kept.ticket, id))
            if isinstance(state, Short):
                self._waited[id] = state.account
            else:
                self._waited.pop(id, None)
        for _, id in sorted(newcomers):  # in one step several can begin to wait
            self._n += 1
            self._came[id] = self._n
        return why

    def _overtook(self, sim: Simulation, run: Run) -> str:
        id, state, ledger = run.id, run.state, sim.tree_of(run.id).ledger
        assert isinstance(state, Thinking)
        draws = {
            draw.account.id: draw
            for draw in ledger.draws(id)
            if any(state.hold[i] for i in draw.amounts)
        }
        for other, account in self._waited.items():
            waiter = sim.run_of(other)
            still = waiter.state if waiter is not None else None
            if not isinstance(still, Short) or still.account != account or account not in draws:
                continue
            is_exempt = draws[account].has_grant or (
                draws[account].is_own and state.purpose not in ("turn", "compact")
            )
            if not is_exempt and self._came[other] < self._came.get(id, LATEST):
                return f"I15 {id} goes before {other}, which began to wait at {account} before it"
        return ""


def _began(before: Run | None, run: Run) -> bool:
    """Whether it holds something new for a call."""
    state = run.state
    if not isinstance(state, Thinking) or state.retry_at is not None:
        return False
    if before is None:
        return run.attempt > 0
    is_tried_again = isinstance(before.state, Thinking) and before.state.retry_at is not None
    return run.attempt > before.attempt and not is_tried_again


def _givers(tree: Tree, account: Account, i: int) -> list[Account]:
    """In which accounts a grant is held."""
    chain = tree.ledger.chain(account.parent)
    n = next((n for n, above in enumerate(chain, 1) if above.funded[i]), len(chain))
    return list(chain[:n])


def _in_a_circle(tree: Tree) -> set[str]:
    """Who waits for budget and would go on waiting if all calls under way ended, and whoever can go
    on did. By our own reading: a grant may come back while somebody below it can go on; nobody who
    waits for mail or for its turn to write can, a merge ends, and a person who was asked about a
    limit is trusted to answer."""
    ledger, going = (
        tree.ledger,
        {id for id, run in tree.runs.items() if not isinstance(run.state, Short | Waiting)},
    )
    going |= {
        id for id, run in tree.runs.items() if isinstance(run.state, Short) and run.state.asks
    }
    going |= {id for id, fan_in in tree.fans.items() if fan_in.is_merging}
    going -= {id for id in going if getattr(tree.runs[id].state, "lane", 0) == TURN}
    going -= {
        id
        for id in going
        if isinstance(tree.runs[id].state, Asking) and tree.specs[id].request.questions == "deny"
    }

    def comes_back(id: str) -> bool:
        return id in going or any(comes_back(child) for child in tree.children.get(id, ()))

    def is_kept_from(id: str, n: int, account: Account) -> bool:
        """Whether it waits at this account for grants that do not come back."""
        ask = ledger.waits[id][0]
        for i in range(3):
            limit = account.limit[i]
            if limit is None or any(a.funded[i] for a in ledger.chain(id)[:n]):
                continue
            need = ask.need[i] + (ask.last[i] if n == 0 and not ask.is_last else 0)
            rest = limit - account.spent[i] - (account.reserve[i] if n else 0)
            n_lost = sum(
                (other.limit[i] or 0) - other.spent[i]
                for other in ledger.accounts.values()
                if other.funded[i]
                and account in _givers(tree, other, i)
                and not comes_back(other.id)
            )
            # Who lacks too much even so hears of it when it is the first in line.
            if rest - n_lost < need <= rest and account.on_limit != "ask":
                return True
        return False

    def is_freed(id: str) -> bool:
        verdict = ledger.waits[id][2]
        for n, account in enumerate(ledger.chain(id)):
            spots = [(account.id, True), (account.id, False)]
            lines = [ledger.lines.by_spot.get(spot, {}) for spot in spots]
            mine = next((line for line in lines if id in line), {})
            before = [other for other, place in mine.items() if place < mine[id]]
            if any(other not in going for other in before):
                return False
            # Who is not the first in line hears what it lacks when it is.
            if not before and is_kept_from(id, n, account):
                return False
            if account.id == verdict.account:
                return True
        return True

    waits, before = set(ledger.waits), -1
    while len(going) > before:
        before = len(going)
        for id, run in tree.runs.items():
            if isinstance(run.state, Waiting):
                children = tree.children.get(id, ())
                fans = tree.fans[id].fans.values() if id in tree.fans else ()
                calls = run.state.calls
                # A wait for runs has a deadline, and a function that was woken returns.
                ends = calls is not None and bool(calls.waits or calls.woken)
                ends = ends or any(fan.composing for fan in fans)
                if ends or any(comes_back(c) for c in children):
                    going.add(id)
        going |= {id for id in waits - going if is_freed(id)}
    return waits - going
