"""A model over real sockets: what is sent, what is read, and what becomes of everything that can go
wrong between."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from retinue.core.history import Conversation, ShownMessages
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.values import ModelInfo
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.anthropic import AnthropicCodec
from retinue.models.codec import Options, encode
from retinue.models.governor import Governor
from retinue.models.http import ConnectionPool, HttpModel, Times
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.models.http_world import (
    DIALECTS,
    FAST,
    KEY,
    QUICK,
    Together,
    answering,
    asking,
    at_rest,
    complete,
    history,
    http_model,
    serving,
    talking,
    url_of,
)
from tests.waiting import until

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
GOOD = b"".join(
    b"event: %b\ndata: %b\n\n" % (msgspec.json.decode(data)["type"].encode(), data)
    for data in (
        b'{"type":"message_start","message":{"id":"m1","model":"m","content":[],"usage":{}}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
    )
)
END = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def head(status: int = 200, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode()


async def failing(model: HttpModel, kind: type[ModelError] = ModelError, **fields: Any) -> Any:
    with pytest.raises(kind) as failure:
        await complete(model, asking(**fields))
    assert at_rest(model.governor), "a call that failed is over"
    return failure.value


def said_to(
    *answers: bytes, kind: type[ModelError] | None = None, times: Times = FAST, **fields: Any
) -> Any:
    """What a model makes of these bytes: a reply, or an error of this kind."""

    async def story() -> Any:
        async with answering(*answers, close=fields.pop("close", True)) as (url, _):
            client = ConnectionPool(times)
            try:
                model = http_model(url, client=client, **fields)
                return await (complete(model) if kind is None else failing(model, kind))
            finally:
                await client.close()

    return asyncio.run(story())


# what is sent


@every_dialect
@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_comes_whole_with_its_cost_and_its_model(dialect: str, stream: bool) -> None:
    async def story() -> None:
        info = ModelInfo(name="m", price_in=3_000, price_out=15_000)
        text = "A good day to you, and to all of yours."
        async with talking([text], dialect, info=info, stream=stream, chunks=4) as (llm, model):
            texts: list[str] = []
            reply = await complete(model, texts=texts)
            assert (reply.message.text, reply.stop, reply.model) == (text, "end", "m")
            assert "".join(texts) == (text if stream else "")
            assert reply.usage.nanos == info.cost_of(reply.usage) > 0
            assert llm.violations == [] and llm.requests[0].headers["user-agent"] == "retinue"

    asyncio.run(story())


def long_talk(n: int, size: int) -> list[Message]:
    talk: list[Message] = []
    for i in range(n):
        talk += [
            UserMessage(text=f"{i} " + "q" * size),
            AssistantMessage(text="", calls=(ToolCall(id=f"c{i}", name="read"),)),
        ]
        talk += [
            ToolMessage(call_id=f"c{i}", name="read", text="r" * size),
            AssistantMessage(text="a" * size),
        ]
    return [*talk, UserMessage(text="And now?")]


@every_dialect
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("size", [10, 3_000, 70_000])
def test_the_pieces_of_a_body_are_the_conversation_and_nothing_else(
    dialect: str, cache: bool, size: int
) -> None:
    options = Options(cache=cache, cache_key="k")
    model = http_model("http://x", dialect, client=ConnectionPool(), options=options)
    talk, tools = long_talk(12, size), asking().declared
    conversation = Conversation()
    for message in talk:
        conversation.append(message)
        if isinstance(message, UserMessage):
            request = asking(
                messages=ShownMessages(conversation, 0, len(conversation)), declared=tools
            )
            parts = model.body(request, model._head(request)[0])
            messages = list(request.messages)
            assert b"".join(parts) == encode(
                model.codec, "m", "Be brief.", messages, tools, options, 256
            )


def test_a_forks_body_has_one_breakpoint_more_at_the_end_of_what_it_shares() -> None:
    model = http_model("http://x", client=ConnectionPool(), options=Options(cache_key="k"))
    base = Conversation()
    for message in long_talk(12, 3_000)[:-1]:
        base.append(message)
    request = asking(messages=history(UserMessage(text="Fork."), base=base))
    body = b"".join(model.body(request, model._head(request)[0]))
    plain = encode(
        model.codec,
        "m",
        "Be brief.",
        list(request.messages),
        request.declared,
        Options(cache_key="k"),
        256,
    )
    assert body.count(b"cache_control") == plain.count(b"cache_control") + 1 == 4, (
        "Anthropic takes four"
    )
    extra = b',"cache_control":{"type":"ephemeral"}'
    at = next(n for n, (a, b) in enumerate(zip(body, plain, strict=False)) if a != b)
    assert body[:at] + body[at + len(extra) :] == plain


@every_dialect
def test_a_conversation_that_lost_its_beginning_is_still_taken(dialect: str) -> None:
    async def story() -> None:
        async with talking(dialect=dialect) as (llm, model):
            conversation = Conversation()
            for message in long_talk(3, 10):
                conversation.append(message)
            for start in range(len(conversation)):
                await complete(
                    model, asking(messages=ShownMessages(conversation, start, len(conversation)))
                )
            assert llm.violations == []

    asyncio.run(story())


@every_dialect
def test_a_body_of_many_mebibytes_is_sent(dialect: str) -> None:
    async def story() -> None:
        async with talking(dialect=dialect, times=Times()) as (llm, model):
            for text in ("x" * (3 << 20), "short"):
                await complete(model, asking(messages=history(UserMessage(text=text))))
                assert llm.requests[-1].messages[-1].text == text
            assert len(llm.requests) == 2 and llm.violations == []

    asyncio.run(story())


# what is read


def test_a_refusal_that_comes_in_pieces_or_breaks_off_is_understood() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"type":"error","error":{"type":"rate_limit_error","message":"wait"}}'
        writer.write(head(429, content_length=str(len(body)), retry_after="3") + body[:30])
        await asyncio.sleep(0.1)
        writer.write(body[30:])

    async def story() -> None:
        client = ConnectionPool(FAST)
        async with serving(serve) as url:
            error = await failing(http_model(url, client=client), ModelUnavailable)
            assert (error.kind, error.retry_after, str(error)) == ("rate_limit", 3.0, "wait")
            await client.close()

    asyncio.run(story())
    for close in (True, False):
        texts = said_to(
            head(401, content_length="500") + b'{"type":"err', kind=ModelUnavailable, close=close
        )
        assert texts.kind == "auth", "the status was told"


def test_a_page_with_403_says_nothing_of_the_key() -> None:
    page = b"<!DOCTYPE html><html><title>Attention Required!</title>You have been blocked</html>"
    for body in (page, b"", b"Forbidden"):
        error = said_to(head(403, content_length=str(len(body))) + body, kind=ModelUnavailable)
        assert error.kind == "forbidden" and "HTTP 403" in str(error) and "<" not in str(error)
    body = b'{"type":"error","error":{"type":"permission_error","message":"no"}}'
    assert (
        said_to(head(403, content_length=str(len(body))) + body, kind=ModelUnavailable).kind
        == "auth"
    )


def test_an_organization_that_is_disabled_is_a_key_that_is_refused() -> None:
    body = (
        b'{"type":"error","error":{"type":"invalid_request_error","message":"This organization '
        b'has been disabled."}}'
    )
    assert (
        said_to(head(400, content_length=str(len(body))) + body, kind=ModelUnavailable).kind
        == "auth"
    )


def test_what_is_complete_is_complete_however_the_connection_ends() -> None:
    for answer, close in (
        (head(transfer_encoding="chunked") + b"%x\r\n%b\r\n" % (len(GOOD + END), GOOD + END), True),
        (head(content_length="99999") + GOOD + END, True),
        (head(content_length="99999") + GOOD + END, False),
        (head(content_encoding="gzip") + gzip.compress(GOOD + END), True),
    ):
        assert said_to(answer, close=close).message.text == "Hi"
    texts = said_to(head(content_length="99999") + GOOD, kind=ModelUnavailable)
    assert texts.kind == "network"


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        (b"", ModelUnavailable, "network"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", ModelRejected, "bad_response"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", ModelUnavailable, "network"),
        (head() + b"<html>Please log in to this hotel</html>", ModelUnavailable, "network"),
        (head(content_encoding="br") + b"xxx", ModelUnavailable, "server_error"),
        (head(content_encoding="gzip") + b"plain text", ModelUnavailable, "server_error"),
        (head(content_encoding="gzip") + gzip.compress(GOOD)[:-9], ModelUnavailable, "network"),
        (head(x_big="x" * (1 << 20)) + GOOD + END, ModelRejected, "bad_response"),
        (head(204), ModelUnavailable, "server_error"),
        (head(302, location="http://evil.test/"), ModelRejected, "redirect"),
        (head(429, retry_after="1e12"), ModelUnavailable, "rate_limit"),
    ],
)
def test_what_is_not_an_answer_is_an_error_of_its_kind(
    answer: bytes, error: type[ModelError], kind: str
) -> None:
    texts = said_to(answer, kind=error)
    assert texts.kind == kind
    assert "<html" not in str(texts)
    assert getattr(texts, "retry_after", 0.0) <= 3_600.0


def test_headers_of_many_kibibytes_are_read() -> None:
    assert said_to(head(content_security_policy="x" * 40_000) + GOOD + END).message.text == "Hi"


def test_a_small_answer_that_unpacks_to_gigabytes_costs_little() -> None:
    small = gzip.compress((b": " + b" " * 4093 + b"\n") * (80 << 8))
    assert len(small) < 1 << 20
    texts = said_to(head(content_encoding="gzip") + small, kind=ModelRejected)
    assert texts.kind == "response_too_large" and "4 MiB" in str(texts)
    long = GOOD + (PING * 100_000) + END
    assert said_to(head(content_encoding="gzip") + gzip.compress(long)).message.text == "Hi", (
        "as well as a ping may pack"
    )


def test_a_redirect_carries_the_key_nowhere() -> None:
    async def story() -> None:
        async with answering(head(200) + GOOD + END) as (elsewhere, server):
            settings = replace(QUICK, elsewhere=elsewhere)
            async with talking(faults=["F35"], settings=settings) as (_, model):
                error = await failing(model, ModelRejected)
                assert error.kind == "redirect" and elsewhere not in str(error)
            await asyncio.sleep(0.05)
            assert server == []

    asyncio.run(story())


# time


async def dripping(pieces: Sequence[bytes], pause: float, times: Times) -> Any:
    """A model that is told these pieces with a pause between: its reply or its error, and how long
    it took."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head())
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)

    client = ConnectionPool(times)
    async with serving(serve) as url:
        model = http_model(url, client=client)
        began = asyncio.get_running_loop().time()
        try:
            return await complete(model), asyncio.get_running_loop().time() - began
        except ModelUnavailable as error:
            return error, asyncio.get_running_loop().time() - began
        finally:
            assert at_rest(model.governor)
            await client.close()


SHORT = Times(connect=60.0, headers=60.0, idle=60.0, content=60.0, attempt=60.0)
"""With one of them short, that one ends it, however busy the machine is."""


@pytest.mark.parametrize(
    ("pieces", "short", "says"),
    [
        ([PING] * 27 + [GOOD, END], {"idle": 1.5}, ""),
        ([PING] * 1_000, {"content": 0.6}, "no content"),
        ([GOOD] + [b": comment\n\n"] * 1_000, {"content": 0.6}, "no content"),
        ([GOOD], {"idle": 0.3}, "no data for"),
        ([GOOD[:-2], *(bytes([b]) for b in b": " + b"x" * 1_000)], {"content": 0.6}, "no content"),
    ],
)
def test_signs_of_life_are_heeded_but_not_for_ever(
    pieces: list[bytes], short: dict[str, float], says: str
) -> None:
    pause = 60.0 if len(pieces) == 1 else 0.06
    end, seconds = asyncio.run(dripping(pieces, pause, replace(SHORT, **short)))
    assert says in (str(end) if isinstance(end, ModelError) else "")
    assert seconds >= max(short.values()), "the pieces took longer than the silence that is allowed"
    assert isinstance(end, ModelUnavailable) == bool(says)


def test_an_attempt_has_an_end_although_content_comes() -> None:
    delta = GOOD.split(b"\n\n")[2] + b"\n\n"
    pieces = [GOOD.replace(b"end_turn", b"")] + [delta] * 1_000
    end, _ = asyncio.run(dripping(pieces, 0.05, replace(SHORT, attempt=0.8)))
    assert isinstance(end, ModelUnavailable) and "not complete after 0.8 s" in str(end)


def test_without_a_stream_the_headers_may_take_as_long_as_a_reply() -> None:
    async def story() -> None:
        times = replace(SHORT, headers=0.2)
        async with talking(stream=False, seconds=0.6, times=times) as (_, model):
            assert (await complete(model)).message.text == "Hello."
        async with talking(seconds=0.6, times=times) as (_, model):
            assert "no headers received" in str(await failing(model, ModelUnavailable))

    asyncio.run(story())


@every_dialect
def test_a_cancelled_call_lets_go_of_its_connection_and_sends_no_more(dialect: str) -> None:
    async def story() -> None:
        for fault in ("F18", "F20"):
            async with talking(dialect=dialect, faults=[fault], times=Times()) as (llm, model):
                call = asyncio.create_task(complete(model))
                await until(lambda llm=llm: llm.open == 1)  # type: ignore[misc]
                await asyncio.sleep(0.05)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await until(lambda llm=llm: llm.disconnects == 1 and llm.open == 0)  # type: ignore[misc]
                assert at_rest(model.governor) and llm.n_requests == 1
                assert (await complete(model)).message.text == "Hello."

    asyncio.run(story())


def test_a_thousand_streams_run_at_once() -> None:
    async def story() -> None:
        settings = replace(QUICK, pace_seconds=0.1)
        governor, text = Governor(width=1_024), "One two three four five."
        script = Together(1_000, text)
        async with talking(
            script, settings=settings, chunks=5, governor=governor, times=Times()
        ) as (llm, model):
            questions = [asking(run=f"r{i}", root=f"t{i}") for i in range(1_000)]
            replies = await asyncio.gather(*(complete(model, one) for one in questions))
            assert {r.message.text for r in replies} == {text}
            assert llm.connections == 1_000 and llm.violations == []
            assert at_rest(governor)

    asyncio.run(story())


# secrets


def test_a_key_that_somebody_on_the_way_repeats_is_hidden() -> None:
    async def story() -> None:
        for fault in ("F10", "F10b"):
            async with talking(faults=[fault]) as (_, model):
                error = await failing(model, ModelUnavailable)
                assert error.kind == "auth" and KEY not in f"{error} {error.args} {error!r}"
        texts: list[str] = []
        async with talking([f"Your key is {KEY}."], chunks=1) as (_, model):
            reply = await complete(model, texts=texts)
            assert "".join(texts) == "Your key is [redacted:key]."
            assert reply.message.text == "Your key is [redacted:key]." and KEY not in repr(
                (reply, model, model._client)
            )

    asyncio.run(story())


class Broken(AnthropicCodec):
    def decoder(self, options: Options) -> Any:
        raise KeyError(f"no {KEY} here")


def test_a_mistake_of_ours_is_an_error_of_the_call_and_tells_no_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with talking(codec=Broken()) as (_, model):
            error = await failing(model, ModelRejected)
            assert (
                error.kind == "bad_response" and "KeyError" in str(error) and KEY not in str(error)
            )

    with caplog.at_level(logging.DEBUG):
        asyncio.run(story())
    assert "in decoder" in caplog.text and KEY not in caplog.text


@every_dialect
def test_a_conversation_refused_for_an_orphan_is_sent_once_more_and_counted(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with talking(dialect=dialect, faults=["F14", None, "F14", "F14"]) as (llm, model):
            assert (await complete(model)).message.text == "Hello."
            assert (model.n_repairs, llm.n_requests) == (1, 2)
            assert (await failing(model, ModelRejected)).kind == "invalid_request"
            assert (model.n_repairs, llm.n_requests) == (2, 4)

    asyncio.run(story())
    assert "should not be needed" in caplog.text


@every_dialect
def test_a_refused_schema_is_told_with_the_name_of_its_tool(dialect: str) -> None:
    async def story() -> None:
        async with talking(dialect=dialect, faults=["F16"]) as (_, model):
            error = await failing(model, ModelRejected)
            assert error.kind == "bad_schema" and "read" in str(error)

    asyncio.run(story())


@pytest.mark.parametrize("key", ["assistant", "00000000", "not-needed", "message_start"])
def test_a_key_that_is_a_word_of_the_format_breaks_no_reply(key: str) -> None:
    async def story() -> None:
        async with FakeLLM([f"I am {key}, at 100000000."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            model = http_model(url_of(llm, "anthropic"), client=client, key=key)
            try:
                reply = await model.complete(asking(), lambda text: None)
            finally:
                await client.close()
            assert reply.message.text.startswith("I am [redacted:key], at 1")

    asyncio.run(story())
