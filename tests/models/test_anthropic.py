"""The Anthropic dialect against the official SDK: what it sends, and what it reads of streams."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import httpx2
import jiter
import msgspec
import pytest

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage, UserMessage
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelError, ModelUnavailable
from retinue.models.codec import Options, encode, keep_opaque, opaque_for, units
from tests.models import anthropic_cases as cases
from tests.models.anthropic_support import (
    CODEC,
    PARAMS,
    STREAMED,
    THOUGHTS,
    WHOLE,
    assert_acceptable,
    assert_can_be_answered,
    decoded,
    in_pieces,
)
from tests.repeats import times

STOPS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}


class Oracle:
    """The official client on a wire that ends here: it remembers what was sent and answers what it
    is told."""

    def __init__(self) -> None:
        self.sent: Any = None
        self.answer = b""
        http = httpx2.Client(transport=httpx2.MockTransport(self._handle))
        self.client = anthropic.Anthropic(
            api_key="test",
            base_url="http://oracle.test",
            max_retries=0,
            http_client=http,
            timeout=1,
        )

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.sent = json.loads(request.content)
        assert request.url.path == CODEC.path("any", STREAMED)
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=self.answer
        )

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
        question: Any = {
            "model": "any",
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "?"}],
        }
        with self.client.messages.stream(**question) as stream:
            return stream.get_final_message()


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    it = Oracle()
    yield it
    it.client.close()


def eaten(value: Any) -> Any:
    """The validated value: the SDK's types are checked as their iterables are consumed, and unknown
    keys vanish."""
    if isinstance(value, Mapping):
        return {name: eaten(inner) for name, inner in value.items()}
    return (
        value
        if value is None or isinstance(value, str | int | float)
        else [eaten(inner) for inner in value]
    )


def with_plain_ids(messages: Any) -> Any:
    """The same messages with each id that the API would refuse, or that stands for one, replaced by
    its number."""
    order: dict[str, str] = {}
    for message in messages:
        for block in message["content"]:
            for name in ("id", "tool_use_id"):
                if name in block and not block[name].startswith("toolu_"):
                    block[name] = order.setdefault(block[name], f"#{len(order)}")
    return messages


@pytest.mark.parametrize("seed", range(times(2)))
def test_a_request_is_what_the_sdk_sends_for_the_same_call(oracle: Oracle, seed: int) -> None:
    """50 conversations for each seed. Keys that are deliberately different: `temperature` has no
    parameter in the SDK any more and goes through its `extra_body`; an id in letters that the API
    refuses is replaced, so it is compared by its place. `cache_key` is not sent: this dialect has
    no such thing."""
    rng = random.Random(seed)
    for _ in range(50):
        case = cases.case(rng)
        body = encode(
            CODEC,
            case.model,
            case.instructions,
            case.messages,
            case.tools,
            case.options,
            max_output=case.max_output,
        )
        ours, arguments = json.loads(body), cases.sdk_arguments(case)
        assert eaten(PARAMS.validate_python(arguments)) == arguments
        more = {} if case.options.temperature is None else {"temperature": case.options.temperature}
        theirs = oracle.send(
            arguments | {"extra_body": more} | ({"stream": True} if case.options.stream else {})
        )
        assert_acceptable(ours["messages"])
        assert with_plain_ids(ours.pop("messages")) == with_plain_ids(theirs.pop("messages"))
        assert ours == theirs


def test_thoughts_go_back_byte_for_byte() -> None:
    text = (
        '[ {"thinking" : "caf\\u00e9 \\/ x","signature":"a+b==", "type":"thinking"} '
        ',{"type":"text","text":"hi"}]'
    )
    message = AssistantMessage(text="hi", opaque=keep_opaque("anthropic", text))
    assert (
        b'{"thinking" : "caf\\u00e9 \\/ x","signature":"a+b==", "type":"thinking"}'
        in CODEC.unit([message])
    )
    marked = CODEC.unit([message], mark=True)
    assert marked.endswith(b'{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}')
    assert b'{"thinking" : "caf\\u00e9 \\/ x","signature":"a+b==", "type":"thinking"}' in marked


def test_a_unit_is_always_the_same_bytes() -> None:
    rng = random.Random(5)
    for _ in range(50):
        for part in units(cases.case(rng).messages):
            assert CODEC.unit(part) == CODEC.unit(list(part))
            assert CODEC.unit(part, mark=True).replace(
                b',"cache_control":{"type":"ephemeral"}', b""
            ) == CODEC.unit(part)


def test_what_the_runtime_decides_is_not_changed_by_extras() -> None:
    options = Options(
        stream=False,
        extra={"model": "x", "stream": True, "max_tokens": 1, "messages": [], "speed": "fast"},
    )
    body = json.loads(encode(CODEC, "m", "", [UserMessage(text="hi")], [], options, max_output=7))
    assert body["model"] == "m"
    assert body["max_tokens"] == 7
    assert body["speed"] == "fast"
    assert len(body["messages"]) == 1
    assert "stream" not in body


def test_thinking_that_is_asked_for_in_other_words_is_asked_for_once() -> None:
    options = Options(thinking_tokens=4096, extra={"thinking": {"type": "adaptive"}})
    body = encode(CODEC, "m", "", [UserMessage(text="hi")], [], options, max_output=9000)
    assert body.count(b'"thinking"') == 1
    assert json.loads(body)["thinking"] == {"type": "adaptive"}


def test_arguments_that_are_nested_absurdly_deep_can_be_sent() -> None:
    call = ToolCall(id="toolu_1", name="read", arguments_json='{"a":' * 5000 + "1" + "}" * 5000)
    value = json.loads(
        b"[%b]"
        % CODEC.unit([AssistantMessage(calls=(call,)), ToolMessage(call_id="toolu_1", text="ok")])
    )
    assert value[0]["content"][0]["input"] == {"invalid_json": call.arguments_json}


def test_half_a_surrogate_pair_in_a_prompt_or_a_tool_can_be_sent() -> None:
    tool = ToolSchema(name="t", description="\ud800", parameters={"properties": {"\udfff": {}}})
    body = json.loads(
        encode(CODEC, "m", "a\ud800", [UserMessage(text="\ud800b")], [tool], STREAMED, max_output=1)
    )
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


def content_to_send_back(message: Any) -> list[dict[str, Any]]:
    content = [block.model_dump(exclude_none=True) for block in message.content]
    content = [block for block in content if block["type"] != "text" or block["text"].strip()]
    while content and content[-1]["type"] in THOUGHTS:
        content.pop()
    return content


def assert_same(reply: ModelReply, texts: str, message: Any) -> None:
    """The reply says what the SDK's message says."""
    text = "".join(block.text for block in message.content if block.type == "text")
    tools = [block for block in message.content if block.type == "tool_use"]
    read, cache_write = (
        message.usage.cache_read_input_tokens or 0,
        message.usage.cache_creation_input_tokens or 0,
    )
    spent = Usage(
        input=message.usage.input_tokens + read + cache_write,
        output=message.usage.output_tokens,
        cache_read=read,
        cache_write=cache_write,
    )
    assert reply.usage == spent
    assert reply.model == message.model
    assert reply.stop == STOPS.get(message.stop_reason, "calls" if tools else "end")
    assert texts == text
    if reply.stop == "refusal":
        why = message.stop_details.explanation if message.stop_details else ""
        assert reply.message.text.startswith(text.rstrip())
        assert (why or "refused") in reply.message.text
        assert reply.message == AssistantMessage(text=reply.message.text)
        return
    assert reply.message.text == text
    assert [(call.id, call.name) for call in reply.message.calls] == [
        (block.id, block.name) for block in tools
    ]
    inputs = [
        jiter.from_json(call.arguments_json.encode(), partial_mode=True)
        for call in reply.message.calls
    ]
    assert inputs == [block.input for block in tools]
    opaque = opaque_for("anthropic", reply.message)
    if opaque and reply.stop != "length":
        assert json.loads(opaque) == content_to_send_back(message)
    indirect = any(block.caller and block.caller.type != "direct" for block in tools)
    kinds = [block["type"] for block in content_to_send_back(message)]
    assert bool(opaque) == (indirect or any(kind not in ("text", "tool_use") for kind in kinds))


@pytest.mark.parametrize("seed", range(times(3)))
def test_a_stream_is_read_as_the_sdk_reads_it_wherever_it_is_cut(oracle: Oracle, seed: int) -> None:
    """40 streams for each seed. Each comes byte by byte, and in pieces of 64 bytes with the first
    cut at each of 64 places, so that every byte is the first of a piece; each third one is also cut
    into two at every byte."""
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


@pytest.mark.parametrize("seed", range(times(1)))
def test_damaged_streams_end_in_a_reply_or_a_typed_error(seed: int) -> None:
    rng, n_read = random.Random(seed), 0
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
                data[a:a] = rng.choice(
                    [b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"\n\n", b"\\ud800"]
                )
        try:
            reply, _ = decoded(bytes(data), len(data) // 2, rng.choice([STREAMED, STREAMED, WHOLE]))
        except ModelError:
            continue
        n_read += bool(msgspec.json.encode(reply))
        assert_can_be_answered(reply)
    assert 0 < n_read < 300, "some can still be read, and some cannot"
