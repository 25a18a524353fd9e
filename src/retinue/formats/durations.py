"""Lengths of time as people write them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(?:s|$))?(?:(\d+)ms)?")


def seconds(text: str) -> float:
    """`90`, `1.5s`, `10m`, `1h30m`, `2d` as seconds; `ValueError` for anything else."""
    match = _DURATION.fullmatch(text.strip().lower())
    if not match or not any(match.groups()):
        raise ValueError(f"{text!r} is not a length of time: write 90, 45s, 10m, 1h30m or 2d")
    days, hours, minutes, whole, thousandths = (float(part or 0) for part in match.groups())
    return days * 86_400 + hours * 3_600 + minutes * 60 + whole + thousandths / 1000
