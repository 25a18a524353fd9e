"""A message of Anthropic, whole or as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retinue.testing.fake_llm.dialect import FakeReply, StreamEvent, encode, loads, pieces, seal


def block_event(kind: Any, index: int, block: Mapping[str, Any]) -> StreamEvent:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return StreamEvent(kind, "content_block_start", data)


def message_body(said: FakeReply) -> dict[str, Any]:
    usage = said.usage
    written = usage.cache_write
    return {
        "id": said.id,
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input - usage.cache_read - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }


def content_blocks(said: FakeReply) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each block as it starts, and what it is filled with."""
    if said.thinking:
        filled = {"thinking": said.thinking, "signature": seal(said.thinking)}
        yield {"type": "thinking", "thinking": "", "signature": ""}, filled
    if said.text:
        yield {"type": "text", "text": ""}, {"text": said.text}
    for call in said.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        given = loads(call.args)
        yield block, {"input": {} if said.stop == "length" and isinstance(given, str) else given}
    if said.stop == "pause":
        block = {
            "type": "server_tool_use",
            "id": f"srvtoolu_{said.id[4:]}",
            "name": "web_search",
            "input": {},
        }
        yield block, {"input": {"query": "more"}}


def block_deltas(
    said: FakeReply, block: Mapping[str, Any], filled: Mapping[str, Any], n: int, index: int
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
        first = index - bool(said.thinking) - bool(said.text)
        args = (
            said.calls[first].args if first < len(said.calls) else encode(filled["input"]).decode()
        )
        for part in ["", *pieces(args, n)]:
            yield "args", {"type": "input_json_delta", "partial_json": part}
