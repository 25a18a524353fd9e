"""Random conversations and streams for the tests of the Chat Completions codec. The same seed gives
the same case."""

from __future__ import annotations

import base64
import json
import random
import string
from dataclasses import dataclass, field
from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema
from retinue.models.codec import Options, keep_opaque
from retinue.models.openai_chat import OpenAIChatCodec

WORDS = [
    "read",
    "the file",
    "été",
    "naïve",
    "日本語",
    "שלום",
    "😀",
    "👩‍👩‍👧",
    "\u202eabc",
    "a\x00b",
    "\t",
    "\n",
    '"q"',
    "\\",
    "</s>",
]
NAMES = ["read", "write_file", "spawn-agent", "x", "A9"]


def text(r: random.Random, most: int = 5) -> str:
    return " ".join(r.choice(WORDS) for _ in range(r.randrange(1, most + 1)))


def value(r: random.Random, depth: int = 2) -> Any:
    kinds = ["text", "int", "float", "bool", "none"] + (["list", "dict"] if depth else [])
    match r.choice(kinds):
        case "text":
            return text(r, 2)
        case "int":
            return r.randrange(-(10**9), 10**9)
        case "float":
            return r.choice([0.5, -2.25, 1e-7])
        case "bool":
            return r.random() < 0.5
        case "list":
            return [value(r, depth - 1) for _ in range(r.randrange(3))]
        case "dict":
            return {text(r, 1): value(r, depth - 1) for _ in range(r.randrange(3))}
    return None


def arguments(r: random.Random, most: int = 2) -> str:
    """As models write them: compact or airy, escaped or not."""
    return json.dumps(
        {r.choice(["path", "q", "n", "é"]): value(r, 1) for _ in range(r.randrange(most + 1))},
        ensure_ascii=r.random() < 0.5,
        separators=r.choice([(",", ":"), (", ", ": ")]),
    )


def image(r: random.Random) -> Image:
    return Image(
        media_type=r.choice(["image/png", "image/jpeg"]),
        data=base64.b64encode(r.randbytes(9)).decode(),
    )


def schema(r: random.Random) -> dict[str, Any]:
    properties = {
        name: {"type": r.choice(["string", "integer"]), "description": text(r, 2)}
        for name in ("a", "b")
    }
    return {
        "type": "object",
        "properties": properties,
        "required": ["a"],
        "additionalProperties": False,
    }


@dataclass
class Conversation:
    """One request. `thoughts` says what each assistant message kept, by its place among the
    messages."""

    codec: OpenAIChatCodec
    instructions: str
    messages: list[Message]
    tools: list[ToolSchema]
    options: Options
    max_output: int
    model: str
    thoughts: dict[int, Any] = field(default_factory=dict)


def codec(r: random.Random) -> OpenAIChatCodec:
    """The kinds of servers there are."""
    return r.choice(
        [
            OpenAIChatCodec(),
            OpenAIChatCodec(system_role="developer", strict_schema=True),
            OpenAIChatCodec(limit_field="max_tokens", cache_key=False),
            OpenAIChatCodec(
                limit_field="max_tokens",
                cache_key=False,
                stream_options=False,
                strict_ids=True,
                bridge="Noted.",
            ),
            OpenAIChatCodec(
                limit_field="max_tokens", cache_key=False, reasoning="reasoning_content"
            ),
            OpenAIChatCodec(
                limit_field="max_tokens", cache_key=False, reasoning="reasoning_details"
            ),
        ]
    )


def conversation(seed: int) -> Conversation:
    r = random.Random(seed)
    server = codec(r)
    messages: list[Message] = [UserMessage(text=text(r))]
    thoughts: dict[int, Any] = {}
    for _ in range(r.randrange(4)):
        if r.random() < 0.4:
            messages.append(
                UserMessage(
                    text=text(r) if r.random() < 0.9 else "",
                    images=tuple(image(r) for _ in range(2)),
                )
            )
            continue
        ids = [
            "".join(r.choices(string.ascii_letters + string.digits, k=9))
            for _ in range(r.randrange(4))
        ]
        calls = tuple(ToolCall(id=i, name=r.choice(NAMES), arguments_json=_args(r)) for i in ids)
        opaque = ""
        if server.reasoning and r.random() < 0.7:
            thought_text: Any = text(r)
            if server.reasoning == "reasoning_details":
                thought_text = [
                    {
                        "type": "reasoning.text",
                        "text": thought_text,
                        "signature": "c2ln",
                        "index": 0,
                    }
                ]
            thoughts[len(messages)] = thought_text
            opaque = keep_opaque(
                "openai_chat", json.dumps({server.reasoning: thought_text}, separators=(",", ":"))
            )
        elif r.random() < 0.2:
            opaque = keep_opaque("anthropic", '[{"type":"thinking"}]')
        texts = text(r) if not calls or r.random() < 0.5 else ""
        messages.append(AssistantMessage(text=texts, calls=calls, opaque=opaque))
        for call in calls:
            pictures = (image(r),) if r.random() < 0.2 else ()
            failed = r.random() < 0.3
            messages.append(
                ToolMessage(
                    call_id=call.id, name=call.name, text=text(r), error=failed, images=pictures
                )
            )
    if not isinstance(messages[-1], ToolMessage):
        messages.append(UserMessage(text=text(r), kind="nudge"))
    tools = [
        ToolSchema(name=name, description=text(r), parameters=schema(r))
        for name in r.sample(NAMES, r.randrange(4))
    ]
    options = Options(
        stream=r.random() < 0.8,
        temperature=r.choice([None, 0.0, 0.7]),
        effort=r.choice(["", "minimal", "low", "medium", "high"]),
        thinking_tokens=r.choice([None, 1024]),
        output_schema=schema(r) if r.random() < 0.3 else None,
        cache_key=r.choice(["", "run-1"]),
        extra=r.choice([{}, {"seed": 7, "top_p": 0.5}, {"provider": {"order": ["x"]}}]),
    )
    instructions = text(r) if r.random() < 0.8 else ""
    most = r.randrange(1, 100_000)
    return Conversation(
        server, instructions, messages, tools, options, most, r.choice(["gpt-x", "a/b:c"]), thoughts
    )


def _args(r: random.Random) -> str:
    return (
        arguments(r)
        if r.random() < 0.8
        else r.choice(["", " ", '{"path": "a', "[1]", "null", '"{}"'])
    )


@dataclass
class Stream:
    """The bytes of a reply, and what they mean."""

    data: bytes
    body: bytes
    text: str
    refusal: str
    thought: str
    calls: list[tuple[str, str, str]]
    reason: str
    usage: dict[str, Any] | None


def cut(r: random.Random, whole: str, most: int) -> list[str]:
    at = sorted(r.randrange(len(whole) + 1) for _ in range(r.randrange(most)))
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


def _usage(r: random.Random) -> dict[str, Any]:
    prompt, completion = r.randrange(1, 9999), r.randrange(9999)
    used: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    used["total_tokens"] = prompt + completion
    if r.random() < 0.5:
        read = r.randrange(prompt)
        used["prompt_tokens_details"] = {
            "cached_tokens": read,
            "cache_write_tokens": r.randrange(prompt - read),
        }
        used["completion_tokens_details"] = {"reasoning_tokens": completion // 2}
    return used


def _call_deltas(r: random.Random, calls: list[tuple[str, str, str]]) -> list[list[dict[str, Any]]]:
    """The calls as deltas: parallel ones interleave, some come whole, some chunks carry several."""
    queues: list[list[dict[str, Any]]] = []
    for index, (call_id, name, args) in enumerate(calls):
        pieces = cut(r, args, 3)
        first = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": pieces[0]},
        }
        queues.append(
            [first, *({"index": index, "function": {"arguments": piece}} for piece in pieces[1:])]
        )
    out: list[list[dict[str, Any]]] = []
    started = 0
    while any(queues):
        # A call begins after the ones before it, as it does on the wire.
        ready = [n for n, queue in enumerate(queues) if queue and n <= started]
        n = r.choice(ready)
        started = max(started, n + 1)
        delta = queues[n].pop(0)
        if out and r.random() < 0.2:
            out[-1].append(delta)
        else:
            out.append([delta])
    return out


def stream(seed: int, *, long: bool = False) -> Stream:
    """A reply with what a reply can have; `long` has more of it, and all the fields that OpenAI
    sends."""
    r = random.Random(seed)
    n = 3 if long else 1
    texts = text(r, n) if r.random() < 0.7 else ""
    refusal = text(r, n) if r.random() < 0.1 else ""
    thoughts = text(r, n) if r.random() < 0.15 * n else ""
    n_calls = r.choice([2, 3, 5] if long else [0, 0, 0, 0, 1, 2])
    calls = [(f"c{k}{seed}", r.choice(NAMES), arguments(r, n)) for k in range(n_calls)]
    reason = "tool_calls" if calls else "stop"
    if r.random() < 0.4:
        reason = r.choice(["stop", "length", "content_filter"])
    if reason == "length" and calls:
        last = calls[-1]
        calls[-1] = (last[0], last[1], last[2][: r.randrange(1, len(last[2]) + 1)])
    used = _usage(r) if r.random() < 0.2 * n else None
    deltas: list[dict[str, Any]] = (
        [{"role": "assistant", "content": r.choice(["", None])}] if long else []
    )
    deltas += [
        {"reasoning_content": piece} for piece in (cut(r, thoughts, n + 1) if thoughts else [])
    ]
    deltas += [{"content": piece} for piece in (cut(r, texts, n + 1) if texts else [])]
    deltas += [{"refusal": piece} for piece in (cut(r, refusal, n + 1) if refusal else [])]
    deltas += [{"tool_calls": piece} for piece in _call_deltas(r, calls)]
    base: dict[str, Any] = (
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1"} if long else {}
    )
    chunks: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": delta}]} for delta in deltas
    ]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if used is not None:
        chunks.append({**base, "choices": [], "usage": used})
    chunks[0]["model"] = base["model"] = "m-1"
    message: dict[str, Any] = {"role": "assistant", "content": texts or None}
    message |= {"refusal": refusal} if refusal else {}
    message |= {"reasoning_content": thoughts} if thoughts else {}
    message |= {"tool_calls": [_whole(*call) for call in calls]} if calls else {}
    body = {
        **base,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": used,
    }
    whole = json.dumps(body, ensure_ascii=r.random() < 0.5).encode()
    return Stream(sse(r, chunks), whole, texts, refusal, thoughts, calls, reason, used)


def _whole(call_id: str, name: str, args: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": args}}


def sse(r: random.Random, chunks: list[dict[str, Any]]) -> bytes:
    """The chunks as events, in the ways that servers write them."""
    end = r.choice(["\n", "\n", "\r\n", "\r"])
    escaped = r.random() < 0.5
    out = []
    for chunk in chunks:
        event = (
            "data:"
            + r.choice(["", " "])
            + json.dumps(chunk, ensure_ascii=escaped, separators=(",", ":"))
            + end
        )
        if r.random() < 0.1:
            event = f": waiting{end}" + event
        out.append(event + end)
    return ("".join(out) + f"data: [DONE]{end}{end}").encode()


def wrong(message: str = "why", **fields: Any) -> bytes:
    return json.dumps({"error": {"message": message, "param": None, **fields}}).encode()


def bare(message: str, **fields: Any) -> bytes:
    """An error as Mistral and older vLLM send it."""
    return json.dumps({"object": "error", "message": message, **fields}).encode()


def xai(message: str) -> bytes:
    return json.dumps({"code": "Client specified an invalid argument", "error": message}).encode()


@dataclass
class Failure:
    """An answer with an error status, and what it must become; `wait` are the seconds before the
    next try."""

    fault: str
    status: int
    body: bytes
    kind: str
    wait: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


KEY = "sk-proj-abcDEF0123456789abcDEF0123456789"
HTML = (
    b"<!DOCTYPE html><html><head><title>502 Bad "
    b"Gateway</title></head><body>cloudflare</body></html>"
)
RATE = wrong(
    "Rate limit reached for gpt-x. Please try again in 1.5s.",
    type="tokens",
    code="rate_limit_exceeded",
)
AT = {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}
NOW = {"date": "Wed, 21 Oct 2026 07:28:00 GMT"}
GEMINI = {
    "code": 429,
    "message": "You exceeded your current quota",
    "details": [{"retryDelay": "34s"}],
}
ORPHAN = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to "
    "each 'tool_call_id'."
)
OVER = "This model's maximum context length is 8192 tokens."
RAW = {"raw": "prompt is too long: 208310 tokens > 200000 maximum"}

FAILURES = [
    Failure(
        "F1",
        429,
        RATE,
        "rate_limit",
        2.5,
        {"Retry-After-Ms": "2500", "x-ratelimit-reset-tokens": "6m0s"},
    ),
    Failure("F1", 429, RATE, "rate_limit", 7.0, {"retry-after": "7"}),
    Failure("F1", 429, RATE, "rate_limit", 1.5),
    Failure("F1", 429, wrong("Please try again in 6m0s."), "rate_limit", 360.0),
    Failure("F1", 429, wrong("try again in 1h2m3.5s"), "rate_limit", 3723.5),
    Failure("F1", 429, wrong("try again in 20ms"), "rate_limit", 0.02),
    Failure("F1", 429, wrong("Please retry after 20 seconds.", code="429"), "rate_limit", 20.0),
    Failure("F1", 429, wrong("Please retry after 250 milliseconds."), "rate_limit", 0.25),
    Failure("F1", 429, b"", "rate_limit", 30.0, AT | NOW),
    Failure("F1", 429, b"", "rate_limit", 0.0, AT),
    Failure("F1", 429, b"", "rate_limit", 0.0, {"retry-after": "nan"}),
    Failure("F1", 429, b"", "rate_limit", 0.0, {"retry-after": "-3"}),
    Failure("F1", 429, b"", "rate_limit", 0.0, {"retry-after": "inf"}),
    Failure("F1", 429, json.dumps([{"error": GEMINI}]).encode(), "rate_limit", 34.0),
    Failure("F1", 429, b"Too Many Requests", "rate_limit"),
    Failure("F1", 429, wrong("Too many tokens, please wait before trying again."), "rate_limit"),
    Failure(
        "F2", 429, wrong("You exceeded your current quota", code="insufficient_quota"), "quota"
    ),
    Failure("F2", 402, wrong("Insufficient Balance", code="invalid_request_error"), "quota"),
    Failure(
        "F2", 429, wrong("Your account is suspended", type="exceeded_current_quota_error"), "quota"
    ),
    Failure(
        "F2",
        400,
        wrong("Access denied, please make sure your account is in good standing", code="Arrearage"),
        "quota",
    ),
    Failure(
        "F2",
        402,
        wrong("This request requires more credits", code=402),
        "quota",
        0.0,
        {"retry-after": "9"},
    ),
    Failure(
        "F2",
        403,
        xai("Your team has used all available credits or reached its spending limit"),
        "quota",
    ),
    Failure("F3", 503, wrong(code="server_is_overloaded"), "overloaded"),
    Failure("F3", 503, wrong(code="slow_down"), "overloaded", 2.0, {"retry-after": "2"}),
    Failure(
        "F3", 500, wrong("That model is currently overloaded with other requests"), "overloaded"
    ),
    Failure("F3", 503, wrong("Loading model", type="unavailable_error", code=503), "overloaded"),
    Failure("F6", 500, wrong(type="server_error"), "server_error"),
    Failure("F6", 500, wrong("the authentication service is down"), "server_error"),
    Failure("F7", 502, HTML, "server_error"),
    Failure("F7", 504, HTML, "server_error"),
    Failure("F7", 520, HTML, "server_error"),
    Failure("F7", 502, b"<h1>bad</h1>", "server_error"),
    Failure("F7", 502, wrong("x", metadata={"raw": HTML.decode()}), "server_error"),
    Failure(
        "F7",
        502,
        json.dumps({"a": "b" * 9_000, "error": "x" + HTML.decode()}).encode(),
        "server_error",
    ),
    Failure("F9", 504, b"", "server_error"),
    Failure("F9", 408, wrong("Request timed out"), "server_error"),
    Failure(
        "F10",
        401,
        wrong(f"Incorrect API key provided: {KEY}. Find it at", code="invalid_api_key"),
        "auth",
    ),
    Failure("F10", 401, wrong("Incorrect API key provided: sk-proj-***********6789."), "auth"),
    Failure("F10", 400, xai("Incorrect API key provided: xa***6789. You can obtain"), "auth"),
    Failure("F10", 401, b'{"message":"Unauthorized"}', "auth"),
    Failure("F10", 403, wrong("Country not supported", code="unsupported_country"), "auth"),
    Failure(
        "F11",
        404,
        wrong("The model `x` does not exist or you do not have access", code="model_not_found"),
        "not_found",
    ),
    Failure(
        "F11",
        404,
        wrong("The API deployment does not exist", code="DeploymentNotFound"),
        "not_found",
    ),
    Failure("F11", 400, wrong("x/y is not a valid model ID", code=400), "not_found"),
    Failure("F11", 400, wrong("Model Not Exist"), "not_found"),
    Failure("F12", 400, wrong(OVER, code="context_length_exceeded"), "context_exhausted"),
    Failure("F12", 400, wrong("why", code="context_length_exceeded"), "context_exhausted"),
    Failure("F12", 400, bare(OVER, type="BadRequestError", code=400), "context_exhausted"),
    Failure(
        "F12",
        400,
        wrong("request (9000 tokens) exceeds the available context size (4096)"),
        "context_exhausted",
    ),
    Failure(
        "F12",
        400,
        bare("Prompt contains 40000 tokens, too large for model with 32768"),
        "context_exhausted",
    ),
    Failure("F12", 400, xai("This model's maximum prompt length is 131072"), "context_exhausted"),
    Failure(
        "F12",
        400,
        wrong("Please reduce the length of the messages or completion."),
        "context_exhausted",
    ),
    Failure(
        "F12",
        500,
        wrong("The input token count (9) exceeds the maximum number of tokens"),
        "context_exhausted",
    ),
    Failure(
        "F12", 400, wrong("Provider returned error", code=400, metadata=RAW), "context_exhausted"
    ),
    Failure("F13", 413, HTML, "too_large"),
    Failure(
        "F13",
        413,
        wrong("Request too large for model on TPM", code="rate_limit_exceeded"),
        "too_large",
    ),
    Failure(
        "F13",
        429,
        wrong("Request too large for gpt-x on TPM: Limit 3", code="rate_limit_exceeded"),
        "too_large",
    ),
    Failure("F14", 400, wrong(ORPHAN, type="invalid_request_error"), "invalid_request"),
    Failure("F14", 422, b'{"detail":[{"loc":["body"],"msg":"field required"}]}', "invalid_request"),
    Failure("F16", 400, wrong("Invalid schema for function 'get_weather'"), "bad_schema"),
    Failure(
        "F16", 400, wrong("get_weather is wrong", code="invalid_function_parameters"), "bad_schema"
    ),
    Failure("F16", 400, wrong("get_weather", param="tools[0].function.parameters"), "bad_schema"),
    Failure("F35", 307, b"", "invalid_request", 0.0, {"location": "http://evil.test/"}),
    Failure(
        "F40",
        400,
        wrong("The response was filtered", code="content_filter", status=400),
        "content_filter",
    ),
    Failure(
        "F40",
        403,
        wrong("x requires moderation. Your input was flagged", code=403),
        "content_filter",
    ),
    Failure(
        "F41",
        400,
        wrong(code="tool_use_failed", failed_generation="rate limit context window"),
        "server_error",
    ),
]

STREAM_FAILURES: list[tuple[str, Any, str]] = [
    ("F4", {"error": {"code": "server_is_overloaded", "message": "busy"}}, "overloaded"),
    ("F4", {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, "overloaded"),
    (
        "F4",
        {"error": {"message": "Please try again in 2s.", "code": "rate_limit_exceeded"}},
        "rate_limit",
    ),
    (
        "F5",
        {"error": {"message": "The server had an error", "type": "server_error", "param": None}},
        "server_error",
    ),
    ("F5", {"error": "it broke"}, "server_error"),
    (
        "F5",
        {"object": "error", "message": "broken", "type": "InternalServerError", "code": 500},
        "server_error",
    ),
    (
        "F5",
        {"error": {"code": 502}, "choices": [{"index": 0, "finish_reason": "error"}]},
        "server_error",
    ),
    (
        "F5",
        {"choices": [{"index": 0, "error": {"code": 502, "message": "x"}, "delta": {}}]},
        "server_error",
    ),
    (
        "F12",
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        "context_exhausted",
    ),
    (
        "F12",
        {"object": "error", "message": "maximum context length is 9", "code": 400},
        "context_exhausted",
    ),
    ("F14", {"error": {"message": "bad", "type": "invalid_request_error"}}, "invalid_request"),
    ("F14", {"error": {"message": "bad", "code": 400}}, "invalid_request"),
    ("F40", {"error": {"message": "bad", "code": "content_filter"}}, "content_filter"),
    (
        "F41",
        {"error": {"type": "invalid_request_error", "code": "tool_use_failed"}},
        "server_error",
    ),
    ("F48", {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}, "server_error"),
    (
        "F48",
        {"choices": [{"index": 0, "finish_reason": "insufficient_system_resource"}]},
        "overloaded",
    ),
    ("F48", {"choices": [{"index": 0, "finish_reason": "abort"}]}, "server_error"),
    ("F28", '{"choices":[{"ind', "server_error"),
]
