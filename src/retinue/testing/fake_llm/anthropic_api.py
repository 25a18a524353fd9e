"""The fake of Anthropic's Messages API: what it refuses, and how it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.testing.fake_llm.anthropic_answer import (
    block_deltas,
    block_event,
    content_blocks,
    message_body,
)
from retinue.testing.fake_llm.anthropic_messages import Turns, refuse
from retinue.testing.fake_llm.anthropic_tools import check_choice, check_system, check_tools
from retinue.testing.fake_llm.dialect import (
    Dialect,
    FakeError,
    FakeReply,
    FakeUnit,
    ParsedPrompt,
    Stop,
    StreamEvent,
)
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.strict_checks import Memory, is_count, is_number, json_object, words

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
        tools = self._memory.tools(body.get("tools", []), check_tools)
        check_choice(
            body.get("tool_choice"), {tool.name for tool in tools.schemas}, "tools" in body
        )
        system, n_system = check_system(body.get("system", ""))
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

    def body(self, reply: FakeReply) -> dict[str, Any]:
        whole = message_body(reply)
        whole["content"] = [{**block, **filled} for block, filled in content_blocks(reply)]
        whole["stop_reason"] = STOPS[reply.stop]
        whole["usage"]["output_tokens"] = reply.usage.output
        return whole

    def events(self, reply: FakeReply, n_deltas: int) -> list[StreamEvent]:
        start = {"type": "message_start", "message": message_body(reply)}
        events = [
            StreamEvent("start", "message_start", start),
            StreamEvent("start", "ping", {"type": "ping"}),
        ]
        for index, (block, filled) in enumerate(content_blocks(reply)):
            events.append(
                block_event("call" if block["type"] == "tool_use" else "start", index, block)
            )
            for kind, delta in block_deltas(reply, block, filled, n_deltas, index):
                data = {"type": "content_block_delta", "index": index, "delta": delta}
                events.append(StreamEvent(kind, "content_block_delta", data))
            events.append(
                StreamEvent(
                    "stop", "content_block_stop", {"type": "content_block_stop", "index": index}
                )
            )
        usage = {"output_tokens": reply.usage.output}
        delta = {"stop_reason": STOPS[reply.stop], "stop_sequence": None}
        events.append(
            StreamEvent(
                "stop", "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
            )
        )
        events.append(StreamEvent("last", "message_stop", {"type": "message_stop"}))
        return events
