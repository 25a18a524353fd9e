"""Asks a tool what a call that waits for a permission would do now, with the same context as the
call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from retinue.core.effects import CallTool
from retinue.core.messages import ToolCall
from retinue.core.spec import RunSpec
from retinue.core.state import Run
from retinue.errors import RetinueError
from retinue.runtime.tool_runner import ToolRunner
from retinue.tools.base import CallPreview, Context

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine

MOST_SAID = 500
MakeContext = Callable[[CallTool, RunSpec, Run, str], Context]


class LookAhead:
    """Changes nothing. A run that works in a copy of its own is given the copy it will have."""

    def __init__(self, engine: Engine, tools: ToolRunner, home: str, context: MakeContext) -> None:
        self._engine = engine
        self._tools = tools
        self._home = home
        self._context = context

    async def __call__(self, id: str, index: int, call: ToolCall, now: int) -> CallPreview | None:
        """None if unknown; if looking fails, it says why."""
        spec, run = self._engine.trees.spec(id), self._engine.trees.run(id)
        if spec is None or run is None:
            return None
        effect = CallTool(run=id, turn=run.turn, index=index, call=call, key="", at=now)
        try:
            place = await self._tools.place(spec, self._home) if spec.request.isolation else ""
            context = self._context(effect, spec, run, place)
            return await self._tools.look_ahead(spec.request.agent, context, call)
        except (RetinueError, OSError, ValueError) as error:
            return CallPreview(problem=self._engine.redactor.clean(str(error))[:MOST_SAID])
