"""The way to a provider over real sockets: addresses that do not answer, proxies that lead nowhere,
TLS that ends."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models import new_connections
from retinue.models.http import ConnectionPool, HttpModel, Times
from retinue.models.new_connections import Dialer
from tests.models.http_world import KEY, asking, complete, http_model, serving
from tests.models.test_connection_pool import certificate
from tests.models.test_exchange import CALM, body, fails, once, twice, with_peer
from tests.models.test_exchange_sockets import OK, REPLY, read_request
from tests.waiting import SECONDS, until

# names and addresses


def test_an_address_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    real = new_connections._connected

    async def connected(address: Any) -> socket.socket:
        tried.append(address)
        if address[1][0] == "203.0.113.1":
            await asyncio.sleep(SECONDS)
        if address[1][0] == "203.0.113.2":
            raise OSError(errno.ECONNREFUSED, "refused")
        return await real(address)

    serve, _ = once(OK)

    async def story(model: HttpModel, client: ConnectionPool) -> None:
        port = int(model._url.split(":")[2].partition("/")[0])
        rows = [
            (socket.AF_INET, 0, 0, "", (ip, port))
            for ip in ("203.0.113.1", "203.0.113.2", "127.0.0.1")
        ]
        n_asked = 0

        async def lookup(*args: Any, **fields: Any) -> Any:
            nonlocal n_asked
            n_asked += 1
            await asyncio.sleep(0.01)
            if n_asked == 1:
                raise socket.gaierror(socket.EAI_AGAIN, "try again")
            return rows

        monkeypatch.setattr(new_connections, "_connected", connected)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
        there = http_model(f"http://provider.test:{port}", client=client, stream=False)
        assert (await fails(there, client)).kind == "network"
        began = time.monotonic()
        replies = await asyncio.gather(*(complete(there, asking(run=f"r{i}")) for i in range(3)))
        assert [r.message.text for r in replies] == ["Hi"] * 3 and time.monotonic() - began < 20.0
        assert n_asked == 2, "one look for all, and a failure is not remembered"
        await until(
            lambda: len([t for t in asyncio.all_tasks() if "_connected" in repr(t.get_coro())]) == 0
        )

    with_peer(serve, story)
    assert {address[1][0] for address in tried} == {"203.0.113.1", "203.0.113.2", "127.0.0.1"}


def test_addresses_take_turns() -> None:
    async def story() -> None:
        dialer = Dialer(1.0, ssl.create_default_context)
        four, six = (
            [(socket.AF_INET, (f"192.0.2.{n}", 1)) for n in (1, 2)],
            [(socket.AF_INET6, ("::1", 1))],
        )
        dialer._known["x", 1] = (float("inf"), [list(four), list(six)])
        assert await dialer.resolve("x", 1) == [four[0], six[0], four[1]]
        assert await dialer.resolve("x", 1) == [four[1], six[0], four[0]]
        assert await dialer.resolve("::1", 5) == [(socket.AF_INET6, ("::1", 5))]

    asyncio.run(story())


@pytest.mark.parametrize("url", ["http://a..b/v1", "http://" + "a" * 64 + ".test"])
def test_a_name_that_cannot_be_looked_up_is_the_callers_mistake(url: str) -> None:
    async def story() -> None:
        client = ConnectionPool(CALM)
        with pytest.raises(ConfigError, match="is invalid"):
            await complete(http_model(url, client=client))
        await client.close()

    asyncio.run(story())


# proxies and TLS


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("is_safe", [False, True])
def test_a_request_goes_through_a_proxy_and_its_connection_is_kept(
    tmp_path: Path, is_safe: bool
) -> None:
    trusted, file = certificate(tmp_path, 30)
    pieces: list[bytes] = []
    serve, question = once(OK)

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces.append(await reader.readuntil(b"\r\n\r\n"))
        host, port = pieces[-1].split()[1].decode().rsplit(":", 1)
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))
        finally:
            there[1].close()

    async def story(model: HttpModel, client: ConnectionPool) -> str:
        async with serving(proxy, **({"ssl": trusted} if is_safe else {})) as address:
            address = address.replace("//", "//ada:love%40lace@").removeprefix("http://")
            environ = {"HTTPS_PROXY": address, "SSL_CERT_FILE": file}
            ours = ConnectionPool(CALM, environ=environ)
            through = http_model(model._url.removesuffix("/v1/messages"), client=ours, stream=False)
            try:
                return await twice(through, ours)
            finally:
                await ours.close()

    assert with_peer(serve, story, ssl=trusted) == "HiHi"
    assert len(pieces) == 1 and question == [1, 1]
    assert (
        b"Proxy-Authorization: Basic YWRhOmxvdmVAbGFjZQ==\r\n" in pieces[0]
        and KEY.encode() not in pieces[0]
    )


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n", ModelRejected, "407"),
        (b"HTTP/1.1 403 No\r\n\r\nforbidden", ModelRejected, "403"),
        (b"HTTP/1.1 302 No\r\nlocation: http://evil.test\r\n\r\n", ModelUnavailable, "302"),
        (b"SSH-2.0-x\r\n", ModelUnavailable, "the proxy did not answer with valid HTTP"),
        (
            b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            ModelUnavailable,
            "more than its answer",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n", ModelUnavailable, ""),
        (b"", ModelUnavailable, "before an answer came"),
    ],
)
def test_a_proxy_that_does_not_lead_there_is_told_as_that(
    answer: bytes, error: type[ModelError], says: str
) -> None:
    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)

    async def story() -> ModelError:
        async with serving(proxy) as address:
            client = ConnectionPool(
                CALM, environ={"HTTPS_PROXY": address.replace("//", "//ada:lovelace1815@")}
            )
            try:
                return await fails(http_model("https://provider.test", client=client), client)
            finally:
                await client.close()

    pieces: list[bytes] = []
    text = asyncio.run(story())
    assert isinstance(text, error) and text.kind == "network" and says in str(text)
    assert KEY.encode() not in b"".join(pieces) and "lovelace" not in str(text)


def test_a_proxy_that_is_none_is_the_callers_mistake() -> None:
    async def story() -> None:
        client = ConnectionPool(CALM, environ={"HTTPS_PROXY": "socks5://127.0.0.1:1080"})
        with pytest.raises(ConfigError, match="invalid proxy URL"):
            await complete(http_model("https://provider.test", client=client))
        await client.close()

    asyncio.run(story())


@pytest.mark.parametrize("rest", [0, 10])
def test_tls_that_breaks_off_ends_no_answer_that_is_not_complete(tmp_path: Path, rest: int) -> None:
    """The peer ends without saying so, as many do. What it had not said to be complete is not taken
    for it."""
    trusted, file = certificate(tmp_path, 30)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(body(b"content-length: %d" % (len(REPLY) + rest)) + REPLY)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def story(model: HttpModel, client: ConnectionPool) -> str:
        try:
            return (await complete(model)).message.text
        except ModelUnavailable as error:
            return error.kind

    client = ConnectionPool(CALM, environ={"SSL_CERT_FILE": file})
    assert with_peer(serve, story, client=client, ssl=trusted) == ("network" if rest else "Hi")


def test_a_handshake_that_does_not_come_is_not_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def story(model: HttpModel, client: ConnectionPool) -> ModelError:
        return await fails(http_model(model._url.replace("http:", "https:"), client=client), client)

    text = with_peer(serve, story, Times(connect=0.3))
    assert text.kind == "network" and "no TLS handshake" in str(text)
