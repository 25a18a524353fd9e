"""Headers that repeat parts of a stateless request for proxies; they must match the body."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from retinue.mcp.protocol_versions import VERSION_KEY
from retinue.mcp.rpc_messages import HEADER_MISMATCH, RpcError, RpcRequest

NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""What Mcp-Name repeats, by method."""
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def check_headers(headers: Mapping[str, str], request: RpcRequest) -> None:
    """Raises `RpcError` for a header that is missing or says something else."""
    if VERSION_KEY not in request.meta:
        return  # what is missing is said by who reads the envelope
    _same("Mcp-Protocol-Version", headers, request.meta[VERSION_KEY])
    _same("Mcp-Method", headers, request.method)
    name = request.params.get(NAMED.get(request.method, ""))
    is_optional = request.method.startswith("tasks/") and "mcp-name" not in headers
    if name is not None and not is_optional:
        _same("Mcp-Name", headers, name)


def _same(name: str, headers: Mapping[str, str], value: object) -> None:
    if _unwrapped(headers.get(name.lower())) != value:
        raise RpcError(HEADER_MISMATCH, f"The header {name} does not say what the body says.")


def _unwrapped(text: str | None) -> str | None:
    """A header's value; one that is not plain ASCII comes in base64."""
    match = _WRAPPED.fullmatch(text) if text is not None else None
    if match is None:
        return text
    try:
        return base64.b64decode(match[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
