"""The port to an API format: translates between conversations and bytes, without sockets and
clocks.

A request's body is `head + units joined by commas + tail`. The head (system prompt, tools, options)
is the same for all turns of a run; a unit, once encoded, never changes; so a turn costs what is new
in it, and a fork's prefix is byte-identical, which is what the providers' prompt caches need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from retinue.core.arguments import is_deep
from retinue.core.messages import AssistantMessage, Message, ModelReply, ToolMessage
from retinue.core.values import MOST_TOKENS, ToolSchema, Usage, Value
from retinue.errors import ModelError
from retinue.formats.safe_text import clean

_encode = msgspec.json.Encoder().encode

Effort = Literal["", "minimal", "low", "medium", "high"]


class Options(Value):
    """What may be asked of a model beside the conversation. `extra` goes into the body as it is;
    `is_adaptive`: the model decides itself how long it thinks, when it may think at all; `cache`
    asks for prompt caching where a dialect must be asked; `cache_key` groups requests that share a
    prefix. `tool_choice` and `parallel_tool_calls` come after the messages. Without `is_sampled`
    the model takes neither temperature nor `top_p`."""

    stream: bool = True
    temperature: float | None = None
    effort: Effort = ""
    thinking_tokens: int | None = None
    is_adaptive: bool = False
    output_schema: dict[str, Any] | None = None
    cache: bool = True
    cache_key: str = ""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str = ""
    parallel_tool_calls: bool | None = None
    is_sampled: bool = True


class ReplyDecoder(Protocol):
    """One reply on its way in. `feed` takes bytes however they were cut and returns the text that
    is new; it raises a `ModelError` when the provider says inside the stream that it failed.
    `finish` is called at the end of the body: the whole reply, or `ModelUnavailable` when its end
    is missing. `contents` grows with every event that carries content, `done` is true once the
    provider has said that the reply is complete. `so_far` is for a reply that breaks: what was
    counted until now, and how many characters of content have come."""

    contents: int
    done: bool

    def feed(self, data: bytes) -> list[str]: ...

    def finish(self) -> ModelReply: ...

    def so_far(self) -> tuple[Usage, int]: ...


class Codec(Protocol):
    """One dialect. `unit` encodes a user message, or an assistant message with the results of its
    calls, as array elements joined by commas; `mark` puts a cache breakpoint on it, where the
    dialect has such."""

    dialect: str

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes: ...

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes: ...

    def unsealed(self, message: AssistantMessage) -> AssistantMessage:
        """A reply without seals, as it is taken by a provider that misses them."""
        ...

    def tail(self, max_output: int, options: Options | None = None) -> bytes: ...

    def path(self, model: str, options: Options) -> str: ...

    def headers(self, key: str) -> dict[str, str]: ...

    def decoder(self, options: Options) -> ReplyDecoder: ...

    def whole(self, body: bytes) -> ModelReply | None:
        """The reply in a body that has come to its end, if there is nothing odd about it; else a
        decoder reads it."""
        ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError: ...


def units(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """A conversation in pieces that can be encoded one by one: results come after the message that
    called."""
    first = 0
    for n in range(1, len(messages) + 1):
        if n == len(messages) or not isinstance(messages[n], ToolMessage):
            yield messages[first:n]
            first = n


def encode(
    codec: Codec,
    model: str,
    instructions: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSchema],
    options: Options,
    max_output: int,
) -> bytes:
    """A whole body. (The client keeps heads and units and joins them itself.)"""
    parts = list(units(messages))
    last = len(parts) - 1
    body = b",".join(
        codec.unit(part, mark=options.cache and n == last) for n, part in enumerate(parts)
    )
    return codec.head(model, instructions, tools, options) + body + codec.tail(max_output, options)


def opaque_for(dialect: str, message: AssistantMessage) -> str:
    """What this dialect kept of a reply to send back byte for byte, or "" when another dialect made
    it."""
    owner, _, seal = message.opaque.partition("\n")
    return seal if owner == dialect else ""


def keep_opaque(dialect: str, seal: str) -> str:
    return f"{dialect}\n{seal}" if seal else ""


def count(value: object) -> int:
    """A number of tokens as a provider tells it; 0 for what cannot be one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < MOST_TOKENS else 0  # type: ignore[operator,call-overload]


def arguments(args: str) -> dict[str, Any]:
    """A call's arguments as an object. Providers refuse a history whose arguments are none: then
    the raw text is kept in one, where the model can see what it wrote."""
    try:
        value = None if is_deep(args) else msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    return {"invalid_json": args} if args.strip() else {}


def encode_json(value: Any) -> bytes:
    """Half a surrogate pair becomes the sign for a lost character."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(cleaned(value))


def cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {cleaned(k): cleaned(v) for k, v in value.items()}
    return [cleaned(v) for v in value] if isinstance(value, list | tuple) else value
