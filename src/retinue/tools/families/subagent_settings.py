"""The settings of the family `subagent`, and their allowed values."""

from __future__ import annotations

import math

from retinue.tools.families.base import FamilySettings


class SubagentSettings(FamilySettings):
    """`[agent.subagent]`. Amounts of None are no limit; `model` overrides the parent's.
    `chat_enabled`: whether a chat has the tools from its first message on, or from one that asks
    for such work; None leaves that to `enabled`."""

    max_depth: int = 3
    default_max_turns: int = 10
    output_max_size: int = 4096
    max_executions: int | None = None
    max_total_tokens: int | None = None
    max_total_time: float | None = None
    model: str = ""
    chat_enabled: bool | None = None

    def __post_init__(self) -> None:
        _within("max_depth", self.max_depth, 10, " (stack overflow risk)")
        _within("default_max_turns", self.default_max_turns, 100)
        if self.output_max_size < 1024:
            raise ValueError("agent.subagent.output_max_size must be at least 1024 bytes")
        for name in ("max_executions", "max_total_tokens", "max_total_time"):
            amount = getattr(self, name)
            if amount is not None and not 0 <= amount < math.inf:
                raise ValueError(f"agent.subagent.{name} must be 0 or more, and finite")


def _within(name: str, value: int, most: int, why: str = "") -> None:
    if value < 1:
        raise ValueError(f"agent.subagent.{name} must be greater than 0")
    if value > most:
        raise ValueError(f"agent.subagent.{name} cannot exceed {most}{why}")
