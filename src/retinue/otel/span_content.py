"""Prompts and replies as attributes of spans: only if the user asked for them, without secrets, and
shortened to a length that backends accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from retinue.core.messages import ToolCall

LONGEST = 16_384
"""Characters of one text; the rest of it is in the record."""


class SpanContent:
    """Makes attributes of texts, or none of them. `clean` takes secrets out of a text."""

    def __init__(self, is_on: bool, clean: Callable[[str], str]) -> None:
        self.is_on, self._clean = is_on, clean

    def text(self, name: str, text: str) -> dict[str, Any]:
        return {name: self._short(text)} if self.is_on and text else {}

    def messages(self, name: str, messages: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Messages in the form of the GenAI conventions, as JSON."""
        messages = list(messages)
        return {name: msgspec.json.encode(messages).decode()} if messages else {}

    def user(self, text: str) -> dict[str, Any]:
        return _message("user", {"type": "text", "content": self._short(text)})

    def reply(self, text: str, calls: Iterable[ToolCall] = ()) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        if text:
            parts.append({"type": "text", "content": self._short(text)})
        for call in calls:
            part = {"type": "tool_call", "id": call.id, "name": call.name}
            parts.append({**part, "arguments": self._short(call.arguments_json)})
        reason = "tool_call" if calls else "stop"
        return {**_message("assistant", *parts), "finish_reason": reason}

    def result(self, call_id: str, text: str) -> dict[str, Any]:
        part = {"type": "tool_call_response", "id": call_id, "response": self._short(text)}
        return _message("tool", part)

    def _short(self, text: str) -> str:
        text = self._clean(text)
        if len(text) <= LONGEST:
            return text
        return f"{text[:LONGEST]} [{len(text) - LONGEST} more characters]"


def _message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}
