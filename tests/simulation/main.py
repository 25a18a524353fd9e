"""`make simulate`: many random schedules on two processes; one line of JSON at the end."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.hunt import replay, run_seed

CHUNK = 250
ENGINE_SHARE = 25
"""One schedule in so many runs on the real engine; the others on the pure machine, which is
faster."""


class Played(NamedTuple):
    """What came of some schedules; `bad` has a line for each that broke an invariant."""

    n: int
    steps: int
    crashes: int
    bad: list[str]


def work(chunk: tuple[str, int, int]) -> Played:
    """One chunk. What goes wrong in it is meant to, and is not logged; tests that come after this
    one log again."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return _work(*chunk)
    finally:
        logging.disable(before)


def _work(kind: str, first: int, n: int) -> Played:
    steps = crashes = 0
    bad = []
    for seed in range(first, first + n):
        try:
            s, c = run_seed(kind, seed)
            steps, crashes = steps + s, crashes + c
        except Exception as error:
            bad.append(
                f"{kind} seed {seed}: {type(error).__name__}: {error}; replay with: "
                f"{replay(kind, seed)}"
            )
    return Played(n, steps, crashes, bad)


def chunks(first: int, schedules: int) -> Iterator[tuple[str, int, int]]:
    for kind, n in (
        ("engine", schedules // ENGINE_SHARE),
        ("pure", schedules - schedules // ENGINE_SHARE),
    ):
        for start in range(first, first + n, CHUNK):
            yield kind, start, min(CHUNK, first + n - start)


def run(schedules: int, first: int = 0, processes: int = 2) -> dict[str, object]:
    began, last = time.monotonic(), 0.0
    n_done = steps = crashes = 0
    bad: list[str] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for played in pool.imap_unordered(work, chunks(first, schedules)):
            n_done, bad = n_done + played.n, bad + played.bad
            steps, crashes = steps + played.steps, crashes + played.crashes
            for line in played.bad:
                print(line, file=sys.stderr, flush=True)
            if time.monotonic() - last > 2:
                last = time.monotonic()
                print(
                    f"{n_done:,} of {schedules:,} schedules, {len(bad)} violations",
                    file=sys.stderr,
                    flush=True,
                )
    return {
        "schedules": n_done,
        "steps": steps,
        "crashes": crashes,
        "crashes_per_schedule": round(crashes / max(1, n_done), 2),
        "violations": len(bad),
        "seconds": round(time.monotonic() - began, 1),
        "ok": not bad and n_done == schedules,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    figures = run(arguments.schedules, arguments.first, arguments.processes)
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
