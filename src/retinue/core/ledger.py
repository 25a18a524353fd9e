"""The ledger: limits, reserved amounts and spending of every account of a tree. An account covers a
run and everything below it; a hold is taken from the run and all its ancestors before anything is
spent, and settled after, so that no fan-out can spend one unit more than the tree was given.

What others hold is not spent: much of it comes back. So a run that finds too little free queues at
that account, and continues when enough came back; only when what is *spent* leaves too little,
there is nothing to wait for. Who waits holds nothing but what it was granted, and those who come
later wait behind it.

Four amounts are kept: tokens, nano-dollars, turns, tool calls. (Time is not divided: it is a
deadline that children inherit.) An account is *funded* in an amount when its limit was taken from
its parent at spawn; then the parents already hold it and a hold stops there. `reserve` is what only
the owner's last turn may touch.

No runs wait for each other in a circle. What is held is held for calls, which end, or was granted
to a child, and comes back when all runs below that child have ended. A run that has a grant itself,
or is below one, waits at the accounts above that grant only for calls, never for other grants:
those who have these may wait for something else that its own grant holds. So a run that waits for a
grant waits for runs that wait only for something deeper in the tree. A grant also does not come
back while all runs below it wait for mail; then no run waits for it."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.account import (
    DIMENSIONS,
    SURE,
    UNASKED,
    UNFUNDED,
    UNLIMITED,
    Account,
    Chain,
    Counts,
    Draw,
    Funded,
    Guess,
    Limit,
    funded,
)
from retinue.core.budget_queues import LATEST, BudgetQueues
from retinue.core.cache_figures import Cached
from retinue.core.hold_request import GO, HoldRequest, Verdict, need_at, place_at
from retinue.core.state import NOTHING, Amounts, four
from retinue.core.values import OnLimit

_RANGE = range(4)


def _plus(one: Counts, other: Amounts) -> Amounts:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


class Ledger:
    """All accounts that are open, or closed with open ones below."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.touched: dict[str, Account] = {}
        self._chains: dict[str, Chain] = {}
        self._draws: dict[str, tuple[Draw, ...]] = {}
        self._grants: dict[tuple[str, int], dict[str, Account]] = {}
        self._moving: dict[str, int] = {}
        self.lines = BudgetQueues()
        self.waits: dict[str, tuple[HoldRequest, int, Verdict]] = {}
        self._askers: dict[str, dict[str, None]] = {}
        self._again: dict[str, None] = {}

    def open(
        self, id: str, parent: str, limit: Limit, funded: Funded, on_limit: OnLimit = "land"
    ) -> None:
        if funded == UNFUNDED:
            funded = UNFUNDED
        account = Account(id=id, parent=parent, limit=limit, funded=funded, on_limit=on_limit)
        self.accounts[id] = self.touched[id] = account
        self._chains.pop(id, None)
        self._draws.pop(id, None)
        self._note_grants(account)
        above = self.accounts.get(parent)
        if above is not None:
            above.below += 1
            self.touched[parent] = above

    def reopen(self) -> None:
        """After a restart: what is not stored. A run that waited asks again when it is notified."""
        self.lines.clear()
        self.waits.clear()
        self._askers.clear()
        self._again.clear()
        self._grants.clear()
        self._moving.clear()
        for account in self.accounts.values():
            self._note_grants(account)

    def _note_grants(self, account: Account) -> None:
        for i in _RANGE if account.funded is not UNFUNDED else ():
            for giver in self._givers(account, i):
                self._grants.setdefault((giver.id, i), {})[account.id] = account

    def _givers(self, account: Account, i: int) -> list[Account]:
        """From whose limits a grant was taken: those above it, up to the first who was granted it
        himself."""
        givers = []
        for above in self.chain(account.parent) if account.funded[i] else ():
            if above.limit[i] is not None:
                givers.append(above)
            if above.funded[i]:
                break
        return givers

    def take_touched(self) -> dict[str, Account]:
        """The accounts that have changed since the last call, as they are now."""
        touched, self.touched = self.touched, {}
        return {id: replace(account) for id, account in touched.items()}

    def chain(self, id: str) -> Chain:
        """The accounts of `id` and all runs above it. Their order stays while they are open."""
        try:
            return self._chains[id]
        except KeyError:
            account = self.accounts.get(id)
            chain = () if account is None else (account, *self.chain(account.parent))
            self._chains[id] = chain
        return chain

    def lacks(self, id: str, need: Amounts) -> str | None:
        """The name of the first amount that `id` or an ancestor cannot cover, or None."""
        if not self.draws(id):
            return None
        gap = self._uncovered(id, need)
        return None if gap is None else DIMENSIONS[gap[1]]

    def short_of(self, id: str, need: Amounts) -> Account | None:
        """The first account that cannot cover it."""
        gap = self._uncovered(id, need)
        return None if gap is None else gap[0]

    def _uncovered(self, id: str, need: Amounts) -> tuple[Account, int] | None:
        chain = self.chain(id)
        for i, amount in enumerate(need):
            if not amount:
                continue
            for account in chain:
                free = account.free(i)
                if free is not None and free < amount:
                    return account, i
                if account.funded[i]:
                    break
        return None

    def least(self, id: str, i: int) -> tuple[str, int]:
        """Which of the accounts that a call of `id` is paid from has the least left of amount `i`,
        and how much."""
        amounts = [
            (draw.account.id, max(0, self.left(draw, i)))
            for draw in self.draws(id)
            if i in draw.amounts
        ]
        return min(amounts, key=lambda one: one[1], default=(id, 0))

    # waiting

    def draws(self, id: str) -> tuple[Draw, ...]:
        """The accounts that limit what `id` spends, the nearest first."""
        known_draws = self._draws.get(id)
        if known_draws is None:
            new_draws, covered, has_grant = [], [False, False, False, False], False
            for n, account in enumerate(self.chain(id)):
                if account.limit is UNLIMITED and account.funded is UNFUNDED:
                    continue
                amounts = tuple(
                    i for i in _RANGE if account.limit[i] is not None and not covered[i]
                )
                if amounts:
                    new_draws.append(Draw(account, amounts, n == 0, has_grant))
                covered = [c or f for c, f in zip(covered, account.funded, strict=True)]
                has_grant = has_grant or any(self._givers(account, i) for i in _RANGE)
            known_draws = self._draws[id] = tuple(new_draws)
        return known_draws

    def left(self, draw: Draw, i: int, *, no_grants: bool = False) -> int:
        """What is left of an amount for a new hold, if everything came back that is waited for, or
        only what is held for calls (`no_grants`)."""
        rest = draw.unspent(i)
        grants = self._grants.get((draw.account.id, i))
        for id, grant in grants.items() if grants else ():
            if draw.has_grant or no_grants or not self._moving.get(id):
                rest -= (grant.limit[i] or 0) - grant.spent[i]
        return rest

    def check(self, id: str, ask: HoldRequest, ticket: int = LATEST) -> Verdict:
        """Whether `id` may make a call now; `ticket` is its place if it is in the queue."""
        verdict = GO
        for draw in self.draws(id):
            account = draw.account
            is_late = verdict is GO and self._is_late(draw, place_at(draw, ask, ticket))
            for i in draw.amounts:
                need = need_at(draw, ask, i)
                if need and self.left(draw, i) < need:
                    return Verdict("short", account.id, DIMENSIONS[i])
                if need and verdict is GO and (is_late or draw.unspent(i) - account.held[i] < need):
                    verdict = Verdict("wait", account.id, DIMENSIONS[i])
        return verdict

    def _is_late(self, draw: Draw, ticket: int) -> bool:
        """Whether another run came before. Who waits for grants does not keep up those who have
        one."""
        account = draw.account.id
        first = self.lines.first(account, has_grant=True)
        if first is not None and first[1] < ticket:
            return True
        first = self.lines.first(account, has_grant=False)
        return (
            first is not None
            and first[1] < ticket
            and not (draw.has_grant and self._waits_for_grants(first[0], account))
        )

    def _waits_for_grants(self, id: str, account: str) -> bool:
        """Whether what is held for calls is not all that the first in line at an account waits
        for."""
        ask, _, verdict = self.waits[id]
        if verdict.account != account:
            return True
        draw = next(draw for draw in self.draws(id) if draw.account.id == account)
        return any(self.left(draw, i, no_grants=True) < need_at(draw, ask, i) for i in draw.amounts)

    def wait(self, id: str, ask: HoldRequest, ticket: int, verdict: Verdict) -> None:
        """Queue at the account that has too little, and at those before it, where the run has its
        turn next."""
        self.waits[id] = (ask, ticket, verdict)
        if ask.asked:
            self._askers.setdefault(verdict.account, {})[id] = None
        at = []
        for draw in self.draws(id):
            at.append(((draw.account.id, draw.has_grant), place_at(draw, ask, ticket)))
            if draw.account.id == verdict.account:
                break
        self.lines.stand(id, at)

    def leave(self, id: str) -> None:
        """Leave the queue."""
        ask, _, verdict = self.waits.pop(id, (None, 0, GO))
        if ask is not None and ask.asked:
            del self._askers[verdict.account][id]
            if not self._askers[verdict.account]:
                del self._askers[verdict.account]
        self.lines.leave(id)

    @property
    def is_settled(self) -> bool:
        """Whether no run has to check again."""
        return not self.lines.eased and not self._again

    def ease(self, account: str) -> None:
        """There may be more left at an account than before: the first in the queue there check
        again, and so do all runs that have asked about it: no run asks for what is there."""
        self.lines.ease(account)
        self._again.update(self._askers.get(account, ()))

    def due(self) -> str | None:
        """The next who has to look again: it can go, there is nothing to wait for, or it lacks
        something else."""
        while (first := self.lines.changed()) is not None:
            for id in first:
                if self._must_check(id):
                    return id
        while self._again:
            id = next(iter(self._again))
            del self._again[id]
            if id in self.waits and self._must_check(id):
                return id
        return None

    def _must_check(self, id: str) -> bool:
        ask, ticket, verdict = self.waits[id]
        current = self.check(id, ask, ticket)
        return (current.word, current.account) != (
            verdict.word,
            verdict.account,
        ) or self._is_answered(ask, current)

    def _is_answered(self, ask: HoldRequest, verdict: Verdict) -> bool:
        """Whether who is short has no answer to wait for: it lacks something else, or what it lacks
        was decided."""
        if verdict.word != "short":
            return False
        is_asked = verdict.lack == ask.asked and self.accounts[verdict.account].on_limit == "ask"
        return not is_asked or self._is_news(verdict.account, verdict.lack)

    # what a person decides

    def _is_news(self, account: str, lack: str) -> bool:
        """Whether the limit was raised since a question about it was asked, or none was asked."""
        i = DIMENSIONS.index(lack)
        return self.accounts[account].asked[i] != self.accounts[account].limit[i]

    def note_question(self, account: str, lack: str) -> bool:
        """A person is asked about this limit; returns whether that is new."""
        is_news = self._is_news(account, lack)
        if is_news:
            entry, i = self.accounts[account], DIMENSIONS.index(lack)
            entry.asked = (*entry.asked[:i], entry.limit[i] or 0, *entry.asked[i + 1 :])
            self.touched[account] = entry
        return is_news

    def set_on_limit(self, id: str, on_limit: OnLimit) -> None:
        account = self.accounts[id]
        if account.on_limit != on_limit == "ask":
            account.asked = UNASKED
        account.on_limit = on_limit
        self.changed(account)

    def raise_limit(self, id: str, add: Amounts) -> None:
        """By so much more; what of it was taken from those above is held there (ask
        `limits.cannot_raise` first)."""
        account = self.accounts[id]
        self.hold(account.parent, funded(account, add))
        account.limit = four(
            None if m is None else m + more for m, more in zip(account.limit, add, strict=True)
        )
        self.changed(account)

    def changed(self, account: Account) -> None:
        self.touched[account.id] = account
        for one in self.chain(account.id):
            self.ease(one.id)

    def free(self, id: str, i: int) -> int | None:
        """What `id` and every account above it have free in amount `i`; None is without limit."""
        least: int | None = None
        for account in self.chain(id):
            free = account.free(i)
            if free is not None:
                least = max(0, free if least is None else min(least, free))
            if account.funded[i]:
                break
        return least

    # moving

    def stir(self, chain: Chain, n: int) -> None:
        """A run starts (1) or stops (-1) making progress by itself; grants in which no run does are
        not waited for."""
        for account in chain:
            if account.id not in self.accounts:
                continue
            self._moving[account.id] = moving = self._moving.get(account.id, 0) + n
            for i in _RANGE if moving in (0, n) and self.waits else ():
                for giver in self._givers(account, i):
                    self.ease(giver.id)

    # holding

    def hold(self, id: str, need: Amounts) -> None:
        """Take `need` from `id` and its ancestors. Ask `lacks` first."""
        self._move(self.chain(id), need, NOTHING, 1)

    def release(self, id: str, need: Amounts) -> None:
        self._move(self.chain(id), need, NOTHING, -1)

    def settle(self, id: str, hold: Amounts, actual: Amounts, guess: Guess = SURE) -> None:
        """Turn a hold into what was really spent; the rest is released immediately."""
        chain = self.chain(id)
        self._move(chain, hold, actual, -1)
        for account in chain if guess != SURE else ():
            tokens, nanos, unpriced = account.guess
            account.guess = (tokens + guess[0], nanos + guess[1], unpriced + guess[2])
            self.touched[account.id] = account

    def count(self, id: str, cached: Cached) -> None:
        """What a prompt cache gave `id` also counts for all runs above it."""
        for account in self.chain(id):
            account.cache = account.cache.plus(cached)
            self.touched[account.id] = account

    def _move(self, chain: Chain, hold: Amounts, spent: Amounts, sign: int) -> None:
        """Up to the first funded account the hold moves; above it the grant shrinks by what was
        spent."""
        if hold == NOTHING == spent:
            return
        touched, is_held, is_spent = self.touched, hold != NOTHING, spent != NOTHING
        moved = hold if sign > 0 else (-hold[0], -hold[1], -hold[2], -hold[3])
        for account in chain:
            if is_held:
                holds = _plus(account.held, moved)
                account.held = NOTHING if holds == NOTHING else holds
            if is_spent:
                account.spent = _plus(account.spent, spent)
            if account.funded is not UNFUNDED:
                more = zip(account.funded, spent, moved, strict=True)
                moved = four(-s if is_funded else m for is_funded, s, m in more)
                is_held = True
            touched[account.id] = account
            if sign < 0 and self.waits:
                self.lines.ease(account.id)

    def keep(self, id: str, reserve: Amounts) -> None:
        """Set aside what the owner's last turn would cost."""
        account = self.accounts[id]
        if account.limit is UNLIMITED:
            return
        amounts = tuple(
            r if limit is not None else 0 for r, limit in zip(reserve, account.limit, strict=True)
        )
        if amounts != account.reserve:
            account.reserve = amounts
            self.touched[id] = account
            self.ease(id)

    def close(self, id: str) -> None:
        """The run ended. While something below it is open its account stays, as the pool of those
        that outlive it."""
        account = self.accounts[id]
        account.reserve = NOTHING
        account.closed = True
        self.touched[id] = account
        self.ease(id)
        while account.closed and account.below == 0:
            self._give_back(account)
            self._forget(account)
            parent = self.accounts.get(account.parent)
            if parent is None:
                return
            parent.below -= 1
            self.touched[parent.id] = account = parent

    def _forget(self, account: Account) -> None:
        for i in _RANGE if account.funded is not UNFUNDED else ():
            for giver in self._givers(account, i):
                grants = self._grants[(giver.id, i)]
                del grants[account.id]
                if not grants:
                    del self._grants[(giver.id, i)]
                self.ease(giver.id)
        del self.accounts[account.id]
        self._moving.pop(account.id, None)
        self._chains.pop(account.id, None)
        self._draws.pop(account.id, None)

    def _give_back(self, account: Account) -> None:
        if account.funded is UNFUNDED:
            return
        rest = [0, 0, 0, 0]
        for i, limit in enumerate(account.limit):
            if account.funded[i] and limit is not None:
                rest[i] = limit - account.spent[i]
        if rest != [0, 0, 0, 0]:
            self.release(account.parent, (rest[0], rest[1], rest[2], rest[3]))
