"""The Gemini dialect against the official SDK, its signatures and thoughts, calls and ids."""

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

from retinue.core.messages import (
    AssistantMessage,
    Image,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelUnavailable
from retinue.models.codec import Options, encode, units
from retinue.models.gemini import GeminiCodec
from tests.models.gemini_cases import case, responses, sse
from tests.models.gemini_support import GEMINI, KEY, STREAM, WHOLE, call_part, decoded, reply_chunk
from tests.repeats import times

N_REQUESTS = times(100)
N_STREAMS = times(100)


def sdk(answer: Callable[[httpx2.Request], httpx2.Response]) -> genai.Client:
    arguments = {"transport": httpx2.MockTransport(answer)}
    return genai.Client(
        api_key=KEY, http_options=types.HttpOptions(api_version="v1beta", client_args=arguments)
    )


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda m: m[1].upper(), name)


def as_we_spell(value: Any, inside: str = "") -> Any:
    """Field names of the API in camel case and bytes in plain base64; what a user or a model wrote
    is left alone."""
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
    value = json.loads(
        GEMINI.head("m", "", [], options) + joined + GEMINI.tail(max_output, options)
    )
    assert isinstance(value, dict)
    return value


def test_a_request_is_what_the_official_sdk_sends() -> None:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        whole = b'{"candidates":[{"finishReason":"STOP"}]}'
        return httpx2.Response(
            200,
            content=b"data: " + whole + b"\r\n\r\n" if b"alt=sse" in request.url.query else whole,
        )

    client = sdk(answer)
    rng = random.Random(31)
    for n in range(N_REQUESTS):
        one = case(rng)
        if one.options.stream:
            list(
                client.models.generate_content_stream(
                    model=one.model, contents=list(one.contents), config=one.config
                )
            )
        else:
            client.models.generate_content(
                model=one.model, contents=list(one.contents), config=one.config
            )
        theirs = requests.pop()
        joined = b",".join(GEMINI.unit(part, mark=n % 2 == 0) for part in units(one.messages))
        head = GEMINI.head(one.model, one.instructions, one.tools, one.options)
        ours = head + joined + GEMINI.tail(one.max_output, one.options)
        assert json.loads(ours) == as_we_spell(json.loads(theirs.content)), n
        assert GEMINI.path(one.model, one.options) == theirs.url.raw_path.decode(), n
        for name in ("x-goog-api-key", "content-type"):
            assert GEMINI.headers(KEY)[name] == theirs.headers[name]


def found_by_the_sdk(chunks: list[types.GenerateContentResponse]) -> ModelReply:
    """A reply from the SDK's objects, by the rules that the codec has to keep."""
    text, model, reason = "", "", None
    calls, usage = [], dict.fromkeys(("p", "t", "c", "o", "th"), 0)
    for chunk in chunks:
        model = chunk.model_version or model
        if (used := chunk.usage_metadata) is not None:
            texts = {
                "p": used.prompt_token_count,
                "t": used.tool_use_prompt_token_count,
                "c": used.cached_content_token_count,
                "o": used.candidates_token_count,
                "th": used.thoughts_token_count,
            }
            usage |= {k: max(v, usage[k]) for k, v in texts.items() if v is not None}
        for candidate in chunk.candidates or []:
            reason = candidate.finish_reason or reason
            for part in (candidate.content.parts if candidate.content else None) or []:
                if part.function_call is not None:
                    calls.append(part.function_call)
                elif part.text and not part.thought:
                    text += part.text
    assert reason is not None
    named = [
        ToolCall(
            id=c.id or f"call_{n}",
            name=c.name or "",
            arguments_json=json.dumps(c.args or {}, sort_keys=True),
        )
        for n, c in enumerate(calls)
    ]
    spent = Usage(
        input=usage["p"] + usage["t"], output=usage["o"] + usage["th"], cache_read=usage["c"]
    )
    ends = {
        "STOP": "calls" if named else "end",
        "MAX_TOKENS": "length",
        "MALFORMED_FUNCTION_CALL": "end",
    }
    stop = ends.get(reason.value, "refusal")
    if stop == "refusal":
        text, named = f"The provider refused to answer ({reason.value}).", []
    if reason.value == "MALFORMED_FUNCTION_CALL":
        text, named = "", []
    return ModelReply(
        message=AssistantMessage(text=text, calls=tuple(named)), usage=spent, stop=stop, model=model
    )  # type: ignore[arg-type]


def comparable(reply: ModelReply) -> ModelReply:
    """Without what the SDK's objects do not have, and with sorted arguments."""
    calls = tuple(
        ToolCall(
            id=c.id,
            name=c.name,
            arguments_json=json.dumps(json.loads(c.arguments_json), sort_keys=True),
        )
        for c in reply.message.calls
    )
    return msgspec.structs.replace(
        reply, message=AssistantMessage(text=reply.message.text, calls=calls)
    )


def test_a_stream_is_read_as_the_official_sdk_reads_it_wherever_it_is_cut() -> None:
    body = b""
    client = sdk(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    )
    rng = random.Random(17)
    for n in range(N_STREAMS):
        is_long = n % 20 == 0
        body = sse(responses(rng, 8 if is_long else 1 + n % 2), rng)
        theirs = found_by_the_sdk(
            list(client.models.generate_content_stream(model="m", contents="x"))
        )
        record, whole = decoded(body)
        assert comparable(whole) == theirs, body
        if whole.stop != "refusal" and (whole.message.text or whole.message.calls):
            assert record == whole.message.text
        for position in range(1, len(body)):
            assert decoded(body[:position], body[position:]) == (record, whole), (body, position)
        if is_long:
            assert decoded(*(body[i : i + 1] for i in range(len(body)))) == (record, whole)


def test_a_body_without_streaming_is_read_as_the_official_sdk_reads_it() -> None:
    body = b""
    client = sdk(
        lambda _: httpx2.Response(200, headers={"content-type": "application/json"}, content=body)
    )
    rng = random.Random(5)
    for _ in range(100):
        chunks = responses(rng, 4)
        merged = chunks[-1] | {"candidates": [chunks[-1]["candidates"][0]]}
        parts = [p for c in chunks for p in c["candidates"][0].get("content", {}).get("parts", [])]
        merged["candidates"][0]["content"] = {"parts": parts, "role": "model"}
        body = json.dumps(merged, indent=rng.choice([None, 2])).encode()
        theirs = found_by_the_sdk([client.models.generate_content(model="m", contents="x")])
        for position in range(1, len(body), 31):
            _, ours = decoded(body[:position], body[position:], options=WHOLE)
            assert comparable(ours) == theirs, body


def test_nothing_half_received_is_returned() -> None:
    rng = random.Random(23)
    for _ in range(60):
        body = sse(responses(rng, 3), rng)
        _, whole = decoded(body)
        for position in range(len(body)):
            decoder = GEMINI.decoder(STREAM)
            decoder.feed(body[:position])
            if position >= len(body) - 4:
                assert decoder.finish() == whole
            else:
                with pytest.raises(ModelUnavailable) as failure:
                    decoder.finish()
                assert failure.value.kind == "network"
                assert not decoder.done


def test_half_a_body_without_streaming_is_a_network_fault() -> None:
    body = json.dumps(reply_chunk([{"text": "x"}, call_part("f", {"a": {"b": {}}})])).encode()
    for position in range(len(body)):
        with pytest.raises(ModelUnavailable) as failure:
            decoded(body[:position], options=WHOLE)
        assert failure.value.kind == "network"
    assert decoded(body, options=WHOLE)[1].message.text == "x"


def reply_to(*chunks: dict[str, Any]) -> ModelReply:
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
    results = [ToolMessage(call_id=c.id, text=c.name) for c in message.calls]
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
    reply = reply_to(
        reply_chunk(
            [{"text": "thinking", "thought": True}, {"text": "hi"}, call_part("f", {}, "i")]
        )
    )
    assert reply.message == AssistantMessage(text="hi", calls=(ToolCall(id="i", name="f"),))


def test_what_was_kept_for_other_words_is_not_used() -> None:
    message = reply_to(
        reply_chunk([{"text": "hello"}, call_part("f", {}, thoughtSignature="QQ==")])
    ).message
    changed = msgspec.structs.replace(message, text="other")
    assert b"QQ==" in GEMINI.unit([message])
    assert b"QQ==" in GEMINI.unit([changed])
    for other_message in (
        msgspec.structs.replace(message, text="a longer text"),
        msgspec.structs.replace(message, calls=()),
        msgspec.structs.replace(message, opaque="gemini\n[{"),
        msgspec.structs.replace(message, opaque="openai\n[5,null]"),
    ):
        assert b"QQ==" not in GEMINI.unit([other_message])
        assert json.loads(GEMINI.unit([other_message]))["parts"][0] == {"text": other_message.text}


def test_thoughts_are_not_text() -> None:
    text, reply = decoded(
        sse(
            [
                reply_chunk(
                    [{"text": "hm", "thought": True, "thoughtSignature": "QQ=="}, {"text": "yes"}]
                )
            ]
        )
    )
    assert (text, reply.message.text) == ("yes", "yes")
    assert json.loads(GEMINI.unit([reply.message]))["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "QQ=="},
        {"text": "yes"},
    ]


def test_a_signed_call_that_cannot_go_back_keeps_its_signature() -> None:
    message = reply_to(reply_chunk([call_part("", "text", "i", thoughtSignature="QQ==")])).message
    assert message.calls == (ToolCall(id="i", name="", arguments_json='"text"'),)
    model, user = json.loads(
        b"[" + GEMINI.unit([message, ToolMessage(call_id="i", text="?")]) + b"]"
    )
    assert model["parts"] == [
        {
            "functionCall": {"id": "i", "name": "_", "args": {"invalid_json": '"text"'}},
            "thoughtSignature": "QQ==",
        }
    ]
    assert user["parts"][0]["functionResponse"]["name"] == "_"


# Calls and their ids.


def test_calls_without_ids_get_ids_that_are_not_sent_back() -> None:
    message = reply_to(
        reply_chunk([call_part("f", {}), call_part("f", {}), call_part("g", {}, "own")])
    ).message
    assert [c.id for c in message.calls] == ["call_0", "call_1", "own"]
    unit = GEMINI.unit([message, *(ToolMessage(call_id=c.id, text="r") for c in message.calls)])
    assert b"call_" not in unit
    assert unit.count(b'"id":"own"') == 2


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
    value = json.loads(
        b"["
        + GEMINI.unit([message, *(ToolMessage(call_id=c.id, text=c.id) for c in message.calls)])
        + b"]"
    )
    assert value[0]["parts"][0] == parts[0]
    # An id that another call has is left out on both sides: the pair is found by its place.
    assert value[0]["parts"][1]["functionCall"] == {"name": "f", "args": {"n": 1}}
    assert value[0]["parts"][1]["thoughtSignature"] == "QQ=="
    assert [p["functionResponse"].get("id") for p in value[1]["parts"]] == ["a", None]


def test_two_hundred_calls_are_read() -> None:
    message = reply_to(reply_chunk([call_part("f", {"n": n}) for n in range(200)])).message
    assert [json.loads(c.arguments_json) for c in message.calls] == [{"n": n} for n in range(200)]


def test_a_name_that_no_function_can_have_is_made_valid_on_both_sides() -> None:
    message = AssistantMessage(calls=(ToolCall(id="x", name="9 lives!"), ToolCall(id="y", name="")))
    value = json.loads(
        b"["
        + GEMINI.unit(
            [message, ToolMessage(call_id="x", text="1"), ToolMessage(call_id="y", text="2")]
        )
        + b"]"
    )
    assert [p["functionCall"]["name"] for p in value[0]["parts"]] == ["_9_lives_", "_"]
    assert [p["functionResponse"]["name"] for p in value[1]["parts"]] == ["_9_lives_", "_"]


def test_arguments_that_are_too_deep_are_kept_as_text() -> None:
    deep = '{"a":' + "[" * 5000 + "]" * 5000 + "}"
    assert json.loads(
        GEMINI.unit([AssistantMessage(calls=(ToolCall(id="x", name="f", arguments_json=deep),))])
    )["parts"] == [{"functionCall": {"id": "x", "name": "f", "args": {"invalid_json": deep}}}]


# Texts and odd values.


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\u202e", "\udfff\ud800x", "\U0010ffff"])
def test_odd_text_is_sent_without_an_exception(text: str) -> None:
    image = Image(media_type="image/png", data="AA==")
    message = AssistantMessage(
        text=text,
        calls=(ToolCall(id=text, name=text, arguments_json=text),),
        opaque=f"gemini\n{text}",
    )
    messages = [
        UserMessage(text=text, images=(image,)),
        message,
        ToolMessage(call_id=text, text=text, error=True),
    ]
    tools = [ToolSchema(name="t", description=text, parameters={"title": text, text: [text]})]
    body = encode(GEMINI, "m", text, messages, tools, STREAM, 5)
    assert json.loads(body)["contents"][0]["parts"][0]["text"] in (
        text,
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    )


def test_empty_messages_are_still_contents() -> None:
    contents = body_of([UserMessage(text=""), AssistantMessage(), UserMessage(text="")])["contents"]
    assert [c["parts"] for c in contents] == [[{"text": "(empty)"}]] * 3


def test_encoding_is_stateless_and_joins_like_the_port_says() -> None:
    messages = [UserMessage(text="a"), UserMessage(text="b"), AssistantMessage(text="c")]
    body = encode(GEMINI, "m", "sys", messages, [], STREAM, 5)
    assert body == encode(GeminiCodec(), "m", "sys", messages, [], STREAM, 5)
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
    head = (
        GEMINI.head("m", "", [tool], options)
        + GEMINI.unit([UserMessage(text="x")])
        + GEMINI.tail(1, options)
    )
    assert [
        head.count(f'"{name}":'.encode()) for name in ("tools", "contents", "generationConfig")
    ] == [1, 1, 1]
    body = json.loads(head)
    assert [list(t) for t in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["contents"] == [{"role": "user", "parts": [{"text": "x"}]}]
    assert body["generationConfig"]["thinkingConfig"] == {
        "thinkingLevel": "LOW",
        "includeThoughts": True,
    }


def test_without_a_key_no_key_is_sent() -> None:
    assert "x-goog-api-key" not in GEMINI.headers("")


def test_other_candidates_are_left_out() -> None:
    chunk = {
        "candidates": [
            {"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "OTHER"}
        ]
    }
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
