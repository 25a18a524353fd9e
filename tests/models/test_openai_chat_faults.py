"""Failures and odd replies in the chat dialect, by the numbers of the fault catalogue."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, ToolCall
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.codec import Options
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.models.openai_chat_stream import FILTERED, MAX_BODY
from tests.models import openai_chat_cases as cases
from tests.models.openai_chat_cases import KEY, wrong
from tests.models.openai_chat_support import RETRIED, calls, decoded, delta, sse, tool


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (wrong("the reason"), "the reason"),
        (
            b'{"detail":[{"loc":["body"],"msg":"field required"},{"msg":"and more"}]}',
            "field required; and more",
        ),
        (b'{"message":{"detail":[{"msg":"field required"}]}}', "field required"),
        (cases.bare("the reason"), "the reason"),
        (cases.xai("the reason"), "the reason"),
        (
            wrong("Provider returned error", metadata={"raw": "the reason"}),
            "Provider returned error the reason",
        ),
        (b"the reason", "the reason"),
        (b"", "no reason given"),
    ],
)
def test_the_words_of_the_provider_are_in_the_message(body: bytes, words: str) -> None:
    assert str(OpenAIChatCodec().failure(400, {}, body)) == f"HTTP 400: {words}"
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
    began = time.process_time()
    error = OpenAIChatCodec().failure(500, {}, body)
    assert time.process_time() - began < 2
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
    for words in (
        f"Incorrect API key provided: {key}.",
        f"bad Bearer {key}",
        f"the key '{key}' is invalid",
    ):
        assert key[3:] not in str(OpenAIChatCodec().failure(401, {}, wrong(words)))
        assert key[3:] not in str(OpenAIChatCodec().failure(401, {}, words.encode()))


def failing(*chunks: Any, event: str = "", codec: OpenAIChatCodec | None = None) -> ModelError:
    """What a stream that fails after some text raises, and that it does so at once."""
    decoder = (codec or OpenAIChatCodec()).decoder(Options())
    decoder.feed(
        sse(delta(content="a"), delta(tool_calls=[tool("x", '{"a', index=0)]), is_done=False)
    )
    with pytest.raises(ModelError) as failure:
        decoder.feed(event.encode() + sse(*chunks, is_done=False))
    return failure.value


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
    for chunk in (
        {"message": "it broke"},
        {"type": "error", "code": "server_error"},
        '"it broke"',
        {},
    ):
        assert failing(chunk, event="event: error\n").kind == "server_error"


def test_f4_a_delay_inside_a_stream_is_honoured() -> None:
    error = failing(
        {"error": {"message": "Please try again in 2s.", "code": "rate_limit_exceeded"}}
    )
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == 2.0


def test_f23_a_stream_without_its_marker_was_cut() -> None:
    with pytest.raises(ModelUnavailable) as failure:
        decoded(sse(delta(content="hi"), delta("stop"), is_done=False))
    assert failure.value.kind == "network"


def test_f25_a_stream_that_breaks_off_inside_a_call_is_no_reply() -> None:
    data = sse(delta(tool_calls=[tool("x", '{"a', index=0, id="c")]), is_done=False)
    for body in (data, data[:-20]):
        with pytest.raises(ModelUnavailable) as failure:
            decoded(body)
        assert failure.value.kind == "network"


def test_f27_odd_events_are_read() -> None:
    first = json.dumps(delta(content="hé"), ensure_ascii=False, indent=1).split("\n")
    lines = [
        "\ufeff: hello",
        "id: 1",
        "retry: 5",
        "event: message",
        *(f"data:{line}" for line in first),
        "",
    ]
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
        decoded(
            sse({"object": "", "choices": [], "prompt_filter_results": [], "model": ""}, extra)
        ).message.text
        == "hi"
    )


def test_f30_a_huge_line_is_refused_before_it_is_kept() -> None:
    decoder = OpenAIChatCodec().decoder(Options())
    decoder.feed(b"data: ")
    with pytest.raises(ModelRejected) as failure:
        for _ in range(20):
            decoder.feed(b"x" * (1 << 20))
    assert failure.value.kind == "response_too_large"


@pytest.mark.parametrize("start", [b"{", b": "])
def test_f30_a_huge_reply_is_refused(start: bytes) -> None:
    decoder = OpenAIChatCodec().decoder(Options())
    piece = b":" * (1 << 20) + b"\n"
    with pytest.raises(ModelRejected) as failure:
        decoder.feed(start)
        for _ in range((MAX_BODY >> 20) + 1):
            decoder.feed(piece)
    assert failure.value.kind == "response_too_large"


def test_f32_an_event_that_comes_twice_never_runs_as_something_else() -> None:
    piece = delta(tool_calls=[tool(None, '"a": 1}', index=0)])
    start = delta(tool_calls=[tool("x", "{", index=0, id="c")])
    (call,) = decoded(
        sse(start, piece, piece, delta("tool_calls"), delta("tool_calls"))
    ).message.calls
    with pytest.raises(ValueError, match="Extra data"):
        json.loads(call.arguments_json)
    (call,) = decoded(sse(start, start, piece, delta("tool_calls"))).message.calls
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(call.arguments_json)


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
    assert (reply.message, reply.stop) == (AssistantMessage(), "end")


@pytest.mark.parametrize(
    "data",
    [b"", b" \n", b"data: [DONE]\n\n", b"data: {}\n\ndata: [DONE]\n\n", b"{}", b"[]", b"hello"],
)
def test_f38_no_answer_at_all_is_no_reply(data: bytes) -> None:
    with pytest.raises(ModelUnavailable) as failure:
        decoded(data)
    assert failure.value.kind == "network"


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length"])
def test_f39_a_call_that_was_cut_off_is_not_called_whole(reason: str) -> None:
    reply = decoded(
        sse(delta(tool_calls=[tool("x", '{"a": [1, ', index=0, id="c")]), delta(reason))
    )
    assert reply.stop == "length"
    assert reply.message.calls == (ToolCall(id="c", name="x", arguments_json='{"a": [1, '),)


def test_f40_a_refusal_ends_the_reply_and_says_why() -> None:
    reply = decoded(sse(delta(refusal="I can't "), delta(refusal="do that."), delta("stop")))
    assert (reply.message.text, reply.stop) == ("I can't do that.", "refusal")
    assert decoded(sse(delta("content_filter"))).message.text == FILTERED
    part = decoded(sse(delta(content="so"), delta("content_filter")))
    assert (part.message.text, part.stop) == (f"so\n\n{FILTERED}", "refusal")
    body = b'{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}'
    assert (decoded(body).message.text, decoded(body).stop) == ("no", "refusal")


@pytest.mark.parametrize(
    "args", ['{"path":}', '{"path": "a", ', '"{\\"policy\\":\\"inherit\\"}"', "[]", "nonsense"]
)
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
    halves = [
        '{"choices":[{"delta":{"content":"\\ud83d"}}]}',
        '{"choices":[{"delta":{"content":"\\ude00"}}]}',
    ]
    data = sse(
        raw,
        *halves,
        delta(tool_calls=[tool("x\ud800", '{"a":"\ud800"}', index=0, id="c\ud800")]),
        delta("stop"),
    )
    decoder = OpenAIChatCodec().decoder(Options())
    events = decoder.feed(data)
    reply = decoder.finish()
    assert "".join(events).encode()
    assert reply.message.text == "a\ufffdb\x00\u202e😀"
    assert reply.message.calls == (
        ToolCall(id="c\ufffd", name="x\ufffd", arguments_json='{"a":"\ufffd"}'),
    )
    assert (
        decoded(
            b'data: {"choices":[{"delta":{"content":"\xff"},"finish_reason":"stop"}]}\n\ndata: '
            b"[DONE]\n\n"
        ).message.text
        == "\ufffd"
    )
    long = "x" * (7 << 20)
    assert decoded(sse(delta("stop", content=long))).message.text == long


def test_f51_the_model_that_answered_is_told() -> None:
    assert (
        decoded(sse({"model": "", "choices": []}, {**delta("stop"), "model": "gpt-x-2026"})).model
        == "gpt-x-2026"
    )
