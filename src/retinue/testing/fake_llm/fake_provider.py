"""A provider on loopback that answers from a script, in four dialects, and fails as real ones do.

It speaks Anthropic's messages, OpenAI's chat completions and responses, and Gemini's
generateContent, streaming and not. It refuses what they refuse, and can be set to fail in each way
of the catalogue `FAULTS`. What it says depends on the conversation alone. `python -m
retinue.testing.fake_llm` runs it as a program."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeGuard

from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.models.declared import Provider
from retinue.option_types import RetinueOptions
from retinue.testing.fake_llm.anthropic_api import AnthropicApi
from retinue.testing.fake_llm.dialect import (
    DIALECTS,
    Dialect,
    FakeDialect,
    FakeError,
    FakeReply,
    ParsedPrompt,
    ParsedRequest,
    PromptCache,
    encode,
)
from retinue.testing.fake_llm.fake_request import FakeRequest, FakeSettings
from retinue.testing.fake_llm.fault_catalog import FAULTS, FLAPS, Fault, Outcome, fault_of_model
from retinue.testing.fake_llm.gemini_api import GeminiApi
from retinue.testing.fake_llm.http_server import HttpConnection, HttpRequest
from retinue.testing.fake_llm.openai_chat_api import OpenAIChatApi
from retinue.testing.fake_llm.openai_responses_api import OpenAIResponsesApi
from retinue.testing.fake_llm.script import Line, Script, check_line, check_script, compose, line_of
from retinue.testing.fake_llm.script_errors import plain_trouble, script_error

Faults = Sequence[str | None] | Callable[[ParsedRequest, int], str | None]
DEFAULT: tuple[Line, ...] = ("Done.",)
GEMINI_PATH = re.compile(
    r"/v1(?:beta)?/(?:models|tunedModels)/([^/:]+):(?:generateContent|streamGenerateContent)\Z"
)

MOMENTS = 4
"""Turns of the loop until a connection that was let in, or cut off, is known as such."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that a real provider would have refused as well."""

    n: int
    dialect: Dialect
    status: int
    message: str


class FakeLLM:
    """`async with FakeLLM(["Hello."]) as llm:` serves at `llm.url` until the block is left.

    `script` is a list with one line a turn, or a function of the request. `faults` names what goes
    wrong: a list, one for each request in order (None is nothing), or a function of the request and
    its number; a header `x-fault: F4` and a model name `fault-F4-then-ok` do so too. `seconds`
    passes before each answer; `chunks` is the number of writes that a stream comes in."""

    def __init__(
        self,
        script: Script = DEFAULT,
        *,
        faults: Faults = (),
        seconds: float = 0.0,
        chunks: int = 3,
        settings: FakeSettings | None = None,
        port: int = 0,
    ) -> None:
        _check_faults(faults)
        self.settings = settings or FakeSettings()
        self.requests: list[ParsedRequest] = []
        """The last requests (`Settings.keep`)."""
        self.violations: list[Violation] = []
        self.injected: list[tuple[int, str]] = []
        """Which request met which fault."""
        self.n_requests = 0
        self.open = 0
        """So many requests are under way."""
        self.disconnects = 0
        """So many requests lost their client before the end."""
        self.connections = 0
        """So many connections were made."""
        self.refused_keys: dict[str, str] = {}
        """Which key meets which fault, whatever else was asked for."""
        self.script = script
        self._mistakes: list[Exception] = []
        self._faults = faults
        self._seconds = seconds
        self._chunks = chunks
        self._port = port
        self._cache = PromptCache(self.settings.n_prefixes)
        self._failed: dict[tuple[str, int], None] = {}
        self._outage_until: float | None = None
        self._server: asyncio.Server | None = None
        self._live: set[HttpConnection] = set()
        self._gemini = GeminiApi()
        self._paths: dict[str, FakeDialect] = {
            "/v1/messages": AnthropicApi(),
            "/v1/chat/completions": OpenAIChatApi(),
            "/v1/responses": OpenAIResponsesApi(),
        }
        self._wires: dict[Dialect, FakeDialect] = {
            api.dialect: api for api in (*self._paths.values(), self._gemini)
        }

    async def __aenter__(self) -> FakeLLM:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connect, "127.0.0.1", self._port, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """No one is waited for: clients that are connected are cut off."""
        if self._server is None:
            return
        self._server.close()
        # A client that was just accepted is among the connections a moment later, and what is cut
        # off is closed a moment later.
        for _ in range(MOMENTS):
            tasks = [conn.task for conn in self._live if conn.task is not None]
            for conn in list(self._live):
                conn.is_ended = True
                if not conn.is_lost:
                    conn.transport.abort()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)
        await self._server.wait_closed()
        self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def providers(self) -> RetinueOptions:
        """Options that send Anthropic, OpenAI and Gemini here: `Retinue(**llm.providers)`."""
        addresses = {"anthropic": "", "openai": "/v1", "openai-chat": "/v1", "gemini": ""}
        return {
            "providers": {
                name: Provider(api_key="fake-key", base_url=self.url + end)
                for name, end in addresses.items()
            }
        }

    @property
    def script(self) -> Script:
        """What it says, from the next request on."""
        return self._script

    @script.setter
    def script(self, script: Script) -> None:
        check_script(script)
        self._script = script

    def check(self) -> None:
        """Raise the first exception that the script, or the function of the faults, has raised."""
        if self._mistakes:
            raise self._mistakes[0]

    @property
    def connected(self) -> int:
        """So many connections are open now."""
        return len(self._live)

    def _connect(self) -> HttpConnection:
        self.connections += 1
        return HttpConnection(self._serve, self._live, self.settings.max_body)

    def _serve(self, conn: HttpConnection, ask: HttpRequest) -> Coroutine[Any, Any, None] | None:
        if ask.path == "/stats":
            conn.answer(200, {}, encode(self.stats()))
            return None
        self.n_requests += 1
        n = self.n_requests
        api, model = self._route(ask.path)
        try:
            prompt = self._read(api, ask, model)
            request = ParsedRequest(
                n=n,
                dialect=api.dialect,
                model=prompt.model,
                system=prompt.system,
                messages=prompt.messages,
                tools=prompt.tools,
                stream=prompt.stream,
                max_output=prompt.max_output,
                headers=ask.open_headers,
                raw=ask.body,
            )
            self._keep(request)
            fault = self._fault(request, self._named(request, prompt, ask))
            line = line_of(self._script, request)
            if not inspect.isawaitable(line):
                check_line(line)
        except FakeError as trouble:
            self._violated(conn, api, trouble, n)
            return None
        except Exception as error:
            self._violated(conn, api, self._mistaken(api, error), n)
            return None
        scene = FakeRequest(conn, ask, request, prompt, api, self.settings, self._chunks, _nothing)
        if (
            fault is None
            and not self._seconds
            and not self.settings.pace_seconds
            and _is_plain(line)
        ):
            scene.play(compose(line, request, prompt, self._cache.measure))
            return None
        if inspect.iscoroutine(line):
            conn.unheard = line  # closed if the client goes away before it has begun
        return self._answer(scene, fault, line)

    def _route(self, path: str) -> tuple[FakeDialect, str | None]:
        """Who answers at this path, or whose words are used to say that no one does; and the model
        that it names."""
        if match := GEMINI_PATH.match(path):
            return self._gemini, match[1]
        if path in self._paths:
            return self._paths[path], ""
        if path.startswith("/v1beta"):
            return self._gemini, None
        return self._paths[
            "/v1/messages" if path.startswith("/v1/messages") else "/v1/chat/completions"
        ], None

    def _read(self, api: FakeDialect, ask: HttpRequest, model: str | None) -> ParsedPrompt:
        if model is None:
            raise plain_trouble(api, 404, f"Not found: {ask.path}")
        if ask.method != "POST":
            raise plain_trouble(api, 405, f"Method not allowed: {ask.method}")
        if ask.is_too_large:
            raise plain_trouble(api, 413, "Request exceeds the maximum size")
        try:
            return api.read(ask, model)
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # a type that no rule asked about
            raise plain_trouble(
                api, 400, f"The request has a value of the wrong type: {error}"
            ) from error

    def _violated(self, conn: HttpConnection, api: FakeDialect, trouble: FakeError, n: int) -> None:
        self.violations.append(Violation(n, api.dialect, trouble.status, trouble.message))
        conn.answer(
            trouble.status, {**api.headers(n), **trouble.headers}, encode(api.error(trouble, n))
        )

    def _keep(self, request: ParsedRequest) -> None:
        self.requests.append(request)
        if len(self.requests) > 2 * self.settings.keep:
            del self.requests[: -self.settings.keep or None]

    def _fault(self, request: ParsedRequest, name: str | None) -> Fault | None:
        """The fault that this request meets, if it meets one: an outage goes before all others, and
        is over one day."""
        now = asyncio.get_running_loop().time()
        if self._outage_until is not None and now < self._outage_until:
            name = "F53"
        elif name == "F53":
            if self._outage_until is not None:
                return None
            self._outage_until = now + self.settings.outage_seconds
        elif name == "F54":
            draw = random.Random(self.settings.seed * 1_000_003 + request.n)
            name = draw.choice(FLAPS) if draw.random() < 0.5 else None
        if not name:
            return None
        fault = FAULTS.get(name)
        if fault is None or request.dialect not in fault.dialects:
            raise plain_trouble(
                self._wires[request.dialect], 400, f"Unknown fault {name} for {request.dialect}."
            )
        self.injected.append((request.n, name))
        return fault

    def _named(self, request: ParsedRequest, prompt: ParsedPrompt, ask: HttpRequest) -> str | None:
        if ask.key in self.refused_keys:
            return self.refused_keys[ask.key]
        header = ask.headers.get("x-fault")
        choice = fault_of_model(f"fault-{header}") if header else fault_of_model(request.model)
        if choice is None:
            if header:
                return header
            if callable(self._faults):
                return self._faults(request, request.n)
            return self._faults[request.n - 1] if request.n <= len(self._faults) else None
        name, is_once = choice
        if is_once:
            key = (name, hash((request.dialect, tuple(unit.value for unit in prompt.units))))
            if key in self._failed:
                return None
            self._failed[key] = None
            if len(self._failed) > self.settings.n_prefixes:
                del self._failed[next(iter(self._failed))]
        return name

    async def _answer(
        self, scene: FakeRequest, fault: Fault | None, line: Line | Awaitable[Line]
    ) -> None:
        self.open += 1
        try:
            reply = await self._awaited(scene.api, line) if inspect.isawaitable(line) else line
            if isinstance(reply, str) and reply in FAULTS:
                fault, reply = fault or self._fault(scene.heard, reply), DEFAULT[0]
            await asyncio.sleep(self._seconds)
            await self._perform(scene, fault, reply)
        except FakeError as trouble:
            self._violated(scene.conn, scene.api, trouble, scene.heard.n)
        except asyncio.CancelledError:
            self.disconnects += scene.conn.is_lost and not scene.conn.is_ended
            raise
        finally:
            self.open -= 1

    async def _perform(self, scene: FakeRequest, fault: Fault | None, line: Line) -> None:
        reply = DEFAULT[0] if isinstance(line, BaseException) else line
        scene.say = lambda: compose(reply, scene.heard, scene.prompt, self._cache.measure)
        if fault is not None:
            await fault.act(scene)
        elif isinstance(line, BaseException):
            scene.refuse(script_error(scene, line))
        else:
            await scene.play_slowly(scene.say())

    async def _awaited(self, api: FakeDialect, line: Awaitable[Line]) -> Line:
        try:
            return check_line(await line)
        except Exception as error:
            raise self._mistaken(api, error) from error

    def _mistaken(self, api: FakeDialect, error: Exception) -> FakeError:
        """A mistake in a script is refused for good: who tries again gets nothing else."""
        self._mistakes.append(error)
        return plain_trouble(api, 400, f"The script failed: {type(error).__name__}: {error}")

    def stats(self) -> dict[str, Any]:
        """What `GET /stats` shows to a test that runs elsewhere."""
        return {
            "requests": self.n_requests,
            "open": self.open,
            "connections": self.connections,
            "connected": self.connected,
            "disconnects": self.disconnects,
            "injected": len(self.injected),
            "violations": [violation.message for violation in self.violations[-100:]],
        }


def _is_plain(line: Line | Awaitable[Line]) -> TypeGuard[Line]:
    """Whether a line can be said immediately."""
    if isinstance(line, str):
        return line not in FAULTS
    return not isinstance(line, BaseException) and not inspect.isawaitable(line)


def _check_faults(faults: Faults) -> None:
    for name in () if callable(faults) else faults:
        if name and name not in FAULTS:
            raise ConfigError(f"Unknown fault {name!r}.{did_you_mean(name, FAULTS)}")


def _nothing() -> FakeReply:
    raise AssertionError("the line is not known yet")


__all__ = [
    "DIALECTS",
    "FAULTS",
    "Dialect",
    "FakeLLM",
    "FakeSettings",
    "Fault",
    "Outcome",
    "ParsedRequest",
    "Violation",
]
