"""One request to the fake provider, with what is needed to answer it correctly or with a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retinue.core.messages import ToolCall
from retinue.testing.fake_llm.dialect import (
    FakeDialect,
    FakeError,
    FakeReply,
    ParsedPrompt,
    ParsedRequest,
    StreamEvent,
    encode,
    frame,
)
from retinue.testing.fake_llm.http_server import (
    JSON,
    LAST_CHUNK,
    SSE,
    HttpConnection,
    HttpRequest,
    chunk,
    head,
)

FILLER = "Let me see what there is to find out about this, step by step."


@dataclass(frozen=True, slots=True)
class FakeSettings:
    """The numbers of a fake provider. The defaults are those of real ones; a test that waits makes
    them small."""

    pace_seconds: float = 0.0
    """Between two writes of a stream."""
    retry_after_seconds: float | None = None
    """What a rate limit asks for; None is 7, 1.5 and 34 seconds at Anthropic, OpenAI and Gemini."""
    stall_seconds: float = 3600.0
    """How long a connection stays open when nothing comes."""
    drip_seconds: float = 5.0
    """Between two bytes of a stream that drips."""
    settle_seconds: float = 0.02
    """Before a reset, so that the client has seen what came before it."""
    outage_seconds: float = 1800.0
    """How long an outage lasts, from its first request on."""
    huge_bytes: int = 20 << 20
    """The size of one event that is too large."""
    bomb_bytes: int = 10 << 30
    """What a compressed body unpacks to."""
    header_bytes: int = 1 << 20
    """The size of a header that is too large."""
    long_text: int = 10 << 20
    """The number of characters in a reply that is too long."""
    n_storm: int = 200
    """So many calls in one reply."""
    elsewhere: str = "http://evil.test/"
    """Where a redirect leads."""
    seed: int = 0
    """Chooses what happens when a provider flaps."""
    max_body: int = 32 << 20
    """Requests above this are refused."""
    n_prefixes: int = 1 << 18
    """So many prefixes the prompt cache remembers."""
    keep: int = 10_000
    """So many requests are kept to look at."""


@dataclass(slots=True)
class FakeRequest:
    """`say` makes the reply that the script has for this request; faults that need none do not ask
    for it."""

    conn: HttpConnection
    ask: HttpRequest
    heard: ParsedRequest
    prompt: ParsedPrompt
    api: FakeDialect
    settings: FakeSettings
    n_deltas: int
    say: Callable[[], FakeReply]

    @property
    def is_stream(self) -> bool:
        return self.prompt.stream

    @property
    def headers(self) -> dict[str, str]:
        return self.api.headers(self.heard.n)

    def refuse(self, trouble: FakeError) -> None:
        problem: Any = self.api.error(trouble, self.heard.n)
        if self.is_stream and not self.prompt.is_sse:
            problem = [problem]
        self.conn.answer(trouble.status, {**self.headers, **trouble.headers}, encode(problem))

    def play(self, reply: FakeReply) -> None:
        """The reply, as it should be."""
        if not self.is_stream:
            self.conn.answer(200, self.headers, encode(self.api.body(reply)))
            return
        first, *more = self.writes(reply)
        self.conn.send(self.stream_head() + chunk(first))
        for data in more:
            self.conn.send(chunk(data))
        self.conn.send(LAST_CHUNK)

    async def play_slowly(self, reply: FakeReply) -> None:
        if not self.is_stream:
            return self.play(reply)
        self.conn.send(self.stream_head())
        for data in self.writes(reply):
            self.conn.send(chunk(data))
            await asyncio.sleep(self.settings.pace_seconds)
            await self.conn.drain()
        self.conn.send(LAST_CHUNK)
        return None

    def stream_head(self, **more: str) -> bytes:
        kind = SSE if self.prompt.is_sse else JSON
        framing = (
            {}
            if "connection" in more or "content_length" in more
            else {"transfer-encoding": "chunked"}
        )
        extra = {name.replace("_", "-"): value for name, value in more.items()}
        return head(
            200,
            {"content-type": kind, "cache-control": "no-cache", **framing, **self.headers, **extra},
        )

    def writes(self, reply: FakeReply) -> list[bytes]:
        """A stream in as many writes as there are deltas asked for in a text."""
        frames = self.frames(self.api.events(reply, self.n_deltas))
        size = -(-len(frames) // max(self.n_deltas, 1))
        return [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]

    def frames(self, events: Sequence[StreamEvent]) -> list[bytes]:
        if self.prompt.is_sse:
            return [frame(self.api.dialect, event) for event in events]
        parts = [encode(event.data) for event in events]
        return [b"[" + parts[0], *(b",\r\n" + part for part in parts[1:]), b"]"]

    def whole(self, reply: FakeReply) -> tuple[bytes, bytes]:
        """Head and body of the reply, correct to the last byte."""
        if self.is_stream:
            frames = self.frames(self.api.events(reply, self.n_deltas))
            return self.stream_head(), b"".join(map(chunk, frames)) + LAST_CHUNK
        body = encode(self.api.body(reply))
        return head(
            200, {"content-type": JSON, "content-length": str(len(body)), **self.headers}
        ), body

    def partial(self) -> list[StreamEvent]:
        """A stream long enough to be broken after some deltas of text."""
        reply = self.say()
        return self.api.events(
            replace(reply, text=reply.text if len(reply.text) > 24 else FILLER), 6
        )

    def called(self) -> FakeReply:
        """The reply with at least one call in it."""
        reply = self.say()
        if reply.calls:
            return reply
        tools = self.heard.tools
        call = ToolCall(
            id=f"call_forged_{self.heard.n}",
            name=tools[0].name if tools else "lookup",
            arguments_json='{"path":"a.txt"}',
        )
        return replace(reply, text="", calls=(call,), stop="calls")

    async def silence(self) -> None:
        await asyncio.sleep(self.settings.stall_seconds)
        self.conn.reset()

    async def reset(self) -> None:
        await asyncio.sleep(self.settings.settle_seconds)
        self.conn.reset()
