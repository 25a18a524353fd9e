"""Shared by the built-in tools: a struct describes the arguments, and a wrong argument becomes an
answer that the model can act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from retinue.core.effects import ChildOutcome
from retinue.core.values import Restart, ToolSchema
from retinue.formats.fair_cut import clip
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.function import plain_schema


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a tool's arguments: anything that is not named in them is refused by its name."""


A = TypeVar("A", bound=ToolArguments)


class Builtin(Generic[A]):
    """A subclass gives the class attributes and `call`. `subject` is the argument that permission
    patterns look at."""

    name: ClassVar[str]
    description: ClassVar[str]
    Args: ClassVar[type[ToolArguments]]
    restart: Restart = "unsafe"
    risk: Risk = "execute"
    subject: str = ""
    guarded: bool = True
    never_waits: bool = False

    def __init__(self) -> None:
        self.schema = ToolSchema(
            name=self.name, description=self.description, parameters=plain_schema(self.Args)
        )

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        try:
            value = msgspec.convert(args, self.Args)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            return ToolResult(text=f"Invalid parameters: {clip(str(error), 2_000)}", error=True)
        return await self.call(context, value)  # type: ignore[arg-type]

    async def call(self, context: Context, args: A) -> Returned:
        raise NotImplementedError

    def summary(self, args: dict[str, Any]) -> str:
        """One line for the live view: the name, and what it is about."""
        about = args.get(self.subject) if self.subject else None
        return self.name if about is None else f"{self.name} {about}"

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise NotImplementedError(f"{self.name} starts no children")
