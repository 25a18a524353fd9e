"""The Responses dialect against the official SDK."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from retinue.core.values import ToolSchema
from retinue.errors import ModelUnavailable
from retinue.models.codec import Options, encode, units
from retinue.models.openai_responses import OpenAIResponsesCodec
from tests.models import openai_responses_cases as cases
from tests.models.openai_responses_cases import call, message, reasoning, sse
from tests.models.openai_responses_support import CODEC, STREAM, WHOLE, decoded, delta, ended
from tests.repeats import times

N_CASES = times(100)


@pytest.fixture(scope="module")
def wire() -> Iterator[cases.Wire]:
    wire = cases.Wire()
    yield wire
    wire.client.close()


def test_a_request_is_what_the_sdk_sends(wire: cases.Wire) -> None:
    """No key differs. What the API would refuse is mended on both sides alike: call ids, names and
    cache keys of more than 64 characters, other characters in names, arguments that are no object,
    fewer than 16 tokens of output. An empty reply is sent with a word in it, a failure begins with
    "Error: "."""
    rng = random.Random(20)
    n_items = 0
    for _ in range(N_CASES):
        case = cases.conversation(rng)
        params = cases.sdk_call(case)
        cases.check_call(params)
        wire.answer = b"" if case.options.stream else b'{"output":[]}'
        wire.client.responses.create(**params)
        ours = encode(
            CODEC,
            case.model,
            case.instructions,
            case.messages,
            case.tools,
            case.options,
            case.max_output,
        )
        assert json.loads(ours) == json.loads(wire.sent)
        n_items += len(params["input"])
    assert n_items > 3 * N_CASES and wire.path == "/v1" + CODEC.path("m", STREAM)


def test_the_headers_are_what_the_sdk_sends(wire: cases.Wire) -> None:
    wire.answer = b""
    wire.client.responses.create(model="m", input="hello", stream=True)
    ours = OpenAIResponsesCodec(organization="org", project="p").headers("k")
    for name in ("authorization", "content-type", "openai-organization", "openai-project"):
        assert ours[name] == wire.headers[name]
    assert "authorization" not in CODEC.headers("") and "openai-project" not in CODEC.headers("k")


def test_what_was_kept_goes_back_byte_for_byte_in_its_order() -> None:
    text = '[{"type":"output_text","text":"1"}]'
    raw = (
        '{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gA\\u0041/+="}',
        '{"type":"message","id":"msg_1","role":"assistant","phase":"commentary","content":'
        + text
        + "}",
        '{"id":"rs_2","type":"reasoning","summary":[ ],"encrypted_content":"gB"}',
        '{"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":"{ '
        '\\"a\\":1.0}"}',
    )
    event = 'data: {"type":"response.output_item.done","output_index":%d,"item":%s}\n\n'
    events = [(event % (n, item)).encode() for n, item in enumerate(raw)][::-1]
    reply = decoded(
        b"".join(events) + b'data: {"type":"response.completed","response":{"model":"gpt"}}\n\n'
    )
    unit = CODEC.unit([reply.message, ToolMessage(call_id="c1", text="ok")])
    assert unit.startswith(",".join(raw).encode() + b',{"type":"function_call_output"')
    assert reply.message.text == "1" and reply.message.calls == (
        ToolCall(id="c1", name="read", arguments_json='{ "a":1.0}'),
    )


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
def test_nothing_is_kept_that_the_api_would_refuse_or_that_text_and_calls_can_say(
    items: list[dict[str, Any]],
) -> None:
    assert decoded(sse(ended(*items))).message.opaque == ""


def test_a_kept_message_whose_calls_were_changed_is_written_anew() -> None:
    assert '"phase"' in decoded(sse(ended(message("a", phase="commentary")))).message.opaque
    text = decoded(sse(ended(reasoning(), call(id="c1"), call(id="c2")))).message
    assert b"gAAAA=" in CODEC.unit([text])
    fewer = AssistantMessage(text="", calls=text.calls[:1], opaque=text.opaque)
    assert b"gAAAA=" not in CODEC.unit([fewer]) and b"c2" not in CODEC.unit([fewer])


def test_a_kept_call_that_the_api_would_refuse_is_mended_and_its_reasoning_is_not_touched() -> None:
    items = (reasoning("sealed"), call('{"a":', id="c", name="functions.read"), call("{}", id="c"))
    text = decoded(sse(ended(*items))).message
    assert [c.id for c in text.calls] == ["c", "c_1"] and text.calls[0].arguments_json == '{"a":'
    value = json.loads(b"[%b]" % CODEC.unit([text]))
    assert value[0] == items[0]
    assert value[1] == {
        **items[1],
        "name": "functions_read",
        "arguments": '{"invalid_json":"{\\"a\\":"}',
    }
    assert value[2] == {**items[2], "call_id": "c_1"}


def test_the_same_unit_is_the_same_bytes_marked_or_not() -> None:
    rng = random.Random(3)
    for _ in range(50):
        for unit in units(cases.conversation(rng).messages):
            assert CODEC.unit(unit) == CODEC.unit(unit, mark=True) != b""


@pytest.mark.parametrize(
    "text", ["\ud800", "a\udc00b", "\x00", "\U0001f600\ud83d", '\\ud800 "\ud800"']
)
def test_odd_text_never_stops_a_request(text: str) -> None:
    texts = AssistantMessage(text=text, calls=(ToolCall(id=text, name=text, arguments_json=text),))
    odd = [UserMessage(text=text), texts, ToolMessage(call_id=text, text=text, error=True)]
    tools = [ToolSchema(name="t", description=text, parameters={"description": text})]
    body = encode(
        CODEC,
        "m",
        text,
        odd,
        tools,
        Options(cache_key=text * 65, extra={"metadata": {"a": text}}),
        100,
    )
    value = json.loads(body.decode("utf-8"))
    assert value["input"][0]["content"][0]["text"].encode("utf-8")  # no half of a pair is left


def test_arguments_nested_without_end_do_not_stop_a_request() -> None:
    args = '{"a":' + "[" * 100_000
    unit = CODEC.unit([AssistantMessage(calls=(ToolCall(id="c", name="n", arguments_json=args),))])
    assert json.loads(json.loads(unit)["arguments"]) == {"invalid_json": args}


def test_a_stream_is_read_as_the_sdk_reads_it_whole_and_byte_by_byte(wire: cases.Wire) -> None:
    rng = random.Random(21)
    stops = set()
    for n in range(N_CASES):
        events = cases.stream(rng, n, terse=True)
        decoder, by_bytes = CODEC.decoder(STREAM), CODEC.decoder(STREAM)
        pieces = decoder.feed(events.data)
        reply = decoder.finish()
        assert cases.read(reply) == cases.read_by_sdk(wire, events.data)
        assert "".join(pieces) == events.spoken and decoder.done
        parts = [events.data[k : k + 1] for k in range(len(events.data))]
        assert [piece for part in parts for piece in by_bytes.feed(part)] == pieces
        assert by_bytes.finish() == reply and by_bytes.contents == decoder.contents
        stops.add(reply.stop)
    assert stops == {"end", "calls", "length", "refusal"}


def test_a_stream_cut_in_two_anywhere_is_the_same() -> None:
    """The same streams, cut at every byte. An event leaves nothing behind in the splitter, so it is
    enough to cut each event by itself: where the same events come out, the same reply does. The
    next test cuts whole replies."""
    rng = random.Random(21)
    n_cuts = 0
    for n in range(N_CASES):
        data = cases.stream(rng, n, terse=True).data
        newline = next((mark for mark in (b"\r\n", b"\r") if mark in data), b"\n")
        end = newline * 2
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
    assert n_cuts > 800 * N_CASES


def test_a_long_stream_is_read_as_the_sdk_reads_it_in_two_pieces_and_in_many(
    wire: cases.Wire,
) -> None:
    rng = random.Random(22)
    for n in range(40):
        events = cases.stream(rng, n)
        reply = decoded(events.data)
        assert cases.read(reply) == cases.read_by_sdk(wire, events.data)
        cuts = range(len(events.data)) if n < 1 else rng.sample(range(len(events.data)), 20)
        for k in cuts:
            decoder = CODEC.decoder(STREAM)
            pieces = decoder.feed(events.data[:k]) + decoder.feed(events.data[k:])
            assert "".join(pieces) == events.spoken
            assert decoder.finish() == reply


def test_a_stream_that_breaks_off_is_never_half_a_reply() -> None:
    rng = random.Random(23)
    for n in range(8):
        events = cases.stream(rng, n, terse=True)
        reply = decoded(events.data)
        for k in range(len(events.data)):
            try:
                assert (
                    decoded(events.data[:k]) == reply
                )  # only what follows the last event's JSON was missing
                assert b'"usage":' in events.data[:k]
            except ModelUnavailable as error:
                assert error.kind == "network"


def test_one_body_is_read_like_a_stream() -> None:
    rng = random.Random(24)
    for n in range(100):
        events = cases.stream(rng, n)
        decoder = CODEC.decoder(WHOLE)
        assert decoder.feed(events.body[:10]) + decoder.feed(events.body[10:]) == []
        assert cases.read(decoder.finish()) == cases.read(decoded(events.data))
        assert decoder.contents == 2 and decoder.done
        for k in (0, 1, len(events.body) // 2, len(events.body) - 1):
            with pytest.raises(ModelUnavailable) as failure:
                decoded(events.body[:k], WHOLE)
            assert failure.value.kind == "network"


def test_calls_without_ids_of_their_own_get_some() -> None:
    items = [
        call(id="x"),
        call(id="x"),
        call(id=""),
        {"type": "function_call", "name": None, "arguments": {"a": 1}},
    ]
    calls = decoded(sse(ended(*items))).message.calls
    assert [c.id for c in calls] == ["x", "x_1", "fc_", "call_3"]
    assert calls[3] == ToolCall(id="call_3", name="", arguments_json='{"a":1}')


def test_what_the_last_event_leaves_out_is_taken_from_those_before() -> None:
    first = {"type": "response.created", "response": {"model": "gpt-x", "status": "in_progress"}}
    result = {"type": "response.output_item.done", "output_index": 0, "item": message("hi")}
    last = {"type": "response.completed", "response": {"id": "resp_1"}}
    assert decoded(sse(first, delta("hi"), result, last)) == decoded(sse(first, delta("hi"), last))
    assert decoded(sse(first, delta("hi"), last)).model == "gpt-x"
    assert decoded(sse(first, ended(message("hi")))).model == "gpt"  # F51: the last word counts
    assert decoded(sse(first, result, ended(message("hi"), call()))).stop == "calls"


def test_servers_that_give_all_events_one_number_are_understood() -> None:
    events = [
        {**e, "sequence_number": 0}
        for e in ({"type": "response.in_progress"}, delta("a"), delta("b"), ended())
    ]
    assert decoded(sse(*events)).message.text == "ab"


def test_keeping_alive_is_no_content() -> None:
    decoder = CODEC.decoder(STREAM)
    decoder.feed(sse({"type": "response.in_progress"}, {"type": "keepalive"}) + b": ping\n\n")
    assert (decoder.contents, decoder.done) == (0, False)
    decoder.feed(sse(delta("a"), ended()))
    assert (decoder.contents, decoder.done) == (1, True)
