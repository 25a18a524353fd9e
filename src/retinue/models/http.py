"""A model over HTTP: a codec, a pooled client, a governor. What is half-received is never returned; the key goes to the
address that was configured and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import re
import ssl
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from retinue.core.history import History
from retinue.core.text import digest
from retinue.core.values import Message, ModelInfo, Reply, ToolSchema
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models.base import Request
from retinue.models.cache import Prefix, Warmth
from retinue.models.client import Client, Times, checked_url, forms
from retinue.models.codec import Codec, Decoder, Options, units
from retinue.models.governor import MAX_COOLING, Governor, Turn
from retinue.models.unpack import MAX_BODY, unpacker
from retinue.models.watchdog import Limit

if TYPE_CHECKING:
    import aiohttp

    from retinue.models.wire import Exchange, Wire

__all__ = ["Client", "HttpModel", "Times"]

log = logging.getLogger("retinue")

MAX_FAILURE = 64 << 10
MOST_FOR_WORDS = 10.0
LINGER = 0.5
"""Seconds after the reply's last event in which the connection may end in order, to be used again."""
NO_CALLS = {
    "anthropic": b',"tool_choice":{"type":"none"}',
    "gemini": b',"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}',
    "openai_chat": b',"tool_choice":"none"',
    "openai_responses": b',"tool_choice":"none"',
}
"""How a dialect says that tools which stay declared, so that the prefix stays the same, are not to be called now."""
ORPHAN = re.compile(
    r"without `?tool_result|unexpected `?tool_use_id|no tool output found|no tool call found|must be followed by tool"
    r"|must be a response to a preceding|number of function response parts|function response turn comes immediately",
    re.IGNORECASE,
)
"""What providers say of a call without a result, or of a result without a call."""
MARKS = ("anthropic",)
"""Dialects in which a unit can carry a breakpoint of the prompt cache."""
TOOL_NUMBER = re.compile(r"\b(?:tools|function_?declarations)(?:\.|\[)(\d+)", re.IGNORECASE)


class HttpModel:
    """One model of one `provider`. `info.name` is what the runtime calls it, `model` what the provider does. A header
    of None is not sent."""

    exact = True

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
        headers: Mapping[str, str | None] | None = None,
        warmth: Warmth | None = None,
        provider: str = "",
    ) -> None:
        self.info, self.codec, self.model, self.provider = info, codec, model, provider
        self.options = options or Options()
        self.governor = governor or Governor()
        self.warmth = warmth or Warmth()
        self.n_repairs = 0
        self._client = client
        self._url = checked_url(base_url).rstrip("/") + codec.path(model, self.options)
        self._proxy = client.proxy(self._url)
        sent = {**codec.headers(key), "accept-encoding": "identity", "user-agent": "retinue", **(headers or {})}
        self._headers = {name: value for name, value in sent.items() if value is not None}
        password = urlsplit(self._proxy).password if self._proxy else None
        self._secrets = forms(key, unquote(password or ""))
        self._kind = _variant(codec)
        self._marks = self.options.cache and codec.dialect in MARKS
        self._marked: tuple[bytes, bytes] | None = None
        self._wire: Wire | None = None
        self._heads: dict[tuple[str, int], tuple[tuple[ToolSchema, ...], bytes, str]] = {}

    def __repr__(self) -> str:
        return f"HttpModel({self.info.name!r}, {self.codec.dialect})"

    @property
    def is_shut(self) -> bool:
        """Whether the provider is known to be down, so that another is better asked."""
        return self.governor.is_shut

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Reply:
        head, name = self._head(request)
        try:
            reply = await self._send(request, self._prefix(request, head, name), self.body(request, head), emit)
        except ModelRejected as error:
            if error.kind != "invalid_request" or not ORPHAN.search(str(error)):
                raise
            # It cannot be, for what is sent is made valid. If it is all the same, nothing that was kept is trusted.
            self.n_repairs += 1
            log.error("a conversation was refused and is sent anew, which should not be needed: %s", error)
            fresh = dataclasses.replace(request, messages=tuple(request.messages))
            reply = await self._send(request, self._prefix(request, head, name), self.body(fresh, head), emit)
        spent = replace(reply.usage, nanos=self.info.price(reply.usage))
        return self._hidden(replace(reply, usage=spent, model=reply.model or self.model))

    async def _send(
        self, request: Request, shared: tuple[Prefix, int], body: list[bytes], emit: Callable[[str], None]
    ) -> Reply:
        size = sum(map(len, body))
        async with (
            self.warmth.first_byte(*shared) as warm,
            self.governor.turn(request.root, size // 4) as turn,
        ):
            warm.sending(request.run, size)
            try:
                reply = await self._attempt(body, turn, emit, warm.came)
            except ModelError as error:
                raise self._told(error, turn, request) from None
            except ConfigError:
                raise
            except Exception as error:
                where = "".join(traceback.format_tb(error.__traceback__))
                told = self._hide(f"the answer of {self.model} could not be read: {_short(error)}")
                log.error("%s\n%s", told, where)
                raise ModelRejected(told, kind="bad_response") from None
        warm.counted(reply.usage)
        return reply

    # the request

    def body(self, request: Request, head: bytes) -> list[bytes]:
        """Head, units, tail, to be sent one after another: what was written before is not copied here. Of the units
        only the last is written anew, where it carries the cache's breakpoint."""
        messages = request.messages
        if isinstance(messages, History):
            pieces = messages.encode(self._kind, self.codec.unit)
            if self._marks and pieces:
                self._mark(messages, pieces)
        else:
            parts = list(units(messages))
            pieces = [self.codec.unit(p, mark=self._marks and p is parts[-1]) for p in parts]
        tail = self.codec.tail(request.max_output, self.options)
        if request.declared and not request.tools:
            tail = tail[:-1] + NO_CALLS[self.codec.dialect] + b"}"
        out = [head]
        for piece in pieces:
            out += (piece, b",")
        out[max(1, len(out) - 1) :] = (tail,)
        return out

    def _mark(self, messages: History, pieces: list[bytes]) -> None:
        pieces[messages.is_cut] = self._shared(messages, pieces[messages.is_cut])
        last, conversation = messages.last_unit(), messages.conversation
        if conversation.own and messages.stop == len(conversation):
            pieces[-1] = self.codec.unit(last, mark=True)
        else:
            pieces[-1] = self._with_mark(pieces[-1], last)

    def _shared(self, messages: History, piece: bytes) -> bytes:
        """What a fork came from, with a breakpoint at its end: siblings have no other that is the same for all."""
        base, length = messages.conversation.base, messages.conversation.base_length
        if base is None or messages.start >= length or messages.stop <= length:
            return piece
        if self._marked is None or self._marked[0] is not piece:
            last = History(base, messages.start, length).last_unit()
            self._marked = (piece, self._with_mark(piece, last))
        return self._marked[1]

    def _with_mark(self, piece: bytes, last: Sequence[Message]) -> bytes:
        """A piece that ends with this unit, which then carries the breakpoint. (It may hold more than the unit.)"""
        if not last:
            return piece
        plain, marked = self.codec.unit(last), self.codec.unit(last, mark=True)
        is_end = piece.endswith(plain) and marked != plain
        return piece[: len(piece) - len(plain)] + marked if is_end else piece

    def _head(self, request: Request) -> tuple[bytes, str]:
        """The same tools and instructions give the same head: it is made once, and has a name."""
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
            known = self._heads[key] = (tools, head, digest(self.model, head.decode("utf-8", "replace")))
        return known[1], known[2]

    def _prefix(self, request: Request, head: bytes, name: str) -> tuple[Prefix, int]:
        """What siblings share, and how long it is: the head, and the conversation that a fork came from."""
        messages = request.messages
        if not self.options.cache:
            return (name,), 0
        if not isinstance(messages, History) or (base := messages.conversation.base) is None:
            return (name,), len(head)
        size, length = len(head), messages.conversation.base_length
        if messages.start < length:
            size += len(base.prefix(self._kind, messages.start, length, self.codec.unit))
        return (name, id(base), length), size

    # the answer

    async def _attempt(
        self, body: list[bytes], turn: Turn, emit: Callable[[str], None], came: Callable[[], None]
    ) -> Reply:
        import aiohttp
        from aiohttp.http import HttpProcessingError

        (session, watchdog), times = self._client.session(), self._client.times
        began = asyncio.get_running_loop().time()
        # Without a stream nothing comes before the reply is complete.
        patience = times.headers if self.options.stream else times.content
        try:
            with watchdog.limit(began + patience, "headers") as limit:
                async with self._wire_in(session).post(body) as answer:
                    turn.heard(answer.status, answer.headers)
                    if answer.status != 200:
                        raise await self._refused(answer, limit)
                    return await self._read(answer, emit, came, limit, began + times.attempt)
        except TimeoutError as error:
            raise ModelUnavailable(f"{self.model} did not answer in time: {_late(error, times)}", "network") from None
        except aiohttp.ClientHttpProxyError as error:
            kind = ModelRejected if error.status in (401, 403, 407) else ModelUnavailable
            raise kind(f"the proxy refused with status {error.status}", kind="network") from None
        except aiohttp.ClientSSLError as error:
            if isinstance(error.os_error, ssl.SSLEOFError):
                raise ModelUnavailable(f"{self.model} broke off the handshake", kind="network") from None
            raise ModelRejected(f"no safe connection to {self.model}: {_short(error)}", kind="tls") from None
        except (aiohttp.InvalidURL, HttpProcessingError) as error:
            raise ModelRejected(f"{self.model} sent what is not HTTP: {_short(error)}", "bad_response") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ModelUnavailable(f"no answer from {self.model}: {_short(error)}", kind="network") from None

    def _wire_in(self, session: aiohttp.ClientSession) -> Wire:
        from retinue.models.wire import Wire

        wire = self._wire
        if wire is None or wire.session is not session:
            wire = self._wire = Wire(session, self._url, self._headers, self._proxy)
        return wire

    async def _refused(self, response: Exchange, limit: Limit) -> ModelError:
        """The status is known: what cannot be had of the words behind it is done without."""
        import aiohttp

        if 300 <= response.status < 400:
            return ModelRejected(f"{self.model} redirects elsewhere, which is not followed", kind="redirect")
        limit.until = math.inf
        body = bytearray()
        with contextlib.suppress(aiohttp.ClientError, OSError, ModelError):
            async with asyncio.timeout(min(self._client.times.idle, MOST_FOR_WORDS)):
                unpack = unpacker(response.headers)
                async for data in response.content.iter_any():
                    for piece in unpack(data):
                        body += piece
                    if len(body) > MAX_FAILURE:
                        break
        return self.codec.failure(response.status, response.headers, bytes(body[:MAX_FAILURE]))

    async def _read(
        self,
        response: Exchange,
        emit: Callable[[str], None],
        came: Callable[[], None],
        limit: Limit,
        latest: float,
    ) -> Reply:
        decoder: Decoder = self.codec.decoder(self.options)
        unpack, times = unpacker(response.headers), self._client.times
        now = asyncio.get_running_loop().time
        size, since = 0, now()
        limit.until, limit.why = min(latest, since + times.idle), "idle"
        content = response.content
        while not content.at_eof():
            data = await content.readany()
            if data and not size:
                came()
            size += len(data)
            if size > MAX_BODY:
                raise ModelRejected("the reply is longer than 64 MiB", kind="response_too_large")
            before = decoder.contents
            for piece in unpack(data):
                for text in decoder.feed(piece):
                    emit(self._hide(text))
            if decoder.done:
                # What the provider has said to be complete is complete, however the connection ends.
                break
            moment = now()
            if decoder.contents != before:
                since = moment
            idle, empty = moment + times.idle, since + times.content
            if idle <= empty and idle <= latest:
                limit.until, limit.why = idle, "idle"
            else:
                limit.until, limit.why = (empty, "content") if empty <= latest else (latest, "attempt")
            if moment >= limit.until:
                raise TimeoutError(limit.why)
        if not content.at_eof():
            await _end(response)
        return decoder.finish()

    # secrets

    def _told(self, error: ModelError, turn: Turn, request: Request) -> ModelError:
        """The error as the machine can use it: without the key, with a time to wait that can be waited."""
        words = self._hide(str(error))
        if error.kind == "bad_schema" and (found := TOOL_NUMBER.search(words)) is not None:
            names = [t.name for t in request.declared[int(found[1]) :][:1]]
            words += f" (tool {names[0]!r})" if names and names[0] not in words else ""
        error.args = (words,)
        if isinstance(error, ModelUnavailable):
            asked = max(error.after_seconds, turn.asked if error.kind != "quota" else 0.0)
            error.after_seconds = min(asked, MAX_COOLING) if math.isfinite(asked) else 0.0
        return error

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "[key]")
        return text

    def _hidden(self, reply: Reply) -> Reply:
        """A reply in which somebody on the way has put the key, without it."""
        said = reply.message
        for secret in self._secrets:
            if secret in said.text or secret in said.opaque or secret in reply.model:
                break
            if any([secret in c.args or secret in c.name or secret in c.id for c in said.calls]):
                break
        else:
            return reply
        return msgspec.json.decode(self._hide(msgspec.json.encode(reply).decode()), type=Reply)


def _late(error: TimeoutError, times: Times) -> str:
    """Which of the times was over."""
    match str(error):
        case "headers":
            return "no headers came"
        case "idle":
            return f"silent for {times.idle:g} s"
        case "content":
            return f"signs of life for {times.content:g} s, but no content"
        case "attempt":
            return f"not complete after {times.attempt:g} s"
        case said:
            return said or "no connection"


async def _end(response: Exchange) -> None:
    """Wait a moment for the end of a body that is not needed any more: then its connection can be used again."""
    import aiohttp

    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(LINGER):
            await response.content.read(MAX_FAILURE)


def _variant(codec: Codec) -> str:
    """Codecs of one dialect that are set alike write alike: what one has written the others can use."""
    fields: tuple[Any, ...] = dataclasses.fields(codec) if dataclasses.is_dataclass(codec) else ()
    return f"{codec.dialect} {[getattr(codec, f.name) for f in fields]}"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
