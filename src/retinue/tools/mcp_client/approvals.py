"""Approved servers and tool definitions, by hash: new or changed ones are withheld until they are
approved. A server that was approved with harmless tools cannot put others in their place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from retinue.core.values import Value
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import json_text, reveal
from retinue.tools.mcp_client.own_file import FileContent, OwnFile

MAX_SHOWN = 512 << 10
"""Characters of what was approved that are kept for one server, shared among its tools: the file
must stay readable whatever a server writes into its definitions. What decides is the hash, which is
of the whole."""
PARTS = ("name", "description", "inputSchema", "annotations")
"""What of a definition is shown to a model, or decides what the tool may be used for."""

State = Literal["approved", "new", "changed"]


def fingerprint(definition: Mapping[str, Any]) -> str:
    """A hash of the parts that count, whatever order their keys come in."""
    parts = {part: definition[part] for part in PARTS if definition.get(part) is not None}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def page(definition: Mapping[str, Any]) -> str:
    """A definition as it is shown to the one who approves it: whole, and with nothing hidden."""
    words = definition.get("description")
    rest = {
        part: definition[part]
        for part in ("inputSchema", "annotations")
        if definition.get(part) is not None
    }
    heads = [
        f"{reveal(str(definition.get('name')), keep='')}",
        reveal(words) if isinstance(words, str) else "",
    ]
    return "\n".join([*heads, json_text(_laid_out(rest))])


def _laid_out(value: Any) -> str:
    """JSON over several lines, unless it is nested so that it would be many times as long as on
    one."""
    plain = json.dumps(value, sort_keys=True, ensure_ascii=False)
    n, room = 0, 4 * len(plain) + 1_000
    pieces = list[str]()
    for piece in json.JSONEncoder(indent=1, sort_keys=True, ensure_ascii=False).iterencode(value):
        n += len(piece)
        if n > room:
            return plain
        pieces.append(piece)
    return "".join(pieces)


class ApprovedServer(Value):
    """A server as it was approved: what was configured, and its tools' hashes. `shown` is what was
    approved, to be laid beside what is offered now."""

    identity: str
    tools: dict[str, str] = msgspec.field(default_factory=dict)
    shown: dict[str, str] = msgspec.field(default_factory=dict)


class ApprovedServers(FileContent):
    """What an approvals file has."""

    servers: dict[str, ApprovedServer] = msgspec.field(default_factory=dict)


class Approvals:
    """Kept in a file that only its owner may change, or without `path` for as long as this object
    lives."""

    def __init__(self, path: Path | None = None) -> None:
        again = "approve each server's tools again"
        self._file = OwnFile(path, ApprovedServers, "approvals", again)

    def server(self, name: str) -> ApprovedServer | None:
        return self._file.read().servers.get(name)

    def state(self, server: str, tool: str, fingerprint: str) -> State:
        pinned = self.server(server)
        approved_tool = pinned.tools.get(tool) if pinned else None
        if approved_tool is None:
            return "new"
        return "approved" if approved_tool == fingerprint else "changed"

    def approve(
        self, server: str, identity: str, *definitions: Mapping[str, Any], whole: bool = False
    ) -> None:
        """Approve what is given. With `whole`, the server itself too, and nothing else of it stays
        approved."""
        with self._file.changing() as content:
            before = content.servers.get(server)
            if before is None or whole:
                before = ApprovedServer(identity=identity)
            tools, tool_texts = dict(before.tools), dict(before.shown)
            for definition in definitions:
                name = str(definition.get("name"))
                tools[name], tool_texts[name] = fingerprint(definition), page(definition)
            room = MAX_SHOWN // max(1, len(tool_texts))
            texts = {name: clip(text, room) for name, text in tool_texts.items()}
            content.servers[server] = ApprovedServer(
                identity=before.identity, tools=tools, shown=texts
            )

    def forget(self, server: str) -> None:
        with self._file.changing() as content:
            content.servers.pop(server, None)
