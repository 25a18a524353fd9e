"""Server-sent events: the type that streams yield, and its encoding."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

PING = b": ping\n\n"
encode = msgspec.json.Encoder().encode


class DataEvent(NamedTuple):
    """An event without a name, as other protocols stream. None is the mark at the end."""

    value: Any

    def bytes(self) -> bytes:
        return b"data: %s\n\n" % (b"[DONE]" if self.value is None else encode(self.value))


class ServerEvent(NamedTuple):
    """`value` is written as JSON, which has no line breaks; `id` is what `Last-Event-ID` brings
    back."""

    name: str
    value: Any
    id: str = ""

    def bytes(self) -> bytes:
        head = f"id: {self.id}\n" if self.id else ""
        return b"%sevent: %s\ndata: %s\n\n" % (
            head.encode(),
            self.name.encode(),
            encode(self.value),
        )
