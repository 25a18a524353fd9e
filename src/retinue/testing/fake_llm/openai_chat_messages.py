"""Checks the messages of a Chat Completions request as strictly as the provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.testing.fake_llm.dialect import FakeUnit
from retinue.testing.fake_llm.openai_shared import (
    empty,
    image,
    missing,
    name_field,
    refuse,
    text_field,
    too_long,
    unknown_field,
    wrong_type,
    wrong_value,
)
from retinue.testing.fake_llm.strict_checks import words

USER_FIELDS = words("role content name")
ASSISTANT_FIELDS = words("role content refusal name tool_calls function_call audio annotations")
RESULT_FIELDS = words("role content tool_call_id name")
ROLES = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
MAX_CALL_ID = 40


class ChatMessages:
    """The conversation, message by message: results come right after the message that called."""

    def __init__(self) -> None:
        self.system = ""
        self.messages: list[Message] = []
        self.units: list[FakeUnit] = []
        self._names: dict[str, str] = {}
        self._open: list[str] = []
        self._is_called = False

    def read(self, value: Any) -> None:
        if value is None:
            raise missing("messages")
        if not isinstance(value, list):
            raise wrong_type("messages", "an array of objects", value)
        if not value:
            raise empty("messages")
        for n, message in enumerate(value):
            if not isinstance(message, dict):
                raise wrong_type(f"messages[{n}]", "an object", message)
            if "role" not in message:
                raise missing(f"messages[{n}].role")
            self._message(n, message)
        self._settle(len(value))

    def _message(self, n: int, message: Mapping[str, Any]) -> None:
        role, at = message["role"], f"messages[{n}]"
        if role not in ("system", "assistant", "user", "function", "tool", "developer"):
            raise wrong_value(f"{at}.role", role, ROLES)
        if role == "tool":
            return self._result(n, message)
        self._settle(n)
        self._is_called = False
        if role == "assistant":
            return self._assistant(at, message)
        unknown_field(message, USER_FIELDS, at)
        text, images = _content(message.get("content"), f"{at}.content", role == "user")
        if role == "user":
            self.messages.append(UserMessage(text=text, images=tuple(images)))
        else:
            self.system = f"{self.system}\n\n{text}" if self.system else text
        size = len(text) + sum(len(image.data) for image in images)
        self.units.append(FakeUnit((role, text, tuple(images)), size))
        return None

    def _assistant(self, at: str, message: Mapping[str, Any]) -> None:
        unknown_field(message, ASSISTANT_FIELDS, at)
        calls = message.get("tool_calls")
        if calls is not None:
            if not isinstance(calls, list):
                raise wrong_type(f"{at}.tool_calls", "an array of objects", calls)
            if not calls:
                raise empty(f"{at}.tool_calls")
        content = message.get("content")
        if content is None and not calls and message.get("refusal") is None:
            raise refuse(
                "Invalid value for 'content': expected a string, got null.", f"{at}.content"
            )
        text = _content(content, f"{at}.content", False)[0] if content is not None else ""
        read = tuple(
            self._call(f"{at}.tool_calls[{i}]", call) for i, call in enumerate(calls or ())
        )
        reply = AssistantMessage(text=text, calls=read)
        self._is_called = bool(read)
        self.messages.append(reply)
        self.units.append(
            FakeUnit(
                reply,
                len(text) + sum(len(c.name) + len(c.arguments_json) for c in read),
                1 + len(read),
            )
        )

    def _call(self, at: str, call: Any) -> ToolCall:
        if not isinstance(call, dict):
            raise wrong_type(at, "an object", call)
        call_id = too_long(text_field(call.get("id"), f"{at}.id"), MAX_CALL_ID, f"{at}.id")
        if call.get("type") != "function":
            raise wrong_value(f"{at}.type", call.get("type"), "'function' and 'custom'")
        named = call.get("function")
        if not isinstance(named, dict):
            raise missing(f"{at}.function")
        name = name_field(named.get("name"), f"{at}.function.name")
        args = text_field(named.get("arguments"), f"{at}.function.arguments")
        if not call_id or call_id in self._open:
            raise refuse(f"Duplicate value for 'tool_call_id' of '{call_id}' in {at}.", f"{at}.id")
        self._names[call_id] = name
        self._open.append(call_id)
        return ToolCall(id=call_id, name=name, arguments_json=args)

    def _result(self, n: int, message: Mapping[str, Any]) -> None:
        at = f"messages[{n}]"
        unknown_field(message, RESULT_FIELDS, at)
        call_id = text_field(message.get("tool_call_id"), f"{at}.tool_call_id")
        text, _ = _content(message.get("content"), f"{at}.content", False)
        if not self._is_called:
            raise refuse(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                "message with 'tool_calls'.",
                f"messages.[{n}].role",
            )
        if call_id not in self._open:
            raise refuse(
                f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of "
                "previous message.",
                f"messages.[{n}].tool_call_id",
            )
        self._open.remove(call_id)
        result = ToolMessage(call_id=call_id, text=text, name=self._names[call_id])
        self.messages.append(result)
        self.units.append(FakeUnit(result, len(text)))

    def _settle(self, n: int) -> None:
        if self._open:
            raise refuse(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                f"response messages: {', '.join(self._open)}",
                f"messages.[{n}].role",
            )


def _content(value: Any, param: str, takes_images: bool) -> tuple[str, list[Image]]:
    if isinstance(value, str):
        return value, []
    if value is None:
        raise refuse("Invalid value for 'content': expected a string, got null.", param)
    if not isinstance(value, list):
        raise wrong_type(param, "one of a string or array of objects", value)
    if not value:
        raise empty(param)
    texts, images = [], []
    for n, part in enumerate(value):
        at = f"{param}[{n}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(text_field(part.get("text"), f"{at}.text"))
        elif kind == "image_url" and takes_images:
            images.append(image((part.get("image_url") or {}).get("url"), f"{at}.image_url.url"))
        elif kind != "refusal" and not (takes_images and kind in ("input_audio", "file")):
            raise wrong_value(
                f"{at}.type",
                kind,
                "'text', 'image_url', 'input_audio', 'refusal', 'audio', and 'file'",
            )
    return "\n\n".join(texts), images
