"""The fake of Gemini's generateContent: what it refuses, and how it answers. It takes names in
camel case and in snake case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retinue.testing.fake_llm.dialect import (
    Dialect,
    FakeError,
    FakeReply,
    FakeUnit,
    ParsedPrompt,
    Stop,
    StreamEvent,
    loads,
    pieces,
    seal,
)
from retinue.testing.fake_llm.gemini_checks import (
    camel_keys,
    refuse_gemini,
    same_name,
    unknown_fields,
)
from retinue.testing.fake_llm.gemini_contents import Contents
from retinue.testing.fake_llm.gemini_tools import check_functions
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.strict_checks import Memory, is_count, json_object, words

FIELDS = words(
    "contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent "
    "serviceTier store model labels"
)
CONFIG = words(
    "audioTimestamp candidateCount enableAffectiveDialog enableEnhancedCivicAnswers "
    "frequencyPenalty imageConfig logprobs maxOutputTokens mediaResolution presencePenalty "
    "responseJsonSchema responseLogprobs responseMimeType responseModalities responseSchema seed "
    "speechConfig stopSequences temperature thinkingConfig topK topP"
)
STOPS: Mapping[Stop, str] = {
    "end": "STOP",
    "calls": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "filter": "SAFETY",
    "pause": "OTHER",
    "malformed": "MALFORMED_FUNCTION_CALL",
    "recitation": "RECITATION",
    "prohibited": "PROHIBITED_CONTENT",
}


class GeminiApi:
    """`POST /v1beta/models/M:generateContent` and `:streamGenerateContent`. A model of the third
    generation gives its calls ids and signatures, and wants them back."""

    dialect: Dialect = "gemini"

    def __init__(self) -> None:
        self._memory = Memory()

    def read(self, ask: HttpRequest, model: str) -> ParsedPrompt:
        if not ask.key:
            text = (
                "Method doesn't allow unregistered callers (callers without established identity). "
                "Please use API Key or other form of API consumer identity to call this API."
            )
            raise FakeError(403, "PERMISSION_DENIED", text)
        body = json_object(ask.body)
        if isinstance(body, str) or not ask.headers.get("content-type", "").startswith(
            "application/json"
        ):
            raise refuse_gemini(
                f"Invalid JSON payload received. "
                f"{body if isinstance(body, str) else 'Not application/json.'}"
            )
        body = camel_keys(body)
        unknown_fields(body, FIELDS, "")
        tools = self._memory.tools(body.get("tools", []), check_functions)
        config = camel_keys(
            same_name(body.get("generationConfig") or {}, dict, "generation_config")
        )
        unknown_fields(config, CONFIG, "generation_config")
        most = config.get("maxOutputTokens")
        if most is not None and not is_count(most, 1):
            raise refuse_gemini(
                "* GenerateContentRequest.generation_config.max_output_tokens: must be positive.\n"
            )
        is_signed = model.startswith("gemini-3")
        contents = Contents(is_signed)
        system = contents.system(body.get("systemInstruction"))
        contents.read(body.get("contents"))
        return ParsedPrompt(
            model=model,
            system=system,
            messages=tuple(contents.messages),
            tools=tools.schemas,
            units=[FakeUnit(("system", system), len(system)), tools.unit, *contents.units],
            stream=ask.path.endswith(":streamGenerateContent"),
            max_output=most,
            is_thinking=is_signed or bool(config.get("thinkingConfig")),
            is_sse=ask.query.get("alt") == "sse",
            has_ids=is_signed,
        )

    def headers(self, n: int) -> dict[str, str]:
        return {"server-timing": f"gfet4t7; dur={n % 1000}"}

    def error(self, trouble: FakeError, n: int) -> dict[str, Any]:
        problem: dict[str, Any] = {
            "code": trouble.status,
            "message": trouble.message,
            "status": trouble.kind,
        }
        if trouble.details is not None:
            problem["details"] = trouble.details
        return {"error": problem}

    def body(self, reply: FakeReply) -> dict[str, Any]:
        parts = [part for _, part in _parts(reply, 1)]
        return _chunk(reply, parts, STOPS.get(reply.stop, "STOP"))

    def events(self, reply: FakeReply, n_deltas: int) -> list[StreamEvent]:
        if reply.stop in ("blocked", "nothing"):
            return [StreamEvent("last", "", _chunk(reply, [], None))]
        parts = list(_parts(reply, n_deltas))
        events = [StreamEvent(kind, "", _chunk(reply, [part], None)) for kind, part in parts[:-1]]
        last = [part for _, part in parts[-1:]]
        events.append(StreamEvent("last", "", _chunk(reply, last, STOPS.get(reply.stop, "STOP"))))
        return events


def _parts(reply: FakeReply, n: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    for piece in pieces(reply.text, n):
        yield "text", {"text": piece}
    for index, call in enumerate(reply.calls):
        args = loads(call.arguments_json)
        function: dict[str, Any] = {"name": call.name, "args": args}
        if reply.has_ids:
            function["id"] = call.id
        part: dict[str, Any] = {"functionCall": function}
        if index == 0 and reply.thinking:
            part["thoughtSignature"] = seal(call.name)
        yield "call", part


def _chunk(reply: FakeReply, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    usage = reply.usage
    counts = {"promptTokenCount": usage.input, "totalTokenCount": usage.input + usage.output}
    counts["candidatesTokenCount"] = max(usage.output - len(reply.thinking) // 4, 0)
    if reply.thinking:
        counts["thoughtsTokenCount"] = len(reply.thinking) // 4
    if usage.cache_read:
        counts["cachedContentTokenCount"] = usage.cache_read
    chunk: dict[str, Any] = {
        "usageMetadata": counts,
        "modelVersion": reply.model,
        "responseId": reply.id,
    }
    if reply.stop == "blocked":
        return {"promptFeedback": {"blockReason": "SAFETY"}, **chunk}
    if reply.stop == "nothing":
        return chunk
    candidate: dict[str, Any] = {
        "content": {"parts": parts, "role": "model"} if parts else {},
        "index": 0,
    }
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **chunk}
