"""A Python function as a tool: its signature is the schema, its docstring the description."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_type_hints, overload

import msgspec

from retinue.core.effects import ChildOutcome
from retinue.core.spec import Actions
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.tools.base import (
    Ask,
    Context,
    Delegation,
    Returned,
    Risk,
    Submission,
    ToolResult,
    at_once,
)
from retinue.tools.child_options import Seconds, seconds
from retinue.tools.context_verbs import check_delegated
from retinue.tools.own_time import within

_encode = msgspec.json.Encoder().encode


class FunctionTool:
    """Made by `@tool`. An `async` function runs on the loop; a plain one in a thread, unless it is
    `quick`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        restart: Restart = "unsafe",
        risk: Risk = "execute",
        quick: bool = False,
        timeout: Seconds | None = None,
        format_results: Callable[[Sequence[ChildOutcome]], str] | None = None,
    ) -> None:
        self.function = function
        self.restart = restart
        self.risk = risk
        self.never_waits = quick and not inspect.iscoroutinefunction(function)
        self._direct = quick or inspect.iscoroutinefunction(function)
        self._timeout = None if timeout is None else seconds(timeout)
        self._compose = format_results
        self._context, self._args = _arguments(function)
        try:
            parameters = plain_schema(self._args)
        except TypeError as error:
            raise ConfigError(f"tool {function.__name__!r}: {error}") from None
        self.schema = ToolSchema(
            name=name or function.__name__,
            description=inspect.cleandoc(function.__doc__ or ""),
            parameters=parameters,
        )

    @property
    def name(self) -> str:
        return self.schema.name

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        values = self._given(args)
        if isinstance(values, ToolResult):
            return values
        if self._caller:
            values[self._caller] = caller
        if self._timeout is not None:
            results = await within(self._timeout, self._work(values))
            if results is None:
                text = f"The tool was stopped after {self._timeout:g} s of its own work."
                return ToolResult(text=text, error=True)
            (out,) = results
        elif self._direct:
            out = self.function(**values)
            if type(out) is not str and inspect.isawaitable(out):
                out = await out
        else:
            out = await asyncio.to_thread(self.function, **values)
        check_delegated(caller.steps, self.name, out)
        return _returned(out)

    async def _work(self, values: dict[str, Any]) -> tuple[Any]:
        """The same for a tool with a timeout; in a tuple, for a function may return None."""
        if not self._direct:
            return (await asyncio.to_thread(self.function, **values),)
        out = self.function(**values)
        return (await out,) if inspect.isawaitable(out) else (out,)

    def run_now(self, caller: Callable[[], Context], args: dict[str, Any]) -> Returned:
        """For one that never waits: most need no caller, and none is made for them."""
        values = self._given(args)
        if isinstance(values, ToolResult):
            return values
        steps = None
        if self._caller:
            values[self._caller] = context = caller()
            steps = context.steps
        out = self.function(**values)
        if steps is not None:
            check_delegated(steps, self.name, out)
        if type(out) is str:
            return ToolResult(text=out)
        return _returned(at_once(_awaited(out)) if inspect.isawaitable(out) else out)

    def _given(self, args: dict[str, Any]) -> dict[str, Any] | ToolResult:
        """The arguments as the function takes them, or what is wrong with them."""
        try:
            return msgspec.structs.asdict(msgspec.convert(args, self._args))
        except msgspec.ValidationError as error:
            return ToolResult(text=f"Invalid parameters: {error}", error=True)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        if self._compose is None:
            raise ConfigError(
                f"Tool {self.name!r} cannot format results. Add @tool(format_results=...)."
            )
        return self._compose(outcomes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str = "",
    restart: Restart = "unsafe",
    risk: Risk = "execute",
    quick: bool = False,
    timeout: Seconds | None = None,
    format_results: Callable[[Sequence[ChildOutcome]], str] | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function. Its parameters need annotations; one annotated `Context` is filled
    in by the runtime.

    `restart` says what may happen to a call that a crash interrupted: `pure` and `keyed` are run
    again, `unsafe` (the default) never is. `risk` says what it can do to the world: `read`,
    `write`, `network`, or `execute`, the default. `timeout` is for the tool's own work: waiting for
    children and people does not count."""
    if function is not None:
        return FunctionTool(function)
    return lambda f: FunctionTool(f, **options)


def _arguments(function: Callable[..., Any]) -> tuple[str, type[msgspec.Struct]]:
    """The name of the context parameter, if any, and a type for all others."""
    try:
        hints = get_type_hints(function, localns={"Context": Context})
    except NameError as error:
        raise ConfigError(
            f"Tool {function.__name__!r}: cannot resolve an annotation: {error}"
        ) from None
    context = ""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise ConfigError(
                f"Tool {function.__name__!r}: parameter {name!r} cannot be passed by name."
            )
        hint = hints.get(name)
        if hint is None:
            raise ConfigError(
                f"Tool {function.__name__!r}: parameter {name!r} needs an annotation."
            )
        if hint is Context:
            context = name
        elif parameter.default is parameter.empty:
            fields.append((name, hint))
        else:
            fields.append((name, hint, parameter.default))
    return context, msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def plain_schema(type_: Any) -> dict[str, Any]:
    """A JSON schema without references at its root, as providers want it for tool parameters."""
    schema = msgspec.json.schema(type_)
    definitions = schema.pop("$defs", {})
    ref = schema.pop("$ref", "")
    if ref:
        schema = definitions.pop(ref.rsplit("/", 1)[1])
    if definitions:
        schema["$defs"] = definitions
    schema.pop("title", None)
    return dict(schema)


async def _awaited(out: Awaitable[Any]) -> Any:
    return await out


def _returned(out: Any) -> Returned:
    if isinstance(out, Delegation):
        return out.actions
    return (
        out
        if isinstance(out, (ToolResult, Actions, Submission, Ask))
        else ToolResult(text=_words(out))
    )


def _words(value: Any) -> str:
    if value is None:
        return "Done."
    return value if isinstance(value, str) else _encode(value).decode()
