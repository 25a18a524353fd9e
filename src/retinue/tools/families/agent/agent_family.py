"""The family `agent`: children that work in the background. Their parent continues, gets a notice
of every end by mail, and can check, message, wait for, cancel and resume them."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.tools.base import Tool
from retinue.tools.families.agent.agent_fork_tool import ForkTool
from retinue.tools.families.agent.agent_resume_tool import ResumeTool
from retinue.tools.families.agent.agent_settings import AgentSettings
from retinue.tools.families.agent.agent_spawn_tool import AgentSpawnTool
from retinue.tools.families.agent.agent_tool import guide
from retinue.tools.families.agent.agent_wait_tool import WaitTool
from retinue.tools.families.agent.child_tools import (
    AgentListTool,
    AgentSendTool,
    CancelTool,
    StatusTool,
)
from retinue.tools.families.base import Family

__all__ = ["AgentFamily", "AgentSettings"]


class AgentFamily(Family):
    name = "agent"
    settings_type = AgentSettings
    settings: AgentSettings

    def tools(self) -> Sequence[Tool]:
        settings = self.settings
        n_kept, more_keys = settings.finished_kept, settings.more_keys
        status = StatusTool(n_kept, more_keys=more_keys)
        five = (
            AgentSpawnTool(settings),
            ForkTool(settings),
            status,
            CancelTool(n_kept),
            AgentListTool(n_kept),
        )
        if settings.more_tools:
            return (
                *five,
                AgentSendTool(settings),
                WaitTool(n_kept, more_keys=more_keys),
                ResumeTool(settings),
            )
        return (*five, AgentSendTool(settings)) if settings.enable_comms else five

    def helper_tools(self) -> Sequence[Tool]:
        """With comms a child can write to its parent. Spawn tools are given only where nesting is
        wired on purpose."""
        if self.settings.grant_spawn_tools:
            return self.tools()
        return (AgentSendTool(self.settings),) if self.settings.enable_comms else ()

    @property
    def guide(self) -> str:
        return guide(self.settings.more_tools)
