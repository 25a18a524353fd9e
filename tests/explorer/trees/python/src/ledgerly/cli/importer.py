"""The command `ledgerly-import`: bank statements become entries."""

import csv
import sys
from pathlib import Path

from ledgerly.model.account import Account
from ledgerly.model.entry import Entry, Posting
from ledgerly.model.money import Money
from ledgerly.storage.journal import Journal


def run() -> int:
    journal = Journal(Path("journal.txt"))
    with open(sys.argv[1], encoding="utf-8") as file:
        for row in csv.DictReader(file):
            journal.append(entry_of(row))
    return 0


def entry_of(row: dict[str, str]) -> Entry:
    cents = round(float(row["amount"]) * 100)
    bank = Posting(Account("assets:bank"), Money(cents))
    other = Posting(Account("income:unknown"), Money(-cents))
    return Entry(row["date"], row["text"], (bank, other))
