"""Anthropic's Messages: blocks of content, kept whole where the provider signed a part of them.

What the API refuses and no schema says is settled here: empty texts, a thought at the end of a
message, a failed result with pictures, names and ids in a foreign alphabet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from retinue.core.ids import digest
from retinue.core.messages import Assistant, Call, Image, Message, Reply, Result, User
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean
from retinue.formats.sse import SseParser
from retinue.models.anthropic_errors import failure_of
from retinue.models.codec import Options, ReplyDecoder, arguments, count, keep_opaque, opaque_for
from retinue.models.provider_errors import MAX_WORDS
from retinue.models.usage_checks import grown

DIALECT = "anthropic"
MAX_BODY = 64 << 20
MIN_THOUGHT = 1024
MARK = b',"cache_control":{"type":"ephemeral"}}'
EMPTY = "(empty)"
FAILED = "(failed without a message)"
PICTURES = {"image/gif", "image/jpeg", "image/png", "image/webp"}
OURS = {"max_tokens", "messages", "model", "stream"}
THOUGHTS = {"redacted_thinking", "thinking"}
NAME = re.compile(r"[^a-zA-Z0-9_-]")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_raws = msgspec.json.Decoder(list[msgspec.Raw])


class _Head(msgspec.Struct):
    type: str = ""
    id: str = ""


_heads = msgspec.json.Decoder(_Head)


class AnthropicCodec:
    """A cache breakpoint goes on the last tool, on the system prompt, and where `unit` is asked for
    a mark."""

    dialect = DIALECT

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes:
        body: dict[str, Any] = {"model": model}
        if options.stream:
            body["stream"] = True
        if options.temperature is not None:
            body["temperature"] = options.temperature
        output: dict[str, Any] = {}
        if options.effort:
            output["effort"] = "low" if options.effort == "minimal" else options.effort
        if options.output_schema is not None:
            output["format"] = {"type": "json_schema", "schema": options.output_schema}
        if output:
            body["output_config"] = output
        cached = {"cache_control": {"type": "ephemeral"}} if options.cache else {}
        if tools:
            body["tools"] = [_tool(tool) for tool in tools]
            body["tools"][-1] |= cached
        if instructions.strip():
            body["system"] = [{"type": "text", "text": instructions} | cached]
        body.update((name, value) for name, value in options.extra.items() if name not in OURS)
        return _encode(body)[:-1] + b',"messages":['

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        results = [message for message in messages if isinstance(message, Result)]
        parts = [_said(message) for message in messages if not isinstance(message, Result)]
        if results:
            parts.append((b"user", _results(results)))
        if mark:
            blocks = parts[-1][1]
            blocks[-1] = blocks[-1][:-1] + MARK
        return b",".join(
            b'{"role":"%b","content":[%b]}' % (role, b",".join(blocks)) for role, blocks in parts
        )

    def unsealed(self, message: Assistant) -> Assistant:
        return message

    def tail(self, max_output: int, options: Options | None = None) -> bytes:
        """The budget for thoughts is a part of the output: where it leaves no room for an answer,
        there are none."""
        body: dict[str, Any] = {"max_tokens": max_output}
        budget = None if options is None or "thinking" in options.extra else options.thinking_tokens
        if budget and max_output > MIN_THOUGHT:
            body["thinking"] = {
                "type": "enabled",
                "budget_tokens": min(max(budget, MIN_THOUGHT), max_output - 1),
            }
        elif budget == 0:
            body["thinking"] = {"type": "disabled"}
        return b"]," + _encode(body)[1:]

    def path(self, model: str, options: Options) -> str:
        return "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "anthropic-version": "2023-06-01",
        }
        if key.startswith("sk-ant-oat"):
            # Without this flag the API says that it does not know such tokens.
            return headers | {
                "authorization": f"Bearer {key}",
                "anthropic-beta": "oauth-2025-04-20",
            }
        return headers | {"x-api-key": key}

    def decoder(self, options: Options) -> ReplyDecoder:
        return _Decoder(options.stream)

    def whole(self, body: bytes) -> Reply | None:
        return None

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        lower = {name.lower(): value for name, value in headers.items()}
        plain = (
            {} if b"<" in body else {"message": body[: 8 * MAX_WORDS].decode("utf-8", "replace")}
        )
        told = _parse(body) or plain
        error = told.get("error")
        return failure_of(
            status,
            error if isinstance(error, dict) else {"message": error or told.get("message")},
            lower,
        )


def _tool(tool: ToolSchema) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name} | described | {"input_schema": {"type": "object"} | tool.parameters}


def _said(message: User | Assistant) -> tuple[bytes, list[bytes]]:
    if isinstance(message, User):
        role, blocks = b"user", [_encode(_picture(image)) for image in message.images]
    elif (kept := opaque_for(DIALECT, message)) and (blocks := _as_it_came(message, kept)):
        return b"assistant", blocks
    else:
        role, blocks = b"assistant", [_encode(_call(call)) for call in message.calls]
    if message.text.strip() or not blocks:
        blocks.insert(0 if role == b"assistant" else len(blocks), _encode(_text(message.text)))
    return role, blocks


def _as_it_came(message: Assistant, kept: str) -> list[bytes]:
    """The content of a reply as it came, its calls under the ids that they have by now; none if
    they are others."""
    blocks, ids = [], [_id(call.id) for call in message.calls]
    for raw in _raws.decode(kept.encode("utf-8", "replace")):
        block = bytes(raw)
        head = _heads.decode(block)
        if head.type == "tool_use":
            if not ids:
                return []
            if head.id != (id := ids.pop(0)):
                block = _encode({**_decoder.decode(block), "id": id})
        blocks.append(block)
    return [] if ids else blocks


def _results(results: Sequence[Result]) -> list[bytes]:
    """All in one message. The API takes only text in a failed result: its pictures stand behind the
    last one."""
    blocks, behind = [], []
    for result in results:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
        pictures = [_picture(image) for image in result.images]
        if result.error:
            behind += [_encode(picture) for picture in pictures]
            block |= {"content": result.text if result.text.strip() else FAILED, "is_error": True}
        elif pictures:
            block["content"] = [_text(result.text), *pictures] if result.text.strip() else pictures
        elif result.text.strip():
            block["content"] = result.text
        blocks.append(_encode(block))
    return blocks + behind


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text if text.strip() else EMPTY}


def _picture(image: Image) -> dict[str, Any]:
    if image.media_type not in PICTURES:
        return _text(f"(a picture of type {image.media_type}, which cannot be shown)")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.media_type, "data": image.data},
    }


def _call(call: Call) -> dict[str, Any]:
    name = NAME.sub("_", call.name)[:128] or "_"
    return {"type": "tool_use", "id": _id(call.id), "name": name, "input": _input(call.args)}


def _input(args: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(_encode(arguments(args)))
    except RecursionError:
        return msgspec.Raw(_encode({"invalid_json": args}))


def _id(id: str) -> str:
    """The id itself, or, when another provider made it in letters that are not taken here, one that
    stands for it."""
    return id if 0 < len(id) <= 64 and not NAME.search(id) else f"call_{digest(id)}"


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_cleaned(value))


def _cleaned(value: Any) -> Any:
    return json.loads(clean(json.dumps(value, ensure_ascii=False)))


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Half a surrogate pair and bytes that are not UTF-8 are odd, not broken: the standard
        # library reads them.
        try:
            value = _cleaned(json.loads(data.decode("utf-8", "replace")))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


class _Block:
    """One block of a reply: the fields it began with, and the pieces of its text, thought or
    arguments."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.kind = _string(fields.get("type"))
        self.pieces: list[str] = []

    def add(self, delta: dict[str, Any]) -> str:
        """Take in a piece; the text that it makes visible."""
        kind = delta.get("type")
        if kind == "text_delta" and self.kind == "text":
            piece = _string(delta.get("text"))
            self.pieces.append(piece)
            return piece
        if kind == "input_json_delta" and self.kind.endswith("tool_use"):
            self.pieces.append(_string(delta.get("partial_json")))
        elif kind == "thinking_delta" and self.kind == "thinking":
            self.pieces.append(_string(delta.get("thinking")))
        elif kind == "signature_delta" and self.kind == "thinking":
            self.fields["signature"] = _string(delta.get("signature"))
        elif kind == "citations_delta" and self.kind == "text":
            self.fields["citations"] = [
                *(self.fields.get("citations") or ()),
                delta.get("citation"),
            ]
        return ""

    def joined(self) -> str:
        return _string(self.fields.get(self.kind)) + "".join(self.pieces)

    def args(self) -> str:
        given = self.fields.get("input")
        return "".join(self.pieces) or ("{}" if given is None else _encode(given).decode())

    def is_plain(self) -> bool:
        """Whether text and calls say all that it says."""
        told = {name for name, value in self.fields.items() if value}
        if self.kind == "tool_use":
            is_direct = _object(self.fields.get("caller")).get("type", "direct") == "direct"
            return is_direct and told <= {"type", "id", "name", "input", "caller"}
        return self.kind == "text" and told <= {"type", "text"}

    def whole(self, call: Call | None) -> dict[str, Any]:
        fields = {name: value for name, value in self.fields.items() if value is not None}
        if call is not None:
            return fields | _call(call)
        if self.kind in ("text", "thinking"):
            return fields | {self.kind: self.joined()}
        return fields | {"input": _input(self.args())} if self.pieces else fields


class _Draft:
    """A reply as far as it has come."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.blocks: list[_Block] = []
        self.fresh, self.usage = 0, Usage()

    def start(self, message: dict[str, Any]) -> None:
        self.take(message | {"type": "message"}, message.get("usage"))
        content = message.get("content")
        self.blocks = (
            [_Block(_object(fields)) for fields in content] if isinstance(content, list) else []
        )

    def take(self, fields: dict[str, Any], usage: object) -> None:
        """What the beginning and the end of a message say; counts are totals."""
        self.message.update((name, value) for name, value in fields.items() if value is not None)
        told = _object(usage)
        read, written = (
            count(told.get("cache_read_input_tokens")),
            count(told.get("cache_creation_input_tokens")),
        )
        self.fresh = max(self.fresh, count(told.get("input_tokens")))
        self.usage = grown(
            self.usage,
            Usage(output=count(told.get("output_tokens")), cache_read=read, cache_write=written),
        )

    def counted(self) -> Usage:
        """What is read from a cache and written to it is no part of the input here."""
        used = self.usage
        return replace(used, input=self.fresh + used.cache_read + used.cache_write)

    def reply(self) -> Reply:
        reason = self.message.get("stop_reason")
        if not reason:
            raise ModelUnavailable("the reply does not say why it stopped", kind="server_error")
        if reason == "pause_turn":
            raise ModelUnavailable(
                "the provider paused in the middle of the reply", kind="server_error"
            )
        text = "".join(block.joined() for block in self.blocks if block.kind == "text")
        stop: Literal["end", "calls", "length", "refusal"]
        if reason == "refusal":
            said, stop = Assistant(text=self._refusal(text)), "refusal"
        else:
            calls = dict(self._calls())
            said = Assistant(text=text, calls=tuple(calls.values()), opaque=self._opaque(calls))
            is_cut = reason in ("max_tokens", "model_context_window_exceeded")
            stop = "length" if is_cut else "calls" if calls else "end"
        return Reply(
            message=said, usage=self.counted(), stop=stop, model=_string(self.message.get("model"))
        )

    def _refusal(self, text: str) -> str:
        details = _object(self.message.get("stop_details"))
        category, why = _string(details.get("category")), _string(details.get("explanation"))
        refusal = (
            f"The model refused{f' ({category})' if category else ''}{f': {why}' if why else '.'}"
        )
        return f"{text.rstrip()}\n\n{refusal}" if text.strip() else refusal

    def _calls(self) -> Iterator[tuple[int, Call]]:
        """The calls by the places of their blocks; an id that is missing or taken is replaced."""
        prefix, taken = _string(self.message.get("id")) or "call", {""}
        for n, block in enumerate(self.blocks):
            if block.kind == "tool_use":
                id = _string(block.fields.get("id"))
                while id in taken:
                    id = f"{prefix}_{n}" if f"{prefix}_{n}" not in taken else f"{id}_{n}"
                taken.add(id)
                yield n, Call(id=id, name=_string(block.fields.get("name")), args=block.args())

    def _opaque(self, calls: dict[int, Call]) -> str:
        """The content as it must go back, if text and calls cannot say it: without texts that the
        API refuses, and without thoughts at the end, which it refuses too."""
        kept = [
            n
            for n, b in enumerate(self.blocks)
            if (b.joined().strip() if b.kind == "text" else b.kind)
        ]
        while kept and self.blocks[kept[-1]].kind in THOUGHTS:
            kept.pop()
        if all(self.blocks[n].is_plain() for n in kept):
            return ""
        return keep_opaque(
            DIALECT, _encode([self.blocks[n].whole(calls.get(n)) for n in kept]).decode()
        )


class _Decoder:
    """Takes a reply event by event, or one JSON body. A message that has begun is whole when
    `message_stop` comes."""

    def __init__(self, is_stream: bool) -> None:
        self.contents = 0
        self.done = False
        self._size = 0
        self._body: bytearray | None = None if is_stream else bytearray()
        self._events = SseParser()
        self._draft = _Draft()
        self._open: dict[str, _Block] = {}

    def feed(self, data: bytes) -> list[str]:
        said: list[str] = []
        if self.done:
            return said
        self._size += len(data)
        if self._size > MAX_BODY:
            raise ModelRejected("the provider sent more than 64 MiB", kind="response_too_large")
        if self._body is not None:
            self.contents += 1
            self._body += data
            return said
        for name, payload in self._events.feed(data):
            if not self.done and payload.strip():
                event = _parse(payload)
                if event is None:
                    raise ModelUnavailable(
                        "the provider sent an event that is not JSON", kind="server_error"
                    )
                self._take(name, event, said)
        return said

    def finish(self) -> Reply:
        if not self.done:
            rest = self._events.rest() if self._body is None else [("", bytes(self._body))]
            for name, payload in rest:
                if (event := _parse(payload)) is not None:
                    self._take(name, event, [])
        if not self.done:
            raise ModelUnavailable("the connection ended before the reply did", kind="network")
        return self._draft.reply()

    def so_far(self) -> tuple[Usage, int]:
        length = sum(len(piece) for block in self._draft.blocks for piece in block.pieces)
        return self._draft.counted(), length + len(self._body or b"")

    def _take(self, name: str, event: dict[str, Any], said: list[str]) -> None:
        kind, index = event.get("type"), str(event.get("index"))
        self.contents += kind in ("content_block_delta", "content_block_start")
        if kind == "content_block_delta":
            if index not in self._open:
                raise ModelUnavailable(
                    "the provider sent a piece of a block that is not open", kind="server_error"
                )
            if piece := self._open[index].add(_object(event.get("delta"))):
                said.append(piece)
        elif kind == "content_block_start":
            self._begin(index, _object(event.get("content_block")), said)
        elif kind == "content_block_stop":
            self._open.pop(index, None)
        elif kind == "message_start" and not self._draft.message:
            self._draft.start(_object(event.get("message")))
        elif kind == "message_delta":
            self._draft.take(_object(event.get("delta")), event.get("usage"))
        elif kind == "message_stop":
            self.done = "type" in self._draft.message
        elif kind == "message" and self._body is not None:
            self._draft.start(event)
            self.done = True
        elif kind == "error" or name == "error" or "error" in event:
            raise failure_of(0, _object(event.get("error")) or event, {})

    def _begin(self, index: str, fields: dict[str, Any], said: list[str]) -> None:
        before = self._open.get(index)
        if before is not None and not before.pieces and before.fields == fields:
            return  # the same event twice
        block = self._open[index] = _Block(fields)
        self._draft.blocks.append(block)
        if block.kind == "text" and block.joined():
            said.append(block.joined())
