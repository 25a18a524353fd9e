"""A server's description of itself, its errors and its versions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retinue.tools.mcp_client.protocol import (
    HANDSHAKE,
    UNSUPPORTED_VERSION,
    Era,
    McpError,
    SessionGone,
)

META = "io.modelcontextprotocol/"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def own_name() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"name": "retinue", "version": version("retinue")}
    except PackageNotFoundError:
        return {"name": "retinue", "version": "0"}


@dataclass(slots=True)
class ServerInfo:
    """What the server reports about itself."""

    era: Era
    version: str
    name: str = ""
    instructions: str = ""
    has_tools: bool = True
    capabilities: frozenset[str] = frozenset()


def raise_error(sending: asyncio.Task[None]) -> None:
    """Foreign exceptions of a transport end here; what has been sent by then is not known."""
    try:
        sending.result()
    except (McpError, SessionGone, asyncio.CancelledError):
        raise
    except Exception as error:
        raise McpError(
            "protocol", f"the request failed: {type(error).__name__}", is_open=True
        ) from error


async def cancel_note(task: asyncio.Task[ServerInfo]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def hello_of(era: Era, version: str, answer: Mapping[str, Any], about: Any) -> ServerInfo:
    name = about.get("name") if isinstance(about, dict) else ""
    instructions, offered = answer.get("instructions"), answer.get("capabilities")
    return ServerInfo(
        era=era,
        version=version,
        name=name[:200] if isinstance(name, str) else "",
        instructions=instructions[:4_096] if isinstance(instructions, str) else "",
        has_tools=not isinstance(offered, dict) or "tools" in offered,
        capabilities=frozenset(offered) if isinstance(offered, dict) else frozenset(),
    )


def error_note(error: Mapping[str, Any]) -> McpError:
    code, message = error.get("code"), error.get("message")
    words = message[:4_096] if isinstance(message, str) else "no reason given"
    return McpError(
        "refused", words, code=code if isinstance(code, int) else 0, data=error.get("data")
    )


def supported_versions(error: McpError) -> Sequence[Any]:
    versions = error.data.get("supported") if isinstance(error.data, dict) else None
    return versions if isinstance(versions, list) else ()


def is_only_modern(error: McpError) -> bool:
    """It has named its versions, and none of them is one that a handshake could reach."""
    named = supported_versions(error)
    return (
        error.code == UNSUPPORTED_VERSION and bool(named) and not any(v in HANDSHAKE for v in named)
    )
