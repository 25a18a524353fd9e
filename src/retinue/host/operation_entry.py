"""One entry of the table of operations: how a request travels over HTTP, and who may make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from retinue.host.requests import HostRequest

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")


@dataclass(frozen=True)
class Operation:
    """`name` is the method of `Host` that carries it out. `reply` is the type of its JSON, or of
    the events of a stream by their names; a text or bytes have a `media` type instead.
    `ends_with_client`: the operation ends when its client disconnects; every other operation is
    completed. `is_internal`: between a command and its host, and no part of what is described to
    others."""

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    request: type[HostRequest]
    reply: Any
    scope: Scope
    about: str
    status: int = 200
    media: str = "application/json"
    events: dict[str, Any] = field(default_factory=dict)
    ends_with_client: bool = False
    is_internal: bool = False

    @property
    def path_fields(self) -> tuple[str, ...]:
        """The fields of the request that are in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def is_stream(self) -> bool:
        return bool(self.events)
