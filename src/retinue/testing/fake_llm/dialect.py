"""Shared by the fake provider's dialects: the parsed request, the reply, and the form of errors.

A dialect reads a request strictly, and writes a reply as one body or as events; it keeps no state.
What providers do keep, the cache of prompts, is here."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import msgspec

from retinue.core.messages import AssistantMessage, Message, ToolCall, UserMessage
from retinue.core.values import ToolSchema, Usage
from retinue.testing.fake_llm.http_server import HttpRequest

Dialect = Literal["anthropic", "openai_chat", "openai_responses", "gemini"]
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)
Stop = Literal[
    "end",
    "calls",
    "length",
    "refusal",
    "filter",
    "pause",
    "waiting",
    "malformed",
    "blocked",
    "nothing",
    "recitation",
    "prohibited",
]
THOUGHT = "I think about what was asked."
CREATED = 1_700_000_000
LOOKBACK = 20
"""So many blocks before a mark Anthropic looks for a prefix that was cached at an earlier mark."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One request as it was understood. `headers` has no keys, `raw` is the body as it came."""

    n: int
    dialect: Dialect
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    stream: bool
    max_output: int | None
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The whole body. (Kept as bytes: thousands of parsed ones would slow the collector of
        cycles down.)"""
        value: dict[str, Any] = decode(self.raw)
        return value

    @property
    def turn(self) -> int:
        """How many replies are in the conversation."""
        return sum(isinstance(m, AssistantMessage) for m in self.messages)


class FakeUnit(NamedTuple):
    """A piece of the prompt that the cache can end behind. `is_marked` says that the request asks
    for that."""

    value: object
    n_chars: int
    n_blocks: int = 1
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """What a dialect read: the parts of the request, and its prefix in units. `has_marks` says that
    the dialect caches only where it is asked to; `has_ids` that calls are given ids."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    units: Sequence[FakeUnit]
    stream: bool = False
    max_output: int | None = None
    is_thinking: bool = False
    wants_usage: bool = True
    is_sse: bool = True
    has_marks: bool = False
    has_ids: bool = True


@dataclass(frozen=True, slots=True)
class FakeReply:
    """A reply before it is put into a dialect's words. The arguments of a call need not be JSON."""

    id: str
    model: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: Stop = "end"
    usage: Usage = Usage()
    thinking: str = ""
    refusal: str = ""
    has_ids: bool = True
    wants_usage: bool = True


class StreamEvent(NamedTuple):
    """One event of a stream. `kind` says what it carries."""

    kind: Literal["start", "think", "text", "call", "args", "stop", "last"]
    name: str
    data: Mapping[str, Any] | str


class FakeError(Exception):
    """An error answer. `kind` is the provider's own word for it: a type, or a status in
    capitals."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        details: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.code = code
        self.param = param
        self.details = details
        self.headers = headers or {}


class FakeDialect(Protocol):
    """One dialect: strict when it reads, plain when it writes."""

    dialect: Dialect

    def read(self, ask: HttpRequest, model: str) -> ParsedPrompt: ...

    def body(self, reply: FakeReply) -> dict[str, Any]: ...

    def events(self, reply: FakeReply, n_deltas: int) -> list[StreamEvent]: ...

    def error(self, trouble: FakeError, n: int) -> dict[str, Any]: ...

    def headers(self, n: int) -> dict[str, str]: ...


def frame(dialect: Dialect, event: StreamEvent) -> bytes:
    """An event as the dialect's server sends it."""
    data = event.data.encode() if isinstance(event.data, str) else encode(event.data)
    if dialect == "gemini":
        return b"data: %b\r\n\r\n" % data
    if event.name:
        return b"event: %b\ndata: %b\n\n" % (event.name.encode(), data)
    return b"data: %b\n\n" % data


def pieces(text: str, n: int) -> list[str]:
    """A text in at most n parts, none of them empty."""
    size = -(-len(text) // max(n, 1))
    return [text[at : at + size] for at in range(0, len(text), size)] if text else []


def seal(text: str) -> str:
    """A signature for what must come back unchanged."""
    return base64.b64encode(b"fake-signature-%08x" % zlib.crc32(text.encode())).decode()


def loads(args: str) -> Any:
    """Arguments as a provider shows them in a whole reply: parsed if they can be."""
    try:
        return decode(args)
    except msgspec.DecodeError:
        return args


def label(messages: Sequence[Message]) -> str:
    """What makes the ids of one conversation differ from those of another: the same again for the
    same task."""
    first = next((m.text for m in messages if isinstance(m, UserMessage)), "")
    return f"{zlib.crc32(first.encode('utf-8', 'surrogatepass')):08x}"


class PromptCache:
    """Which prefixes were seen before: a bounded set of hashes. Four characters are a token."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen: dict[int, None] = {}

    def measure(self, dialect: Dialect, prompt: ParsedPrompt) -> Usage:
        """The input, and how much of it was read from the cache and written to it; then the prefix
        is remembered."""
        so_far, n_chars = hash((dialect, prompt.model)), 0
        hashes, sizes = [], []
        for unit in prompt.units:
            so_far = hash((so_far, unit.value))
            n_chars += unit.n_chars
            hashes.append(so_far)
            sizes.append(n_chars)
        if prompt.has_marks:
            marks = [n for n, unit in enumerate(prompt.units) if unit.is_marked]
        else:
            marks = list(range(len(hashes)))
        hit = self._hit(prompt.units, hashes, marks) if prompt.has_marks else self._longest(hashes)
        read = sizes[hit] // 4 if hit >= 0 else 0
        n_written = max(sizes[marks[-1]] // 4 - read, 0) if marks else 0
        self._remember([hashes[n] for n in marks if n >= hit])
        return Usage(input=n_chars // 4, cache_read=read, cache_write=n_written)

    def _longest(self, hashes: Sequence[int]) -> int:
        return next((n for n in range(len(hashes) - 1, -1, -1) if hashes[n] in self._seen), -1)

    def _hit(self, units: Sequence[FakeUnit], hashes: Sequence[int], marks: Sequence[int]) -> int:
        for mark in reversed(marks):
            n_blocks = 0
            for n in range(mark, -1, -1):
                if hashes[n] in self._seen:
                    return n
                n_blocks += units[n].n_blocks
                if n_blocks >= LOOKBACK:
                    break
        return -1

    def _remember(self, hashes: Sequence[int]) -> None:
        for one in hashes:
            self._seen.pop(one, None)
            self._seen[one] = None
        while len(self._seen) > self._size:
            del self._seen[next(iter(self._seen))]
