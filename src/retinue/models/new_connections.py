"""Opens connections: name resolution, addresses tried in parallel, proxies, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from retinue.errors import ConfigError
from retinue.models.answer_head import NotHttp
from retinue.models.http_connection import ProviderConnection
from retinue.models.machine_limits import lookup_shortage

REMEMBERED_SECONDS = 300.0
"""So long the addresses of a name are known."""
HEAD_START = 0.25
"""Seconds after which the next address of a name is tried beside the one before (RFC 8305)."""
_FLAGS = getattr(socket, "AI_ADDRCONFIG", 0)

Address = tuple[int, tuple[Any, ...]]
"""A family, and what a socket of it is connected to."""


class Route(NamedTuple):
    """Where a connection leads. `proxy` is whom to ask for it."""

    host: str
    port: int
    is_tls: bool = False
    proxy: str | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NotSafe(ConnectionError):
    """There was no handshake, or a certificate that is not trusted."""


class ProxyRefused(ConnectionError):
    """A proxy would not lead there."""

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status


class Dialer:
    """Makes connections. A peer has `seconds` to take one, and as many for a handshake; `trust`
    says whose certificates are believed."""

    def __init__(self, seconds: float, trust: Callable[[], ssl.SSLContext]) -> None:
        self.seconds, self.trust = seconds, trust
        self._known: dict[tuple[str, int], tuple[float, list[list[Address]]]] = {}
        self._asked: dict[tuple[str, int], asyncio.Task[list[list[Address]]]] = {}

    async def connect(
        self, route: Route, make: Callable[[], ProviderConnection]
    ) -> ProviderConnection:
        trust = self.trust() if route.is_tls else None
        if route.proxy is not None:
            assert trust is not None, "a proxy is used for https only"
            return await self._by_proxy(route, route.proxy, trust, make)
        return await self._direct(route, trust, make)

    async def _direct(
        self, route: Route, trust: ssl.SSLContext | None, make: Callable[[], ProviderConnection]
    ) -> ProviderConnection:
        loop = asyncio.get_running_loop()
        sock = await self._socket(route)
        if trust is None:
            return (await loop.create_connection(make, sock=sock))[1]
        async with _handshake(self.seconds, route):
            name = route.host.rstrip(".")
            return (await loop.create_connection(make, sock=sock, ssl=trust, server_hostname=name))[
                1
            ]

    # by way of a proxy

    async def _by_proxy(
        self,
        route: Route,
        proxy: str,
        trust: ssl.SSLContext,
        make: Callable[[], ProviderConnection],
    ) -> ProviderConnection:
        parts = urlsplit(proxy)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("invalid proxy URL: use http://host:port")
        is_tls = parts.scheme == "https"
        through = Route(parts.hostname, parts.port or (443 if is_tls else 80), is_tls)
        connection = await self._direct(through, trust if is_tls else None, make)
        try:
            async with _handshake(self.seconds, through):
                await self._ask(connection, route, parts.username, parts.password)
            async with _handshake(self.seconds, route):
                loop, name = asyncio.get_running_loop(), route.host.rstrip(".")
                wrapped = await loop.start_tls(
                    connection.transport, connection, trust, server_hostname=name
                )
        except BaseException:
            connection.drop()
            raise
        assert wrapped is not None
        connection.transport = wrapped
        return connection

    async def _ask(
        self, connection: ProviderConnection, route: Route, user: str | None, password: str | None
    ) -> None:
        to = route.authority
        lines = [f"CONNECT {to} HTTP/1.1", f"Host: {to}", "User-Agent: retinue"]
        if user is not None or password is not None:
            credentials = f"{unquote(user or '')}:{unquote(password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {b64encode(credentials).decode()}")
        connection.send("\r\n".join([*lines, "\r\n"]).encode())
        try:
            status = (await connection.answer()).status
        except NotHttp as error:
            raise ProxyRefused(f"the proxy did not answer with valid HTTP: {error}") from None
        if not 200 <= status < 300:
            raise ProxyRefused(f"the proxy rejected the connection with status {status}", status)
        if not connection.rest():
            raise ProxyRefused("the proxy sent more than its answer")

    # addresses

    async def _socket(self, route: Route) -> socket.socket:
        """Connected. Addresses of a name are tried in turn, each with a head start before the
        next."""
        try:
            addresses = await self.resolve(route.host, route.port)
            async with asyncio.timeout(self.seconds):
                return await _first(addresses)
        except TimeoutError:
            raise TimeoutError(
                f"no connection to {route.authority} within {self.seconds:g} s"
            ) from None
        except OSError as error:
            why = error.strerror or error
            raise ConnectionError(f"no connection to {route.authority}: {why}") from error

    async def resolve(self, host: str, port: int) -> list[Address]:
        """The addresses of a host. A look-up during another one of the same name gets the same
        answer."""
        for number in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError, ValueError):
                socket.inet_pton(number, host)
                return [(number, (host, port))]
        loop, key = asyncio.get_running_loop(), (host, port)
        until, addresses = self._known.get(key, (0.0, []))
        if loop.time() >= until:
            if key not in self._asked:
                self._asked[key] = task = loop.create_task(self._look_up(host, port))
                task.add_done_callback(lambda _: self._asked.pop(key, None))
            addresses = await asyncio.shield(self._asked[key])
        turns = itertools.zip_longest(*addresses)
        out = [address for turn in turns for address in turn if address is not None]
        for family in addresses:
            family.append(family.pop(0))
        return out

    async def _look_up(self, host: str, port: int) -> list[list[Address]]:
        """By family. Each time another address of one comes first, and the families take turns."""
        loop = asyncio.get_running_loop()
        by_family: dict[int, list[Address]] = {}
        shortage = lookup_shortage()  # descriptors may be back by the time the look-up fails
        try:
            answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=_FLAGS)
        except socket.gaierror as error:
            if shortage:
                raise OSError(shortage, os.strerror(shortage)) from error
            raise
        for family, _, _, _, address in answers:
            by_family.setdefault(family, []).append((family, address))
        if not by_family:
            raise OSError(f"{host} has no address")
        address_lists = list(by_family.values())
        self._known[host, port] = (loop.time() + REMEMBERED_SECONDS, address_lists)
        return address_lists

    def close(self) -> None:
        for task in self._asked.values():
            task.cancel()


@contextlib.asynccontextmanager
async def _handshake(seconds: float, route: Route) -> AsyncIterator[None]:
    """An error in one is reported as that."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(
            f"no TLS handshake with {route.authority} within {seconds:g} s"
        ) from None
    except ssl.SSLEOFError:
        raise ConnectionError(
            f"{route.authority} closed the connection during the TLS handshake"
        ) from None
    except (ssl.SSLError, ssl.CertificateError) as error:
        raise NotSafe(f"{route.authority}: {error}") from None


async def _first(addresses: list[Address]) -> socket.socket:
    """A socket that is connected to one of them; the error of the first when none is."""
    if len(addresses) == 1:
        return await _connected(addresses[0])
    loop, errors = asyncio.get_running_loop(), list[BaseException]()
    tried: list[asyncio.Task[socket.socket]] = []
    waiting = deque(addresses)
    try:
        while waiting or tried:
            if waiting:
                tried.append(loop.create_task(_connected(waiting.popleft())))
            wait = HEAD_START if waiting else None
            ready, _ = await asyncio.wait(tried, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in ready:
                tried.remove(task)
                if (error := task.exception()) is None:
                    tried += [other for other in ready if other is not task and other not in tried]
                    return task.result()
                errors.append(error)
        raise errors[0]
    finally:
        for task in tried:
            task.cancel()
            task.add_done_callback(_close)


async def _connected(address: Address) -> socket.socket:
    family, to = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, to)
    except BaseException:
        sock.close()
        raise
    return sock


def _close(task: asyncio.Task[socket.socket]) -> None:
    """Of an attempt that came too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
