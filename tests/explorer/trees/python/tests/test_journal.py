from pathlib import Path

from ledgerly.model.entry import Entry
from ledgerly.storage.journal import Journal


def test_an_entry_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "journal.txt"
    Journal(path).append(Entry("2026-01-01", "gift", ()))
    assert "gift" in path.read_text(encoding="utf-8")
