"""A model in this process: any GGUF file, decoded by llama.cpp in a thread, so that the loop goes
on.

A cancelled call stops at the next token, or at the next batch of the prompt; one that has not begun
never does."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from retinue.core.ids import digest
from retinue.core.messages import Assistant, Call, Reply
from retinue.core.values import ModelInfo, Usage
from retinue.errors import ConfigError, ModelError, ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean
from retinue.models.base import Request
from retinue.models.codec import Options
from retinue.models.gguf import read_facts, read_window
from retinue.models.local_prompt import Style, body, style_of
from retinue.models.local_weights import KNOWN, default_cache, find
from retinue.models.providers import DIRECTORY
from retinue.models.text_calls import Preview, Written, recover

MAX_WINDOW = 8_192
MAX_OUTPUT = 2_048
CACHE_MIB = 512
"""The engine keeps prompts of idle conversations in memory; left alone it takes 8 GiB."""

MAX_SOCKET_NAME = 100
_STOPS: Mapping[str, Literal["end", "calls", "length"]] = {
    "length": "length",
    "tool_calls": "calls",
}


class LocalModel:
    """The model in the GGUF file at `path`. It is loaded when it is first asked.

    `window` is the number of tokens of one conversation (what the model was trained for, 8,192 at
    most, unless told); `slots` are conversations at a time, each with a window of its own in
    memory; `threads` are those of the engine (half of the processors: it waits busily, and more
    than are free make it slow). `batch` is how much of a prompt is read before a cancel is seen.
    With `must_call` each reply to a request with tools is a call. `template` is used instead of the
    file's own chat template."""

    says_progress = True

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "",
        window: int | None = None,
        max_output: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        batch: int = 128,
        must_call: bool = False,
        options: Options | None = None,
        template: str = "",
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError("Local models need the extra `local`: pip install 'retinue[local]'")
        self.path = Path(path).expanduser()
        try:
            trained = read_window(self.path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path} cannot be used as a local model: {error}") from None
        window = window or min(trained or MAX_WINDOW, MAX_WINDOW)
        self.info = ModelInfo(
            name=name or f"local:{self.path}",
            window=window,
            max_output=min(max_output or MAX_OUTPUT, window // 2),
            price_in=0,
            price_out=0,
        )
        self.options = options or Options()
        self._must_call, self._slots, self._batch, self._template = (
            must_call,
            slots,
            batch,
            template,
        )
        self._threads = threads or max(1, _n_processors() // 2)
        self._engine: tuple[Any, Style] | None = None
        self._loading = threading.Lock()
        # The pool is the queue: what waits in it is cancelled without having begun.
        self._pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="retinue-local")

    def __repr__(self) -> str:
        return f"LocalModel({self.info.name!r})"

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Reply:
        listener = _Listener(request, emit, asyncio.get_running_loop())
        request.progress.wait()
        try:
            return await asyncio.wrap_future(self._pool.submit(self._decode, request, listener))
        finally:
            listener.stop.set()

    async def close(self) -> None:
        """Free the weights. The model can be asked again, and is then loaded again."""
        await asyncio.to_thread(self._unload)

    # in a thread

    def _decode(self, request: Request, listener: _Listener) -> Reply:
        server, style = self._loaded()
        if listener.stop.is_set():
            raise ModelUnavailable("the call was cancelled before it started")
        asked = body(request, style, self.options, must_call=self._must_call)
        request.progress.leave()
        request.progress.follow(listener.so_far)
        try:
            server.handle_chat_completions(asked, listener)
        except Exception as error:
            # Raised before the first token: a template or a schema that the engine does not take.
            raise ModelRejected(
                f"{self.path.name} rejected the request: {error}", kind="invalid_request"
            ) from None
        return listener.reply(self.info)

    def _loaded(self) -> tuple[Any, Style]:
        with self._loading:
            if self._engine is None:
                self._engine = self._load()
            return self._engine

    def _load(self) -> tuple[Any, Style]:
        try:
            facts = read_facts(self.path)
        except (OSError, ValueError) as error:
            raise ModelRejected(
                f"{self.path} cannot be loaded: {error}", kind="not_found"
            ) from None
        engine = importlib.import_module("xllamacpp")
        wanted = engine.CommonParams()
        wanted.model.path = str(self.path)
        wanted.n_ctx = self.info.window * self._slots
        wanted.n_parallel = self._slots
        wanted.n_batch = wanted.n_ubatch = self._batch
        wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = self._threads
        wanted.cache_ram_mib = CACHE_MIB
        wanted.verbosity = -1
        wanted.warmup = wanted.ui = wanted.endpoint_slots = wanted.endpoint_props = False
        if self._template:
            wanted.chat_template = self._template
            facts = facts._replace(template=self._template)
        try:
            with _no_door(wanted):
                server = engine.Server(wanted)
        except Exception as error:
            raise ModelRejected(
                f"the engine could not load {self.path}: {error} Check that the file is "
                f"complete and that there is memory for {wanted.n_ctx} tokens.",
                kind="not_found",
            ) from None
        return server, style_of(facts)

    def _unload(self) -> None:
        with self._loading:
            self._engine = None


class _Listener:
    """One reply on its way from the engine's thread to the loop. The engine calls it with each
    chunk; it answers whether to stop."""

    def __init__(
        self, request: Request, emit: Callable[[str], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.stop = threading.Event()
        self._request, self._emit, self._loop = request, emit, loop
        self._names = frozenset(tool.name for tool in request.tools)
        self._preview = Preview()
        self._text: list[str] = []
        self._calls: dict[int, list[str]] = {}
        self._usage = Usage()
        self._reason = ""
        self._error: ModelError | None = None

    def __call__(self, chunk: Mapping[str, Any]) -> bool:
        if self.stop.is_set():
            return True
        try:
            self._take(chunk)
        except Exception as error:  # the engine would swallow it
            self._error = ModelUnavailable(
                f"cannot read the engine's output: {error}", kind="server_error"
            )
        return self._error is not None

    def _take(self, chunk: Mapping[str, Any]) -> None:
        if "error" in chunk:
            self._error = _failure(chunk["error"])
            return
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(
                input=usage["prompt_tokens"],
                output=usage["completion_tokens"],
                cache_read=cached,
                nanos=0,
            )
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            if text := delta.get("content"):
                self._text.append(text)
                self._show(self._preview.feed(text) if self._names else text)
            for part in delta.get("tool_calls") or ():
                call = self._calls.setdefault(part.get("index", 0), ["", ""])
                function = part.get("function") or {}
                call[0] += function.get("name") or ""
                call[1] += function.get("arguments") or ""
            self._reason = choice.get("finish_reason") or self._reason

    def so_far(self) -> Usage:
        """What was read and said until now, for a reply that is broken off: it costs nothing but
        counts."""
        said = sum(map(len, self._text)) + sum(len(args) for _, args in list(self._calls.values()))
        heard = len(self._request.instructions) + sum(len(m.text) for m in self._request.messages)
        return self._usage if self._usage.tokens else Usage(estimated=(heard + said) // 4)

    def reply(self, info: ModelInfo) -> Reply:
        if self._error is not None:
            raise self._error
        if not self._reason:
            raise ModelUnavailable(
                "the engine stopped before the reply was complete", kind="server_error"
            )
        stop = _STOPS.get(self._reason, "end")
        text = "".join(self._text)
        written = [Written(name, args or "{}") for _, (name, args) in sorted(self._calls.items())]
        if not written and self._names:
            text, found = recover(text, self._names, is_cut=stop == "length")
            written = list(found)
            if not written:
                self._show(self._preview.rest())
        calls = [
            Call(
                id=f"call_{digest(self._request.key, n)[:16]}",
                name=call.name,
                args=clean(call.args),
            )
            for n, call in enumerate(written)
        ]
        if stop != "length":
            stop = "calls" if calls else "end"
        return Reply(
            message=Assistant(text=clean(text), calls=tuple(calls)),
            usage=self._usage,
            stop=stop,
            model=info.name,
        )

    def _show(self, text: str) -> None:
        if text:
            try:
                self._loop.call_soon_threadsafe(self._deliver, text)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self.stop.set()

    def _deliver(self, text: str) -> None:
        if not self.stop.is_set():
            self._emit(text)


def local_model(
    name: str,
    model: str,
    environ: Mapping[str, str],
    options: Options | None = None,
    **settings: Any,
) -> LocalModel:
    """The model called `name`, where `model` is a pulled name (`smollm2`) or the path of a GGUF
    file."""
    file = os.path.join(environ.get(DIRECTORY, ""), os.path.expanduser(model))
    path = find(model, default_cache(environ)) if model in KNOWN else Path(file)
    return LocalModel(path, name=name, options=options, **settings)


def _failure(error: Any) -> ModelError:
    told = error if isinstance(error, Mapping) else {}
    message = str(told.get("message") or error)[:500]
    if told.get("type") == "exceed_context_size_error":
        return ModelRejected(
            (f"the conversation is longer than the context window: {message}"),
            kind="context_exhausted",
        )
    if told.get("code") in (400, 404, 501):
        return ModelRejected(message, kind="invalid_request")
    return ModelUnavailable(message, kind="server_error")


@contextlib.contextmanager
def _no_door(wanted: Any) -> Iterator[None]:
    """The engine serves HTTP as well and cannot be told not to: it is given a socket whose name is
    deleted at once. Where that is not possible it listens on loopback, behind a key that nobody
    knows."""
    wanted.api_keys = [secrets.token_urlsafe(32)]
    wanted.n_threads_http = 1
    wanted.cors_origins = "null"
    with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
        address = str(Path(folder) / "s.sock")
        if hasattr(socket, "AF_UNIX") and len(os.fsencode(address)) < MAX_SOCKET_NAME:
            wanted.hostnames = [address]
        yield


def _n_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
