"""What a provider counts is believed as far as it can be: nothing is booked twice, for ever, or not
at all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue.core.values import ModelInfo, Usage
from retinue.models.http import ConnectionPool
from retinue.models.usage_checks import ADDED, RequestSize, believed, never_smaller
from tests.models.http_world import DIALECTS, FAST, answering, asking, complete, http_model

INFO = ModelInfo(
    name="m",
    window=200_000,
    max_output=8_192,
    price_in=3_000,
    price_out=15_000,
    price_cache_read=300,
    price_cache_write=3_750,
    preamble=500,
)
ASKED = RequestSize(size=4_000, max_output=1_000, info=INFO)


def used(**counts: int) -> Usage:
    return believed(Usage(**counts), 400, ASKED)


def test_what_can_be_is_believed_to_the_token() -> None:
    usage = Usage(input=1_100, output=90, cache_read=600, cache_write=300)
    assert used(input=1_100, output=90, cache_read=600, cache_write=300) == Usage(
        input=1_100, output=90, cache_read=600, cache_write=300, nanos=INFO.cost_of(usage)
    )


def test_a_reply_without_counts_is_left_to_whoever_holds_its_bound() -> None:
    assert used() == Usage() and used(cache_read=5) == Usage()


def test_a_count_that_is_missing_is_estimated() -> None:
    no_prompt = used(output=90)
    assert (no_prompt.input, no_prompt.output, no_prompt.estimated) == (0, 90, 1_000)
    assert no_prompt.nanos == 1_000 * 3_750 + 90 * 15_000, "as if all of it were written to a cache"
    no_reply = used(input=1_100)
    assert (no_reply.input, no_reply.output, no_reply.estimated) == (1_100, 0, 100)
    assert no_reply.nanos == 1_100 * 3_000 + 100 * 15_000


@pytest.mark.parametrize("n", [4_000 + 500 + ADDED + 1, 450_000, (1 << 31) - 1])
def test_a_prompt_of_more_tokens_than_bytes_is_none(n: int) -> None:
    assert used(input=n, output=90) == used(output=90)
    assert used(input=4_000 + 500 + ADDED, output=90).input == 4_000 + 500 + ADDED, (
        "a gateway may have added to it"
    )


def test_a_provider_that_was_asked_to_read_elsewhere_may_count_what_it_read() -> None:
    wide = RequestSize(size=4_000, max_output=1_000, info=INFO, is_open=True)
    assert believed(Usage(input=150_000, output=9), 40, wide).input == 150_000
    assert believed(Usage(input=1_000_000, output=9), 40, wide).input == 0


def test_no_reply_is_longer_than_was_permitted_unless_it_is() -> None:
    assert used(input=1_100, output=50_000).output == 1_000
    assert believed(Usage(input=1_100, output=3_000), 9_000, ASKED).output == 3_000, (
        "it was seen to be"
    )


def test_no_more_of_a_prompt_is_cached_than_there_is() -> None:
    some = used(input=1_000, output=1, cache_read=900, cache_write=900)
    assert (some.cache_read, some.cache_write) == (900, 100)
    assert used(output=1, cache_read=900).cache_read == 0


def test_of_a_reply_that_broke_off_what_came_counts_if_it_is_more_than_was_counted() -> None:
    def broken(text: int, **counts: int) -> Usage:
        return believed(Usage(**counts), text, ASKED, is_whole=False)

    assert broken(400, input=1_100, output=1) == Usage(
        input=1_100,
        output=1,
        estimated=99,
        nanos=1_100 * 3_000 + 100 * 15_000,
        nanos_estimated=99 * 15_000,
    )
    assert broken(40, input=1_100, output=60).tokens == 1_160
    assert broken(0).estimated == 1_000, "the prompt was read"
    assert broken(10**6, input=1_100).tokens == 1_100 + 250_000, "what came, came"


def test_counts_of_a_stream_do_not_shrink() -> None:
    one = never_smaller(Usage(), Usage(input=100, output=5, cache_read=3))
    assert never_smaller(one, Usage(input=1, output=9)) == Usage(input=100, output=9, cache_read=3)


# in every dialect, over the wire


def stream(dialect: str, *counts: tuple[int, int]) -> bytes:
    """A whole reply whose events tell these prompts and outputs one after another."""
    events: list[dict[str, Any]]
    match dialect:
        case "anthropic":
            first, *rest = [{"input_tokens": i, "output_tokens": o} for i, o in counts]
            message = {"id": "m1", "model": "m", "content": [], "usage": first}
            events = [{"type": "message_start", "message": message}]
            events += [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
            ]
            delta = {"type": "text_delta", "text": "Hi"}
            events += [{"type": "content_block_delta", "index": 0, "delta": delta}]
            events += [
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": u}
                for u in rest
            ]
            events += [{"type": "message_stop"}]
        case "openai_chat":
            events = [{"choices": [{"index": 0, "delta": {"content": "Hi"}}]}]
            texts = [
                {"prompt_tokens": i, "completion_tokens": o, "total_tokens": i + o}
                for i, o in counts
            ]
            events += [{"choices": [], "usage": u} for u in texts]
            events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
        case "openai_responses":
            *some, last = [{"input_tokens": i, "output_tokens": o} for i, o in counts]
            events = [{"type": "response.in_progress", "response": {"usage": u}} for u in some]
            item = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
            result = {"status": "completed", "model": "m", "output": [item], "usage": last}
            events += [{"type": "response.completed", "response": result}]
        case _:
            texts = [{"promptTokenCount": i, "candidatesTokenCount": o} for i, o in counts]
            events = [
                {
                    "candidates": [{"content": {"parts": [{"text": "Hi"}]}}],
                    "usageMetadata": texts[0],
                }
            ]
            events += [{"usageMetadata": u} for u in texts[1:]]
            events += [{"candidates": [{"finishReason": "STOP"}]}]
    body = b"".join(b"data: %b\n\n" % json.dumps(e).encode() for e in events)
    body += b"data: [DONE]\n\n" if dialect == "openai_chat" else b""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def spent(dialect: str, *counts: tuple[int, int]) -> Usage:
    async def story() -> Usage:
        async with answering(stream(dialect, *counts)) as (url, _):
            client = ConnectionPool(FAST)
            reply = await complete(http_model(url, dialect, client=client, info=INFO), asking())
            await client.close()
            return reply.usage

    return asyncio.run(story())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_shrinking_negative_and_absurd_counts_are_not_booked(dialect: str) -> None:
    assert (lambda u: (u.input, u.output))(spent(dialect, (300, 1), (300, 9))) == (300, 9)
    if dialect != "openai_responses":  # only its last event counts as a rule
        assert (lambda u: (u.input, u.output))(spent(dialect, (300, 9), (3, 1))) == (300, 9)
    absurd = spent(dialect, (1_900_000_000, 9), (1_900_000_000, 1_900_000_000))
    assert absurd.input == 0 and 50 < absurd.estimated < 300 and absurd.output == 256
    negative = spent(dialect, (-5, 9), (-5, 9))
    assert negative.input == 0 and 50 < negative.estimated < 300 and negative.output == 9
    assert spent(dialect, (0, 0), (0, 0)) == Usage()
