"""Shared by the MCP client: its limits, its exception, and strict reading of messages."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

import msgspec

from retinue.core.values import Value
from retinue.errors import RetinueError
from retinue.formats.safe_text import clean

MODERN = ("2026-07-28",)
"""Versions without a handshake: each request says all that the server has to know."""
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions that begin with `initialize`, newest first."""
MAX_DEPTH = 128
MAX_REPAIRED = 1 << 20
"""Bytes of a message that may be read a second time, slowly, to save what one bad character would
cost."""
METHOD_NOT_FOUND = -32601
UNSUPPORTED_VERSION = -32022

Era = Literal["modern", "handshake"]
Fault = Literal[
    "start", "lost", "timeout", "too_large", "protocol", "refused", "auth", "withheld", "closed"
]

_encode = msgspec.json.Encoder().encode
_ID = re.compile(rb'"id"\s*:\s*(\d{1,12})\s*[,}]')


class McpError(RetinueError):
    """A server could not be used. `fault` says why; `is_open` that the call may have taken effect
    all the same; `code` is the server's own, where the words are its own."""

    def __init__(
        self, fault: Fault, message: str, *, is_open: bool = False, code: int = 0, data: Any = None
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.is_open = is_open
        self.code = code
        self.data = data


class SessionGone(Exception):
    """The server no longer knows the Mcp-Session-Id, so it has done nothing."""


class ServerLimits(Value):
    """What one server may take of this process.

    `message_bytes`: the longest message that is read. `flood_bytes`, `flood_messages`: what it may
    send that no one asked for, in ten seconds and between two useful messages, before it is ended.
    `discover_seconds`: how long it may keep silent after `server/discover` before the old handshake
    is tried beside it. `call_seconds_most`: no progress keeps a call open for longer. `restarts`:
    how often in a row it is started again without having answered a call."""

    message_bytes: int = 10 << 20
    flood_bytes: int = 256 << 20
    flood_messages: int = 50_000
    tools: int = 512
    description_chars: int = 4_096
    schema_bytes: int = 64 << 10
    result_chars: int = 2_000_000
    images: int = 20
    image_bytes: int = 5 << 20
    stderr_bytes: int = 8 << 10
    discover_seconds: float = 5.0
    call_seconds_most: float = 3_600.0
    close_seconds: float = 2.0
    restarts: int = 3
    backoff_seconds: float = 0.5
    backoff_seconds_most: float = 30.0


def encode(message: Any) -> bytes:
    return _encode(message)


def decode(data: bytes | bytearray) -> Any:
    """One JSON value, or ValueError. Half surrogates become U+FFFD; numbers beyond all bounds and
    absurd depth are refused, because what comes in here goes into a log and out again."""
    try:
        return _shallow(msgspec.json.decode(data))
    except (RecursionError, UnicodeDecodeError):
        raise ValueError("nested too deeply, or not UTF-8") from None
    except msgspec.DecodeError:
        pass
    if len(data) > MAX_REPAIRED:
        raise ValueError("invalid JSON")
    try:
        text = bytes(data).decode()
        return _shallow(_clean(json.loads(text, parse_constant=_no_constant, parse_float=_finite)))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _shallow(value: Any) -> Any:
    """The same value if it is not deeper than `MAX_DEPTH`: what reads it later may recurse."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_clean(v) for v in value]
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return value


def guess_id(head: bytes, tail: bytes) -> int | None:
    """Which request an unreadable message may have answered: some write the id first, some last."""
    if b'"result"' not in head + tail and b'"error"' not in head + tail:
        return None
    is_last = head.lstrip().startswith((b'{"result"', b'{"error"'))
    first = None if is_last else _ID.search(head[:200])
    for match in _ID.finditer(tail) if first is None else ():
        first = match
    return int(first[1]) if first else None
