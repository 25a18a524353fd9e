"""Asks a host which model calls it delays and which runs it cannot continue, in one small request
for listings. Who gets no answer immediately does without."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from retinue.core.state_names import ENDS
from retinue.formats.http_reply import HttpReplyReader
from retinue.host.listing import ListedRun
from retinue.host.project_paths import ProjectPaths
from retinue.host.provider_waits import NO_KEY, ProviderWait, provider_of
from retinue.host.socket_peer import is_ours, key_in

SECONDS = 0.3
REQUEST = "GET /api/v1/health HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n"


class HostWaits(NamedTuple):
    """By run: what the provider of a call has answered that has not left for it, and what a run
    lacks that the host cannot continue."""

    waits: dict[str, ProviderWait]
    lacks: dict[str, str]


def host_waits(paths: ProjectPaths) -> HostWaits:
    try:
        status = _status(paths)
    except (OSError, ValueError):
        return HostWaits({}, {})
    waits = {}
    for call in status.get("held", ()):
        trouble = call.get("trouble") or {}
        waits[call["run"]] = ProviderWait(
            kind=call["kind"],
            provider=trouble.get("provider", ""),
            answer=trouble.get("answer", ""),
            host=trouble.get("host", ""),
            retry_at=call["retry_at"],
        )
    return HostWaits(waits, dict(status.get("lacks", {})))


def with_held(lines: Sequence[ListedRun], paths: ProjectPaths) -> list[ListedRun]:
    """The same lines, in which those wait whose calls are held, and those are paused that lack
    something. The host is only asked when some of them could be."""
    if all(line.state in (*ENDS, "paused", "needs_input") for line in lines):
        return list(lines)
    waits, lacks = host_waits(paths)
    return [_with(line, waits.get(line.id), lacks.get(line.id)) for line in lines]


def _with(line: ListedRun, wait: ProviderWait | None, lack: str | None) -> ListedRun:
    if line.state in ENDS:
        return line
    if lack is not None:
        return line._replace(state="paused", waits_for=lack, waits_kind=NO_KEY)
    return line if wait is None else _waiting(line, wait)


def _waiting(line: ListedRun, wait: ProviderWait) -> ListedRun:
    wait = wait._replace(provider=wait.provider or provider_of(line.model))
    return line._replace(
        state="waiting", provider_wait=wait, waits_kind=wait.kind, waits_for=wait.who
    )


def _status(paths: ProjectPaths) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(SECONDS)
        line.connect(paths.socket)
        if not is_ours(line):
            return {}
        line.sendall(REQUEST.format(key_in(paths.key)).encode())
        reader, body = HttpReplyReader(), bytearray()
        while not reader.is_done and (data := line.recv(1 << 16)):
            for piece in reader.feed(data):
                body += piece
        content = json.loads(bytes(body)) if reader.status == 200 else {}
        return content if isinstance(content, dict) else {}
