"""Checks the input of a Responses request as strictly as the provider."""

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
from retinue.testing.fake_llm.dialect import FakeUnit, encode, seal
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

ITEM_FIELDS = {
    "message": words("type role content id status phase"),
    "function_call": words("type call_id name arguments id status namespace caller async"),
    "function_call_output": words("type call_id output id status name namespace caller"),
    "reasoning": words("type id summary encrypted_content content status"),
}
PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "reasoning": "rs",
}
MAX_CALL_ID = 64


class InputItems:
    """The conversation, item by item. Neighbours that the model said are one reply."""

    def __init__(self) -> None:
        self.system = ""
        self.messages: list[Message] = []
        self.units: list[FakeUnit] = []
        self._names: dict[str, str] = {}
        self._open: dict[str, None] = {}
        self._ids: set[str] = set()
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._kept: list[Any] = []
        self._thought = ""

    def read(self, value: Any) -> None:
        if value is None:
            raise missing("input")
        items = [{"role": "user", "content": value}] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise wrong_type("input", "one of a string or array of objects", value)
        if not items:
            raise empty("input")
        for n, item in enumerate(items):
            self._item(f"input[{n}]", item)
        self._check_thought()
        self._close()
        if self._open:
            raise refuse(
                f"No tool output found for function call {next(iter(self._open))}.", "input"
            )

    def _item(self, at: str, item: Any) -> None:
        if not isinstance(item, dict):
            raise wrong_type(at, "an object", item)
        kind = item.get("type", "message" if "role" in item else None)
        if kind not in ITEM_FIELDS:
            supported = "', '".join(ITEM_FIELDS)
            raise wrong_value(at, kind, f"'{supported}'") if kind else missing(f"{at}.type")
        unknown_field(item, ITEM_FIELDS[kind], at)
        self._id(at, kind, item.get("id"))
        if kind == "message" and "role" not in item:
            raise missing(f"{at}.role")
        if kind == "function_call":
            self._call(at, item)
        elif kind == "reasoning":
            self._think(at, item)
        elif kind == "message" and item["role"] == "assistant":
            self._thought = ""
            text, _ = _content(item.get("content"), f"{at}.content", "output_text")
            self._texts.append(text)
            self.units.append(FakeUnit(("assistant", text), len(text)))
        else:
            self._check_thought()
            self._close()
            self._other_item(at, kind, item)

    def _other_item(self, at: str, kind: str, item: Mapping[str, Any]) -> None:
        """What the model did not say: a result, or a message of another role."""
        if kind == "function_call_output":
            self._result(at, item)
            return
        role = item["role"]
        if role not in ("user", "system", "developer"):
            raise wrong_value(f"{at}.role", role, "'assistant', 'system', 'developer', and 'user'")
        text, images = _content(item.get("content"), f"{at}.content", "input_text")
        if role == "user":
            self.messages.append(UserMessage(text=text, images=images))
        else:
            self.system = f"{self.system}\n\n{text}" if self.system else text
        self.units.append(
            FakeUnit((role, text, images), len(text) + sum(len(i.data) for i in images))
        )

    def _id(self, at: str, kind: str, value: Any) -> None:
        if value is None:
            return
        name = text_field(value, f"{at}.id")
        if not name.startswith(PREFIXES[kind]):
            text = (
                f"Invalid '{at}.id': '{name}'. Expected an ID that begins with '{PREFIXES[kind]}'."
            )
            raise refuse(text, f"{at}.id", "invalid_value")
        if name in self._ids:
            text = (
                f"Duplicate item found with id {name}. Remove duplicate items from your input "
                "and try again."
            )
            raise refuse(text, "input")
        self._ids.add(name)

    def _call(self, at: str, item: Mapping[str, Any]) -> None:
        call_id = too_long(
            text_field(item.get("call_id"), f"{at}.call_id"), MAX_CALL_ID, f"{at}.call_id"
        )
        name = name_field(item.get("name"), f"{at}.name")
        args = text_field(item.get("arguments"), f"{at}.arguments")
        if not call_id or call_id in self._names:
            raise refuse(f"Duplicate 'call_id': {call_id}.", f"{at}.call_id")
        self._thought = ""
        self._names[call_id] = name
        self._open[call_id] = None
        call = ToolCall(id=call_id, name=name, arguments_json=args)
        self._calls.append(call)
        self.units.append(FakeUnit(call, len(name) + len(args)))

    def _result(self, at: str, item: Mapping[str, Any]) -> None:
        call_id = text_field(item.get("call_id"), f"{at}.call_id")
        if call_id not in self._open:
            text = f"No tool call found for function call output with call_id {call_id}."
            if call_id in self._names:
                text = f"Duplicate function call output found with call_id {call_id}."
            raise refuse(text, "input")
        del self._open[call_id]
        text, images = _content(item.get("output"), f"{at}.output", "input_text")
        result = ToolMessage(call_id=call_id, text=text, name=self._names[call_id], images=images)
        self.messages.append(result)
        self.units.append(FakeUnit(result, len(text)))

    def _think(self, at: str, item: Mapping[str, Any]) -> None:
        for name in ("id", "summary"):
            if name not in item:
                raise missing(f"{at}.{name}")
        self._check_thought()
        content = item.get("encrypted_content")
        if content is None:
            text = (
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is "
                "set to false. Try "
                "again with `store` set to true, or remove this item from your input."
            )
            raise refuse(text, "input", None, 404)
        if not isinstance(content, str) or len(content) != len(seal("")):
            text = f"The encrypted content {str(content)[:12]}... could not be verified."
            raise refuse(text, None, "invalid_encrypted_content")
        self._thought = item["id"]
        self._kept.append(item)
        self.units.append(FakeUnit(content, len(content)))

    def _check_thought(self) -> None:
        if self._thought:
            text = (
                f"Item '{self._thought}' of type 'reasoning' was provided without its required "
                "following item."
            )
            raise refuse(text, "input")

    def _close(self) -> None:
        """The reply that the last items were is complete."""
        if self._texts or self._calls or self._kept:
            thoughts = encode(self._kept).decode() if self._kept else ""
            self.messages.append(
                AssistantMessage(
                    text="".join(self._texts), calls=tuple(self._calls), opaque=thoughts
                )
            )
            self._texts, self._calls, self._kept = [], [], []


def _content(value: Any, param: str, kind: str) -> tuple[str, tuple[Image, ...]]:
    if isinstance(value, str):
        return value, ()
    if value is None:
        raise missing(param)
    if not isinstance(value, list):
        raise wrong_type(param, "one of a string or array of objects", value)
    part_types = (
        ("output_text", "refusal")
        if kind == "output_text"
        else ("input_text", "input_image", "input_file")
    )
    texts, images = [], []
    for n, part in enumerate(value):
        at = f"{param}[{n}]"
        part_kind = part.get("type") if isinstance(part, dict) else None
        if part_kind not in part_types:
            raise wrong_value(at, part_kind, " and ".join(f"'{name}'" for name in part_types))
        if part_kind == kind:
            texts.append(text_field(part.get("text"), f"{at}.text"))
        elif part_kind == "input_image":
            images.append(image(part.get("image_url"), f"{at}.image_url"))
    return "\n\n".join(texts), tuple(images)
