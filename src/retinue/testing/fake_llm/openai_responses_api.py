"""The fake of OpenAI's Responses API: what it refuses, and how it answers. Nothing is stored: the
whole conversation must come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import (
    CREATED,
    Dialect,
    FakeError,
    FakeReply,
    FakeUnit,
    ParsedPrompt,
    StreamEvent,
    pieces,
    seal,
)
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.openai_responses_input import InputItems
from retinue.testing.fake_llm.openai_shared import (
    error,
    function,
    headers,
    limit,
    read_body,
    refuse,
    tool_list,
    unknown_field,
    wrong_type,
)
from retinue.testing.fake_llm.strict_checks import Memory, words

FIELDS = words(
    "access_programs background client_metadata context_management conversation image include "
    "input instructions max_output_tokens max_tool_calls metadata model moderation "
    "parallel_tool_calls "
    "previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning safety_identifier service_tier store stream stream_options temperature text "
    "tool_choice tools top_logprobs top_p truncation user"
)
TOOL_FIELDS = words(
    "type name description parameters strict allowed_callers async defer_loading output_schema"
)
LEAST_OUTPUT = 16


class OpenAIResponsesApi:
    """`POST /v1/responses`."""

    dialect: Dialect = "openai_responses"

    def __init__(self) -> None:
        self._memory = Memory()

    def read(self, ask: HttpRequest, model: str) -> ParsedPrompt:
        body = read_body(ask)
        unknown_field(body, FIELDS)
        most = limit(body, "max_output_tokens", LEAST_OUTPUT)
        if (before := body.get("previous_response_id")) is not None:
            text = f"Previous response with id '{before}' not found."
            raise refuse(text, "previous_response_id", "previous_response_not_found")
        tools = self._memory.tools_if_set(body, _tools)
        system = body.get("instructions") or ""
        if not isinstance(system, str):
            raise wrong_type("instructions", "a string", system)
        items = InputItems()
        items.read(body.get("input"))
        units = [FakeUnit(("instructions", system), len(system)), *items.units]
        if items.system:
            system = f"{system}\n\n{items.system}" if system else items.system
        return ParsedPrompt(
            model=body["model"],
            system=system,
            messages=tuple(items.messages),
            tools=tools.schemas if tools else (),
            units=[tools.unit, *units] if tools else units,
            stream=body.get("stream") or False,
            max_output=most,
            is_thinking="reasoning.encrypted_content" in (body.get("include") or ()),
        )

    def headers(self, n: int) -> dict[str, str]:
        return headers(n)

    def error(self, trouble: FakeError, n: int) -> dict[str, Any]:
        return error(trouble, n)

    def body(self, reply: FakeReply) -> dict[str, Any]:
        return _response(reply, _status(reply), _output(reply))

    def events(self, reply: FakeReply, n_deltas: int) -> list[StreamEvent]:
        writer = _Writer()
        for name in ("response.created", "response.in_progress"):
            writer.add("start", name, response=_response(reply, "in_progress", []))
        for index, item in enumerate(_output(reply)):
            writer.item(index, item, n_deltas)
        status = _status(reply)
        if status in ("queued", "in_progress"):
            writer.add("last", f"response.{status}", response=_response(reply, status, []))
        else:
            writer.add(
                "last", f"response.{status}", response=_response(reply, status, _output(reply))
            )
        return writer.events


class _Writer:
    """Numbers the events of a stream, as the provider does."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []

    def add(self, kind: Any, name: str, **data: Any) -> None:
        self.events.append(
            StreamEvent(kind, name, {"type": name, "sequence_number": len(self.events), **data})
        )

    def item(self, index: int, item: Mapping[str, Any], n: int) -> None:
        started = {**item, "status": "in_progress"}
        at = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "message":
                part = item["content"][0]
                word = "output_text" if part["type"] == "output_text" else "refusal"
                field = "text" if word == "output_text" else "refusal"
                extra: dict[str, Any] = {"logprobs": []} if field == "text" else {}
                at["content_index"] = 0
                self.add(
                    "start",
                    "response.output_item.added",
                    output_index=index,
                    item={**started, "content": []},
                )
                self.add("start", "response.content_part.added", **at, part={**part, field: ""})
                for piece in pieces(part[field], n):
                    self.add("text", f"response.{word}.delta", **at, delta=piece, **extra)
                self.add("stop", f"response.{word}.done", **at, **{field: part[field]}, **extra)
                self.add("stop", "response.content_part.done", **at, part=part)
            case "function_call":
                self.add(
                    "call",
                    "response.output_item.added",
                    output_index=index,
                    item={**started, "arguments": ""},
                )
                for piece in pieces(item["arguments"], n):
                    self.add("args", "response.function_call_arguments.delta", **at, delta=piece)
                self.add(
                    "stop",
                    "response.function_call_arguments.done",
                    **at,
                    arguments=item["arguments"],
                )
            case _:
                self.add("start", "response.output_item.added", output_index=index, item=item)
        self.add("stop", "response.output_item.done", output_index=index, item=item)


def _status(reply: FakeReply) -> str:
    return {
        "length": "incomplete",
        "filter": "incomplete",
        "pause": "queued",
        "waiting": "in_progress",
    }.get(reply.stop, "completed")


def _output(reply: FakeReply) -> list[dict[str, Any]]:
    tail = reply.id.removeprefix("resp_")
    items: list[dict[str, Any]] = []
    is_cut = reply.stop == "length"
    if reply.thinking:
        thoughts = seal(reply.thinking)
        items.append(
            {"type": "reasoning", "id": f"rs_{tail}", "summary": [], "encrypted_content": thoughts}
        )
    if reply.text or reply.refusal:
        part: dict[str, Any] = {
            "type": "output_text",
            "text": reply.text,
            "annotations": [],
            "logprobs": [],
        }
        if reply.refusal:
            part = {"type": "refusal", "refusal": reply.refusal}
        status = "incomplete" if is_cut and not reply.calls else "completed"
        message = {
            "type": "message",
            "id": f"msg_{tail}",
            "status": status,
            "role": "assistant",
            "content": [part],
        }
        items.append(message)
    for n, call in enumerate(reply.calls):
        status = "incomplete" if is_cut and n == len(reply.calls) - 1 else "completed"
        space, _, name = call.name.rpartition("/")  # a function of a namespace
        named = {"call_id": call.id, "name": name, "arguments": call.arguments_json}
        if space:
            named["namespace"] = space
        items.append({"type": "function_call", "id": f"fc_{tail}_{n}", "status": status, **named})
    return items


def _response(reply: FakeReply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(reply.stop)
    usage = reply.usage
    return {
        "id": reply.id,
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": 0},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": len(reply.thinking) // 4},
            "total_tokens": usage.input + usage.output,
        }
        if status in ("completed", "incomplete")
        else None,
    }


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    schemas = []
    for n, tool in enumerate(tool_list(value) if value else []):
        if tool["type"] == "function":
            unknown_field(tool, TOOL_FIELDS, f"tools[{n}]")
            schemas.append(function(tool, f"tools[{n}]"))
    return tuple(schemas)
