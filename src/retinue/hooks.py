"""Hooks: functions of a program that see what its runs are about to do and have done, and can
change or refuse it.

What a hook has changed is what is recorded: a call is changed before its reply is written down, so
permissions, people, restarts and events all see the same call. After a restart, what is on record
is not given to a hook again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import msgspec

from retinue.core.messages import ModelReply, ToolCall
from retinue.core.type_parameters import D_co, D_contra, R, RunId
from retinue.core.values import Value
from retinue.errors import ConfigError
from retinue.models.base import ModelRequest
from retinue.tools.base import ToolResult

if TYPE_CHECKING:
    from retinue.option_types import RunOptions
    from retinue.outcomes import Outcome

MaybeAwaitable: TypeAlias = R | Awaitable[R]


class HookContext(msgspec.Struct, Generic[D_co], frozen=True):
    """Whose call, spawn or end it is. `deps` is what the runtime was given: `Retinue(deps=...)`."""

    deps: D_co
    run_id: RunId[Any]
    root_id: RunId[Any]
    agent: str
    meta: Mapping[str, str]


class Spawn(Value):
    """A child that is about to start: its agent, its task, and those of its options that are not
    the defaults."""

    agent: str
    task: str
    options: RunOptions


class Refuse(Value):
    """Returned by a hook: do not do it. The model reads the reason; a model call that is
    refused ends its run with it."""

    reason: str


class Hooks(Generic[D_contra]):
    """Functions, plain or async, around model calls, tool calls, spawns and ends.

    A `before_` hook returns a changed value, a `Refuse`, or None to leave it alone; an `after_`
    hook a changed value or None. Several are asked in their order, each with what the one before it
    has made of it; the first `Refuse` counts. A hook that raises, or returns something else, is
    logged and counts as None; with `strict=True` it counts as a refusal. Plain functions run on the
    event loop: one that waits should be `async`."""

    __slots__ = (
        "after_model",
        "after_tool",
        "before_model",
        "before_spawn",
        "before_tool",
        "on_end",
        "strict",
    )

    def __init__(
        self,
        *,
        before_model: Callable[
            [HookContext[D_contra], ModelRequest], MaybeAwaitable[ModelRequest | Refuse | None]
        ]
        | None = None,
        after_model: Callable[
            [HookContext[D_contra], ModelRequest, ModelReply], MaybeAwaitable[ModelReply | None]
        ]
        | None = None,
        before_tool: Callable[
            [HookContext[D_contra], ToolCall], MaybeAwaitable[ToolCall | Refuse | None]
        ]
        | None = None,
        after_tool: Callable[
            [HookContext[D_contra], ToolCall, ToolResult], MaybeAwaitable[ToolResult | None]
        ]
        | None = None,
        before_spawn: Callable[
            [HookContext[D_contra], Spawn], MaybeAwaitable[Spawn | Refuse | None]
        ]
        | None = None,
        on_end: Callable[[HookContext[D_contra], Outcome[Any]], MaybeAwaitable[None]] | None = None,
        strict: bool = False,
    ) -> None:
        self.before_model, self.after_model = before_model, after_model
        self.before_tool, self.after_tool = before_tool, after_tool
        self.before_spawn, self.on_end = before_spawn, on_end
        self.strict = strict
        for name in HOOK_NAMES:
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigError(f"Hooks({name}=...) takes a function, not {function!r}.")


HOOK_NAMES = (
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "before_spawn",
    "on_end",
)
