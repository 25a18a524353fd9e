"""The arguments of `spawn_agents`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.core.values import Value
from retinue.tools.families.fanout.fanout_texts import MODES, MOST_TURNS

WORK = MODES[1]


class FanoutTask(Value, forbid_unknown_fields=True):
    """One item of a call as the model wrote it; null is the same as absent."""

    task: str
    mode: Literal["explore", "work"] | None = None
    cwd: str | None = None
    model: str | None = None
    max_turns: Annotated[int, Meta(ge=1, le=MOST_TURNS)] | None = None
    read_first: tuple[str, ...] | None = None

    @property
    def writes(self) -> bool:
        return self.mode == WORK


class SpawnAgentsArgs(Value, forbid_unknown_fields=True):
    tasks: tuple[FanoutTask, ...]
