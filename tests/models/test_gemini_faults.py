"""Failures, broken and odd streams in the Gemini dialect, by the numbers of the fault catalogue."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.codec import Options
from tests.models.gemini_cases import sse
from tests.models.gemini_support import GEMINI, KEY, STREAM, WHOLE, call_part, decoded, reply_chunk

# The fault catalogue: what a body with an error status becomes.


def error_body(code: int, status: str, message: str, *details: dict[str, Any]) -> bytes:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return json.dumps({"error": error}, indent=2).encode()


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
HTML = b"<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"


def quota(name: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": name}],
    }


MINUTE, DAY = (
    quota("GenerateRequestsPerMinutePerProjectPerModel"),
    quota("GenerateRequestsPerDayPerProjectPerModel"),
)
TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
ORPHAN = (
    "Please ensure that the number of function response parts is equal to the number of "
    "function call parts."
)
SCHEMA = (
    'Invalid JSON payload. Unknown name "foo" at '
    "'tools[0].function_declarations[3].parameters_json_schema'"
)
VERTEX = (
    "Unable to submit request because `read_file` functionDeclaration `parameters.x` schema "
    "should be of type OBJECT."
)
OVERLOADED = "The model is overloaded. Please try again later."
FAILURES: list[tuple[str, int, dict[str, str], bytes, str, float]] = [
    ("F1", 429, {}, error_body(429, "RESOURCE_EXHAUSTED", "slow", MINUTE, RETRY), "rate_limit", 34),
    (
        "F1 fraction",
        429,
        {},
        error_body(429, "RESOURCE_EXHAUSTED", "Please retry in 1h2m3.5s."),
        "rate_limit",
        3723.5,
    ),
    ("F1 again", 429, {}, error_body(429, "", "try again in 1500ms"), "rate_limit", 1.5),
    ("F1 header", 429, {"Retry-After": "7"}, b"", "rate_limit", 7),
    ("F1 ms", 429, {"retry-after-ms": "1500"}, b"{}", "rate_limit", 1.5),
    ("F1 date", 429, {"retry-after": "Sat, 07 Mar 2026 05:00:00 GMT"}, b"[]", "rate_limit", 0),
    (
        "F1 longest",
        429,
        {"retry-after": "7"},
        error_body(429, "RESOURCE_EXHAUSTED", "", RETRY),
        "rate_limit",
        34,
    ),
    ("F1 absurd", 429, {"retry-after": "9" * 400}, b"null", "rate_limit", 0),
    (
        "F2 day",
        429,
        {"retry-after": "9"},
        error_body(429, "RESOURCE_EXHAUSTED", "", MINUTE, DAY, RETRY),
        "quota",
        0,
    ),
    (
        "F2 billing",
        400,
        {},
        error_body(400, "FAILED_PRECONDITION", "Please enable billing."),
        "quota",
        0,
    ),
    ("F3", 503, {}, error_body(503, "UNAVAILABLE", OVERLOADED), "overloaded", 0),
    (
        "F3 wait",
        503,
        {"retry-after": "3"},
        error_body(503, "UNAVAILABLE", OVERLOADED),
        "overloaded",
        3,
    ),
    (
        "F6",
        500,
        {},
        error_body(500, "INTERNAL", "An internal error has occurred."),
        "server_error",
        0,
    ),
    ("F7 502", 502, {}, HTML, "server_error", 0),
    ("F7 520", 520, {}, HTML, "server_error", 0),
    ("F7 503", 503, {}, HTML, "overloaded", 0),
    ("F7 in JSON", 500, {}, error_body(500, "", HTML.decode()), "server_error", 0),
    ("F7 cut", 502, {}, HTML[:30], "server_error", 0),
    ("F7 other", 502, {}, b"<?xml version='1.0'?><Error/>", "server_error", 0),
    ("F9", 504, {}, error_body(504, "DEADLINE_EXCEEDED", "Deadline expired."), "server_error", 0),
    ("F9 408", 408, {}, b"", "server_error", 0),
    (
        "F10 key",
        400,
        {},
        error_body(400, "INVALID_ARGUMENT", f"API key {KEY} not valid.", BAD_KEY),
        "auth",
        0,
    ),
    (
        "F10 words",
        400,
        {},
        error_body(400, "INVALID_ARGUMENT", "API key expired. Please renew."),
        "auth",
        0,
    ),
    (
        "F10 403",
        403,
        {},
        error_body(403, "PERMISSION_DENIED", f"Consumer 'api_key:{KEY}' is suspended."),
        "auth",
        0,
    ),
    (
        "F10 401",
        401,
        {},
        error_body(401, "UNAUTHENTICATED", "token 0123abcd0123abcd0123abcd"),
        "auth",
        0,
    ),
    (
        "F10 elsewhere",
        500,
        {},
        error_body(500, "INTERNAL", f"at /v1beta?key={KEY}: failed"),
        "server_error",
        0,
    ),
    (
        "F11",
        404,
        {},
        error_body(404, "NOT_FOUND", "models/x is not found for API version v1beta"),
        "not_found",
        0,
    ),
    ("F12", 400, {}, error_body(400, "INVALID_ARGUMENT", TOO_LONG), "context_exhausted", 0),
    ("F12 500", 500, {}, error_body(500, "INTERNAL", TOO_LONG), "context_exhausted", 0),
    ("F13", 413, {}, HTML, "too_large", 0),
    (
        "F13 400",
        400,
        {},
        error_body(400, "", "Request payload size exceeds the limit: 20971520 bytes."),
        "too_large",
        0,
    ),
    ("F14", 400, {}, error_body(400, "INVALID_ARGUMENT", ORPHAN), "invalid_request", 0),
    ("F16", 400, {}, error_body(400, "INVALID_ARGUMENT", SCHEMA), "bad_schema", 0),
    ("F16 name", 400, {}, error_body(400, "INVALID_ARGUMENT", VERTEX), "bad_schema", 0),
    ("F35", 307, {"location": "http://evil.test/"}, b"", "invalid_request", 0),
    (
        "list",
        429,
        {},
        b"[" + error_body(429, "RESOURCE_EXHAUSTED", "no", RETRY) + b"]",
        "rate_limit",
        34,
    ),
    ("text", 500, {}, b"upstream connect error \x1b[31m\xff", "server_error", 0),
    (
        "odd",
        400,
        {},
        b'{"error":{"message":["\\ud800"],"details":[1,{"retryDelay":5}],"status":7}}',
        "invalid_request",
        0,
    ),
    ("odd again", 500, {}, b'{"error":"text"}', "server_error", 0),
]
RETRIED = {"rate_limit", "quota", "auth", "overloaded", "server_error", "network"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "after"),
    [f[1:] for f in FAILURES],
    ids=[f[0] for f in FAILURES],
)
def test_a_failure_is_named(
    status: int, headers: dict[str, str], body: bytes, kind: str, after: float
) -> None:
    error = GEMINI.failure(status, headers, body)
    assert error.kind == kind
    if kind in RETRIED:
        assert isinstance(error, ModelUnavailable)
        assert error.retry_after == after
    else:
        assert isinstance(error, ModelRejected)
    message = str(error)
    assert message.isprintable()
    assert len(message) < 600
    assert "<" not in message
    assert KEY not in message
    assert "0123abcd" not in message


def test_a_refused_schema_names_its_tool() -> None:
    assert "tool number 4" in str(
        GEMINI.failure(400, {}, error_body(400, "INVALID_ARGUMENT", SCHEMA))
    )
    assert "tool read_file" in str(
        GEMINI.failure(400, {}, error_body(400, "INVALID_ARGUMENT", VERTEX))
    )


def test_a_failure_says_the_providers_words_and_not_too_many() -> None:
    assert (
        str(GEMINI.failure(404, {}, error_body(404, "NOT_FOUND", "no\nsuch\tmodel")))
        == "HTTP 404 NOT_FOUND: no such model"
    )
    assert (
        len(str(GEMINI.failure(400, {}, error_body(400, "X" * 9999, "token count " * 99999)))) < 700
    )


# The fault catalogue: what a stream becomes.

DELTAS = [
    reply_chunk([{"text": "a"}], None),
    reply_chunk([{"text": "b"}], None),
    reply_chunk([call_part("f", {})], None),
]
CUT_JSON = b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}'


def stream_error(code: int, status: str, *details: dict[str, Any]) -> bytes:
    return sse(
        [
            *DELTAS,
            {"error": {"code": code, "status": status, "message": "m", "details": list(details)}},
        ]
    )


BROKEN_STREAMS: list[tuple[str, bytes, type[ModelError], str]] = [
    ("F1", stream_error(429, "RESOURCE_EXHAUSTED", RETRY), ModelUnavailable, "rate_limit"),
    ("F4", stream_error(503, "UNAVAILABLE"), ModelUnavailable, "overloaded"),
    ("F5", stream_error(500, "INTERNAL"), ModelUnavailable, "server_error"),
    ("F5 no code", sse([{"error": {"message": "m"}}]), ModelUnavailable, "server_error"),
    ("F5 text", sse([{"error": "m"}]), ModelUnavailable, "server_error"),
    (
        "F12",
        sse([{"error": {"code": 400, "message": TOO_LONG}}]),
        ModelRejected,
        "context_exhausted",
    ),
    ("F23", sse(DELTAS), ModelUnavailable, "network"),
    ("F23 nothing", b"", ModelUnavailable, "network"),
    ("F23 comments", b": ping\n\n", ModelUnavailable, "network"),
    ("F24", sse([*DELTAS, reply_chunk([])])[:-10], ModelUnavailable, "network"),
    ("F25", sse(DELTAS) + CUT_JSON, ModelUnavailable, "network"),
    ("F25 first", sse([{"usageMetadata": {}}]) + CUT_JSON, ModelUnavailable, "network"),
    ("F28", CUT_JSON + b"\r\n\r\n" + sse([reply_chunk([])]), ModelUnavailable, "server_error"),
    ("F28 list", b"data: []\n\n", ModelUnavailable, "server_error"),
    ("F28 type", sse([reply_chunk([{"text": 5}])]), ModelUnavailable, "server_error"),
    ("F28 call", sse([reply_chunk([{"functionCall": "f"}])]), ModelUnavailable, "server_error"),
    (
        "F28 deep",
        b'data: {"x":' + b"[" * 9999 + b"]" * 9999 + b"}\n\n",
        ModelUnavailable,
        "server_error",
    ),
    ("F30", b'data: {"x":"' + b"a" * (9 << 20), ModelRejected, "response_too_large"),
    ("F48", sse([*DELTAS, reply_chunk([], "OTHER")]), ModelUnavailable, "server_error"),
    (
        "F48 unknown",
        sse([*DELTAS, reply_chunk([], "PAUSED_BY_SOMETHING_NEW")]),
        ModelUnavailable,
        "server_error",
    ),
    (
        "unsigned",
        sse([reply_chunk([], "MISSING_THOUGHT_SIGNATURE")]),
        ModelRejected,
        "invalid_request",
    ),
]


@pytest.mark.parametrize(
    ("body", "error", "kind"), [f[1:] for f in BROKEN_STREAMS], ids=[f[0] for f in BROKEN_STREAMS]
)
def test_a_broken_stream_gives_no_reply(body: bytes, error: type[ModelError], kind: str) -> None:
    with pytest.raises(error) as failure:
        decoded(body)
    assert failure.value.kind == kind


def test_an_error_inside_a_stream_is_raised_at_once() -> None:
    with pytest.raises(ModelUnavailable) as failure:
        GEMINI.decoder(STREAM).feed(stream_error(429, "RESOURCE_EXHAUSTED", RETRY))
    assert failure.value.retry_after == 34
    for bad in (b"data: {]\n\n", sse([reply_chunk([{"text": []}])])):
        with pytest.raises(ModelUnavailable):
            GEMINI.decoder(STREAM).feed(bad)


def test_an_error_in_a_body_without_streaming_is_raised() -> None:
    with pytest.raises(ModelUnavailable) as failure:
        decoded(error_body(503, "UNAVAILABLE", OVERLOADED), options=WHOLE)
    assert failure.value.kind == "overloaded"


@pytest.mark.parametrize("options", [STREAM, WHOLE], ids=["stream", "whole"])
def test_a_body_has_a_size_limit(options: Options) -> None:
    decoder = GEMINI.decoder(options)
    piece = b": " + b"x" * (4 << 20) + b"\n\n"
    with pytest.raises(ModelRejected) as failure:
        for _ in range(17):
            decoder.feed(piece)
    assert failure.value.kind == "response_too_large"


END = Usage(input=7, output=2)
USED = {"promptTokenCount": 7, "candidatesTokenCount": 2}
PLAIN = ModelReply(
    message=AssistantMessage(text="ab", calls=(ToolCall(id="call_0", name="f"),)), stop="calls"
)
READ: list[tuple[str, bytes, ModelReply]] = [
    (
        "F32 call",
        sse([c := reply_chunk([call_part("f", {}, "i")], None), c, reply_chunk([])]),
        ModelReply(message=AssistantMessage(calls=(ToolCall(id="i", name="f"),)), stop="calls"),
    ),
    ("F34 twice", sse([*DELTAS, reply_chunk([]), reply_chunk([{"text": "late"}], "OTHER")]), PLAIN),
    (
        "F34 junk",
        sse([*DELTAS, reply_chunk([])])
        + b"data: [DONE]\n\ndata: {\n\n"
        + stream_error(500, "INTERNAL"),
        PLAIN,
    ),
    (
        "F38 none",
        sse([{"usageMetadata": USED, "modelVersion": "m"}]),
        ModelReply(message=AssistantMessage(), usage=END, model="m"),
    ),
    ("F38 list", sse([{"candidates": []}]), ModelReply(message=AssistantMessage())),
    (
        "F38 content",
        sse([{"candidates": [{"content": {}, "finishReason": "STOP"}]}]),
        ModelReply(message=AssistantMessage()),
    ),
    (
        "F38 null",
        sse([{"candidates": [{"content": None, "finishReason": "STOP"}]}]),
        ModelReply(message=AssistantMessage()),
    ),
    (
        "F39",
        sse([*DELTAS, reply_chunk([], "MAX_TOKENS")]),
        msgspec.structs.replace(PLAIN, stop="length"),
    ),
    (
        "F39 hop",
        sse([*DELTAS, reply_chunk([], "CONTINUATION")]),
        msgspec.structs.replace(PLAIN, stop="length"),
    ),
    (
        "F41",
        sse([reply_chunk([], "MALFORMED_FUNCTION_CALL", usageMetadata=USED)]),
        ModelReply(message=AssistantMessage(), usage=END),
    ),
    (
        "F41 text",
        sse([*DELTAS, reply_chunk([], "UNEXPECTED_TOOL_CALL")]),
        ModelReply(message=AssistantMessage()),
    ),
    (
        "F42",
        sse([reply_chunk([call_part("f", "{}")])]),
        ModelReply(
            message=AssistantMessage(
                calls=(ToolCall(id="call_0", name="f", arguments_json='"{}"'),)
            ),
            stop="calls",
        ),
    ),
    (
        "F44",
        sse([reply_chunk([call_part("default_api.read", None)])]),
        ModelReply(
            message=AssistantMessage(calls=(ToolCall(id="call_0", name="default_api.read"),)),
            stop="calls",
        ),
    ),
    (
        "F44 none",
        sse([reply_chunk([{"functionCall": {}}])]),
        ModelReply(message=AssistantMessage(calls=(ToolCall(id="call_0", name=""),)), stop="calls"),
    ),
    (
        "F50",
        b'data: {"candidates":[{"content":{"parts":[{"text":"'
        b"\\ud800\\u0000\\\\ud800\xff\xe2\x80\xa8\xf0\x9f\x99\x82\\ud83d\\ude42"
        b'"}]},"finishReason":"STOP"}]}\n\n',
        ModelReply(
            message=AssistantMessage(text="\ufffd\x00\\ud800\ufffd\u2028\U0001f642\U0001f642")
        ),
    ),
    (
        "F51",
        sse(
            [
                reply_chunk([{"text": "a"}], None, modelVersion="x"),
                reply_chunk([], modelVersion="y", responseId="old"),
            ]
        ),
        ModelReply(message=AssistantMessage(text="a"), model="y"),
    ),
]


@pytest.mark.parametrize(("body", "reply"), [f[1:] for f in READ], ids=[f[0] for f in READ])
def test_an_odd_stream_is_read(body: bytes, reply: ModelReply) -> None:
    assert decoded(body)[1] == reply
    for position in range(1, len(body)):
        assert decoded(body[:position], body[position:])[1] == reply


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"}},
        "PROHIBITED_CONTENT: no",
    ),
    (reply_chunk([{"text": "half"}], "SAFETY"), "SAFETY"),
    (reply_chunk([], "RECITATION"), "RECITATION"),
    (reply_chunk([], "PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
    (
        {"candidates": [{"finishReason": "SPII", "finishMessage": "private data"}]},
        "SPII: private data",
    ),
]


@pytest.mark.parametrize(("chunk", "why"), REFUSALS, ids=[w for _, w in REFUSALS])
@pytest.mark.parametrize("options", [STREAM, WHOLE], ids=["stream", "whole"])
def test_a_refusal_ends_the_reply_and_says_why(
    chunk: dict[str, Any], why: str, options: Options
) -> None:
    chunk = chunk | {"usageMetadata": USED}
    reply = decoded(
        sse([chunk]) if options.stream else json.dumps(chunk).encode(), options=options
    )[1]
    assert (reply.stop, reply.usage, reply.message.calls, reply.message.opaque) == (
        "refusal",
        END,
        (),
        "",
    )
    assert why in reply.message.text


def test_odd_framing_is_read() -> None:
    """F27: a byte-order mark, comments, other fields, no space, several data lines, any line
    end."""
    body = json.dumps(reply_chunk([{"text": "a"}, call_part("f", {"x": 1})], new=[{}]), indent=1)
    for end in ("\n", "\r\n", "\r"):
        lines = [
            ": hi",
            "id: 3",
            "retry: 5",
            "event: odd",
            *(f"data:{line}" for line in body.splitlines()),
            "",
            "",
        ]
        odd = b"\xef\xbb\xbf" + end.join(lines).encode()
        for position in range(1, len(odd)):
            reply = decoded(odd[:position], odd[position:])[1]
            assert reply.message == AssistantMessage(
                text="a", calls=(ToolCall(id="call_0", name="f", arguments_json='{"x":1}'),)
            )
