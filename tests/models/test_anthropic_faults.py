"""Failures, broken and odd streams in the Anthropic dialect, by the numbers of the fault
catalogue."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.codec import opaque_for
from tests.models.anthropic_cases import START, content, end, error, failed, sse, text, tool
from tests.models.anthropic_support import (
    CODEC,
    STREAMED,
    WHOLE,
    assert_can_be_answered,
    decoded,
    in_pieces,
    said,
)

PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"
ORPHAN = (
    "messages.19: `tool_use` ids were found without `tool_result` blocks immediately after: "
    "toolu_01"
)
BIG = "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
CREDIT = "Your credit balance is too low to access the Anthropic API."
USED_UP = "You have reached your specified API usage limits. You will regain access on 2031-01-01."
SPEND = error("rate_limit_error", error_code="enforced_spend_limit_reached")
SCHEMA = "tools.0.custom.input_schema: JSON schema is invalid"
HTML = {"content-type": "text/html; charset=UTF-8"}
FAILURES: list[tuple[str, int, dict[str, str], bytes, str, float | None]] = [
    ("F1", 429, {"retry-after": "7"}, error("rate_limit_error"), "rate_limit", 7.0),
    (
        "F1-ms",
        429,
        {"Retry-After-Ms": "1500", "Retry-After": "9"},
        error("rate_limit_error"),
        "rate_limit",
        1.5,
    ),
    (
        "F1-words",
        429,
        {},
        error("rate_limit_error", "Please try again in 1.5s."),
        "rate_limit",
        1.5,
    ),
    (
        "F1-odd",
        429,
        {"retry-after": "nan", "retry-after-ms": "soon"},
        error("rate_limit_error"),
        "rate_limit",
        0.0,
    ),
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
    (
        "F7-520",
        520,
        {},
        json.dumps({"error": {"message": PAGE.decode()}}).encode(),
        "server_error",
        0.0,
    ),
    ("F7-scrap", 500, {}, b"<p>Bad gateway</p>", "server_error", 0.0),
    ("F9", 504, {}, error("timeout_error"), "server_error", 0.0),
    (
        "F10",
        401,
        {},
        error("authentication_error", "invalid x-api-key sk-ant-api03-AbC123"),
        "auth",
        None,
    ),
    ("F10-bearer", 401, {}, error("authentication_error", "bad Bearer abc"), "auth", None),
    (
        "F10-bare",
        401,
        {},
        error("authentication_error", "key 0123456789abcdefABCDEF0123"),
        "auth",
        None,
    ),
    ("F10-403", 403, {}, error("permission_error"), "auth", None),
    (
        "F10-hold",
        400,
        {},
        error("invalid_request_error", error_code="organization_on_hold"),
        "auth",
        None,
    ),
    (
        "F11",
        404,
        {},
        error("not_found_error", "model: claude-sonnet-4-5-20250929"),
        "not_found",
        None,
    ),
    (
        "F12",
        400,
        {},
        error("invalid_request_error", "prompt is too long: 208310 tokens"),
        "context_exhausted",
        None,
    ),
    ("F12-sum", 400, {}, error("invalid_request_error", BIG), "context_exhausted", None),
    ("F13", 413, {}, error("request_too_large"), "too_large", None),
    ("F13-page", 413, HTML, PAGE, "too_large", None),
    ("F14", 400, {}, error("invalid_request_error", ORPHAN), "invalid_request", None),
    ("F16", 400, {}, error("invalid_request_error", SCHEMA), "bad_schema", None),
    (
        "F16-out",
        400,
        {},
        error("invalid_request_error", "output_config.format.schema: bad"),
        "bad_schema",
        None,
    ),
    ("F35", 307, {"location": "http://evil.test/"}, b"", "invalid_request", None),
    (
        "F40-filter",
        400,
        {},
        error("x", "Output blocked by content filtering policy"),
        "content_filter",
        None,
    ),
    ("none", 500, {}, b"", "server_error", 0.0),
    ("list", 400, {}, b"[1]", "invalid_request", None),
    ("odd", 418, {}, b'{"error": "teapot"}', "invalid_request", None),
]


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "after"),
    [pytest.param(*f[1:], id=f[0]) for f in FAILURES],
)
def test_a_failed_request_becomes_its_typed_error(
    status: int, headers: dict[str, str], body: bytes, kind: str, after: float | None
) -> None:
    """`after` is None where trying again cannot help, or only with another key."""
    failure = CODEC.failure(status, headers, body)
    assert failure.kind == kind
    if after is None and kind != "auth":
        assert isinstance(failure, ModelRejected)
    else:
        assert isinstance(failure, ModelUnavailable)
        assert failure.retry_after == (after or 0.0)
    assert 0 < len(str(failure)) <= 500
    assert not re.search(r"<|sk-ant|abc|evil|0123456789", str(failure))


def test_a_failure_is_told_in_the_words_of_the_provider() -> None:
    texts = "model: claude-sonnet-4-5-20250929\n\x00 \u202eis not known " + "x" * 1000
    failure = CODEC.failure(404, {}, error("not_found_error", texts))
    assert str(failure).startswith("model: claude-sonnet-4-5-20250929 is not known xxx")
    assert len(str(failure)) == 500
    assert SCHEMA in str(CODEC.failure(400, {}, error("invalid_request_error", SCHEMA)))
    assert str(CODEC.failure(503, {}, b"upstream connect error")) == "upstream connect error"


def test_any_answer_becomes_a_typed_error() -> None:
    rng = random.Random(1)
    for _ in range(500):
        body = bytearray(
            rng.choice(
                [PAGE, SPEND, b'{"error":[]}', b'{"error":{"message":1,"details":7}}', b"\xff"]
            )
        )
        body[rng.randrange(len(body))] = rng.randrange(256)
        failure = CODEC.failure(
            rng.choice([0, 200, 302, 400, 429, 500, 999]), {"x": "y"}, bytes(body)
        )
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
    (
        "F5-bare",
        b'event: error\ndata: {"type":"overloaded_error"}\n\n',
        ModelUnavailable,
        "overloaded",
    ),
    (
        "F5-long",
        sse([failed("invalid_request_error", "prompt is too long")]),
        ModelRejected,
        "context_exhausted",
    ),
    ("F10", sse([failed("authentication_error")]), ModelUnavailable, "auth"),
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


@pytest.mark.parametrize(
    ("data", "error_type", "kind"), [pytest.param(*b[1:], id=b[0]) for b in BROKEN]
)
def test_a_broken_stream_is_an_error_and_never_half_a_reply(
    data: bytes, error_type: type[ModelError], kind: str
) -> None:
    for size in (len(data) + 1, 1 << 16) if len(data) > 1 << 20 else (len(data) + 1, 7, 1):
        with pytest.raises(error_type) as failure:
            in_pieces(data, 0, size)
        assert failure.value.kind == kind


READ = ToolCall(id="toolu_1", name="read", arguments_json='{"a":1}')
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
TWICE = [
    event
    for event in [START, *text("hello"), *end()]
    for _ in range(1 if event["type"].endswith("delta") else 2)
]
LENGTH = end("max_tokens")
PIECE = '{"path": "a", '
REFUSED = end(
    "refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "Not this."}
)
ODD: list[tuple[str, bytes, ModelReply]] = [
    ("F26", sse([START, *text("größe 👩‍👩‍👧"), *end()], "\r\n", ascii=False), said("größe 👩‍👩‍👧")),
    ("F27", ODD_LINES, said("hello")),
    ("F27-last-line", HELLO[:-1], said("hello")),
    ("F32", sse(TWICE), said("hello")),
    ("F32-tool", sse([START, tool("")[0], *tool('{"a":1}'), *end()]), said("", READ)),
    ("F32-start", sse([START, *text("hello"), end()[0], START, end()[1]]), said("hello")),
    (
        "F32-args",
        sse([START, *tool("{}")[:2], *tool("{}")[1:], *end("tool_use")]),
        said("", ToolCall(id="toolu_1", name="read", arguments_json="{}{}")),
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
        said("", ToolCall(id="toolu_1", name="read", arguments_json=PIECE), stop="length"),
    ),
    ("F39-text", sse([START, *text("a"), *LENGTH]), said("a", stop="length")),
    ("F40", sse([START, *REFUSED]), said("The model refused (bio): Not this.", stop="refusal")),
    (
        "F40-mute",
        sse([START, *tool("{}"), *end("refusal")]),
        said("The model refused.", stop="refusal"),
    ),
    (
        "F40-half",
        sse([START, *text("Well "), *REFUSED]),
        said("Well\n\nThe model refused (bio): Not this.", stop="refusal"),
    ),
    (
        "F41",
        sse([START, *tool(PIECE), *end("tool_use")]),
        said("", ToolCall(id="toolu_1", name="read", arguments_json=PIECE)),
    ),
    (
        "F42",
        sse(
            [
                START,
                *content(
                    0, {"type": "tool_use", "id": "toolu_1", "name": "read", "input": '{"a":1}'}
                ),
                *end(),
            ]
        ),
        said("", ToolCall(id="toolu_1", name="read", arguments_json='"{\\"a\\":1}"')),
    ),
    (
        "F44",
        sse([START, *tool("{}", name="default_api.read"), *end()]),
        said("", ToolCall(id="toolu_1", name="default_api.read")),
    ),
    (
        "F44-none",
        sse([START, *tool("{}", name=None), *end()]),
        said("", ToolCall(id="toolu_1", name="")),
    ),
    (
        "F46",
        sse([START, *STORM, *end()]),
        said("", *(ToolCall(id=f"toolu_{n}", name="read") for n in range(200))),
    ),
    ("F50", sse([START, *text("a\ud800b\x00\u202e"), *end()]), said("a\ufffdb\x00\u202e")),
    ("F50-bytes", HELLO.replace(b"hello", b"h\xffllo"), said("h\ufffdllo")),
    ("F51", HELLO.replace(b"claude-one", b"claude-two"), said("hello", model="claude-two")),
    (
        "same-ids",
        sse(
            [
                START,
                *tool("{}"),
                *tool("{}", 1),
                *tool("{}", 2, None),
                *tool("{}", 3, "msg_1_2"),
                *end(),
            ]
        ),
        said(
            "",
            *(ToolCall(id=id, name="read") for id in ("toolu_1", "msg_1_1", "msg_1_2", "msg_1_3")),
        ),
    ),
    ("no-deltas", sse([START, tool("")[0], *end()]), said("", ToolCall(id="toolu_1", name="read"))),
    (
        "whole-input",
        sse(
            [
                START,
                *content(
                    0, {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1}}
                ),
                *end(),
            ]
        ),
        said("", READ),
    ),
]


@pytest.mark.parametrize(("data", "reply"), [pytest.param(*o[1:], id=o[0]) for o in ODD])
def test_an_odd_stream_is_read_for_what_it_means(data: bytes, reply: ModelReply) -> None:
    for size in (len(data) + 1, 7, 1):
        assert in_pieces(data, 0, size)[0] == reply
    assert_can_be_answered(reply)


def test_text_that_a_block_begins_with_is_told_at_once() -> None:
    events = content(0, {"type": "text", "text": "hel"}, {"type": "text_delta", "text": "lo"})
    assert decoded(sse([START, *events, *end()]), 0) == (said("hello"), "hello")
    assert CODEC.decoder(STREAMED).feed(sse([START, events[0]])) == ["hel"]


def test_usage_that_is_missing_or_mad_counts_nothing() -> None:
    start = {
        "type": "message_start",
        "message": {"model": None, "usage": {"input_tokens": -1, "output_tokens": "x"}},
    }
    reply, _ = decoded(sse([start, *text("a"), {**end()[0], "usage": None}, end()[1]]), 0)
    assert reply == ModelReply(message=AssistantMessage(text="a"))


def test_a_body_is_not_taken_beyond_its_cap() -> None:
    for options in (STREAMED, WHOLE):
        decoder = CODEC.decoder(options)
        with pytest.raises(ModelRejected) as failure:
            for _ in range(65):
                decoder.feed(b": " + b"x" * ((1 << 20) - 3) + b"\n")
        assert failure.value.kind == "response_too_large"


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
    with pytest.raises(ModelUnavailable) as failure:
        decoded(body, len(body) // 2, WHOLE)
    assert failure.value.kind == kind


def test_a_decoder_says_what_it_has_seen() -> None:
    decoder = CODEC.decoder(STREAMED)
    decoder.feed(sse([START, {"type": "ping"}]))
    assert (decoder.contents, decoder.done) == (0, False)
    assert decoder.feed(sse(text("hello")[:2])) == ["hello"]
    assert (decoder.contents, decoder.done) == (2, False)
    decoder.feed(sse([text("")[2], *end()]))
    assert (decoder.contents, decoder.done) == (2, True)


def test_a_thought_at_the_end_and_a_blank_text_do_not_go_back() -> None:
    thought_block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    blocks = [
        content(0, thought_block),
        text("\n", 1),
        text("hi", 2),
        text("", 3),
        content(4, thought_block),
    ]
    reply, _ = decoded(sse([START, *(event for block in blocks for event in block), *end()]), 0)
    assert reply.message.text == "\nhi"
    assert json.loads(opaque_for("anthropic", reply.message)) == [
        thought_block,
        {"type": "text", "text": "hi"},
    ]


def test_a_citation_and_its_text_go_back() -> None:
    cited = {"type": "char_location", "cited_text": "x", "document_index": 0}
    deltas: list[Any] = [
        {"type": "text_delta", "text": "hi"},
        {"type": "citations_delta", "citation": cited},
    ]
    reply, _ = decoded(
        sse([START, *content(0, {"type": "text", "text": "", "citations": None}, *deltas), *end()]),
        0,
    )
    assert json.loads(opaque_for("anthropic", reply.message)) == [
        {"type": "text", "citations": [cited], "text": "hi"}
    ]
