"""The ledger under random trees: nobody overspends, sums are exact, and nothing stays held."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.account import Account
from retinue.core.budget_shares import shares
from retinue.core.hold_request import HoldRequest, Verdict
from retinue.core.ledger import Ledger
from retinue.core.state import NOTHING, Amounts
from tests.core.driver import through_json

AMOUNT = st.integers(0, 60)
AMOUNTS = st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
MAYBE = st.none() | st.integers(0, 150)
LIMITS = st.tuples(MAYBE, MAYBE, MAYBE, MAYBE)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 30), LIMITS),
        st.tuples(st.just("hold"), st.integers(0, 30), AMOUNTS),
        st.tuples(st.just("settle"), st.integers(0, 30), AMOUNTS),
        st.tuples(st.just("release"), st.integers(0, 30), AMOUNTS),
        st.tuples(st.just("reserve"), st.integers(0, 30), AMOUNTS),
        st.tuples(st.just("close"), st.integers(0, 30), AMOUNTS),
    ),
    max_size=60,
)


class Bank:
    """Plays the runs: asks before it holds, settles at most what it holds, closes in any order."""

    def __init__(self, limit: tuple) -> None:
        self.ledger = Ledger()
        self.ledger.open("r", "", limit, (False, False, False, False))
        self.open = ["r"]
        self.holds: list[tuple[str, Amounts]] = []
        self.spent = [0, 0, 0, 0]
        self.seen: dict[str, Account] = {}

    def step(self, what: str, n: int, amounts: tuple) -> None:
        if what in ("settle", "release") and self.holds:
            id, hold = self.holds.pop(n % len(self.holds))
            if what == "release":
                self.ledger.release(id, hold)
                return
            actual = tuple(min(a, h) for a, h in zip(amounts, hold, strict=True))
            self.ledger.settle(id, hold, actual)
            self.spent = [s + a for s, a in zip(self.spent, actual, strict=True)]
            return
        if not self.open or what in ("settle", "release"):
            return
        id = self.open[n % len(self.open)]
        if what == "hold" and self.ledger.lacks(id, amounts) is None:
            self.ledger.hold(id, amounts)
            self.holds.append((id, amounts))
        elif what == "open":
            grant: Amounts = tuple(a or 0 for a in amounts)
            if self.ledger.lacks(id, grant) is None:
                self.ledger.hold(id, grant)
                child = f"{id}.{len(self.seen)}.{len(self.ledger.accounts)}.{n}"
                if child not in self.ledger.accounts:
                    self.ledger.open(child, id, amounts, tuple(a is not None for a in amounts))
                    self.open.append(child)
                else:
                    self.ledger.release(id, grant)
        elif what == "reserve":
            account = self.ledger.accounts[id]
            free = [(account.limit[i] or 0) - account.spent[i] - account.held[i] for i in range(4)]
            rest = [min(a, max(0, f)) for a, f in zip(amounts, free, strict=True)]
            self.ledger.keep(id, (rest[0], rest[1], rest[2], rest[3]))
        elif what == "close" and not any(owner == id for owner, _ in self.holds):
            self.open.remove(id)
            self.ledger.close(id)

    def check(self) -> None:
        for account in self.ledger.accounts.values():
            for i, limit in enumerate(account.limit):
                assert account.held[i] >= 0
                assert account.spent[i] >= 0
                if limit is not None:
                    assert account.spent[i] + account.held[i] <= limit
        if "r" in self.ledger.accounts:
            assert self.ledger.accounts["r"].spent == tuple(self.spent)

    def finish(self) -> None:
        for id, hold in self.holds:
            self.ledger.release(id, hold)
        for id in list(self.open):
            self.ledger.close(id)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(LIMITS, STEPS)
def test_nobody_overspends_and_sums_are_exact(limit: tuple, steps: list) -> None:
    bank = Bank(limit)
    last = bank.ledger.accounts["r"]
    for what, n, amounts in steps:
        bank.step(what, n, amounts)
        bank.check()
    bank.finish()
    assert bank.ledger.accounts == {}
    assert last.spent == tuple(bank.spent)
    assert all(not any(a.held) for a in bank.ledger.touched.values())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(LIMITS, STEPS, st.integers(0, 30), AMOUNTS)
def test_what_the_ledger_says_it_has_can_be_held(
    limit: tuple, steps: list, n: int, need: tuple
) -> None:
    bank = Bank(limit)
    for what, m, amounts in steps:
        bank.step(what, m, amounts)
    if not bank.open:
        return
    id = bank.open[n % len(bank.open)]
    lack = bank.ledger.lacks(id, need)
    before = through_json(bank.ledger.accounts[id])
    if lack is None:
        bank.ledger.hold(id, need)
        bank.check()
        bank.ledger.release(id, need)
    assert bank.ledger.accounts[id] == before
    assert lack is None or lack in ("tokens", "usd", "turns", "calls")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    LIMITS,
    st.sampled_from(["equal", "remaining", "proportional"]),
    st.lists(st.integers(0, 1_000), min_size=1, max_size=20),
)
def test_shares_never_exceed_what_is_free(free: tuple, policy: str, weights: list[int]) -> None:
    parts = shares(free, policy, weights)
    assert len(parts) == len(weights)
    for i, amount in enumerate(free):
        if amount is None:
            assert all(p[i] is None for p in parts)
        else:
            assert sum(p[i] or 0 for p in parts) <= amount
            assert all(p[i] is not None and p[i] >= 0 for p in parts)


def test_a_reserve_is_for_its_owner_only() -> None:
    ledger = Ledger()
    ledger.open("r", "", (100, None, None, None), (False, False, False, False))
    ledger.open("c", "r", (None, None, None, None), (False, False, False, False))
    ledger.keep("r", (40, 7, 7, 7))
    assert ledger.accounts["r"].reserve == (40, 0, 0, 0)
    assert ledger.lacks("c", (61, 0, 0, 0)) == "tokens"
    assert ledger.lacks("r", (61, 0, 0, 0)) == "tokens"
    assert ledger.check("c", HoldRequest((61, 0, 0, 0), is_last=True)) == Verdict(
        "short", "r", "tokens"
    )
    assert ledger.check("r", HoldRequest((100, 0, 0, 0), is_last=True)).word == "go"


def test_a_funded_account_stops_a_hold_and_its_spending_shrinks_the_grant_above() -> None:
    ledger = Ledger()
    ledger.open("r", "", (100, None, None, None), (False, False, False, False))
    ledger.hold("r", (60, 0, 0, 0))
    ledger.open("c", "r", (60, None, None, None), (True, False, False, False))
    ledger.hold("c", (50, 5, 1, 0))
    assert ledger.accounts["r"].held == (60, 5, 1, 0)
    ledger.settle("c", (50, 5, 1, 0), (20, 2, 1, 0))
    assert ledger.accounts["r"].held == (40, 0, 0, 0)
    assert ledger.accounts["r"].spent == (20, 2, 1, 0)
    ledger.close("c")
    assert ledger.accounts["r"].held == (0, 0, 0, 0)
    assert ledger.lacks("r", (80, 0, 0, 0)) is None


def test_a_closed_account_stays_for_those_below_it() -> None:
    ledger = Ledger()
    ledger.open("r", "", (100, None, None, None), (False, False, False, False))
    ledger.hold("r", (60, 0, 0, 0))
    ledger.open("c", "r", (60, None, None, None), (True, False, False, False))
    ledger.open("g", "c", (None, None, None, None), (False, False, False, False))
    ledger.close("c")
    assert ledger.accounts["r"].held[0] == 60
    ledger.hold("g", (10, 0, 0, 0))
    ledger.settle("g", (10, 0, 0, 0), (10, 0, 0, 0))
    ledger.close("g")
    assert set(ledger.accounts) == {"r"}
    assert ledger.accounts["r"].held == NOTHING
    assert ledger.accounts["r"].spent[0] == 10


def test_more_than_the_hold_is_booked_as_it_was() -> None:
    """A provider that counts more than its bound: the overdraft is on record and nothing stays
    held."""
    ledger = Ledger()
    ledger.open("r", "", (100, None, None, None), (False, False, False, False))
    ledger.hold("r", (50, 0, 0, 0))
    ledger.open("c", "r", (50, None, None, None), (True, False, False, False))
    ledger.hold("c", (50, 0, 0, 0))
    ledger.settle("c", (50, 0, 0, 0), (70, 0, 0, 0))
    assert ledger.lacks("c", (1, 0, 0, 0)) == "tokens"
    ledger.close("c")
    assert (ledger.accounts["r"].held[0], ledger.accounts["r"].spent[0]) == (0, 70)
