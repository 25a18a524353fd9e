"""Times of day in the user's time zone."""

from __future__ import annotations

import time

DAY_MS = 86_400_000


def moment(at: int, now: int) -> str:
    """`14:12` today, `Mon 14:12` this week, the date before that."""
    then, today = time.localtime(at / 1000), time.localtime(now / 1000)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if now - at < 6 * DAY_MS else "%Y-%m-%d", then)


def clock(at: int) -> str:
    """`14:12:08`."""
    return time.strftime("%H:%M:%S", time.localtime(at / 1000))


def midnight() -> int:
    """When today began, in milliseconds."""
    return int(time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1)) * 1000)
