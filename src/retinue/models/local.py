"""A model in this process: any GGUF file, run by llama.cpp in a thread, so that the event loop is
not blocked.

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
from typing import Any

from retinue.core.messages import ModelReply
from retinue.core.values import ModelInfo
from retinue.errors import ConfigError, ModelRejected, ModelUnavailable
from retinue.models.base import ModelRequest
from retinue.models.codec import Options
from retinue.models.gguf import read_facts, read_window
from retinue.models.known_weights import KNOWN, default_cache, weights_path
from retinue.models.local_listener import LocalListener
from retinue.models.local_prompt import Style, body, style_of
from retinue.models.providers import DIRECTORY
from retinue.models.setting_support import refusal, with_settings

MAX_WINDOW = 8_192
MAX_OUTPUT = 2_048
CACHE_MIB = 512
"""The engine keeps prompts of idle conversations in memory; left alone it takes 8 GiB."""

MAX_SOCKET_NAME = 100


class LocalModel:
    """The model in the GGUF file at `path`. It is loaded when it is first asked.

    `window` is the number of tokens of one conversation (what the model was trained for, 8,192 at
    most, unless set); `slots` are conversations at a time, each with a window of its own in memory;
    `threads` are those of the engine (half of the processors: it waits busily, and more than are
    free make it slow). `batch` is how much of a prompt is read before a cancel is seen. With
    `must_call` each reply to a request with tools is a call. `template` is used instead of the
    file's own chat template."""

    says_progress = True
    settings_format = "local"

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
        self._must_call = must_call
        self._slots = slots
        self._batch = batch
        self._template = template
        self._threads = threads or max(1, _n_processors() // 2)
        self._engine: tuple[Any, Style] | None = None
        self._loading = threading.Lock()
        # The pool is the queue: what waits in it is cancelled without having begun.
        self._pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="retinue-local")

    def __repr__(self) -> str:
        return f"LocalModel({self.info.name!r})"

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        if problem := refusal(request.settings, self.settings_format, self.info):
            raise ModelRejected(f"{self.info.name} {problem}", kind="invalid_request")
        listener = LocalListener(request, emit, asyncio.get_running_loop())
        request.progress.wait()
        try:
            return await asyncio.wrap_future(self._pool.submit(self._decode, request, listener))
        finally:
            listener.stop.set()

    async def close(self) -> None:
        """Free the weights. The model can be asked again, and is then loaded again."""
        await asyncio.to_thread(self._unload)

    # in a thread

    def _decode(self, request: ModelRequest, listener: LocalListener) -> ModelReply:
        server, style = self._loaded()
        if listener.stop.is_set():
            raise ModelUnavailable("the call was cancelled before it started")
        options = with_settings(self.options, request.settings)
        payload = body(request, style, options, must_call=self._must_call)
        request.progress.leave()
        request.progress.follow(listener.so_far)
        try:
            server.handle_chat_completions(payload, listener)
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
        params = engine.CommonParams()
        params.model.path = str(self.path)
        params.n_ctx = self.info.window * self._slots
        params.n_parallel = self._slots
        params.n_batch = params.n_ubatch = self._batch
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.cache_ram_mib = CACHE_MIB
        params.verbosity = -1
        params.warmup = params.ui = params.endpoint_slots = params.endpoint_props = False
        if self._template:
            params.chat_template = self._template
            facts = facts._replace(template=self._template)
        try:
            with _without_port(params):
                server = engine.Server(params)
        except Exception as error:
            raise ModelRejected(
                f"the engine could not load {self.path}: {error} Check that the file is "
                f"complete and that there is memory for {params.n_ctx} tokens.",
                kind="not_found",
            ) from None
        return server, style_of(facts)

    def _unload(self) -> None:
        with self._loading:
            self._engine = None


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
    path = weights_path(model, default_cache(environ)) if model in KNOWN else Path(file)
    return LocalModel(path, name=name, options=options, **settings)


@contextlib.contextmanager
def _without_port(params: Any) -> Iterator[None]:
    """The engine also serves HTTP, which cannot be turned off: it is given a socket whose name is
    deleted immediately. Where that is not possible it listens on loopback, behind a key that no one
    knows."""
    params.api_keys = [secrets.token_urlsafe(32)]
    params.n_threads_http = 1
    params.cors_origins = "null"
    with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
        address = str(Path(folder) / "s.sock")
        if hasattr(socket, "AF_UNIX") and len(os.fsencode(address)) < MAX_SOCKET_NAME:
            params.hostnames = [address]
        yield


def _n_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
