"""The way to a provider: names, certificates, proxies, and event loops that come and go."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models.connection_pool import checked_url
from retinue.models.http import ConnectionPool, HttpModel, Times
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.models.http_world import (
    FAST,
    KEY,
    answering,
    asking,
    at_rest,
    closed_port,
    complete,
    http_model,
    url_of,
)
from tests.waiting import SECONDS


async def failing(model: HttpModel, kind: type[ModelError]) -> Any:
    with pytest.raises(kind) as failure:
        await complete(model, asking())
    assert at_rest(model.governor)
    return failure.value


def test_nobody_there_and_no_such_name_are_worth_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        client = ConnectionPool(FAST)
        nobody = await failing(
            http_model(f"http://127.0.0.1:{closed_port()}", client=client), ModelUnavailable
        )
        assert nobody.kind == "network"

        async def no_name(*args: Any, **fields: Any) -> Any:
            raise OSError(-2, "Name or service not known")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", no_name)
        unknown = await failing(
            http_model("http://nowhere.invalid", client=client), ModelUnavailable
        )
        assert unknown.kind == "network" and "nowhere.invalid" in str(unknown)
        await client.close()

    asyncio.run(story())


def certificate(folder: Path, days: int) -> tuple[ssl.SSLContext, str]:
    """A certificate for loopback that ends so many days from now, and the file to trust it by."""
    datetime = pytest.importorskip("datetime")
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "loopback")])
    ip = x509.IPAddress(__import__("ipaddress").ip_address("127.0.0.1"))
    result = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    )
    result = result.serial_number(1).not_valid_before(now - datetime.timedelta(days=30))
    result = result.not_valid_after(now + datetime.timedelta(days=days))
    result = result.add_extension(x509.SubjectAlternativeName([ip]), False)
    result = result.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    file = folder / f"{days}.pem"
    secret = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(
        result.sign(key, hashes.SHA256()).public_bytes(secret[0]) + key.private_bytes(*secret)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    return context, str(file)


GOOD = (
    b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    b'{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{}}'
)


def test_only_a_certificate_that_is_trusted_and_valid_is_talked_to(tmp_path: Path) -> None:
    async def story(days: int, *, trusted: bool) -> Any:
        context, file = certificate(tmp_path, days)
        async with answering(GOOD, ssl=context) as (url, server):
            client = ConnectionPool(FAST, environ={"SSL_CERT_FILE": file} if trusted else {})
            model = http_model(url, client=client, stream=False)
            try:
                if trusted and days > 0:
                    return (await complete(model)).message.text
                error = await failing(model, ModelRejected)
                assert server == [], "not a byte of the request was sent"
                return error.kind
            finally:
                await client.close()

    assert asyncio.run(story(30, trusted=True)) == "Hi"
    assert asyncio.run(story(30, trusted=False)) == "tls"
    assert asyncio.run(story(-1, trusted=True)) == "tls"


def test_a_file_of_certificates_that_is_not_there_is_the_callers_mistake() -> None:
    async def story() -> None:
        model = http_model(
            "https://x.test", client=ConnectionPool(FAST, environ={"SSL_CERT_FILE": "missing.pem"})
        )
        with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
            await complete(model)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "error"), [(b"220 hello\r\n", ModelRejected), (b"", ModelUnavailable)]
)
def test_what_is_no_handshake_is_refused_and_a_broken_one_tried_again(
    answer: bytes, error: type[ModelError]
) -> None:
    async def story() -> str:
        async with answering(answer, listen=False) as (url, _):
            client = ConnectionPool(FAST)
            try:
                return str(
                    (
                        await failing(
                            http_model(url.replace("http:", "https:"), client=client), error
                        )
                    ).kind
                )
            finally:
                await client.close()

    assert asyncio.run(story()) == ("tls" if answer else "network")


def test_a_proxy_sees_the_name_of_the_provider_and_never_the_key() -> None:
    async def story(answer: bytes, error: type[ModelError]) -> tuple[Any, bytes]:
        async with answering(answer) as (url, server):
            proxy = url.replace("http://", "http://ada:lovelace1815@")
            client = ConnectionPool(FAST, environ={"HTTPS_PROXY": proxy, "NO_PROXY": "example.org"})
            try:
                text = await failing(http_model("https://provider.test", client=client), error)
                return text, b"".join(server)
            finally:
                await client.close()

    text, request = asyncio.run(
        story(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n", ModelRejected)
    )
    assert request.startswith(b"CONNECT provider.test:443") and KEY.encode() not in request
    assert "lovelace1815" not in repr(text) and "407" in str(text)
    text, _ = asyncio.run(story(b"HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n", ModelUnavailable))
    assert "502" in str(text)


@pytest.mark.parametrize(
    ("url", "direct", "proxied"),
    [
        ("https://api.test", "", True),
        ("http://api.test", "", False),
        ("https://api.test", "api.test", False),
        ("https://eu.api.test", ".api.test", False),
        ("https://eu.api.test", "localhost, *.api.test", False),
        ("https://myapi.test", "api.test", True),
        ("https://api.test", "*", False),
    ],
)
def test_a_proxy_is_used_for_what_is_encrypted_and_not_listed(
    url: str, direct: str, proxied: bool
) -> None:
    client = ConnectionPool(environ={"https_proxy": "http://proxy.test:3128", "no_proxy": direct})
    assert client.proxy(url) == ("http://proxy.test:3128" if proxied else None)


def test_a_client_outlives_the_loops_that_use_it() -> None:
    client = ConnectionPool(FAST)

    async def story() -> None:
        async with FakeLLM(["Hello."]) as llm:
            model = http_model(url_of(llm, "anthropic"), client=client)
            assert (await complete(model)).message.text == "Hello."
            await asyncio.sleep(0)

    for _ in range(3):
        asyncio.run(story())

    async def end() -> None:
        await client.close()

    asyncio.run(end())
    gc.collect()
    assert client._open == {}


def test_a_client_that_was_closed_opens_again() -> None:
    async def story() -> None:
        client = ConnectionPool(FAST)
        async with FakeLLM(["Hello."]) as llm:
            model = http_model(url_of(llm, "anthropic"), client=client)
            for _ in range(2):
                assert (await complete(model)).message.text == "Hello."
                await client.close()

    asyncio.run(story())


def answer_from_a_thread(delay: float) -> tuple[str, Callable[[], None]]:
    """A provider that answers while this loop does not run; where it is, and how to wait for its
    end."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listening.accept()
        peer.recv(1 << 16)
        time.sleep(delay)
        peer.sendall(GOOD)
        peer.close()
        listening.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}", thread.join


def block(seconds: float) -> None:
    """What a program should not do in its loop."""
    time.sleep(seconds)


def test_a_loop_that_was_blocked_cuts_off_nobody_who_was_answered() -> None:
    async def story() -> None:
        client = ConnectionPool(Times(connect=1.0, headers=0.2, idle=0.2, content=0.2, attempt=5.0))
        url, join = answer_from_a_thread(0.1)
        call = asyncio.create_task(complete(http_model(url, client=client, stream=False)))
        await asyncio.sleep(0.05)
        block(0.8)
        assert (await call).message.text == "Hi"
        await client.close()
        join()

    asyncio.run(story())


def test_a_loop_that_is_always_late_still_ends_what_is_silent() -> None:
    async def story() -> None:
        async with answering(b"", close=False) as (url, _):
            client = ConnectionPool(
                Times(connect=1.0, headers=0.2, idle=0.2, content=0.2, attempt=5.0)
            )
            call = asyncio.create_task(complete(http_model(url, client=client)))
            for _ in range(20):
                await asyncio.sleep(0.01)
                block(0.12)
            with pytest.raises(ModelUnavailable, match="no headers received"):
                await asyncio.wait_for(call, SECONDS)
            await client.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.test",
        "ftp://api.test",
        "https://",
        "https://a b.test",
        "https://x.test:0",
        "https://x:99999999",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="Invalid provider URL"):
        checked_url(url)


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError) as failure:
        checked_url("https://ada:lovelace1815@api.test/v1")
    assert "lovelace" not in str(failure.value) and "api.test" in str(failure.value)
