"""The toolsets that are open in a runtime: each opens when an agent that has it is registered, and
closes with the runtime."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from retinue.agent import Agent
from retinue.errors import ConfigError, RetinueError
from retinue.tools.base import Tool
from retinue.tools.own_tools import Toolset, is_toolset, machine_tool

log = logging.getLogger("retinue.tools")


class OpenedToolsets:
    """Equal sets are one set."""

    def __init__(self) -> None:
        self._open: list[tuple[Toolset[Any], tuple[Tool[Any], ...]]] = []

    async def open_for(self, agent: Agent[Any, Any]) -> None:
        """Open what an agent and all agents below it have. `ConfigError` says what cannot be."""
        for member in agent.reachable_agents():
            for thing in member.tools:
                if is_toolset(thing) and self._find(thing) is None:
                    self._open.append((thing, await self._opened(member.name, thing)))

    async def _opened(self, agent: str, toolset: Toolset[Any]) -> tuple[Tool[Any], ...]:
        try:
            return tuple(machine_tool(tool, toolset.prefix) for tool in await toolset.open())
        except RetinueError:
            raise
        except Exception as error:
            raise ConfigError(
                f"Agent {agent!r}: {toolset!r} could not be opened "
                f"({type(error).__name__}: {error})."
            ) from error

    def tools(self, toolset: Toolset[Any]) -> Sequence[Tool[Any]]:
        tools = self._find(toolset)
        if tools is None:
            raise ConfigError(
                f"{toolset!r} is not open. Name its agent in Retinue(agents=[...]), or start a run "
                "of it."
            )
        return tools

    def _find(self, toolset: object) -> Sequence[Tool[Any]] | None:
        return next((tools for members, tools in self._open if members == toolset), None)

    async def close(self) -> None:
        """Close all, the last one first. One that fails to is logged."""
        while self._open:
            toolset, _ = self._open.pop()
            try:
                await toolset.close()
            except Exception as error:
                log.warning("%r could not be closed", toolset, exc_info=error)
