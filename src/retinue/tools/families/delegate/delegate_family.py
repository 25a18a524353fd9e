"""`delegate_tasks`: a list of tasks, each for a sub-agent that gets only its prompt and a summary.
Either the results are the tool result, or the work continues in the background and every end is
announced on the channel that asked."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.tools.base import Tool
from retinue.tools.families.base import Family
from retinue.tools.families.delegate.background_usage import NAME
from retinue.tools.families.delegate.cancel_tasks import CancelTasks, ListTasks
from retinue.tools.families.delegate.delegate_settings import DelegateSettings
from retinue.tools.families.delegate.delegate_tasks import DelegateTasks
from retinue.tools.families.delegate.delegate_texts import guide


class DelegateFamily(Family):
    """Parallel and background delegation with cost controls."""

    name = NAME
    settings_type = DelegateSettings
    settings: DelegateSettings

    def tools(self) -> Sequence[Tool]:
        delegate = DelegateTasks(self.settings)
        return (delegate, CancelTasks(), ListTasks()) if self.settings.more_tools else (delegate,)

    def helper_tools(self) -> Sequence[Tool]:
        return self.tools() if self.settings.levels > 1 else ()

    @property
    def guide(self) -> str:
        return guide(self.settings.more_tools)
