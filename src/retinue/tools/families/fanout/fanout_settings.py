"""Settings of the fanout family."""

from __future__ import annotations

import math
from typing import Literal

from retinue.tools.families.base import FamilySettings

Beyond = Literal["mode", "model", "max_turns", "read_first"]
BEYOND: tuple[Beyond, ...] = ("mode", "model", "max_turns", "read_first")
"""What a task can say beside what it is and where, if the settings offer it."""


class FanoutSettings(FamilySettings):
    """`task_fields` are offered beside `task` and `cwd`; without `mode` among them a sub-agent has
    all of its parent's plain tools. `aggregate`: whether each call answers with the results of its
    own tasks, or the last one of a turn with all of them. `while_waiting`: whether a user's message
    to a parent that waits is kept for its next turn, or refused as busy. `strict`: a result that is
    submitted next to other calls fails the sub-agent, which is otherwise asked again.

    `explore_tools` are given to explorers whatever their declared risk; `explore_model` is theirs
    instead of the parent's. `read_first_bytes` is the most that is shown of one file. A child
    always has a deadline."""

    max_tasks: int = 10
    timeout_seconds: float = 1_200.0
    explore_turns: int = 20
    work_turns: int = 50
    grace_turns: int = 1
    attempts: int = 3
    explore_tools: tuple[str, ...] = ()
    explore_model: str = ""
    read_first_files: int = 20
    read_first_bytes: int = 65_536
    on_restart: Literal["resume", "fail"] = "resume"
    task_fields: tuple[Beyond, ...] = BEYOND
    aggregate: Literal["call", "turn"] = "call"
    while_waiting: Literal["keep", "refuse"] = "keep"
    strict: bool = False

    @property
    def has_modes(self) -> bool:
        return "mode" in self.task_fields

    def __post_init__(self) -> None:
        for name in ("max_tasks", "explore_turns", "work_turns", "attempts", "read_first_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more")
        if self.grace_turns < 0 or self.read_first_files < 0:
            raise ValueError("grace_turns and read_first_files must be 0 or more")
        if not 0 < self.timeout_seconds < math.inf:
            raise ValueError("timeout_seconds must be more than 0 and finite")
