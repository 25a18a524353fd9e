"""Calls hooks in their order; each gets what the one before it returned. A hook that fails is
contained and logged, and what it returns is checked before it counts."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from retinue.core.history import ShownMessages, as_shown
from retinue.core.messages import ModelReply, ToolCall
from retinue.core.spec import Actions, RunRequest, RunSpec
from retinue.core.state import RunRecord
from retinue.core.type_parameters import RunId
from retinue.core.values import Value, checked
from retinue.errors import ConfigError, ModelRejected, NotFound, RetinueError, ToolError
from retinue.hooks import HookContext, Hooks, Refuse, Spawn
from retinue.models.base import ModelRequest
from retinue.runtime.coroutines import asked_to_stop, take_cancellation
from retinue.tools.base import ToolResult
from retinue.tools.start_options import ChildOptions, child_fields

log = logging.getLogger("retinue.hooks")
V = TypeVar("V")
LAST_SECONDS = 10.0
"""So long a runtime that is closed waits for hooks on ends."""
CHANGEABLE = ("instructions", "messages", "tools", "settings", "max_output")
"""What a hook can change of a request. The rest says whose it is, and which."""
_DEFAULTS = RunRequest(agent="", task="")
_OPTIONS = [name for name in ChildOptions.__annotations__ if name not in ("key", "timeout")]


class HookCalls:
    """The hooks of one runtime (`runtime.run_hooks.RunHooks`). `record` and `wait` give the row and
    the outcome of a run; `find_model` says why a model is not known, or ""."""

    def __init__(
        self,
        hooks: Sequence[Hooks[Any]],
        deps: object,
        record: Callable[[str], Awaitable[RunRecord]],
        wait: Callable[[str], Awaitable[Any]],
        find_model: Callable[[str], str],
    ) -> None:
        self._hooks, self._deps = tuple(hooks), deps
        self._record, self._wait, self._find_model = record, wait, find_model
        self._ends: set[asyncio.Task[None]] = set()

    async def before_model(self, spec: RunSpec, request: ModelRequest) -> ModelRequest:
        out = await self._ask("before_model", spec, request, check=_same_call)
        if isinstance(out, Refuse):
            raise ModelRejected(f"A hook refused the model call: {out.reason}", "refused")
        return out

    async def after_model(
        self, spec: RunSpec, request: ModelRequest, reply: ModelReply
    ) -> ModelReply:
        out = await self._ask("after_model", spec, reply, (request,), check=_whole_reply)
        if isinstance(out, Refuse):
            message = f"A hook refused the reply: {out.reason}"
            raise ModelRejected(message, "refused", usage=reply.usage)
        return out

    async def before_tools(
        self, spec: RunSpec, calls: tuple[ToolCall, ...]
    ) -> tuple[tuple[ToolCall, ...], tuple[tuple[int, str], ...]]:
        changed, refused = list(calls), list[tuple[int, str]]()
        for index, call in enumerate(calls):
            out = await self._ask("before_tool", spec, call, check=_same_id)
            if isinstance(out, Refuse):
                refused.append((index, out.reason))
            else:
                changed[index] = out
        return tuple(changed), tuple(refused)

    async def after_tool(self, spec: RunSpec, call: ToolCall, result: ToolResult) -> ToolResult:
        out = await self._ask("after_tool", spec, result, (call,), check=_checked)
        return ToolResult(text=out.reason, error=True) if isinstance(out, Refuse) else out

    async def before_spawns(self, spec: RunSpec, actions: Actions) -> Actions:
        if not any(hooks.before_spawn for hooks in self._hooks) or not actions.spawns:
            return actions
        requests = [await self._before_spawn(spec, request) for request in actions.spawns]
        return replace(actions, spawns=tuple(requests))

    async def _before_spawn(self, spec: RunSpec, request: RunRequest) -> RunRequest:
        spawn = Spawn(agent=request.agent, task=request.task, options=options_of(request))
        out = await self._ask("before_spawn", spec, spawn, check=self._startable)
        if isinstance(out, Refuse):
            raise ToolError(f"A hook refused to start {request.name!r}: {out.reason}")
        return request if out is spawn else requested(request, out)

    def _startable(self, old: Spawn, new: Spawn) -> Spawn:
        request = requested(_DEFAULTS, new)
        model = request.model
        if model and model != old.options.get("model", "") and (why := self._find_model(model)):
            raise ConfigError(why)
        return new

    def ended(self, run: str) -> None:
        if any(hooks.on_end for hooks in self._hooks):
            task = asyncio.get_running_loop().create_task(self._on_end(run))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _on_end(self, run: str) -> None:
        try:
            spec, outcome = (await self._record(run)).spec, await self._wait(run)
        except NotFound:
            log.info("run %s was deleted before its on_end hooks were called", run)
            return
        except RetinueError as error:
            log.warning("on_end hooks of run %s were not called: %s", run, error)
            return
        await self._ask("on_end", spec, outcome, check=_nothing)

    async def close(self) -> None:
        """The hooks on ends that are on record are given some time."""
        if self._ends:
            _, late = await asyncio.wait(self._ends, timeout=LAST_SECONDS)
            for task in late:
                log.warning("an on_end hook takes more than %g s; it is stopped", LAST_SECONDS)
                task.cancel()

    async def _ask(
        self,
        name: str,
        spec: RunSpec,
        value: V,
        before: tuple[object, ...] = (),
        *,
        check: Callable[[V, Any], V],
    ) -> V | Refuse:
        """The value as all hooks of that name leave it, or the first refusal."""
        for hooks in self._hooks:
            if (function := getattr(hooks, name)) is None:
                continue
            try:
                out = function(self._context(spec), *before, value)
                out = await out if inspect.isawaitable(out) else out
                await take_cancellation()
                if isinstance(out, Refuse) and name.startswith("before_"):
                    return out
                value = value if out is None else check(value, out)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and asked_to_stop():
                    raise
                log.warning("hook %s failed for run %s", name, spec.id, exc_info=error)
                if hooks.strict:
                    return Refuse(reason=f"The hook {name} failed: {error}")
        return value

    def _context(self, spec: RunSpec) -> HookContext[Any]:
        return HookContext(
            deps=self._deps,
            run_id=RunId(spec.id),
            root_id=RunId(spec.root),
            agent=spec.request.agent,
            meta=spec.meta,
        )


def options_of(request: RunRequest) -> Any:
    """What a request sets, as the options of a run."""
    options = {
        name: value
        for name in _OPTIONS
        if (value := getattr(request, name)) != getattr(_DEFAULTS, name)
    }
    if request.timeout_ms is not None:
        options["timeout"] = request.timeout_ms / 1000
    return options


def requested(request: RunRequest, spawn: Spawn) -> RunRequest:
    """The request with what a hook has made of it. An option that is not there has its default."""
    fields = {name: getattr(_DEFAULTS, name) for name in (*_OPTIONS, "timeout_ms")}
    options: Mapping[str, Any] = spawn.options
    fields |= child_fields("before_spawn", options)
    return checked(replace(request, agent=spawn.agent, task=spawn.task, **fields))


T = TypeVar("T", bound=Value)


def _of_kind(old: T, new: Any) -> T:
    if not isinstance(new, type(old)):
        raise TypeError(f"it returned a {type(new).__name__}, not a {type(old).__name__}")
    return new


def _checked(old: T, new: Any) -> T:
    return checked(_of_kind(old, new))


def _same_id(old: ToolCall, new: Any) -> ToolCall:
    """A call may become another one, but is answered under its id."""
    return replace(_checked(old, new), id=old.id)


def _same_call(old: ModelRequest, new: Any) -> ModelRequest:
    if not isinstance(new, ModelRequest):
        raise TypeError(f"it returned a {type(new).__name__}, not a ModelRequest")
    for name in ModelRequest.__struct_fields__:
        if name not in CHANGEABLE and getattr(new, name) != getattr(old, name):
            raise ValueError(f"{name} cannot be changed; {', '.join(CHANGEABLE)} can")
    messages = new.messages if isinstance(new.messages, ShownMessages) else as_shown(new.messages)
    # What a reply may cost was set aside before.
    most = min(new.max_output, old.max_output)
    return replace(new, messages=messages, tools=tuple(new.tools), max_output=most)


def _whole_reply(old: ModelReply, new: Any) -> ModelReply:
    """What was spent stays as it was, and what a provider has sealed goes with the words that it
    has sealed."""
    reply = _checked(old, new)
    message = reply.message
    if message != old.message:
        calls = [
            call if call.id else replace(call, id=f"hook_{n}")
            for n, call in enumerate(message.calls)
        ]
        message = replace(message, calls=tuple(calls), opaque="")
    stop = reply.stop
    if message.calls and stop == "end":
        stop = "calls"
    elif not message.calls and stop == "calls":
        stop = "end"
    return replace(reply, message=message, usage=old.usage, stop=stop)


def _nothing(old: V, new: object) -> V:
    raise TypeError(f"it returned a {type(new).__name__}; an on_end hook changes nothing")
