"""Objects of the Responses API, built from a run's record: the same before and after a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from retinue.core.values import ToolSchema, Usage
from retinue.host.client_tools import call_id
from retinue.outcomes import Outcome
from retinue.server.openai.agent_requests import estimated_tokens, usage_numbers

META = "openai.response"
"""Under this name a run remembers what was asked for."""
FINAL_ANSWER = "final_answer"
ASK = "ask"
"""The tool with which an agent asks its user."""
_ID = re.compile(r"resp_([0-9A-Za-z-]+?)(?:_([0-9]{1,9}))?")


class AskedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client has said of the response that it wants."""

    previous: str = ""
    background: bool = False
    instructions: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def meta(self) -> dict[str, str]:
        return {META: msgspec.json.encode(self).decode()}

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> AskedResponse | None:
        text = meta.get(META, "")
        return msgspec.json.decode(text, type=cls) if text else None


def response_id(run: str, start: int) -> str:
    """`start` is the first message of a response that is not the first of its run."""
    return f"resp_{run}_{start}" if start else f"resp_{run}"


def read_id(id: str) -> tuple[str, int] | None:
    match = _ID.fullmatch(id)
    return None if match is None else (match[1], int(match[2] or 0))


@dataclass(frozen=True)
class ResponsePart:
    """The messages of one response: those up to the calls that its client had to answer."""

    run: str
    start: int
    messages: Sequence[Message]
    tools: Mapping[str, ToolSchema]

    def whole(self) -> tuple[list[tuple[AssistantMessage, int]], bool]:
        """The agent's messages with their numbers, and whether the last one was handed over to the
        client."""
        out: list[tuple[AssistantMessage, int]] = []
        for n, message in enumerate(self.messages, self.start):
            if isinstance(message, AssistantMessage):
                out.append((message, n))
                if self.handed_over(message):
                    return out, True
        return out, False

    def handed_over(self, message: AssistantMessage) -> list[tuple[int, ToolCall]]:
        """The calls of a message that were the client's to answer. One that failed by itself was
        not."""
        failed = {m.call_id for m in self.messages if isinstance(m, ToolMessage) and m.error}
        return [
            (index, call)
            for index, call in enumerate(message.calls)
            if (call.name in self.tools or call.name == ASK) and call.id not in failed
        ]

    def items(self) -> list[dict[str, Any]]:
        """The items of the response, in the order in which a stream has them."""
        out: list[dict[str, Any]] = []
        for message, n in self.whole()[0]:
            if message.text:
                out.append(text_item(self.item_id(len(out)), message.text, phase_of(message)))
            for index, call in self.handed_over(message):
                if call.name in self.tools:
                    out.append(call_item(call_id(self.run, n, index), call))
                else:
                    words = str(call.arguments.get("question", ""))
                    out.append(text_item(self.item_id(len(out)), words, FINAL_ANSWER))
        return out

    def item_id(self, index: int) -> str:
        return text_id(self.run, self.start, index)


def text_id(run: str, start: int, index: int) -> str:
    """The id of the text at a place of the output."""
    return f"msg_{run}_{start}_{index}"


def phase_of(message: AssistantMessage) -> str:
    """An agent that calls a tool continues afterwards."""
    return "commentary" if message.calls else FINAL_ANSWER


def text_item(id: str, text: str, phase: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    fields = {"id": id, "type": "message", "role": "assistant", "status": "completed"}
    return {**fields, "content": content, "phase": phase}


def call_item(id: str, call: ToolCall) -> dict[str, Any]:
    fields = {"id": f"fc_{id[5:]}", "type": "function_call", "status": "completed"}
    return {**fields, "call_id": id, "name": call.name, "arguments": call.arguments_json}


def result_item(part: ResponsePart, outcome: Outcome, items: Sequence[Any]) -> list[Any]:
    """A result that was submitted with a tool is not in the conversation."""
    last = items[-1]["content"][0]["text"] if items and items[-1]["type"] == "message" else ""
    if not outcome.text or last.strip() == outcome.text.strip():
        return []
    return [text_item(part.item_id(len(items)), outcome.text, FINAL_ANSWER)]


def item_events(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """What a stream says of an item, without the numbers."""
    where = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        text = item["content"][0]["text"]
        yield from opening(item["id"], index)
        yield text_delta(item["id"], index, text)
        yield from closing(item, index)
        return
    started = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    arguments = item["arguments"]
    yield {"type": "response.function_call_arguments.delta", **where, "delta": arguments}
    call_fields = {"name": item["name"], "arguments": arguments}
    yield {"type": "response.function_call_arguments.done", **where, **call_fields}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def opening(id: str, index: int) -> Iterator[dict[str, Any]]:
    """A text item begins."""
    started = {**text_item(id, "", ""), "status": "in_progress", "content": [], "phase": None}
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    yield {"type": "response.content_part.added", **_place(id, index), "part": part}


def text_delta(id: str, index: int, text: str) -> dict[str, Any]:
    kind = "response.output_text.delta"
    return {"type": kind, **_place(id, index), "delta": text, "logprobs": []}


def closing(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """A text item is whole."""
    place, content = _place(item["id"], index), item["content"][0]
    kind = "response.output_text.done"
    yield {"type": kind, **place, "text": content["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": content}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _place(id: str, index: int) -> dict[str, Any]:
    return {"item_id": id, "output_index": index, "content_index": 0}


def response_tool(tool: ToolSchema) -> dict[str, Any]:
    fields = {"name": tool.name, "description": tool.description, "strict": tool.strict}
    return {"type": "function", "parameters": tool.parameters, **fields}


def response_usage(usage: Usage) -> dict[str, Any]:
    n_in, n_out = usage_numbers(usage)
    cached = {
        "cached_tokens": max(0, usage.cache_read),
        "cache_write_tokens": max(0, usage.cache_write),
    }
    return {
        "input_tokens": n_in,
        "input_tokens_details": cached,
        "output_tokens": n_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": n_in + n_out,
        **estimated_tokens(usage),
    }
