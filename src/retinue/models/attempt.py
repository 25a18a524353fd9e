"""One request and its response as it arrives: times, sizes, and every way it can fail. What was
sent, and what of the answer had to be paid when it was interrupted, is recorded in the call's
`Progress`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from msgspec import Struct
from msgspec.json import Encoder
from msgspec.structs import replace

from retinue.core.messages import ModelReply
from retinue.core.redaction import Redactor
from retinue.core.values import Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models import machine_limits as machine
from retinue.models.answer_head import NotHttp
from retinue.models.attempt_errors import cause_of, phase_that_was_late, short
from retinue.models.base import Progress
from retinue.models.codec import Codec, Options, ReplyDecoder
from retinue.models.connection_pool import ConnectionPool, Times
from retinue.models.exchange import RequestSender
from retinue.models.governed_call import GovernedCall
from retinue.models.http_connection import ProviderConnection
from retinue.models.new_connections import NotSafe, ProxyRefused
from retinue.models.provider_errors import no_reason
from retinue.models.reply_body import MAX_BODY, unpacker
from retinue.models.usage_checks import RequestSize, believed, with_cost

_encode = Encoder().encode

MAX_FAILURE = 64 << 10
MOST_FOR_WORDS = 10.0
LINGER = 0.5
"""Seconds after the reply's last event in which the connection may end in order, to be used
again."""


class Attempt(Struct):
    """`run` it once: the whole reply with its cost, or a `ModelError`. `redactor` is for texts,
    `strict` for what is yet to be parsed."""

    codec: Codec
    options: Options
    model: str
    redactor: Redactor
    strict: Redactor
    asked: RequestSize
    progress: Progress

    async def run(
        self,
        client: ConnectionPool,
        sender: RequestSender,
        body: list[bytes],
        turn: GovernedCall,
        emit: Callable[[str], None],
        on_arrival: Callable[[], None],
    ) -> ModelReply:
        times = client.times
        try:
            pool, watchdog = client.pool()
            now = pool.loop.time()
            # Without a stream nothing comes before the reply is complete.
            until = now + (times.headers if self.options.stream else times.content)
            connection = pool.take(sender.route, now)
            if connection is None:
                with watchdog.limit(until, "headers"):
                    connection = await pool.connect(sender.route)
            connection.until, connection.why = until, "headers"
            watchdog.watch(connection)
            try:
                self.progress.leave()
                connection.send(*sender.writes(body, self.asked.size))
                head = await connection.answer()
                turn.answered(head.status, head.headers)
                if head.status != 200:
                    # What is refused is not charged for.
                    self.progress.settle(Usage())
                    raise await self._refused(connection, min(times.idle, MOST_FOR_WORDS))
                reply = self._plain(connection)
                if reply is None:
                    reply = self._hidden(
                        await self._read(connection, emit, on_arrival, times, now + times.attempt)
                    )
                else:
                    on_arrival()
            finally:
                watchdog.leave(connection)
                # What was not read to its end is not kept.
                pool.give(connection)
        except Exception as error:
            failure = self._translated(error, times)
            try:
                if failure is None:
                    raise
                failure.cause = cause_of(error)
                raise failure from None
            finally:
                del failure  # or it would be in its own traceback, with the body
        return with_cost(reply, self.asked)

    def _plain(self, connection: ProviderConnection) -> ModelReply | None:
        """The reply, if all of it is here, and there is nothing odd about it and no secret in it:
        then it is read at one look. With these two escapes a secret could be spelled in another way
        than it is looked for."""
        data = connection.whole()
        if not data or len(data) > MAX_BODY or "content-encoding" in connection.head.headers:
            return None
        redactor = self.redactor
        if redactor.knows and (b"\\u" in data or b"\\/" in data or redactor.suspects_json(data)):
            return None
        return self.codec.whole(data)

    def _translated(self, error: Exception, times: Times) -> ModelError | None:
        """What an exception of the connection means; None when it is not one of those."""
        match error:
            case TimeoutError():
                why = f"{self.model} did not respond in time: {phase_that_was_late(error, times)}"
                return ModelUnavailable(why, "network")
            case ProxyRefused():
                kind = ModelRejected if error.status in (401, 403, 407) else ModelUnavailable
                return kind(str(error), kind="network")
            case NotSafe():
                return ModelRejected(
                    f"TLS connection to {self.model} failed: {self._short(error)}", kind="tls"
                )
            case NotHttp():
                return ModelRejected(
                    f"{self.model} did not answer with valid HTTP: {self._short(error)}",
                    "bad_response",
                )
            case OSError() | MemoryError() | RuntimeError():
                if lack := machine.trouble(error):
                    return ModelUnavailable(
                        f"this machine could not call {self.model}: {lack}", machine.KIND
                    )
                if isinstance(error, RuntimeError):
                    return None
                return ModelUnavailable(
                    f"no response from {self.model}: {self._short(error)}", kind="network"
                )
            case _:
                return None

    async def _refused(self, connection: ProviderConnection, seconds: float) -> ModelError:
        """The status is known: what cannot be had of the words behind it is done without."""
        status, headers = connection.head.status, connection.head.headers
        if 300 <= status < 400:
            return ModelRejected(
                f"{self.model} answered with a redirect, which is not followed. Check its base URL",
                kind="redirect",
            )
        connection.until = asyncio.get_running_loop().time() + seconds
        body = bytearray()
        with contextlib.suppress(OSError, ModelError):
            unpack = unpacker(headers)
            while data := await connection.read():
                for piece in unpack(data):
                    body += piece
                if len(body) > MAX_FAILURE:
                    break
        answer = self.strict.clean_bytes(bytes(body))[:MAX_FAILURE]
        return no_reason(status, answer) or self.codec.failure(status, headers, answer)

    async def _read(
        self,
        connection: ProviderConnection,
        emit: Callable[[str], None],
        on_arrival: Callable[[], None],
        times: Times,
        latest: float,
    ) -> ModelReply:
        decoder: ReplyDecoder = self.codec.decoder(self.options)
        self.progress.follow(lambda: believed(*decoder.so_far(), self.asked, is_whole=False))
        unpack, now = unpacker(connection.head.headers), asyncio.get_running_loop().time
        # What has come is cleaned before it is read: an error in it is cut short. Deltas are
        # cleaned as one text.
        arriving, stream = self.strict.byte_stream(), self.redactor.stream()
        size, since = 0, now()
        connection.until, connection.why = min(latest, since + times.idle), "idle"
        while data := await connection.read():
            if not size:
                on_arrival()
            size += len(data)
            if size > MAX_BODY:
                raise ModelRejected("the reply is longer than 64 MiB", kind="response_too_large")
            before = decoder.contents
            for piece in unpack(data):
                for text in self._fed(decoder, arriving.feed(piece)):
                    if text := stream.feed(text):
                        emit(text)
            if decoder.done:
                # What the provider has said to be complete is complete, however the connection
                # ends.
                break
            moment = now()
            if decoder.contents != before:
                since = moment
            idle, empty = moment + times.idle, since + times.content
            if idle <= empty and idle <= latest:
                connection.until, connection.why = idle, "idle"
            else:
                connection.until, connection.why = (
                    (empty, "content") if empty <= latest else (latest, "attempt")
                )
            if moment >= connection.until:
                raise TimeoutError(connection.why)
        last = "" if decoder.done else "".join(decoder.feed(arriving.close()))
        if rest := stream.feed(last) + stream.close():
            emit(rest)
        if not connection.is_whole:
            await _end(connection)
        return decoder.finish()

    def _fed(self, decoder: ReplyDecoder, data: bytes) -> list[str]:
        try:
            return decoder.feed(data)
        except ModelError:
            if decoder.so_far() == (Usage(), 0):
                # It failed before it had counted or said anything: that is a refusal, though it
                # came with a 200.
                self.progress.settle(Usage())
            raise

    def _is_clean(self, reply: ModelReply) -> bool:
        """One look at all of a reply; nearly always there is nothing in it."""
        try:
            return not self.redactor.suspects_json(_encode(reply))
        except UnicodeEncodeError:  # half a character
            return False

    def _hidden(self, reply: ModelReply) -> ModelReply:
        """A reply in which someone on the way has put the key, without it."""
        if not self.redactor or self._is_clean(reply):
            return reply
        message, clean = reply.message, self.redactor.clean
        calls = tuple(
            replace(c, arguments_json=self.strict.clean(c.arguments_json), name=clean(c.name))
            for c in message.calls
        )
        message = replace(
            message, text=clean(message.text), calls=calls, opaque=self.strict.clean(message.opaque)
        )
        return replace(reply, message=message, model=clean(reply.model))

    def _short(self, error: BaseException) -> str:
        return short(error, self.redactor)


async def _end(connection: ProviderConnection) -> None:
    """Wait a moment for the end of a body that is no longer needed: then its connection can be used
    again."""
    size = 0
    with contextlib.suppress(OSError):
        async with asyncio.timeout(LINGER):
            while size < MAX_FAILURE and (data := await connection.read()):
                size += len(data)
