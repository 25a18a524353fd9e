"""What is on each account."""

from collections import Counter

from ledgerly.model.money import Money
from ledgerly.storage.journal import Journal


def balances(journal: Journal) -> dict[str, int]:
    total: Counter[str] = Counter()
    for entry in journal.entries():
        for posting in entry.postings:
            total[posting.account.name] += posting.amount.cents
    return dict(total)


def as_money(cents: int) -> Money:
    return Money(cents)
