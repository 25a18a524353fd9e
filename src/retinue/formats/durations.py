"""Lengths of time as people write them."""

from __future__ import annotations

import math
import re

UNITS = {"d": 86_400.0, "h": 3_600.0, "min": 60.0, "m": 60.0, "s": 1.0, "": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(d|h|min|ms|m|s|$)\s*")


def seconds(text: str) -> float:
    """`90`, `1.5s`, `10m`, `1h30m`, `2d` as seconds, the larger units first; `ValueError` for
    anything else."""
    rest = text.strip().lower()
    total = 0.0
    above = math.inf
    end = 0
    while end < len(rest):
        part = _PART.match(rest, end)
        if part is None or UNITS[part[2]] >= above:
            break
        above, end = UNITS[part[2]], part.end()
        total += float(part[1]) * above
    if not rest or end < len(rest):
        raise ValueError(f"{text[:100]!r} is not a duration. Use e.g. 90, 45s, 10m, 1h30m or 2d")
    return total
