"""The Anthropic dialect against the provider's own SDK, and against what a provider can do wrong.

The SDK is an oracle only: it says what it would send for a call that `anthropic_cases` writes in its own terms, and
what it would read from the same bytes.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import httpx2
import jiter
import msgspec
import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from pydantic import TypeAdapter

from retinue.core.values import Assistant, Call, Reply, Result, ToolSchema, Usage, User
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.anthropic import Anthropic
from retinue.models.codec import Codec, Options, encode, keep_opaque, opaque_for, units
from tests.models import anthropic_cases as cases
from tests.models.anthropic_cases import START, content, end, error, failed, sse, text, tool

CODEC: Codec = Anthropic()
STREAMED = Options()
WHOLE = Options(stream=False)
ACCEPTED = re.compile(r"[a-zA-Z0-9_-]+")
PARAMS = TypeAdapter[Any](MessageCreateParamsBase)
STOPS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}
THOUGHTS = ("thinking", "redacted_thinking")


class Oracle:
    """The official client on a wire that ends here: it remembers what was sent and answers what it is told."""

    def __init__(self) -> None:
        self.sent: Any = None
        self.answer = b""
        http = httpx2.Client(transport=httpx2.MockTransport(self._handle))
        self.client = anthropic.Anthropic(
            api_key="test", base_url="http://oracle.test", max_retries=0, http_client=http, timeout=1
        )

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.sent = json.loads(request.content)
        assert request.url.path == CODEC.path("any", STREAMED)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self.answer)

    def send(self, arguments: dict[str, Any]) -> Any:
        """The body that the client makes of these arguments."""
        self.answer = b"{}"
        reply = self.client.messages.create(**arguments)
        if arguments.get("stream"):
            reply.close()
        return self.sent

    def read(self, answer: bytes) -> Any:
        """The message that the client reads from this stream."""
        self.answer = answer
        asked: Any = {"model": "any", "max_tokens": 1, "messages": [{"role": "user", "content": "?"}]}
        with self.client.messages.stream(**asked) as stream:
            return stream.get_final_message()


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    it = Oracle()
    yield it
    it.client.close()


def eaten(value: Any) -> Any:
    """The validated value: the SDK's types are checked as their iterables are consumed, and unknown keys vanish."""
    if isinstance(value, Mapping):
        return {name: eaten(inner) for name, inner in value.items()}
    return value if value is None or isinstance(value, str | int | float) else [eaten(inner) for inner in value]


def with_plain_ids(messages: Any) -> Any:
    """The same messages with each id that the API would refuse, or that stands for one, replaced by its number."""
    order: dict[str, str] = {}
    for message in messages:
        for block in message["content"]:
            for name in ("id", "tool_use_id"):
                if name in block and not block[name].startswith("toolu_"):
                    block[name] = order.setdefault(block[name], f"#{len(order)}")
    return messages


def assert_acceptable(messages: Any) -> None:
    """What the API refuses although the SDK's types allow it."""
    open_ids: list[str] = []
    for message in messages:
        content = message["content"]
        assert content
        assert content[-1]["type"] not in THOUGHTS
        results = [block for block in content if block["type"] == "tool_result"]
        assert [block["tool_use_id"] for block in results] == open_ids
        assert content[: len(results)] == results
        for block in [*content, *(b for r in results if isinstance(r.get("content"), list) for b in r["content"])]:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_result" and block.get("is_error"):
                assert isinstance(block["content"], str)
                assert block["content"].strip()
            if block["type"] == "tool_use":
                assert ACCEPTED.fullmatch(block["id"])
                assert ACCEPTED.fullmatch(block["name"])
                assert isinstance(block["input"], dict)
        open_ids = [block["id"] for block in content if block["type"] == "tool_use"]
        assert len(set(open_ids)) == len(open_ids)
    assert not open_ids


@pytest.mark.parametrize("seed", range(10))
def test_a_request_is_what_the_sdk_sends_for_the_same_call(oracle: Oracle, seed: int) -> None:
    """50 conversations for each seed. Keys that are deliberately different: `temperature` has no parameter in the SDK
    any more and goes through its `extra_body`; an id in letters that the API refuses is replaced, so it is compared by
    its place. `cache_key` is not sent: this dialect has no such thing."""
    rng = random.Random(seed)
    for _ in range(50):
        case = cases.case(rng)
        body = encode(
            CODEC, case.model, case.instructions, case.messages, case.tools, case.options, max_output=case.max_output
        )
        ours, asked = json.loads(body), cases.sdk_arguments(case)
        assert eaten(PARAMS.validate_python(asked)) == asked
        more = {} if case.options.temperature is None else {"temperature": case.options.temperature}
        theirs = oracle.send(asked | {"extra_body": more} | ({"stream": True} if case.options.stream else {}))
        assert_acceptable(ours["messages"])
        assert with_plain_ids(ours.pop("messages")) == with_plain_ids(theirs.pop("messages"))
        assert ours == theirs


def test_thoughts_go_back_byte_for_byte() -> None:
    kept = '[ {"thinking" : "caf\\u00e9 \\/ x","signature":"a+b==", "type":"thinking"} ,{"type":"text","text":"hi"}]'
    said = Assistant(text="hi", opaque=keep_opaque("anthropic", kept))
    assert b'{"thinking" : "caf\\u00e9 \\/ x","signature":"a+b==", "type":"thinking"}' in CODEC.unit([said])
    marked = CODEC.unit([said], mark=True)
    assert marked.endswith(b'{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}')
    assert b'{"thinking" : "caf\\u00e9 \\/ x","signature":"a+b==", "type":"thinking"}' in marked


def test_a_unit_is_always_the_same_bytes() -> None:
    rng = random.Random(5)
    for _ in range(50):
        for part in units(cases.case(rng).messages):
            assert CODEC.unit(part) == CODEC.unit(list(part))
            assert CODEC.unit(part, mark=True).replace(b',"cache_control":{"type":"ephemeral"}', b"") == CODEC.unit(
                part
            )


def test_what_the_runtime_decides_is_not_changed_by_extras() -> None:
    options = Options(
        stream=False, extra={"model": "x", "stream": True, "max_tokens": 1, "messages": [], "speed": "fast"}
    )
    body = json.loads(encode(CODEC, "m", "", [User(text="hi")], [], options, max_output=7))
    assert body["model"] == "m"
    assert body["max_tokens"] == 7
    assert body["speed"] == "fast"
    assert len(body["messages"]) == 1
    assert "stream" not in body


def test_thinking_that_is_asked_for_in_other_words_is_asked_for_once() -> None:
    options = Options(thinking_tokens=4096, extra={"thinking": {"type": "adaptive"}})
    body = encode(CODEC, "m", "", [User(text="hi")], [], options, max_output=9000)
    assert body.count(b'"thinking"') == 1
    assert json.loads(body)["thinking"] == {"type": "adaptive"}


def test_arguments_that_are_nested_absurdly_deep_can_be_sent() -> None:
    call = Call(id="toolu_1", name="read", args='{"a":' * 5000 + "1" + "}" * 5000)
    sent = json.loads(b"[%b]" % CODEC.unit([Assistant(calls=(call,)), Result(call_id="toolu_1", text="ok")]))
    assert sent[0]["content"][0]["input"] == {"invalid_json": call.args}


def test_half_a_surrogate_pair_in_a_prompt_or_a_tool_can_be_sent() -> None:
    tool = ToolSchema(name="t", description="\ud800", parameters={"properties": {"\udfff": {}}})
    body = json.loads(encode(CODEC, "m", "a\ud800", [User(text="\ud800b")], [tool], STREAMED, max_output=1))
    assert body["system"][0]["text"] == "a\ufffd"
    assert body["tools"][0]["description"] == "\ufffd"


def test_a_key_goes_into_its_own_header() -> None:
    plain, token = CODEC.headers("sk-ant-api03-x"), CODEC.headers("sk-ant-oat01-x")
    assert plain["x-api-key"] == "sk-ant-api03-x"
    assert "authorization" not in plain
    assert token["authorization"] == "Bearer sk-ant-oat01-x"
    assert "x-api-key" not in token
    assert {h["anthropic-version"] for h in (plain, token)} == {"2023-06-01"}
    assert plain["content-type"] == "application/json"


def decoded(data: bytes, at: int, options: Options = STREAMED) -> tuple[Reply, str]:
    decoder = CODEC.decoder(options)
    said = decoder.feed(data[:at]) + decoder.feed(data[at:])
    return decoder.finish(), "".join(said)


def in_pieces(data: bytes, first: int, size: int) -> tuple[Reply, str]:
    decoder = CODEC.decoder(STREAMED)
    said = decoder.feed(data[:first])
    for at in range(first, len(data), size):
        said += decoder.feed(data[at : at + size])
    return decoder.finish(), "".join(said)


def content_to_send_back(message: Any) -> list[dict[str, Any]]:
    content = [block.model_dump(exclude_none=True) for block in message.content]
    content = [block for block in content if block["type"] != "text" or block["text"].strip()]
    while content and content[-1]["type"] in THOUGHTS:
        content.pop()
    return content


def assert_same(reply: Reply, said: str, message: Any) -> None:
    """The reply says what the SDK's message says."""
    text = "".join(block.text for block in message.content if block.type == "text")
    tools = [block for block in message.content if block.type == "tool_use"]
    read, written = message.usage.cache_read_input_tokens or 0, message.usage.cache_creation_input_tokens or 0
    spent = Usage(
        input=message.usage.input_tokens + read + written,
        output=message.usage.output_tokens,
        cache_read=read,
        cache_write=written,
    )
    assert reply.usage == spent
    assert reply.model == message.model
    assert reply.stop == STOPS.get(message.stop_reason, "calls" if tools else "end")
    assert said == text
    if reply.stop == "refusal":
        why = message.stop_details.explanation if message.stop_details else ""
        assert reply.message.text.startswith(text.rstrip())
        assert (why or "refused") in reply.message.text
        assert reply.message == Assistant(text=reply.message.text)
        return
    assert reply.message.text == text
    assert [(call.id, call.name) for call in reply.message.calls] == [(block.id, block.name) for block in tools]
    inputs = [jiter.from_json(call.args.encode(), partial_mode=True) for call in reply.message.calls]
    assert inputs == [block.input for block in tools]
    kept = opaque_for("anthropic", reply.message)
    if kept and reply.stop != "length":
        assert json.loads(kept) == content_to_send_back(message)
    indirect = any(block.caller and block.caller.type != "direct" for block in tools)
    kinds = [block["type"] for block in content_to_send_back(message)]
    assert bool(kept) == (indirect or any(kind not in ("text", "tool_use") for kind in kinds))


def assert_can_be_answered(reply: Reply) -> None:
    """The next request, with this reply in it, is one that the API takes."""
    results = [Result(call_id=call.id, text="ok") for call in reply.message.calls]
    part = CODEC.unit([reply.message, *results], mark=True)
    messages = json.loads(b'[{"role":"user","content":[{"type":"text","text":"?"}]},%b]' % part)
    PARAMS.validate_python({"model": "m", "max_tokens": 1, "messages": messages})
    assert_acceptable(messages)


@pytest.mark.parametrize("seed", range(14))
def test_a_stream_is_read_as_the_sdk_reads_it_wherever_it_is_cut(oracle: Oracle, seed: int) -> None:
    """40 streams for each seed. Each comes byte by byte, and in pieces of 64 bytes with the first cut at each of 64
    places, so that every byte is the first of a piece; each third one is also cut into two at every byte."""
    rng = random.Random(seed)
    for n in range(40):
        events, data = cases.stream(rng, rng.choice([0, 1, 1, 1, 2]) if n else 12)
        message = oracle.read(data)
        if message.stop_reason == "pause_turn":
            with pytest.raises(ModelUnavailable):
                decoded(data, 0)
            continue
        first = decoded(data, 0)
        assert_same(*first, message)
        assert_can_be_answered(first[0])
        assert in_pieces(data, 0, 1) == first
        for at in range(1, 64):
            assert in_pieces(data, at, 64) == first
        for at in range(1, len(data)) if n % 3 == 1 else ():
            if decoded(data, at) != first:
                pytest.fail(f"cut at {at} of {events}")
        if first[0].stop not in ("length", "refusal"):
            body = message.model_dump_json().encode()
            whole, _ = decoded(body, len(body) // 2, WHOLE)
            assert_same(whole, first[1], message)
            assert_can_be_answered(whole)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_streams_end_in_a_reply_or_a_typed_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        data = bytearray(cases.stream(rng, 2)[1])
        for _ in range(rng.randint(1, 4)):
            a, b = sorted(rng.randrange(len(data)) for _ in range(2))
            damage = rng.randrange(4)
            if damage == 0:
                data[a] = rng.randrange(256)
            elif damage == 1:
                del data[a : a + rng.randint(1, 9)]
            elif damage == 2:
                data[a:a] = data[a : min(b, a + 99)]
            else:
                data[a:a] = rng.choice([b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"\n\n", b"\\ud800"])
        try:
            reply, _ = decoded(bytes(data), len(data) // 2, rng.choice([STREAMED, STREAMED, WHOLE]))
        except ModelError:
            continue
        msgspec.json.encode(reply)
        assert_can_be_answered(reply)


PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"
ORPHAN = "messages.19: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01"
BIG = "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
CREDIT = "Your credit balance is too low to access the Anthropic API."
USED_UP = "You have reached your specified API usage limits. You will regain access on 2031-01-01."
SPEND = error("rate_limit_error", error_code="enforced_spend_limit_reached")
SCHEMA = "tools.0.custom.input_schema: JSON schema is invalid"
HTML = {"content-type": "text/html; charset=UTF-8"}
FAILURES: list[tuple[str, int, dict[str, str], bytes, str, float | None]] = [
    ("F1", 429, {"retry-after": "7"}, error("rate_limit_error"), "rate_limit", 7.0),
    ("F1-ms", 429, {"Retry-After-Ms": "1500", "Retry-After": "9"}, error("rate_limit_error"), "rate_limit", 1.5),
    ("F1-words", 429, {}, error("rate_limit_error", "Please try again in 1.5s."), "rate_limit", 1.5),
    ("F1-odd", 429, {"retry-after": "nan", "retry-after-ms": "soon"}, error("rate_limit_error"), "rate_limit", 0.0),
    ("F1-past", 429, {"retry-after": "-3"}, error("rate_limit_error"), "rate_limit", 0.0),
    ("F2-spend", 429, {}, SPEND, "quota", 0.0),
    ("F2-billing", 402, {"retry-after": "7"}, error("billing_error"), "quota", 0.0),
    ("F2-credit", 400, {}, error("invalid_request_error", CREDIT), "quota", 0.0),
    ("F2-usage", 400, {}, error("invalid_request_error", USED_UP), "quota", 0.0),
    ("F3", 529, {"retry-after": "2"}, error("overloaded_error"), "overloaded", 2.0),
    ("F3-500", 500, {}, error("overloaded_error"), "overloaded", 0.0),
    ("F3-503", 503, {}, b"upstream connect error", "overloaded", 0.0),
    ("F6", 500, {}, error("api_error"), "server_error", 0.0),
    ("F7-502", 502, HTML, PAGE, "server_error", 0.0),
    ("F7-504", 504, {}, PAGE, "server_error", 0.0),
    ("F7-520", 520, {}, json.dumps({"error": {"message": PAGE.decode()}}).encode(), "server_error", 0.0),
    ("F7-scrap", 500, {}, b"<p>Bad gateway</p>", "server_error", 0.0),
    ("F9", 504, {}, error("timeout_error"), "server_error", 0.0),
    ("F10", 401, {}, error("authentication_error", "invalid x-api-key sk-ant-api03-AbC123"), "auth", None),
    ("F10-bearer", 401, {}, error("authentication_error", "bad Bearer abc"), "auth", None),
    ("F10-bare", 401, {}, error("authentication_error", "key 0123456789abcdefABCDEF0123"), "auth", None),
    ("F10-403", 403, {}, error("permission_error"), "auth", None),
    ("F10-hold", 400, {}, error("invalid_request_error", error_code="organization_on_hold"), "auth", None),
    ("F11", 404, {}, error("not_found_error", "model: claude-sonnet-4-5-20250929"), "not_found", None),
    ("F12", 400, {}, error("invalid_request_error", "prompt is too long: 208310 tokens"), "context_exhausted", None),
    ("F12-sum", 400, {}, error("invalid_request_error", BIG), "context_exhausted", None),
    ("F13", 413, {}, error("request_too_large"), "too_large", None),
    ("F13-page", 413, HTML, PAGE, "too_large", None),
    ("F14", 400, {}, error("invalid_request_error", ORPHAN), "invalid_request", None),
    ("F16", 400, {}, error("invalid_request_error", SCHEMA), "bad_schema", None),
    ("F16-out", 400, {}, error("invalid_request_error", "output_config.format.schema: bad"), "bad_schema", None),
    ("F35", 307, {"location": "http://evil.test/"}, b"", "invalid_request", None),
    ("F40-filter", 400, {}, error("x", "Output blocked by content filtering policy"), "content_filter", None),
    ("none", 500, {}, b"", "server_error", 0.0),
    ("list", 400, {}, b"[1]", "invalid_request", None),
    ("odd", 418, {}, b'{"error": "teapot"}', "invalid_request", None),
]


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "after"), [pytest.param(*f[1:], id=f[0]) for f in FAILURES]
)
def test_a_failed_request_becomes_its_typed_error(
    status: int, headers: dict[str, str], body: bytes, kind: str, after: float | None
) -> None:
    """`after` is None where trying again cannot help."""
    failure = CODEC.failure(status, headers, body)
    assert failure.kind == kind
    if after is None:
        assert isinstance(failure, ModelRejected)
    else:
        assert isinstance(failure, ModelUnavailable)
        assert failure.after_seconds == after
    assert 0 < len(str(failure)) <= 500
    assert not re.search(r"<|sk-ant|abc|evil|0123456789", str(failure))


def test_a_failure_is_told_in_the_words_of_the_provider() -> None:
    told = "model: claude-sonnet-4-5-20250929\n\x00 \u202eis not known " + "x" * 1000
    failure = CODEC.failure(404, {}, error("not_found_error", told))
    assert str(failure).startswith("model: claude-sonnet-4-5-20250929 is not known xxx")
    assert len(str(failure)) == 500
    assert SCHEMA in str(CODEC.failure(400, {}, error("invalid_request_error", SCHEMA)))
    assert str(CODEC.failure(503, {}, b"upstream connect error")) == "upstream connect error"


def test_any_answer_becomes_a_typed_error() -> None:
    rng = random.Random(1)
    for _ in range(500):
        body = bytearray(rng.choice([PAGE, SPEND, b'{"error":[]}', b'{"error":{"message":1,"details":7}}', b"\xff"]))
        body[rng.randrange(len(body))] = rng.randrange(256)
        failure = CODEC.failure(rng.choice([0, 200, 302, 400, 429, 500, 999]), {"x": "y"}, bytes(body))
        assert isinstance(failure, ModelUnavailable | ModelRejected)
        assert 0 < len(str(failure)) <= 500


HELLO = sse([START, *text("hello"), *end()])
BEGUN = sse([START, *text("a")[:2]])
HUGE = b"data: " + b"x" * (9 << 20)
BROKEN: list[tuple[str, bytes, type[ModelError], str]] = [
    ("F4", BEGUN + sse([failed("overloaded_error")]), ModelUnavailable, "overloaded"),
    ("F4-rate", BEGUN + sse([failed("rate_limit_error")]), ModelUnavailable, "rate_limit"),
    ("F5", sse([failed("api_error")]), ModelUnavailable, "server_error"),
    ("F5-new", sse([failed("strange_error")]), ModelUnavailable, "server_error"),
    ("F5-bare", b'event: error\ndata: {"type":"overloaded_error"}\n\n', ModelUnavailable, "overloaded"),
    ("F5-long", sse([failed("invalid_request_error", "prompt is too long")]), ModelRejected, "context_exhausted"),
    ("F10", sse([failed("authentication_error")]), ModelRejected, "auth"),
    ("F23", HELLO[: HELLO.index(b"event: message_stop")], ModelUnavailable, "network"),
    ("F23-none", b"", ModelUnavailable, "network"),
    ("F24", HELLO[:-15], ModelUnavailable, "network"),
    ("F25", sse([START, *tool('{"a":')[:2]]), ModelUnavailable, "network"),
    ("F28", BEGUN + b'data: {"type":"content_block\n\n', ModelUnavailable, "server_error"),
    ("F28-list", BEGUN + b"data: [1]\n\n", ModelUnavailable, "server_error"),
    ("F30", HUGE, ModelRejected, "response_too_large"),
    ("F48", sse([START, *text("a"), *end("pause_turn")]), ModelUnavailable, "server_error"),
    ("no-reason", sse([START, *text("a"), *end(None)]), ModelUnavailable, "server_error"),
    ("no-start", sse([*text("a"), *end()]), ModelUnavailable, "network"),
    ("no-block", sse([START, text("a")[1], *end()]), ModelUnavailable, "server_error"),
]


@pytest.mark.parametrize(("data", "error_type", "kind"), [pytest.param(*b[1:], id=b[0]) for b in BROKEN])
def test_a_broken_stream_is_an_error_and_never_half_a_reply(
    data: bytes, error_type: type[ModelError], kind: str
) -> None:
    for size in (len(data) + 1, 1 << 16) if len(data) > 1 << 20 else (len(data) + 1, 7, 1):
        with pytest.raises(error_type) as caught:
            in_pieces(data, 0, size)
        assert caught.value.kind == kind


def said(text: str = "", *calls: Call, stop: Any = "end", model: str = "claude-one") -> Reply:
    used = Usage(input=3, output=5)
    return Reply(
        message=Assistant(text=text, calls=calls),
        stop="calls" if calls and stop == "end" else stop,
        model=model,
        usage=used,
    )


READ = Call(id="toolu_1", name="read", args='{"a":1}')
ODD_LINES = (
    "\ufeff: comment\r"
    + sse([START]).decode().replace("data: ", "data:").replace("\n", "\r")
    + 'id: 7\rretry: 10\revent: new_event\rdata: {"type":"new_event"}\r\r'
    + 'data: {"type":"content_block_start","index":0,\rdata: "content_block":{"type":"text"}}\r\r'
    + sse(text("hello")[1:]).decode().replace("\n", "\r\n")
    + "data:\n\n"
    + sse(end()).decode()
).encode()
STORM = [event for n in range(200) for event in tool("{}", n, f"toolu_{n}")]
TWICE = [event for event in [START, *text("hello"), *end()] for _ in range(1 if event["type"].endswith("delta") else 2)]
LENGTH = end("max_tokens")
PIECE = '{"path": "a", '
REFUSED = end("refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "Not this."})
ODD: list[tuple[str, bytes, Reply]] = [
    ("F26", sse([START, *text("größe 👩‍👩‍👧"), *end()], "\r\n", ascii=False), said("größe 👩‍👩‍👧")),
    ("F27", ODD_LINES, said("hello")),
    ("F27-last-line", HELLO[:-1], said("hello")),
    ("F32", sse(TWICE), said("hello")),
    ("F32-tool", sse([START, tool("")[0], *tool('{"a":1}'), *end()]), said("", READ)),
    ("F32-start", sse([START, *text("hello"), end()[0], START, end()[1]]), said("hello")),
    (
        "F32-args",
        sse([START, *tool("{}")[:2], *tool("{}")[1:], *end("tool_use")]),
        said("", Call(id="toolu_1", name="read", args="{}{}")),
    ),
    (
        "F34",
        HELLO + sse([*text("more"), *end("refusal"), failed("api_error")]) + b"data: [DONE]\n\n",
        said("hello"),
    ),
    ("F38", sse([START, *end()]), said()),
    (
        "F38-thought",
        sse([START, *content(0, {"type": "thinking", "thinking": "hm", "signature": "s"}), *end()]),
        said(),
    ),
    (
        "F39",
        sse([START, *tool(PIECE)[:2], *LENGTH]),
        said("", Call(id="toolu_1", name="read", args=PIECE), stop="length"),
    ),
    ("F39-text", sse([START, *text("a"), *LENGTH]), said("a", stop="length")),
    ("F40", sse([START, *REFUSED]), said("The model refused (bio): Not this.", stop="refusal")),
    ("F40-mute", sse([START, *tool("{}"), *end("refusal")]), said("The model refused.", stop="refusal")),
    (
        "F40-half",
        sse([START, *text("Well "), *REFUSED]),
        said("Well\n\nThe model refused (bio): Not this.", stop="refusal"),
    ),
    ("F41", sse([START, *tool(PIECE), *end("tool_use")]), said("", Call(id="toolu_1", name="read", args=PIECE))),
    (
        "F42",
        sse([START, *content(0, {"type": "tool_use", "id": "toolu_1", "name": "read", "input": '{"a":1}'}), *end()]),
        said("", Call(id="toolu_1", name="read", args='"{\\"a\\":1}"')),
    ),
    (
        "F44",
        sse([START, *tool("{}", name="default_api.read"), *end()]),
        said("", Call(id="toolu_1", name="default_api.read")),
    ),
    ("F44-none", sse([START, *tool("{}", name=None), *end()]), said("", Call(id="toolu_1", name=""))),
    ("F46", sse([START, *STORM, *end()]), said("", *(Call(id=f"toolu_{n}", name="read") for n in range(200)))),
    ("F50", sse([START, *text("a\ud800b\x00\u202e"), *end()]), said("a\ufffdb\x00\u202e")),
    ("F50-bytes", HELLO.replace(b"hello", b"h\xffllo"), said("h\ufffdllo")),
    ("F51", HELLO.replace(b"claude-one", b"claude-two"), said("hello", model="claude-two")),
    (
        "same-ids",
        sse([START, *tool("{}"), *tool("{}", 1), *tool("{}", 2, None), *tool("{}", 3, "msg_1_2"), *end()]),
        said("", *(Call(id=id, name="read") for id in ("toolu_1", "msg_1_1", "msg_1_2", "msg_1_3"))),
    ),
    ("no-deltas", sse([START, tool("")[0], *end()]), said("", Call(id="toolu_1", name="read"))),
    (
        "whole-input",
        sse([START, *content(0, {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1}}), *end()]),
        said("", READ),
    ),
]


@pytest.mark.parametrize(("data", "reply"), [pytest.param(*o[1:], id=o[0]) for o in ODD])
def test_an_odd_stream_is_read_for_what_it_means(data: bytes, reply: Reply) -> None:
    for size in (len(data) + 1, 7, 1):
        assert in_pieces(data, 0, size)[0] == reply
    assert_can_be_answered(reply)


def test_text_that_a_block_begins_with_is_told_at_once() -> None:
    begun = content(0, {"type": "text", "text": "hel"}, {"type": "text_delta", "text": "lo"})
    assert decoded(sse([START, *begun, *end()]), 0) == (said("hello"), "hello")
    assert CODEC.decoder(STREAMED).feed(sse([START, begun[0]])) == ["hel"]


def test_usage_that_is_missing_or_mad_counts_nothing() -> None:
    start = {"type": "message_start", "message": {"model": None, "usage": {"input_tokens": -1, "output_tokens": "x"}}}
    reply, _ = decoded(sse([start, *text("a"), {**end()[0], "usage": None}, end()[1]]), 0)
    assert reply == Reply(message=Assistant(text="a"))


def test_a_body_is_not_taken_beyond_its_cap() -> None:
    for options in (STREAMED, WHOLE):
        decoder = CODEC.decoder(options)
        with pytest.raises(ModelRejected) as caught:
            for _ in range(65):
                decoder.feed(b": " + b"x" * ((1 << 20) - 3) + b"\n")
        assert caught.value.kind == "response_too_large"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"type":"message","content":[{"type":"te', "network"),
        (b"", "network"),
        (PAGE, "network"),
        (b'{"id":"x"}', "network"),
        (error("overloaded_error"), "overloaded"),
        (b'{"error":{"type":"api_error","message":"x"}}', "server_error"),
        (b'{"type":"message","content":null}', "server_error"),
    ],
)
def test_a_body_that_is_no_message_is_an_error(body: bytes, kind: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        decoded(body, len(body) // 2, WHOLE)
    assert caught.value.kind == kind


def test_a_decoder_says_what_it_has_seen() -> None:
    decoder = CODEC.decoder(STREAMED)
    decoder.feed(sse([START, {"type": "ping"}]))
    assert (decoder.contents, decoder.done) == (0, False)
    assert decoder.feed(sse(text("hello")[:2])) == ["hello"]
    assert (decoder.contents, decoder.done) == (2, False)
    decoder.feed(sse([text("")[2], *end()]))
    assert (decoder.contents, decoder.done) == (2, True)


def test_a_thought_at_the_end_and_a_blank_text_do_not_go_back() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    blocks = [content(0, thought), text("\n", 1), text("hi", 2), text("", 3), content(4, thought)]
    reply, _ = decoded(sse([START, *(event for block in blocks for event in block), *end()]), 0)
    assert reply.message.text == "\nhi"
    assert json.loads(opaque_for("anthropic", reply.message)) == [thought, {"type": "text", "text": "hi"}]


def test_a_citation_and_its_text_go_back() -> None:
    cited = {"type": "char_location", "cited_text": "x", "document_index": 0}
    deltas: list[Any] = [{"type": "text_delta", "text": "hi"}, {"type": "citations_delta", "citation": cited}]
    reply, _ = decoded(sse([START, *content(0, {"type": "text", "text": "", "citations": None}, *deltas), *end()]), 0)
    assert json.loads(opaque_for("anthropic", reply.message)) == [{"type": "text", "citations": [cited], "text": "hi"}]
