"""Server-sent events as MCP uses them: names, data, ids and pauses, with a cap on one event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    name: str
    data: bytes
    id: str
    retry: float | None
    is_too_large: bool = False


class McpEventParser:
    """Feed bytes, get events. A line may end in LF, CRLF or CR. Of an event that is too large the
    rest is dropped as it comes, and it is told once."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._name = self._id = ""
        self._retry: float | None = None
        self._after_cr = False
        self._is_first = True

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        out: list[ServerSentEvent] = []
        *whole, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in whole:
            self._add(part)
            line = bytes(self._line)
            self._line.clear()
            if self._is_first:
                line, self._is_first = line.removeprefix(b"\xef\xbb\xbf"), False
            if line:
                self._field(line)
            else:
                out += self._event()
        self._add(rest)
        return out

    def _add(self, part: bytes) -> None:
        room = self._cap + 64 - len(self._line)
        if len(part) > room:
            self._size += len(part)
        self._line += part[: max(0, room)]

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value)
            if self._size > self._cap:
                self._data = [b""]
            else:
                self._data.append(value)
        elif name == b"event":
            self._name = value[:100].decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= 1_024:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:
            self._retry = int(value) / 1_000

    def _event(self) -> list[ServerSentEvent]:
        is_over, data = self._size > self._cap, b"\n".join(self._data)
        out = []
        if self._data or self._id or self._retry is not None:
            out = [
                ServerSentEvent(
                    self._name, b"" if is_over else data, self._id, self._retry, is_over
                )
            ]
        self._data, self._size, self._name, self._retry = [], 0, "", None
        return out
