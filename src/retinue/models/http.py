"""A model over HTTP: a codec, a pooled client, a governor. What is half-received is never returned; the key goes to the
address that was configured and nowhere else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.history import History
from retinue.core.text import digest
from retinue.core.values import Message, ModelInfo, Reply, ToolSchema
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models.base import Request
from retinue.models.cache import Warmth
from retinue.models.codec import Codec, Decoder, Options, units
from retinue.models.governor import Governor, Turn

if TYPE_CHECKING:
    import aiohttp

MAX_BODY = 64 << 20
MAX_FAILURE = 64 << 10
NO_CALLS = {
    "anthropic": b',"tool_choice":{"type":"none"}',
    "gemini": b',"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}',
    "openai_chat": b',"tool_choice":"none"',
    "openai_responses": b',"tool_choice":"none"',
}
"""How a dialect says that tools which stay declared, so that the prefix stays the same, are not to be called now."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. `content` is the longest time without content although there are signs of life."""

    connect: float = 10.0
    headers: float = 60.0
    idle: float = 120.0
    content: float = 600.0
    attempt: float = 1_800.0


@dataclass(slots=True)
class Client:
    """One pool of connections, shared by all models. It is opened when it is first used, in the loop that uses it."""

    times: Times = field(default_factory=Times)
    limit: int = 0
    _session: aiohttp.ClientSession | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            try:
                import aiohttp
            except ImportError:
                raise ConfigError("models over HTTP need the extra http: pip install 'retinue[http]'") from None
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=self.times.connect, sock_read=max(self.times.idle, self.times.headers)
            )
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.limit, ttl_dns_cache=300),
                timeout=timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("user-agent", "accept-encoding"),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None and self._loop is asyncio.get_running_loop():
            await self._session.close()
        self._session = None


class HttpModel:
    """One model of one provider. `info.name` is what the runtime calls it, `model` what the provider does."""

    def __init__(
        self,
        info: ModelInfo,
        codec: Codec,
        *,
        model: str,
        base_url: str,
        key: str = "",
        client: Client,
        governor: Governor | None = None,
        options: Options | None = None,
        headers: Mapping[str, str] | None = None,
        warmth: Warmth | None = None,
    ) -> None:
        self.info, self.codec, self.model = info, codec, model
        self.options = options or Options()
        self.governor = governor
        self.warmth = warmth or Warmth()
        self._client, self._key = client, key
        self._url = base_url.rstrip("/") + codec.path(model, self.options)
        self._headers = {
            **codec.headers(key),
            "accept-encoding": "identity",
            "user-agent": "retinue",
            **(headers or {}),
        }
        self._kind = _variant(codec)
        self._heads: dict[tuple[str, int], tuple[tuple[ToolSchema, ...], bytes]] = {}

    def __repr__(self) -> str:
        return f"HttpModel({self.info.name!r}, {self.codec.dialect})"

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Reply:
        if self.governor is None:
            self.governor = Governor(asyncio.get_running_loop().time)
        head = self._head(request)
        body = self.body(request, head)
        warming = self.warmth.first_byte(self._prefix(head, request), len(body))
        async with warming as warm, self.governor.turn(request.root) as turn:
            try:
                reply = await self._attempt(body, turn, emit, warm.came)
            except ModelError as error:
                raise self._without_key(error) from None
        warm.counted(reply.usage)
        return replace(reply, usage=replace(reply.usage, nanos=self.info.price(reply.usage)))

    # the request

    def body(self, request: Request, head: bytes) -> bytes:
        """Head, units, tail; of the units only the last is written anew, where it carries the cache's breakpoint."""
        messages, unit = request.messages, self.codec.unit
        if isinstance(messages, History):
            pieces = messages.encode(self._kind, unit)
            last: Sequence[Message] = messages.last_unit() if self.options.cache else ()
        else:
            whole = list(units(messages))
            pieces = [unit(p) for p in whole]
            last = whole[-1]
        if self.options.cache and pieces:
            pieces[-1] = unit(last, mark=True)
        tail = self.codec.tail(request.max_output, self.options)
        if request.declared and not request.tools:
            tail = tail[:-1] + NO_CALLS[self.codec.dialect] + b"}"
        parts = [head]
        for piece in pieces:
            parts += (piece, b",")
        parts[-1] = tail
        return b"".join(parts)

    def _head(self, request: Request) -> bytes:
        """The same tools and instructions give the same head: it is made once."""
        tools = request.declared
        key = (request.instructions, id(tools))
        known = self._heads.get(key)
        if known is None or known[0] is not tools:
            options = self.options
            if options.cache and not options.cache_key:
                names = ",".join(t.name for t in tools)
                options = replace(options, cache_key=digest(request.instructions, names)[:16])
            if len(self._heads) > 256:
                self._heads.clear()
            head = self.codec.head(self.model, request.instructions, tools, options)
            known = self._heads[key] = (tools, head)
        return known[1]

    def _prefix(self, head: bytes, request: Request) -> tuple[object, ...]:
        """What siblings share: the head, and the conversation that a fork came from."""
        messages = request.messages
        base = messages.conversation.base if isinstance(messages, History) else None
        return (head, id(base) if base is not None else 0)

    # the answer

    async def _attempt(self, body: bytes, turn: Turn, emit: Callable[[str], None], came: Callable[[], None]) -> Reply:
        import aiohttp

        session, times = self._client.session(), self._client.times
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(times.headers) as limit:
                request = session.post(self._url, data=body, headers=self._headers, allow_redirects=False)
                async with request as response:
                    turn.heard(response.headers)
                    limit.reschedule(began + times.attempt)
                    if response.status != 200:
                        raise await self._refused(response)
                    came()
                    return await self._read(response, emit)
        except TimeoutError as error:
            raise ModelUnavailable(f"{self.model} did not answer in time ({error or 'headers'})", "network") from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise ModelRejected(f"no safe connection to {self.model}: {error}", kind="tls") from None
        except (aiohttp.InvalidURL, aiohttp.ClientResponseError) as error:
            raise ModelRejected(
                f"{self.model} sent something that is not HTTP: {_short(error)}", "bad_response"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ModelUnavailable(f"no answer from {self.model}: {_short(error)}", kind="network") from None

    async def _refused(self, response: aiohttp.ClientResponse) -> ModelError:
        if 300 <= response.status < 400:
            return ModelRejected(f"{self.model} redirects elsewhere, which is not followed", kind="redirect")
        body = await response.content.read(MAX_FAILURE)
        inflate = _inflater(response)
        try:
            body = inflate(body)
        except ModelError:
            body = b""
        return self.codec.failure(response.status, response.headers, body)

    async def _read(self, response: aiohttp.ClientResponse, emit: Callable[[str], None]) -> Reply:
        decoder: Decoder = self.codec.decoder(self.options)
        inflate, times = _inflater(response), self._client.times
        now = asyncio.get_running_loop().time
        size, contents, since = 0, 0, now()
        async for data in response.content.iter_any():
            size += len(data)
            if size > MAX_BODY:
                raise ModelRejected("the reply is longer than 64 MiB", kind="response_too_large")
            for text in decoder.feed(inflate(data)):
                emit(text)
            if decoder.contents != contents:
                contents, since = decoder.contents, now()
            elif now() - since > times.content:
                raise ModelUnavailable(
                    f"{self.model} sent signs of life for 10 minutes, but no content", kind="network"
                )
        return decoder.finish()

    def _without_key(self, error: ModelError) -> ModelError:
        if self._key and self._key in str(error):
            error.args = (str(error).replace(self._key, "[key]"), *error.args[1:])
        return error


def _variant(codec: Codec) -> str:
    """Codecs of one dialect that are set alike write alike: what one has written the others can use."""
    fields: tuple[Any, ...] = dataclasses.fields(codec) if dataclasses.is_dataclass(codec) else ()
    return f"{codec.dialect} {[getattr(codec, f.name) for f in fields]}"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _inflater(response: Any) -> Callable[[bytes], bytes]:
    """Bodies are asked for as they are; one that comes compressed all the same is unpacked within bounds."""
    kind = response.headers.get("content-encoding", "identity").strip().lower()
    if kind in ("", "identity"):
        return lambda data: data
    if kind not in ("gzip", "deflate"):
        raise ModelUnavailable(f"the answer came in an encoding that was not asked for ({kind[:40]})", "server_error")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    size = 0

    def inflate(data: bytes) -> bytes:
        nonlocal size
        try:
            out = unpack.decompress(data, MAX_BODY + 1 - size)
        except zlib.error as error:
            raise ModelUnavailable(f"the answer says that it is compressed, and is not: {error}") from None
        size += len(out)
        if size > MAX_BODY or unpack.unconsumed_tail:
            raise ModelRejected("the reply is longer than 64 MiB when unpacked", kind="response_too_large")
        return out

    return inflate
