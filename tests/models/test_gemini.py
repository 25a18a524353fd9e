"""The Gemini codec against the official SDK, and against what goes wrong.

Where the SDK sends the same thing in another spelling, `as_we_spell` translates what it sent: it writes some names of
fields in snake case (the API takes both) and bytes in the URL-safe alphabet of base64 (we send images and signatures as
they came). Its default API version is set to ours.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest
from google import genai
from google.genai import types

from retinue.core.values import Assistant, Call, Image, Reply, Result, ToolSchema, Usage, User
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.codec import Options, encode, units
from retinue.models.gemini import Gemini
from tests.models.gemini_cases import case, responses, sse

N_REQUESTS = 500
N_STREAMS = 500
GEMINI = Gemini()
STREAM, WHOLE = Options(), Options(stream=False)
KEY = "AIza" + "SyD3adB33f_not-a-real-key_0123456789"


def sdk(answer: Callable[[httpx2.Request], httpx2.Response]) -> genai.Client:
    arguments = {"transport": httpx2.MockTransport(answer)}
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(api_version="v1beta", client_args=arguments))


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda m: m[1].upper(), name)


def as_we_spell(value: Any, inside: str = "") -> Any:
    """Field names of the API in camel case and bytes in plain base64; what a user or a model wrote is left alone."""
    if inside in ("args", "response", "parametersJsonSchema", "responseJsonSchema"):
        return value
    if isinstance(value, dict):
        return {camel(k): as_we_spell(v, camel(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [as_we_spell(v, inside) for v in value]
    is_bytes = inside in ("data", "thoughtSignature") and isinstance(value, str)
    return value.translate(str.maketrans("-_", "+/")) if is_bytes else value


def body_of(messages: list[Any], options: Options = STREAM, max_output: int = 9) -> dict[str, Any]:
    joined = b",".join(GEMINI.unit(part) for part in units(messages))
    found = json.loads(GEMINI.head("m", "", [], options) + joined + GEMINI.tail(max_output, options))
    assert isinstance(found, dict)
    return found


def test_a_request_is_what_the_official_sdk_sends() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        whole = b'{"candidates":[{"finishReason":"STOP"}]}'
        return httpx2.Response(
            200, content=b"data: " + whole + b"\r\n\r\n" if b"alt=sse" in request.url.query else whole
        )

    client = sdk(answer)
    rng = random.Random(31)
    for n in range(N_REQUESTS):
        one = case(rng)
        if one.options.stream:
            list(client.models.generate_content_stream(model=one.model, contents=list(one.contents), config=one.config))
        else:
            client.models.generate_content(model=one.model, contents=list(one.contents), config=one.config)
        theirs = sent.pop()
        joined = b",".join(GEMINI.unit(part, mark=n % 2 == 0) for part in units(one.messages))
        head = GEMINI.head(one.model, one.instructions, one.tools, one.options)
        ours = head + joined + GEMINI.tail(one.max_output, one.options)
        assert json.loads(ours) == as_we_spell(json.loads(theirs.content)), n
        assert GEMINI.path(one.model, one.options) == theirs.url.raw_path.decode(), n
        for name in ("x-goog-api-key", "content-type"):
            assert GEMINI.headers(KEY)[name] == theirs.headers[name]


def found_by_the_sdk(chunks: list[types.GenerateContentResponse]) -> Reply:
    """A reply from the SDK's objects, by the rules that the codec has to keep."""
    text, calls, usage, model, reason = "", [], dict.fromkeys(("p", "t", "c", "o", "th"), 0), "", None
    for chunk in chunks:
        model = chunk.model_version or model
        if (used := chunk.usage_metadata) is not None:
            told = {
                "p": used.prompt_token_count,
                "t": used.tool_use_prompt_token_count,
                "c": used.cached_content_token_count,
                "o": used.candidates_token_count,
                "th": used.thoughts_token_count,
            }
            usage |= {k: v for k, v in told.items() if v is not None}
        for candidate in chunk.candidates or []:
            reason = candidate.finish_reason or reason
            for part in (candidate.content.parts if candidate.content else None) or []:
                if part.function_call is not None:
                    calls.append(part.function_call)
                elif part.text and not part.thought:
                    text += part.text
    assert reason is not None
    named = [
        Call(id=c.id or f"call_{n}", name=c.name or "", args=json.dumps(c.args or {}, sort_keys=True))
        for n, c in enumerate(calls)
    ]
    spent = Usage(input=usage["p"] + usage["t"], output=usage["o"] + usage["th"], cache_read=usage["c"])
    ends = {"STOP": "calls" if named else "end", "MAX_TOKENS": "length", "MALFORMED_FUNCTION_CALL": "end"}
    stop = ends.get(reason.value, "refusal")
    if stop == "refusal":
        text, named = f"The provider refused to answer ({reason.value}).", []
    if reason.value == "MALFORMED_FUNCTION_CALL":
        text, named = "", []
    return Reply(message=Assistant(text=text, calls=tuple(named)), usage=spent, stop=stop, model=model)  # type: ignore[arg-type]


def comparable(reply: Reply) -> Reply:
    """Without what the SDK's objects do not have, and with sorted arguments."""
    calls = tuple(
        Call(id=c.id, name=c.name, args=json.dumps(json.loads(c.args), sort_keys=True)) for c in reply.message.calls
    )
    return msgspec.structs.replace(reply, message=Assistant(text=reply.message.text, calls=calls))


def decoded(*pieces: bytes, options: Options = STREAM) -> tuple[str, Reply]:
    decoder = GEMINI.decoder(options)
    text = "".join(t for piece in pieces for t in decoder.feed(piece))
    return text, decoder.finish()


def test_a_stream_is_read_as_the_official_sdk_reads_it_wherever_it_is_cut() -> None:
    body = b""
    client = sdk(lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body))
    rng = random.Random(17)
    for n in range(N_STREAMS):
        is_long = n % 20 == 0
        body = sse(responses(rng, 8 if is_long else 1 + n % 2), rng)
        theirs = found_by_the_sdk(list(client.models.generate_content_stream(model="m", contents="x")))
        seen, whole = decoded(body)
        assert comparable(whole) == theirs, body
        if whole.stop != "refusal" and (whole.message.text or whole.message.calls):
            assert seen == whole.message.text
        for cut in range(1, len(body)):
            assert decoded(body[:cut], body[cut:]) == (seen, whole), (body, cut)
        if is_long:
            assert decoded(*(body[i : i + 1] for i in range(len(body)))) == (seen, whole)


def test_a_body_without_streaming_is_read_as_the_official_sdk_reads_it() -> None:
    body = b""
    client = sdk(lambda _: httpx2.Response(200, headers={"content-type": "application/json"}, content=body))
    rng = random.Random(5)
    for _ in range(100):
        chunks = responses(rng, 4)
        merged = chunks[-1] | {"candidates": [chunks[-1]["candidates"][0]]}
        parts = [p for c in chunks for p in c["candidates"][0].get("content", {}).get("parts", [])]
        merged["candidates"][0]["content"] = {"parts": parts, "role": "model"}
        body = json.dumps(merged, indent=rng.choice([None, 2])).encode()
        theirs = found_by_the_sdk([client.models.generate_content(model="m", contents="x")])
        for cut in range(1, len(body), 31):
            _, ours = decoded(body[:cut], body[cut:], options=WHOLE)
            assert comparable(ours) == theirs, body


def test_nothing_half_received_is_returned() -> None:
    rng = random.Random(23)
    for _ in range(60):
        body = sse(responses(rng, 3), rng)
        _, whole = decoded(body)
        for cut in range(len(body)):
            decoder = GEMINI.decoder(STREAM)
            decoder.feed(body[:cut])
            if cut >= len(body) - 4:
                assert decoder.finish() == whole
            else:
                with pytest.raises(ModelUnavailable) as caught:
                    decoder.finish()
                assert caught.value.kind == "network"
                assert not decoder.done


def test_half_a_body_without_streaming_is_a_network_fault() -> None:
    body = json.dumps(reply_chunk([{"text": "x"}, call_part("f", {"a": {"b": {}}})])).encode()
    for cut in range(len(body)):
        with pytest.raises(ModelUnavailable) as caught:
            decoded(body[:cut], options=WHOLE)
        assert caught.value.kind == "network"
    assert decoded(body, options=WHOLE)[1].message.text == "x"


def reply_chunk(parts: list[Any], reason: str | None = "STOP", **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts}} | ({"finishReason": reason} if reason else {})], **more}


def call_part(name: str, args: Any, given: str = "", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args} | ({"id": given} if given else {}), **more}


def reply_to(*chunks: dict[str, Any]) -> Reply:
    return decoded(sse(list(chunks)))[1]


# Signatures and thoughts.


def test_signed_parts_go_back_byte_for_byte() -> None:
    signature = rb'"thoughtSignature":"QUJD\u002b\/0\u003d"'
    signed = rb'{"functionCall":{"name":"f","args":{"\u00fc":1.50,"b":"\/"}},' + signature + b"}"
    body = (
        b'data: {"candidates":[{"content":{"parts":[{"text":"so"},'
        + signed
        + b',{"functionCall":{"id":"i2","name":"g"}}'
    )
    body += b',{"text":"",' + signature + b'}]},"finishReason":"STOP"}]}\n\n'
    message = decoded(body)[1].message
    results = [Result(call_id=c.id, text=c.name) for c in message.calls]
    unit = GEMINI.unit([message, *results])
    assert signed in unit
    assert b'{"text":"",' + signature + b"}" in unit
    parts = json.loads(b"[" + unit + b"]")
    assert [list(p) for p in parts[0]["parts"]] == [
        ["text"],
        ["functionCall", "thoughtSignature"],
        ["functionCall"],
        ["text", "thoughtSignature"],
    ]
    assert [p["functionResponse"] for p in parts[1]["parts"]] == [
        {"name": "f", "response": {"output": "f"}},
        {"id": "i2", "name": "g", "response": {"output": "g"}},
    ]


def test_a_reply_without_signatures_keeps_nothing() -> None:
    reply = reply_to(reply_chunk([{"text": "thinking", "thought": True}, {"text": "hi"}, call_part("f", {}, "i")]))
    assert reply.message == Assistant(text="hi", calls=(Call(id="i", name="f"),))


def test_what_was_kept_for_other_words_is_not_used() -> None:
    message = reply_to(reply_chunk([{"text": "hello"}, call_part("f", {}, thoughtSignature="QQ==")])).message
    changed = msgspec.structs.replace(message, text="other")
    assert b"QQ==" in GEMINI.unit([message])
    assert b"QQ==" in GEMINI.unit([changed])
    for broken in (
        msgspec.structs.replace(message, text="a longer text"),
        msgspec.structs.replace(message, calls=()),
        msgspec.structs.replace(message, opaque="gemini\n[{"),
        msgspec.structs.replace(message, opaque="openai\n[5,null]"),
    ):
        assert b"QQ==" not in GEMINI.unit([broken])
        assert json.loads(GEMINI.unit([broken]))["parts"][0] == {"text": broken.text}


def test_thoughts_are_not_text() -> None:
    text, reply = decoded(
        sse([reply_chunk([{"text": "hm", "thought": True, "thoughtSignature": "QQ=="}, {"text": "yes"}])])
    )
    assert (text, reply.message.text) == ("yes", "yes")
    assert json.loads(GEMINI.unit([reply.message]))["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "QQ=="},
        {"text": "yes"},
    ]


def test_a_signed_call_that_cannot_go_back_keeps_its_signature() -> None:
    message = reply_to(reply_chunk([call_part("", "text", "i", thoughtSignature="QQ==")])).message
    assert message.calls == (Call(id="i", name="", args='"text"'),)
    model, user = json.loads(b"[" + GEMINI.unit([message, Result(call_id="i", text="?")]) + b"]")
    assert model["parts"] == [
        {"functionCall": {"id": "i", "name": "_", "args": {"invalid_json": '"text"'}}, "thoughtSignature": "QQ=="}
    ]
    assert user["parts"][0]["functionResponse"]["name"] == "_"


# Calls and their ids.


def test_calls_without_ids_get_ids_that_are_not_sent_back() -> None:
    message = reply_to(reply_chunk([call_part("f", {}), call_part("f", {}), call_part("g", {}, "own")])).message
    assert [c.id for c in message.calls] == ["call_0", "call_1", "own"]
    sent = GEMINI.unit([message, *(Result(call_id=c.id, text="r") for c in message.calls)])
    assert b"call_" not in sent
    assert sent.count(b'"id":"own"') == 2


def test_ids_are_unique_in_a_reply() -> None:
    parts = [
        call_part("f", {"n": 1}, "a"),
        call_part("f", {"n": 2}, "a"),
        call_part("g", {}, "call_3"),
        call_part("h", {}),
    ]
    ids = [c.id for c in reply_to(reply_chunk(parts)).message.calls]
    assert ids == ["a", "call_1", "call_3", "call_3_"]


def test_the_same_call_twice_in_one_event_is_two_calls() -> None:
    same = call_part("f", {}, "a")
    assert [c.id for c in reply_to(reply_chunk([same, same])).message.calls] == ["a", "call_1"]


def test_a_signed_call_is_answered_under_the_id_that_it_came_with() -> None:
    parts = [call_part("f", {"n": n}, "a", thoughtSignature="QQ==") for n in range(2)]
    message = reply_to(reply_chunk(parts)).message
    assert [c.id for c in message.calls] == ["a", "call_1"]
    sent = json.loads(b"[" + GEMINI.unit([message, *(Result(call_id=c.id, text=c.id) for c in message.calls)]) + b"]")
    assert sent[0]["parts"] == parts
    assert [p["functionResponse"]["id"] for p in sent[1]["parts"]] == ["a", "a"]


def test_two_hundred_calls_are_read() -> None:
    message = reply_to(reply_chunk([call_part("f", {"n": n}) for n in range(200)])).message
    assert [json.loads(c.args) for c in message.calls] == [{"n": n} for n in range(200)]


def test_a_name_that_no_function_can_have_is_made_valid_on_both_sides() -> None:
    message = Assistant(calls=(Call(id="x", name="9 lives!"), Call(id="y", name="")))
    sent = json.loads(
        b"[" + GEMINI.unit([message, Result(call_id="x", text="1"), Result(call_id="y", text="2")]) + b"]"
    )
    assert [p["functionCall"]["name"] for p in sent[0]["parts"]] == ["_9_lives_", "_"]
    assert [p["functionResponse"]["name"] for p in sent[1]["parts"]] == ["_9_lives_", "_"]


def test_arguments_that_are_too_deep_are_kept_as_text() -> None:
    deep = '{"a":' + "[" * 5000 + "]" * 5000 + "}"
    assert json.loads(GEMINI.unit([Assistant(calls=(Call(id="x", name="f", args=deep),))]))["parts"] == [
        {"functionCall": {"id": "x", "name": "f", "args": {"invalid_json": deep}}}
    ]


# Texts and odd values.


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\u202e", "\udfff\ud800x", "\U0010ffff"])
def test_odd_text_is_sent_without_an_exception(text: str) -> None:
    image = Image(media_type="image/png", data="AA==")
    said = Assistant(text=text, calls=(Call(id=text, name=text, args=text),), opaque=f"gemini\n{text}")
    sent = [User(text=text, images=(image,)), said, Result(call_id=text, text=text, error=True)]
    tools = [ToolSchema(name="t", description=text, parameters={"title": text, text: [text]})]
    body = encode(GEMINI, "m", text, sent, tools, STREAM, 5)
    assert json.loads(body)["contents"][0]["parts"][0]["text"] in (
        text,
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    )


def test_empty_messages_are_still_contents() -> None:
    contents = body_of([User(text=""), Assistant(), User(text="")])["contents"]
    assert [c["parts"] for c in contents] == [[{"text": "(empty)"}]] * 3


def test_encoding_is_stateless_and_joins_like_the_port_says() -> None:
    messages = [User(text="a"), User(text="b"), Assistant(text="c")]
    body = encode(GEMINI, "m", "sys", messages, [], STREAM, 5)
    assert body == encode(Gemini(), "m", "sys", messages, [], STREAM, 5)
    assert json.loads(body) == {
        "systemInstruction": {"parts": [{"text": "sys"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "user", "parts": [{"text": "b"}]},
            {"role": "model", "parts": [{"text": "c"}]},
        ],
        "generationConfig": {"maxOutputTokens": 5},
    }


def test_what_a_caller_adds_joins_what_is_there() -> None:
    tool = ToolSchema(name="t", description="", parameters={})
    options = Options(
        effort="low",
        extra={
            "tools": [{"googleSearch": {}}],
            "contents": "ours",
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        },
    )
    sent = GEMINI.head("m", "", [tool], options) + GEMINI.unit([User(text="x")]) + GEMINI.tail(1, options)
    assert [sent.count(f'"{name}":'.encode()) for name in ("tools", "contents", "generationConfig")] == [1, 1, 1]
    body = json.loads(sent)
    assert [list(t) for t in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["contents"] == [{"role": "user", "parts": [{"text": "x"}]}]
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "LOW", "includeThoughts": True}


def test_without_a_key_no_key_is_sent() -> None:
    assert "x-goog-api-key" not in GEMINI.headers("")


def test_other_candidates_are_left_out() -> None:
    chunk = {"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "OTHER"}]}
    assert reply_to(chunk, reply_chunk([{"text": "yes"}])).message.text == "yes"


def test_a_decoder_counts_what_carries_content() -> None:
    decoder = GEMINI.decoder(STREAM)
    counts = []
    for chunk in (
        {"usageMetadata": {}},
        reply_chunk([{"text": "a"}], None),
        reply_chunk([], None),
        reply_chunk([{"text": "b"}]),
    ):
        assert not decoder.done
        decoder.feed(sse([chunk]))
        counts.append(decoder.contents)
    assert (counts, decoder.done) == ([0, 1, 1, 2], True)


# The fault catalogue: what a body with an error status becomes.


def error_body(code: int, status: str, message: str, *details: dict[str, Any]) -> bytes:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return json.dumps({"error": error}, indent=2).encode()


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
HTML = b"<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"


def quota(name: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": name}]}


MINUTE, DAY = quota("GenerateRequestsPerMinutePerProjectPerModel"), quota("GenerateRequestsPerDayPerProjectPerModel")
TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
ORPHAN = "Please ensure that the number of function response parts is equal to the number of function call parts."
SCHEMA = """Invalid JSON payload. Unknown name "foo" at 'tools[0].function_declarations[3].parameters_json_schema'"""
VERTEX = (
    "Unable to submit request because `read_file` functionDeclaration `parameters.x` schema should be of type OBJECT."
)
OVERLOADED = "The model is overloaded. Please try again later."

FAILURES: list[tuple[str, int, dict[str, str], bytes, str, float]] = [
    ("F1", 429, {}, error_body(429, "RESOURCE_EXHAUSTED", "slow", MINUTE, RETRY), "rate_limit", 34),
    ("F1 fraction", 429, {}, error_body(429, "RESOURCE_EXHAUSTED", "Please retry in 1h2m3.5s."), "rate_limit", 3723.5),
    ("F1 again", 429, {}, error_body(429, "", "try again in 1500ms"), "rate_limit", 1.5),
    ("F1 header", 429, {"Retry-After": "7"}, b"", "rate_limit", 7),
    ("F1 ms", 429, {"retry-after-ms": "1500"}, b"{}", "rate_limit", 1.5),
    ("F1 date", 429, {"retry-after": "Sat, 07 Mar 2026 05:00:00 GMT"}, b"[]", "rate_limit", 0),
    ("F1 longest", 429, {"retry-after": "7"}, error_body(429, "RESOURCE_EXHAUSTED", "", RETRY), "rate_limit", 34),
    ("F1 absurd", 429, {"retry-after": "9" * 400}, b"null", "rate_limit", 0),
    ("F2 day", 429, {"retry-after": "9"}, error_body(429, "RESOURCE_EXHAUSTED", "", MINUTE, DAY, RETRY), "quota", 0),
    ("F2 billing", 400, {}, error_body(400, "FAILED_PRECONDITION", "Please enable billing."), "quota", 0),
    ("F3", 503, {}, error_body(503, "UNAVAILABLE", OVERLOADED), "overloaded", 0),
    ("F3 wait", 503, {"retry-after": "3"}, error_body(503, "UNAVAILABLE", OVERLOADED), "overloaded", 3),
    ("F6", 500, {}, error_body(500, "INTERNAL", "An internal error has occurred."), "server_error", 0),
    ("F7 502", 502, {}, HTML, "server_error", 0),
    ("F7 520", 520, {}, HTML, "server_error", 0),
    ("F7 503", 503, {}, HTML, "overloaded", 0),
    ("F7 in JSON", 500, {}, error_body(500, "", HTML.decode()), "server_error", 0),
    ("F7 cut", 502, {}, HTML[:30], "server_error", 0),
    ("F7 other", 502, {}, b"<?xml version='1.0'?><Error/>", "server_error", 0),
    ("F9", 504, {}, error_body(504, "DEADLINE_EXCEEDED", "Deadline expired."), "server_error", 0),
    ("F9 408", 408, {}, b"", "server_error", 0),
    ("F10 key", 400, {}, error_body(400, "INVALID_ARGUMENT", f"API key {KEY} not valid.", BAD_KEY), "auth", 0),
    ("F10 words", 400, {}, error_body(400, "INVALID_ARGUMENT", "API key expired. Please renew."), "auth", 0),
    ("F10 403", 403, {}, error_body(403, "PERMISSION_DENIED", f"Consumer 'api_key:{KEY}' is suspended."), "auth", 0),
    ("F10 401", 401, {}, error_body(401, "UNAUTHENTICATED", "token 0123abcd0123abcd0123abcd"), "auth", 0),
    ("F10 elsewhere", 500, {}, error_body(500, "INTERNAL", f"at /v1beta?key={KEY}: failed"), "server_error", 0),
    ("F11", 404, {}, error_body(404, "NOT_FOUND", "models/x is not found for API version v1beta"), "not_found", 0),
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
    ("list", 429, {}, b"[" + error_body(429, "RESOURCE_EXHAUSTED", "no", RETRY) + b"]", "rate_limit", 34),
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
RETRIED = {"rate_limit", "quota", "overloaded", "server_error", "network"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "after"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES]
)
def test_a_failure_is_named(status: int, headers: dict[str, str], body: bytes, kind: str, after: float) -> None:
    error = GEMINI.failure(status, headers, body)
    assert error.kind == kind
    if kind in RETRIED:
        assert isinstance(error, ModelUnavailable)
        assert error.after_seconds == after
    else:
        assert isinstance(error, ModelRejected)
    message = str(error)
    assert message.isprintable()
    assert len(message) < 600
    assert "<" not in message
    assert KEY not in message
    assert "0123abcd" not in message


def test_a_refused_schema_names_its_tool() -> None:
    assert "tool number 4" in str(GEMINI.failure(400, {}, error_body(400, "INVALID_ARGUMENT", SCHEMA)))
    assert "tool read_file" in str(GEMINI.failure(400, {}, error_body(400, "INVALID_ARGUMENT", VERTEX)))


def test_a_failure_says_the_providers_words_and_not_too_many() -> None:
    assert (
        str(GEMINI.failure(404, {}, error_body(404, "NOT_FOUND", "no\nsuch\tmodel")))
        == "HTTP 404 NOT_FOUND: no such model"
    )
    assert len(str(GEMINI.failure(400, {}, error_body(400, "X" * 9999, "token count " * 99999)))) < 700


# The fault catalogue: what a stream becomes.

DELTAS = [
    reply_chunk([{"text": "a"}], None),
    reply_chunk([{"text": "b"}], None),
    reply_chunk([call_part("f", {})], None),
]
CUT_JSON = b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}'


def stream_error(code: int, status: str, *details: dict[str, Any]) -> bytes:
    return sse([*DELTAS, {"error": {"code": code, "status": status, "message": "m", "details": list(details)}}])


BROKEN_STREAMS: list[tuple[str, bytes, type[ModelError], str]] = [
    ("F1", stream_error(429, "RESOURCE_EXHAUSTED", RETRY), ModelUnavailable, "rate_limit"),
    ("F4", stream_error(503, "UNAVAILABLE"), ModelUnavailable, "overloaded"),
    ("F5", stream_error(500, "INTERNAL"), ModelUnavailable, "server_error"),
    ("F5 no code", sse([{"error": {"message": "m"}}]), ModelUnavailable, "server_error"),
    ("F5 text", sse([{"error": "m"}]), ModelUnavailable, "server_error"),
    ("F12", sse([{"error": {"code": 400, "message": TOO_LONG}}]), ModelRejected, "context_exhausted"),
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
    ("F28 deep", b'data: {"x":' + b"[" * 9999 + b"]" * 9999 + b"}\n\n", ModelUnavailable, "server_error"),
    ("F30", b'data: {"x":"' + b"a" * (9 << 20), ModelRejected, "response_too_large"),
    ("F48", sse([*DELTAS, reply_chunk([], "OTHER")]), ModelUnavailable, "server_error"),
    ("F48 unknown", sse([*DELTAS, reply_chunk([], "PAUSED_BY_SOMETHING_NEW")]), ModelUnavailable, "server_error"),
    ("unsigned", sse([reply_chunk([], "MISSING_THOUGHT_SIGNATURE")]), ModelRejected, "invalid_request"),
]


@pytest.mark.parametrize(("body", "error", "kind"), [f[1:] for f in BROKEN_STREAMS], ids=[f[0] for f in BROKEN_STREAMS])
def test_a_broken_stream_gives_no_reply(body: bytes, error: type[ModelError], kind: str) -> None:
    with pytest.raises(error) as caught:
        decoded(body)
    assert caught.value.kind == kind


def test_an_error_inside_a_stream_is_raised_at_once() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        GEMINI.decoder(STREAM).feed(stream_error(429, "RESOURCE_EXHAUSTED", RETRY))
    assert caught.value.after_seconds == 34
    for bad in (b"data: {]\n\n", sse([reply_chunk([{"text": []}])])):
        with pytest.raises(ModelUnavailable):
            GEMINI.decoder(STREAM).feed(bad)


def test_an_error_in_a_body_without_streaming_is_raised() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        decoded(error_body(503, "UNAVAILABLE", OVERLOADED), options=WHOLE)
    assert caught.value.kind == "overloaded"


@pytest.mark.parametrize("options", [STREAM, WHOLE], ids=["stream", "whole"])
def test_a_body_has_a_size_limit(options: Options) -> None:
    decoder = GEMINI.decoder(options)
    piece = b": " + b"x" * (4 << 20) + b"\n\n"
    with pytest.raises(ModelRejected) as caught:
        for _ in range(17):
            decoder.feed(piece)
    assert caught.value.kind == "response_too_large"


END = Usage(input=7, output=2)
USED = {"promptTokenCount": 7, "candidatesTokenCount": 2}
PLAIN = Reply(message=Assistant(text="ab", calls=(Call(id="call_0", name="f"),)), stop="calls")
READ: list[tuple[str, bytes, Reply]] = [
    (
        "F32 call",
        sse([c := reply_chunk([call_part("f", {}, "i")], None), c, reply_chunk([])]),
        Reply(message=Assistant(calls=(Call(id="i", name="f"),)), stop="calls"),
    ),
    ("F34 twice", sse([*DELTAS, reply_chunk([]), reply_chunk([{"text": "late"}], "OTHER")]), PLAIN),
    (
        "F34 junk",
        sse([*DELTAS, reply_chunk([])]) + b"data: [DONE]\n\ndata: {\n\n" + stream_error(500, "INTERNAL"),
        PLAIN,
    ),
    ("F38 none", sse([{"usageMetadata": USED, "modelVersion": "m"}]), Reply(message=Assistant(), usage=END, model="m")),
    ("F38 list", sse([{"candidates": []}]), Reply(message=Assistant())),
    ("F38 content", sse([{"candidates": [{"content": {}, "finishReason": "STOP"}]}]), Reply(message=Assistant())),
    ("F38 null", sse([{"candidates": [{"content": None, "finishReason": "STOP"}]}]), Reply(message=Assistant())),
    ("F39", sse([*DELTAS, reply_chunk([], "MAX_TOKENS")]), msgspec.structs.replace(PLAIN, stop="length")),
    ("F39 hop", sse([*DELTAS, reply_chunk([], "CONTINUATION")]), msgspec.structs.replace(PLAIN, stop="length")),
    (
        "F41",
        sse([reply_chunk([], "MALFORMED_FUNCTION_CALL", usageMetadata=USED)]),
        Reply(message=Assistant(), usage=END),
    ),
    ("F41 text", sse([*DELTAS, reply_chunk([], "UNEXPECTED_TOOL_CALL")]), Reply(message=Assistant())),
    (
        "F42",
        sse([reply_chunk([call_part("f", "{}")])]),
        Reply(message=Assistant(calls=(Call(id="call_0", name="f", args='"{}"'),)), stop="calls"),
    ),
    (
        "F44",
        sse([reply_chunk([call_part("default_api.read", None)])]),
        Reply(message=Assistant(calls=(Call(id="call_0", name="default_api.read"),)), stop="calls"),
    ),
    (
        "F44 none",
        sse([reply_chunk([{"functionCall": {}}])]),
        Reply(message=Assistant(calls=(Call(id="call_0", name=""),)), stop="calls"),
    ),
    (
        "F50",
        b'data: {"candidates":[{"content":{"parts":[{"text":"'
        b"\\ud800\\u0000\\\\ud800\xff\xe2\x80\xa8\xf0\x9f\x99\x82\\ud83d\\ude42"
        b'"}]},"finishReason":"STOP"}]}\n\n',
        Reply(message=Assistant(text="\ufffd\x00\\ud800\ufffd\u2028\U0001f642\U0001f642")),
    ),
    (
        "F51",
        sse(
            [reply_chunk([{"text": "a"}], None, modelVersion="x"), reply_chunk([], modelVersion="y", responseId="old")]
        ),
        Reply(message=Assistant(text="a"), model="y"),
    ),
]


@pytest.mark.parametrize(("body", "reply"), [f[1:] for f in READ], ids=[f[0] for f in READ])
def test_an_odd_stream_is_read(body: bytes, reply: Reply) -> None:
    assert decoded(body)[1] == reply
    for cut in range(1, len(body)):
        assert decoded(body[:cut], body[cut:])[1] == reply


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"}}, "PROHIBITED_CONTENT: no"),
    (reply_chunk([{"text": "half"}], "SAFETY"), "SAFETY"),
    (reply_chunk([], "RECITATION"), "RECITATION"),
    (reply_chunk([], "PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
    ({"candidates": [{"finishReason": "SPII", "finishMessage": "private data"}]}, "SPII: private data"),
]


@pytest.mark.parametrize(("chunk", "why"), REFUSALS, ids=[w for _, w in REFUSALS])
@pytest.mark.parametrize("options", [STREAM, WHOLE], ids=["stream", "whole"])
def test_a_refusal_ends_the_reply_and_says_why(chunk: dict[str, Any], why: str, options: Options) -> None:
    chunk = chunk | {"usageMetadata": USED}
    reply = decoded(sse([chunk]) if options.stream else json.dumps(chunk).encode(), options=options)[1]
    assert (reply.stop, reply.usage, reply.message.calls, reply.message.opaque) == ("refusal", END, (), "")
    assert why in reply.message.text


def test_odd_framing_is_read() -> None:
    """F27: a byte-order mark, comments, other fields, no space, several data lines, any line end."""
    body = json.dumps(reply_chunk([{"text": "a"}, call_part("f", {"x": 1})], new=[{}]), indent=1)
    for end in ("\n", "\r\n", "\r"):
        lines = [": hi", "id: 3", "retry: 5", "event: odd", *(f"data:{line}" for line in body.splitlines()), "", ""]
        odd = b"\xef\xbb\xbf" + end.join(lines).encode()
        for cut in range(1, len(odd)):
            reply = decoded(odd[:cut], odd[cut:])[1]
            assert reply.message == Assistant(text="a", calls=(Call(id="call_0", name="f", args='{"x":1}'),))
