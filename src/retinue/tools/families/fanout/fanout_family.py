"""`spawn_agents`: starts several tasks together, and continues the turn when all have ended. Every
call answers with the outcomes of its own children, as JSON, in the order in which they ended; or
the last one with those of the turn."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.tools.base import Tool
from retinue.tools.families.base import Family
from retinue.tools.families.fanout.fanout_settings import FanoutSettings
from retinue.tools.families.fanout.fanout_texts import guide
from retinue.tools.families.fanout.spawn_agents import NAME, SpawnAgents
from retinue.tools.submit import SubmitError, SubmitResult


class FanoutFamily(Family):
    """Children have the lead's plain tools and the two submit tools; they cannot start others."""

    name = NAME
    settings_type = FanoutSettings
    settings: FanoutSettings

    def tools(self) -> Sequence[Tool]:
        return (SpawnAgents(self.settings),)

    def helper_tools(self) -> Sequence[Tool]:
        return (SubmitResult(), SubmitError())

    @property
    def guide(self) -> str:
        return guide(self.settings)
