"""How much a test draws at random: what `make test` can afford, and `RETINUE_REPEATS` times as much
in a long target."""

from __future__ import annotations

import os

REPEATS = int(os.environ.get("RETINUE_REPEATS", "1"))


def times(n: int) -> int:
    return n * REPEATS
