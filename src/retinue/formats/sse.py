"""Parses server-sent events from chunks of any size: names, data, ids and retry times, with a limit
on the size of an event."""

from __future__ import annotations

from collections.abc import Callable

BOM = b"\xef\xbb\xbf"


class SseParser:
    """Feed bytes, get `(event, data)` pairs. Line ends may be LF, CRLF or CR; a byte-order mark,
    comments and unknown fields are skipped; several `data` lines are joined. `last_id` is that of
    the last whole event, `retry` the pause in seconds that was asked for last.

    An event of more than `cap` bytes is not kept: `too_large` is called once, as it comes. It
    raises the caller's error for that; if it returns, the rest of that event is dropped."""

    __slots__ = (
        "_after_cr",
        "_buffer",
        "_cap",
        "_data",
        "_event",
        "_id",
        "_is_over",
        "_size",
        "_start",
        "_too_large",
        "last_id",
        "retry",
    )

    def __init__(self, cap: int, too_large: Callable[[], None]) -> None:
        self._cap = cap
        self._too_large = too_large
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._event = b""
        self._id = self.last_id = ""
        self.retry: float | None = None
        self._size = 0
        self._start = True
        self._after_cr = self._is_over = False

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        buffer = self._buffer
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":
                data = data[1:]
        buffer += data
        if self._start:
            if len(buffer) < 3 and BOM.startswith(buffer):
                return []
            self._start = False
            if buffer.startswith(BOM):
                del buffer[:3]
        if b"\n" in data or b"\r" in data:
            return self._lines()
        if len(buffer) + self._size > self._cap + len(b"data: "):
            self._drop()
            buffer[:] = b":"  # what is still to come of this line is a comment
        return []

    def _lines(self) -> list[tuple[str, bytes]]:
        buffer = self._buffer
        if b"\r" in buffer:
            if buffer.endswith(b"\r"):
                self._after_cr = True
            lines = bytes(buffer).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        else:
            lines = bytes(buffer).split(b"\n")
        buffer[:] = lines.pop()
        out = []
        for line in lines:
            if line:
                self._line(line)
                continue
            self.last_id = self._id
            if self._data:
                out.append((self._event.decode("utf-8", "replace"), b"\n".join(self._data)))
                self._data = []
            self._event, self._size, self._is_over = b"", 0, False
        return out

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if name == b"data":
            self._size += len(value)
            if self._size > self._cap:
                self._drop()
            elif not self._is_over:
                self._data.append(value)
        elif name == b"event":
            self._event = value[:100]
        elif name == b"id" and b"\0" not in value and len(value) <= 1_024:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:
            self.retry = int(value) / 1_000

    def _drop(self) -> None:
        self._data, self._size = [], 0
        if not self._is_over:
            self._is_over = True
            self._too_large()

    def rest(self) -> list[tuple[str, bytes]]:
        """At the end of the body: an event whose blank line was no longer sent."""
        return self.feed(b"\n\n") if self._buffer or self._data else []
