"""One exchange over real sockets: what is written at a time, answers that come early, and
connections that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from retinue.core.messages import UserMessage
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models.connection_pool import ConnectionPool
from retinue.models.exchange import TOGETHER, RequestSender
from retinue.models.http import HttpModel, Times
from retinue.models.watchdog import Watchdog
from tests.models.http_world import FAST, asking, at_rest, complete, history, http_model, serving
from tests.waiting import SECONDS, until

REPLY = (
    b'{"type":"message","content":[{"type":"text","text":"Hi"}],'
    b'"stop_reason":"end_turn","usage":{}}'
)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(REPLY), REPLY)
LIMIT = b'{"type":"error","error":{"type":"rate_limit_error","message":"wait"}}'
TOO_LARGE = b'{"type":"error","error":{"type":"request_too_large","message":"no"}}'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def refusal(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(
        int(line.split(b":")[1])
        for line in head.lower().splitlines()
        if line.startswith(b"content-length")
    )
    return head + await reader.readexactly(size)


def with_server(
    serve: Serve, story: Callable[[HttpModel], Awaitable[Any]], times: Times = FAST
) -> Any:
    async def whole() -> Any:
        client = ConnectionPool(times)
        async with serving(serve) as url:
            model = http_model(url, client=client, stream=False)
            try:
                return await story(model)
            finally:
                assert at_rest(model.governor)
                await client.close()

    return asyncio.run(whole())


def large() -> Any:
    return asking(messages=history(*(UserMessage(text="x" * (1 << 20)) for _ in range(24))))


def test_small_pieces_are_written_together_and_large_ones_as_they_are() -> None:
    wire = RequestSender("http://127.0.0.1:9/v1?a=b%20c", {"x-key": "k"})
    assert wire.head.startswith(b"POST /v1?a=b%20c HTTP/1.1\r\n") and b"x-key: k\r\n" in wire.head
    assert b"Host: 127.0.0.1:9\r\n" in wire.head and wire.head.count(b"Content-Length") == 1
    small, huge = [b"a" * 10] * 50, b"b" * (2 * TOGETHER)
    assert wire.writes(small, 500) == (wire.head + b"500\r\n\r\n" + b"".join(small), None)
    first, more = wire.writes([*small, huge, *small], 1_000 + len(huge))
    writes = [first, *(more or ())]
    assert len(writes) == 3 and writes[1] is huge, "what is large is not copied"
    assert b"".join(writes).endswith(b"".join([*small, huge, *small]))


def test_a_header_that_would_end_early_is_refused() -> None:
    for name, value in (
        ("x", "a\r\nauthorization: b"),
        ("x\n", "a"),
        ("x", "a\0"),
        ("ü", "a"),
        ("", "a"),
    ):
        with pytest.raises(ConfigError, match="contains characters that are not allowed"):
            RequestSender("http://127.0.0.1:9", {name: value})


def test_a_connection_is_used_again_after_a_reply_and_after_a_refusal() -> None:
    answers = [OK, refusal(429, LIMIT), OK, refusal(400, b"{}"), OK]
    peers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        while answers:
            await read_request(reader)
            writer.write(answers.pop(0))

    async def story(model: HttpModel) -> None:
        model.governor._cool = lambda seconds, why: None  # type: ignore[method-assign]
        for fails in (None, ModelUnavailable, None, ModelRejected, None):
            if fails is None:
                assert (await complete(model)).message.text == "Hi"
            else:
                with pytest.raises(fails):
                    await complete(model)

    with_server(serve, story)
    assert answers == [] and len(peers) == 1


def test_what_comes_before_the_answer_is_passed_over() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK
        )

    assert with_server(serve, complete).message.text == "Hi"


def test_an_offer_to_speak_something_else_is_no_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
        )

    async def story(model: HttpModel) -> None:
        with pytest.raises(ModelError):
            await complete(model)

    with_server(serve, story, Times(headers=30.0, idle=0.3))


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_answer_that_comes_before_the_body_was_read_is_heard(is_closed: bool) -> None:
    """The server reads the head and no more: the rest of 24 MiB has nowhere to go."""
    peers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal(413, TOO_LARGE))
        await writer.drain()
        if is_closed:
            writer.close()
        else:
            await asyncio.sleep(5)

    async def story(model: HttpModel) -> ModelError:
        with pytest.raises(ModelError) as failure:
            await complete(model, large())
        return failure.value

    error = with_server(serve, story, Times(headers=30.0))
    # A connection that is reset may take the answer with it.
    assert error.kind == "too_large" or (is_closed and error.kind == "network")


def test_a_server_that_reads_slowly_gets_the_whole() -> None:
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await asyncio.sleep(0.05)
            sizes.append(len(await read_request(reader)))
            writer.write(OK)

    async def story(model: HttpModel) -> None:
        for _ in range(2):
            assert (await complete(model, large())).message.text == "Hi"

    with_server(serve, story, Times())
    assert len(sizes) == 2 and min(sizes) > 24 << 20


def test_a_connection_that_breaks_under_a_large_body_is_another_try_and_no_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async def story(model: HttpModel) -> ModelError:
        with pytest.raises(ModelUnavailable) as failure:
            await complete(model, large())
        return failure.value

    assert with_server(serve, story).kind == "network"
    assert [r for r in caplog.records if r.levelname != "DEBUG"] == []


def test_a_cancelled_upload_ends_its_connection() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        event.set()
        await go_on.wait()
        while await reader.read(1 << 20):
            pass
        ended.set()

    async def story(model: HttpModel) -> None:
        task = asyncio.create_task(complete(model, large()))
        await event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await asyncio.wait_for(ended.wait(), SECONDS)
        await until(lambda: not [t for t in asyncio.all_tasks() if "_write" in repr(t.get_coro())])

    event, go_on = asyncio.Event(), asyncio.Event()
    with_server(serve, story, Times())


def test_a_cancelled_upload_leaves_no_socket_open_although_nobody_reads_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        event.set()
        await asyncio.sleep(3_600)

    def senders() -> list[Any]:
        transports: Any = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
        return [t for t in transports.values() if t._sock is not None and t.get_write_buffer_size()]

    async def story(model: HttpModel) -> None:
        task = asyncio.create_task(complete(model, large()))
        await event.wait()
        await until(senders)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not senders(), 5.0)

    event = asyncio.Event()
    with_server(serve, story, Times())


# time limits


def test_a_limit_is_seen_as_one_in_a_task_that_was_cancelled_before_and_went_on() -> None:
    async def story() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        assert task.cancelling() == 1, "it was asked to stop, and cleans up"
        dog = Watchdog(0.01)
        try:
            with pytest.raises(TimeoutError, match="too late"), dog.limit(0.0, "too late"):
                await asyncio.sleep(10)
        finally:
            dog.close()
        return f"{task.cancelling()}"

    async def outer() -> None:
        assert await asyncio.create_task(story()) == "1"

    asyncio.run(outer())


def test_who_is_cancelled_while_a_limit_expires_is_cancelled() -> None:
    async def call() -> None:
        with dog.limit(asyncio.get_running_loop().time() + 0.02, "late"):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                expired.set()
                await asyncio.sleep(10)

    async def story() -> None:
        task = asyncio.create_task(call())
        await expired.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        dog.close()

    dog, expired = Watchdog(0.01), asyncio.Event()
    asyncio.run(story())
