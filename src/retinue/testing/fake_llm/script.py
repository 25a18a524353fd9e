"""What the fake provider says: the next line of a script, or what a mark in the conversation asks
for.

A mark is for programs that are driven from outside: a user's text with `@@turns=3,tool=read@@` gets
two calls of `read` and then an answer. `calls=5` makes five calls a turn; `args={...}` gives their
arguments, else they are made up from the tool's schema, others in each turn."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, UserMessage
from retinue.core.values import Usage
from retinue.errors import ConfigError
from retinue.models.scripted import Line as Line
from retinue.models.scripted import check_line as check_line
from retinue.models.scripted import check_script as check_script
from retinue.testing.fake_llm.dialect import (
    THOUGHT,
    Dialect,
    FakeReply,
    ParsedPrompt,
    ParsedRequest,
    Stop,
    decode,
    encode,
    label,
)

Script = Sequence[Line] | Callable[[ParsedRequest], "Line | Awaitable[Line]"]

MARK = re.compile(
    r"@@turns=(\d+)(?:,tool=([\w.:-]+))?(?:,calls=(\d+))?(?:,args=(\{.*?\}))?@@", re.DOTALL
)
IDS: Mapping[Dialect, tuple[str, str]] = {
    "anthropic": ("msg_", "toolu_"),
    "openai_chat": ("chatcmpl-", "call_"),
    "openai_responses": ("resp_", "call_"),
    "gemini": ("", "fc_"),
}
_NO_USAGE = Usage()
_CHARS = 4
"""So many characters are a token."""


def line_of(script: Script, request: ParsedRequest) -> Line | Awaitable[Line]:
    """A mark goes before the script; the last line of a list is said again and again."""
    if (line := _marked(request)) is not None:
        return line
    return script(request) if callable(script) else script[min(request.turn, len(script) - 1)]


def _marked(request: ParsedRequest) -> Line | None:
    n_calls = 0
    for message in reversed(request.messages):
        if isinstance(message, AssistantMessage):
            n_calls += bool(message.calls)
        elif (
            isinstance(message, UserMessage)
            and "@@turns=" in message.text
            and (match := MARK.search(message.text))
        ):
            return _turn(request, match, n_calls)
    return None


def _turn(request: ParsedRequest, mark: re.Match[str], n: int) -> Line:
    turns = int(mark[1])
    name = mark[2]
    width = int(mark[3] or 1)
    args = mark[4]
    tool = next((tool for tool in request.tools if name in (None, tool.name)), None)
    if tool is None or n >= turns - 1:
        return f"Done after {n + 1} turns."
    return [
        ToolCall(
            id="",
            name=tool.name,
            arguments_json=args or encode(sample(tool.parameters, n * width + i + 1)).decode(),
        )
        for i in range(width)
    ]


def sample(schema: Mapping[str, Any], n: int) -> Any:
    """A value that fits a schema well enough: what is required, and no more."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    match str(kind[0] if isinstance(kind, list) else kind).lower():
        case "object":
            parts = schema.get("properties", {})
            return {name: sample(parts.get(name, {}), n) for name in schema.get("required", [])}
        case "array":
            return [sample(schema.get("items") or {}, n)]
        case "integer" | "number":
            return n
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return str(n)


def compose(
    line: Line,
    request: ParsedRequest,
    prompt: ParsedPrompt,
    read: Callable[[Dialect, ParsedPrompt], Usage],
) -> FakeReply:
    """The reply to a line: ids that depend on the conversation alone, and what it cost."""
    usage, stop = _NO_USAGE, None
    model = request.model
    if isinstance(line, ModelReply):
        usage = line.usage
        stop = line.stop
        model = line.model or model
        line = line.message
    if isinstance(line, ToolCall):
        line = [line]
    if isinstance(line, str):
        message = AssistantMessage(text=line)
    elif isinstance(line, AssistantMessage):
        message = line
    elif isinstance(line, BaseException):
        raise TypeError("an exception is raised, not said")
    else:
        message = AssistantMessage(calls=tuple(line))
    of_reply, of_call = IDS[request.dialect]
    named = f"{of_call}{label(request.messages)}_{request.turn}"
    calls = [
        msgspec.structs.replace(c, id=c.id or f"{named}_{i}") for i, c in enumerate(message.calls)
    ]
    thinking = THOUGHT if prompt.is_thinking else ""
    if usage == _NO_USAGE:
        n_tokens = _size(message.text, thinking, calls) // _CHARS + 1
        if prompt.max_output is not None and n_tokens > prompt.max_output:
            n_tokens, stop = prompt.max_output, "length"
            message, calls = _cut(message, thinking, calls, n_tokens * _CHARS)
        usage = msgspec.structs.replace(read(request.dialect, prompt), output=n_tokens)
    usual: Stop = "calls" if calls else "end"
    ending = usual if stop in (None, "end") else stop
    return FakeReply(
        id=f"{of_reply}{request.n:024d}",
        model=model,
        text=message.text,
        calls=tuple(calls),
        stop=ending,
        usage=usage,
        thinking=thinking,
        refusal=message.text
        if ending == "refusal" and request.dialect.startswith("openai")
        else "",
        has_ids=prompt.has_ids,
        wants_usage=prompt.wants_usage,
    )


def _size(text: str, thinking: str, calls: Sequence[ToolCall]) -> int:
    return len(text) + len(thinking) + sum(len(c.name) + len(c.arguments_json) for c in calls)


def _cut(
    message: AssistantMessage, thinking: str, calls: Sequence[ToolCall], n_chars: int
) -> tuple[AssistantMessage, list[ToolCall]]:
    """As much as so many characters have room for: what was thought, the text up to there, and the
    calls that are whole."""
    text = message.text[: max(0, n_chars - len(thinking))]
    whole: list[ToolCall] = []
    for one in calls:
        if _size(text, thinking, [*whole, one]) > n_chars:
            break
        whole.append(one)
    return msgspec.structs.replace(message, text=text), whole


def load(path: Path) -> list[Line]:
    """A script from a file of JSON lines: `"text"`, `{"fault": "F4"}`, or `{"text": "...", "calls":
    [{"name": "read", "args": {...}}]}`."""
    lines: list[Line] = []
    for n, row in enumerate(path.read_bytes().splitlines(), 1):
        if not row.strip():
            continue
        try:
            lines.append(_loaded(decode(row)))
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise ConfigError(f"{path.name}, line {n}: not a script line: {error}") from error
    if not lines:
        raise ConfigError(f"{path.name}: a script needs at least one line")
    return lines


def _loaded(value: Any) -> Line:
    if isinstance(value, str):
        return value
    if "fault" in value:
        return str(value["fault"])
    calls = [
        ToolCall(
            id=str(call.get("id", "")),
            name=str(call["name"]),
            arguments_json=encode(call.get("args", {})).decode(),
        )
        for call in value.get("calls", [])
    ]
    return AssistantMessage(text=str(value.get("text", "")), calls=tuple(calls))
