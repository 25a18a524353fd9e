"""The two kinds of protocol version: with a handshake (`initialize`), and stateless, where every
request names its version and the client's capabilities in `_meta`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from retinue.mcp.rpc_messages import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    RpcError,
    RpcRequest,
)

HANDSHAKE_VERSIONS = ("2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)
PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{PREFIX}protocolVersion"
CAPABILITIES_KEY = f"{PREFIX}clientCapabilities"
CLIENT_KEY = f"{PREFIX}clientInfo"
SERVER_KEY = f"{PREFIX}serverInfo"
TASKS = f"{PREFIX}tasks"
TASKS_VERSION = "2025-11-25"
"""The one version in which tasks are a part of the protocol itself."""
CACHED_SECONDS = 300
CACHED = {
    "server/discover": CACHED_SECONDS,
    "tools/list": CACHED_SECONDS,
    "prompts/list": CACHED_SECONDS,
    "resources/templates/list": CACHED_SECONDS,
    "resources/list": 0,
    "resources/read": 0,
}
"""How long a client may keep what it is answered, in seconds."""


@dataclass(frozen=True)
class ClientFacts:
    """What a client says of itself."""

    version: str
    name: str = ""
    capabilities: dict[str, Any] = field(default_factory=dict)

    @property
    def is_stateless(self) -> bool:
        return self.version in STATELESS_VERSIONS

    @property
    def has_tasks(self) -> bool:
        """Whether it declares the tasks extension."""
        extensions = self.capabilities.get("extensions")
        return self.is_stateless and isinstance(extensions, dict) and TASKS in extensions

    @property
    def has_old_tasks(self) -> bool:
        """Whether its version has tasks without an extension."""
        return self.version == TASKS_VERSION

    @property
    def can_elicit(self) -> bool:
        """Whether it can show a form to its user."""
        modes = self.capabilities.get("elicitation")
        return isinstance(modes, dict) and (not modes or "form" in modes)

    def need_tasks(self) -> None:
        if not self.has_tasks:
            raise RpcError(
                MISSING_CAPABILITY,
                f"This needs a client that declares the extension {TASKS}.",
                {"requiredCapabilities": {"extensions": {TASKS: {}}}},
            )


def has_envelope(request: RpcRequest) -> bool:
    return VERSION_KEY in request.meta


def facts_of_envelope(request: RpcRequest) -> ClientFacts:
    """The client of a stateless request, from its `_meta`. Raises `RpcError`."""
    meta = request.meta
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}.")
    version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise RpcError(
            INVALID_PARAMS, f"{VERSION_KEY} is a string and {CAPABILITIES_KEY} an object."
        )
    check_version(version)
    return ClientFacts(version, name_in(meta.get(CLIENT_KEY)), capabilities)


def check_version(version: str) -> None:
    if version not in STATELESS_VERSIONS:
        raise RpcError(
            UNSUPPORTED_VERSION,
            f"Version {version[:40]!r} of the protocol is not supported.",
            {"supported": list(STATELESS_VERSIONS), "requested": version},
        )


def facts_of_handshake(params: dict[str, Any]) -> ClientFacts:
    """The client that says `initialize`. It is answered with its version, or with ours."""
    version, capabilities = params.get("protocolVersion"), params.get("capabilities", {})
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise RpcError(
            INVALID_PARAMS, "initialize has a protocolVersion, capabilities and a clientInfo."
        )
    version_spoken = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    return ClientFacts(version_spoken, name_in(params.get("clientInfo")), capabilities)


def name_in(info: Any) -> str:
    name = info.get("name") if isinstance(info, dict) else ""
    return name if isinstance(name, str) else ""


def finished(
    result: dict[str, Any], method: str, client: ClientFacts, server: dict[str, str]
) -> dict[str, Any]:
    """A result as the client's version wants it."""
    if not client.is_stateless:
        return result
    out = {"resultType": "complete", **result}
    if method in CACHED and out["resultType"] == "complete":
        out = {"ttlMs": CACHED[method] * 1000, "cacheScope": "private", **out}
    return {**out, "_meta": {SERVER_KEY: server, **result.get("_meta", {})}}
