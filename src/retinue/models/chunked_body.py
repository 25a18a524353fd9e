"""Reads a chunked body (RFC 9112, 7.1) from pieces of any size."""

from __future__ import annotations

import re

MAX_LINE = 4_096
MAX_TRAILERS = 16 << 10
_LINE = rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?\r?\n"
_FIRST, _NEXT = re.compile(_LINE), re.compile(rb"\r?\n" + _LINE)
_PART = rb"[0-9A-Fa-f]{0,15}[ \t]*(?:;[^\r\n\0]*)?\r?"
_FIRST_PART, _NEXT_PART = re.compile(_PART), re.compile(rb"\r?|\r?\n" + _PART)


class BrokenBody(ConnectionError):
    """An answer breaks, or continues with what cannot be a part of it."""


class Chunks:
    """Feed it, and it returns what is content. Behind the last chunk it `is_done`, and `rest` is
    what came after."""

    __slots__ = ("_held", "_is_begun", "_left", "_trailers", "is_done", "rest")

    def __init__(self) -> None:
        self._held = self.rest = b""
        self._left, self._trailers = 0, -1
        self._is_begun = self.is_done = False

    def feed(self, data: bytes) -> list[bytes]:
        if self._held:
            data, self._held = self._held + data, b""
        out: list[bytes] = []
        at, size = 0, len(data)
        while at < size and self._trailers < 0:
            if self._left:
                piece = data[at : at + self._left]
                out.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            # The line end behind a chunk is read with the next one's line: that is one look for
            # each chunk.
            match = (_NEXT if self._is_begun else _FIRST).match(data, at)
            if match is None:
                self._hold(data[at:])
                return out
            at = match.end()
            self._is_begun = True
            self._left = int(match[1], 16)
            if not self._left:
                self._trailers = 0
        if self._trailers >= 0:
            self._end(data, at)
        return out

    def _hold(self, line: bytes) -> None:
        """Keep the beginning of a line whose end is missing."""
        is_part = (_NEXT_PART if self._is_begun else _FIRST_PART).fullmatch(line)
        if not is_part or len(line) > MAX_LINE:
            raise BrokenBody("a chunk of the answer does not start with its length")
        self._held = line

    def _end(self, data: bytes, at: int) -> None:
        """Behind the last chunk come lines, mostly none, until one is empty."""
        while (newline := data.find(b"\n", at)) >= 0:
            is_empty = data[at:newline] in (b"", b"\r")
            self._trailers += newline + 1 - at
            at = newline + 1
            if is_empty:
                self.is_done, self.rest = True, data[at:]
                return
        self._held = data[at:]
        if self._trailers + len(self._held) > MAX_TRAILERS:
            raise BrokenBody("the answer has too many trailer lines")
