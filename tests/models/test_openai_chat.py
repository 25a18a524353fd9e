"""The Chat Completions codec against the provider's own SDK, and against the faults and oddities of real servers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import completion_create_params as params

from retinue.core.values import Assistant, Call, Image, Message, Reply, Result, ToolSchema, Usage, User
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models import openai_chat
from retinue.models.codec import Codec, Options, encode, keep_opaque
from retinue.models.openai_chat import FILTERED, MAX_BODY, NOTHING_SAID, OpenAIChat
from tests.models import openai_chat_cases as cases
from tests.models.openai_chat_cases import KEY, wrong

N_CONVERSATIONS = 500
N_STREAMS = 500
N_LONG = 60
N_SHARDS = 5

# The kinds of failure that are worth another try; all others are final.
RETRIED = {"rate_limit", "quota", "overloaded", "network", "server_error"}
STREAMING = pydantic.TypeAdapter(params.CompletionCreateParamsStreaming)
WHOLE = pydantic.TypeAdapter(params.CompletionCreateParamsNonStreaming)


def client(answer: Any) -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return openai.AsyncOpenAI(api_key=KEY, base_url="http://model.test/v1", http_client=http, max_retries=0)


def drained(value: Any) -> Any:
    """Typed params are checked lazily: an iterable inside is checked when it is read."""
    if isinstance(value, Mapping):
        return {name: drained(item) for name, item in value.items()}
    return value if isinstance(value, str) or not isinstance(value, Iterator | list) else [drained(v) for v in value]


def sdk_call(case: cases.Conversation) -> dict[str, Any]:
    """The same request in the SDK's own parameters, written from its documentation and not from the codec."""
    asked = case.options
    call: dict[str, Any] = {"model": case.model, "messages": sdk_messages(case), "extra_body": dict(asked.extra)}
    call[case.codec.limit_field] = case.max_output
    if asked.stream:
        call["stream"] = True
        if case.codec.stream_options:
            call["stream_options"] = {"include_usage": True}
    if asked.temperature is not None:
        call["temperature"] = asked.temperature
    if asked.effort:
        call["reasoning_effort"] = asked.effort
    if asked.cache_key and case.codec.cache_key:
        call["prompt_cache_key"] = asked.cache_key
    if asked.output_schema:
        named = {"name": "output", "schema": asked.output_schema, "strict": case.codec.strict_schema}
        call["response_format"] = {"type": "json_schema", "json_schema": named}
    if case.tools:
        call["tools"] = []
    for tool in case.tools:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        call["tools"].append({"type": "function", "function": function})
    return call


def sdk_messages(case: cases.Conversation) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if case.instructions:
        out.append({"role": case.codec.system_role, "content": case.instructions})
    seen: list[dict[str, Any]] = []  # pictures of the results of one reply
    for at, message in enumerate(case.messages):
        if isinstance(message, User):
            content: Any = message.text
            if message.images:
                content = [{"type": "text", "text": message.text}] if message.text else []
                content += [{"type": "image_url", "image_url": {"url": url(image)}} for image in message.images]
            out += sdk_user(case, content)
        elif isinstance(message, Assistant):
            said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
            if message.calls:
                said["tool_calls"] = [sdk_tool_call(call) for call in message.calls]
            if at in case.thoughts:
                said[case.codec.reasoning] = case.thoughts[at]
            elif message.calls and case.codec.reasoning == "reasoning_content":
                said["reasoning_content"] = ""
            out.append(said)
        else:
            out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
            if message.images:
                seen.append({"type": "text", "text": f"Images in the result of {message.name} ({message.call_id}):"})
                seen += [{"type": "image_url", "image_url": {"url": url(image)}} for image in message.images]
        if seen and (at + 1 == len(case.messages) or not isinstance(case.messages[at + 1], Result)):
            out += sdk_user(case, seen)
            seen = []
    return out


def sdk_user(case: cases.Conversation, content: Any) -> list[dict[str, Any]]:
    before = [{"role": "assistant", "content": case.codec.bridge}] if case.codec.bridge else []
    return [*before, {"role": "user", "content": content}]


def sdk_tool_call(call: Call) -> dict[str, Any]:
    args = call.args
    try:
        is_object = isinstance(json.loads(args), dict)
    except ValueError:
        is_object = False
    if not is_object:
        args = json.dumps({"invalid_json": args} if args.strip() else {}, separators=(",", ":"), ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": args}}


def url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.data}"


def ours(case: cases.Conversation) -> bytes:
    return encode(case.codec, case.model, case.instructions, case.messages, case.tools, case.options, case.max_output)


def test_a_request_is_what_the_sdk_sends() -> None:
    """No key differs on purpose. What the SDK has no parameter for (`extra`, reasoning that goes back) it is given as
    extra body and extra fields of a message."""

    async def compare() -> int:
        sent: list[Any] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            sent.append(json.loads(request.content))
            return httpx2.Response(200, json={"id": "c", "object": "chat.completion", "choices": []})

        sdk = client(answer)
        for seed in range(N_CONVERSATIONS):
            case = cases.conversation(seed)
            call = sdk_call(case)
            typed = {name: value for name, value in call.items() if name != "extra_body"}
            drained((STREAMING if case.options.stream else WHOLE).validate_python(typed))
            await sdk.chat.completions.create(**call)
            assert json.loads(ours(case)) == sent[-1], seed
        return len(sent)

    assert asyncio.run(compare()) == N_CONVERSATIONS


def test_generated_requests_cover_what_there_is() -> None:
    bodies = b"\n".join(ours(cases.conversation(seed)) for seed in range(N_CONVERSATIONS)).decode()
    for needle in [
        "image_url",
        "tool_calls",
        "invalid_json",
        "json_schema",
        "Noted.",
        "reasoning_details",
        "max_tokens",
    ]:
        assert bodies.count(needle) > 10, needle


def test_a_unit_is_encoded_the_same_every_time_and_apart_from_the_others() -> None:
    for seed in range(100):
        case = cases.conversation(seed)
        assert ours(case) == ours(cases.conversation(seed))
        longer = [*case.messages, User(text="and now?")]
        cut = len(case.codec.tail(case.max_output))
        case.messages, before = longer, ours(case)
        assert ours(case).startswith(before[:-cut])


async def sdk_reply(sdk: openai.AsyncOpenAI) -> Any:
    state: Any = ChatCompletionStreamState()
    async for chunk in await sdk.chat.completions.create(model="m", messages=[], stream=True):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot


def decoded(data: bytes, codec: OpenAIChat | None = None, *cuts: int) -> Reply:
    decoder = (codec or OpenAIChat()).decoder(Options())
    shown: list[str] = []
    for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True):
        shown += decoder.feed(data[a:b])
    reply = decoder.finish()
    if shown:  # what was shown is what is kept, but for the word about a filter
        assert reply.message.text.replace(FILTERED, "").rstrip("\n") == "".join(shown).rstrip("\n")
    assert decoder.done
    return reply


STOPS = {"stop": "end", "tool_calls": "calls", "length": "length", "content_filter": "refusal"}


def same(reply: Reply, told: Any, case: cases.Stream) -> None:
    """Our reply and the SDK's, of the same bytes."""
    choice = told.choices[0]
    said, used = choice.message, told.usage
    text = (said.content or "") + (said.refusal or "")
    expected = "refusal" if said.refusal else STOPS[choice.finish_reason]
    if expected == "end" and said.tool_calls:
        expected = "calls"
    assert reply.stop == expected
    if choice.finish_reason == "content_filter" and not said.refusal:
        text += ("\n\n" if text else "") + FILTERED
    assert reply.message.text == text
    theirs = [(call.id, call.function.name, call.function.arguments) for call in said.tool_calls or []]
    assert [(call.id, call.name, call.args) for call in reply.message.calls] == theirs == case.calls
    assert reply.model == told.model
    thought = getattr(said, "reasoning_content", None) or ""
    assert thought == case.thought
    opaque = json.dumps({"reasoning_content": thought}, ensure_ascii=False, separators=(",", ":"))
    kept = reply.message.opaque.partition("\n")[2]
    assert json.loads(kept or "{}") == (json.loads(opaque) if thought else {})
    if used is None:
        assert reply.usage == Usage()
        return
    assert (reply.usage.input, reply.usage.output) == (used.prompt_tokens, used.completion_tokens)
    details = used.prompt_tokens_details
    cached = (details.cached_tokens, details.cache_write_tokens) if details else (0, 0)
    assert (reply.usage.cache_read, reply.usage.cache_write) == cached


@pytest.mark.parametrize("shard", range(N_SHARDS))
def test_a_stream_says_what_the_sdk_reads_however_it_is_cut(shard: int) -> None:
    """Short streams are cut in two at every byte; all are also read byte by byte."""
    codec = OpenAIChat(reasoning="reasoning_content")
    n_cuts = 0

    async def compare() -> None:
        nonlocal n_cuts
        current = b""

        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=current)

        sdk = client(answer)
        for seed in range(shard, N_STREAMS + N_LONG, N_SHARDS):
            case = cases.stream(seed, long=seed >= N_STREAMS)
            current = data = case.data
            told = await sdk_reply(sdk)
            whole = decoded(data, codec)
            same(whole, told, case)
            assert decoded(data, codec, *range(1, len(data))) == whole, seed
            for at in range(1, len(data), 1 if seed < N_STREAMS else 29):
                decoder = codec.decoder(Options())
                decoder.feed(data[:at])
                decoder.feed(data[at:])
                assert decoder.finish() == whole, (seed, at)
                n_cuts += 1

    asyncio.run(compare())
    assert n_cuts > 250 * N_STREAMS // N_SHARDS


def test_a_single_body_says_what_the_sdk_reads() -> None:
    codec = OpenAIChat(reasoning="reasoning_content")

    async def compare() -> None:
        current = b""

        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={"content-type": "application/json"}, content=current)

        sdk = client(answer)
        for seed in range(N_STREAMS):
            case = cases.stream(seed, long=seed % 5 == 0)
            current = case.body
            told = await sdk.chat.completions.create(model="m", messages=[])
            for cuts in [(), (1,), (len(case.body) // 2,), range(1, len(case.body) if seed % 10 == 0 else 1)]:
                decoder = codec.decoder(Options(stream=False))
                for a, b in zip((0, *cuts), (*cuts, len(case.body)), strict=True):
                    assert decoder.feed(case.body[a:b]) == []
                same(decoder.finish(), told, case)

    asyncio.run(compare())


def test_a_cut_stream_is_never_a_reply() -> None:
    for seed in range(12):
        data = cases.stream(seed, long=seed == 0).data
        end = data.index(b"data: [DONE]") + len(b"data: [DONE]")
        for at in range(end):
            decoder = OpenAIChat().decoder(Options())
            with pytest.raises(ModelUnavailable) as caught:
                decoder.feed(data[:at])
                decoder.finish()
            assert caught.value.kind == "network"
        assert decoded(data[:end]) == decoded(data)


def test_a_cut_body_is_never_a_reply() -> None:
    body = cases.stream(3).body
    for at in range(len(body)):
        decoder = OpenAIChat().decoder(Options(stream=False))
        decoder.feed(body[:at])
        with pytest.raises(ModelUnavailable) as caught:
            decoder.finish()
        assert caught.value.kind == "network"


def sse(*chunks: Any, done: bool = True) -> bytes:
    lines = [f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks]
    return ("".join(lines) + "data: [DONE]\n\n" * done).encode()


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def tool(name: str | None = None, args: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": args}
    return {**fields, "function": {key: value for key, value in function.items() if value is not None}}


def calls(*deltas: Any, reason: str = "tool_calls") -> list[tuple[str, str, str]]:
    chunks = [delta(tool_calls=d if isinstance(d, list) else [d]) for d in deltas]
    data = sse(*chunks, delta(reason))
    reply = decoded(data)
    assert reply.stop == "calls"
    assert all(decoded(data, None, at) == reply for at in range(1, len(data), 7 + len(data) // 50))
    return [(call.id, call.name, call.args) for call in reply.message.calls]


A, B = ("a", "read", '{"p":1}'), ("b", "read", '{"p":2}')


def test_a_server_may_leave_out_the_index() -> None:
    assert calls(tool("read", '{"p":1}', id="a"), tool("read", '{"p":2}', id="b")) == [A, B]
    assert calls([tool("read", '{"p":1}', id="a"), tool("read", '{"p":2}', id="b")]) == [A, B]
    assert calls(tool("read", '{"p', id="a"), tool(None, '":1}'), tool("read", "", id="b"), tool(None, '{"p":2}')) == [
        A,
        B,
    ]
    assert calls(tool("read", '{"p', id="a"), tool("read", '":1}', id="a"), tool("read", '{"p":2}', id="b")) == [A, B]


def test_a_server_may_leave_out_index_and_id() -> None:
    assert calls(tool("read", '{"p":1}'), tool("read", '{"p":2}')) == [("call_0", *A[1:]), ("call_1", *B[1:])]
    assert calls([tool("a", ""), tool("b", "")]) == [("call_0", "a", "{}"), ("call_1", "b", "{}")]
    assert calls(tool("a", '{"x":'), tool(None, "1}"), tool("b", "{}")) == [
        ("call_0", "a", '{"x":1}'),
        ("call_1", "b", "{}"),
    ]


def test_a_server_may_repeat_the_name_in_each_delta() -> None:
    pieces = ['{"p', '":', "1}"]
    assert calls(*(tool("read", piece, index=0, id="a") for piece in pieces)) == [A]
    assert calls(*(tool("read", piece, index=0) for piece in pieces)) == [("call_0", *A[1:])]
    assert calls(*(tool("read", piece) for piece in pieces)) == [("call_0", *A[1:])]
    assert calls(tool("read", '{"p', index=0, id="a"), tool("other", '":1}', index=0, id="a")) == [A]
    code = ['{"c":"if(x){}', '{}"}']
    assert calls(*(tool("read", piece) for piece in code)) == [("call_0", "read", "".join(code))]


def test_a_server_may_give_every_call_the_index_zero() -> None:
    assert calls(tool("read", '{"p":1}', index=0, id="a"), tool("read", '{"p":2}', index=0, id="b")) == [A, B]
    split = [tool("read", "", index=0, id="a"), tool(None, '{"p":1}', index=0)]
    assert calls(*split, tool("read", "", index=0, id="b"), tool(None, '{"p":2}', index=0)) == [A, B]
    assert calls(tool("read", '{"p":1}', index=0, id=""), tool("read", '{"p":2}', index=0, id="")) == [
        ("call_0", *A[1:]),
        ("call_1", *B[1:]),
    ]


def test_a_server_may_begin_with_any_index_or_send_the_name_in_pieces() -> None:
    assert calls(tool("read", '{"p":1}', index=7, id="a"), tool("read", '{"p":2}', index=9, id="b")) == [A, B]
    assert calls(tool("re", "", index=0, id="a"), tool("ad", "", index=0), tool(None, '{"p":1}', index=0)) == [A]


def test_a_server_may_make_a_new_id_for_each_delta() -> None:
    assert calls(tool("read", '{"p', index=0, id="a"), tool(None, '":1}', index=0, id="z")) == [A]
    assert calls(tool("read", '{"p', id="a"), tool(None, '":1}', id="z")) == [A]


def test_a_server_may_send_arguments_as_an_object() -> None:
    assert calls(tool("read", {"p": 1}, index=0, id="a")) == [A]


def test_calls_count_whatever_the_finish_reason_is() -> None:
    assert calls(tool("read", '{"p":1}', index=0, id="a"), reason="stop") == [A]
    assert decoded(sse(delta("tool_calls", content="hi"))).stop == "end"


def test_a_call_may_come_after_a_finish_reason() -> None:
    first = delta("tool_calls", tool_calls=[tool("read", '{"p":1}', index=0, id="a")])
    second = delta("tool_calls", tool_calls=[tool("read", '{"p":2}', index=0, id="b")])
    reply = decoded(sse(first, second, delta("stop", content="")))
    assert [(call.id, call.name, call.args) for call in reply.message.calls] == [A, B]


def test_ids_are_there_and_differ() -> None:
    whole = [tool("x", "{}", index=n, id=i) for n, i in enumerate(["", "a", "a", "call_0", "call_1"])]
    ids = [i for i, _, _ in calls(*whole)]
    assert ids[:2] == ["call_0", "a"]
    assert len(set(ids)) == 5
    assert all(ids)


def test_a_long_call_is_not_parsed_again_for_each_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(openai_chat, "_is_object", parsed.append)
    pieces = ['{"a":"', *(["}", "{"] * 1_000)]
    (call,) = decoded(
        sse(*(delta(tool_calls=[tool("x", piece, index=0)]) for piece in pieces), delta("stop"))
    ).message.calls
    assert call.args == "".join(pieces)
    assert 0 < len(parsed) <= 100


def test_reasoning_is_not_text_and_is_kept_only_for_a_server_that_wants_it() -> None:
    thinking = [delta(reasoning_content="hm "), delta(reasoning="so"), delta("stop", content="yes")]
    assert decoded(sse(*thinking)).message == Assistant(text="yes")
    kept = decoded(sse(*thinking), OpenAIChat(reasoning="reasoning_content")).message
    assert kept == Assistant(text="yes", opaque='openai_chat\n{"reasoning_content":"hm so"}')
    both = delta("stop", content="yes", reasoning_content="hm", reasoning="hm")
    assert decoded(sse(both), OpenAIChat(reasoning="reasoning")).message.opaque == 'openai_chat\n{"reasoning":"hm"}'


def test_reasoning_goes_back_byte_for_byte_and_to_its_own_kind_of_server_only() -> None:
    kept = '{"reasoning_content":"h\\u006d  <é>"}'
    said = Assistant(text="yes", opaque=keep_opaque("openai_chat", kept))
    sent = OpenAIChat(reasoning="reasoning_content").unit([said])
    assert kept[1:].encode() in sent
    assert json.loads(sent)["reasoning_content"] == "hm  <é>"
    for other in (OpenAIChat(), OpenAIChat(reasoning="reasoning")):
        assert json.loads(other.unit([said])) == {"role": "assistant", "content": "yes"}


def test_the_details_of_reasoning_are_joined_and_go_back() -> None:
    codec = OpenAIChat(reasoning="reasoning_details")
    parts = [
        [{"type": "reasoning.text", "text": "one ", "index": 0, "format": "f"}],
        [{"type": "reasoning.text", "text": "two", "index": 0, "signature": None}],
        [{"type": "reasoning.text", "signature": "c2ln", "index": 0}],
        [{"type": "reasoning.text", "text": "", "index": 0, "signature": None}],
        [
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
            {"type": "reasoning.encrypted", "data": "y", "index": 1},
        ],
        [{"type": "reasoning.text", "text": "three", "index": 2}],
    ]
    reply = decoded(sse(*(delta(reasoning_details=part) for part in parts), delta("stop", content="yes")), codec)
    assert json.loads(codec.unit([reply.message]))["reasoning_details"] == [
        {"type": "reasoning.text", "text": "one two", "index": 0, "format": "f", "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
        {"type": "reasoning.encrypted", "data": "y", "index": 1},
        {"type": "reasoning.text", "text": "three", "index": 2},
    ]


def test_content_may_be_a_list_with_thinking_in_it() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    chunk = delta("stop", content=[thinking, {"type": "text", "text": "yes"}])
    assert decoded(sse(chunk)).message.text == "yes"


def test_a_whole_message_at_the_end_of_a_stream_is_not_said_twice() -> None:
    last = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "hello"}}]}
    assert decoded(sse(delta(content="hel"), delta(content="lo"), last)).message.text == "hello"
    assert decoded(sse(last)).message.text == "hello"


def test_a_json_body_may_answer_a_request_for_a_stream() -> None:
    body = json.dumps({"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    assert decoded(f"\n \n{body}\n".encode()).message.text == "hi"
    with pytest.raises(ModelUnavailable, match="upstream"):
        decoded(b'{"error":{"code":502,"message":"upstream died"}}')


def test_a_server_without_the_marker_ends_with_its_finish_reason() -> None:
    lax = OpenAIChat(done_marker=False)
    assert decoded(sse(delta(content="hi"), delta("stop"), done=False), lax).message.text == "hi"
    assert decoded(sse(delta(content="hi"), delta("stop"), done=False)[:-2], lax).message.text == "hi"
    for data in (sse(delta(content="hi"), done=False), sse(done=False), sse(delta(), done=False)):
        with pytest.raises(ModelUnavailable) as caught:
            decoded(data, lax)
        assert caught.value.kind == "network"


def test_a_marker_without_a_finish_reason_does_not_complete_what_was_begun() -> None:
    for begun in (delta(content="hi"), delta(tool_calls=[tool("x", "{}", index=0)])):
        with pytest.raises(ModelUnavailable):
            decoded(sse(begun))


def test_usage_is_read_wherever_a_server_puts_it() -> None:
    def used(**fields: Any) -> Usage:
        return decoded(sse({**delta("stop", content="hi"), **fields})).usage

    plain = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert used(usage=plain) == Usage(input=10, output=5)
    assert used(usage=None, x_groq={"usage": plain}) == Usage(input=10, output=5)
    assert used(usage={**plain, "prompt_cache_hit_tokens": 8}) == Usage(input=10, output=5, cache_read=8)
    assert used(usage={**plain, "cached_tokens": 8}) == Usage(input=10, output=5, cache_read=8)
    # xAI: the total has the reasoning, the completion does not.
    thought = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45}
    assert used(usage={**thought, "completion_tokens_details": {"reasoning_tokens": 30}}) == Usage(input=10, output=35)
    assert (
        used(usage={"prompt_tokens": "x", "completion_tokens": 1e300, "total_tokens": None, "cached_tokens": -1})
        == Usage()
    )
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": plain}
    assert used(choices=[choice]) == Usage(input=10, output=5)
    twice = sse({**delta(content="a"), "usage": {"prompt_tokens": 1}}, {**delta("stop"), "usage": plain}, delta())
    assert decoded(twice).usage == Usage(input=10, output=5)


def test_only_what_carries_content_counts_as_content() -> None:
    decoder = OpenAIChat().decoder(Options())
    decoder.feed(b": keep-alive\n\n" + sse(delta(role="assistant", content=""), {"choices": []}, done=False))
    assert decoder.contents == 0
    decoder.feed(sse(delta(content="a"), delta(reasoning="b"), delta(tool_calls=[tool("x")]), done=False))
    assert decoder.contents == 3
    assert not decoder.done
    decoder.feed(sse(delta("stop")))
    assert decoder.done


def test_another_choice_is_not_mixed_in() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    assert decoded(sse(delta(content="yes"), other, delta("stop"))) == decoded(sse(delta(content="yes"), delta("stop")))


def test_ids_fit_the_server_and_match_their_results() -> None:
    long = "call_" + "x" * 60
    unit: list[Message] = [
        Assistant(calls=(Call(id=long, name="a"), Call(id="k" * 41, name="a"), Call(id="ok", name="a")))
    ]
    unit += [Result(call_id=call, text="") for call in (long, "k" * 41, "ok")]
    for codec, shape in [(OpenAIChat(), ".{1,40}"), (OpenAIChat(strict_ids=True), "[A-Za-z0-9]{9}")]:
        said, *results = json.loads(b"[" + codec.unit(unit) + b"]")
        ids = [call["id"] for call in said["tool_calls"]]
        assert ids == [result["tool_call_id"] for result in results]
        assert len(set(ids)) == 3
        assert all(re.fullmatch(shape, i) for i in ids)
    kept = OpenAIChat(strict_ids=True).unit([Assistant(calls=(Call(id="aB3dE6gH9", name="a"),))])
    assert b'"aB3dE6gH9"' in kept


@pytest.mark.parametrize("name", ["", "default_api.read", "functions read", "é" * 80, "a" * 80, "\ud800"])
def test_a_name_that_the_model_made_up_is_sent_in_a_form_that_is_taken(name: str) -> None:
    said = json.loads(OpenAIChat().unit([Assistant(calls=(Call(id="a", name=name),))]))
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", said["tool_calls"][0]["function"]["name"])


@pytest.mark.parametrize(
    "args", ["", "{", "[1]", '"{}"', "nul", "[" * 5_000, '{"a":' * 5_000, '{"a":"\\ud800"}', "\ud800"]
)
def test_arguments_that_are_no_object_are_sent_as_one(args: str) -> None:
    said = json.loads(OpenAIChat().unit([Assistant(calls=(Call(id="a", name="x", args=args),))]))
    sent = json.loads(said["tool_calls"][0]["function"]["arguments"])
    assert isinstance(sent, dict)
    assert set(sent) <= {"invalid_json"}


def test_a_reply_without_words_is_sent_with_some() -> None:
    assert json.loads(OpenAIChat().unit([Assistant()])) == {"role": "assistant", "content": NOTHING_SAID}


def test_half_a_character_does_not_stop_a_request() -> None:
    bad = "a\ud800b\x00"
    messages: list[Message] = [
        User(text=bad, images=(Image(media_type="image/png", data="AA=="),)),
        Assistant(
            text=bad,
            calls=(Call(id=bad, name=bad, args=bad),),
            opaque=keep_opaque("openai_chat", f'{{"reasoning":"{bad[:2]}"}}'),
        ),
        Result(call_id=bad, text=bad, name=bad, images=(Image(media_type="image/png", data="AA=="),)),
    ]
    schema = ToolSchema(name="x", description=bad, parameters={"type": "object", "description": bad})
    codec = OpenAIChat(reasoning="reasoning")
    body = encode(codec, "m", bad, messages, [schema], Options(output_schema={"description": bad}, cache_key=bad), 5)
    told = json.loads(body.decode())
    assert told["messages"][0]["content"] == "a\ufffdb\x00"
    assert told["messages"][2]["tool_calls"][0]["id"] == told["messages"][3]["tool_call_id"]


def test_an_empty_schema_is_still_a_schema() -> None:
    head = OpenAIChat().head("m", "", [], Options(output_schema={}))
    assert json.loads(head + b"]}")["response_format"]["json_schema"]["schema"] == {}


def test_extra_may_not_take_the_place_of_what_the_codec_writes() -> None:
    options = Options(extra={"messages": [], "max_completion_tokens": 1, "stream": False, "temperature": 1.0, "n": 1})
    body = encode(OpenAIChat(), "m", "", [User(text="hi")], [], options, 5)
    assert body.count(b'"messages"') == body.count(b'"max_completion_tokens"') == 1
    told = json.loads(body)
    assert told["messages"] == [{"role": "user", "content": "hi"}]
    assert (told["max_completion_tokens"], told["stream"], told["temperature"], told["n"]) == (5, True, 1.0, 1)


def test_paths_and_keys_are_those_of_the_sdk() -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={"choices": []})

    async def ask() -> None:
        await client(answer).chat.completions.create(model="m", messages=[])
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        azure = openai.AsyncAzureOpenAI(
            api_key=KEY, azure_endpoint="http://azure.test", api_version="2024-10-21", http_client=http, max_retries=0
        )
        await azure.chat.completions.create(model="gpt 4/x", messages=[])

    asyncio.run(ask())
    plain, azure = seen
    codec: Codec = OpenAIChat()
    assert str(plain.url) == "http://model.test/v1" + codec.path("m", Options())
    assert codec.headers(KEY)["Authorization"] == plain.headers["authorization"]
    endpoint = "/openai/deployments/{model}/chat/completions?api-version=2024-10-21"
    codec = OpenAIChat(auth="api-key", endpoint=endpoint)
    assert codec.path("gpt 4/x", Options()).encode() == azure.url.raw_path
    assert codec.headers(KEY)["api-key"] == azure.headers["api-key"]
    assert "Authorization" not in codec.headers(KEY)
    assert set(OpenAIChat().headers("")) == {"Content-Type", "Accept"}


@pytest.mark.parametrize("case", cases.FAILURES, ids=[f"{case.fault}-{n}" for n, case in enumerate(cases.FAILURES)])
def test_a_failure_is_sorted(case: cases.Failure) -> None:
    error = OpenAIChat().failure(case.status, case.headers, case.body)
    assert error.kind == case.kind
    assert type(error) is (ModelUnavailable if case.kind in RETRIED else ModelRejected)
    assert getattr(error, "after_seconds", 0.0) == pytest.approx(case.wait)
    message = str(error)
    assert str(case.status) in message
    assert len(message) <= 500
    assert "<" not in message
    assert "6789" not in message
    assert case.fault != "F16" or "get_weather" in message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (wrong("the reason"), "the reason"),
        (b'{"detail":[{"loc":["body"],"msg":"field required"},{"msg":"and more"}]}', "field required; and more"),
        (b'{"message":{"detail":[{"msg":"field required"}]}}', "field required"),
        (cases.bare("the reason"), "the reason"),
        (cases.xai("the reason"), "the reason"),
        (wrong("Provider returned error", metadata={"raw": "the reason"}), "Provider returned error the reason"),
        (b"the reason", "the reason"),
        (b"", "no reason was given"),
    ],
)
def test_the_words_of_the_provider_are_in_the_message(body: bytes, words: str) -> None:
    assert str(OpenAIChat().failure(400, {}, body)) == f"HTTP 400: {words}"
    if body[:1] == b"{":
        error = failing(json.loads(body), event="event: error\n")
        assert str(error) == words


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\xff\xfe" * 9,
        b"[",
        b"[]",
        b"null",
        b"7",
        b'{"error":null}',
        b'{"error":[[[[[[["x"]]]]]]]}',
        b"[" * 90_000,
        b'{"error":' * 900 + b"1" + b"}" * 900,
        b'{"message":{"a":1}}',
        b"x" * 2_000_000,
        b"tools[0] " * 200_000,
        wrong("a\x00\x1b[31m\u202eb\ud800" + "x " * 9_000),
    ],
    ids=range(13),
)
def test_no_body_of_a_failure_is_too_odd(body: bytes) -> None:
    began = time.perf_counter()
    error = OpenAIChat().failure(500, {}, body)
    assert time.perf_counter() - began < 2
    assert isinstance(error, ModelUnavailable)
    assert len(str(error)) <= 500
    assert str(error).isprintable()


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        "sk-or-v1-0123456789abcdef",
        "gsk_abcdefGHIJ0123",
        "xai-abcdefGHIJ01",
        "AIzaSyA0123456789abcdefg",
        "f" * 84,
        "0123456789abcdef0123456789abcdef",
        "custom0key1with2digits",
        "sk-ab…yz",
    ],
)
def test_no_key_gets_into_a_message(key: str) -> None:
    for words in (f"Incorrect API key provided: {key}.", f"bad Bearer {key}", f"the key '{key}' is invalid"):
        assert key[3:] not in str(OpenAIChat().failure(401, {}, wrong(words)))
        assert key[3:] not in str(OpenAIChat().failure(401, {}, words.encode()))


def failing(*chunks: Any, event: str = "", codec: OpenAIChat | None = None) -> ModelError:
    """What a stream that fails after some text raises, and that it does so at once."""
    decoder = (codec or OpenAIChat()).decoder(Options())
    decoder.feed(sse(delta(content="a"), delta(tool_calls=[tool("x", '{"a', index=0)]), done=False))
    with pytest.raises(ModelError) as caught:
        decoder.feed(event.encode() + sse(*chunks, done=False))
    return caught.value


@pytest.mark.parametrize(
    ("fault", "chunk", "kind"),
    cases.STREAM_FAILURES,
    ids=[f"{row[0]}-{n}" for n, row in enumerate(cases.STREAM_FAILURES)],
)
def test_a_failure_inside_a_stream_is_raised_at_once(fault: str, chunk: Any, kind: str) -> None:
    for event in ("", "event: error\n"):
        error = failing(chunk, event=event)
        assert error.kind == kind, fault
        assert type(error) is (ModelUnavailable if kind in RETRIED else ModelRejected)


def test_f5_an_event_of_its_own_is_a_failure_whatever_it_holds() -> None:
    for chunk in ({"message": "it broke"}, {"type": "error", "code": "server_error"}, '"it broke"', {}):
        assert failing(chunk, event="event: error\n").kind == "server_error"


def test_f4_a_delay_inside_a_stream_is_honoured() -> None:
    error = failing({"error": {"message": "Please try again in 2s.", "code": "rate_limit_exceeded"}})
    assert isinstance(error, ModelUnavailable)
    assert error.after_seconds == 2.0


def test_f23_a_stream_without_its_marker_was_cut() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        decoded(sse(delta(content="hi"), delta("stop"), done=False))
    assert caught.value.kind == "network"


def test_f25_a_stream_that_breaks_off_inside_a_call_is_no_reply() -> None:
    data = sse(delta(tool_calls=[tool("x", '{"a', index=0, id="c")]), done=False)
    for cut in (data, data[:-20]):
        with pytest.raises(ModelUnavailable) as caught:
            decoded(cut)
        assert caught.value.kind == "network"


def test_f27_odd_events_are_read() -> None:
    first = json.dumps(delta(content="hé"), ensure_ascii=False, indent=1).split("\n")
    lines = ["\ufeff: hello", "id: 1", "retry: 5", "event: message", *(f"data:{line}" for line in first), ""]
    lines += [
        "data",
        "",
        "event: ping",
        "data: {}",
        "",
        "unknown: x",
        "data: 7",
        "",
        f"data: {json.dumps(delta('stop'))}",
        "",
    ]
    for end in ("\n", "\r\n", "\r"):
        data = end.join([*lines, "data: [DONE]", "", ""]).encode()
        reply = decoded(data)
        assert (reply.message.text, reply.stop) == ("hé", "end")
        assert all(decoded(data, None, at) == reply for at in range(1, len(data)))
    extra = {
        **delta("stop", content="hi", audio=None, new=[1]),
        "service_tier": "x",
        "obfuscation": "abc",
        "moderation": {},
    }
    assert (
        decoded(sse({"object": "", "choices": [], "prompt_filter_results": [], "model": ""}, extra)).message.text
        == "hi"
    )


def test_f30_a_huge_line_is_refused_before_it_is_kept() -> None:
    decoder = OpenAIChat().decoder(Options())
    decoder.feed(b"data: ")
    with pytest.raises(ModelRejected) as caught:
        for _ in range(20):
            decoder.feed(b"x" * (1 << 20))
    assert caught.value.kind == "response_too_large"


@pytest.mark.parametrize("start", [b"{", b": "])
def test_f30_a_huge_reply_is_refused(start: bytes) -> None:
    decoder = OpenAIChat().decoder(Options())
    piece = b":" * (1 << 20) + b"\n"
    with pytest.raises(ModelRejected) as caught:
        decoder.feed(start)
        for _ in range((MAX_BODY >> 20) + 1):
            decoder.feed(piece)
    assert caught.value.kind == "response_too_large"


def test_f32_an_event_that_comes_twice_never_runs_as_something_else() -> None:
    piece = delta(tool_calls=[tool(None, '"a": 1}', index=0)])
    start = delta(tool_calls=[tool("x", "{", index=0, id="c")])
    (call,) = decoded(sse(start, piece, piece, delta("tool_calls"), delta("tool_calls"))).message.calls
    with pytest.raises(ValueError, match="Extra data"):
        json.loads(call.args)
    (call,) = decoded(sse(start, start, piece, delta("tool_calls"))).message.calls
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(call.args)


def test_f34_what_comes_after_the_end_is_ignored() -> None:
    one = sse(delta(content="hi"), delta("stop"))
    for more in (
        one,
        b"data: {bad\n\n",
        sse({"error": {"message": "late"}}),
        b"junk",
        b"data: [DONE]\n\n",
        b"x" * (9 << 20),
    ):
        assert decoded(one + more) == decoded(one)
        assert decoded(one + more, None, len(one)) == decoded(one)
    assert decoded(sse(delta(content="hi"), delta("stop"), delta("stop"))) == decoded(one)


@pytest.mark.parametrize(
    "data",
    [
        sse(delta("stop")),
        sse({"choices": []}),
        sse(delta("stop", content="")),
        sse(delta("stop", reasoning="hm")),
        b'{"choices":[]}',
        b'{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}',
    ],
)
def test_f38_an_empty_answer_is_an_empty_reply(data: bytes) -> None:
    reply = decoded(data)
    assert (reply.message, reply.stop) == (Assistant(), "end")


@pytest.mark.parametrize(
    "data", [b"", b" \n", b"data: [DONE]\n\n", b"data: {}\n\ndata: [DONE]\n\n", b"{}", b"[]", b"hello"]
)
def test_f38_no_answer_at_all_is_no_reply(data: bytes) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        decoded(data)
    assert caught.value.kind == "network"


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length"])
def test_f39_a_call_that_was_cut_off_is_not_called_whole(reason: str) -> None:
    reply = decoded(sse(delta(tool_calls=[tool("x", '{"a": [1, ', index=0, id="c")]), delta(reason)))
    assert reply.stop == "length"
    assert reply.message.calls == (Call(id="c", name="x", args='{"a": [1, '),)


def test_f40_a_refusal_ends_the_reply_and_says_why() -> None:
    reply = decoded(sse(delta(refusal="I can't "), delta(refusal="do that."), delta("stop")))
    assert (reply.message.text, reply.stop) == ("I can't do that.", "refusal")
    assert decoded(sse(delta("content_filter"))).message.text == FILTERED
    part = decoded(sse(delta(content="so"), delta("content_filter")))
    assert (part.message.text, part.stop) == (f"so\n\n{FILTERED}", "refusal")
    body = b'{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}'
    assert (decoded(body).message.text, decoded(body).stop) == ("no", "refusal")


@pytest.mark.parametrize("args", ['{"path":}', '{"path": "a", ', '"{\\"policy\\":\\"inherit\\"}"', "[]", "nonsense"])
def test_f41_f42_odd_arguments_come_as_they_were_written(args: str) -> None:
    assert calls(tool("x", args, index=0, id="c")) == [("c", "x", args)]


@pytest.mark.parametrize("name", ["Shell", "default_api.read", "functions.read", ""])
def test_f44_an_unknown_name_comes_as_it_was_written(name: str) -> None:
    assert calls(tool(name, "{}", index=0, id="c")) == [("c", name, "{}")]


def test_f46_two_hundred_calls_are_all_there() -> None:
    many = [tool("x", f'{{"n":{n}}}', index=n, id=f"c{n}") for n in range(200)]
    assert calls(*many) == calls(many) == [(f"c{n}", "x", f'{{"n":{n}}}') for n in range(200)]


def test_f50_odd_text_is_kept_and_can_be_stored() -> None:
    raw = '{"choices":[{"delta":{"content":"a\\ud800b\\u0000\\u202e"},"finish_reason":null}]}'
    halves = ['{"choices":[{"delta":{"content":"\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00"}}]}']
    data = sse(
        raw, *halves, delta(tool_calls=[tool("x\ud800", '{"a":"\ud800"}', index=0, id="c\ud800")]), delta("stop")
    )
    decoder = OpenAIChat().decoder(Options())
    shown = decoder.feed(data)
    reply = decoder.finish()
    assert "".join(shown).encode()
    assert reply.message.text == "a\ufffdb\x00\u202e😀"
    assert reply.message.calls == (Call(id="c\ufffd", name="x\ufffd", args='{"a":"\ufffd"}'),)
    assert (
        decoded(
            b'data: {"choices":[{"delta":{"content":"\xff"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        ).message.text
        == "\ufffd"
    )
    long = "x" * (7 << 20)
    assert decoded(sse(delta("stop", content=long))).message.text == long


def test_f51_the_model_that_answered_is_told() -> None:
    assert decoded(sse({"model": "", "choices": []}, {**delta("stop"), "model": "gpt-x-2026"})).model == "gpt-x-2026"
