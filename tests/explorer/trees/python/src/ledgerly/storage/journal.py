"""The journal: a text file that is only ever appended to."""

from pathlib import Path

from ledgerly.model.account import Account
from ledgerly.model.entry import Entry, Posting
from ledgerly.model.money import Money
from ledgerly.storage.retry import with_retry


class JournalLocked(OSError):
    """Somebody else is writing."""


class Journal:
    """Reads and appends entries."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: Entry) -> None:
        with_retry(lambda: self._write(entry))

    def _write(self, entry: Entry) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{entry.day} {entry.text}\n")
            for posting in entry.postings:
                file.write(f"  {posting.account.name}  {posting.amount.cents}\n")

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        for block in self.path.read_text(encoding="utf-8").split("\n\n"):
            head, *rest = block.splitlines()
            day, _, text = head.partition(" ")
            postings = tuple(self._posting(line) for line in rest)
            found.append(Entry(day, text, postings))
        return found

    @staticmethod
    def _posting(line: str) -> Posting:
        name, cents = line.split()
        return Posting(Account(name), Money(int(cents)))
