"""`think`: lets a model reason in writing before it acts. The thought stays in the conversation;
nothing happens."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from retinue.core.values import Restart
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments


class ThinkArgs(ToolArguments, frozen=True):
    thought: Annotated[str, Meta(description="Your thoughts.")]


class ThinkTool(Builtin[ThinkArgs]):
    """The answer is short on purpose: the value is in having written the call."""

    name: ClassVar[str] = "think"
    description: ClassVar[str] = (
        "Write down your thoughts before you act: weigh options, check a plan, look for "
        "gaps. It changes nothing and returns nothing new."
    )
    Args: ClassVar[type[ToolArguments]] = ThinkArgs
    restart: Restart = "pure"
    risk: Risk = "read"
    never_waits = True

    async def call(self, context: Context, args: ThinkArgs) -> Returned:
        return ToolResult(text="Noted.")

    def summary(self, args: dict[str, Any]) -> str:
        return "think"
