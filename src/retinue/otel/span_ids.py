"""Ids of traces and spans, derived from the record: a restarted process continues the same trace,
and a span exported twice is one span."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class TracePlace(NamedTuple):
    """Where in which trace the spans of a run are: below `parent_id`, or at the top if that is
    0."""

    trace_id: int
    parent_id: int = 0
    is_sampled: bool | None = None
    """As the caller's trace says; None if there is none."""


def trace_place(root: str, meta: Mapping[str, str]) -> TracePlace:
    """The trace of a tree: one of its own, or the caller's that `meta` names in the words of W3C
    (`traceparent`)."""
    match = TRACEPARENT.fullmatch(meta.get("traceparent", ""))
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return TracePlace(_number(16, "trace", root))
    return TracePlace(int(match[1], 16), int(match[2], 16), bool(int(match[3], 16) & 1))


def run_span(run: str) -> int:
    return _number(8, "run", run)


def call_span(run: str, turn: int, call_id: str, n: int = 0) -> int:
    """The span of a tool call; `n` tells calls of one turn apart to which a model gave one id."""
    return _number(8, "call", run, str(turn), call_id, str(n))


def model_span(run: str, seq: int) -> int:
    """The span of a model call, by the position of its end in the record."""
    return _number(8, "model", run, str(seq))


def _number(n_bytes: int, *words: str) -> int:
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:n_bytes], "big") or 1
