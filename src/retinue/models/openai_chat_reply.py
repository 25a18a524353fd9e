"""Reads a whole reply of Chat Completions in its usual form, in one step. Whatever is odd about one
is left to the decoder, which looks at everything twice."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import MOST_TOKENS, Usage

Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST_TOKENS)]
Named = Annotated[str, msgspec.Meta(min_length=1)]


class _Function(msgspec.Struct, gc=False):
    name: Named
    arguments: Annotated[str, msgspec.Meta(pattern=r"^\s*\S")]


class _Call(msgspec.Struct, gc=False):
    id: Named
    function: _Function


class _Message(msgspec.Struct, gc=False):
    """What is None here is not None in a reply that is odd."""

    content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None
    reasoning: None = None
    reasoning_content: None = None
    reasoning_details: None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: Literal["stop", "tool_calls", "length"]
    index: Literal[0] = 0
    delta: None = None
    error: None = None
    usage: None = None
    x_groq: None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _Used(msgspec.Struct, gc=False):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: None = None
    cached_tokens: None = None


class _Whole(msgspec.Struct, gc=False):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1, max_length=1)]
    usage: _Used
    object: Literal["chat.completion"]
    model: str = ""
    error: None = None
    x_groq: None = None


_DECODER = msgspec.json.Decoder(_Whole)
_NOTHING = _Details()


def plain_reply(body: bytes) -> ModelReply | None:
    """The reply in a body, if there is nothing odd about it."""
    try:
        whole = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    message, used = whole.choices[0].message, whole.usage
    calls = tuple(
        [
            ToolCall(id=c.id, name=c.function.name, arguments_json=c.function.arguments)
            for c in message.tool_calls or ()
        ]
    )
    if len(calls) > 1 and len({c.id for c in calls}) < len(calls):
        return None
    stop: Literal["calls", "end", "length"] = "calls" if calls else "end"
    if whole.choices[0].finish_reason == "length":
        stop = "length"
    details = used.prompt_tokens_details or _NOTHING
    return ModelReply(
        message=AssistantMessage(text=message.content or "", calls=calls),
        usage=Usage(
            input=used.prompt_tokens,
            output=max(
                used.completion_tokens,
                used.total_tokens - used.prompt_tokens if used.prompt_tokens else 0,
            ),
            cache_read=details.cached_tokens or 0,
            cache_write=details.cache_write_tokens or 0,
        ),
        stop=stop,
        model=whole.model,
    )
