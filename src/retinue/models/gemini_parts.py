"""Encodes and decodes parts of Gemini's content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from retinue.core.history import OUR_ID
from retinue.core.messages import AssistantMessage, Image, ToolCall, ToolMessage
from retinue.models.codec import arguments, encode_json, opaque_for

DIALECT = "gemini"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
# Every escape of a JSON text; half a surrogate pair is in the group.
ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL
)

Part = dict[str, msgspec.Raw]


class FunctionCall(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


_TEXT = msgspec.json.Decoder(str | None)
_FLAG = msgspec.json.Decoder(bool | None)
_CALL = msgspec.json.Decoder(FunctionCall | None)
_KEPT = msgspec.json.Decoder(list[int | Part | None])
_PART = msgspec.json.Decoder(Part)
BROKEN = (msgspec.DecodeError, UnicodeError, RecursionError)


def parts_of(text: str, images: Sequence[Image] = ()) -> list[Any]:
    pictures = [{"inlineData": {"mimeType": i.media_type, "data": i.data}} for i in images]
    return [{"text": text}, *pictures] if text else pictures


def function_name(name: str) -> str:
    """A history with a name that could not be a function's is refused as a whole."""
    return name if NAME.fullmatch(name) else ("_" + re.sub(r"[^A-Za-z0-9_.:-]", "_", name))[:64]


def function_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    try:
        args = arguments(call.arguments_json)
    except RecursionError:
        args = {"invalid_json": call.arguments_json}
    return {**({"id": call_id} if call_id else {}), "name": function_name(call.name), "args": args}


def response_part(result: ToolMessage, call_id: str, name: str) -> dict[str, Any]:
    body = {"error" if result.error else "output": result.text}
    return {
        "functionResponse": {**({"id": call_id} if call_id else {}), "name": name, "response": body}
    }


def reply_parts(message: AssistantMessage) -> tuple[list[Any], list[str]]:
    """The parts of a reply, and for each call the id that the provider gave it, or "" when we
    did."""
    ids = ["" if is_our_id(n, c.id) else c.id for n, c in enumerate(message.calls)]
    spliced = _spliced(message, ids)
    calls = [{"functionCall": function_call(c, i)} for c, i in zip(message.calls, ids, strict=True)]
    return spliced or (parts_of(message.text) + calls, ids)


def is_our_id(n: int, id: str) -> bool:
    """Whether an id was made here: the provider gave none, or one that another call has."""
    return id == f"call_{n}" or id.startswith(OUR_ID)


def _spliced(message: AssistantMessage, ids: list[str]) -> tuple[list[Any], list[str]] | None:
    """The reply around its kept parts; None when they are not those of this text and these
    calls."""
    parts: list[Any] = []
    ids, at, n = list(ids), 0, 0
    try:
        for item in _KEPT.decode(opaque_for(DIALECT, message).encode("utf-8", "replace")):
            if isinstance(item, int):
                parts.append({"text": message.text[at : at + item]})
                at += item
            elif item is None:
                parts.append({"functionCall": function_call(message.calls[n], ids[n])})
                n += 1
            else:
                text, call = read_part(item)
                at += len(text)
                if call is not None:
                    id = call.id or ""
                    if id and id != message.calls[n].id:
                        # Another call of this conversation has that id; without one it is found by
                        # its place.
                        named = {
                            k: v for k, v in _PART.decode(item["functionCall"]).items() if k != "id"
                        }
                        id, item = "", {**item, "functionCall": msgspec.Raw(encode_json(named))}
                    ids[n] = id
                    n += 1
                parts.append(item)
    except (*BROKEN, IndexError):
        return None
    return (parts, ids) if at == len(message.text) and n == len(message.calls) else None


def read_part(part: Part) -> tuple[str, FunctionCall | None]:
    """The visible text of a part, and its call."""
    is_thought = "thought" in part and _FLAG.decode(part["thought"])
    text = _TEXT.decode(part["text"]) if "text" in part and not is_thought else ""
    return text or "", _CALL.decode(part["functionCall"]) if "functionCall" in part else None


def repaired(data: bytes) -> bytes:
    """Half surrogate pairs and bytes that are no UTF-8 become U+FFFD."""
    data = data.decode("utf-8", "replace").encode()
    return ESCAPES.sub(lambda m: rb"\ufffd" if m[1] else m[0], data)
