"""One GET with its redirects: each step is checked again, connects only to the checked addresses,
and reads no more than the limits."""

from __future__ import annotations

import contextlib
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.errors import Refused
from retinue.formats.decompress import ENCODINGS, Decompressor
from retinue.tools.builtin.ssrf import Gate
from retinue.tools.builtin.web_address import IP, Target, redirect_target
from retinue.tools.builtin.web_connector import connector_for

if TYPE_CHECKING:
    import aiohttp

MOST_BYTES = 10 << 20
MOST_OF_FAILURE = 64 << 10
MOST_REDIRECTS = 5
CONNECT_SECONDS = 10.0
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {
    "accept": (
        "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,application/json;q=0.9,*/*;q=0.5"
    ),
    "accept-encoding": "gzip, deflate",
    "user-agent": "retinue",
}

_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")
_KINDS = {
    "error": "its compression is invalid",
    "ClientPayloadError": "it ended too early",
    "ClientResponseError": "it did not answer with HTTP",
    "BadStatusLine": "it did not answer with HTTP",
    "ServerDisconnectedError": "it closed the connection",
}


class Failed(Exception):
    """The world did not give the page; the text says how, for the model."""


@dataclass(slots=True)
class Fetched:
    """What came. `note` says why it is not the whole, if it is not; `body` is empty when the type
    was not wanted."""

    target: Target
    status: int
    type: str
    charset: str
    body: bytes
    note: str = ""
    steps: list[Target] = field(default_factory=list)


class WebClient:
    """`credentials` are headers by origin ("https://api.example.org"): they are sent there and
    nowhere else."""

    def __init__(
        self,
        gate: Gate,
        *,
        credentials: Mapping[str, Mapping[str, str]] | None = None,
        tls: ssl.SSLContext | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._gate = gate
        self._credentials = credentials or {}
        self._tls = tls
        self._most = most_bytes

    async def get(
        self,
        target: Target,
        hosts: tuple[str, ...] | None,
        unwanted: tuple[str, ...] = (),
        forbids: Callable[[str, str], str] = lambda url, source: "",
    ) -> Fetched:
        """`unwanted` are beginnings of media types of which the body is not read. `forbids` says
        why an address may not be asked; with it goes the address that redirected to it, "" for the
        first."""
        steps: list[Target] = []
        while True:
            if why := forbids(target.url, steps[-1].url if steps else ""):
                raise Refused("denied", why)
            ips = await self._gate.admit(target, hosts)
            steps.append(target)
            async with self._response(target, ips) as response:
                location = response.headers.get("location", "")
                if response.status not in REDIRECTS or not location:
                    return await self._read(response, target, steps, unwanted)
            if len(steps) > MOST_REDIRECTS:
                raise Refused(
                    "fetch",
                    f"more than {MOST_REDIRECTS} redirects, the last from {target.url}",
                )
            target = redirect_target(target, location)

    @contextlib.asynccontextmanager
    async def _response(
        self, target: Target, ips: list[IP]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp
        from yarl import URL

        url = URL(target.url, encoded=True)
        if url.raw_host != target.host or url.port != target.port or url.scheme != target.scheme:
            raise Refused("fetch", f"{target.url} is ambiguous and was not fetched")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        headers = {**HEADERS, **self._credentials.get(target.origin, {})}
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector_for(target, ips, self._tls),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=timeout,
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                yield response
        except aiohttp.ClientConnectorCertificateError as error:
            raise Failed(
                f"the certificate of {target.host} is not valid ({_reason(error)})"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            if isinstance(error, TimeoutError):
                raise Failed(
                    f"{target.host} did not respond within {CONNECT_SECONDS:g} s"
                ) from None
            raise Failed(f"{target.host} sent an invalid answer ({_words(error)})") from None

    async def _read(
        self,
        response: aiohttp.ClientResponse,
        target: Target,
        steps: list[Target],
        unwanted: tuple[str, ...],
    ) -> Fetched:
        import aiohttp

        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not _TYPE.fullmatch(
            kind
        ):  # it is shown outside of the frame, so it may say nothing else
            kind = ""
        fetched = Fetched(
            target, response.status, kind, _charset(response.headers), b"", steps=steps
        )
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ENCODINGS:
            raise Failed(f"{target.host} sent an answer with an encoding that was not requested")
        if kind.startswith(unwanted):
            return fetched
        most = self._most if response.status < 400 else min(self._most, MOST_OF_FAILURE)
        parts, unpack, n_raw = [], Decompressor(encoding), 0
        try:
            async for chunk in response.content.iter_any():
                n_raw += len(chunk)
                for part in unpack.slices(chunk):
                    parts.append(part)
                    if unpack.n_out >= most:
                        break
                if unpack.n_out >= most or n_raw > most:
                    fetched.note = f"only the first {most} bytes were read"
                    break
        except (aiohttp.ClientError, OSError, zlib.error) as error:
            if not unpack.n_out:
                raise
            fetched.note = (
                f"the connection was interrupted ({_words(error)}), so the end is missing"
            )
        fetched.body = b"".join(parts)[:most]
        return fetched


def _reason(error: aiohttp.ClientConnectorCertificateError) -> str:
    return str(getattr(error.certificate_error, "verify_message", "") or "no reason given")[:200]


def _charset(headers: Mapping[str, str]) -> str:
    for part in headers.get("content-type", "").split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("'\"").lower()[:40]
    return ""


def _words(error: BaseException) -> str:
    """What went wrong, in our own words or the system's: what the other side has sent is not
    repeated here."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:200]
    return _KINDS.get(type(error).__name__, type(error).__name__)
