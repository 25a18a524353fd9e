"""Encodes items for a request to the Responses API."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema
from retinue.errors import ModelUnavailable
from retinue.models.codec import arguments, opaque_for

T = TypeVar("T")
Item = dict[str, Any]
DIALECT = "openai_responses"
MAX_ID = 64
NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
EMPTY = "(empty reply)"


# Either a whole pair, or (group 1) half of one, or any other escape.
ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.S)

_encoder = msgspec.json.Encoder()


def tool_item(tool: ToolSchema) -> Item:
    # A schema is refused unless it says that it is an object and has properties, be they none.
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    about = {"type": "function", "name": tool.name, "description": tool.description}
    return {**about, "parameters": parameters, "strict": tool.strict}


def message_items(message: Message) -> Iterator[bytes]:
    match message:
        case UserMessage():
            content = _content(message.text, message.images)
            yield item_json({"type": "message", "role": "user", "content": content})
        case AssistantMessage():
            if opaque := _kept(message):
                yield opaque
                return
            if message.text or not message.calls:
                yield item_json(
                    {"type": "message", "role": "assistant", "content": message.text or EMPTY}
                )
            for call in message.calls:
                yield item_json(call_item(call))
        case ToolMessage():
            # The dialect has no sign for a failure other than words.
            text = f"Error: {message.text}" if message.error else message.text
            output = _content(text, message.images) if message.images else text
            yield item_json(
                {
                    "type": "function_call_output",
                    "call_id": short_name(message.call_id),
                    "output": output,
                }
            )


def _content(text: str, images: Sequence[Image]) -> list[dict[str, str]]:
    parts = [{"type": "input_text", "text": text}] if text or not images else []
    urls = [f"data:{image.media_type};base64,{image.data}" for image in images]
    return parts + [{"type": "input_image", "detail": "auto", "image_url": url} for url in urls]


def _kept(message: AssistantMessage) -> bytes:
    """The items as they came, their calls under the ids that they have by now: each of them must
    have its result."""
    opaque = opaque_for(DIALECT, message).encode("utf-8", "replace")
    raws = [bytes(raw) for raw in parse_as(opaque or b"[]", list[msgspec.Raw])]
    items = [parse_as(raw, Item) for raw in raws]
    places = [n for n, item in enumerate(items) if item.get("type") == "function_call"]
    if len(places) != len(message.calls):
        return b""
    for n, call in zip(places, message.calls, strict=True):
        if items[n].get("call_id") != short_name(call.id):
            raws[n] = item_json({**items[n], "call_id": short_name(call.id)})
    return b",".join(raws)


def call_item(call: ToolCall) -> dict[str, str]:
    """A call as an item that is accepted in a later input, whatever the model wrote."""
    try:
        value = arguments(call.arguments_json)
    except RecursionError:
        value = {"invalid_json": call.arguments_json}
    is_object = call.arguments_json.strip() and value != {"invalid_json": call.arguments_json}
    args = call.arguments_json if is_object else item_json(value).decode()
    name = NOT_IN_NAMES.sub("_", call.name)[:MAX_ID] or "_"
    return {
        "type": "function_call",
        "call_id": short_name(call.id),
        "name": name,
        "arguments": args,
    }


def short_name(text: str) -> str:
    return (
        text if len(text) <= MAX_ID else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    )


def item_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _paired(json.dumps(value, separators=(",", ":")).encode())


def _paired(data: bytes) -> bytes:
    """JSON whose escapes are all characters: half of a surrogate pair becomes the sign for a lost
    one."""
    return ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], data)


def parse_as(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    data = bytes(data).decode("utf-8", "replace").encode()
    try:
        return msgspec.json.decode(_paired(data) if rb"\ud" in data.lower() else data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise ModelUnavailable(
            "the provider sent JSON that cannot be read", kind="server_error"
        ) from None
