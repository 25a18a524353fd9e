"""Gemini's generateContent: what it refuses, and how it answers. It takes names in camel case and
in snake case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import (
    Dialect,
    FakeError,
    FakeReply,
    FakeUnit,
    ParsedPrompt,
    Stop,
    StreamEvent,
    encode,
    loads,
    pieces,
    seal,
)
from retinue.testing.fake_llm.gemini_contents import Contents, camel, refuse, same, unknown
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.strict_checks import Memory, bad_schema, is_count, json_object, words

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
TOOL_FIELDS = words(
    "functionDeclarations googleSearch googleSearchRetrieval codeExecution urlContext fileSearch "
    "computerUse googleMaps"
)
FUNCTION_FIELDS = words(
    "name description parameters parametersJsonSchema response responseJsonSchema behavior"
)
SCHEMA_FIELDS = words(
    "type format title description nullable enum items maxItems minItems properties required "
    "minProperties maxProperties minimum maximum minLength maxLength pattern example anyOf "
    "propertyOrdering default"
)
TYPES = words("STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL TYPE_UNSPECIFIED")
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}\Z")
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
            raise refuse(
                f"Invalid JSON payload received. "
                f"{body if isinstance(body, str) else 'Not application/json.'}"
            )
        body = camel(body)
        unknown(body, FIELDS, "")
        tools = self._memory.tools(body.get("tools", []), _tools)
        config = camel(same(body.get("generationConfig") or {}, dict, "generation_config"))
        unknown(config, CONFIG, "generation_config")
        most = config.get("maxOutputTokens")
        if most is not None and not is_count(most, 1):
            raise refuse(
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
        told: dict[str, Any] = {
            "code": trouble.status,
            "message": trouble.message,
            "status": trouble.kind,
        }
        if trouble.details is not None:
            told["details"] = trouble.details
        return {"error": told}

    def body(self, said: FakeReply) -> dict[str, Any]:
        parts = [part for _, part in _parts(said, 1)]
        return _chunk(said, parts, STOPS.get(said.stop, "STOP"))

    def events(self, said: FakeReply, n_deltas: int) -> list[StreamEvent]:
        if said.stop in ("blocked", "nothing"):
            return [StreamEvent("last", "", _chunk(said, [], None))]
        parts = list(_parts(said, n_deltas))
        events = [StreamEvent(kind, "", _chunk(said, [part], None)) for kind, part in parts[:-1]]
        last = [part for _, part in parts[-1:]]
        events.append(StreamEvent("last", "", _chunk(said, last, STOPS.get(said.stop, "STOP"))))
        return events


def _parts(said: FakeReply, n: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    for piece in pieces(said.text, n):
        yield "text", {"text": piece}
    for index, call in enumerate(said.calls):
        args = loads(call.args)
        function: dict[str, Any] = {"name": call.name, "args": args}
        if said.has_ids:
            function["id"] = call.id
        part: dict[str, Any] = {"functionCall": function}
        if index == 0 and said.thinking:
            part["thoughtSignature"] = seal(call.name)
        yield "call", part


def _chunk(said: FakeReply, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    usage = said.usage
    counts = {"promptTokenCount": usage.input, "totalTokenCount": usage.input + usage.output}
    counts["candidatesTokenCount"] = max(usage.output - len(said.thinking) // 4, 0)
    if said.thinking:
        counts["thoughtsTokenCount"] = len(said.thinking) // 4
    if usage.cache_read:
        counts["cachedContentTokenCount"] = usage.cache_read
    chunk: dict[str, Any] = {
        "usageMetadata": counts,
        "modelVersion": said.model,
        "responseId": said.id,
    }
    if said.stop == "blocked":
        return {"promptFeedback": {"blockReason": "SAFETY"}, **chunk}
    if said.stop == "nothing":
        return chunk
    candidate: dict[str, Any] = {
        "content": {"parts": parts, "role": "model"} if parts else {},
        "index": 0,
    }
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **chunk}


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    schemas: list[ToolSchema] = []
    for n, tool in enumerate(same(value, list, "tools")):
        tool = camel(same(tool, dict, f"tools[{n}]"))
        unknown(tool, TOOL_FIELDS, f"tools[{n}]")
        for i, declared in enumerate(
            same(tool.get("functionDeclarations", []), list, f"tools[{n}].function_declarations")
        ):
            at = f"tools[{n}].function_declarations[{i}]"
            declared = camel(same(declared, dict, at))
            unknown(declared, FUNCTION_FIELDS, at)
            schema = _function(declared, at)
            if any(schema.name == other.name for other in schemas):
                raise refuse(f"Duplicate function declaration found: {schema.name}")
            schemas.append(schema)
    return tuple(schemas)


def _function(declared: Mapping[str, Any], at: str) -> ToolSchema:
    name = declared.get("name", "")
    if not isinstance(name, str) or not NAME.match(name):
        raise refuse(
            f"* GenerateContentRequest.{at}.name: Invalid function name. Must start with a letter "
            "or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), "
            "colons (:), or dashes (-), with a maximum length of 64.\n"
        )
    if "parameters" in declared and "parametersJsonSchema" in declared:
        raise refuse(
            f"* GenerateContentRequest.{at}: parameters and parameters_json_schema are mutually "
            "exclusive.\n"
        )
    schema = declared.get("parameters", declared.get("parametersJsonSchema"))
    if "parametersJsonSchema" in declared:
        if not isinstance(schema, dict) or schema.get("type") != "object" or bad_schema(schema):
            raise refuse(
                f"* GenerateContentRequest.{at}.parameters_json_schema: schema must be an object "
                "schema.\n"
            )
    elif schema is not None:
        _schema(schema, f"{at}.parameters")
        if str(schema.get("type")).upper() != "OBJECT":
            raise refuse(
                f"* GenerateContentRequest.{at}.parameters: parameters schema should be of type "
                "OBJECT.\n"
            )
    return ToolSchema(
        name=name, description=str(declared.get("description", "")), parameters=schema or {}
    )


def _schema(schema: Any, at: str) -> None:
    """Gemini's own kind of schema: a few words of JSON schema, and no others."""
    schema = camel(same(schema, dict, at))
    unknown(schema, SCHEMA_FIELDS, at)
    kind = schema.get("type")
    if isinstance(kind, list):
        text = "Proto field is not repeating, cannot start list."
        raise refuse(f"Invalid JSON payload received. Unknown name \"type\" at '{at}': {text}")
    if kind is not None and str(kind).upper() not in TYPES:
        proto = "type.googleapis.com/google.ai.generativelanguage.v1beta.Type"
        raise refuse(f"Invalid value at '{at}.type' ({proto}), {encode(kind).decode()}")
    parts = same(schema.get("properties", {}), dict, f"{at}.properties")
    if absent := [
        name
        for name in same(schema.get("required", []), list, f"{at}.required")
        if name not in parts
    ]:
        raise refuse(
            f"* GenerateContentRequest.{at}.required[0]: property is not defined: {absent[0]}\n"
        )
    if str(kind).upper() == "ARRAY" and "items" not in schema:
        raise refuse(f"* GenerateContentRequest.{at}.items: missing field.\n")
    for n, part in enumerate(parts.values()):
        _schema(part, f"{at}.properties[{n}].value")
    if "items" in schema:
        _schema(schema["items"], f"{at}.items")
    for n, part in enumerate(schema.get("anyOf", [])):
        _schema(part, f"{at}.any_of[{n}]")
