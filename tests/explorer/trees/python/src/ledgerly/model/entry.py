"""An entry moves money between accounts and must balance."""

from dataclasses import dataclass

from ledgerly.model.account import Account
from ledgerly.model.money import Money


@dataclass(frozen=True)
class Posting:
    account: Account
    amount: Money


@dataclass(frozen=True)
class Entry:
    day: str
    text: str
    postings: tuple[Posting, ...]

    def balances(self) -> bool:
        return sum(p.amount.cents for p in self.postings) == 0
