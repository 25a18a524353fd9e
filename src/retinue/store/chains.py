"""The hash chain of a tree's log, the same in every store."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from struct import error as StructError
from typing import Any

_numbers = Struct(">qq").pack


def genesis(root: str) -> bytes:
    """What the first event of a tree hangs on: rows of one tree do not fit into another."""
    return sha256(b"retinue tree\0" + root.encode()).digest()


def link(chain: bytes, number: int, run: str, at: int, digest: bytes) -> bytes:
    """The hash that ties an event to all before it. The parts have fixed lengths, but for the
    last."""
    return sha256(chain + _numbers(number, at) + digest + run.encode()).digest()


def follows(chain: Any, number: Any, run: Any, at: Any, digest: Any, stored: Any) -> bool:
    """Whether a row hangs on the one before it; a row need not even hold the types that were
    written."""
    try:
        return bool(link(chain, number, run, at, digest) == stored)
    except (TypeError, AttributeError, ValueError, StructError):
        return False
