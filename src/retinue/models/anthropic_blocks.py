"""Encodes content blocks for a request to Anthropic."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from retinue.core.ids import digest
from retinue.core.messages import AssistantMessage, Image, ToolCall, ToolMessage, UserMessage
from retinue.core.values import ToolSchema
from retinue.models.codec import arguments, cleaned, encode_json, opaque_for

DIALECT = "anthropic"
EMPTY = "(empty)"
FAILED = "(failed without a message)"
PICTURES = {"image/gif", "image/jpeg", "image/png", "image/webp"}
NAME = re.compile(r"[^a-zA-Z0-9_-]")
_decoder = msgspec.json.Decoder()
_raws = msgspec.json.Decoder(list[msgspec.Raw])


class _Head(msgspec.Struct):
    type: str = ""
    id: str = ""


_heads = msgspec.json.Decoder(_Head)


def tool_field(tool: ToolSchema) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description.strip() else {}
    strictness = {"strict": True} if tool.strict else {}
    schema = {"type": "object"} | tool.parameters
    return {"name": tool.name} | described | {"input_schema": schema} | strictness


def message_blocks(message: UserMessage | AssistantMessage) -> tuple[bytes, list[bytes]]:
    if isinstance(message, UserMessage):
        role, blocks = b"user", [encode_json(_picture(image)) for image in message.images]
    elif (opaque := opaque_for(DIALECT, message)) and (blocks := _as_it_came(message, opaque)):
        return b"assistant", blocks
    else:
        role, blocks = b"assistant", [encode_json(call_block(call)) for call in message.calls]
    if message.text.strip() or not blocks:
        blocks.insert(0 if role == b"assistant" else len(blocks), encode_json(_text(message.text)))
    return role, blocks


def _as_it_came(message: AssistantMessage, opaque: str) -> list[bytes]:
    """The content of a reply as it came, its calls under the ids that they have by now; none if
    they are others."""
    blocks, ids = [], [_id(call.id) for call in message.calls]
    for raw in _raws.decode(opaque.encode("utf-8", "replace")):
        block = bytes(raw)
        head = _heads.decode(block)
        if head.type == "tool_use":
            if not ids:
                return []
            if head.id != (id := ids.pop(0)):
                block = encode_json({**_decoder.decode(block), "id": id})
        blocks.append(block)
    return [] if ids else blocks


def result_blocks(results: Sequence[ToolMessage]) -> list[bytes]:
    """All in one message. The API takes only text in a failed result: its pictures come after the
    last one."""
    blocks, behind = [], []
    for result in results:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
        pictures = [_picture(image) for image in result.images]
        if result.error:
            behind += [encode_json(picture) for picture in pictures]
            block |= {"content": result.text if result.text.strip() else FAILED, "is_error": True}
        elif pictures:
            block["content"] = [_text(result.text), *pictures] if result.text.strip() else pictures
        elif result.text.strip():
            block["content"] = result.text
        blocks.append(encode_json(block))
    return blocks + behind


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text if text.strip() else EMPTY}


def _picture(image: Image) -> dict[str, Any]:
    if image.media_type not in PICTURES:
        return _text(f"(an image of type {image.media_type}, which cannot be shown)")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.media_type, "data": image.data},
    }


def call_block(call: ToolCall) -> dict[str, Any]:
    name = NAME.sub("_", call.name)[:128] or "_"
    return {
        "type": "tool_use",
        "id": _id(call.id),
        "name": name,
        "input": input_of(call.arguments_json),
    }


def input_of(args: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(encode_json(arguments(args)))
    except RecursionError:
        return msgspec.Raw(encode_json({"invalid_json": args}))


def _id(id: str) -> str:
    """The id itself, or, when another provider made it in characters that are not accepted here,
    one that replaces it."""
    return id if 0 < len(id) <= 64 and not NAME.search(id) else f"call_{digest(id)}"


def parse_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Half a surrogate pair and bytes that are not UTF-8 are odd, not broken: the standard
        # library reads them.
        try:
            value = cleaned(json.loads(data.decode("utf-8", "replace")))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
