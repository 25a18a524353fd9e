"""Reads a reply of Anthropic, from a stream or from one body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import Usage
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.models.anthropic_blocks import DIALECT, parse_object
from retinue.models.anthropic_errors import failure_of
from retinue.models.anthropic_reply_block import ReplyBlock, as_object, as_string
from retinue.models.codec import count, encode_json, keep_opaque
from retinue.models.reply_body import event_parser
from retinue.models.usage_checks import never_smaller

MAX_BODY = 64 << 20
THOUGHTS = {"redacted_thinking", "thinking"}


class _Draft:
    """A reply as far as it has come."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.blocks: list[ReplyBlock] = []
        self.fresh, self.usage = 0, Usage()

    def start(self, message: dict[str, Any]) -> None:
        self.take(message | {"type": "message"}, message.get("usage"))
        content = message.get("content")
        self.blocks = (
            [ReplyBlock(as_object(fields)) for fields in content]
            if isinstance(content, list)
            else []
        )

    def take(self, fields: dict[str, Any], usage: object) -> None:
        """What the beginning and the end of a message say; counts are totals."""
        self.message.update((name, value) for name, value in fields.items() if value is not None)
        counts = as_object(usage)
        read, cache_write = (
            count(counts.get("cache_read_input_tokens")),
            count(counts.get("cache_creation_input_tokens")),
        )
        self.fresh = max(self.fresh, count(counts.get("input_tokens")))
        self.usage = never_smaller(
            self.usage,
            Usage(
                output=count(counts.get("output_tokens")), cache_read=read, cache_write=cache_write
            ),
        )

    def counted(self) -> Usage:
        """What is read from a cache and written to it is not a part of the input here."""
        used = self.usage
        return replace(used, input=self.fresh + used.cache_read + used.cache_write)

    def reply(self) -> ModelReply:
        reason = self.message.get("stop_reason")
        if not reason:
            raise ModelUnavailable("the reply has no stop reason", kind="server_error")
        if reason == "pause_turn":
            raise ModelUnavailable(
                "the provider paused in the middle of the reply", kind="server_error"
            )
        text = "".join(block.joined() for block in self.blocks if block.kind == "text")
        stop: Literal["end", "calls", "length", "refusal"]
        if reason == "refusal":
            message, stop = AssistantMessage(text=self._refusal(text)), "refusal"
        else:
            calls = dict(self._calls())
            message = AssistantMessage(
                text=text, calls=tuple(calls.values()), opaque=self._opaque(calls)
            )
            is_cut = reason in ("max_tokens", "model_context_window_exceeded")
            stop = "calls" if calls else "end"
            if is_cut:
                stop = "length"
        return ModelReply(
            message=message,
            usage=self.counted(),
            stop=stop,
            model=as_string(self.message.get("model")),
        )

    def _refusal(self, text: str) -> str:
        details = as_object(self.message.get("stop_details"))
        category, why = as_string(details.get("category")), as_string(details.get("explanation"))
        refusal = (
            f"The model refused{f' ({category})' if category else ''}{f': {why}' if why else '.'}"
        )
        return f"{text.rstrip()}\n\n{refusal}" if text.strip() else refusal

    def _calls(self) -> Iterator[tuple[int, ToolCall]]:
        """The calls by the places of their blocks; an id that is missing or taken is replaced."""
        prefix, ids = as_string(self.message.get("id")) or "call", {""}
        for n, block in enumerate(self.blocks):
            if block.kind == "tool_use":
                id = as_string(block.fields.get("id"))
                while id in ids:
                    id = f"{prefix}_{n}" if f"{prefix}_{n}" not in ids else f"{id}_{n}"
                ids.add(id)
                yield (
                    n,
                    ToolCall(
                        id=id, name=as_string(block.fields.get("name")), arguments_json=block.args()
                    ),
                )

    def _opaque(self, calls: dict[int, ToolCall]) -> str:
        """The content as it must go back, if text and calls cannot say it: without texts that the
        API refuses, and without thoughts at the end, which it refuses too."""
        numbers = [
            n
            for n, b in enumerate(self.blocks)
            if (b.joined().strip() if b.kind == "text" else b.kind)
        ]
        while numbers and self.blocks[numbers[-1]].kind in THOUGHTS:
            numbers.pop()
        if all(self.blocks[n].is_plain() for n in numbers):
            return ""
        return keep_opaque(
            DIALECT, encode_json([self.blocks[n].whole(calls.get(n)) for n in numbers]).decode()
        )


class AnthropicDecoder:
    """Takes a reply event by event, or one JSON body. A message that has begun is whole when
    `message_stop` comes."""

    def __init__(self, is_stream: bool) -> None:
        self.contents = 0
        self.done = False
        self._size = 0
        self._body: bytearray | None = None if is_stream else bytearray()
        self._events = event_parser()
        self._draft = _Draft()
        self._open: dict[str, ReplyBlock] = {}

    def feed(self, data: bytes) -> list[str]:
        pieces: list[str] = []
        if self.done:
            return pieces
        self._size += len(data)
        if self._size > MAX_BODY:
            raise ModelRejected("the provider sent more than 64 MiB", kind="response_too_large")
        if self._body is not None:
            self.contents += 1
            self._body += data
            return pieces
        for name, payload in self._events.feed(data):
            if not self.done and payload.strip():
                event = parse_object(payload)
                if event is None:
                    raise ModelUnavailable(
                        "the provider sent an event that is not JSON", kind="server_error"
                    )
                self._take(name, event, pieces)
        return pieces

    def finish(self) -> ModelReply:
        if not self.done:
            rest = self._events.rest() if self._body is None else [("", bytes(self._body))]
            for name, payload in rest:
                if (event := parse_object(payload)) is not None:
                    self._take(name, event, [])
        if not self.done:
            raise ModelUnavailable("the connection ended before the reply did", kind="network")
        return self._draft.reply()

    def so_far(self) -> tuple[Usage, int]:
        length = sum(len(piece) for block in self._draft.blocks for piece in block.pieces)
        return self._draft.counted(), length + len(self._body or b"")

    def _take(self, name: str, event: dict[str, Any], pieces: list[str]) -> None:
        kind, index = event.get("type"), str(event.get("index"))
        self.contents += kind in ("content_block_delta", "content_block_start")
        if kind == "content_block_delta":
            if index not in self._open:
                raise ModelUnavailable(
                    "the provider sent part of a block that is not open", kind="server_error"
                )
            if piece := self._open[index].add(as_object(event.get("delta"))):
                pieces.append(piece)
        elif kind == "content_block_start":
            self._begin(index, as_object(event.get("content_block")), pieces)
        elif kind == "content_block_stop":
            self._open.pop(index, None)
        elif kind == "message_start" and not self._draft.message:
            self._draft.start(as_object(event.get("message")))
        elif kind == "message_delta":
            self._draft.take(as_object(event.get("delta")), event.get("usage"))
        elif kind == "message_stop":
            self.done = "type" in self._draft.message
        elif kind == "message" and self._body is not None:
            self._draft.start(event)
            self.done = True
        elif kind == "error" or name == "error" or "error" in event:
            raise failure_of(0, as_object(event.get("error")) or event, {})

    def _begin(self, index: str, fields: dict[str, Any], pieces: list[str]) -> None:
        before = self._open.get(index)
        if before is not None and not before.pieces and before.fields == fields:
            return  # the same event twice
        block = self._open[index] = ReplyBlock(fields)
        self._draft.blocks.append(block)
        if block.kind == "text" and block.joined():
            pieces.append(block.joined())
