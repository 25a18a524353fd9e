"""Reads one block of a reply of Anthropic as it arrives."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import ToolCall
from retinue.models.anthropic_blocks import call_block, input_of
from retinue.models.codec import encode_json


def as_object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_string(value: object) -> str:
    return value if isinstance(value, str) else ""


class ReplyBlock:
    """One block of a reply: the fields it began with, and the pieces of its text, thought or
    arguments."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.kind = as_string(fields.get("type"))
        self.pieces: list[str] = []

    def add(self, delta: dict[str, Any]) -> str:
        """Take in a piece; the text that it makes visible."""
        kind = delta.get("type")
        if kind == "text_delta" and self.kind == "text":
            piece = as_string(delta.get("text"))
            self.pieces.append(piece)
            return piece
        if kind == "input_json_delta" and self.kind.endswith("tool_use"):
            self.pieces.append(as_string(delta.get("partial_json")))
        elif kind == "thinking_delta" and self.kind == "thinking":
            self.pieces.append(as_string(delta.get("thinking")))
        elif kind == "signature_delta" and self.kind == "thinking":
            self.fields["signature"] = as_string(delta.get("signature"))
        elif kind == "citations_delta" and self.kind == "text":
            self.fields["citations"] = [
                *(self.fields.get("citations") or ()),
                delta.get("citation"),
            ]
        return ""

    def joined(self) -> str:
        return as_string(self.fields.get(self.kind)) + "".join(self.pieces)

    def args(self) -> str:
        arguments = self.fields.get("input")
        return "".join(self.pieces) or (
            "{}" if arguments is None else encode_json(arguments).decode()
        )

    def is_plain(self) -> bool:
        """Whether text and calls say all that it says."""
        names = {name for name, value in self.fields.items() if value}
        if self.kind == "tool_use":
            is_direct = as_object(self.fields.get("caller")).get("type", "direct") == "direct"
            return is_direct and names <= {"type", "id", "name", "input", "caller"}
        return self.kind == "text" and names <= {"type", "text"}

    def whole(self, call: ToolCall | None) -> dict[str, Any]:
        fields = {name: value for name, value in self.fields.items() if value is not None}
        if call is not None:
            return fields | call_block(call)
        if self.kind in ("text", "thinking"):
            return fields | {self.kind: self.joined()}
        return fields | {"input": input_of(self.args())} if self.pieces else fields
