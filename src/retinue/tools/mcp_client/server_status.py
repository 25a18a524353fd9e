"""The state of a server, and which of its tools are not offered, for people."""

from __future__ import annotations

from retinue.core.value_base import Value


class Withheld(Value):
    """A tool that is not offered. `offered` and `approved` are its definition now and as it was
    approved, made safe to be shown."""

    tool: str
    reason: str
    offered: str = ""
    approved: str = ""


class ServerStatus(Value):
    """How a server is. `reason` says why it is not ready; `notes` what is odd about it.
    `instructions` are the server's words for a model: data, which is shown to people and put into
    no prompt."""

    name: str
    state: str
    reason: str = ""
    kind: str = ""
    source: str = ""
    version: str = ""
    server: str = ""
    tools: tuple[str, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    notes: tuple[str, ...] = ()
    instructions: str = ""
    n_starts: int = 0
