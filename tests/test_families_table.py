"""docs/reference/family_proofs.md says which test shows what: every test that it names is there,
and no family is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from retinue.tools.families.profiles import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reference" / "family_proofs.md").read_text()


def known_tests() -> set[str]:
    result = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in result.findall(path.read_text())
    }


def tables() -> dict[str, str]:
    parts = re.split(r"^### (\w+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", PAGE))
    assert len(named) > 400
    assert named - known_tests() == set()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_table_with_a_test_in_each_row(family: str) -> None:
    rows = [line for line in tables()[family].splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 30
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 3, row
        assert all(cells), row
        assert "test_" in cells[2], row
