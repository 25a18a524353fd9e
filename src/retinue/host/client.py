"""A command's HTTP connection to the host of a store: sends requests and reads replies. It blocks;
a command does one thing. Several requests can be under way, each on a connection of its own."""

from __future__ import annotations

import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from retinue import errors
from retinue.core.secret_values import secrets_of
from retinue.errors import HostGone, HostOutdated, HostSilent
from retinue.host.http_exchange import Exchange, HostNews, request_bytes
from retinue.host.problem_documents import error_of
from retinue.host.project_paths import ProjectPaths
from retinue.host.replies import Hello
from retinue.host.requests import HelloRequest, HostRequest
from retinue.host.socket_peer import is_ours, key_in, peer

GREETING_SECONDS = 15.0
"""A host answers immediately unless its machine is very busy. One that never does is ended by
`retinue stop`."""


class HostClient:
    """The connections of one command to a host. `dial` opens one."""

    def __init__(self, dial: Callable[[], socket.socket], env: Mapping[str, str], key: str) -> None:
        self._dial, self._key, self._n = dial, key, 0
        self._pid = 0
        self._selector: Any = selectors.DefaultSelector()
        self._exchanges: dict[socket.socket, Exchange] = {}
        self._idle: list[socket.socket] = []
        self._news: deque[HostNews] = deque()
        self._seconds: float | None = None
        try:
            self.hurry(GREETING_SECONDS)
            self.welcome = self._greet(env)
            self.hurry(None)
        except BaseException:
            self.close()
            raise

    def hurry(self, seconds: float | None) -> None:
        """How long the host may take over its next news; without a limit a run can be waited
        for."""
        self._seconds = seconds

    def _greet(self, env: Mapping[str, str]) -> Hello:
        hello = HelloRequest(env=dict(env), hidden=secrets_of(os.environ))
        try:
            return msgspec.convert(self.ask(hello), Hello)
        except errors.Refused as error:
            if error.limit == "version":
                raise HostOutdated(self._pid) from None
            raise

    def ask(self, request: HostRequest) -> Any:
        """Make a request and wait for its last word; raises what the host raised."""
        return self.last(self.begin(request)).done

    def begin(self, request: HostRequest) -> int:
        """Make a request; its number is in all news about it."""
        data = request_bytes(request, self._key)
        line = self._idle.pop() if self._idle else self._connect()
        self._n += 1
        self._exchanges[line] = Exchange(self._n, request, line)
        try:
            line.settimeout(self._seconds)
            line.sendall(data)
        except TimeoutError:
            raise HostSilent(self._pid) from None
        except ConnectionError as error:
            raise _host_gone() from error
        return self._n

    def _connect(self) -> socket.socket:
        line = self._dial()
        self._pid = self._pid or peer(line)
        self._selector.register(line, selectors.EVENT_READ)
        return line

    def last(self, number: int) -> HostNews:
        while True:
            news = self.next_news()
            if news.id != number:
                continue
            if news.error is not None:
                raise error_of(news.error)
            if news.is_last:
                return news

    def next_news(self) -> HostNews:
        """The next thing that the host tells, about any request."""
        while not self._news:
            ready = self._selector.select(self._seconds)
            if not ready and self._seconds is not None:
                raise HostSilent(self._pid)
            for key, _ in ready:
                self._receive(key.fileobj)
        return self._news.popleft()

    def read_ready(self) -> None:
        """Read what has come, without waiting. It may be less than one piece of news."""
        for key, _ in self._selector.select(0):
            self._receive(key.fileobj)

    def _receive(self, line: socket.socket) -> None:
        try:
            data = line.recv(1 << 18)
        except ConnectionError as error:
            raise _host_gone() from error
        exchange = self._exchanges.get(line)
        if not data or exchange is None:
            raise _host_gone()
        try:
            self._news.extend(exchange.feed(data))
        except ValueError as error:
            is_http = bool(exchange.reader.status)
            raise (_host_gone() if is_http else HostOutdated(self._pid)) from error
        if exchange.reader.is_done:
            del self._exchanges[line]
            if exchange.reader.keeps_alive:
                self._idle.append(line)
            else:
                self._selector.unregister(line)
                line.close()

    def has_news(self) -> bool:
        """Whether there is news that need not be waited for."""
        return bool(self._news)

    def fileno(self) -> int:
        """Can be read when one of the connections can."""
        return int(self._selector.fileno())

    def close(self) -> None:
        for key in list((self._selector.get_map() or {}).values()):
            key.fileobj.close()
        self._selector.close()

    def __enter__(self) -> HostClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _host_gone() -> HostGone:
    return HostGone(
        "Lost the connection to this project's host. Recorded work is safe. Run `retinue ps` or "
        "`retinue attach`."
    )


def connect_to_host(paths: ProjectPaths, env: Mapping[str, str]) -> HostClient | None:
    """A connection to the host of a store, if there is one."""

    def dial() -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(paths.socket)
            if not is_ours(line):
                raise errors.ConfigError(
                    f"{paths.socket} is owned by another user. Remove it, or use another --store."
                )
        except BaseException:
            line.close()
            raise
        return line

    try:
        return HostClient(dial, env, key_in(paths.key))
    except (HostSilent, HostOutdated):
        raise
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, HostGone):
        return None
