"""What the tests of the MCP client share."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.tools.base import ToolResult
from retinue.tools.mcp_client import McpServers, ServerConfig, ServerLimits
from tests.waiting import SECONDS

FAKE = Path(__file__).with_name("fake_server.py")
QUICK = ServerLimits(discover_seconds=0.3, close_seconds=0.5, backoff_seconds=0.01)


def fake(*options: str, name: str = "fake", **fields: Any) -> ServerConfig:
    value = {"start_seconds": SECONDS, "call_seconds": SECONDS, **fields}
    return ServerConfig(
        name=name, command=sys.executable, args=("-I", "-S", str(FAKE), *options), **value
    )


def servers(*configs: ServerConfig, **options: Any) -> McpServers:
    return McpServers(configs, **{"environ": os.environ, "limits": QUICK, **options})


async def call(servers: McpServers, name: str, **args: Any) -> ToolResult:
    tools = {t.schema.name: t for t in servers.tools()}
    return await tools[name].call(args)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(is_so: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """Whether something outside this process comes to be."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


async def until_async(is_so: Callable[[], bool], seconds: float = SECONDS) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True
