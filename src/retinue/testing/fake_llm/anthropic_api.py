"""Anthropic's messages: what it refuses, and how it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.anthropic_messages import TOOL_NAME, Turns, refuse
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
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.strict_checks import (
    Memory,
    bad_schema,
    is_count,
    is_number,
    json_object,
    words,
)

FIELDS = words(
    "cache_control container context_management diagnostics inference_geo max_tokens mcp_servers "
    "messages metadata model output_config output_format service_tier speed stop_sequences stream "
    "system temperature thinking tool_choice tools top_k top_p user_profile_id workspace_id"
)
VERSIONS = words("2023-01-01 2023-06-01 2026-10-21")
NEW_VERSION = "2026-10-21"
SAMPLING = words("temperature top_p top_k")
"""Gone since the new version, whatever their value."""
ADAPTIVE = re.compile(r"claude-(?:opus-4-[7-9]|[a-z]+-[5-9])")
"""Models that budget their thinking themselves."""
TOOL_FIELDS = words(
    "type name description input_schema cache_control strict defer_loading allowed_callers "
    "input_examples eager_input_streaming"
)
MAX_MARKS = 4
STOPS: Mapping[Stop, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "filter": "refusal",
    "pause": "pause_turn",
    "malformed": "tool_use",
}


class AnthropicApi:
    """`POST /v1/messages`."""

    dialect: Dialect = "anthropic"

    def __init__(self) -> None:
        self._memory = Memory()

    def read(self, ask: HttpRequest, model: str) -> ParsedPrompt:
        headers = ask.headers
        if "x-api-key" not in headers and not headers.get("authorization", "").startswith(
            "Bearer "
        ):
            raise FakeError(401, "authentication_error", "x-api-key header is required")
        if (version := headers.get("anthropic-version")) is None:
            raise refuse("anthropic-version: header is required")
        if version not in VERSIONS:
            raise refuse(f'anthropic-version: "{version}" is not a valid version')
        if not headers.get("content-type", "").startswith("application/json"):
            raise refuse("content-type: must be application/json")
        body = json_object(ask.body)
        if isinstance(body, str):
            raise refuse(f"The request body is not valid JSON: {body}")
        self._options(body, version)
        tools = self._memory.tools(body.get("tools", []), _tools)
        _choice(body.get("tool_choice"), {tool.name for tool in tools.schemas}, "tools" in body)
        system, n_system = _system(body.get("system", ""))
        turns = Turns(takes_citations=version != NEW_VERSION)
        turns.read(body["messages"])
        thinking = body.get("thinking") or {}
        if thinking.get("type") == "enabled":
            turns.check_thinking()
        units = [tools.unit, FakeUnit(system, len(system), 1, n_system > 0), *turns.units]
        if "cache_control" in body:
            units[-1] = units[-1]._replace(is_marked=True)
        n_marks = tools.n_marks + n_system + turns.n_marks + ("cache_control" in body)
        if n_marks > MAX_MARKS:
            raise refuse(
                f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found "
                f"{n_marks}."
            )
        return ParsedPrompt(
            model=body["model"],
            system=system,
            messages=tuple(turns.messages),
            tools=tools.schemas,
            units=units,
            stream=body.get("stream", False),
            max_output=body["max_tokens"],
            is_thinking=thinking.get("type", "disabled") != "disabled",
            has_marks=True,
        )

    def _options(self, body: Mapping[str, Any], version: str) -> None:
        for name in ("model", "messages", "max_tokens"):
            if name not in body:
                raise refuse(f"{name}: Field required")
        for name in body:
            if name not in FIELDS or (name in SAMPLING and version == NEW_VERSION):
                raise refuse(f"{name}: Extra inputs are not permitted")
        if not isinstance(body["model"], str) or not body["model"]:
            raise refuse("model: String should have at least 1 character")
        if not is_count(body["max_tokens"]):
            raise refuse("max_tokens: Input should be a valid integer, greater than or equal to 1")
        if body["max_tokens"] < 1:
            raise refuse("max_tokens: Input should be greater than or equal to 1")
        if not isinstance(body.get("stream", False), bool):
            raise refuse("stream: Input should be a valid boolean")
        heat = body.get("temperature", 1.0)
        if not is_number(heat) or not 0 <= heat <= 1:
            raise refuse("temperature: range: 0..1")
        thinking = body.get("thinking") or {}
        if thinking.get("type") == "enabled":
            if ADAPTIVE.match(body["model"]):
                raise refuse(
                    '"thinking.type.enabled" is not supported for this model. Use '
                    '"thinking.type.adaptive".'
                )
            n = thinking.get("budget_tokens")
            if not is_count(n, 1024):
                raise refuse(
                    "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
                )
            if n >= body["max_tokens"]:
                raise refuse("`max_tokens` must be greater than `thinking.budget_tokens`")
            if heat != 1:
                raise refuse("`temperature` may only be set to 1 when thinking is enabled")

    def headers(self, n: int) -> dict[str, str]:
        return {"request-id": f"req_{n:024d}"}

    def error(self, trouble: FakeError, n: int) -> dict[str, Any]:
        error = {"type": trouble.kind, "message": trouble.message}
        if trouble.details is not None:
            error["details"] = trouble.details
        return {"type": "error", "error": error, "request_id": f"req_{n:024d}"}

    def body(self, said: FakeReply) -> dict[str, Any]:
        whole = _message(said)
        whole["content"] = [{**block, **filled} for block, filled in _content(said)]
        whole["stop_reason"] = STOPS[said.stop]
        whole["usage"]["output_tokens"] = said.usage.output
        return whole

    def events(self, said: FakeReply, n_deltas: int) -> list[StreamEvent]:
        start = {"type": "message_start", "message": _message(said)}
        events = [
            StreamEvent("start", "message_start", start),
            StreamEvent("start", "ping", {"type": "ping"}),
        ]
        for index, (block, filled) in enumerate(_content(said)):
            events.append(
                _block_event("call" if block["type"] == "tool_use" else "start", index, block)
            )
            for kind, delta in _deltas(said, block, filled, n_deltas, index):
                data = {"type": "content_block_delta", "index": index, "delta": delta}
                events.append(StreamEvent(kind, "content_block_delta", data))
            events.append(
                StreamEvent(
                    "stop", "content_block_stop", {"type": "content_block_stop", "index": index}
                )
            )
        usage = {"output_tokens": said.usage.output}
        delta = {"stop_reason": STOPS[said.stop], "stop_sequence": None}
        events.append(
            StreamEvent(
                "stop", "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
            )
        )
        events.append(StreamEvent("last", "message_stop", {"type": "message_stop"}))
        return events


def _block_event(kind: Any, index: int, block: Mapping[str, Any]) -> StreamEvent:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return StreamEvent(kind, "content_block_start", data)


def _message(said: FakeReply) -> dict[str, Any]:
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


def _content(said: FakeReply) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
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


def _deltas(
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


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    if not isinstance(value, list):
        raise refuse("tools: Input should be a valid list")
    schemas: list[ToolSchema] = []
    for n, tool in enumerate(value):
        if not isinstance(tool, dict):
            raise refuse(f"tools.{n}: Input should be a valid dictionary")
        if tool.get("type") not in (None, "custom"):
            continue
        for name in tool:
            if name not in TOOL_FIELDS:
                raise refuse(f"tools.{n}.custom.{name}: Extra inputs are not permitted")
        for name in ("name", "input_schema"):
            if name not in tool:
                raise refuse(f"tools.{n}.custom.{name}: Field required")
        if not isinstance(tool["name"], str) or not TOOL_NAME.match(tool["name"]):
            raise refuse(
                f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )
        _schema(f"tools.{n}.custom.input_schema", tool["input_schema"])
        if any(tool["name"] == other.name for other in schemas):
            raise refuse("tools: Tool names must be unique.")
        about = tool.get("description", "")
        schemas.append(
            ToolSchema(name=tool["name"], description=about, parameters=tool["input_schema"])
        )
    return tuple(schemas)


def _schema(at: str, schema: Any) -> None:
    if not isinstance(schema, dict):
        raise refuse(f"{at}: Input should be a valid dictionary")
    if "type" not in schema:
        raise refuse(f"{at}.type: Field required")
    if schema["type"] != "object":
        raise refuse(f"{at}.type: Input should be 'object'")
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        raise refuse(f"{at}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if bad_schema(schema):
        raise refuse(f"{at}: JSON schema is invalid. It must match JSON Schema draft 2020-12")


def _choice(choice: Any, names: set[str], has_tools: bool) -> None:
    if choice is None:
        return
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
        raise refuse(
            "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', "
            "'tool', 'none'"
        )
    if not has_tools:
        raise refuse("tool_choice may only be specified while providing tools.")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise refuse(f"Tool '{choice.get('name')}' not found in provided tools")


def _system(value: Any) -> tuple[str, int]:
    if isinstance(value, str):
        return value, 0
    if not isinstance(value, list):
        raise refuse("system: Input should be a valid list")
    for n, block in enumerate(value):
        if (
            not isinstance(block, dict)
            or block.get("type") != "text"
            or not isinstance(block.get("text"), str)
        ):
            raise refuse(f"system.{n}: Input should be a text block")
        if not block["text"]:
            raise refuse("system: text content blocks must be non-empty")
    return "\n\n".join(block["text"] for block in value), sum(
        "cache_control" in block for block in value
    )
