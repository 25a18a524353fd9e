"""The Responses dialect against the official SDK, and against what providers do wrong, by the numbers of the faults."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from retinue.core.values import Assistant, Call, Reply, Result, ToolSchema, User
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.codec import Codec, Options, encode, units
from retinue.models.openai_responses import OpenAIResponses
from tests.models import openai_responses_cases as cases
from tests.models.openai_responses_cases import call, message, numbered, reasoning, sse

CODEC: Codec = OpenAIResponses()
STREAM = Options()
WHOLE = Options(stream=False)
N_CASES = 500


@pytest.fixture(scope="module")
def wire() -> Iterator[cases.Wire]:
    wire = cases.Wire()
    yield wire
    wire.client.close()


def decoded(data: bytes, options: Options = STREAM) -> Reply:
    decoder = CODEC.decoder(options)
    decoder.feed(data)
    return decoder.finish()


def ended(*items: dict[str, Any], kind: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"model": "gpt", "status": kind, "output": list(items), **more}}


def delta(text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}


def test_a_request_is_what_the_sdk_sends(wire: cases.Wire) -> None:
    """No key differs. What the API would refuse is mended on both sides alike: call ids, names and cache keys of more
    than 64 characters, other characters in names, arguments that are no object, fewer than 16 tokens of output. An
    empty reply is sent with a word in it, a failure begins with "Error: "."""
    rng = random.Random(20)
    n_items = 0
    for _ in range(N_CASES):
        case = cases.conversation(rng)
        params = cases.sdk_call(case)
        cases.check_call(params)
        wire.answer = b"" if case.options.stream else b'{"output":[]}'
        wire.client.responses.create(**params)
        ours = encode(CODEC, case.model, case.instructions, case.messages, case.tools, case.options, case.max_output)
        assert json.loads(ours) == json.loads(wire.sent)
        n_items += len(params["input"])
    assert n_items > 2_000 and wire.path == "/v1" + CODEC.path("m", STREAM)


def test_the_headers_are_what_the_sdk_sends(wire: cases.Wire) -> None:
    wire.answer = b""
    wire.client.responses.create(model="m", input="hello", stream=True)
    ours = OpenAIResponses(organization="org", project="p").headers("k")
    for name in ("authorization", "content-type", "openai-organization", "openai-project"):
        assert ours[name] == wire.headers[name]
    assert "authorization" not in CODEC.headers("") and "openai-project" not in CODEC.headers("k")


def test_what_was_kept_goes_back_byte_for_byte_in_its_order() -> None:
    text = '[{"type":"output_text","text":"1"}]'
    raw = (
        '{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gA\\u0041/+="}',
        '{"type":"message","id":"msg_1","role":"assistant","phase":"commentary","content":' + text + "}",
        '{"id":"rs_2","type":"reasoning","summary":[ ],"encrypted_content":"gB"}',
        '{"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":"{ \\"a\\":1.0}"}',
    )
    event = 'data: {"type":"response.output_item.done","output_index":%d,"item":%s}\n\n'
    done = [(event % (n, item)).encode() for n, item in enumerate(raw)][::-1]
    reply = decoded(b"".join(done) + b'data: {"type":"response.completed","response":{"model":"gpt"}}\n\n')
    unit = CODEC.unit([reply.message, Result(call_id="c1", text="ok")])
    assert unit.startswith(",".join(raw).encode() + b',{"type":"function_call_output"')
    assert reply.message.text == "1" and reply.message.calls == (Call(id="c1", name="read", args='{ "a":1.0}'),)


@pytest.mark.parametrize(
    "items",
    [
        [message("hello")],
        [message("hello"), call()],
        [reasoning(None), message("hello")],
        [reasoning(), message("hello"), reasoning(None), call()],
        [message("hello"), reasoning()],
        [reasoning()],
        [reasoning(), {"type": "custom_tool_call", "call_id": "c", "name": "x", "input": ""}],
    ],
)
def test_nothing_is_kept_that_the_api_would_refuse_or_that_text_and_calls_can_say(items: list[dict[str, Any]]) -> None:
    assert decoded(sse(ended(*items))).message.opaque == ""


def test_a_kept_message_whose_calls_were_changed_is_written_anew() -> None:
    assert '"phase"' in decoded(sse(ended(message("a", phase="commentary")))).message.opaque
    said = decoded(sse(ended(reasoning(), call(id="c1"), call(id="c2")))).message
    assert b"gAAAA=" in CODEC.unit([said])
    fewer = Assistant(text="", calls=said.calls[:1], opaque=said.opaque)
    assert b"gAAAA=" not in CODEC.unit([fewer]) and b"c2" not in CODEC.unit([fewer])


def test_a_kept_call_that_the_api_would_refuse_is_mended_and_its_reasoning_is_not_touched() -> None:
    items = (reasoning("sealed"), call('{"a":', id="c", name="functions.read"), call("{}", id="c"))
    said = decoded(sse(ended(*items))).message
    assert [c.id for c in said.calls] == ["c", "c_1"] and said.calls[0].args == '{"a":'
    sent = json.loads(b"[%b]" % CODEC.unit([said]))
    assert sent[0] == items[0]
    assert sent[1] == {**items[1], "name": "functions_read", "arguments": '{"invalid_json":"{\\"a\\":"}'}
    assert sent[2] == {**items[2], "call_id": "c_1"}


def test_the_same_unit_is_the_same_bytes_marked_or_not() -> None:
    rng = random.Random(3)
    for _ in range(50):
        for unit in units(cases.conversation(rng).messages):
            assert CODEC.unit(unit) == CODEC.unit(unit, mark=True) != b""


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b", "\x00", "\U0001f600\ud83d", '\\ud800 "\ud800"'])
def test_odd_text_never_stops_a_request(text: str) -> None:
    said = Assistant(text=text, calls=(Call(id=text, name=text, args=text),))
    odd = [User(text=text), said, Result(call_id=text, text=text, error=True)]
    tools = [ToolSchema(name="t", description=text, parameters={"description": text})]
    body = encode(CODEC, "m", text, odd, tools, Options(cache_key=text * 65, extra={"metadata": {"a": text}}), 100)
    sent = json.loads(body.decode("utf-8"))
    assert sent["input"][0]["content"][0]["text"].encode("utf-8")  # no half of a pair is left


def test_arguments_nested_without_end_do_not_stop_a_request() -> None:
    args = '{"a":' + "[" * 100_000
    unit = CODEC.unit([Assistant(calls=(Call(id="c", name="n", args=args),))])
    assert json.loads(json.loads(unit)["arguments"]) == {"invalid_json": args}


def test_a_stream_is_read_as_the_sdk_reads_it_whole_and_byte_by_byte(wire: cases.Wire) -> None:
    rng = random.Random(21)
    stops = set()
    for n in range(N_CASES):
        made = cases.stream(rng, n, terse=True)
        decoder, by_bytes = CODEC.decoder(STREAM), CODEC.decoder(STREAM)
        pieces = decoder.feed(made.data)
        reply = decoder.finish()
        assert cases.read(reply) == cases.read_by_sdk(wire, made.data)
        assert "".join(pieces) == made.spoken and decoder.done
        parts = [made.data[k : k + 1] for k in range(len(made.data))]
        assert [piece for part in parts for piece in by_bytes.feed(part)] == pieces
        assert by_bytes.finish() == reply and by_bytes.contents == decoder.contents
        stops.add(reply.stop)
    assert stops == {"end", "calls", "length", "refusal"}


def test_a_stream_cut_in_two_anywhere_is_the_same() -> None:
    """The same streams, cut at every byte. An event leaves nothing behind in the splitter, so it is enough to cut each
    event by itself: where the same events come out, the same reply does. The next test cuts whole replies."""
    rng = random.Random(21)
    n_cuts = 0
    for n in range(N_CASES):
        data = cases.stream(rng, n, terse=True).data
        end = b"\r\n\r\n" if b"\r\n" in data else b"\r\r" if b"\r" in data else b"\n\n"
        out: list[tuple[str, bytes]] = []
        decoder: Any = CODEC.decoder(STREAM)
        decoder._take = lambda name, payload, out=out: out.append((name, payload)) or ""
        for event in (event + end for event in data.split(end)[:-1]):
            decoder.feed(event)
            whole = out.copy()
            for k in range(len(event)):
                out.clear()
                decoder.feed(event[:k])
                decoder.feed(event[k:])
                assert out == whole
            n_cuts += len(event)
            out.clear()
    assert n_cuts > 400_000


def test_a_long_stream_is_read_as_the_sdk_reads_it_in_two_pieces_and_in_many(wire: cases.Wire) -> None:
    rng = random.Random(22)
    for n in range(40):
        made = cases.stream(rng, n)
        reply = decoded(made.data)
        assert cases.read(reply) == cases.read_by_sdk(wire, made.data)
        cuts = range(len(made.data)) if n < 1 else rng.sample(range(len(made.data)), 20)
        for k in cuts:
            decoder = CODEC.decoder(STREAM)
            pieces = decoder.feed(made.data[:k]) + decoder.feed(made.data[k:])
            assert "".join(pieces) == made.spoken
            assert decoder.finish() == reply


def test_a_stream_that_breaks_off_is_never_half_a_reply() -> None:
    rng = random.Random(23)
    for n in range(8):
        made = cases.stream(rng, n, terse=True)
        reply = decoded(made.data)
        for k in range(len(made.data)):
            try:
                assert decoded(made.data[:k]) == reply  # only what follows the last event's JSON was missing
                assert b'"usage":' in made.data[:k]
            except ModelUnavailable as error:
                assert error.kind == "network"


def test_one_body_is_read_like_a_stream() -> None:
    rng = random.Random(24)
    for n in range(100):
        made = cases.stream(rng, n)
        decoder = CODEC.decoder(WHOLE)
        assert decoder.feed(made.body[:10]) + decoder.feed(made.body[10:]) == []
        assert cases.read(decoder.finish()) == cases.read(decoded(made.data))
        assert decoder.contents == 2 and decoder.done
        for k in (0, 1, len(made.body) // 2, len(made.body) - 1):
            with pytest.raises(ModelUnavailable) as caught:
                decoded(made.body[:k], WHOLE)
            assert caught.value.kind == "network"


def test_calls_without_ids_of_their_own_get_some() -> None:
    items = [call(id="x"), call(id="x"), call(id=""), {"type": "function_call", "name": None, "arguments": {"a": 1}}]
    calls = decoded(sse(ended(*items))).message.calls
    assert [c.id for c in calls] == ["x", "x_1", "fc_", "call_3"]
    assert calls[3] == Call(id="call_3", name="", args='{"a":1}')


def test_what_the_last_event_leaves_out_is_taken_from_those_before() -> None:
    first = {"type": "response.created", "response": {"model": "gpt-x", "status": "in_progress"}}
    done = {"type": "response.output_item.done", "output_index": 0, "item": message("hi")}
    last = {"type": "response.completed", "response": {"id": "resp_1"}}
    assert decoded(sse(first, delta("hi"), done, last)) == decoded(sse(first, delta("hi"), last))
    assert decoded(sse(first, delta("hi"), last)).model == "gpt-x"
    assert decoded(sse(first, ended(message("hi")))).model == "gpt"  # F51: the last word counts
    assert decoded(sse(first, done, ended(message("hi"), call()))).stop == "calls"


def test_servers_that_give_all_events_one_number_are_understood() -> None:
    events = [{**e, "sequence_number": 0} for e in ({"type": "response.in_progress"}, delta("a"), delta("b"), ended())]
    assert decoded(sse(*events)).message.text == "ab"


def test_keeping_alive_is_no_content() -> None:
    decoder = CODEC.decoder(STREAM)
    decoder.feed(sse({"type": "response.in_progress"}, {"type": "keepalive"}) + b": ping\n\n")
    assert (decoder.contents, decoder.done) == (0, False)
    decoder.feed(sse(delta("a"), ended()))
    assert (decoder.contents, decoder.done) == (1, True)


LIMIT = {"message": "Rate limit reached. Please try again in 1.5s.", "type": "tokens", "code": "rate_limit_exceeded"}
KEYED = "Incorrect API key provided: sk-proj-abcd1234efgh. See your account."
ORPHAN = "No tool output found for function call call_1."
SCHEMA = "Invalid schema for function 'read': In context=(), 'x' is not valid under any of the given schemas."
HTML = b"<!DOCTYPE html><html><head><title>502</title></head><body>cloudflare</body></html>"


def error(message: str = "m", **more: Any) -> bytes:
    plain = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return json.dumps({"error": plain | more}).encode()


# Each with what must become of it: the kind of error, and the seconds to wait or None when waiting does not help.
FAILURES = [
    ("F1", 429, {"Retry-After-Ms": "900", "x-ratelimit-reset-tokens": "6m0s"}, error(**LIMIT), "rate_limit", 0.9),
    ("F1 seconds", 429, {"retry-after": "7"}, error(**LIMIT), "rate_limit", 7.0),
    ("F1 words", 429, {}, error(**LIMIT), "rate_limit", 1.5),
    ("F1 minutes", 429, {}, error("Try again in 6m0.5s"), "rate_limit", 360.5),
    ("F1 millis", 429, {}, error("Please try again in 250ms. Visit"), "rate_limit", 0.25),
    ("F1 nonsense", 429, {"retry-after": "soon"}, error(**LIMIT), "rate_limit", 1.5),
    ("F1 endless", 429, {"retry-after": "inf"}, error(), "rate_limit", 0.0),
    ("F1 too large", 429, {}, error("Request too large for gpt", code="rate_limit_exceeded"), "too_large", None),
    ("F2", 429, {"retry-after": "7"}, error("You exceeded your quota", code="insufficient_quota"), "quota", 0.0),
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
    ("F12 words", 400, {}, error("Your input exceeds the context window of this model."), "context_exhausted", None),
    ("F13", 413, {}, HTML, "too_large", None),
    ("F14", 400, {}, error(ORPHAN, param="input"), "invalid_request", None),
    ("F14 item", 404, {}, error("Item with id 'rs_1' not found.", param="input"), "invalid_request", None),
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
    found = CODEC.failure(status, headers, body)
    assert (type(found), found.kind) == (ModelRejected if after is None and kind != "auth" else ModelUnavailable, kind)
    if isinstance(found, ModelUnavailable):
        assert found.after_seconds == (after or 0.0)
    words = str(found)
    assert 0 < len(words) <= 500 and words.isprintable()
    assert "<" not in words and "sk-" not in words and "evil" not in words
    assert fault[:3] != "F16" or "'read'" in words


def test_an_error_message_is_clean_and_short() -> None:
    found = CODEC.failure(
        400, {}, error("a\x00\x1b[31m\u202eb\n\nc " + "x" * 9_000, code="some_code", param="input[3]")
    )
    words = str(found)
    assert words.startswith("ab c xxx") and words.endswith("x (some_code, input[3])") and len(words) <= 500
    for key in ("sk-proj-abcd1234", "abc******xyz", "Bearer abcdef"):
        assert key not in str(CODEC.failure(403, {}, error(f"not allowed with {key} here")))


def failed(**error: Any) -> dict[str, Any]:
    return {"type": "response.failed", "response": {"status": "failed", "error": error or None}}


STREAM_FAULTS = [
    ("F4", failed(code="server_is_overloaded", message="m"), "overloaded", 0.0),
    ("F4 limit", failed(**LIMIT), "rate_limit", 1.5),
    ("F4 bare", failed(), "server_error", 0.0),
    ("F5", {"type": "error", "code": "server_error", "message": "m", "param": None}, "server_error", 0.0),
    ("F5 nested", {"type": "error", "error": {"code": "insufficient_quota", "message": "m"}}, "quota", 0.0),
    ("F5 number", {"type": "", "error": {"code": 429, "message": "m"}}, "rate_limit", 0.0),
    ("F5 unknown", {"type": "error", "message": "m"}, "server_error", 0.0),
    ("F12", failed(code="context_length_exceeded"), "context_exhausted", None),
    ("F14", {"type": "error", "error": {"type": "invalid_request_error", "message": ORPHAN}}, "invalid_request", None),
    ("F40", failed(code="invalid_prompt", message="m"), "content_filter", None),
    ("image", failed(code="invalid_image_format"), "invalid_request", None),
    ("F48", ended(status="queued"), "server_error", 0.0),
    ("F48 cancelled", ended(status="cancelled"), "server_error", 0.0),
]


@pytest.mark.parametrize(("fault", "event", "kind", "after"), STREAM_FAULTS, ids=[f[0] for f in STREAM_FAULTS])
def test_a_failure_inside_a_stream_is_raised_at_once(
    fault: str, event: dict[str, Any], kind: str, after: float | None
) -> None:
    decoder = CODEC.decoder(STREAM)
    decoder.feed(sse(*numbered(delta("a"), delta("b"), delta("c"))))
    with pytest.raises(ModelError) as caught:
        decoder.feed(sse({**event, "sequence_number": 9}))
    assert (type(caught.value), caught.value.kind) == (ModelRejected if after is None else ModelUnavailable, kind)
    assert getattr(caught.value, "after_seconds", None) == after
    if "response" in event:
        with pytest.raises(type(caught.value)) as again:
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
ODD_LINES = b'\xef\xbb\xbf:x\rretry:1\rid:7\revent:response.output_text.delta\rdata:{\rdata:"delta":"hello"}\r\r'
ODD_TEXT = "a\ud800\x00\u202e\ud83d\ude00"
REPLIES = [
    ("F27", ODD_LINES + sse(ended()), "hello", [], "end"),
    ("F27 unknown", sse({"type": "response.new.event", "error": None}, {"type": "x"}, *HELLO), "hello", [], "end"),
    ("F27 blank", sse(HELLO[0]) + b"data:\n\ndata: [DONE]\n\n" + sse(*HELLO[1:]).rstrip(), "hello", [], "end"),
    ("F32", sse(*[e for e in numbered(*HELLO) for _ in range(2)]), "hello", [], "end"),
    ("F32 late", sse(*numbered(delta("a"), delta("b")), *numbered(delta("a"), delta("b")), ended()), "ab", [], "end"),
    ("F34", sse(*HELLO, *HELLO, {"type": "error", "message": "m"}) + b"data: {bad\n\n", "hello", [], "end"),
    ("F38", sse(ended()), "", [], "end"),
    ("F38 null", sse({"type": "response.completed", "response": {"output": None}}), "", [], "end"),
    ("F39", sse(ended(CUT_CALL, kind="incomplete", **LENGTH)), "", ['{"path": "a'], "length"),
    ("F39 text", sse(delta("hel"), ended(message("hel"), kind="incomplete", **LENGTH)), "hel", [], "length"),
    ("F39 kept", sse(ended(reasoning(), message("a"), kind="incomplete", **LENGTH)), "a", [], "length"),
    ("F39 unsaid", sse(ended(CUT_CALL)), "", ['{"path": "a'], "length"),
    ("F40", sse(ended(REFUSED)), NO, [], "refusal"),
    ("F40 stream", sse({"type": "response.refusal.delta", "delta": NO}, ended(REFUSED)), NO, [], "refusal"),
    ("F40 filter", sse(ended(kind="incomplete", **FILTER)), FILTERED, [], "refusal"),
    ("F41", sse(ended(call('{"path":}'))), "", ['{"path":}'], "calls"),
    ("F42", sse(ended(call('"{\\"a\\":1}"'))), "", ['"{\\"a\\":1}"'], "calls"),
    ("F44", sse(ended(call(name="functions.read"))), "", ["{}"], "calls"),
    ("F46", sse(ended(*STORM)), "", ["{}"] * 200, "calls"),
    ("F50", sse(delta("\ud800"), ended(message(ODD_TEXT))), "a\ufffd\x00\u202e\U0001f600", [], "end"),
    ("F50 bytes", sse(ended(message("Zq"))).replace(b"Zq", b"a\xff\xed\xa0\x80"), "a" + "\ufffd" * 4, [], "end"),
    ("bare", sse(ended({**message(""), "content": "x"}, {**message(""), "content": [1]})), "", [], "end"),
]


@pytest.mark.parametrize(("fault", "data", "text", "args", "stop"), REPLIES, ids=[f[0] for f in REPLIES])
def test_an_odd_reply_is_still_a_reply(fault: str, data: bytes, text: str, args: list[str], stop: str) -> None:
    reply = decoded(data)
    assert (reply.message.text, [c.args for c in reply.message.calls], reply.stop) == (text, args, stop)
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
    ("F28 item", sse({"type": "response.completed", "response": {"output": ["x"]}}), "server_error"),
    ("F48 queued", sse({"type": "response.queued", "response": {"status": "queued"}}), "network"),
    ("nothing", b"", "network"),
]


@pytest.mark.parametrize(("fault", "data", "kind"), BROKEN, ids=[f[0] for f in BROKEN])
def test_a_broken_stream_is_tried_again(fault: str, data: bytes, kind: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        decoded(data)
    assert caught.value.kind == kind


def test_a_reply_without_end_is_refused_before_it_is_kept() -> None:
    with pytest.raises(ModelRejected) as caught:  # F30
        CODEC.decoder(STREAM).feed(b"data: " + b"x" * (9 << 20))
    assert caught.value.kind == "response_too_large"
    comment = b":" + b"x" * (1 << 20) + b"\n"
    for decoder in (CODEC.decoder(STREAM), CODEC.decoder(WHOLE)):
        with pytest.raises(ModelRejected) as caught:
            for _ in range(65):
                decoder.feed(comment)
        assert caught.value.kind == "response_too_large"
