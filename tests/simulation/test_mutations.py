"""The test of the test: every planted bug is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import retinue
from tests.simulation.mutations import MUTATIONS, Mutation

SOURCE = Path(retinue.__file__).parent
SEEDS = {"pure": 2_000, "engine": 200}


def test_there_are_at_least_thirty_planted_bugs() -> None:
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS) >= 30


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name.replace(" ", "-"))
def test_a_planted_bug_is_found(mutation: Mutation, tmp_path: Path) -> None:
    text = (SOURCE / mutation.file).read_text()
    assert text.count(mutation.old) == 1, "the snippet does not stand exactly once: write the mutation again"
    changed = tmp_path / "changed.py"
    changed.write_text(text.replace(mutation.old, mutation.new))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE.parent), str(SOURCE.parent.parent)))}
    hunt = [
        sys.executable,
        "-m",
        "tests.simulation.plant",
        mutation.file,
        str(changed),
        "--kind",
        mutation.kind,
        "--seeds",
        str(SEEDS[mutation.kind]),
    ]
    found = subprocess.run(hunt, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=290)
    assert found.returncode == 1, (
        f"not found in {SEEDS[mutation.kind]} seeds: {found.stdout[-500:]}{found.stderr[-500:]}"
    )
    assert "seed " in found.stdout
    assert "replay with: " in found.stdout
