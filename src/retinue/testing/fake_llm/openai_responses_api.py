"""OpenAI's responses: what they refuse, and how they answer. Nothing is stored: the whole
conversation must come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.messages import Assistant, Call, Image, Message, Result, User
from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import (
    CREATED,
    Dialect,
    FakeError,
    FakeReply,
    FakeUnit,
    ParsedPrompt,
    StreamEvent,
    encode,
    pieces,
    seal,
)
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.openai_shared import (
    empty,
    error,
    function,
    headers,
    image,
    limit,
    missing,
    name_field,
    read_body,
    refuse,
    text_field,
    too_long,
    tool_list,
    unknown_field,
    wrong_type,
    wrong_value,
)
from retinue.testing.fake_llm.strict_checks import Memory, words

FIELDS = words(
    "access_programs background context_management conversation image include input instructions "
    "max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls "
    "previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning safety_identifier service_tier store stream stream_options temperature text "
    "tool_choice tools top_logprobs top_p truncation user"
)
TOOL_FIELDS = words(
    "type name description parameters strict allowed_callers async defer_loading output_schema"
)
ITEM_FIELDS = {
    "message": words("type role content id status phase"),
    "function_call": words("type call_id name arguments id status namespace caller async"),
    "function_call_output": words("type call_id output id status name namespace caller"),
    "reasoning": words("type id summary encrypted_content content status"),
}
PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "reasoning": "rs",
}
MAX_CALL_ID = 64
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
        tools = self._memory.tools(body["tools"], _tools) if body.get("tools") is not None else None
        system = body.get("instructions") or ""
        if not isinstance(system, str):
            raise wrong_type("instructions", "a string", system)
        items = _Items()
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

    def body(self, said: FakeReply) -> dict[str, Any]:
        return _response(said, _status(said), _output(said))

    def events(self, said: FakeReply, n_deltas: int) -> list[StreamEvent]:
        writer = _Writer()
        for name in ("response.created", "response.in_progress"):
            writer.add("start", name, response=_response(said, "in_progress", []))
        for index, item in enumerate(_output(said)):
            writer.item(index, item, n_deltas)
        status = _status(said)
        if status in ("queued", "in_progress"):
            writer.add("last", f"response.{status}", response=_response(said, status, []))
        else:
            writer.add(
                "last", f"response.{status}", response=_response(said, status, _output(said))
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


def _status(said: FakeReply) -> str:
    return {
        "length": "incomplete",
        "filter": "incomplete",
        "pause": "queued",
        "waiting": "in_progress",
    }.get(said.stop, "completed")


def _output(said: FakeReply) -> list[dict[str, Any]]:
    tail = said.id.removeprefix("resp_")
    items: list[dict[str, Any]] = []
    is_cut = said.stop == "length"
    if said.thinking:
        kept = seal(said.thinking)
        items.append(
            {"type": "reasoning", "id": f"rs_{tail}", "summary": [], "encrypted_content": kept}
        )
    if said.text or said.refusal:
        part: dict[str, Any] = {
            "type": "output_text",
            "text": said.text,
            "annotations": [],
            "logprobs": [],
        }
        if said.refusal:
            part = {"type": "refusal", "refusal": said.refusal}
        status = "incomplete" if is_cut and not said.calls else "completed"
        message = {
            "type": "message",
            "id": f"msg_{tail}",
            "status": status,
            "role": "assistant",
            "content": [part],
        }
        items.append(message)
    for n, call in enumerate(said.calls):
        status = "incomplete" if is_cut and n == len(said.calls) - 1 else "completed"
        named = {"call_id": call.id, "name": call.name, "arguments": call.args}
        items.append({"type": "function_call", "id": f"fc_{tail}_{n}", "status": status, **named})
    return items


def _response(said: FakeReply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(said.stop)
    usage = said.usage
    return {
        "id": said.id,
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "model": said.model,
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
            "output_tokens_details": {"reasoning_tokens": len(said.thinking) // 4},
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


class _Items:
    """The conversation, item by item. Neighbours that the model said are one reply."""

    def __init__(self) -> None:
        self.system = ""
        self.messages: list[Message] = []
        self.units: list[FakeUnit] = []
        self._names: dict[str, str] = {}
        self._open: dict[str, None] = {}
        self._ids: set[str] = set()
        self._texts: list[str] = []
        self._calls: list[Call] = []
        self._kept: list[Any] = []
        self._thought = ""

    def read(self, value: Any) -> None:
        if value is None:
            raise missing("input")
        items = [{"role": "user", "content": value}] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise wrong_type("input", "one of a string or array of objects", value)
        if not items:
            raise empty("input")
        for n, item in enumerate(items):
            self._item(f"input[{n}]", item)
        self._check_thought()
        self._close()
        if self._open:
            raise refuse(
                f"No tool output found for function call {next(iter(self._open))}.", "input"
            )

    def _item(self, at: str, item: Any) -> None:
        if not isinstance(item, dict):
            raise wrong_type(at, "an object", item)
        kind = item.get("type", "message" if "role" in item else None)
        if kind not in ITEM_FIELDS:
            supported = "', '".join(ITEM_FIELDS)
            raise wrong_value(at, kind, f"'{supported}'") if kind else missing(f"{at}.type")
        unknown_field(item, ITEM_FIELDS[kind], at)
        self._id(at, kind, item.get("id"))
        if kind == "message" and "role" not in item:
            raise missing(f"{at}.role")
        if kind == "function_call":
            self._call(at, item)
        elif kind == "reasoning":
            self._think(at, item)
        elif kind == "message" and item["role"] == "assistant":
            self._thought = ""
            text, _ = _content(item.get("content"), f"{at}.content", "output_text")
            self._texts.append(text)
            self.units.append(FakeUnit(("assistant", text), len(text)))
        else:
            self._check_thought()
            self._close()
            self._heard(at, kind, item)

    def _heard(self, at: str, kind: str, item: Mapping[str, Any]) -> None:
        """What the model did not say: a result, or a message of another role."""
        if kind == "function_call_output":
            self._result(at, item)
            return
        role = item["role"]
        if role not in ("user", "system", "developer"):
            raise wrong_value(f"{at}.role", role, "'assistant', 'system', 'developer', and 'user'")
        text, images = _content(item.get("content"), f"{at}.content", "input_text")
        if role == "user":
            self.messages.append(User(text=text, images=images))
        else:
            self.system = f"{self.system}\n\n{text}" if self.system else text
        self.units.append(
            FakeUnit((role, text, images), len(text) + sum(len(i.data) for i in images))
        )

    def _id(self, at: str, kind: str, value: Any) -> None:
        if value is None:
            return
        name = text_field(value, f"{at}.id")
        if not name.startswith(PREFIXES[kind]):
            text = (
                f"Invalid '{at}.id': '{name}'. Expected an ID that begins with '{PREFIXES[kind]}'."
            )
            raise refuse(text, f"{at}.id", "invalid_value")
        if name in self._ids:
            text = (
                f"Duplicate item found with id {name}. Remove duplicate items from your input "
                "and try again."
            )
            raise refuse(text, "input")
        self._ids.add(name)

    def _call(self, at: str, item: Mapping[str, Any]) -> None:
        call_id = too_long(
            text_field(item.get("call_id"), f"{at}.call_id"), MAX_CALL_ID, f"{at}.call_id"
        )
        name = name_field(item.get("name"), f"{at}.name")
        args = text_field(item.get("arguments"), f"{at}.arguments")
        if not call_id or call_id in self._names:
            raise refuse(f"Duplicate 'call_id': {call_id}.", f"{at}.call_id")
        self._thought = ""
        self._names[call_id] = name
        self._open[call_id] = None
        call = Call(id=call_id, name=name, args=args)
        self._calls.append(call)
        self.units.append(FakeUnit(call, len(name) + len(args)))

    def _result(self, at: str, item: Mapping[str, Any]) -> None:
        call_id = text_field(item.get("call_id"), f"{at}.call_id")
        if call_id not in self._open:
            text = f"No tool call found for function call output with call_id {call_id}."
            if call_id in self._names:
                text = f"Duplicate function call output found with call_id {call_id}."
            raise refuse(text, "input")
        del self._open[call_id]
        text, images = _content(item.get("output"), f"{at}.output", "input_text")
        result = Result(call_id=call_id, text=text, name=self._names[call_id], images=images)
        self.messages.append(result)
        self.units.append(FakeUnit(result, len(text)))

    def _think(self, at: str, item: Mapping[str, Any]) -> None:
        for name in ("id", "summary"):
            if name not in item:
                raise missing(f"{at}.{name}")
        self._check_thought()
        kept = item.get("encrypted_content")
        if kept is None:
            text = (
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is "
                "set to false. Try "
                "again with `store` set to true, or remove this item from your input."
            )
            raise refuse(text, "input", None, 404)
        if not isinstance(kept, str) or len(kept) != len(seal("")):
            text = f"The encrypted content {str(kept)[:12]}... could not be verified."
            raise refuse(text, None, "invalid_encrypted_content")
        self._thought = item["id"]
        self._kept.append(item)
        self.units.append(FakeUnit(kept, len(kept)))

    def _check_thought(self) -> None:
        if self._thought:
            text = (
                f"Item '{self._thought}' of type 'reasoning' was provided without its required "
                "following item."
            )
            raise refuse(text, "input")

    def _close(self) -> None:
        """The reply that the last items were is complete."""
        if self._texts or self._calls or self._kept:
            kept = encode(self._kept).decode() if self._kept else ""
            self.messages.append(
                Assistant(text="".join(self._texts), calls=tuple(self._calls), opaque=kept)
            )
            self._texts, self._calls, self._kept = [], [], []


def _content(value: Any, param: str, kind: str) -> tuple[str, tuple[Image, ...]]:
    if isinstance(value, str):
        return value, ()
    if value is None:
        raise missing(param)
    if not isinstance(value, list):
        raise wrong_type(param, "one of a string or array of objects", value)
    known = (
        ("output_text", "refusal")
        if kind == "output_text"
        else ("input_text", "input_image", "input_file")
    )
    texts, images = [], []
    for n, part in enumerate(value):
        at = f"{param}[{n}]"
        found = part.get("type") if isinstance(part, dict) else None
        if found not in known:
            raise wrong_value(at, found, " and ".join(f"'{name}'" for name in known))
        if found == kind:
            texts.append(text_field(part.get("text"), f"{at}.text"))
        elif found == "input_image":
            images.append(image(part.get("image_url"), f"{at}.image_url"))
    return "\n\n".join(texts), tuple(images)
