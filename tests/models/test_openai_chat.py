"""The chat dialect against the official SDK: what it sends, and what it reads of streams and
bodies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import completion_create_params as params

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.models.codec import Codec, Options, encode, keep_opaque
from retinue.models.openai_chat import NOTHING_SAID, OpenAIChatCodec
from retinue.models.openai_chat_stream import FILTERED
from tests.models import openai_chat_cases as cases
from tests.models.openai_chat_cases import KEY
from tests.models.openai_chat_support import RETRIED, decoded
from tests.repeats import times

N_CONVERSATIONS = times(100)
N_STREAMS = times(120)
N_LONG = times(12)
N_SHARDS = 3
STREAMING = pydantic.TypeAdapter(params.CompletionCreateParamsStreaming)
WHOLE = pydantic.TypeAdapter(params.CompletionCreateParamsNonStreaming)


def client(answer: Any) -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return openai.AsyncOpenAI(
        api_key=KEY, base_url="http://model.test/v1", http_client=http, max_retries=0
    )


def drained(value: Any) -> Any:
    """Typed params are checked lazily: an iterable inside is checked when it is read."""
    if isinstance(value, Mapping):
        return {name: drained(item) for name, item in value.items()}
    return (
        value
        if isinstance(value, str) or not isinstance(value, Iterator | list)
        else [drained(v) for v in value]
    )


def sdk_call(case: cases.Conversation) -> dict[str, Any]:
    """The same request in the SDK's own parameters, written from its documentation and not from the
    codec."""
    options = case.options
    call: dict[str, Any] = {
        "model": case.model,
        "messages": sdk_messages(case),
        "extra_body": dict(options.extra),
    }
    call[case.codec.limit_field] = case.max_output
    if options.stream:
        call["stream"] = True
        if case.codec.stream_options:
            call["stream_options"] = {"include_usage": True}
    if options.temperature is not None:
        call["temperature"] = options.temperature
    if options.effort:
        call["reasoning_effort"] = options.effort
    if options.cache_key and case.codec.cache_key:
        call["prompt_cache_key"] = options.cache_key
    if options.output_schema:
        named = {
            "name": "output",
            "schema": options.output_schema,
            "strict": case.codec.strict_schema,
        }
        call["response_format"] = {"type": "json_schema", "json_schema": named}
    if case.tools:
        call["tools"] = []
    for tool in case.tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        call["tools"].append({"type": "function", "function": function})
    return call


def sdk_messages(case: cases.Conversation) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if case.instructions:
        out.append({"role": case.codec.system_role, "content": case.instructions})
    records: list[dict[str, Any]] = []  # pictures of the results of one reply
    for at, message in enumerate(case.messages):
        if isinstance(message, UserMessage):
            content: Any = message.text
            if message.images:
                content = [{"type": "text", "text": message.text}] if message.text else []
                content += [
                    {"type": "image_url", "image_url": {"url": url(image)}}
                    for image in message.images
                ]
            out += sdk_user(case, content)
        elif isinstance(message, AssistantMessage):
            texts: dict[str, Any] = {"role": "assistant", "content": message.text or None}
            if message.calls:
                texts["tool_calls"] = [sdk_tool_call(call) for call in message.calls]
            if at in case.thoughts:
                texts[case.codec.reasoning] = case.thoughts[at]
            elif message.calls and case.codec.reasoning == "reasoning_content":
                texts["reasoning_content"] = ""
            out.append(texts)
        else:
            out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
            if message.images:
                records.append(
                    {
                        "type": "text",
                        "text": f"Images in the result of {message.name} ({message.call_id}):",
                    }
                )
                records += [
                    {"type": "image_url", "image_url": {"url": url(image)}}
                    for image in message.images
                ]
        if records and (
            at + 1 == len(case.messages) or not isinstance(case.messages[at + 1], ToolMessage)
        ):
            out += sdk_user(case, records)
            records = []
    return out


def sdk_user(case: cases.Conversation, content: Any) -> list[dict[str, Any]]:
    before = [{"role": "assistant", "content": case.codec.bridge}] if case.codec.bridge else []
    return [*before, {"role": "user", "content": content}]


def sdk_tool_call(call: ToolCall) -> dict[str, Any]:
    args = call.arguments_json
    try:
        is_object = isinstance(json.loads(args), dict)
    except ValueError:
        is_object = False
    if not is_object:
        args = json.dumps(
            {"invalid_json": args} if args.strip() else {},
            separators=(",", ":"),
            ensure_ascii=False,
        )
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": args}}


def url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.data}"


def ours(case: cases.Conversation) -> bytes:
    return encode(
        case.codec,
        case.model,
        case.instructions,
        case.messages,
        case.tools,
        case.options,
        case.max_output,
    )


def test_a_request_is_what_the_sdk_sends() -> None:
    """No key differs on purpose. What the SDK has no parameter for (`extra`, reasoning that goes
    back) it is given as extra body and extra fields of a message."""

    async def compare() -> int:
        messages: list[Any] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            messages.append(json.loads(request.content))
            return httpx2.Response(
                200, json={"id": "c", "object": "chat.completion", "choices": []}
            )

        sdk = client(answer)
        for seed in range(N_CONVERSATIONS):
            case = cases.conversation(seed)
            call = sdk_call(case)
            typed = {name: value for name, value in call.items() if name != "extra_body"}
            drained((STREAMING if case.options.stream else WHOLE).validate_python(typed))
            await sdk.chat.completions.create(**call)
            assert json.loads(ours(case)) == messages[-1], seed
        return len(messages)

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
        assert bodies.count(needle) > N_CONVERSATIONS // 50, needle


def test_a_unit_is_encoded_the_same_every_time_and_apart_from_the_others() -> None:
    for seed in range(100):
        case = cases.conversation(seed)
        assert ours(case) == ours(cases.conversation(seed))
        longer = [*case.messages, UserMessage(text="and now?")]
        n_tail = len(case.codec.tail(case.max_output))
        case.messages, before = longer, ours(case)
        assert ours(case).startswith(before[:-n_tail])


async def sdk_reply(sdk: openai.AsyncOpenAI) -> Any:
    state: Any = ChatCompletionStreamState()
    async for chunk in await sdk.chat.completions.create(model="m", messages=[], stream=True):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot


STOPS = {"stop": "end", "tool_calls": "calls", "length": "length", "content_filter": "refusal"}


def same(reply: ModelReply, texts: Any, case: cases.Stream) -> None:
    """Our reply and the SDK's, of the same bytes."""
    choice = texts.choices[0]
    message, used = choice.message, texts.usage
    text = (message.content or "") + (message.refusal or "")
    expected = "refusal" if message.refusal else STOPS[choice.finish_reason]
    if expected == "end" and message.tool_calls:
        expected = "calls"
    assert reply.stop == expected
    if choice.finish_reason == "content_filter" and not message.refusal:
        text += ("\n\n" if text else "") + FILTERED
    assert reply.message.text == text
    theirs = [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []
    ]
    assert (
        [(call.id, call.name, call.arguments_json) for call in reply.message.calls]
        == theirs
        == case.calls
    )
    assert reply.model == texts.model
    reasoning = getattr(message, "reasoning_content", None) or ""
    assert reasoning == case.thought
    opaque = json.dumps({"reasoning_content": reasoning}, ensure_ascii=False, separators=(",", ":"))
    opaque_rest = reply.message.opaque.partition("\n")[2]
    assert json.loads(opaque_rest or "{}") == (json.loads(opaque) if reasoning else {})
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
    codec = OpenAIChatCodec(reasoning="reasoning_content")
    n_cuts = 0

    async def compare() -> None:
        nonlocal n_cuts
        current = b""

        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(
                200, headers={"content-type": "text/event-stream"}, content=current
            )

        sdk = client(answer)
        for seed in range(shard, N_STREAMS + N_LONG, N_SHARDS):
            case = cases.stream(seed, long=seed >= N_STREAMS)
            current = data = case.data
            reply = await sdk_reply(sdk)
            whole = decoded(data, codec)
            same(whole, reply, case)
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
    codec = OpenAIChatCodec(reasoning="reasoning_content")

    async def compare() -> None:
        current = b""

        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(
                200, headers={"content-type": "application/json"}, content=current
            )

        sdk = client(answer)
        for seed in range(N_STREAMS):
            case = cases.stream(seed, long=seed % 5 == 0)
            current = case.body
            sdk_answer = await sdk.chat.completions.create(model="m", messages=[])
            for cuts in [
                (),
                (1,),
                (len(case.body) // 2,),
                range(1, len(case.body) if seed % 10 == 0 else 1),
            ]:
                decoder = codec.decoder(Options(stream=False))
                for a, b in zip((0, *cuts), (*cuts, len(case.body)), strict=True):
                    assert decoder.feed(case.body[a:b]) == []
                same(decoder.finish(), sdk_answer, case)

    asyncio.run(compare())


def test_a_cut_stream_is_never_a_reply() -> None:
    for seed in range(12):
        data = cases.stream(seed, long=seed == 0).data
        end = data.index(b"data: [DONE]") + len(b"data: [DONE]")
        for at in range(end):
            decoder = OpenAIChatCodec().decoder(Options())
            with pytest.raises(ModelUnavailable) as failure:
                decoder.feed(data[:at])
                decoder.finish()
            assert failure.value.kind == "network"
        assert decoded(data[:end]) == decoded(data)


def test_a_cut_body_is_never_a_reply() -> None:
    body = cases.stream(3).body
    for at in range(len(body)):
        decoder = OpenAIChatCodec().decoder(Options(stream=False))
        decoder.feed(body[:at])
        with pytest.raises(ModelUnavailable) as failure:
            decoder.finish()
        assert failure.value.kind == "network"


def test_ids_fit_the_server_and_match_their_results() -> None:
    long = "call_" + "x" * 60
    unit: list[Message] = [
        AssistantMessage(
            calls=(
                ToolCall(id=long, name="a"),
                ToolCall(id="k" * 41, name="a"),
                ToolCall(id="ok", name="a"),
            )
        )
    ]
    unit += [ToolMessage(call_id=call, text="") for call in (long, "k" * 41, "ok")]
    for codec, shape in [
        (OpenAIChatCodec(), ".{1,40}"),
        (OpenAIChatCodec(strict_ids=True), "[A-Za-z0-9]{9}"),
    ]:
        value, *results = json.loads(b"[" + codec.unit(unit) + b"]")
        ids = [call["id"] for call in value["tool_calls"]]
        assert ids == [result["tool_call_id"] for result in results]
        assert len(set(ids)) == 3
        assert all(re.fullmatch(shape, i) for i in ids)
    rest = OpenAIChatCodec(strict_ids=True).unit(
        [AssistantMessage(calls=(ToolCall(id="aB3dE6gH9", name="a"),))]
    )
    assert b'"aB3dE6gH9"' in rest


@pytest.mark.parametrize(
    "name", ["", "default_api.read", "functions read", "é" * 80, "a" * 80, "\ud800"]
)
def test_a_name_that_the_model_made_up_is_sent_in_a_form_that_is_taken(name: str) -> None:
    value = json.loads(
        OpenAIChatCodec().unit([AssistantMessage(calls=(ToolCall(id="a", name=name),))])
    )
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", value["tool_calls"][0]["function"]["name"])


@pytest.mark.parametrize(
    "args",
    ["", "{", "[1]", '"{}"', "nul", "[" * 5_000, '{"a":' * 5_000, '{"a":"\\ud800"}', "\ud800"],
)
def test_arguments_that_are_no_object_are_sent_as_one(args: str) -> None:
    value = json.loads(
        OpenAIChatCodec().unit(
            [AssistantMessage(calls=(ToolCall(id="a", name="x", arguments_json=args),))]
        )
    )
    arguments = json.loads(value["tool_calls"][0]["function"]["arguments"])
    assert isinstance(arguments, dict)
    assert set(arguments) <= {"invalid_json"}


def test_a_reply_without_words_is_sent_with_some() -> None:
    assert json.loads(OpenAIChatCodec().unit([AssistantMessage()])) == {
        "role": "assistant",
        "content": NOTHING_SAID,
    }


def test_half_a_character_does_not_stop_a_request() -> None:
    bad = "a\ud800b\x00"
    messages: list[Message] = [
        UserMessage(text=bad, images=(Image(media_type="image/png", data="AA=="),)),
        AssistantMessage(
            text=bad,
            calls=(ToolCall(id=bad, name=bad, arguments_json=bad),),
            opaque=keep_opaque("openai_chat", f'{{"reasoning":"{bad[:2]}"}}'),
        ),
        ToolMessage(
            call_id=bad, text=bad, name=bad, images=(Image(media_type="image/png", data="AA=="),)
        ),
    ]
    schema = ToolSchema(
        name="x", description=bad, parameters={"type": "object", "description": bad}
    )
    codec = OpenAIChatCodec(reasoning="reasoning")
    body = encode(
        codec,
        "m",
        bad,
        messages,
        [schema],
        Options(output_schema={"description": bad}, cache_key=bad),
        5,
    )
    value = json.loads(body.decode())
    assert value["messages"][0]["content"] == "a\ufffdb\x00"
    assert value["messages"][2]["tool_calls"][0]["id"] == value["messages"][3]["tool_call_id"]


def test_an_empty_schema_is_still_a_schema() -> None:
    head = OpenAIChatCodec().head("m", "", [], Options(output_schema={}))
    assert json.loads(head + b"]}")["response_format"]["json_schema"]["schema"] == {}


def test_extra_may_not_take_the_place_of_what_the_codec_writes() -> None:
    options = Options(
        extra={
            "messages": [],
            "max_completion_tokens": 1,
            "stream": False,
            "temperature": 1.0,
            "n": 1,
        }
    )
    body = encode(OpenAIChatCodec(), "m", "", [UserMessage(text="hi")], [], options, 5)
    assert body.count(b'"messages"') == body.count(b'"max_completion_tokens"') == 1
    value = json.loads(body)
    assert value["messages"] == [{"role": "user", "content": "hi"}]
    assert (value["max_completion_tokens"], value["stream"], value["temperature"], value["n"]) == (
        5,
        True,
        1.0,
        1,
    )


def test_paths_and_keys_are_those_of_the_sdk() -> None:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, json={"choices": []})

    async def ask() -> None:
        await client(answer).chat.completions.create(model="m", messages=[])
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        azure = openai.AsyncAzureOpenAI(
            api_key=KEY,
            azure_endpoint="http://azure.test",
            api_version="2024-10-21",
            http_client=http,
            max_retries=0,
        )
        await azure.chat.completions.create(model="gpt 4/x", messages=[])

    asyncio.run(ask())
    plain, azure = requests
    codec: Codec = OpenAIChatCodec()
    assert str(plain.url) == "http://model.test/v1" + codec.path("m", Options())
    assert codec.headers(KEY)["Authorization"] == plain.headers["authorization"]
    endpoint = "/openai/deployments/{model}/chat/completions?api-version=2024-10-21"
    codec = OpenAIChatCodec(auth="api-key", endpoint=endpoint)
    assert codec.path("gpt 4/x", Options()).encode() == azure.url.raw_path
    assert codec.headers(KEY)["api-key"] == azure.headers["api-key"]
    assert "Authorization" not in codec.headers(KEY)
    assert set(OpenAIChatCodec().headers("")) == {"Content-Type", "Accept"}


@pytest.mark.parametrize(
    "case", cases.FAILURES, ids=[f"{case.fault}-{n}" for n, case in enumerate(cases.FAILURES)]
)
def test_a_failure_is_sorted(case: cases.Failure) -> None:
    error = OpenAIChatCodec().failure(case.status, case.headers, case.body)
    assert error.kind == case.kind
    assert type(error) is (ModelUnavailable if case.kind in RETRIED else ModelRejected)
    assert getattr(error, "retry_after", 0.0) == pytest.approx(case.wait)
    message = str(error)
    assert str(case.status) in message
    assert len(message) <= 500
    assert "<" not in message
    assert "6789" not in message
    assert case.fault != "F16" or "get_weather" in message
