"""The prompt of a local model as plain values: messages, tools, and the grammar for its reply.

A chat template that knows tools is given them. For any other they are listed in the system prompt,
and a call is a JSON object between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from retinue.core.values import ToolSchema
from retinue.models.base import ModelRequest
from retinue.models.codec import Options, arguments
from retinue.models.gguf import GgufFacts
from retinue.models.local_grammar import CLOSE, OPEN, grammar

NOTHING_SAID = "(empty reply)"
NO_IMAGE = "[an image, which this model cannot see]"
TOOLS = """You have these tools, one on each line:
{tools}

To use a tool, reply with its name and its arguments in JSON between tags, and nothing else:
<tool_call>{{"name": "the tool", "arguments": {{}}}}</tool_call>
Its result then follows between <tool_result> and </tool_result>. When you need no tool, reply \
with your answer."""

_OURS = ("<tool_call>", "</tool_call>", "<tool_result>", "</tool_result>")
_RESERVED = (
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "tools",
    "tool_choice",
    "return_progress",
)
_KNOWS_TOOLS = re.compile(r"\btools\b")

Defuse = Callable[[str], str]


class Style(NamedTuple):
    """How a model is spoken to. `defuse` breaks the control tokens in a text: the engine would take
    them for the end of a turn, and the author of a file could speak as the system."""

    native: bool
    defuse: Defuse


def style_of(facts: GgufFacts) -> Style:
    native = bool(_KNOWS_TOOLS.search(facts.template))
    tokens = sorted({*facts.controls, *(() if native else _OURS)}, key=len, reverse=True)
    if not tokens:
        return Style(native, lambda text: text)
    control = re.compile("|".join(map(re.escape, tokens)))
    return Style(native, lambda text: control.sub(_broken, text))


def _broken(match: re.Match[str]) -> str:
    return f"{match[0][0]}\u200b{match[0][1:]}"


def body(
    request: ModelRequest, style: Style, options: Options, *, must_call: bool = False
) -> dict[str, Any]:
    """The request to the engine. `return_progress` makes it speak while it reads, so that it can be
    stopped then."""
    declared = request.declared or request.tools
    calls = wanted_tools(request, must_call)
    payload: dict[str, Any] = {
        name: value for name, value in options.extra.items() if name not in _RESERVED
    }
    payload |= {
        "messages": messages(request, style, () if style.native else declared),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "max_tokens": max(1, request.max_output),
    }
    fields = {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed}
    payload |= {name: value for name, value in fields.items() if value is not None}
    if options.stop:
        payload["stop"] = list(options.stop)
    if not declared:
        return (
            payload
            if options.output_schema is None
            else {**payload, "json_schema": options.output_schema}
        )
    if style.native:
        payload["tools"] = [
            {"type": "function", "function": msgspec.to_builtins(tool)} for tool in declared
        ]
        if request.tools and not calls and options.output_schema is None:
            return payload  # the engine knows the model's own way to call
        # Its "required" lets the model talk before it calls. With "none" the tools are shown, and
        # the grammar is ours.
        payload["tool_choice"] = "none"
    payload["grammar"] = grammar(
        calls or request.tools, is_call=bool(calls), output=options.output_schema
    )
    return payload


def wanted_tools(request: ModelRequest, must_call: bool) -> tuple[ToolSchema, ...]:
    """The tools one of which must be called now: all if the model is set so, or those that a nudge
    of the runtime names ("Submit your result by calling ..."). A small model seldom does it of its
    own accord."""
    if must_call or not request.tools or not request.messages:
        return request.tools if must_call else ()
    last = request.messages[-1]
    if not isinstance(last, UserMessage) or last.kind != "nudge":
        return ()
    words = set(re.findall(r"[\w.-]*\w", last.text))
    return tuple(tool for tool in request.tools if tool.name in words)


def messages(
    request: ModelRequest, style: Style, listed: Sequence[ToolSchema]
) -> list[dict[str, Any]]:
    """The conversation for a chat template. Many refuse two messages of one role in a row: they are
    joined."""
    defuse = style.defuse
    system = defuse(request.instructions)
    if listed:
        lines = "\n".join(defuse(msgspec.json.encode(tool).decode()) for tool in listed)
        system = f"{system}\n\n{TOOLS.format(tools=lines)}".strip()
    out: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in request.messages:
        for entry in (_native if style.native else _plain)(message, defuse):
            last = out[-1] if out else entry
            if (
                last is not entry
                and last["role"] == entry["role"] != "tool"
                and "tool_calls" not in last | entry
            ):
                last["content"] = f"{last['content']}\n\n{entry['content']}"
            else:
                out.append(entry)
    return out


def _plain(message: Message, defuse: Defuse) -> list[dict[str, Any]]:
    match message:
        case UserMessage():
            return [{"role": "user", "content": defuse(_seen(message))}]
        case AssistantMessage(text=text, calls=calls):
            lines = [
                OPEN
                + defuse(
                    json.dumps(
                        {"name": c.name, "arguments": arguments(c.arguments_json)},
                        ensure_ascii=False,
                    )
                )
                + CLOSE
                for c in calls
            ]
            content = "\n".join([*([defuse(text)] if text else ()), *lines])
            return [{"role": "assistant", "content": content or NOTHING_SAID}]
        case ToolMessage(name=name):
            head = f"{name}: " if name else ""
            if message.error:
                head = f"{name} failed: "
            return [
                {
                    "role": "user",
                    "content": f"<tool_result>{head}{defuse(_seen(message))}</tool_result>",
                }
            ]


def _native(message: Message, defuse: Defuse) -> list[dict[str, Any]]:
    match message:
        case UserMessage():
            return [{"role": "user", "content": defuse(_seen(message))}]
        case AssistantMessage(text=text, calls=calls):
            entry: dict[str, Any] = {
                "role": "assistant",
                "content": defuse(text) or ("" if calls else NOTHING_SAID),
            }
            if calls:
                entry["tool_calls"] = [
                    {
                        "id": c.id,
                        "type": "function",
                        "function": {
                            "name": c.name,
                            "arguments": defuse(json.dumps(arguments(c.arguments_json))),
                        },
                    }
                    for c in calls
                ]
            return [entry]
        case ToolMessage(call_id=call_id, name=name):
            return [
                {
                    "role": "tool",
                    "tool_call_id": call_id,
                    "name": name,
                    "content": defuse(_seen(message)),
                }
            ]


def _seen(message: UserMessage | ToolMessage) -> str:
    return "\n".join([message.text, *[NO_IMAGE] * len(message.images)])
