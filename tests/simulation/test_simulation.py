"""20,000 schedules: 19,200 on the pure machine, 800 on the real engine; and each can be
repeated."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.simulation.engine import run_engine_seed, trace
from tests.simulation.main import work

PARTS = 32
PURE, ENGINE = 600, 200


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_of_the_pure_machine_breaks_an_invariant(part: int) -> None:
    played = work(("pure", part * PURE, PURE))
    assert played.bad == []
    assert played.n == PURE
    assert played.steps > 20 * PURE
    assert played.crashes > 3 * PURE


BROKE_ONCE = [16_407, 18_715, 60_259, 65_379, 71_149, 85_427, 115_969, 500_428, 501_409, 503_734]


@pytest.mark.parametrize("seed", BROKE_ONCE)
def test_schedules_that_broke_an_invariant_once_do_so_no_more(seed: int) -> None:
    assert work(("pure", seed, 1)).bad == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(4))
def test_no_schedule_of_the_real_engine_breaks_an_invariant(part: int) -> None:
    played = work(("engine", part * ENGINE, ENGINE))
    assert played.bad == []
    assert played.n == ENGINE
    assert played.crashes > ENGINE // 2


@pytest.mark.timeout(120)
def test_the_real_engine_keeps_its_word_on_sqlite(tmp_path: object) -> None:
    lives = 0
    for seed in range(40):
        lives += run_engine_seed(seed, lambda seed=seed: Reopening(f"{tmp_path}/{seed}.db")).lives
    assert lives > 40


class Reopening(SqliteStore):
    """SQLite in the loop's own thread; a new life opens the same file anew."""

    def __init__(self, path: str) -> None:
        super().__init__(path, inline=True, synchronous="OFF")
        self.path_of_file = path
        self._opened = False

    async def open(self) -> int:
        if self._opened:
            await self.close()
        self._opened = True
        return await super().open()


@pytest.mark.timeout(120)
def test_a_schedule_takes_the_same_steps_every_time() -> None:
    program = (
        "import hashlib; from tests.simulation.engine import trace\n"
        "print(hashlib.sha256(b''.join(trace(s) for s in range(100))).hexdigest())"
    )
    here = hashlib.sha256(b"".join(trace(s) for s in range(100))).hexdigest()
    for hash_seed in ("1", "2"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        there = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
        )
        assert there.stdout.strip() == here
