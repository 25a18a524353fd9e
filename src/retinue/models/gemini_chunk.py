"""One event of Gemini's stream."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.models.gemini_parts import BROKEN, Part, repaired


class _Content(msgspec.Struct):
    parts: list[Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None


class GeminiChunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: dict[str, Any] | None = None
    model_version: str | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(GeminiChunk)


def parse_chunk(data: bytes) -> GeminiChunk:
    try:
        return _CHUNK.decode(data)
    except BROKEN:
        return _CHUNK.decode(repaired(data))
