"""What the tests of the chat dialect share."""

from __future__ import annotations

import json
from typing import Any

from retinue.core.messages import ModelReply
from retinue.models.codec import Options
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.models.openai_chat_stream import FILTERED

# The kinds of failure that are worth another try; all others are final.
RETRIED = {"rate_limit", "quota", "auth", "overloaded", "network", "server_error"}


def decoded(data: bytes, codec: OpenAIChatCodec | None = None, *cuts: int) -> ModelReply:
    decoder = (codec or OpenAIChatCodec()).decoder(Options())
    rows: list[str] = []
    for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True):
        rows += decoder.feed(data[a:b])
    reply = decoder.finish()
    if rows:  # what was shown is what is kept, but for the word about a filter
        assert reply.message.text.replace(FILTERED, "").rstrip("\n") == "".join(rows).rstrip("\n")
    assert decoder.done
    return reply


def sse(*chunks: Any, is_done: bool = True) -> bytes:
    lines = [
        f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks
    ]
    return ("".join(lines) + "data: [DONE]\n\n" * is_done).encode()


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def tool(name: str | None = None, args: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": args}
    return {
        **fields,
        "function": {key: value for key, value in function.items() if value is not None},
    }


def calls(*deltas: Any, reason: str = "tool_calls") -> list[tuple[str, str, str]]:
    chunks = [delta(tool_calls=d if isinstance(d, list) else [d]) for d in deltas]
    data = sse(*chunks, delta(reason))
    reply = decoded(data)
    assert reply.stop == "calls"
    assert all(decoded(data, None, at) == reply for at in range(1, len(data), 7 + len(data) // 50))
    return [(call.id, call.name, call.arguments_json) for call in reply.message.calls]
