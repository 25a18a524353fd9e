"""Server-sent events, however the bytes were cut: the part of the standard that providers use, with
a cap."""

from __future__ import annotations

from retinue.errors import ModelRejected

MAX_EVENT = 8 << 20


class SseParser:
    """Feed bytes, get `(event, data)` pairs. Line ends may be LF, CRLF or CR; a byte-order mark,
    comments and unknown fields are skipped; several `data` lines are joined. An event of more than
    8 MiB is refused before it is kept."""

    __slots__ = ("_after_cr", "_buffer", "_data", "_event", "_size", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._event = b""
        self._size = 0
        self._start = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        buffer = self._buffer
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":
                data = data[1:]
        buffer += data
        if self._start:
            if len(buffer) < 3 and b"\xef\xbb\xbf".startswith(buffer):
                return []
            self._start = False
            if buffer.startswith(b"\xef\xbb\xbf"):
                del buffer[:3]
        if b"\n" in data or b"\r" in data:
            return self._lines()
        if len(buffer) + self._size > MAX_EVENT:
            raise ModelRejected(
                "the provider sent an event of more than 8 MiB", kind="response_too_large"
            )
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
            elif self._data:
                out.append((self._event.decode("utf-8", "replace"), b"\n".join(self._data)))
                self._data, self._event, self._size = [], b"", 0
            else:
                self._event = b""
        return out

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if name == b"data":
            self._size += len(value)
            if self._size > MAX_EVENT:
                raise ModelRejected(
                    "the provider sent an event of more than 8 MiB", kind="response_too_large"
                )
            self._data.append(value)
        elif name == b"event":
            self._event = value

    def rest(self) -> list[tuple[str, bytes]]:
        """At the end of the body: an event whose blank line was not sent any more."""
        return self.feed(b"\n\n") if self._buffer or self._data else []
