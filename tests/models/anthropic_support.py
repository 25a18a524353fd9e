"""What the tests of the Anthropic dialect share."""

from __future__ import annotations

import json
import re
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsBase
from pydantic import TypeAdapter

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage
from retinue.core.values import Usage
from retinue.models.anthropic import AnthropicCodec
from retinue.models.codec import Codec, Options

CODEC: Codec = AnthropicCodec()
STREAMED = Options()
WHOLE = Options(stream=False)
ACCEPTED = re.compile(r"[a-zA-Z0-9_-]+")
PARAMS = TypeAdapter[Any](MessageCreateParamsBase)
THOUGHTS = ("thinking", "redacted_thinking")


def assert_acceptable(messages: Any) -> None:
    """What the API refuses although the SDK's types allow it."""
    open_ids: list[str] = []
    for message in messages:
        content = message["content"]
        assert content
        assert content[-1]["type"] not in THOUGHTS
        results = [block for block in content if block["type"] == "tool_result"]
        assert [block["tool_use_id"] for block in results] == open_ids
        assert content[: len(results)] == results
        for block in [
            *content,
            *(b for r in results if isinstance(r.get("content"), list) for b in r["content"]),
        ]:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_result" and block.get("is_error"):
                assert isinstance(block["content"], str)
                assert block["content"].strip()
            if block["type"] == "tool_use":
                assert ACCEPTED.fullmatch(block["id"])
                assert ACCEPTED.fullmatch(block["name"])
                assert isinstance(block["input"], dict)
        open_ids = [block["id"] for block in content if block["type"] == "tool_use"]
        assert len(set(open_ids)) == len(open_ids)
    assert not open_ids


def decoded(data: bytes, at: int, options: Options = STREAMED) -> tuple[ModelReply, str]:
    decoder = CODEC.decoder(options)
    events = decoder.feed(data[:at]) + decoder.feed(data[at:])
    return decoder.finish(), "".join(events)


def in_pieces(data: bytes, first: int, size: int) -> tuple[ModelReply, str]:
    decoder = CODEC.decoder(STREAMED)
    events = decoder.feed(data[:first])
    for at in range(first, len(data), size):
        events += decoder.feed(data[at : at + size])
    return decoder.finish(), "".join(events)


def assert_can_be_answered(reply: ModelReply) -> None:
    """The next request, with this reply in it, is one that the API takes."""
    results = [ToolMessage(call_id=call.id, text="ok") for call in reply.message.calls]
    part = CODEC.unit([reply.message, *results], mark=True)
    messages = json.loads(b'[{"role":"user","content":[{"type":"text","text":"?"}]},%b]' % part)
    PARAMS.validate_python({"model": "m", "max_tokens": 1, "messages": messages})
    assert_acceptable(messages)


def said(
    text: str = "", *calls: ToolCall, stop: Any = "end", model: str = "claude-one"
) -> ModelReply:
    used = Usage(input=3, output=5)
    return ModelReply(
        message=AssistantMessage(text=text, calls=calls),
        stop="calls" if calls and stop == "end" else stop,
        model=model,
        usage=used,
    )
