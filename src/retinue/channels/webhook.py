"""Announcements as HTTP requests, signed the way of Standard Webhooks (standardwebhooks.com), and
how to check one.

The body depends on the delivery alone: what is sent again after a crash is the same, byte for byte,
under the same key."""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from retinue.channels.webhook_signature import ID_PATTERN, Secret, keys_of, sign
from retinue.core.secret_values import secrets_of, secrets_of_address
from retinue.core.values import Delivery
from retinue.errors import ConfigError, RetinueError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession


BODY_CAP = 65_536
BODY_SECONDS = 1.0

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t -~]*")
_OURS = {
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "idempotency-key",
    "content-type",
    "content-length",
}
_encode = msgspec.json.Encoder().encode


class Webhook:
    """A receiver at a URL. Taken is what it answers with 2xx, or with 409: it has had this key
    before.

    Everything else raises and is tried again by the outbox, a bounded number of times. A redirect
    is not followed: what is signed for one host is not shown to another. With several secrets each
    request carries a signature by each, so that a receiver can change from one to the next. `close`
    gives the connections back; a later `send` opens new ones."""

    def __init__(
        self,
        url: str,
        secret: Secret | Sequence[Secret],
        *,
        timeout: float = 30,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._aiohttp = _library()
        self._url, self._host = url, _host(url)
        self._keys = keys_of(secret)
        if not 0 < timeout < math.inf:
            raise ConfigError(
                f"The timeout of a webhook must be more than 0 s and finite, not {timeout!r}."
            )
        self._timeout = timeout
        self._headers = {"user-agent": "retinue", **_own(headers or {})}
        self._session: tuple[asyncio.AbstractEventLoop, ClientSession] | None = None
        secrets = [secret] if isinstance(secret, (str, bytes)) else secret
        texts = [one if isinstance(one, str) else one.decode("latin-1") for one in secrets]
        self.secrets = {f"webhook {n}": text for n, text in enumerate(texts)} | {
            **secrets_of_address("webhook_url", url),
            **secrets_of(self._headers, like_keys=True),
        }

    async def send(self, delivery: Delivery) -> None:
        if not ID_PATTERN.fullmatch(delivery.key):
            raise RetinueError(
                "The delivery's key is not a valid header value. The announcement was not sent."
            )
        body = _body(delivery)
        status = await self._post(body, self._signed(delivery.key, body))
        if 200 <= status < 300 or status == 409:
            return
        if 300 <= status < 400:
            raise RetinueError(
                f"{self._host} answered with a redirect ({status}), which is not followed"
            )
        raise RetinueError(f"{self._host} answered {status}")

    async def close(self) -> None:
        """Close the connections. Requests that are under way fail."""
        if self._session is not None:
            (_, session), self._session = self._session, None
            await session.close()

    def _signed(self, id: str, body: bytes) -> dict[str, str]:
        now = str(int(time.time()))
        return {
            **self._headers,
            "content-type": "application/json",
            "idempotency-key": id,
            "webhook-id": id,
            "webhook-timestamp": now,
            "webhook-signature": " ".join(sign(key, id, now, body) for key in self._keys),
        }

    async def _post(self, body: bytes, headers: dict[str, str]) -> int:
        """The status of the answer. What aiohttp says of an error may hold the URL, and that may
        hold a token."""
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._open().post(
                    self._url, data=io.BytesIO(body), headers=headers, allow_redirects=False
                )
        except TimeoutError:
            raise RetinueError(f"{self._host} did not respond within {self._timeout:g} s") from None
        except (self._aiohttp.ClientError, OSError, ValueError) as error:
            raise RetinueError(f"request to {self._host} failed: {_reason(error)}") from None
        await self._discard(response)
        return int(response.status)

    async def _discard(self, response: ClientResponse) -> None:
        """A short body is read, so that the connection can be used again; no one waits for the end
        of another.

        The status is the answer: whatever becomes of the body does not change it.
        """
        n_read = 0
        try:
            with contextlib.suppress(self._aiohttp.ClientError, OSError):
                async with asyncio.timeout(BODY_SECONDS):
                    while n_read < BODY_CAP and (part := await response.content.read(BODY_CAP)):
                        n_read += len(part)
        finally:
            response.release()  # and closes the connection, when something is still to come

    def _open(self) -> ClientSession:
        """The session of this loop. Connections cannot move to another loop; those of one that is
        gone are gone."""
        loop, aiohttp = asyncio.get_running_loop(), self._aiohttp
        if self._session is None or self._session[0] is not loop:
            session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                auto_decompress=False,
            )
            self._session = (loop, session)
        return self._session[1]


def _body(delivery: Delivery) -> bytes:
    origin = delivery.origin
    # Exact: a float of milliseconds may round down to the one before.
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=delivery.next_at)
    data = {
        "run": delivery.run,
        "root": delivery.root,
        "user": origin.user,
        "thread": origin.thread,
        "text": delivery.text,
    }
    if delivery.note:
        data["note"] = delivery.note
    when = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _encode({"type": "announcement", "timestamp": when, "data": data})


def _host(url: str) -> str:
    """The part of the URL that may be shown."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    else:
        host = host if parts.scheme in ("http", "https") else None
    if not host:
        raise ConfigError("A webhook's URL must start with http:// or https:// and name a host.")
    return host if port is None else f"{host}:{port}"


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    own = {}
    for name, value in headers.items():
        if name.lower() in _OURS:
            raise ConfigError(f"A webhook sets the header {name.lower()} itself. Remove it.")
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ConfigError(f"The webhook's header {name!r} has an invalid name or value.")
        own[name.lower()] = value
    return own


def _reason(error: Exception) -> str:
    cause = getattr(error, "os_error", error)
    strerror = getattr(cause, "strerror", None)
    return f"{type(error).__name__} ({strerror})" if strerror else type(error).__name__


def _library() -> Any:
    import aiohttp

    return aiohttp
