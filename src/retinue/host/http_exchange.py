"""One HTTP request to a host, and its response."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from retinue.formats.http_reply import HttpReplyReader
from retinue.host.operations import BY_REQUEST, PREFIX
from retinue.host.problem_documents import ProblemDocument
from retinue.host.replies import CompactionProgress
from retinue.host.requests import HostRequest
from retinue.host.tree_items import StepNews, TextArrived, TreeItem

_decode_step = msgspec.json.Decoder(StepNews).decode
_decode_delta = msgspec.json.Decoder(TextArrived).decode
_decode_progress = msgspec.json.Decoder(CompactionProgress).decode
_decode_problem = msgspec.json.Decoder(ProblemDocument).decode


class HostNews(NamedTuple):
    """From the host, about request `id`: an item, how far it is, the last word, or a problem."""

    id: int
    item: TreeItem | None = None
    progress: CompactionProgress | None = None
    done: Any = None
    is_last: bool = False
    error: ProblemDocument | None = None


def request_bytes(
    request: HostRequest, token: str, headers: Mapping[str, str] | None = None
) -> bytes:
    """A request as it is written to a connection."""
    op, fields = BY_REQUEST[type(request)], msgspec.to_builtins(request)
    path = PREFIX + op.path
    for name in op.path_fields:
        path = path.replace(f"{{{name}}}", quote(fields.pop(name), safe=""))
    body = b""
    if op.method == "POST":
        body = msgspec.json.encode(fields)
    elif fields:
        values = {name: _query_value(value) for name, value in fields.items()}
        path = f"{path}?{urlencode(values)}"
    head = [
        f"{op.method} {path} HTTP/1.1",
        "host: localhost",
        f"authorization: Bearer {token}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if op.method == "POST":
        head += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join((*head, "", "")).encode() + body


def _query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Exchange:
    """What has come back on one connection for request `number`."""

    def __init__(self, number: int, request: HostRequest, line: socket.socket) -> None:
        self.number, self.line = number, line
        self.reader = HttpReplyReader()
        self._is_stream = BY_REQUEST[type(request)].is_stream
        self._is_over = False
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[HostNews]:
        """The events that these bytes complete. Raises `ValueError` for what is not HTTP."""
        for piece in self.reader.feed(data):
            self._buffer += piece
        if not self._is_stream or self.reader.status >= 300:
            if self.reader.is_done:
                yield self._whole()
            return
        while (end := self._buffer.find(b"\n\n")) >= 0:
            event = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            yield from self._event(event)
        if self.reader.is_done and not self._is_over:
            raise ValueError("the stream was interrupted")

    def _whole(self) -> HostNews:
        body = bytes(self._buffer)
        if self.reader.status < 300:
            is_json = "json" in self.reader.headers.get("content-type", "json")
            content = msgspec.json.decode(body) if is_json else body
            return HostNews(self.number, done=content, is_last=True)
        try:
            problem = _decode_problem(body)
        except msgspec.MsgspecError:
            text = (
                f"The host answered {self.reader.status}: {body[:200].decode('utf-8', 'replace')}"
            )
            problem = ProblemDocument(status=self.reader.status, detail=text)
        return HostNews(self.number, error=problem)

    def _event(self, event: bytes) -> Iterator[HostNews]:
        fields = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
        name, data = fields.get(b"event", b""), fields.get(b"data", b"")
        match name:
            case b"step":
                yield from (HostNews(self.number, item=i) for i in _decode_step(data).items())
            case b"delta":
                yield HostNews(self.number, item=_decode_delta(data))
            case b"progress":
                yield HostNews(self.number, progress=_decode_progress(data))
            case b"problem":
                self._is_over = True
                yield HostNews(self.number, error=_decode_problem(data))
            case b"end":
                self._is_over = True
                yield HostNews(self.number, done=msgspec.json.decode(data), is_last=True)
