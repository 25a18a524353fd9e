"""The built-in tools, as they are listed."""

from __future__ import annotations

import asyncio

from retinue.host.replies import ToolInfo
from retinue.store.memory import MemoryStore
from retinue.tools.base import Tool
from retinue.tools.builtin.builtin_names import NAMES
from retinue.tools.builtin.builtin_tools import BuiltinTools


def builtin_tools() -> list[Tool]:
    return asyncio.run(_builtin_tools())


async def builtin_tool_list() -> tuple[ToolInfo, ...]:
    return tuple(
        ToolInfo(
            name=tool.schema.name,
            description=tool.schema.description,
            parameters=tool.schema.parameters,
            risk=getattr(tool, "risk", "execute"),
            restart=tool.restart,
        )
        for tool in await _builtin_tools()
    )


async def _builtin_tools() -> list[Tool]:
    builtin = BuiltinTools(MemoryStore())
    tools = [builtin.tool(name) for name in NAMES]
    await builtin.close()
    return tools
