"""What the tests of models over HTTP share: models that talk to a fake provider on loopback, and
short times."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from retinue.core.history import Conversation, ShownMessages
from retinue.core.messages import AssistantMessage, Message, ModelReply, ToolCall, UserMessage
from retinue.core.values import ModelInfo, ToolSchema, Usage
from retinue.errors import ModelError
from retinue.models.anthropic import AnthropicCodec
from retinue.models.base import ModelRequest
from retinue.models.codec import Codec, Options
from retinue.models.gemini import GeminiCodec
from retinue.models.governor import Governor
from retinue.models.http import ConnectionPool, HttpModel, Times
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.models.openai_responses import OpenAIResponsesCodec
from retinue.testing.fake_llm.fake_provider import FakeLLM, FakeSettings

KEY = "sk-canary-7f3a9c51e2b84d06"
DIALECTS = ("anthropic", "openai_chat", "openai_responses", "gemini")
CODECS: dict[str, Callable[[], Codec]] = {
    "anthropic": AnthropicCodec,
    "openai_chat": OpenAIChatCodec,
    "openai_responses": OpenAIResponsesCodec,
    "gemini": GeminiCodec,
}
FAST = Times(connect=2.0, headers=1.0, idle=1.0, content=2.5, attempt=10.0)
QUICK = FakeSettings(
    retry_after_seconds=0.2,
    stall_seconds=60.0,
    drip_seconds=0.02,
    settle_seconds=0.005,
    bomb_bytes=200 << 20,
    long_text=1 << 20,
    keep=10_000,
)
READ = ToolSchema(
    name="read",
    description="Reads a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def url_of(llm: FakeLLM, dialect: str) -> str:
    return f"{llm.url}/v1" if dialect.startswith("openai") else llm.url


def http_model(
    url: str, dialect: str = "anthropic", *, client: ConnectionPool, **fields: Any
) -> HttpModel:
    """A model of its own governor, unless told otherwise."""
    options = fields.pop("options", None) or Options(stream=fields.pop("stream", True))
    info = fields.pop("info", None) or ModelInfo(name="m", window=200_000, max_output=1_024)
    codec = fields.pop("codec", None) or CODECS[dialect]()
    fields = {"key": KEY, "model": "m", **fields}
    return HttpModel(info, codec, base_url=url, client=client, options=options, **fields)


@contextlib.asynccontextmanager
async def talking(
    script: Any = ("Hello.",), dialect: str = "anthropic", *, times: Times = FAST, **fields: Any
) -> AsyncIterator[tuple[FakeLLM, HttpModel]]:
    """A fake provider and a model that talks to it."""
    settings, faults = fields.pop("settings", QUICK), fields.pop("faults", ())
    chunks, seconds = fields.pop("chunks", 3), fields.pop("seconds", 0.0)
    async with FakeLLM(
        script, settings=settings, faults=faults, chunks=chunks, seconds=seconds
    ) as llm:
        client = ConnectionPool(times)
        try:
            yield llm, http_model(url_of(llm, dialect), dialect, client=client, **fields)
        finally:
            await client.close()


class Together:
    """A script that answers nobody after the first `before` until so many are there at once."""

    def __init__(self, n: int, text: str = "Hello.", *, before: int = 0) -> None:
        self._n, self._text, self._before = n, text, before
        self._all_are_there = asyncio.Event()

    async def __call__(self, request: Any) -> str:
        if request.n >= self._before + self._n:
            self._all_are_there.set()
        if request.n > self._before:
            await self._all_are_there.wait()
        return self._text


def asking(text: str = "Hello?", *, run: str = "r1", root: str = "", **fields: Any) -> ModelRequest:
    """A request as the runtime makes them."""
    messages: Sequence[Message] = fields.pop("messages", None) or history(UserMessage(text=text))
    values: dict[str, Any] = {
        "path": "0",
        "agent": "one",
        "model": "m",
        "turn": 0,
        "attempt": 1,
        "purpose": "turn",
        "instructions": "Be brief.",
        "tools": (READ,),
        "declared": (READ,),
        "max_output": 256,
        "key": f"{run}/1",
        **fields,
    }
    return ModelRequest(run=run, root=root or run, messages=messages, **values)


def history(*messages: Message, base: Conversation | None = None) -> ShownMessages:
    conversation = Conversation(base, len(base)) if base is not None else Conversation()
    for message in messages:
        conversation.append(message)
    return ShownMessages(conversation, 0, len(conversation))


async def complete(
    model: Any, request: ModelRequest | None = None, texts: list[str] | None = None
) -> ModelReply:
    return await model.complete(request or asking(), (texts if texts is not None else []).append)  # type: ignore[no-any-return]


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def at_rest(governor: Governor) -> bool:
    """Nothing of it is under way and nobody waits."""
    return (governor.in_flight, governor.waiting, governor._unheard, governor._unheard_tokens) == (
        0,
        0,
        0,
        0,
    )


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve, **more: Any) -> AsyncIterator[str]:
    """A server of one function; nothing of it is left when the block is."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.append(asyncio.create_task(one(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **more)
    try:
        yield f"http{'s' if 'ssl' in more else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for _ in range(3):  # whoever was just let in is known a moment later
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            # What nobody reads is not waited for. A transport that has sent its last bytes and
            # closed has no loop any more, and Python 3.11 asks for it.
            with contextlib.suppress(AttributeError):
                writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@contextlib.asynccontextmanager
async def answering(
    *answers: bytes, close: bool = True, listen: bool = True, **more: Any
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that says these bytes, whatever it hears, one answer for each connection, the last
    for all others. What it heard is kept."""
    pieces: list[bytes] = []
    rest = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = rest.pop(0) if len(rest) > 1 else rest[0]
        if listen:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [
                int(h.split(b":")[1])
                for h in head.split(b"\r\n")
                if h.lower().startswith(b"content-l")
            ]
            pieces.append(head + await reader.readexactly(sum(lengths)))
        writer.write(answer)
        await writer.drain()
        if not close:
            await reader.read()

    async with serving(serve, **more) as url:
        yield url, pieces


class InProcess(HttpModel):
    """A model without sockets, for virtual time: `fails` says for a moment what goes wrong, and
    each run calls `read` until it has `calls` results."""

    def __init__(
        self, fails: Callable[[float], ModelError | None], *, calls: int = 2, seconds: float = 1.0
    ) -> None:
        info = ModelInfo(name="m", window=10_000_000, max_output=1_024)
        super().__init__(
            info,
            AnthropicCodec(),
            model="m",
            base_url="http://nowhere.test",
            client=ConnectionPool(),
        )
        self.starts: list[float] = []
        self.failed = 0
        self._fails, self._calls, self._seconds = fails, calls, seconds

    async def _attempt(
        self,
        request: ModelRequest,
        body: list[bytes],
        size: int,
        turn: Any,
        emit: Any,
        connection: Any,
    ) -> ModelReply:
        request.progress.leave()
        self.starts.append(asyncio.get_running_loop().time())
        error = self._fails(self.starts[-1])
        await asyncio.sleep(self._seconds)
        if error is not None:
            self.failed += 1
            raise error
        turn.answered(200, {})
        connection()
        n = sum(part.count(b'"tool_result"') for part in body)
        if n >= self._calls:
            return ModelReply(
                message=AssistantMessage(text="Done."), usage=Usage(input=10, output=1)
            )
        message = AssistantMessage(
            calls=(ToolCall(id=f"c{n}", name="read", arguments_json='{"path":"a"}'),)
        )
        return ModelReply(message=message, usage=Usage(input=10, output=1), stop="calls")

    def peak(self, begin: float, end: float, window: float = 5.0) -> float:
        """The most calls a second that began within a window of so many seconds."""
        starts = [at for at in self.starts if begin <= at < end]
        return (
            max((bisect_left(starts, at + window) - i for i, at in enumerate(starts)), default=0)
            / window
        )
