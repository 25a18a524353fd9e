"""Large trees in the page, in counts; `make page` measures the times too."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.needs import needs
from tests.page.browser import chromium
from tests.page.large_trees import LIMITS, day_and_more, long_tree, thousand

CHROMIUM = shutil.which("chromium") or "chromium"
pytestmark = needs("chromium")


def test_only_the_rows_that_are_seen_are_in_the_page(tmp_path: Path) -> None:
    with chromium(CHROMIUM) as browser:
        figures = thousand(browser, tmp_path, 450)
    assert figures.n_agents == "451 agents"
    assert 20 < figures.rows_in_page <= LIMITS["rows_in_page"]
    assert figures.last_row.startswith("part 449 of the map, worker, done")


def test_the_last_bar_of_a_long_tree_is_reached(tmp_path: Path) -> None:
    run = long_tree(tmp_path / "long.db")
    with chromium(CHROMIUM) as browser:
        figures = day_and_more(browser, tmp_path, run)
    assert figures["last_row"].startswith("part 29, worker, done")
    assert 0.95 < figures["end_of_last_bar"] <= 1.01
    assert "1d 0h" in figures["axis"]
