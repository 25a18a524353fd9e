"""Lines of a pipe, and the environment of the process behind it."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.tools.mcp_client.protocol import guess_id
from retinue.tools.mcp_client.transports.base import Unreadable

PEEK = 512
INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
"""All that a server is given of our environment unless its configuration names more. A list of what
may pass, not of what may not: secrets have no common name."""


def environment(environ: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """`own` on top of the few variables that every program may see. (`()` begins an exported shell
    function.)"""
    passed = {
        n: v for n in INHERITED if (v := environ.get(n)) is not None and not v.startswith("()")
    }
    return {**passed, **own}


class LineSplitter:
    """Cuts a stream of bytes into lines of at most `cap` bytes. What is longer is dropped as it
    comes; of it only the beginning and the end are kept, to find out whom it was for."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._head = b""
        self._is_over = self._is_told = False

    def feed(self, data: bytes) -> list[bytes | Unreadable]:
        out: list[bytes | Unreadable] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            out += self._add(part)
            out += self._end()
        return out + self._add(rest)

    def _add(self, part: bytes) -> list[bytes | Unreadable]:
        if not self._is_over and len(self._buffer) + len(part) <= self._cap:
            self._buffer += part
            return []
        out: list[bytes | Unreadable] = []
        if not self._is_over:
            self._head = bytes(self._buffer[:PEEK] + part[:PEEK])[:PEEK]
            self._is_over, self._is_told = True, guess_id(self._head, b"") is not None
            out = [self._complaint(b"")] if self._is_told else []
        self._buffer[:] = bytes(self._buffer[-PEEK:] + part[-PEEK:])[-PEEK:]
        return out

    def _end(self) -> list[bytes | Unreadable]:
        out: list[bytes | Unreadable] = []
        if self._is_over:
            out = [] if self._is_told else [self._complaint(bytes(self._buffer))]
        elif self._buffer.strip():
            out = [bytes(self._buffer)]
        self._buffer.clear()
        self._is_over = False
        return out

    def _complaint(self, tail: bytes) -> Unreadable:
        reason = f"larger than {self._cap} bytes, which is the limit"
        return Unreadable(reason, guess_id(self._head, tail), is_too_large=True)
