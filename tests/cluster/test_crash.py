"""A short part of `make crash-cluster`: three workers, and each kind of fault."""

from __future__ import annotations

import asyncio

from tests.cluster.crash.main import Faults, is_good, run


def test_nothing_is_lost_or_repeated_when_workers_die_stop_and_are_cut_off() -> None:
    faults = Faults(kills=3, stops=1, restarts=1, cuts=1)
    out = asyncio.run(run(faults, workers=3, at_once=6, seed=7))
    assert is_good(out), out
