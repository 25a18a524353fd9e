"""Settings of the delegate family."""

from __future__ import annotations

import math
from typing import Literal

from retinue.tools.families.base import FamilySettings

DAY = 86_400.0
BEYOND: tuple[Literal["model"], ...] = ("model",)
"""Fields of a task that the document does not have."""


class DelegateSettings(FamilySettings):
    """What the table `[orchestrator]` of a configuration sets.

    A task ends by itself, by its budget, or when its model or tools are silent for `stall_secs`;
    `turns_per_task` and the timeouts end it in any case, None means no limit.
    `hourly_token_budget`: what all sub-agents of the runtime may take together within an hour; None
    means no limit. `allow_nesting`: whether a task may be given `delegate_tasks`; `max_depth` is
    how many levels of sub-agents there may then be. `more_tools`: `cancel_tasks` and `list_tasks`
    beside it. `task_fields`: fields of a task beyond the document's."""

    max_concurrent_subtasks: int = 5
    max_subtasks_per_request: int = 10
    parallel_timeout_secs: float | None = None
    background_timeout_secs: float | None = None
    turns_per_task: int | None = None
    stall_secs: float | None = 1_800
    max_background_groups: int = 3
    hourly_token_budget: int | None = None
    allow_nesting: bool = False
    max_depth: int = 2
    more_tools: bool = True
    task_fields: tuple[Literal["model"], ...] = BEYOND

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {value!r}")

    @property
    def levels(self) -> int:
        """How many levels of sub-agents there may be below the agent that has the family."""
        return self.max_depth if self.allow_nesting else 1

    @property
    def longest_ms(self) -> int:
        """Longer than any task can be open, or is likely to be: at worst the tasks of a call run
        one after the other."""
        times = (self.parallel_timeout_secs, self.background_timeout_secs)
        seconds = max(DAY if time is None else time for time in times)
        return round(1000 * seconds * (self.max_subtasks_per_request + 1))


_SWITCHES = (*FamilySettings.__struct_fields__, "allow_nesting", "more_tools", "task_fields")
_NUMBERS = tuple(f for f in DelegateSettings.__struct_fields__ if f not in _SWITCHES)
