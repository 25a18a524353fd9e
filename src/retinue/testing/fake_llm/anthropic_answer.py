"""A reply in Anthropic's format, whole or as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retinue.testing.fake_llm.dialect import FakeReply, StreamEvent, encode, loads, pieces, seal


def block_event(kind: Any, index: int, block: Mapping[str, Any]) -> StreamEvent:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return StreamEvent(kind, "content_block_start", data)


def message_body(reply: FakeReply) -> dict[str, Any]:
    usage = reply.usage
    cache_write = usage.cache_write
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input - usage.cache_read - cache_write,
            "cache_creation_input_tokens": cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": cache_write,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }


def content_blocks(reply: FakeReply) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each block as it starts, and what it is filled with."""
    if reply.thinking:
        filled = {"thinking": reply.thinking, "signature": seal(reply.thinking)}
        yield {"type": "thinking", "thinking": "", "signature": ""}, filled
    if reply.text:
        yield {"type": "text", "text": ""}, {"text": reply.text}
    for call in reply.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        arguments = loads(call.arguments_json)
        yield (
            block,
            {"input": {} if reply.stop == "length" and isinstance(arguments, str) else arguments},
        )
    if reply.stop == "pause":
        block = {
            "type": "server_tool_use",
            "id": f"srvtoolu_{reply.id[4:]}",
            "name": "web_search",
            "input": {},
        }
        yield block, {"input": {"query": "more"}}


def block_deltas(
    reply: FakeReply, block: Mapping[str, Any], filled: Mapping[str, Any], n: int, index: int
) -> Iterator[tuple[Any, Any]]:
    if block["type"] == "text":
        yield from (
            ("text", {"type": "text_delta", "text": part}) for part in pieces(filled["text"], n)
        )
    elif block["type"] == "thinking":
        yield from (
            ("think", {"type": "thinking_delta", "thinking": part})
            for part in pieces(filled["thinking"], n)
        )
        yield "think", {"type": "signature_delta", "signature": filled["signature"]}
    else:
        first = index - bool(reply.thinking) - bool(reply.text)
        args = (
            reply.calls[first].arguments_json
            if first < len(reply.calls)
            else encode(filled["input"]).decode()
        )
        for part in ["", *pieces(args, n)]:
            yield "args", {"type": "input_json_delta", "partial_json": part}
