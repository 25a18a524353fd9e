"""The hooks of a program as the runtime sees them."""

from __future__ import annotations

from typing import Protocol

from retinue.core.messages import ModelReply, ToolCall
from retinue.core.spec import Actions, RunSpec
from retinue.models.base import ModelRequest
from retinue.tools.base import ToolResult


class RunHooks(Protocol):
    """What is asked before and after the runtime does something. Without hooks there is none of
    it."""

    async def before_model(self, spec: RunSpec, request: ModelRequest) -> ModelRequest:
        """The request that is made; raises `ModelRejected` when there is to be none."""

    async def after_model(
        self, spec: RunSpec, request: ModelRequest, reply: ModelReply
    ) -> ModelReply:
        """The reply that is recorded."""

    async def before_tools(
        self, spec: RunSpec, calls: tuple[ToolCall, ...]
    ) -> tuple[tuple[ToolCall, ...], tuple[tuple[int, str], ...]]:
        """The calls of a reply as they are recorded, and why some of them, by their index, are not
        run."""

    async def after_tool(self, spec: RunSpec, call: ToolCall, result: ToolResult) -> ToolResult:
        """The result that is recorded."""

    async def before_spawns(self, spec: RunSpec, actions: Actions) -> Actions:
        """The actions of a tool with the children that are started; raises `ToolError` when one of
        them must not be."""

    def ended(self, run: str) -> None:
        """The end of a run is recorded."""
