"""Ids derived from what they name, the same whenever a step is repeated."""

from __future__ import annotations

import hashlib


def digest(*parts: object) -> str:
    """A stable 128-bit name for a tuple of values: the same parts give the same name in every
    process."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[:32]


def run_id(at: int, *parts: object, count: int | None = None) -> str:
    """A UUID of version 7 whose time is `at` and whose other bits name the logical act: sortable
    and repeatable.

    `count` sorts those of the same millisecond.
    """
    h = digest(*parts)
    t = f"{at & 0xFFFFFFFFFFFF:012x}"
    n = h[:3] if count is None else f"{count & 0xFFF:03x}"
    return f"{t[:8]}-{t[8:]}-7{n}-{'89ab'[int(h[3], 16) & 3]}{h[4:7]}-{h[7:19]}"


def child_id(at: int, parent: str, turn: int, call_id: str, index: int, item: int) -> str:
    """The name of a child by its place: an item of a call."""
    return run_id(at, parent, turn, call_id, index, item, count=(index << 6) + item)


def step_child_id(at: int, parent: str, turn: int, call_id: str, index: int, name: str) -> str:
    """The name of a child by what was asked for: the same request in the same call means the same
    child."""
    return run_id(at, parent, turn, call_id, index, "step", name)


def moment(at: int, turn: int, index: int) -> int:
    """The time in the ids of those whom a call starts. The calls of a run count as made one after
    the other, however fast it was, so that no two of its children are named after the same
    millisecond."""
    return at + (max(0, turn - 1) << 6) + index
