"""The built-in tools, as they are listed."""

from __future__ import annotations

import asyncio

from retinue.store.memory import MemoryStore
from retinue.tools.base import Tool
from retinue.tools.builtin.builtin_tools import NAMES, BuiltinTools


def builtin_tools() -> list[Tool]:
    kit = BuiltinTools(MemoryStore())
    tools = [kit.tool(name) for name in NAMES]
    asyncio.run(kit.close())
    return tools
