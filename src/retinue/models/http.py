"""A model over HTTP: a codec, a pooled client, a governor. What is half-received is never returned;
the key goes to the address that was configured and nowhere else."""

from __future__ import annotations

import logging
import math
import re
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from retinue.core.history import ShownMessages, as_shown
from retinue.core.ids import digest
from retinue.core.messages import Message, ModelReply
from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of_address
from retinue.core.state import REFUSALS
from retinue.core.values import ModelInfo, ToolSchema
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.models.attempt import Attempt
from retinue.models.attempt_errors import short
from retinue.models.base import NOTHING, ModelRequest
from retinue.models.codec import Codec, Options
from retinue.models.connection_pool import ConnectionPool, Times, checked_url
from retinue.models.exchange import RequestSender
from retinue.models.governed_call import GovernedCall
from retinue.models.governor import MAX_COOLING, Governor
from retinue.models.outage import outage_of, trouble_of
from retinue.models.prompt_cache import CacheWarmup, Prefix, PromptCacheState, shortest
from retinue.models.sent_conversation import Cure, Outgoing, Unit
from retinue.models.setting_support import choice_field, refusal, with_settings
from retinue.models.tool_limit import fitting, left_out
from retinue.models.usage_checks import RequestSize

__all__ = ["ConnectionPool", "HttpModel", "Times"]

log = logging.getLogger("retinue.models")

ORPHAN = re.compile(
    r"without `?tool_result|unexpected `?tool_use_id|no tool output found|no tool call found|must "
    r"be followed by tool"
    r"|must be a response to a preceding|number of function response parts|function response turn "
    r"comes immediately",
    re.IGNORECASE,
)
"""What providers say of a call without a result, or of a result without a call."""
MARKS = ("anthropic",)
"""Dialects in which a unit can carry a breakpoint of the prompt cache."""
TOOL_NUMBER = re.compile(r"\b(?:tools|function_?declarations)(?:\.|\[)(\d+)", re.IGNORECASE)


MAX_NAME = 200
LIKE_A_KEY = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9]).{12,}|.{24,}", re.DOTALL)


class HttpModel:
    """One model of one `provider`. `info.name` is what the runtime calls it, `model` what the
    provider does. A header of None is not sent."""

    exact = says_progress = True

    def __init__(
        self,
        info: ModelInfo,
        codec: Codec,
        *,
        model: str,
        base_url: str,
        key: str = "",
        client: ConnectionPool,
        governor: Governor | None = None,
        options: Options | None = None,
        headers: Mapping[str, str | None] | None = None,
        warmth: PromptCacheState | None = None,
        provider: str = "",
    ) -> None:
        self.info = info
        self.codec = codec
        self.model = model
        self.provider = provider
        self.options = options or Options()
        self.n_repairs = 0
        self._client = client
        self._redactor, self._strict = Redactor(), Redactor()
        self._outgoing = Outgoing(codec, f"{provider}:{model}")
        self.connect(base_url, key, headers, governor, warmth)
        self.info = self.warmth.known(info, is_streamed=self.options.stream)
        self._marks = self.options.cache and codec.dialect in MARKS
        self._marked: tuple[bytes, bytes] | None = None
        self._heads: dict[tuple[str, int, str], tuple[tuple[ToolSchema, ...], bytes, str]] = {}

    def connect(
        self,
        base_url: str,
        key: str,
        headers: Mapping[str, str | None] | None = None,
        governor: Governor | None = None,
        warmth: PromptCacheState | None = None,
    ) -> None:
        """Call another account from now on, with a governor and a cache of its own. What is under
        way continues."""
        codec, client = self.codec, self._client
        self.governor, self.warmth = governor or Governor(), warmth or self._own_warmth()
        self._url = checked_url(base_url).rstrip("/") + codec.path(self.model, self.options)
        self._outgoing.place = digest(base_url.rstrip("/"))[:12]
        self._proxy = client.proxy(self._url)
        sent_headers = {
            **codec.headers(key),
            "accept-encoding": "identity",
            "user-agent": "retinue",
            **(headers or {}),
        }
        self._headers = {name: value for name, value in sent_headers.items() if value is not None}
        password = urlsplit(self._proxy).password if self._proxy else None
        secrets = secrets_of_address("base_url", base_url)
        self.secrets = {"key": key, "proxy": unquote(password or ""), **secrets}
        # What is under way may still repeat the key that it was sent with: what is known is not
        # forgotten.
        self._redactor.learn(self.secrets)
        # A key that is a word ("assistant", "00000000") is looked for in texts, and not in what is
        # yet to be parsed.
        self._strict.learn(
            {name: one for name, one in self.secrets.items() if LIKE_A_KEY.search(one)}
        )
        self._sender: RequestSender | None = None

    def _own_warmth(self) -> PromptCacheState:
        least = shortest(self.provider, self.codec.dialect, self.model) if self.options.cache else 0
        return PromptCacheState(self.info, least)

    def __repr__(self) -> str:
        return f"HttpModel({self.info.name!r}, {self.codec.dialect})"

    @property
    def is_shut(self) -> bool:
        """Whether the provider is known to be down, so that another is better asked."""
        return self.governor.is_shut

    @property
    def most_tools(self) -> int:
        """How many tools the model can get; 0 means all."""
        return getattr(self.codec, "most_tools", 0)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        """A request that was refused for a part of it is sent once more without that part."""
        if not isinstance(request.messages, ShownMessages):
            request = replace(request, messages=as_shown(request.messages))
        progress, cure, settings = request.progress, Cure(), request.settings
        if problem := refusal(settings, self.codec.dialect, self.info, self.model):
            raise ModelRejected(f"{self.info.name} {problem}", kind="invalid_request")
        progress.wait()
        try:
            while True:
                try:
                    reply = await self._send(request, cure, emit)
                    break
                except ModelError as error:
                    another = self._cured(request, error, cure)
                    if another is None:
                        raise
                    request = another
        except ModelError as error:
            error.usage, error.sent = progress.usage, progress.sent
            raise
        except BaseException:
            self._outgoing.forget(cure)
            raise
        self._outgoing.took(request.messages)  # type: ignore[arg-type]
        # A link of a chain that was asked before may have cost something too.
        before = progress.before
        progress.settle(reply.usage)
        model = reply.model
        if before is not NOTHING or not 0 < len(model) <= MAX_NAME:
            spent = reply.usage if before is NOTHING else reply.usage.plus(before)
            reply = replace(reply, usage=spent, model=(model or self.model)[:MAX_NAME])
        return reply

    def _cured(self, request: ModelRequest, error: ModelError, cure: Cure) -> ModelRequest | None:
        """The request to send instead of one that was refused, if there is one."""
        assert isinstance(request.messages, ShownMessages)
        if self._outgoing.cure(request.messages, error, cure):
            log.warning(
                "%s rejected part of a conversation, which continues without it: %s",
                self.model,
                error,
            )
            return request
        if error.kind != "invalid_request" or cure.is_sent_anew or not ORPHAN.search(str(error)):
            self._outgoing.forget(cure)
            return None
        # It cannot be, for what is sent is made valid. If it is all the same, nothing that was kept
        # is trusted.
        cure.is_sent_anew = True
        self.n_repairs += 1
        log.error(
            "a rejected conversation is sent again in full, which should not be needed: %s", error
        )
        return replace(request, messages=as_shown(tuple(request.messages)))

    def _send(
        self, request: ModelRequest, cure: Cure, emit: Callable[[str], None]
    ) -> Coroutine[Any, Any, ModelReply]:
        head, name = self._head(request)
        if not self.warmth.least:
            return self._in_turn(request, head, cure, emit, None)
        warm = self.warmth.first_byte(*self._prefix(request, head, name))
        return self._warmed(request, head, cure, emit, warm)

    async def _warmed(
        self,
        request: ModelRequest,
        head: bytes,
        cure: Cure,
        emit: Callable[[str], None],
        warm: CacheWarmup,
    ) -> ModelReply:
        await warm.enter()
        try:
            reply = await self._in_turn(request, head, cure, emit, warm)
        finally:
            warm.leave()
        warm.counted(reply.usage)
        return reply

    async def _in_turn(
        self,
        request: ModelRequest,
        head: bytes,
        cure: Cure,
        emit: Callable[[str], None],
        warm: CacheWarmup | None,
    ) -> ModelReply:
        body, place = self._written(request, head, cure), self._outgoing.place
        size = sum(map(len, body))
        turn = self.governor.turn(request.root, size // 4)
        if not turn.begin():
            request.progress.outage = partial(outage_of, self.governor)
            try:
                await turn.wait()
            finally:
                request.progress.outage = None
        try:
            if place != self._outgoing.place:
                # It is another address by now, which is not sent what was sealed at the first.
                body, place = self._written(request, head, cure), self._outgoing.place
                size = sum(map(len, body))
            if warm is not None:
                warm.sending(request.run, size)
            on_arrival = _nothing if warm is None else warm.came
            reply = await self._attempt(request, body, size, turn, emit, on_arrival)
        except BaseException as error:
            failure = self._reported_error(error, turn, request)
            turn.end(failure)
            try:
                if failure is error:
                    raise
                raise failure from None
            finally:
                # An exception that is in a frame of its own traceback lives until the garbage is
                # collected, and with it the body: gigabytes of pictures are few objects.
                del failure
        turn.end()
        if warm is None:
            self.warmth.counted(reply.usage)
        if not reply.message.opaque:
            return reply
        return replace(reply, message=self._outgoing.sealed(reply.message, place))

    # the request

    def _written(self, request: ModelRequest, head: bytes, cure: Cure) -> list[bytes]:
        cure.known = self._outgoing.left_out()
        return self.body(request, head)

    def body(self, request: ModelRequest, head: bytes) -> list[bytes]:
        """Head, units, tail, to be sent one after another: what was written before is not copied
        here. Of the units only the last is written anew, where it carries the cache's
        breakpoint."""
        messages = (
            request.messages
            if isinstance(request.messages, ShownMessages)
            else as_shown(request.messages)
        )
        kind, unit = self._outgoing.way(messages)
        pieces = messages.encode(kind, unit)
        if self._marks and pieces:
            self._mark(messages, pieces, unit)
        options = with_settings(self.options, request.settings)
        if options.thinking_tokens:
            options = self._outgoing.options(options, messages)
        tail = self.codec.tail(request.max_output, options)
        if choice := choice_field(self.codec.dialect, options, request):
            tail = tail[:-1] + choice + b"}"
        if not pieces:
            return [head, tail]
        out = [b","] * (2 * len(pieces) + 1)
        out[0], out[1::2], out[-1] = head, pieces, tail
        return out

    def _mark(self, messages: ShownMessages, pieces: list[bytes], unit: Unit) -> None:
        pieces[messages.is_cut] = self._shared(messages, pieces[messages.is_cut], unit)
        last, conversation = messages.last_unit(), messages.conversation
        if conversation.own and messages.stop == len(conversation):
            pieces[-1] = unit(last, mark=True)
        else:
            pieces[-1] = _with_mark(pieces[-1], last, unit)

    def _shared(self, messages: ShownMessages, piece: bytes, unit: Unit) -> bytes:
        """What a fork came from, with a breakpoint at its end: siblings have no other that is the
        same for all."""
        base, length = messages.conversation.base, messages.conversation.base_length
        if base is None or messages.start >= length or messages.stop <= length:
            return piece
        if self._marked is None or self._marked[0] is not piece:
            last = ShownMessages(base, messages.start, length).last_unit()
            self._marked = (piece, _with_mark(piece, last, unit))
        return self._marked[1]

    def _head(self, request: ModelRequest) -> tuple[bytes, str]:
        """The same tools and instructions give the same head: it is made once, and has a name."""
        tools = request.declared
        options = with_settings(self.options, request.settings)
        words = "" if options is self.options else repr(options)
        key = (request.instructions, id(tools), words)
        head_entry = self._heads.get(key)
        if head_entry is None or head_entry[0] is not tools:
            instructions, offered_tools = request.instructions, fitting(tools, self.most_tools)
            if lack := left_out(tools, offered_tools, self.most_tools):
                log.warning("%s: %s", self.info.name, lack)
                instructions = f"{instructions}\n\n{lack}".lstrip()
            if options.cache and not options.cache_key:
                names = ",".join(t.name for t in offered_tools)
                options = replace(options, cache_key=digest(instructions, names)[:16])
            if len(self._heads) > 256:
                self._heads.clear()
            head = self.codec.head(self.model, instructions, offered_tools, options)
            head_entry = self._heads[key] = (
                tools,
                head,
                digest(self.model, head.decode("utf-8", "replace")),
            )
        return head_entry[1], head_entry[2]

    def _prefix(self, request: ModelRequest, head: bytes, name: str) -> tuple[Prefix, int]:
        """What siblings share, and how long it is: the head, and the conversation that a fork came
        from. Where nothing is cached it need not be known; of a reply that is not streamed nothing
        comes before it is complete, and no one waits for so long."""
        messages = request.messages
        if not self.options.cache or not self.options.stream or not self.warmth.least:
            return (name,), 0
        if not isinstance(messages, ShownMessages) or (base := messages.conversation.base) is None:
            return (name,), len(head)
        size, length = len(head), messages.conversation.base_length
        if messages.start < length:
            kind, unit = self._outgoing.way(messages)
            size += len(base.prefix(kind, messages.start, length, unit))
        return (name, id(base), length), size

    # the answer

    def _attempt(
        self,
        request: ModelRequest,
        body: list[bytes],
        size: int,
        turn: GovernedCall,
        emit: Callable[[str], None],
        on_arrival: Callable[[], None],
    ) -> Awaitable[ModelReply]:
        options, sender = with_settings(self.options, request.settings), self._sender
        if sender is None:
            sender = self._sender = RequestSender(self._url, self._headers, self._proxy)
        request_size = RequestSize(size, request.max_output, self.info, bool(options.extra))
        attempt = Attempt(
            self.codec,
            options,
            self.model,
            self._redactor,
            self._strict,
            request_size,
            request.progress,
        )
        return attempt.run(self._client, sender, body, turn, emit, on_arrival)

    # secrets

    def _reported_error(
        self, error: BaseException, turn: GovernedCall, request: ModelRequest
    ) -> BaseException:
        """The error as the machine can use it: without the key, with a time to wait that can be
        waited."""
        if not isinstance(error, ModelError):
            return self._unread(error)
        words = self._redactor.clean(str(error))
        if error.kind == "bad_schema" and (numbers := TOOL_NUMBER.findall(words)):
            # Gemini says tools[0].function_declarations[7].
            names = [
                t.name for t in fitting(request.declared, self.most_tools)[int(numbers[-1]) :][:1]
            ]
            words += f" (tool {names[0]!r})" if names and names[0] not in words else ""
        if error.kind == "not_found":
            words = f"{self.provider or 'the provider'} has no model {self.model!r}: {words}"
        if error.kind in REFUSALS:
            whose, answer = self.provider or self.model, f" ({turn.status})" if turn.status else ""
            words = words.removeprefix(f"HTTP {turn.status}").lstrip(": ")
            words = (
                f"{whose} rejected the API key{answer}: {words}"
                if error.kind == "auth"
                else f"the account of {whose} has no credit left{answer}: {words}"
            )
            if self.governor.refusal is None:
                log.warning("%s. Runs wait for another key (Catalog.bring, Retinue.retry)", words)
        error.args = (words,)
        error.trouble = error.trouble or trouble_of(error, turn.status, self.provider, self._url)
        if isinstance(error, ModelUnavailable):
            seconds = max(error.retry_after, turn.asked if error.kind not in REFUSALS else 0.0)
            error.retry_after = min(seconds, MAX_COOLING) if math.isfinite(seconds) else 0.0
        return error

    def _unread(self, error: BaseException) -> BaseException:
        """A mistake of ours is an error of the call."""
        if isinstance(error, ConfigError) or not isinstance(error, Exception):
            return error
        where = "".join(traceback.format_tb(error.__traceback__))
        problem = f"cannot read the answer of {self.model}: {short(error, self._redactor)}"
        log.error("%s\n%s", problem, where)
        return ModelRejected(problem, kind="bad_response")


def _nothing() -> None:
    """What is done at the first byte where nothing is cached."""


def _with_mark(piece: bytes, last: Sequence[Message], unit: Unit) -> bytes:
    """A piece that ends with this unit, which then carries the breakpoint. (It may hold more than
    the unit.)"""
    if not last:
        return piece
    plain, marked = unit(last), unit(last, mark=True)
    is_end = piece.endswith(plain) and marked != plain
    return piece[: len(piece) - len(plain)] + marked if is_end else piece
