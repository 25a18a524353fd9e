"""What the tests of the Gemini dialect share."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import ModelReply
from retinue.models.codec import Options
from retinue.models.gemini import GeminiCodec

GEMINI = GeminiCodec()
STREAM, WHOLE = Options(), Options(stream=False)
KEY = "AIza" + "SyD3adB33f_not-a-real-key_0123456789"


def decoded(*pieces: bytes, options: Options = STREAM) -> tuple[str, ModelReply]:
    decoder = GEMINI.decoder(options)
    text = "".join(t for piece in pieces for t in decoder.feed(piece))
    return text, decoder.finish()


def reply_chunk(parts: list[Any], reason: str | None = "STOP", **more: Any) -> dict[str, Any]:
    return {
        "candidates": [
            {"content": {"parts": parts}} | ({"finishReason": reason} if reason else {})
        ],
        **more,
    }


def call_part(name: str, args: Any, value: str = "", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args} | ({"id": value} if value else {}), **more}
