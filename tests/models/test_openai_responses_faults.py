"""What providers do wrong in the Responses dialect, by the numbers of the faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from tests.models.openai_responses_cases import call, message, numbered, reasoning, sse
from tests.models.openai_responses_support import CODEC, STREAM, WHOLE, decoded, delta, ended

LIMIT = {
    "message": "Rate limit reached. Please try again in 1.5s.",
    "type": "tokens",
    "code": "rate_limit_exceeded",
}
KEYED = "Incorrect API key provided: sk-proj-abcd1234efgh. See your account."
ORPHAN = "No tool output found for function call call_1."
SCHEMA = (
    "Invalid schema for function 'read': In context=(), 'x' is not valid under any of the "
    "given schemas."
)
HTML = b"<!DOCTYPE html><html><head><title>502</title></head><body>cloudflare</body></html>"


def error(message: str = "m", **more: Any) -> bytes:
    plain = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return json.dumps({"error": plain | more}).encode()


# Each with what must become of it: the kind of error, and the seconds to wait or None when waiting
# does not help.
FAILURES = [
    (
        "F1",
        429,
        {"Retry-After-Ms": "900", "x-ratelimit-reset-tokens": "6m0s"},
        error(**LIMIT),
        "rate_limit",
        0.9,
    ),
    ("F1 seconds", 429, {"retry-after": "7"}, error(**LIMIT), "rate_limit", 7.0),
    ("F1 words", 429, {}, error(**LIMIT), "rate_limit", 1.5),
    ("F1 minutes", 429, {}, error("Try again in 6m0.5s"), "rate_limit", 360.5),
    ("F1 millis", 429, {}, error("Please try again in 250ms. Visit"), "rate_limit", 0.25),
    ("F1 nonsense", 429, {"retry-after": "soon"}, error(**LIMIT), "rate_limit", 1.5),
    ("F1 endless", 429, {"retry-after": "inf"}, error(), "rate_limit", 0.0),
    (
        "F1 too large",
        429,
        {},
        error("Request too large for gpt", code="rate_limit_exceeded"),
        "too_large",
        None,
    ),
    (
        "F2",
        429,
        {"retry-after": "7"},
        error("You exceeded your quota", code="insufficient_quota"),
        "quota",
        0.0,
    ),
    ("F2 type", 429, {}, error("no money", type="insufficient_quota"), "quota", 0.0),
    ("F2 words", 429, {}, error("You exceeded your current quota, please"), "quota", 0.0),
    ("F2 paid", 402, {}, error(), "quota", 0.0),
    ("F3", 503, {}, error(code="server_is_overloaded"), "overloaded", 0.0),
    ("F3 slow", 503, {"retry-after": "3"}, error(code="slow_down"), "overloaded", 3.0),
    ("F6", 500, {}, error(type="server_error"), "server_error", 0.0),
    ("F7", 502, {"content-type": "text/html"}, HTML, "server_error", 0.0),
    ("F7 520", 520, {}, HTML, "server_error", 0.0),
    ("F7 inside", 502, {}, error(HTML.decode()), "server_error", 0.0),
    ("F9", 504, {}, b"", "server_error", 0.0),
    ("F10", 401, {}, error(KEYED, code="invalid_api_key"), "auth", None),
    ("F10 own key", 401, {}, error("The key evil-1 is not known."), "auth", None),
    ("F10 forbidden", 403, {}, error(KEYED), "auth", None),
    ("F10 as 400", 400, {}, json.dumps({"code": "x", "error": KEYED}).encode(), "auth", None),
    ("F11", 404, {}, error(code="model_not_found"), "not_found", None),
    ("F11 status", 404, {}, b'{"detail":"Not Found"}', "not_found", None),
    ("F11 forbidden", 403, {}, error(code="model_not_found"), "not_found", None),
    ("F12", 400, {}, error(code="context_length_exceeded"), "context_exhausted", None),
    (
        "F12 words",
        400,
        {},
        error("Your input exceeds the context window of this model."),
        "context_exhausted",
        None,
    ),
    ("F13", 413, {}, HTML, "too_large", None),
    ("F14", 400, {}, error(ORPHAN, param="input"), "invalid_request", None),
    (
        "F14 item",
        404,
        {},
        error("Item with id 'rs_1' not found.", param="input"),
        "invalid_request",
        None,
    ),
    ("F16", 400, {}, error(SCHEMA, code="invalid_function_parameters"), "bad_schema", None),
    ("F16 words", 400, {}, error(SCHEMA, param="tools[0].parameters"), "bad_schema", None),
    ("F35", 307, {"location": "http://evil.test/"}, b"", "invalid_request", None),
    ("F40 filter", 400, {}, error(code="content_filter"), "content_filter", None),
    ("deep", 400, {}, b'{"error":' + b"[" * 100_000, "invalid_request", None),
    ("no object", 400, {}, b'["x"]', "invalid_request", None),
]


@pytest.mark.parametrize(
    ("fault", "status", "headers", "body", "kind", "after"), FAILURES, ids=[f[0] for f in FAILURES]
)
def test_an_error_answer_becomes_the_right_error(
    fault: str, status: int, headers: dict[str, str], body: bytes, kind: str, after: float | None
) -> None:
    failure = CODEC.failure(status, headers, body)
    assert (type(failure), failure.kind) == (
        ModelRejected if after is None and kind != "auth" else ModelUnavailable,
        kind,
    )
    if isinstance(failure, ModelUnavailable):
        assert failure.retry_after == (after or 0.0)
    words = str(failure)
    assert 0 < len(words) <= 500 and words.isprintable()
    assert "<" not in words and "sk-" not in words and "evil" not in words
    assert fault[:3] != "F16" or "'read'" in words


def test_an_error_message_is_clean_and_short() -> None:
    failure = CODEC.failure(
        400,
        {},
        error("a\x00\x1b[31m\u202eb\n\nc " + "x" * 9_000, code="some_code", param="input[3]"),
    )
    words = str(failure)
    assert (
        words.startswith("ab c xxx")
        and words.endswith("x (some_code, input[3])")
        and len(words) <= 500
    )
    for key in ("sk-proj-abcd1234", "abc******xyz", "Bearer abcdef"):
        assert key not in str(CODEC.failure(403, {}, error(f"not allowed with {key} here")))


def failed(**error: Any) -> dict[str, Any]:
    return {"type": "response.failed", "response": {"status": "failed", "error": error or None}}


STREAM_FAULTS = [
    ("F4", failed(code="server_is_overloaded", message="m"), "overloaded", 0.0),
    ("F4 limit", failed(**LIMIT), "rate_limit", 1.5),
    ("F4 bare", failed(), "server_error", 0.0),
    (
        "F5",
        {"type": "error", "code": "server_error", "message": "m", "param": None},
        "server_error",
        0.0,
    ),
    (
        "F5 nested",
        {"type": "error", "error": {"code": "insufficient_quota", "message": "m"}},
        "quota",
        0.0,
    ),
    ("F5 number", {"type": "", "error": {"code": 429, "message": "m"}}, "rate_limit", 0.0),
    ("F5 unknown", {"type": "error", "message": "m"}, "server_error", 0.0),
    ("F12", failed(code="context_length_exceeded"), "context_exhausted", None),
    (
        "F14",
        {"type": "error", "error": {"type": "invalid_request_error", "message": ORPHAN}},
        "invalid_request",
        None,
    ),
    ("F40", failed(code="invalid_prompt", message="m"), "content_filter", None),
    ("image", failed(code="invalid_image_format"), "invalid_request", None),
    ("F48", ended(status="queued"), "server_error", 0.0),
    ("F48 cancelled", ended(status="cancelled"), "server_error", 0.0),
]


@pytest.mark.parametrize(
    ("fault", "event", "kind", "after"), STREAM_FAULTS, ids=[f[0] for f in STREAM_FAULTS]
)
def test_a_failure_inside_a_stream_is_raised_at_once(
    fault: str, event: dict[str, Any], kind: str, after: float | None
) -> None:
    decoder = CODEC.decoder(STREAM)
    decoder.feed(sse(*numbered(delta("a"), delta("b"), delta("c"))))
    with pytest.raises(ModelError) as failure:
        decoder.feed(sse({**event, "sequence_number": 9}))
    assert (type(failure.value), failure.value.kind) == (
        ModelRejected if after is None else ModelUnavailable,
        kind,
    )
    assert getattr(failure.value, "retry_after", None) == after
    if "response" in event:
        with pytest.raises(type(failure.value)) as again:
            decoded(json.dumps({"status": "failed"} | event["response"]).encode(), WHOLE)
        assert again.value.kind == kind


CUT_CALL = call('{"path": "a', status="incomplete")
LENGTH = {"incomplete_details": {"reason": "max_output_tokens"}}
FILTER = {"incomplete_details": {"reason": "content_filter"}}
FILTERED = "The provider's content filter stopped this reply."
NO = "I cannot."
REFUSED = {"type": "message", "content": [{"type": "refusal", "refusal": NO}]}
STORM = [call(id=f"c{n}") for n in range(200)]
HELLO = [delta("hel"), delta("lo"), ended(message("hello"))]
ODD_LINES = (
    b"\xef\xbb\xbf:x\rretry:1\rid:7\revent:response.output_text.delta\r"
    b'data:{\rdata:"delta":"hello"}\r\r'
)
ODD_TEXT = "a\ud800\x00\u202e\ud83d\ude00"
REPLIES = [
    ("F27", ODD_LINES + sse(ended()), "hello", [], "end"),
    (
        "F27 unknown",
        sse({"type": "response.new.event", "error": None}, {"type": "x"}, *HELLO),
        "hello",
        [],
        "end",
    ),
    (
        "F27 blank",
        sse(HELLO[0]) + b"data:\n\ndata: [DONE]\n\n" + sse(*HELLO[1:]).rstrip(),
        "hello",
        [],
        "end",
    ),
    ("F32", sse(*[e for e in numbered(*HELLO) for _ in range(2)]), "hello", [], "end"),
    (
        "F32 late",
        sse(*numbered(delta("a"), delta("b")), *numbered(delta("a"), delta("b")), ended()),
        "ab",
        [],
        "end",
    ),
    (
        "F34",
        sse(*HELLO, *HELLO, {"type": "error", "message": "m"}) + b"data: {bad\n\n",
        "hello",
        [],
        "end",
    ),
    ("F38", sse(ended()), "", [], "end"),
    ("F38 null", sse({"type": "response.completed", "response": {"output": None}}), "", [], "end"),
    ("F39", sse(ended(CUT_CALL, kind="incomplete", **LENGTH)), "", ['{"path": "a'], "length"),
    (
        "F39 text",
        sse(delta("hel"), ended(message("hel"), kind="incomplete", **LENGTH)),
        "hel",
        [],
        "length",
    ),
    (
        "F39 kept",
        sse(ended(reasoning(), message("a"), kind="incomplete", **LENGTH)),
        "a",
        [],
        "length",
    ),
    ("F39 unsaid", sse(ended(CUT_CALL)), "", ['{"path": "a'], "length"),
    ("F40", sse(ended(REFUSED)), NO, [], "refusal"),
    (
        "F40 stream",
        sse({"type": "response.refusal.delta", "delta": NO}, ended(REFUSED)),
        NO,
        [],
        "refusal",
    ),
    ("F40 filter", sse(ended(kind="incomplete", **FILTER)), FILTERED, [], "refusal"),
    ("F41", sse(ended(call('{"path":}'))), "", ['{"path":}'], "calls"),
    ("F42", sse(ended(call('"{\\"a\\":1}"'))), "", ['"{\\"a\\":1}"'], "calls"),
    ("F44", sse(ended(call(name="functions.read"))), "", ["{}"], "calls"),
    ("F46", sse(ended(*STORM)), "", ["{}"] * 200, "calls"),
    (
        "F50",
        sse(delta("\ud800"), ended(message(ODD_TEXT))),
        "a\ufffd\x00\u202e\U0001f600",
        [],
        "end",
    ),
    (
        "F50 bytes",
        sse(ended(message("Zq"))).replace(b"Zq", b"a\xff\xed\xa0\x80"),
        "a" + "\ufffd" * 4,
        [],
        "end",
    ),
    (
        "bare",
        sse(ended({**message(""), "content": "x"}, {**message(""), "content": [1]})),
        "",
        [],
        "end",
    ),
]


@pytest.mark.parametrize(
    ("fault", "data", "text", "args", "stop"), REPLIES, ids=[f[0] for f in REPLIES]
)
def test_an_odd_reply_is_still_a_reply(
    fault: str, data: bytes, text: str, args: list[str], stop: str
) -> None:
    reply = decoded(data)
    assert (reply.message.text, [c.arguments_json for c in reply.message.calls], reply.stop) == (
        text,
        args,
        stop,
    )
    assert len({c.id for c in reply.message.calls}) == len(args)
    assert stop != "length" or not reply.message.opaque
    json.loads(b"[%b]" % CODEC.unit([reply.message]))


BEGUN = sse({"type": "response.output_item.added", "item": call()})
BROKEN = [
    ("F23", sse(delta("hello")), "network"),
    ("F24", sse(*HELLO)[:-40], "network"),
    ("F25", BEGUN + b'data: {"type":"response.fu', "network"),
    ("F28", b'data: {"type":"response.output\n\n', "server_error"),
    ("F28 list", b"data: []\n\n", "server_error"),
    ("F28 deep", b'data: {"x":' + b"[" * 100_000 + b"\n\n", "server_error"),
    (
        "F28 item",
        sse({"type": "response.completed", "response": {"output": ["x"]}}),
        "server_error",
    ),
    ("F48 queued", sse({"type": "response.queued", "response": {"status": "queued"}}), "network"),
    ("nothing", b"", "network"),
]


@pytest.mark.parametrize(("fault", "data", "kind"), BROKEN, ids=[f[0] for f in BROKEN])
def test_a_broken_stream_is_tried_again(fault: str, data: bytes, kind: str) -> None:
    with pytest.raises(ModelUnavailable) as failure:
        decoded(data)
    assert failure.value.kind == kind


def test_a_reply_without_end_is_refused_before_it_is_kept() -> None:
    with pytest.raises(ModelRejected) as failure:  # F30
        CODEC.decoder(STREAM).feed(b"data: " + b"x" * (9 << 20))
    assert failure.value.kind == "response_too_large"
    comment = b":" + b"x" * (1 << 20) + b"\n"
    for decoder in (CODEC.decoder(STREAM), CODEC.decoder(WHOLE)):
        with pytest.raises(ModelRejected) as failure:
            for _ in range(65):
                decoder.feed(comment)
        assert failure.value.kind == "response_too_large"
