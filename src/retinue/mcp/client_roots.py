"""The directories that a client has open (MCP roots), where its agents may work."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from retinue.mcp.guests import Guest
from retinue.mcp.protocol_versions import ClientFacts
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import RpcCall

METHOD = "roots/list"
KEY = "roots"
MOST_ROOTS = 100
ANSWER_SECONDS = 20.0
"""A client that does not say by then has none."""


def offers_roots(client: ClientFacts) -> bool:
    return isinstance(client.capabilities.get("roots"), dict)


async def asked_roots(call: RpcCall) -> tuple[str, ...] | None:
    """The roots of the client; None when it has to be asked first, with `roots_needed`. In the era
    with a handshake it is asked once, and again after it has said that they changed."""
    session = call.session
    if not offers_roots(call.client):
        return ()
    if call.client.is_stateless:
        responses = call.params.get("inputResponses")
        return directories(responses.get(KEY)) if isinstance(responses, dict) else None
    if session.roots is None:
        try:
            session.roots = directories(await call.ask_client(METHOD, {}, ANSWER_SECONDS))
        except RpcError:
            session.roots = ()
    return session.roots


def roots_needed() -> dict[str, Any]:
    """The result of a call that needs the client's roots, in the era without state."""
    return {
        "resultType": "input_required",
        "inputRequests": {KEY: {"method": METHOD, "params": {}}},
    }


def directories(result: Any) -> tuple[str, ...]:
    """Those roots that are directories of this machine, in their order."""
    listed = result.get("roots") if isinstance(result, dict) else None
    paths: dict[str, None] = {}
    for root in listed[:MOST_ROOTS] if isinstance(listed, list) else ():
        path = _path(root.get("uri") if isinstance(root, dict) else None)
        if path and os.path.isdir(path):
            paths[os.path.realpath(path)] = None
    return tuple(paths)


def _path(uri: Any) -> str:
    try:
        parts = urlsplit(uri if isinstance(uri, str) else "")
    except ValueError:
        return ""
    path = unquote(parts.path)
    is_ours = parts.scheme == "file" and parts.netloc in ("", "localhost") and "\0" not in path
    return path if is_ours and os.path.isabs(path) else ""


def rooted(guest: Guest, offered: tuple[str, ...]) -> Guest:
    """The guest with these roots. Those that its user has set stay the limit: of the client's, what
    lies inside of them counts."""
    if not offered or not guest.roots:
        return replace(guest, roots=offered or guest.roots)
    shared: dict[str, None] = {}
    for mine in guest.roots:
        for theirs in offered:
            if os.path.commonpath([mine, theirs]) in (mine, theirs):
                shared[max(mine, theirs, key=len)] = None
    return replace(guest, roots=tuple(shared) or guest.roots)
