"""The chat dialect as other servers speak it: what they leave out, repeat, or put elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage
from retinue.core.values import Usage
from retinue.errors import ModelError, ModelUnavailable
from retinue.models import openai_chat_calls, openai_chat_stream
from retinue.models.codec import Options, keep_opaque
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.models.openai_chat_reply import plain_reply
from tests.models.openai_chat_support import calls, decoded, delta, sse, tool

A, B = ("a", "read", '{"p":1}'), ("b", "read", '{"p":2}')


def test_a_server_may_leave_out_the_index() -> None:
    assert calls(tool("read", '{"p":1}', id="a"), tool("read", '{"p":2}', id="b")) == [A, B]
    assert calls([tool("read", '{"p":1}', id="a"), tool("read", '{"p":2}', id="b")]) == [A, B]
    assert calls(
        tool("read", '{"p', id="a"),
        tool(None, '":1}'),
        tool("read", "", id="b"),
        tool(None, '{"p":2}'),
    ) == [
        A,
        B,
    ]
    assert calls(
        tool("read", '{"p', id="a"), tool("read", '":1}', id="a"), tool("read", '{"p":2}', id="b")
    ) == [A, B]


def test_a_server_may_leave_out_index_and_id() -> None:
    assert calls(tool("read", '{"p":1}'), tool("read", '{"p":2}')) == [
        ("call_0", *A[1:]),
        ("call_1", *B[1:]),
    ]
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
    assert calls(tool("read", '{"p', index=0, id="a"), tool("other", '":1}', index=0, id="a")) == [
        A
    ]
    code = ['{"c":"if(x){}', '{}"}']
    assert calls(*(tool("read", piece) for piece in code)) == [("call_0", "read", "".join(code))]


def test_a_server_may_give_every_call_the_index_zero() -> None:
    assert calls(
        tool("read", '{"p":1}', index=0, id="a"), tool("read", '{"p":2}', index=0, id="b")
    ) == [A, B]
    split = [tool("read", "", index=0, id="a"), tool(None, '{"p":1}', index=0)]
    assert calls(*split, tool("read", "", index=0, id="b"), tool(None, '{"p":2}', index=0)) == [
        A,
        B,
    ]
    assert calls(
        tool("read", '{"p":1}', index=0, id=""), tool("read", '{"p":2}', index=0, id="")
    ) == [
        ("call_0", *A[1:]),
        ("call_1", *B[1:]),
    ]


def test_a_server_may_begin_with_any_index_or_send_the_name_in_pieces() -> None:
    assert calls(
        tool("read", '{"p":1}', index=7, id="a"), tool("read", '{"p":2}', index=9, id="b")
    ) == [A, B]
    assert calls(
        tool("re", "", index=0, id="a"), tool("ad", "", index=0), tool(None, '{"p":1}', index=0)
    ) == [A]


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
    assert [(call.id, call.name, call.arguments_json) for call in reply.message.calls] == [A, B]


def test_ids_are_there_and_differ() -> None:
    whole = [
        tool("x", "{}", index=n, id=i) for n, i in enumerate(["", "a", "a", "call_0", "call_1"])
    ]
    ids = [i for i, _, _ in calls(*whole)]
    assert ids[:2] == ["call_0", "a"]
    assert len(set(ids)) == 5
    assert all(ids)


def test_a_long_call_is_not_parsed_again_for_each_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(openai_chat_calls, "is_object", parsed.append)
    pieces = ['{"a":"', *(["}", "{"] * 1_000)]
    (call,) = decoded(
        sse(*(delta(tool_calls=[tool("x", piece, index=0)]) for piece in pieces), delta("stop"))
    ).message.calls
    assert call.arguments_json == "".join(pieces)
    assert 0 < len(parsed) <= 100


def test_reasoning_is_not_text_and_is_kept_only_for_a_server_that_wants_it() -> None:
    thinking = [delta(reasoning_content="hm "), delta(reasoning="so"), delta("stop", content="yes")]
    assert decoded(sse(*thinking)).message == AssistantMessage(text="yes")
    message = decoded(sse(*thinking), OpenAIChatCodec(reasoning="reasoning_content")).message
    assert message == AssistantMessage(
        text="yes", opaque='openai_chat\n{"reasoning_content":"hm so"}'
    )
    both = delta("stop", content="yes", reasoning_content="hm", reasoning="hm")
    assert (
        decoded(sse(both), OpenAIChatCodec(reasoning="reasoning")).message.opaque
        == 'openai_chat\n{"reasoning":"hm"}'
    )


def test_reasoning_goes_back_byte_for_byte_and_to_its_own_kind_of_server_only() -> None:
    text = '{"reasoning_content":"h\\u006d  <é>"}'
    message = AssistantMessage(text="yes", opaque=keep_opaque("openai_chat", text))
    unit = OpenAIChatCodec(reasoning="reasoning_content").unit([message])
    assert text[1:].encode() in unit
    assert json.loads(unit)["reasoning_content"] == "hm  <é>"
    for other in (OpenAIChatCodec(), OpenAIChatCodec(reasoning="reasoning")):
        assert json.loads(other.unit([message])) == {"role": "assistant", "content": "yes"}


def test_the_details_of_reasoning_are_joined_and_go_back() -> None:
    codec = OpenAIChatCodec(reasoning="reasoning_details")
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
    reply = decoded(
        sse(*(delta(reasoning_details=part) for part in parts), delta("stop", content="yes")), codec
    )
    assert json.loads(codec.unit([reply.message]))["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "text": "one two",
            "index": 0,
            "format": "f",
            "signature": "c2ln",
        },
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
    body = json.dumps(
        {"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    )
    assert decoded(f"\n \n{body}\n".encode()).message.text == "hi"
    with pytest.raises(ModelUnavailable, match="upstream"):
        decoded(b'{"error":{"code":502,"message":"upstream died"}}')


def test_a_server_without_the_marker_ends_with_its_finish_reason() -> None:
    lax = OpenAIChatCodec(done_marker=False)
    assert decoded(sse(delta(content="hi"), delta("stop"), is_done=False), lax).message.text == "hi"
    assert (
        decoded(sse(delta(content="hi"), delta("stop"), is_done=False)[:-2], lax).message.text
        == "hi"
    )
    for data in (
        sse(delta(content="hi"), is_done=False),
        sse(is_done=False),
        sse(delta(), is_done=False),
    ):
        with pytest.raises(ModelUnavailable) as failure:
            decoded(data, lax)
        assert failure.value.kind == "network"


def test_a_marker_without_a_finish_reason_does_not_complete_what_was_begun() -> None:
    for head in (delta(content="hi"), delta(tool_calls=[tool("x", "{}", index=0)])):
        with pytest.raises(ModelUnavailable):
            decoded(sse(head))


def test_usage_is_read_wherever_a_server_puts_it() -> None:
    def used(**fields: Any) -> Usage:
        return decoded(sse({**delta("stop", content="hi"), **fields})).usage

    plain = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert used(usage=plain) == Usage(input=10, output=5)
    assert used(usage=None, x_groq={"usage": plain}) == Usage(input=10, output=5)
    assert used(usage={**plain, "prompt_cache_hit_tokens": 8}) == Usage(
        input=10, output=5, cache_read=8
    )
    assert used(usage={**plain, "cached_tokens": 8}) == Usage(input=10, output=5, cache_read=8)
    # xAI: the total has the reasoning, the completion does not.
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45}
    assert used(usage={**usage, "completion_tokens_details": {"reasoning_tokens": 30}}) == Usage(
        input=10, output=35
    )
    assert (
        used(
            usage={
                "prompt_tokens": "x",
                "completion_tokens": 1e300,
                "total_tokens": None,
                "cached_tokens": -1,
            }
        )
        == Usage()
    )
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": plain}
    assert used(choices=[choice]) == Usage(input=10, output=5)
    twice = sse(
        {**delta(content="a"), "usage": {"prompt_tokens": 1}},
        {**delta("stop"), "usage": plain},
        delta(),
    )
    assert decoded(twice).usage == Usage(input=10, output=5)


def test_only_what_carries_content_counts_as_content() -> None:
    decoder = OpenAIChatCodec().decoder(Options())
    decoder.feed(
        b": keep-alive\n\n"
        + sse(delta(role="assistant", content=""), {"choices": []}, is_done=False)
    )
    assert decoder.contents == 0
    decoder.feed(
        sse(delta(content="a"), delta(reasoning="b"), delta(tool_calls=[tool("x")]), is_done=False)
    )
    assert decoder.contents == 3
    assert not decoder.done
    decoder.feed(sse(delta("stop")))
    assert decoder.done


def test_another_choice_is_not_mixed_in() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    assert decoded(sse(delta(content="yes"), other, delta("stop"))) == decoded(
        sse(delta(content="yes"), delta("stop"))
    )


WHOLE: dict[str, Any] = {
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hi",
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "read", "arguments": "{}"},
                    },
                    {
                        "id": "b",
                        "type": "function",
                        "function": {"name": "read", "arguments": ' {"p": 1}'},
                    },
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": None},
    },
}
ODD = [
    "",
    " ",
    "x",
    "a",
    None,
    True,
    0,
    1,
    -1,
    2.5,
    1 << 60,
    [],
    {},
    [{}],
    {"a": 1},
    "length",
    "stop",
    "content_filter",
]


def places(value: Any, *path: Any) -> list[tuple[Any, ...]]:
    inner: Iterable[tuple[Any, Any]] = enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict):
        inner = value.items()
    return [path, *(place for key, item in inner for place in places(item, *path, key))]


def test_the_short_way_to_read_a_whole_reply_leads_where_the_long_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each value of an ordinary body is replaced by odd ones or left out, and odd fields are
    added."""
    bodies = [WHOLE]
    for *path, last in [place for place in places(WHOLE) if place]:
        for odd in [..., *ODD]:
            body = json.loads(json.dumps(WHOLE))
            holder = body
            for key in path:
                holder = holder[key]
            if odd is ... and isinstance(holder, dict):
                del holder[last]
            elif odd is not ...:
                holder[last] = odd
            bodies.append(body)
    for name in (
        "error",
        "usage",
        "x_groq",
        "refusal",
        "reasoning",
        "reasoning_content",
        "delta",
        "cached_tokens",
    ):
        for odd in ODD:
            for holder in (
                lambda b: b,
                lambda b: b["choices"][0],
                lambda b: b["choices"][0]["message"],
            ):
                body = json.loads(json.dumps(WHOLE))
                holder(body)[name] = odd
                bodies.append(body)

    def read(body: Any) -> Any:
        decoder = OpenAIChatCodec(reasoning="reasoning_content").decoder(Options(stream=False))
        try:
            decoder.feed(json.dumps(body).encode())
            return decoder.finish()
        except ModelError as error:
            return type(error), error.kind, str(error)

    short = [plain_reply(json.dumps(body).encode()) for body in bodies]
    whole = [read(body) for body in bodies]
    monkeypatch.setattr(openai_chat_stream, "plain_reply", lambda body: None)
    assert [read(body) for body in bodies] == whole
    assert (
        short[0] is not None and 50 < sum(result is not None for result in short) < len(short) / 2
    )
