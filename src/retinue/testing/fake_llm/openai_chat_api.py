"""The fake of OpenAI's Chat Completions: what it refuses, and how it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import (
    CREATED,
    Dialect,
    FakeError,
    FakeReply,
    ParsedPrompt,
    Stop,
    StreamEvent,
    pieces,
)
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.openai_chat_messages import ChatMessages
from retinue.testing.fake_llm.openai_shared import (
    error,
    function,
    headers,
    limit,
    missing,
    read_body,
    refuse,
    tool_list,
    unknown_field,
    wrong_value,
)
from retinue.testing.fake_llm.strict_checks import Memory, words

FIELDS = words(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
    "max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction "
    "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning_effort response_format safety_identifier seed service_tier stop store stream "
    "stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
REASONS = re.compile(r"(o\d|gpt-[5-9])")
"""Models that think refuse `max_tokens`."""
STOPS: Mapping[Stop, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "filter": "content_filter",
}


class OpenAIChatApi:
    """`POST /v1/chat/completions`."""

    dialect: Dialect = "openai_chat"

    def __init__(self) -> None:
        self._memory = Memory()

    def read(self, ask: HttpRequest, model: str) -> ParsedPrompt:
        body = read_body(ask)
        for name in body:
            if name not in FIELDS:
                raise refuse(f"Unrecognized request argument supplied: {name}")
        most = self._limit(body)
        tools = self._memory.tools_if_set(body, _tools)
        for name in ("tool_choice", "parallel_tool_calls"):
            if tools is None and body.get(name) is not None:
                raise refuse(f"'{name}' is only allowed when 'tools' are specified.", name)
        options = body.get("stream_options")
        if options is not None and not body.get("stream"):
            raise refuse(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                "stream_options",
            )
        talk = ChatMessages()
        talk.read(body.get("messages"))
        return ParsedPrompt(
            model=body["model"],
            system=talk.system,
            messages=tuple(talk.messages),
            tools=tools.schemas if tools else (),
            units=[tools.unit, *talk.units] if tools else talk.units,
            stream=body.get("stream") or False,
            max_output=most,
            wants_usage=bool((options or {}).get("include_usage")),
        )

    def _limit(self, body: Mapping[str, Any]) -> int | None:
        old, new = limit(body, "max_tokens", 1), limit(body, "max_completion_tokens", 1)
        if old is not None and new is not None:
            text = (
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not "
                "supported."
            )
            raise refuse(text, None, "invalid_parameter_combination")
        if old is not None and REASONS.match(body["model"]):
            text = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead."
            )
            raise refuse(text, "max_tokens", "unsupported_parameter")
        return new if old is None else old

    def headers(self, n: int) -> dict[str, str]:
        return headers(n)

    def error(self, trouble: FakeError, n: int) -> dict[str, Any]:
        return error(trouble, n)

    def body(self, reply: FakeReply) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text or None,
            "refusal": reply.refusal or None,
        }
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_json},
                }
                for call in reply.calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": STOPS.get(reply.stop, "stop"),
        }
        return {**_frame(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: FakeReply, n_deltas: int) -> list[StreamEvent]:
        frame = _frame(reply, "chat.completion.chunk")
        if reply.wants_usage:
            frame["usage"] = None

        def event(kind: Any, delta: Mapping[str, Any], finish: str | None = None) -> StreamEvent:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return StreamEvent(kind, "", {**frame, "choices": [choice]})

        events = [
            event(
                "start",
                {"role": "assistant", "content": None if reply.calls else "", "refusal": None},
            )
        ]
        events += [event("text", {"content": part}) for part in pieces(reply.text, n_deltas)]
        events += [event("text", {"refusal": part}) for part in pieces(reply.refusal, n_deltas)]
        for index, call in enumerate(reply.calls):
            named = {"name": call.name, "arguments": ""}
            first = {"index": index, "id": call.id, "type": "function", "function": named}
            events.append(event("call", {"tool_calls": [first]}))
            for part in pieces(call.arguments_json, n_deltas):
                more = {"index": index, "function": {"arguments": part}}
                events.append(event("args", {"tool_calls": [more]}))
        events.append(event("stop", {}, STOPS.get(reply.stop, "stop")))
        if reply.wants_usage:
            events.append(StreamEvent("stop", "", {**frame, "choices": [], "usage": _usage(reply)}))
        events.append(StreamEvent("last", "", "[DONE]"))
        return events


def _frame(reply: FakeReply, kind: str) -> dict[str, Any]:
    return {
        "id": reply.id,
        "object": kind,
        "created": CREATED,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


def _usage(reply: FakeReply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": len(reply.thinking) // 4,
            "audio_tokens": 0,
        },
    }


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    schemas = []
    for n, tool in enumerate(tool_list(value)):
        if tool["type"] == "custom":
            continue
        if tool["type"] != "function":
            raise wrong_value(f"tools[{n}].type", tool["type"], "'function' and 'custom'")
        if not isinstance(tool.get("function"), dict):
            raise missing(f"tools[{n}].function")
        unknown_field(tool, words("type function"), f"tools[{n}]")
        unknown_field(
            tool["function"], words("name description parameters strict"), f"tools[{n}].function"
        )
        schemas.append(function(tool["function"], f"tools[{n}].function"))
    return tuple(schemas)
