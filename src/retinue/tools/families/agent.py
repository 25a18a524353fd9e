"""The family `agent`: children that work in the background. Their parent goes on, is told of every end by mail, and can
look, write, wait, cancel and let one go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from retinue.tools.base import Tool
from retinue.tools.families.agent_settings import AgentSettings
from retinue.tools.families.agent_start import ForkTool, SpawnTool
from retinue.tools.families.agent_watch import CancelTool, ListTool, ResumeTool, SendTool, StatusTool, WaitTool
from retinue.tools.families.base import Family

__all__ = ["AgentFamily", "AgentSettings"]


class AgentFamily(Family):
    name = "agent"
    settings_type = AgentSettings
    settings: AgentSettings

    def tools(self) -> Sequence[Tool]:
        settings = self.settings
        start = (SpawnTool(settings), ForkTool(settings))
        kept = settings.finished_kept
        watch = (StatusTool(kept), CancelTool(kept), ListTool(kept))
        return (*start, *watch, SendTool(kept), WaitTool(kept), ResumeTool(settings))

    def helper_tools(self) -> Sequence[Tool]:
        """With comms a child can write to its parent. Spawn tools are given only where nesting is wired on purpose."""
        if self.settings.grant_spawn_tools:
            return self.tools()
        return (SendTool(self.settings.finished_kept),) if self.settings.enable_comms else ()

    @property
    def guide(self) -> str:
        return (
            "You can start helpers that work in the background. Use `agent_spawn` for independent work: the helper "
            "knows only the prompt you write. Use `agent_fork` when the work needs what was said so far. Both return "
            "at once. Several helpers suit work that falls into independent parts, needs another model, or takes long "
            "while you have something else to do; they do not suit small steps, work that must be coordinated "
            "closely, or an answer that is needed at once. You are told when a helper ends, so do not poll: go on "
            "with other work, or call `agent_wait` when you can do nothing without the results. `agent_list` "
            "shows all of them at a glance."
        )
