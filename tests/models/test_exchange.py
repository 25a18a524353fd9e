"""Connections of our own over real sockets, with peers that misbehave: what they send, when, and
how they end."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models import kept_connections as pool
from retinue.models import new_connections
from retinue.models.http import ConnectionPool, HttpModel, Times
from retinue.models.http_connection import MOST_INTERIM, MOST_UNREAD
from retinue.models.new_connections import Route
from tests.models.http_world import KEY, Serve, asking, at_rest, complete, http_model, serving
from tests.models.test_exchange_sockets import OK, REPLY, read_request
from tests.waiting import SECONDS, until

CALM = Times(connect=30.0, headers=30.0, idle=30.0, content=30.0, attempt=60.0)
Story = Callable[[HttpModel, ConnectionPool], Awaitable[Any]]


def with_peer(
    serve: Serve,
    story: Story,
    times: Times = CALM,
    client: ConnectionPool | None = None,
    **more: Any,
) -> Any:
    """What comes of a story with a model whose provider does this. Nothing is open when it is
    over."""

    async def whole() -> Any:
        ours = client or ConnectionPool(times)
        async with serving(serve, **more) as url:
            model = http_model(url, client=ours, stream=False)
            try:
                return await story(model, ours)
            finally:
                assert at_rest(model.governor)
                rest = ours._open.get(asyncio.get_running_loop())
                await ours.close()
                assert rest is None or (not rest[0]._open and rest[0].n_out == 0)

    return asyncio.run(whole())


def once(answer: bytes, *, close: bool = False) -> tuple[Serve, list[int]]:
    """A peer that gives this answer to each request, and the numbers of the connections on which it
    was asked."""
    numbers: list[int] = []
    n = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n
        n += 1
        me = n
        while True:
            await read_request(reader)
            numbers.append(me)
            writer.write(answer)
            await writer.drain()
            if close:
                return

    return serve, numbers


async def twice(model: HttpModel, client: ConnectionPool) -> str:
    return "".join([(await complete(model)).message.text for _ in range(2)])


async def fails(model: HttpModel, client: ConnectionPool) -> ModelError:
    with pytest.raises(ModelError) as failure:
        await asyncio.wait_for(complete(model), SECONDS)
    return failure.value


def where(model: HttpModel) -> Route:
    host, port = model._url.removeprefix("http://").partition("/")[0].split(":")
    return Route(host, int(port))


def body(*lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""])


# which connections are used again


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        (OK, True),
        (
            body(b"transfer-encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(REPLY), REPLY),
            True,
        ),
        (
            body(b"transfer-encoding: chunked")
            + b"%x\r\n%b\r\n0\r\nx: y\r\n\r\n" % (len(REPLY), REPLY),
            True,
        ),
        (OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=60\r\n\r\n"), True),
        (OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=1\r\n\r\n"), False),
        (OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), False),
        (OK.replace(b"1.1", b"1.0"), False),
        (OK + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (OK + b"\0", False),
        (
            body(b"transfer-encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\nx" % (len(REPLY), REPLY),
            False,
        ),
    ],
)
def test_only_a_connection_on_which_nothing_is_left_is_used_again(
    answer: bytes, is_kept: bool
) -> None:
    serve, question = once(answer)
    assert with_peer(serve, twice) == "HiHi"
    assert question == ([1, 1] if is_kept else [1, 2])


def test_an_answer_may_end_with_its_connection() -> None:
    serve, question = once(body() + REPLY, close=True)
    assert with_peer(serve, twice) == "HiHi" and question == [1, 2]


def test_what_comes_unasked_on_a_resting_connection_is_no_answer() -> None:
    """What a peer says between two calls is not taken for the answer to the second."""
    peers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        while True:
            await read_request(reader)
            writer.write(OK)

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        await complete(model)
        peers[0].write(OK.replace(b"Hi", b"No"))
        ours, _ = client.pool()
        await until(lambda: not ours._open)
        assert (await complete(model)).message.text == "Hi" and len(peers) == 2

    with_peer(serve, story)


def test_an_answer_before_the_question_is_heard_and_its_connection_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        ours, _ = client.pool()
        connection = await ours.connect(where(model))
        await until(lambda: connection._buffer)
        connection.send(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert (await connection.answer()).status == 503 and connection.is_whole
        ours.give(connection)
        await until(lambda: not ours._open)

    with_peer(serve, story)


def test_a_connection_that_nobody_uses_is_closed_after_a_while() -> None:
    ended: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        ended.append(len(await reader.read()))

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        ours, _ = client.pool()
        ours.idle_seconds = 0.05
        await complete(model)
        await until(lambda: ended)
        await until(lambda: not ours._open and ours._sweeper is None)

    with_peer(serve, story)
    assert ended == [0], "nothing more was sent, and then it was closed"


def test_a_connection_that_was_closed_while_the_loop_was_blocked_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "LOOK_AFTER", 0.0)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(SECONDS)

    def answer(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        peer.sendall(OK)

    async def story() -> None:
        client = ConnectionPool(CALM)
        model = http_model(
            f"http://127.0.0.1:{listening.getsockname()[1]}", client=client, stream=False
        )
        for _ in range(2):
            task = asyncio.create_task(complete(model))
            peer, _ = await asyncio.to_thread(listening.accept)
            await asyncio.to_thread(answer, peer)
            assert (await task).message.text == "Hi"
            peer.close()  # the loop hears nothing of it before the next call
        await client.close()

    asyncio.run(story())
    listening.close()


# what is no answer


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (MOST_INTERIM + 1) + OK, ModelRejected, "bad_response"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000 + b"\r\n", ModelRejected, "bad_response"),
        (
            b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1_000 + b"\r\n" + OK,
            ModelRejected,
            "bad_response",
        ),
        (body(b"content-length: 1", b"content-length: 2") + b"{}", ModelRejected, "bad_response"),
        (body(b"content-length: -5") + b"{}", ModelRejected, "bad_response"),
        (body(b"content-length: 99999999999999999999") + b"{}", ModelRejected, "bad_response"),
        (
            body(b"content-length: 2", b"transfer-encoding: chunked") + b"{}",
            ModelRejected,
            "bad_response",
        ),
        (body(b"x: a\0b") + b"{}", ModelRejected, "bad_response"),
        (b"HTTP/3 200 OK\r\n\r\n{}", ModelRejected, "bad_response"),
        (b"220 mail.test ESMTP\r\n", ModelRejected, "bad_response"),
        (body(b"content-length: 999999999999999") + REPLY, ModelUnavailable, "network"),
        (body(b"transfer-encoding: chunked") + b"zz\r\n", ModelUnavailable, "network"),
        (body(b"transfer-encoding: chunked") + b"5\r\nhello", ModelUnavailable, "network"),
        (b"HTTP/1.1 200 OK\r\nx: y", ModelUnavailable, "network"),
        (b"HTT", ModelUnavailable, "network"),
    ],
)
def test_what_is_no_answer_is_refused_or_tried_again(
    answer: bytes, error: type[ModelError], kind: str
) -> None:
    serve, _ = once(answer, close=True)
    text = with_peer(serve, fails)
    assert isinstance(text, error) and text.kind == kind, text
    assert KEY not in str(text)


def test_a_folded_header_is_read() -> None:
    serve, _ = once(OK.replace(b"\r\n\r\n", b"\r\nx: a\r\n  b\r\n\r\n"))
    assert with_peer(serve, twice) == "HiHi"


@pytest.mark.parametrize("text", [b"HTTP/1.1 200 OK\r\n", body(b"content-length: 100000"), body()])
def test_a_head_or_body_that_drips_ends_when_its_time_is_over(text: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for byte in text + b" " * 100_000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.002)

    texts = with_peer(
        serve, fails, Times(connect=5.0, headers=0.6, idle=0.6, content=0.6, attempt=0.6)
    )
    assert texts.kind == "network" and "did not respond in time" in str(texts)


def test_answers_in_single_bytes_are_read() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        while True:
            await read_request(reader)
            chunked = b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(REPLY), REPLY)
            for byte in (
                b"HTTP/1.1 103 Hint\r\n\r\n" + body(b"transfer-encoding: chunked") + chunked
            ):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)

    assert with_peer(serve, twice) == "HiHi"


@pytest.mark.parametrize("rest", [0, 10])
def test_a_peer_that_says_no_more_ends_the_answer_or_breaks_it(rest: int) -> None:
    """It closes its side only, and goes on reading."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(body(b"content-length: %d" % (len(REPLY) + rest)) + REPLY)
        writer.write_eof()
        await reader.read()

    async def story(model: HttpModel, client: ConnectionPool) -> str:
        try:
            return (await complete(model)).message.text
        except ModelUnavailable as error:
            return error.kind

    assert with_peer(serve, story) == ("network" if rest else "Hi")


def test_a_connection_that_has_closed_by_itself_can_be_dropped() -> None:
    """The peer says that it will not answer, and reads what was still to be sent only then."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await is_closing.wait()
        while await reader.read(1 << 20):
            pass

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        ours, _ = client.pool()
        connection = await ours.connect(where(model))
        size = 32 << 20
        connection.send(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)
        await until(connection.transport.is_closing)
        is_closing.set()
        await until(lambda: connection._is_lost)
        connection.drop()
        ours.give(connection)
        assert connection not in ours._open

    is_closing = asyncio.Event()
    with_peer(serve, story)


def test_what_nobody_reads_is_not_taken_in() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body(b"content-length: %d" % (64 << 20)))
        for _ in range(64):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            numbers.append(1)

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        ours, _ = client.pool()
        connection = await ours.connect(where(model))
        connection.send(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        await connection.answer()
        await until(lambda: connection._is_paused)
        await asyncio.sleep(0.2)
        assert connection._size <= MOST_UNREAD + (1 << 20) and len(numbers) < 64
        size = 0
        while data := await connection.read():
            size += len(data)
        assert size == 64 << 20
        ours.give(connection)

    numbers: list[int] = []
    with_peer(serve, story)


# how many, and when they are left


def test_no_more_connections_are_out_than_allowed_and_whoever_waits_may_leave() -> None:
    client, out = ConnectionPool(CALM, limit=2), list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            out.append(client.pool()[0].n_out)
            await asyncio.sleep(0.02)
            writer.write(OK)

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        ours, _ = client.pool()
        calls = [asyncio.create_task(complete(model, asking(run=f"r{i}"))) for i in range(12)]
        await until(lambda: out and ours._waiting)
        for call in calls[1::3]:
            call.cancel()
        result = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in result) >= 3
        assert not [one for one in result if isinstance(one, Exception)]
        assert ours.n_out == 0 and not ours._waiting
        assert (await complete(model)).message.text == "Hi"

    with_peer(serve, story, client=client)
    assert max(out) == 2


def test_a_call_can_be_cancelled_at_every_step() -> None:
    serve, _ = once(
        body(b"transfer-encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(REPLY), REPLY)
    )

    async def story(model: HttpModel, client: ConnectionPool) -> int:
        ended = 0
        for steps in range(40):
            call = asyncio.create_task(complete(model))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            try:
                assert (await call).message.text == "Hi"
                ended += 1
            except asyncio.CancelledError:
                pass
            ours, _ = client.pool()
            assert ours.n_out == 0 and at_rest(model.governor)
            await until(lambda ours=ours: len(ours._open) <= 1)  # type: ignore[misc]
        assert (await complete(model)).message.text == "Hi"
        return ended

    with_peer(serve, story)


def test_a_client_that_is_closed_ends_what_is_under_way() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(body() + REPLY[:-1])
        await reader.read()

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        calls = [asyncio.create_task(complete(model, asking(run=f"r{i}"))) for i in range(5)]
        ours, _ = client.pool()
        await until(lambda: len(ours._open) == 5)
        await client.close()
        assert not ours._open
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, ModelUnavailable), "what was cut here is not complete"

    with_peer(serve, story)


def test_a_machine_without_descriptors_is_not_the_providers_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve, _ = once(OK)

    def none_left(*args: Any, **fields: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(new_connections.socket, "socket", none_left)  # type: ignore[attr-defined]
            error = await fails(model, client)
        assert error.kind == "machine" and "EMFILE" in str(error)
        assert (await complete(model)).message.text == "Hi"

    with_peer(serve, story)
