"""The command `ledgerly`."""

import sys
from pathlib import Path

from ledgerly.report.balance import balances
from ledgerly.storage.journal import Journal


def run(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    journal = Journal(Path("journal.txt"))
    if words == ["balance"]:
        for account, cents in balances(journal).items():
            sys.stdout.write(f"{account:<30}{cents / 100:>10.2f}\n")
        return 0
    sys.stderr.write("usage: ledgerly balance\n")
    return 2


if __name__ == "__main__":
    sys.exit(run())
