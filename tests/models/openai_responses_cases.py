"""Made-up conversations and streams of the Responses API, the same calls in the SDK's parameters,
and its reading.

The mapping to the SDK is written from the SDK's types alone, so that it can contradict the codec.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_type_hints

import httpx2
from openai import OpenAI
from openai.types import responses as sdk
from openai.types.responses import response_create_params, response_input_item_param
from openai.types.shared_params.reasoning import Reasoning
from pydantic import TypeAdapter

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema
from retinue.models.codec import Options

TEXTS = [
    "yes",
    "Grüße an die 世界",
    "😀 🧑‍🚀 é",
    'a "quoted" \\ back\\u0041slash',
    "line\nbreak\ttab\r end",
    "\u2028\u2029 \u202eright to left",
    "a NUL \x00 and \x7f",
    "data: not an event\n\ndata: [DONE]\n\n",
    "x" * 20,
]
ARGS = [
    '{"path":"a.py"}',
    "{}",
    '{ "n" : 1.50, "deep": {"list": [1, null, true]} }',
    '{"text":"Grüße \\u0041 😀\\n"}',
]
BAD_ARGS = ["", '{"path": "a', "[1,2]", '"{\\"path\\":1}"', "null"]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
TOOLS = [
    ToolSchema(
        name="read",
        description="Reads a file.",
        parameters={"type": "object", "properties": {"path": {}}},
    ),
    ToolSchema(name="wait-for_2", description="", parameters={}),
    ToolSchema(
        name="spawn", description="Grüße", parameters={**SCHEMA, "additionalProperties": False}
    ),
]
EXTRAS: list[dict[str, Any]] = [
    {},
    {"service_tier": "flex", "metadata": {"run": "1"}},
    {"text": {"verbosity": "low"}, "parallel_tool_calls": False},
    {"reasoning": {"summary": "auto"}, "include": ["message.output_text.logprobs"]},
    {"tools": [{"type": "web_search"}]},
    {"input": "mine", "max_output_tokens": 1, "stream": True, "truncation": "auto"},
]


@dataclass
class Case:
    """A call as our port takes it. `items` has the output items behind those messages that were
    kept whole."""

    model: str
    instructions: str
    tools: list[ToolSchema]
    options: Options
    max_output: int
    messages: list[Message] = field(default_factory=list)
    items: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


def text(rng: random.Random) -> str:
    return " ".join(rng.choice(TEXTS) for _ in range(rng.choice([1, 1, 2])))


def pictures(rng: random.Random) -> tuple[Image, ...]:
    kinds = [
        Image(media_type="image/png", data="iVBORw0KGgo="),
        Image(media_type="image/jpeg", data="/9j/4AA="),
    ]
    return tuple(rng.sample(kinds, rng.choice([0, 0, 1, 2])))


def output_items(rng: random.Random, n: int, *, bad_args: bool = False) -> list[dict[str, Any]]:
    """What a model may put out: some reasoning before each message or call, or none at all."""
    items: list[dict[str, Any]] = []
    thinks = rng.random() < 0.6
    for k in range(rng.choice([1, 1, 2, 3])):
        if thinks and rng.random() < 0.7:
            summary = [{"type": "summary_text", "text": text(rng)}] if rng.random() < 0.5 else []
            sealed = "gAAAA" + "".join(rng.choices("abcXYZ0189_-=", k=24))
            items.append(
                {
                    "id": f"rs_{n}_{k}",
                    "type": "reasoning",
                    "summary": summary,
                    "encrypted_content": sealed,
                }
            )
        if rng.random() < 0.4:
            content = [
                {"type": "output_text", "text": text(rng), "annotations": []}
                for _ in range(rng.choice([1, 1, 2]))
            ]
            item = {
                "id": f"msg_{n}_{k}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
            }
            items.append(
                {**item, "content": content} | rng.choice([{}, {}, {"phase": "commentary"}])
            )
        else:
            args = rng.choice(BAD_ARGS if bad_args and rng.random() < 0.3 else ARGS)
            item = {
                "id": f"fc_{n}_{k}",
                "type": "function_call",
                "call_id": f"call_{n}_{k}",
                "name": rng.choice("abc"),
            }
            items.append({**item, "arguments": args, "status": "completed"})
    return items


def said_by(items: Iterable[Mapping[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    items = list(items)
    words = [
        part["text"] for item in items if item["type"] == "message" for part in item["content"]
    ]
    calls = [item for item in items if item["type"] == "function_call"]
    return "".join(words), tuple(
        ToolCall(id=c["call_id"], name=c["name"], arguments_json=c["arguments"]) for c in calls
    )


def assistant(rng: random.Random, case: Case) -> AssistantMessage:
    n = len(case.messages)
    match rng.choice(["kept", "kept", "plain", "plain", "plain", "foreign", "empty"]):
        case "kept":
            items = output_items(rng, n)
            case.items[n] = items
            rest = json.dumps(items, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
            words, calls = said_by(items)
            return AssistantMessage(text=words, calls=calls, opaque="openai_responses\n" + rest)
        case "empty":
            return AssistantMessage()
        case kind:
            ids = [
                rng.choice([f"toolu_{n}_{k}", f"{k}" * 65 + str(n)])
                for k in range(rng.choice([0, 1, 1, 3]))
            ]
            names = ["read", "wait-for_2", "functions.read", "", "n" * 70]
            calls = tuple(
                ToolCall(id=id, name=rng.choice(names), arguments_json=rng.choice(ARGS + BAD_ARGS))
                for id in ids
            )
            opaque = 'anthropic\n[{"type":"thinking"}]' if kind == "foreign" else ""
            return AssistantMessage(
                text=text(rng) if not calls or rng.random() < 0.5 else "",
                calls=calls,
                opaque=opaque,
            )


def conversation(rng: random.Random) -> Case:
    options = Options(
        stream=rng.random() < 0.5,
        temperature=rng.choice([None, 0.0, 0.75]),
        effort=rng.choice(["", "", "minimal", "low", "medium", "high"]),
        thinking_tokens=rng.choice([None, None, 2048]),
        output_schema=rng.choice([None, SCHEMA]),
        cache=rng.random() < 0.5,
        cache_key=rng.choice(["", "run-1", "k" * 64, "k" * 65]),
        extra=rng.choice(EXTRAS),
    )
    model, instructions = rng.choice(["gpt-6-astra", "gpt-5.6-sol"]), rng.choice(["", text(rng)])
    case = Case(
        model,
        instructions,
        rng.sample(TOOLS, rng.randint(0, 3)),
        options,
        rng.choice([1, 16, 4096]),
    )
    case.messages.append(UserMessage(text=text(rng), images=pictures(rng)))
    for _ in range(rng.choice([0, 1, 1, 2])):
        reply = assistant(rng, case)
        case.messages.append(reply)
        for call in reply.calls:
            images = pictures(rng) if rng.random() < 0.3 else ()
            words = rng.choice(["", text(rng)])
            case.messages.append(
                ToolMessage(call_id=call.id, text=words, error=rng.random() < 0.3, images=images)
            )
        for _ in range(rng.choice([0, 0, 1, 2])):
            images = pictures(rng)
            case.messages.append(
                UserMessage(text="" if images and rng.random() < 0.3 else text(rng), images=images)
            )
    return case


def sdk_call(case: Case) -> dict[str, Any]:
    """The parameters of `client.responses.create` for the same call."""
    items: list[dict[str, Any]] = []
    for n, message in enumerate(case.messages):
        items += case.items[n] if n in case.items else sdk_items(message)
    options = case.options
    call: dict[str, Any] = dict(model=case.model, input=items, store=False, stream=options.stream)
    call["max_output_tokens"] = max(16, case.max_output)
    if case.instructions:
        call["instructions"] = case.instructions
    tools: list[Any] = [sdk_tool(tool) for tool in case.tools]
    include = ["reasoning.encrypted_content"] if options.effort or options.thinking_tokens else []
    reasoning: dict[str, Any] = {"effort": options.effort} if options.effort else {}
    form: dict[str, Any] = {}
    if options.output_schema:
        form["format"] = dict(
            type="json_schema", name="output", schema=options.output_schema, strict=False
        )
    if options.temperature is not None:
        call["temperature"] = options.temperature
    if options.cache_key:
        is_long = len(options.cache_key) > 64
        call["prompt_cache_key"] = (
            hashlib.sha256(b"k" * 65).hexdigest() if is_long else options.cache_key
        )
    for name in ("service_tier", "metadata", "parallel_tool_calls", "truncation"):
        if name in options.extra:
            call[name] = options.extra[name]
    tools += options.extra.get("tools", [])
    include += options.extra.get("include", [])
    reasoning.update(options.extra.get("reasoning", {}))
    form.update(options.extra.get("text", {}))
    for name, value in (
        ("tools", tools),
        ("include", include),
        ("reasoning", reasoning),
        ("text", form),
    ):
        if value:
            call[name] = value
    return call


def sdk_tool(tool: ToolSchema) -> sdk.FunctionToolParam:
    shape: Any = tool.parameters or {"type": "object", "properties": {}}
    name, about = tool.name, tool.description
    return sdk.FunctionToolParam(
        type="function", name=name, description=about, parameters=shape, strict=False
    )


def sdk_items(message: Message) -> list[Any]:
    if isinstance(message, UserMessage):
        content = sdk_content(message.text, message.images)
        return [response_input_item_param.Message(type="message", role="user", content=content)]
    if isinstance(message, ToolMessage):
        words = ("Error: " if message.error else "") + message.text
        output = sdk_content(words, message.images) if message.images else words
        id = sdk_id(message.call_id)
        return [
            response_input_item_param.FunctionCallOutput(
                type="function_call_output", call_id=id, output=output
            )
        ]
    items: list[Any] = []
    if message.text or not message.calls:
        words = message.text or "(empty reply)"
        items.append(sdk.EasyInputMessageParam(type="message", role="assistant", content=words))
    for call in message.calls:
        name = {"functions.read": "functions_read", "": "_", "n" * 70: "n" * 64}.get(
            call.name, call.name
        )
        args = call.arguments_json
        if args in BAD_ARGS:
            args = json.dumps({"invalid_json": args}, separators=(",", ":")) if args else "{}"
        id = sdk_id(call.id)
        items.append(
            sdk.ResponseFunctionToolCallParam(
                type="function_call", call_id=id, name=name, arguments=args
            )
        )
    return items


def sdk_id(id: str) -> str:
    return id if len(id) <= 64 else hashlib.sha256(id.encode()).hexdigest()


def sdk_content(words: str, images: Iterable[Image]) -> list[Any]:
    parts: list[Any] = []
    for image in images:
        url = "data:" + image.media_type + ";base64," + image.data
        parts.append(sdk.ResponseInputImageParam(type="input_image", detail="auto", image_url=url))
    return (
        [sdk.ResponseInputTextParam(type="input_text", text=words), *parts]
        if words or not parts
        else parts
    )


ITEM_TYPES: dict[str, Any] = {
    "user": response_input_item_param.Message,
    "assistant": sdk.EasyInputMessageParam,
    "output": sdk.ResponseOutputMessageParam,
    "reasoning": sdk.ResponseReasoningItemParam,
    "function_call": sdk.ResponseFunctionToolCallParam,
    "function_call_output": response_input_item_param.FunctionCallOutput,
}


@cache
def known(kind: Any) -> tuple[frozenset[str], TypeAdapter[Any]]:
    return frozenset(get_type_hints(kind)), TypeAdapter(kind)


def check(kind: Any, value: dict[str, Any]) -> None:
    """The SDK's own type takes the value, and knows each of its keys."""
    names, adapter = known(kind)
    assert names >= value.keys(), value.keys() - names
    for part in adapter.validate_python(
        value
    ).values():  # an iterable is only checked when it is read
        list(part) if isinstance(part, Iterable) and not isinstance(part, str) else part


def check_call(call: dict[str, Any]) -> None:
    names = frozenset(get_type_hints(response_create_params.ResponseCreateParamsBase)) | {"stream"}
    assert names >= call.keys()
    for item in call["input"]:
        role = (
            "output"
            if "id" in item and item["type"] == "message"
            else item.get("role", item["type"])
        )
        check(ITEM_TYPES[role], item)
    for tool in call.get("tools", []):
        check(sdk.FunctionToolParam if tool["type"] == "function" else sdk.WebSearchToolParam, tool)
    check(Reasoning, call.get("reasoning", {}))
    check(sdk.ResponseTextConfigParam, call.get("text", {}))


class Wire:
    """The official client on a transport that keeps what was sent and answers what it is told."""

    def __init__(self) -> None:
        self.sent = b""
        self.headers: Mapping[str, str] = {}
        self.path = ""
        self.answer = b""
        http = httpx2.Client(transport=httpx2.MockTransport(self._handle))
        url = "http://provider.test/v1"
        self.client = OpenAI(
            api_key="k",
            organization="org",
            project="p",
            base_url=url,
            http_client=http,
            max_retries=0,
        )

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.sent, self.headers, self.path = request.read(), request.headers, request.url.path
        return httpx2.Response(
            200, content=self.answer, headers={"content-type": "text/event-stream"}
        )


@dataclass
class Stream:
    """A reply as bytes, and as one body. `spoken` is what the deltas of text and refusal add up
    to."""

    data: bytes
    spoken: str
    body: bytes


def pieces(rng: random.Random, whole: str) -> list[str]:
    cuts = sorted(rng.randint(0, len(whole)) for _ in range(rng.choice([0, 1, 3])))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def item_events(rng: random.Random, index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one output item."""
    at = {"output_index": index}
    added = {
        name: value for name, value in item.items() if name not in ("encrypted_content", "phase")
    }
    added |= {"status": "in_progress"} | (
        {"arguments": ""} if item["type"] == "function_call" else {}
    )
    added |= {"content": []} if item["type"] == "message" else {}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": added}
    ]
    if item["type"] == "function_call":
        name = "response.function_call_arguments"
        events += [
            {"type": f"{name}.delta", **at, "delta": piece}
            for piece in pieces(rng, item["arguments"])
        ]
        events.append({"type": f"{name}.done", **at, "arguments": item["arguments"]})
    elif item["type"] == "message":
        for k, part in enumerate(item["content"]):
            key = "refusal" if part["type"] == "refusal" else "text"
            name = "response.refusal" if key == "refusal" else "response.output_text"
            here = {**at, "content_index": k}
            blank = {**part, key: ""}
            events.append({"type": "response.content_part.added", **here, "part": blank})
            events += [
                {"type": f"{name}.delta", **here, "delta": piece}
                for piece in pieces(rng, part[key])
            ]
            events.append({"type": f"{name}.done", **here, key: part[key]})
    else:
        part = {
            "type": "response.reasoning_summary_text.delta",
            **at,
            "summary_index": 0,
            "delta": "hm",
        }
        events += [part] * len(item["summary"])
    if rng.random() < 0.1:
        events.append({"type": "response.unheard_of.delta", **at, "delta": "no text", "new": [{}]})
    return [*events, {"type": "response.output_item.done", "output_index": index, "item": item}]


TERSE = (".delta", "response.output_item.done")


def stream(rng: random.Random, n: int, *, terse: bool = False) -> Stream:
    """A whole reply. A terse one leaves out the events that only repeat others, as some servers
    do."""
    end = rng.choice(["completed"] * 6 + ["max_output_tokens", "content_filter"])
    items = output_items(rng, n, bad_args=True) if rng.random() < 0.95 else []
    if rng.random() < 0.1:
        content = [{"type": "refusal", "refusal": text(rng)}]
        head = {"id": f"msg_{n}", "type": "message", "role": "assistant", "status": "completed"}
        items = [{**head, "content": content}]
    if end != "completed" and items:
        items[-1] |= {"status": "incomplete"}
        if items[-1]["type"] == "function_call":
            items[-1]["arguments"] = items[-1]["arguments"][:-3]
    items = items[-rng.choice([1, 1, 2]) :] if terse else items
    queues = [item_events(rng, index, item) for index, item in enumerate(items)]
    if terse:
        queues = [[event for event in queue if event["type"].endswith(TERSE)] for queue in queues]
    middle: list[dict[str, Any]] = []
    is_mixed = rng.random() < 0.2  # a server may work at several items at once
    while any(queues):
        queue = rng.choice([q for q in queues if q]) if is_mixed else next(q for q in queues if q)
        middle.append(queue.pop(0))
    usage = None
    if rng.random() < 0.9:
        counts = [rng.randint(0, 10 ** rng.randint(1, 6)) for _ in range(4)]
        (cached, cache_write), (value, put) = counts[:2], counts[2:]
        usage = {"input_tokens": value + cached + cache_write, "output_tokens": put}
        usage["input_tokens_details"] = {"cached_tokens": cached, "cache_write_tokens": cache_write}
    status = "completed" if end == "completed" else "incomplete"
    model = rng.choice(["gpt-6-astra-2026-08-01", "gpt-5.6-sol"])
    response: dict[str, Any] = {"id": f"resp_{n}", "model": model}
    if not terse:
        response |= {"object": "response", "error": None, "output": [], "usage": None}
    last = {
        **response,
        "status": status,
        "usage": usage,
        "output": rng.choice([None if terse else items, items, [], None]),
    }
    last["incomplete_details"] = None if end == "completed" else {"reason": end}
    first = {"type": "response.created", "response": {**response, "status": "in_progress"}}
    events = [first, *middle, {"type": f"response.{status}", "response": last}]
    streamed_text = "".join(
        e["delta"]
        for e in middle
        if e["type"] in ("response.output_text.delta", "response.refusal.delta")
    )
    body = json.dumps({**last, "output": items}).encode()
    return Stream(as_sse(rng, events, names=0.3 if terse else 0.9), streamed_text, body)


def as_sse(rng: random.Random, events: list[dict[str, Any]], names: float) -> bytes:
    line_end = rng.choice(["\n", "\n", "\n", "\r\n", "\r"])
    is_ascii, is_named, has_numbers = rng.random() < 0.5, rng.random() < names, rng.random() < 0.9
    out = []
    for number, event in enumerate(events):
        event = (
            {"type": event["type"], "sequence_number": number, **event} if has_numbers else event
        )
        block = [f"event: {event['type']}"] if is_named else []
        block.append("data: " + json.dumps(event, ensure_ascii=is_ascii, separators=(",", ":")))
        # The same number twice is the same event: the second of them is to be dropped.
        for _ in range(2 if has_numbers and rng.random() < 0.05 else 1):
            out += [*([": ping"] if rng.random() < 0.05 else []), *block, ""]
    if rng.random() < 0.1:
        out += ["data: [DONE]", ""]
    return line_end.join([*out, ""]).encode()


def read_by_sdk(wire: Wire, data: bytes) -> dict[str, Any]:
    """What the official client makes of a stream, in our words."""
    wire.answer = data
    events = list(wire.client.responses.create(model="m", input="hello", stream=True))
    (response,) = [
        e.response for e in events if e.type in ("response.completed", "response.incomplete")
    ][:1]
    result = {e.output_index: e.item for e in events if e.type == "response.output_item.done"}
    items = response.output or [result[index] for index in sorted(result)]
    parts = [part for item in items if item.type == "message" for part in item.content]
    words = "".join(part.refusal if part.type == "refusal" else part.text for part in parts)
    calls = [
        (item.call_id, item.name, item.arguments or "{}")
        for item in items
        if item.type == "function_call"
    ]
    reason = response.incomplete_details.reason if response.incomplete_details else None
    stop = "calls" if calls else "end"
    if response.status == "incomplete":
        stop = "length"
    if reason == "content_filter":
        words = f"{words}\n\nThe provider's content filter stopped this reply.".strip()
    if reason == "content_filter" or any(part.type == "refusal" for part in parts):
        stop = "refusal"
    usage = (0, 0, 0, 0)
    if response.usage:
        details = response.usage.input_tokens_details
        usage = (
            response.usage.input_tokens,
            response.usage.output_tokens,
            details.cached_tokens,
            details.cache_write_tokens,
        )
    return {"text": words, "calls": calls, "stop": stop, "usage": usage, "model": response.model}


def read(reply: ModelReply) -> dict[str, Any]:
    """The same, from a reply of ours."""
    usage = reply.usage
    return {
        "text": reply.message.text,
        "calls": [(call.id, call.name, call.arguments_json) for call in reply.message.calls],
        "stop": reply.stop,
        "usage": (usage.input, usage.output, usage.cache_read, usage.cache_write),
        "model": reply.model,
    }


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def numbered(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


def message(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


def call(args: str = "{}", id: str = "call_1", name: str = "read", **more: Any) -> dict[str, Any]:
    return {
        "id": f"fc_{id}",
        "type": "function_call",
        "call_id": id,
        "name": name,
        "arguments": args,
        **more,
    }


def reasoning(sealed: str | None = "gAAAA=", id: str = "rs_1") -> dict[str, Any]:
    return {"id": id, "type": "reasoning", "summary": [], "encrypted_content": sealed}
