"""Tools that a program writes as classes: those whose schema is not a signature, and toolsets that
open and close with the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from retinue.core.effects import ChildOutcome
from retinue.core.type_parameters import D_contra
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.tools import base
from retinue.tools.base import Context, Returned, Risk
from retinue.tools.context_verbs import check_delegated
from retinue.tools.function.returned import as_returned


class InvokedTool(Protocol[D_contra]):
    """Anything a model can call: `retinue.Tool`. `@tool` makes one of a function; write a class
    when the schema is not a signature. `invoke` returns what a function of a tool may return, and
    raises `ToolError` with what the model should read."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def restart(self) -> Restart: ...
    @property
    def risk(self) -> Risk: ...
    async def invoke(self, ctx: Context[D_contra], arguments: Mapping[str, Any], /) -> object: ...


Tool = InvokedTool


class Toolset(Protocol[D_contra]):
    """Several tools under one prefix, opened with the runtime and closed with it. The model calls
    them `prefix__name`; without a prefix, by their names."""

    @property
    def prefix(self) -> str: ...
    async def open(self) -> Sequence[InvokedTool[D_contra] | base.Tool[D_contra]]: ...
    async def close(self) -> None: ...


class ToolAdapter:
    """A tool of the program as the machine runs it (`base.Tool`). What else a tool may have is
    taken from it as it is."""

    def __init__(self, tool: InvokedTool[Any], prefix: str = "") -> None:
        self._tool = tool
        self.restart, self.risk = tool.restart, tool.risk
        self.schema = ToolSchema(
            name=prefixed(prefix, tool.name),
            description=tool.description,
            parameters=dict(tool.parameters),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    @property
    def same_as(self) -> tuple[object, ...]:
        return (getattr(self._tool, "same_as", self._tool), self.schema)

    async def run(self, context: Context[Any], args: dict[str, Any]) -> Returned:
        out = await self._tool.invoke(context, args)
        check_delegated(context.steps, self.schema.name, out)
        return as_returned(self.schema.name, out)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise ConfigError(f"Tool {self.schema.name!r} cannot format results.")


class RenamedTool:
    """A tool of the machine under another name."""

    def __init__(self, tool: base.Tool[Any], prefix: str) -> None:
        self._tool = tool
        schema = tool.schema
        self.schema = ToolSchema(
            name=prefixed(prefix, schema.name),
            description=schema.description,
            parameters=schema.parameters,
            strict=schema.strict,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


def prefixed(prefix: str, name: str) -> str:
    return name if not prefix or name.startswith(f"{prefix}__") else f"{prefix}__{name}"


def is_toolset(thing: object) -> TypeGuard[Toolset[Any]]:
    return all(hasattr(thing, name) for name in ("prefix", "open", "close"))


def is_tool(thing: object) -> bool:
    """Whether it is a tool of the machine, or one that a program wrote as a class."""
    own = ("name", "description", "parameters", "restart", "risk", "invoke")
    return all(hasattr(thing, name) for name in ("schema", "run")) or all(
        hasattr(thing, name) for name in own
    )


def machine_tool(thing: Any, prefix: str = "") -> base.Tool[Any]:
    """The tool as the machine runs it."""
    if not is_tool(thing):
        raise ConfigError(f"{thing!r} is not a tool. Write tool(function), or a class with invoke.")
    if not hasattr(thing, "schema"):
        return ToolAdapter(thing, prefix)
    tool: base.Tool[Any] = thing
    if prefixed(prefix, tool.schema.name) == tool.schema.name:
        return tool
    renamed: Any = RenamedTool(tool, prefix)
    return renamed  # type: ignore[no-any-return]
