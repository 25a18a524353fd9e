"""The family `subagent`: one blocking call returns a summary of a task; children can nest, and
never regain a tool that a run above them gave up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.tools.base import Tool
from retinue.tools.families.base import Family
from retinue.tools.families.subagent.quota import Quota, Quotas
from retinue.tools.families.subagent.subagent_args import MANY, ONE
from retinue.tools.families.subagent.subagent_tools import ParallelTool, SubagentTool
from retinue.tools.families.subagent_settings import SubagentSettings

KEYWORDS = (
    "subagent",
    "delegate",
    "spawn agent",
    "parallel task",
    "parallel agent",
    "agent delegation",
    "use agent",
)
"""Words of a message, in any case, that turn the tools on where a chat does not have them from the
start."""


class SubagentFamily(Family):
    name = "subagent"
    settings_type = SubagentSettings
    settings: SubagentSettings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        limits = self.settings
        self.quotas = Quotas(
            Quota(limits.max_executions, limits.max_total_tokens, limits.max_total_time),
            tools=(ONE, MANY),
        )

    @property
    def has_quota(self) -> bool:
        return self.settings.max_total_tokens is not None

    def tools(self) -> Sequence[Tool]:
        return (SubagentTool(self), ParallelTool(self))

    def in_chat(self, text: str) -> bool | None:
        """With `chat_enabled = false` a message turns it on that asks for such work."""
        is_on = self.settings.chat_enabled
        return any(word in text.lower() for word in KEYWORDS) if is_on is False else is_on

    def helper_tools(self) -> Sequence[Tool]:
        return self.tools()

    @property
    def guide(self) -> str:
        return (
            f"You can give a self-contained task to a sub-agent with `{ONE}`, or several "
            f"in parallel with `{MANY}`. A sub-agent sees only the prompt you write, works "
            "alone and returns one summary. The call returns when the work has ended, so "
            "there is nothing to poll. Use it for work that would fill your context with "
            "details you do not need afterwards, such as reading many files or logs. Do "
            "small tasks yourself. Give a sub-agent only the tools it needs."
        )
