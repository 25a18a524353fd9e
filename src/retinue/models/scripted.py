"""A model that answers from a function or a list: for tests, examples and benchmarks.

It keeps no state: what it says depends on the conversation alone, so it continues correctly after a
restart."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import ModelInfo, Usage
from retinue.errors import ConfigError
from retinue.models.base import ModelRequest

Line = str | ToolCall | Sequence[ToolCall] | AssistantMessage | ModelReply | BaseException
Script = Sequence[Line] | Callable[[ModelRequest], "Line | Awaitable[Line]"]

_encode = msgspec.json.Encoder().encode
KEPT = 1_000
"""So many requests are kept for a test to look at."""


def call(tool: str, /, **arguments: object) -> ToolCall:
    """A tool call for a script. Its id is filled in when the reply is made."""
    return ToolCall(id="", name=tool, arguments_json=_encode(arguments).decode())


def check_script(script: object) -> None:
    """Refuses what is not a script, and names the line that is none."""
    if callable(script):
        return
    if isinstance(script, (str, ToolCall)) or not isinstance(script, Sequence) or not script:
        hint = f" Write [{script!r}]." if isinstance(script, str) and len(script) < 40 else ""
        raise ConfigError(f"A script is a list of at least one line, or a function.{hint}")
    for n, line in enumerate(script, 1):
        try:
            check_line(line)
        except TypeError as error:
            raise ConfigError(f"Line {n} of the script: {error}") from None


def check_line(line: Line) -> Line:
    """The line, if it is one."""
    if isinstance(line, (str, ToolCall, AssistantMessage, ModelReply, BaseException)):
        return line
    if isinstance(line, (list, tuple)) and line and all(isinstance(c, ToolCall) for c in line):
        return line
    raise TypeError(
        "A line is a text, one or more call(...), an AssistantMessage, a ModelReply or an "
        f"exception, not {line!r:.100}."
    )


class Scripted:
    """`Scripted(["text", call("tool", x=1), ...])` says one line a turn; `Scripted(function)` asks
    the function.

    A line is a text, a call or several, an `AssistantMessage`, a `ModelReply`, or an exception to
    raise. Each takes `delay` seconds. An assertion that fails inside the function fails the test.
    """

    says_progress = True

    def __init__(
        self,
        script: Script,
        *,
        name: str = "",
        info: ModelInfo | None = None,
        usage: Usage | None = None,
        delay: float = 0.0,
    ) -> None:
        if callable(script) or not isinstance(script, (list, tuple)) or script:
            check_script(script)  # one without a line is for a model that must not be asked
        for option, value, kind in (("info", info, ModelInfo), ("usage", usage, Usage)):
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"Scripted(): {option} is a {kind.__name__}, not {value!r:.80}.")
        if not isinstance(delay, (int, float)) or not delay >= 0:
            raise ConfigError(f"Scripted(): delay is a number of seconds, not {delay!r:.80}.")
        self.info = info or ModelInfo(name=name, price_in=0, price_out=0)
        self._script = script
        self._usage = usage
        self._delay = delay
        self._requests: deque[ModelRequest] = deque(maxlen=KEPT)

    @property
    def requests(self) -> Sequence[ModelRequest]:
        """What it was asked lately, oldest first."""
        return list(self._requests)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        request.progress.leave()
        self._requests.append(request)
        await asyncio.sleep(self._delay)
        if callable(self._script):
            try:
                line = self._script(request)
                if not isinstance(line, _PLAIN) and inspect.isawaitable(line):
                    line = await line
            except AssertionError as error:
                if _hearers:
                    _hearers[-1](error)
                raise
        elif not self._script:
            raise ConfigError("This scripted model was called, but its script has no lines.")
        else:
            n_replies = sum(isinstance(m, AssistantMessage) for m in request.messages)
            line = self._script[min(n_replies, len(self._script) - 1)]
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, ModelReply) and line.usage is not _NO_USAGE:
            reply = line
        else:
            message = line.message if isinstance(line, ModelReply) else _message(line, request.turn)
            usage = self._usage or _measure(request, message)
            if isinstance(line, ModelReply):
                reply = msgspec.structs.replace(line, usage=usage)
            else:
                stop: Literal["calls", "end"] = "calls" if message.calls else "end"
                reply = ModelReply(message=message, usage=usage, stop=stop, model=request.model)
        if reply.message.text:
            emit(reply.message.text)
        return reply


_hearers: list[Callable[[AssertionError], None]] = []


@contextmanager
def assertion_listener(hear: Callable[[AssertionError], None]) -> Iterator[None]:
    """Tells of every assertion that fails inside a script meanwhile, unless another listens further
    inside. The run that asked fails anyway; this is for the test around it."""
    _hearers.append(hear)
    try:
        yield
    finally:
        _hearers.remove(hear)


_NO_USAGE = Usage()
_PLAIN = (str, ToolCall, list, AssistantMessage, ModelReply, BaseException)


def _message(
    line: str | ToolCall | Sequence[ToolCall] | AssistantMessage, turn: int
) -> AssistantMessage:
    if isinstance(line, str):
        return AssistantMessage(text=line)
    if isinstance(line, AssistantMessage):
        message = line
    else:
        check_line(line)
        message = AssistantMessage(calls=(line,) if isinstance(line, ToolCall) else tuple(line))
    if all([c.id for c in message.calls]):
        return message
    calls = [
        c if c.id else ToolCall(id=f"c{turn}_{i}", name=c.name, arguments_json=c.arguments_json)
        for i, c in enumerate(message.calls)
    ]
    return msgspec.structs.replace(message, calls=tuple(calls))


def _measure(request: ModelRequest, message: AssistantMessage) -> Usage:
    """Four characters make a token here: never more than the bound that the ledger holds."""
    n_in = sum([len(m.text) for m in request.messages])
    n_out = len(message.text) + sum([len(c.arguments_json) for c in message.calls])
    return Usage(input=n_in // 4, output=min(n_out // 4 + 1, request.max_output))
