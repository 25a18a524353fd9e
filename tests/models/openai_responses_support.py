"""Events of the Responses dialect, and how they are read."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import ModelReply
from retinue.models.codec import Codec, Options
from retinue.models.openai_responses import OpenAIResponsesCodec

CODEC: Codec = OpenAIResponsesCodec()
STREAM = Options()
WHOLE = Options(stream=False)


def decoded(data: bytes, options: Options = STREAM) -> ModelReply:
    decoder = CODEC.decoder(options)
    decoder.feed(data)
    return decoder.finish()


def ended(*items: dict[str, Any], kind: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "type": f"response.{kind}",
        "response": {"model": "gpt", "status": kind, "output": list(items), **more},
    }


def delta(text: str) -> dict[str, Any]:
    return {
        "type": "response.output_text.delta",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
    }
