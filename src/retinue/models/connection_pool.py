"""The pool of connections that all models share, and its targets: addresses, proxies,
certificates."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from retinue.errors import ConfigError
from retinue.models.kept_connections import Pool
from retinue.models.machine_limits import DESCRIPTORS
from retinue.models.new_connections import Dialer
from retinue.models.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. `content` is the longest time without content although there are signs of life."""

    connect: float = 10.0
    headers: float = 60.0
    idle: float = 120.0
    content: float = 600.0
    attempt: float = 1_800.0


@dataclass(slots=True)
class ConnectionPool:
    """A pool of connections, shared by all models. It is opened when it is first used, one for each
    loop that does. `environ` may name a proxy and a file of certificates."""

    times: Times = field(default_factory=Times)
    limit: int = 0
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    _open: dict[asyncio.AbstractEventLoop, tuple[Pool, Watchdog]] = field(
        default_factory=dict, repr=False
    )
    _trusted: ssl.SSLContext | None = field(default=None, repr=False)

    def pool(self) -> tuple[Pool, Watchdog]:
        loop = asyncio.get_running_loop()
        entry = self._open.get(loop)
        if entry is None or entry[0].is_closed:
            self._drop_dead()
            DESCRIPTORS.raise_limit()
            pool = Pool(self._dialer(), self.limit)
            entry = self._open[loop] = (
                pool,
                Watchdog(min(0.5, min(dataclasses.astuple(self.times)) / 4)),
            )
        return entry

    def _dialer(self) -> Dialer:
        return Dialer(self.times.connect, self._trust)

    def _trust(self) -> ssl.SSLContext:
        """Made when a connection is first to be safe: reading the system's certificates takes a
        while."""
        if self._trusted is None:
            file = self.environ.get("SSL_CERT_FILE")
            try:
                self._trusted = ssl.create_default_context(cafile=file or None)
            except OSError as error:
                if not file or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    raise
                raise ConfigError(
                    f"SSL_CERT_FILE names a file that cannot be used: {error}"
                ) from None
            self._trusted.set_alpn_protocols(["http/1.1"])
        return self._trusted

    def proxy(self, url: str) -> str | None:
        """Whom to ask instead. Only what is encrypted goes through a proxy, so that the proxy does
        not see the key."""
        parts, get = urlsplit(url), self.environ.get
        address = get("HTTPS_PROXY") or get("https_proxy")
        if not address or parts.scheme != "https":
            return None
        direct = (get("NO_PROXY") or get("no_proxy") or "").replace(",", " ").split()
        host, names = (
            parts.hostname or "",
            [name.lower().lstrip("*").lstrip(".") for name in direct],
        )
        is_direct = "*" in direct or any(
            name in (host, parts.netloc) or host.endswith(f".{name}") for name in names if name
        )
        if is_direct:
            return None
        return address if "://" in address else f"http://{address}"

    def _drop_dead(self) -> None:
        """Pools whose loop is closed can no longer be waited for."""
        for loop in [loop for loop in self._open if loop.is_closed()]:
            with contextlib.suppress(RuntimeError):
                self._open.pop(loop)[0].drop()

    async def close(self) -> None:
        self._drop_dead()
        pool, watchdog = self._open.pop(asyncio.get_running_loop(), (None, None))
        if pool is not None and watchdog is not None:
            watchdog.close()
            await pool.close()


def checked_url(url: str) -> str:
    """An address that a key may be sent to; what is wrong with it is said without repeating what
    may be secret."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or any(c.isspace() for c in url):
        raise ConfigError("Invalid provider URL. Use https://host or http://host:port/path.")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"The URL for {parts.hostname} contains a password. Put the key in its own variable."
        )
    return url
