"""A Python function as a tool: its signature is the schema, its docstring the description."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, Protocol, TypedDict, Unpack, get_args, overload

from retinue.core.effects import ChildOutcome
from retinue.core.messages import ToolCall
from retinue.core.type_parameters import D, D_contra, P, R, R_co
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError, ToolError
from retinue.formats.suggestion import did_you_mean
from retinue.tools.base import Context, Returned, Risk, ToolResult, at_once
from retinue.tools.context_verbs import check_delegated
from retinue.tools.function.returned import as_returned
from retinue.tools.function.signature import Signature
from retinue.tools.function.unfit import Unfit
from retinue.tools.option_values import check_values, shown
from retinue.tools.own_time import within
from retinue.tools.start_options import Seconds, seconds

log = logging.getLogger("retinue.tools")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
RESTARTS = ("pure", "keyed", "reconcile", "unsafe")


class ToolOptions(TypedDict, total=False):
    """The options of `tool`."""

    name: str
    """How the model calls it; otherwise the name of the function."""
    description: str
    """What the model reads; otherwise the docstring."""
    restart: Restart
    """What may happen to a call that a crash interrupted: `pure` and `keyed` are run again,
    `reconcile` is run again with `ctx.again` set, `unsafe` (the default) is not."""
    risk: Risk
    """What it can do to the world: `read`, `write`, `network`, or `execute`, the default."""
    approve: bool | Callable[[ToolCall], bool]
    """Ask a person before each call, or before those for which the function says so."""
    timeout: Seconds
    """For the tool's own work; waiting for children and people does not count."""
    quick: bool
    """A plain function that never blocks: it runs on the event loop instead of in a thread."""
    subject: str
    """The parameter that permission rules look at."""
    format_results: Callable[[Sequence[ChildOutcome]], str]
    """Puts the outcomes of children that the call waited for into words."""


class FunctionTool(Generic[P, R_co, D_contra]):
    """A function that is a tool. Calling it calls the function. An `async` function runs on the
    loop; a plain one in a thread, unless it is `quick`."""

    def __init__(self, function: Callable[P, R_co], **options: Unpack[ToolOptions]) -> None:
        _check_kinds(function, options)
        signature = Signature(function, options.get("name", ""))
        _check(signature, options)
        self.function = function
        self.restart: Restart = options.get("restart", "unsafe")
        self.risk: Risk = options.get("risk", "execute")
        self.subject = options.get("subject", "")
        self.approve = options.get("approve", False)
        self.never_waits = options.get("quick", False) and not signature.is_async
        timeout = options.get("timeout")
        self._timeout = None if timeout is None else seconds(timeout)
        self._compose = options.get("format_results")
        self._on_loop = signature.is_async or self.never_waits
        self._signature, self._context = signature, signature.context
        self.deps_type = signature.deps_type
        self.schema = ToolSchema(
            name=signature.name,
            description=options.get("description", signature.description),
            parameters=signature.schema,
        )

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def description(self) -> str:
        return self.schema.description

    @property
    def parameters(self) -> dict[str, Any]:
        return self.schema.parameters

    @property
    def same_as(self) -> tuple[object, ...]:
        """What makes two tools of one function the same."""
        options = (self.restart, self.risk, self.subject, self.approve, self._timeout)
        return (self.function, self.schema, *options, self._on_loop, self._compose)

    def needs_approval(self, call: ToolCall) -> bool:
        """Whether a person is asked before this call. A function that fails to say is taken to say
        yes."""
        if isinstance(self.approve, bool):
            return self.approve
        try:
            return bool(self.approve(call))
        except Exception:
            log.warning("approve= of %s failed, so a person is asked", self.name, exc_info=True)
            return True

    async def run(self, context: Context[D_contra], args: dict[str, Any]) -> Returned:
        values = self._arguments(args)
        if isinstance(values, ToolResult):
            return values
        if self._context:
            values[self._context] = context
        if self._timeout is None:
            out = await self._work(context, values)
        else:
            results = await within(self._timeout, self._in_tuple(context, values))
            if results is None:
                return ToolResult(text=self._late(), error=True)
            (out,) = results
        check_delegated(context.steps, self.name, out)
        return as_returned(self.name, out)

    async def invoke(self, ctx: Context[D_contra], arguments: Mapping[str, Any], /) -> object:
        """What the function returns for these arguments, which are checked as a model's are."""
        values = self._arguments(dict(arguments))
        if isinstance(values, ToolResult):
            raise ToolError(values.text)
        if self._context:
            values[self._context] = ctx
        return await self._work(ctx, values)

    async def _in_tuple(self, context: Context[D_contra], values: dict[str, Any]) -> tuple[Any]:
        """For a tool with a timeout: a function may return None."""
        return (await self._work(context, values),)

    async def _work(self, context: Context[D_contra], values: dict[str, Any]) -> Any:
        if not self._on_loop:
            work = functools.partial(contextvars.copy_context().run, self._call, values)
            out: Any = await asyncio.get_running_loop().run_in_executor(context.threads, work)
        else:
            out = self._call(values)
        return await self._awaited(out) if inspect.isawaitable(out) else out

    def _call(self, values: dict[str, Any]) -> Any:
        try:
            return self.function(**values)  # type: ignore[call-arg]
        except (StopIteration, SystemExit) as error:
            raise self._failed(error) from error

    async def _awaited(self, out: Awaitable[Any]) -> Any:
        try:
            return await out
        except SystemExit as error:
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> RuntimeError:
        """One call has failed. A `StopIteration` from a thread never arrives in the coroutine that
        waits for it; a `SystemExit`, which argument parsers raise, would end all runs."""
        return RuntimeError(f"{self.name} raised {type(error).__name__}({error})")

    def run_now(self, make: Callable[[], Context[D_contra]], args: dict[str, Any]) -> Returned:
        """For one that never waits: most need no context, and none is made for them."""
        values = self._arguments(args)
        if isinstance(values, ToolResult):
            return values
        steps = None
        if self._context:
            values[self._context] = context = make()
            steps = context.steps
        out = self._call(values)
        if steps is not None:
            check_delegated(steps, self.name, out)
        if type(out) is str:
            return ToolResult(text=out)
        return as_returned(
            self.name, at_once(self._awaited(out)) if inspect.isawaitable(out) else out
        )

    def _arguments(self, args: dict[str, Any]) -> dict[str, Any] | ToolResult:
        """The arguments as the function takes them, or what is wrong with them."""
        try:
            return self._signature.arguments(args)
        except Unfit as error:
            return ToolResult(text=f"Invalid parameters: {error}", error=True)

    def _late(self) -> str:
        text = f"The tool was stopped after {self._timeout:g} s of its own work."
        if self._on_loop:
            return text
        return f"{text} What it had begun may still be done; its result is lost."

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        if self._compose is None:
            raise ConfigError(
                f"Tool {self.name!r} cannot format results. Add @tool(format_results=...)."
            )
        return self._compose(outcomes)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)


class ToolDecorator(Protocol):
    """What `tool(...)` with options alone returns: it takes the function."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context[D], P], R], /
    ) -> FunctionTool[Concatenate[Context[D], P], R, D]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R, object]: ...


@overload
def tool(
    function: Callable[Concatenate[Context[D], P], R], /, **options: Unpack[ToolOptions]
) -> FunctionTool[Concatenate[Context[D], P], R, D]: ...
@overload
def tool(
    function: Callable[P, R], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R, object]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> ToolDecorator: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a tool of a function. Its signature is the schema, its docstring the description. A
    parameter annotated `Context` is filled in by the runtime. The options are those of
    `ToolOptions`."""
    if function is not None:
        return FunctionTool(function, **options)
    return lambda f: FunctionTool(f, **options)


_NAMED_BELOW = ("restart", "risk")
"""Options with errors of their own, which name the choices."""


def _check_kinds(function: object, options: ToolOptions) -> None:
    """The argument must be a function that is not a tool yet, each option of its type."""
    names = list(ToolOptions.__annotations__)
    if odd := next((name for name in options if name not in names), ""):
        raise ConfigError(
            f"tool() has no option {odd!r}.{did_you_mean(odd, names)} There are {_all(names)}."
        )
    if isinstance(function, FunctionTool):
        raise ConfigError(f"{function.name!r} is a tool already. Write tool(f) of a function f.")
    if not callable(function):
        hint = f" Write @tool(name={function!r})." if isinstance(function, str) else ""
        raise ConfigError(f"tool() takes a function, not {shown(function)}.{hint}")
    typed = {name: value for name, value in options.items() if name not in _NAMED_BELOW}
    check_values("tool()", typed, ToolOptions)


def _check(signature: Signature, options: ToolOptions) -> None:
    """Whatever is wrong with a tool is said when it is made."""
    if not _NAME.fullmatch(signature.name):
        raise signature.wrong(
            "a name has 1 to 64 letters, digits, _ and -", "Write tool(..., name='...')."
        )
    for option, value, what, choices in (
        ("restart", options.get("restart", "unsafe"), "a restart class", RESTARTS),
        ("risk", options.get("risk", "execute"), "a risk", get_args(Risk)),
    ):
        if value not in choices and not (option == "restart" and value in get_args(Restart)):
            hint = did_you_mean(str(value), choices)
            raise signature.wrong(
                f"{option}={value!r} is not {what}", f"{hint} There are {_all(choices)}.".strip()
            )
    if (subject := options.get("subject")) and subject not in signature.names:
        hint = did_you_mean(subject, signature.names)
        raise signature.wrong(f"subject={subject!r} is not a parameter", hint.strip())
    if signature.is_generator:
        raise signature.wrong(
            "it is a generator, and a tool returns one value", "Return a list instead of `yield`."
        )
    if inspect.iscoroutinefunction(options.get("approve")):
        raise signature.wrong(
            "approve= takes a plain function, because it is asked while a reply is recorded",
            "Write def, not async def.",
        )
    if options.get("quick") and signature.is_async:
        raise signature.wrong(
            "quick=True is for plain functions; an async one always runs on the loop"
        )


def _all(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
