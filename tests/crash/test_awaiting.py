"""Tools that await children survive kill -9: no child is started twice, and their code gets every
result."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from retinue.core.state import Ended, RunRecord
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.crash.awaiting import ANSWER, JOURNAL, LOG, PARTS

ROOT = Path(__file__).resolve().parent.parent.parent
UNKNOWN = "Interrupted by a restart"


def live(folder: Path, most: int) -> int:
    command = [sys.executable, "-W", "error", "-m", "tests.crash.awaiting", str(folder), str(most)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), process.stderr[-3_000:]
    return process.returncode


async def children(folder: Path) -> list[RunRecord]:
    store = SqliteStore(str(folder / LOG))
    await store.open()
    try:
        (root,) = await store.listing(limit=10)
        return list(await store.children(root.id))
    finally:
        await store.close()


@pytest.mark.timeout(200)
@pytest.mark.parametrize("seed", range(3))
def test_no_child_is_started_twice_and_no_result_is_lost(seed: int, tmp_path: Path) -> None:
    r, kills = random.Random(seed), 0
    while kills < 40 and live(tmp_path, r.choice((2, 3, 4, 5)) if kills < 7 else 0):
        kills += 1
    assert kills >= 4, "it was hardly killed"
    rows = asyncio.run(children(tmp_path))
    tasks = Counter(row.spec.request.task for row in rows)
    once = dict.fromkeys((*PARTS, "beside 1"), 1) | {"twin 1": 2}
    assert {task: n for task, n in tasks.items() if "errand" not in task} == once
    assert all(n == 1 for task, n in tasks.items() if "errand" in task)
    assert all(isinstance(row.run.state, Ended) for row in rows)
    assert len({row.spec.path for row in rows}) == len(rows)

    survey, errand = (tmp_path / ANSWER).read_text().split("\n--\n")
    assert survey == " ".join((*(f"<{p}>" for p in PARTS), *2 * ["<twin 1>"], "<beside 1> red"))
    for task in ("errand 1", "errand 2"):
        assert (f"<{task}>" in errand) == (tasks[task] == 1), "what was done was not told"
    journal = (tmp_path / JOURNAL).read_text().splitlines()
    start_lines = [line for line in journal if line.startswith("survey")]
    assert len(set(start_lines)) == 1, "key and time of a call have changed"
    assert len(start_lines) > 1, "the tool was never run again: the kills came at the wrong moments"
    assert sum(line.startswith("errand") for line in journal) == 1
    assert {line for line in journal if line.startswith("answered")} == {"answered red"}


@pytest.mark.timeout(60)
def test_a_process_that_is_left_alone_runs_each_tool_once(tmp_path: Path) -> None:
    assert live(tmp_path, 0) == 0
    journal = (tmp_path / JOURNAL).read_text().splitlines()
    assert Counter(line.split()[0] for line in journal)["survey"] == 1
    _, errand = (tmp_path / ANSWER).read_text().split("\n--\n")
    assert errand == "<errand 1> <errand 2>" and UNKNOWN not in errand
