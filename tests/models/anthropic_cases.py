"""Random conversations and replies for the Anthropic dialect, the same for the same seed, and what
one must pass to the provider's SDK to make it send such a conversation."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import Any

from anthropic import types

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema
from retinue.models.codec import Options, keep_opaque, units

WORDS = [
    "plain",
    "größe",
    "日本語",
    "مرحبا\u202e",
    "👩‍👩‍👧 🇨🇭",
    'quo"te\\back',
    "line\nbreak\r\n\ttab",
    "nul\x00bell\x07",
    "half \ud83d pair",
    "</tag> & {json: [1]}",
    "e\u0301\u2028",
]
BLANKS = ["", "", " ", "\n\n", "\t "]
NAMES = ["read", "write_file", "web-search", "a" * 64]
STRANGE_NAMES = ["functions.read", "", "größe", "x" * 200]
STRANGE_IDS = ["functions.read:0", "call/1", "größe", ""]
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
SIGNATURE = "EqoBCkgIAhABGAIiQL+/a9Zz0w=="


@dataclass
class Case:
    """Everything that one request is made of."""

    model: str
    instructions: str
    messages: list[Message]
    tools: list[ToolSchema]
    options: Options
    max_output: int


def words(rng: random.Random, most: int = 4) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def maybe(rng: random.Random) -> str:
    return rng.choice(BLANKS) if rng.random() < 0.2 else words(rng)


def clean_words(rng: random.Random, most: int = 3) -> str:
    return words(rng, most).replace("\ud83d", "?")


def value(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if kind == 7:
        return {clean_words(rng, 1): value(rng, depth - 1) for _ in range(rng.randint(0, 3))}
    return [None, True, rng.randint(-(10**25), 10**25), rng.uniform(-9, 9), clean_words(rng), 0][
        kind
    ]


def arguments(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(["", "  ", '{"path": "a", ', "[1, 2]", '"{\\"a\\": 1}"', "null", "{bad}"])
    values = {clean_words(rng, 1): value(rng) for _ in range(rng.randint(0, 3))}
    return json.dumps(values, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))


def image(rng: random.Random) -> Image:
    return Image(
        media_type=rng.choice(["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"]),
        data=PIXEL,
    )


def images(rng: random.Random) -> tuple[Image, ...]:
    return tuple(image(rng) for _ in range(rng.randint(1, 2))) if rng.random() < 0.2 else ()


def calls(rng: random.Random, turn: int) -> tuple[ToolCall, ...]:
    results = []
    for n in range(rng.choice([0, 1, 1, 2, 4])):
        name = rng.choice(STRANGE_NAMES if rng.random() < 0.1 else NAMES)
        id = rng.choice(STRANGE_IDS) + f".{turn}.{n}" if rng.random() < 0.1 else f"toolu_{turn}_{n}"
        results.append(ToolCall(id=id, name=name, arguments_json=arguments(rng)))
    return tuple(results)


def kept(rng: random.Random, calls: tuple[ToolCall, ...]) -> str:
    """The content of a reply that began with thoughts, written in a way that no encoder of ours
    writes."""
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": clean_words(rng), "signature": SIGNATURE}
    ]
    if rng.random() < 0.3:
        blocks.append({"data": SIGNATURE, "type": "redacted_thinking"})
    if rng.random() < 0.7 or not calls:
        blocks.append({"type": "text", "text": clean_words(rng)})
    blocks += [{"type": "tool_use", "id": c.id, "name": "read", "input": {"n": 1}} for c in calls]
    return json.dumps(
        blocks, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(" , ", " : "), (",", ":")])
    )


def turn(rng: random.Random, n: int) -> list[Message]:
    """An assistant's message with the results of its calls."""
    result = calls(rng, n)
    thinks = rng.random()
    if thinks < 0.3:
        result = tuple(
            ToolCall(id=f"toolu_{n}_{i}", name="read", arguments_json='{"n":1}')
            for i in range(len(result))
        )
        message = AssistantMessage(
            text="ignored", calls=result, opaque=keep_opaque("anthropic", kept(rng, result))
        )
    elif thinks < 0.4:
        message = AssistantMessage(
            text=maybe(rng), calls=result, opaque=keep_opaque("gemini", '{"of": "another"}')
        )
    else:
        message = AssistantMessage(text=maybe(rng), calls=result)
    results = [
        ToolMessage(
            call_id=c.id,
            name=c.name,
            text=maybe(rng),
            error=rng.random() < 0.25,
            images=images(rng),
        )
        for c in result
    ]
    return [message, *results]


def schema(rng: random.Random) -> dict[str, Any]:
    fields = {
        name: {"type": "string", "description": clean_words(rng)} for name in ("path", "größe")
    }
    return {
        "type": "object",
        "properties": fields,
        "required": ["path"],
        "additionalProperties": False,
    }


def options(rng: random.Random) -> Options:
    return Options(
        stream=rng.random() < 0.5,
        temperature=rng.choice([None, None, 0.0, 0.7, 1.0]),
        effort=rng.choice(["", "", "minimal", "low", "medium", "high"]),
        thinking_tokens=rng.choice([None, None, 0, 100, 2048, 9000]),
        output_schema=rng.choice([None, None, schema(rng)]),
        cache=rng.random() < 0.6,
        cache_key=rng.choice(["", "family"]),
        extra=rng.choice(
            [
                {},
                {},
                {"metadata": {"user_id": "u"}},
                {"service_tier": "auto", "stop_sequences": ["."]},
            ]
        ),
    )


def case(rng: random.Random) -> Case:
    messages: list[Message] = [UserMessage(text=maybe(rng), images=images(rng))]
    for n in range(rng.randint(0, 4)):
        messages += turn(rng, n)
        if not isinstance(messages[-1], ToolMessage) or rng.random() < 0.3:
            messages += [
                UserMessage(text=maybe(rng), sender="x", kind="mail")
                for _ in range(rng.randint(1, 2))
            ]
    tools = [
        ToolSchema(
            name=f"{rng.choice(NAMES[:3])}_{n}",
            description=rng.choice(["", clean_words(rng)]),
            parameters=p,
        )
        for n, p in enumerate(rng.choice([{}, schema(rng)]) for _ in range(rng.randint(0, 3)))
    ]
    model = rng.choice(["claude-one", "claude-two-20301231"])
    return Case(
        model, maybe(rng), messages, tools, options(rng), rng.choice([1, 1024, 1025, 5000, 64_000])
    )


def sse(events: list[dict[str, Any]], end: str = "\n", ascii: bool = True) -> bytes:
    text = "".join(
        f"event: {event['type']}{end}data: "
        f"{json.dumps(event, ensure_ascii=ascii, separators=(',', ':'))}{end}{end}"
        for event in events
    )
    return text.encode()


def pieces(rng: random.Random, text: str, most: int) -> list[str]:
    cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, most)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def block(rng: random.Random, index: int, is_cut: bool) -> list[dict[str, Any]]:
    """The events of one block of content."""
    start: dict[str, Any]
    deltas: list[dict[str, Any]] = []
    kind = rng.choice(
        ["text", "text", "tool_use", "tool_use", "thinking", "redacted_thinking", "server_tool_use"]
    )
    if kind == "text":
        start = {"type": "text", "text": ""}
        parts = clean_words(rng, 2) if rng.random() < 0.85 else rng.choice(BLANKS)
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(rng, parts, 1)]
    elif kind == "thinking":
        start = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = (
            [{"type": "thinking_delta", "thinking": clean_words(rng, 1)}]
            if rng.random() < 0.7
            else []
        )
        deltas.append({"type": "signature_delta", "signature": SIGNATURE})
    elif kind == "redacted_thinking":
        start = {"type": kind, "data": SIGNATURE}
    else:
        start = {"type": kind, "id": f"toolu_{index}", "name": "web_search", "input": {}}
        if kind == "tool_use" and rng.random() < 0.3:
            start |= {
                "caller": {
                    "type": rng.choice(["direct", "direct", "code_execution_20260120"]),
                    "tool_id": "x",
                }
            }
        args = json.dumps(
            {"q": clean_words(rng, 1), "n": rng.randint(0, 9)}, ensure_ascii=rng.random() < 0.5
        )
        args = args[: rng.randint(1, len(args))] if is_cut else args
        value = pieces(rng, args, 1) if rng.random() < 0.9 else rng.choice([[], [""]])
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in value]
    head_event = {"type": "content_block_start", "index": index, "content_block": start}
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [head_event, *middle, {"type": "content_block_stop", "index": index}]


def usage(rng: random.Random) -> dict[str, Any]:
    counts = {
        "cache_read_input_tokens": rng.randint(0, 99),
        "cache_creation_input_tokens": rng.choice([None, 0, 7]),
    }
    return {name: count for name, count in counts.items() if rng.random() < 0.3}


def stream(rng: random.Random, n_blocks: int) -> tuple[list[dict[str, Any]], bytes]:
    """A whole reply: its events, and their bytes."""
    often, seldom = (
        ["end_turn", "tool_use", "max_tokens", "refusal"],
        ["stop_sequence", "model_context_window_exceeded"],
    )
    reason = rng.choice([*often * 4, *seldom * 2, "pause_turn"])
    message: dict[str, Any] = {
        "id": f"msg_{rng.randint(0, 9)}",
        "type": "message",
        "role": "assistant",
        "content": [],
    }
    message |= {"model": rng.choice(["claude-one", "other"]), "stop_reason": None}
    message |= {"usage": {"input_tokens": rng.randint(0, 999), "output_tokens": 1} | usage(rng)}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index in range(n_blocks):
        events += block(rng, index, reason == "max_tokens" and index == n_blocks - 1)
        if rng.random() < 0.1:
            events.append({"type": "ping"})
    delta: dict[str, Any] = {"stop_reason": reason}
    if reason == "refusal" and rng.random() < 0.7:
        delta["stop_details"] = {
            "type": "refusal",
            "category": rng.choice(["cyber", None]),
            "explanation": "no!",
        }
    text = {"output_tokens": rng.randint(0, 999)} | usage(rng)
    if rng.random() < 0.2:
        text["input_tokens"] = rng.randint(0, 999)
    # Counts are totals. (What becomes of one that shrinks is in test_counts.)
    first_usage = message["usage"]
    text = {
        name: n if n is None else max(n, first_usage.get(name) or 0) for name, n in text.items()
    }
    events += [{"type": "message_delta", "delta": delta, "usage": text}, {"type": "message_stop"}]
    return events, sse(events, rng.choice(["\n", "\n", "\r\n"]), rng.random() < 0.5)


CACHED = types.CacheControlEphemeralParam(type="ephemeral")
PICTURES = ("image/gif", "image/jpeg", "image/png", "image/webp")


def replied(text: str) -> str:
    """As JSON can carry it: half a surrogate pair cannot be sent by anybody."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def spoken(text: str) -> types.TextBlockParam:
    return types.TextBlockParam(type="text", text=replied(text) if text.strip() else "(empty)")


def shown(image: Image) -> Any:
    if image.media_type not in PICTURES:
        return spoken(f"(an image of type {image.media_type}, which cannot be shown)")
    kind: Any = image.media_type
    source = types.Base64ImageSourceParam(type="base64", media_type=kind, data=image.data)
    return types.ImageBlockParam(type="image", source=source)


def called(call: ToolCall) -> types.ToolUseBlockParam:
    try:
        value = json.loads(call.arguments_json or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        value = {"invalid_json": call.arguments_json} if call.arguments_json.strip() else {}
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:128] or "_"
    return types.ToolUseBlockParam(type="tool_use", id=call.id, name=name, input=value)


def returned(result: ToolMessage) -> types.ToolResultBlockParam:
    block = types.ToolResultBlockParam(type="tool_result", tool_use_id=result.call_id)
    content = [shown(image) for image in result.images if not result.error]
    if result.error:
        block["is_error"] = True
        block["content"] = (
            replied(result.text) if result.text.strip() else "(failed without a message)"
        )
    elif content:
        block["content"] = ([spoken(result.text)] if result.text.strip() else []) + content
    elif result.text.strip():
        block["content"] = replied(result.text)
    return block


def param(part: list[Message]) -> list[types.MessageParam]:
    """One unit as the SDK's documentation writes it."""
    first, *results = part
    content: Any
    if isinstance(first, UserMessage):
        content = [shown(image) for image in first.images]
        if first.text.strip() or not content:
            content.append(spoken(first.text))
        return [types.UserMessageParam(role="user", content=content)]
    assert isinstance(first, AssistantMessage)
    owner, _, sealed_text = first.opaque.partition("\n")
    content = [spoken(first.text)] if first.text.strip() or not first.calls else []
    content += [called(call) for call in first.calls]
    out: list[types.MessageParam] = [
        types.AssistantMessageParam(
            role="assistant", content=json.loads(sealed_text) if owner == "anthropic" else content
        )
    ]
    if results:
        content = [returned(result) for result in results if isinstance(result, ToolMessage)]
        content += [
            shown(i)
            for result in results
            if isinstance(result, ToolMessage) and result.error
            for i in result.images
        ]
        out.append(types.UserMessageParam(role="user", content=content))
    return out


def sdk_arguments(case: Case) -> dict[str, Any]:
    options, questions = case.options, dict[str, Any](model=case.model, max_tokens=case.max_output)
    questions["messages"] = [
        message for part in units(case.messages) for message in param(list(part))
    ]
    if case.instructions.strip():
        questions["system"] = [types.TextBlockParam(type="text", text=replied(case.instructions))]
    if case.tools:
        questions["tools"] = [
            types.ToolParam(name=t.name, input_schema=t.parameters) for t in case.tools
        ]
        for tool, text in zip(case.tools, questions["tools"], strict=True):
            text["input_schema"].setdefault("type", "object")
            if tool.description:
                text["description"] = tool.description
    if options.cache:
        questions["messages"][-1]["content"][-1]["cache_control"] = CACHED
        for name in ("system", "tools"):
            if name in questions:
                questions[name][-1]["cache_control"] = CACHED
    if options.thinking_tokens == 0:
        questions["thinking"] = types.ThinkingConfigDisabledParam(type="disabled")
    elif (
        options.thinking_tokens and case.max_output > 1024
    ):  # at least 1024, and less than max_tokens
        budget = sorted([1024, options.thinking_tokens, case.max_output - 1])[1]
        questions["thinking"] = types.ThinkingConfigEnabledParam(
            type="enabled", budget_tokens=budget
        )
    config = types.OutputConfigParam()
    if options.effort:
        config["effort"] = "low" if options.effort == "minimal" else options.effort
    if options.output_schema is not None:
        config["format"] = types.JSONOutputFormatParam(
            type="json_schema", schema=options.output_schema
        )
    if config:
        questions["output_config"] = config
    return questions | options.extra


START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "model": "claude-one",
        "content": [],
        "usage": {"input_tokens": 3},
    },
}


def text(text: str, index: int = 0) -> list[dict[str, Any]]:
    return content(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})


def tool(
    args: str, index: int = 0, id: Any = "toolu_1", name: Any = "read"
) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return content(index, start, {"type": "input_json_delta", "partial_json": args})


def content(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str | None = "end_turn", **details: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, **details}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def failed(kind: str, message: str = "Overloaded") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def error(kind: str, message: str = "words", **details: str) -> bytes:
    texts: dict[str, Any] = {"type": kind, "message": message} | (
        {"details": details} if details else {}
    )
    return json.dumps({"type": "error", "error": texts, "request_id": "req_01"}).encode()
