"""What the page makes of the steps is what the terminal makes of them: its modules run in Node on
the recordings of tests/cli/fixtures, beside rows that the terminal's view has computed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from retinue.view.rows import TreeView
from retinue.view.updates import feed
from tests.cli.record import SCENES, load
from tests.needs import needs
from tests.waiting import SECONDS

FOLDER = Path(__file__).parent
START = 1_800_000_000_000
SHARED = (
    *("id", "parent", "depth", "label", "agent", "model", "state", "mark", "now", "task"),
    *("elapsed_ms", "turn", "context", "tokens", "tree_tokens", "usd", "tree_usd", "silent_ms"),
    *("needs_you", "is_over", "n_children", "n_over", "is_last"),
)


def expected(name: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """The rows of the terminal after each item, with its time."""
    view, at, out = TreeView(), START, []
    for item in load(name):
        feed(view, item, 0)
        at = getattr(getattr(item, "entry", None), "at", at)
        rows = [{k: getattr(row, k) for k in SHARED} for row in view.rows(at)]
        out.append((at, rows))
    return out


@needs("node")
def test_the_modules_of_the_page_in_node(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_bytes(msgspec.json.encode({name: expected(name) for name in SCENES}))
    process = subprocess.run(
        ["node", "--test", "--test-reporter=tap", *map(str, sorted(FOLDER.glob("*.test.mjs")))],
        env={**os.environ, "RETINUE_ROWS": str(rows)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert process.returncode == 0, process.stdout[-8_000:] + process.stderr
    assert "# fail 0" in process.stdout and len(json.loads(rows.read_text())) == len(SCENES)
