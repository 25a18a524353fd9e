"""Checks a conversation for Anthropic: roles, blocks, and every call followed by its result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.core.image_checks import image_facts
from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.testing.fake_llm.dialect import FakeError, FakeUnit, encode, seal
from retinue.testing.fake_llm.strict_checks import NAME, words

MESSAGE_FIELDS = words("role content")
BLOCK_FIELDS: Mapping[Any, frozenset[str]] = {
    "text": words("type text cache_control citations"),
    "image": words("type source cache_control"),
    "tool_use": words("type id name input cache_control caller"),
    "tool_result": words("type tool_use_id content is_error cache_control"),
    "thinking": words("type thinking signature"),
    "redacted_thinking": words("type data"),
}
OTHER_BLOCKS = words(
    "document search_result container_upload server_tool_use web_search_tool_result"
)
ONLY_USER = words("tool_result image document search_result container_upload")
ONLY_ASSISTANT = words("tool_use thinking redacted_thinking server_tool_use web_search_tool_result")
IMAGES = words("image/jpeg image/png image/gif image/webp")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")


def refuse(message: str) -> FakeError:
    return FakeError(400, "invalid_request_error", message)


class Turns:
    """The conversation, message by message. Neighbours of one role count as one turn, as they do
    for the provider."""

    def __init__(self, *, takes_citations: bool = False) -> None:
        self._takes_citations = takes_citations
        self.messages: list[Message] = []
        self.units: list[FakeUnit] = []
        self.n_marks = 0
        self._open: list[str] = []
        self._answered: set[str] = set()
        self._used: dict[str, str] = {}
        self._n = 0
        self._caller = 0
        self._first_kind = ""
        self._n_blocks = 0
        self._n_chars = 0
        self._is_paused = False

    def read(self, value: Any) -> None:
        if not isinstance(value, list):
            raise refuse("messages: Input should be a valid list")
        if not value:
            raise refuse("messages: at least one message is required")
        before = ""
        for n, message in enumerate(value):
            role = self._role(n, message, before)
            if role == "assistant" and before != "assistant":
                self._settle()
                self._caller, self._answered = n, set()
            first, marks = len(self.messages), self.n_marks
            self._n_blocks = self._n_chars = 0
            blocks = self._blocks(n, message["content"], role)
            self._is_paused = bool(blocks) and blocks[-1]["type"] == "server_tool_use"
            if role == "assistant":
                self._assistant(blocks)
            else:
                self._user(blocks)
            values = tuple(self.messages[first:])
            self.units.append(
                FakeUnit((role, values), self._n_chars, self._n_blocks, self.n_marks > marks)
            )
            before = role
        self._settle()
        if before == "assistant" and not self._is_paused:
            raise refuse(
                "This model does not support assistant message prefill. The conversation must end "
                "with a user message."
            )

    def check_thinking(self) -> None:
        """While a round of calls is under way, the thought that led to it must be there."""
        if isinstance(self.messages[-1], ToolMessage) and self._first_kind not in (
            "thinking",
            "redacted_thinking",
        ):
            raise refuse(
                f"messages.{self._caller}.content.0.type: Expected `thinking` or "
                f"`redacted_thinking`, but found `{self._first_kind}`. When `thinking` is enabled, "
                "a final `assistant` message must start with a thinking block (preceeding the "
                "lastmost set of `tool_use` and `tool_result` blocks)."
            )

    def _role(self, n: int, message: Any, before: str) -> str:
        if not isinstance(message, dict):
            raise refuse(f"messages.{n}: Input should be a valid dictionary")
        if message.keys() != MESSAGE_FIELDS:
            for name in MESSAGE_FIELDS - message.keys():
                raise refuse(f"messages.{n}.{name}: Field required")
            for name in message.keys() - MESSAGE_FIELDS:
                raise refuse(f"messages.{n}.{name}: Extra inputs are not permitted")
        role = message["role"]
        if role not in ("user", "assistant", "system"):
            raise refuse(f"messages.{n}.role: Input should be 'user', 'assistant' or 'system'")
        if n == 0 and role != "user":
            raise refuse('messages: first message must use the "user" role')
        if role == "system" and before != "user":
            raise refuse(
                f"messages.{n}: a `system` message must come immediately after a `user` message"
            )
        return str(role)

    def _blocks(self, n: int, content: Any, role: str) -> list[dict[str, Any]]:
        self._n = n
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        if not isinstance(content, list):
            raise refuse(f"messages.{n}.content: Input should be a valid list")
        if not content:
            raise refuse(
                f"messages.{n}: all messages must have non-empty content except for the optional "
                "final assistant message"
            )
        other, foreign = (
            ("user", ONLY_USER) if role == "assistant" else ("assistant", ONLY_ASSISTANT)
        )
        for i, block in enumerate(content):
            kind = block.get("type") if isinstance(block, dict) else None
            fields = BLOCK_FIELDS.get(kind)
            if fields is None:
                if kind not in OTHER_BLOCKS:
                    expected = "', '".join([*BLOCK_FIELDS, *sorted(OTHER_BLOCKS)])
                    text = (
                        f"Input tag '{kind}' found using 'type' does not match any of the "
                        f"expected tags: '{expected}'"
                    )
                    raise refuse(f"{self._at(i)}: {text}")
            elif not block.keys() <= fields:
                name = min(block.keys() - fields)
                raise refuse(f"{self._at(i)}.{kind}.{name}: Extra inputs are not permitted")
            if kind in foreign:
                raise refuse(f"messages.{n}: `{kind}` blocks can only be in `{other}` messages")
            if kind == "text":
                self._text(i, block, role)
            self.n_marks += "cache_control" in block
        self._n_blocks = len(content)
        return content

    def _assistant(self, blocks: list[dict[str, Any]]) -> None:
        if not self._open:
            self._first_kind = blocks[0]["type"]
        texts, calls, thoughts = [], [], []
        for i, block in enumerate(blocks):
            match block["type"]:
                case "text":
                    texts.append(block["text"])
                case "tool_use":
                    calls.append(self._call(i, block))
                case "thinking":
                    if block.get("signature") != seal(block.get("thinking", "")):
                        raise refuse(f"{self._at(i)}: Invalid `signature` in `thinking` block")
                    thoughts.append(block)
                case _:
                    thoughts.append(block)
        opaque = encode(thoughts).decode() if thoughts else ""
        text = "".join(texts)
        self._n_chars += len(text) + len(opaque)
        self.messages.append(AssistantMessage(text=text, calls=tuple(calls), opaque=opaque))

    def _call(self, i: int, block: Mapping[str, Any]) -> ToolCall:
        call_id, name, arguments = block.get("id"), block.get("name"), block.get("input")
        if not isinstance(call_id, str) or not NAME.match(call_id):
            raise refuse(
                f"{self._at(i)}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            )
        if not isinstance(name, str) or not TOOL_NAME.match(name):
            raise refuse(
                f"{self._at(i)}.tool_use.name: String should match pattern "
                f"'^[a-zA-Z0-9_-]{{1,128}}$'"
            )
        if not isinstance(arguments, dict):
            raise refuse(f"{self._at(i)}.tool_use.input: Input should be a valid dictionary")
        if call_id in self._used:
            raise refuse("messages: `tool_use` ids must be unique")
        self._used[call_id] = name
        self._open.append(call_id)
        args = encode(arguments).decode()
        self._n_chars += len(name) + len(args)
        return ToolCall(id=call_id, name=name, arguments_json=args)

    def _user(self, blocks: list[dict[str, Any]]) -> None:
        texts, images = [], []
        for i, block in enumerate(blocks):
            if block["type"] == "tool_result":
                self.messages.append(self._result(i, block))
                continue
            self._settle()
            if block["type"] == "text":
                texts.append(block["text"])
                self._n_chars += len(block["text"])
            elif block["type"] == "image":
                images.append(self._image(f"{self._at(i)}.image", block))
        if texts or images:
            self.messages.append(UserMessage(text="\n\n".join(texts), images=tuple(images)))

    def _result(self, i: int, block: Mapping[str, Any]) -> ToolMessage:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            raise refuse(f"{self._at(i)}.tool_result.tool_use_id: Field required")
        if call_id in self._answered:
            raise refuse(
                f"messages.{self._n}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {call_id}"
            )
        if call_id not in self._open:
            raise refuse(
                f"{self._at(i)}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{call_id}. Each `tool_result` "
                "block must have a corresponding `tool_use` block in the previous message."
            )
        self._open.remove(call_id)
        self._answered.add(call_id)
        content = block.get("content", "")
        images: tuple[Image, ...] = ()
        if isinstance(content, str):
            self._n_chars += len(content)
        else:
            content, images = self._parts(
                f"{self._at(i)}.tool_result", content, bool(block.get("is_error"))
            )
        name, is_error = self._used[call_id], bool(block.get("is_error"))
        return ToolMessage(call_id=call_id, text=content, name=name, error=is_error, images=images)

    def _parts(self, at: str, parts: Any, is_error: bool) -> tuple[str, tuple[Image, ...]]:
        if not isinstance(parts, list):
            raise refuse(f"{at}.content: Input should be a valid list")
        texts, images = [], []
        for i, part in enumerate(parts):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text":
                if not part.get("text"):
                    raise refuse("messages: text content blocks must be non-empty")
                texts.append(part["text"])
            elif is_error:
                raise refuse(f"{at}: all content must be type `text` if `is_error` is true")
            elif kind == "image":
                images.append(self._image(f"{at}.content.{i}.image", part))
            elif kind not in ("document", "search_result", "tool_reference"):
                raise refuse(
                    f"{at}.content.{i}: Input tag '{kind}' found using 'type' does not match"
                )
        text = "\n\n".join(texts)
        self._n_chars += len(text)
        return text, tuple(images)

    def _at(self, i: int) -> str:
        return f"messages.{self._n}.content.{i}"

    def _settle(self) -> None:
        """Here something else than a result begins: no call may be open."""
        if self._open:
            raise refuse(
                f"messages.{self._caller}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(self._open)}. Each `tool_use` block must have a "
                "corresponding `tool_result` block in the next message."
            )

    def _text(self, i: int, block: Mapping[str, Any], role: str) -> None:
        text = block.get("text")
        if not isinstance(text, str):
            raise refuse(f"{self._at(i)}.text.text: Input should be a valid string")
        if not text:
            raise refuse("messages: text content blocks must be non-empty")
        if text.isspace():
            raise refuse("messages: text content blocks must contain non-whitespace text")
        if role != "assistant" and block.get("citations") and not self._takes_citations:
            raise refuse(f"{self._at(i)}.text.citations: Extra inputs are not permitted")

    def _image(self, at: str, block: Mapping[str, Any]) -> Image:
        source = block.get("source") or {}
        if source.get("type") in ("url", "file"):
            return Image(media_type="", data=str(source.get("url", source.get("file_id", ""))))
        data = source.get("data")
        if source.get("type") != "base64" or not isinstance(data, str) or not data:
            raise refuse(
                f"{at}.source: Input tag does not match any of the expected tags: 'base64', "
                "'url', 'file'"
            )
        if source.get("media_type") not in IMAGES:
            expected = "'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
            raise refuse(f"{at}.source.base64.media_type: Input should be {expected}")
        self._n_chars += len(data)
        image = Image(media_type=source["media_type"], data=data)
        if image_facts(image).wrong:
            raise refuse("Could not process image")
        return image
