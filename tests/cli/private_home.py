"""A project of its own for each test: private XDG folders, real processes, a scripted provider on
loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from retinue import AssistantMessage, ModelReply, Usage
from retinue.cli.main import main
from retinue.host import launch
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.cli.host_forks import host_forks
from tests.waiting import PATIENT, SECONDS

MODEL = "openai-chat:scripted"


class Llm:
    """The fake provider, served from a thread of the test."""

    def __init__(self, script: Any, **options: Any) -> None:
        self._script, self._options = script, options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.llm: FakeLLM

    def __enter__(self) -> Llm:
        self._thread.start()
        self._do(self._open())
        return self

    async def _open(self) -> None:
        self.llm = await FakeLLM(self._script, **self._options).__aenter__()

    def __exit__(self, *exc: object) -> None:
        if isinstance(self._script, Gate):
            self._script.opened.set()
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        await self.llm.__aexit__(None, None, None)
        # Whoever still got in is cut off too: a transport that is collected later would fail
        # another test. A connection that was accepted last has its transport a few rounds later.
        n_quiet = 0
        while n_quiet < 3:
            transports = list(getattr(self._loop, "_transports", {}).values())
            still_open = [one for one in transports if getattr(one, "_sock", None) is not None]
            for transport in still_open:
                transport.abort()
            n_quiet = 0 if still_open else n_quiet + 1
            await asyncio.sleep(0.01)

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    @property
    def env(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"{self.llm.url}/v1", "OPENAI_API_KEY": "sk-very-secret"}


class PrivateHome:
    """Runs the command line in one project."""

    quick = True
    """Whether hosts that a command of this process starts are forked from one that has everything
    imported."""

    def __init__(self, folder: Path, llm: FakeLLM | None = None, **env: str) -> None:
        self.folder, self._llm = folder, llm
        self._started: list[subprocess.Popen[str]] = []
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        for name in ("data", "state", "run", "home", "config", "cache"):
            (folder / name).mkdir(mode=0o700)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "RETINUE_IDLE_SECONDS": "0.5",
            "RETINUE_PROBE": "0",
            **env,
        }

    def start(
        self, *arguments: str, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "retinue", *arguments],
            cwd=options.pop("cwd", self.project),
            env={**PATIENT, **self.env, **(env or {})},
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._started.append(process)
        return process

    def real(
        self,
        *arguments: str,
        input: str | None = None,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """A command in a process of its own."""
        stdin = subprocess.PIPE if input is not None else subprocess.DEVNULL
        process = self.start(*arguments, env=env, stdin=stdin, **options)
        try:
            out, err = process.communicate(input, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate(timeout=SECONDS)
            raise AssertionError(f"{arguments} did not end: {out} {err}") from None
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def run(
        self,
        *arguments: str,
        input: str = "",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """The same in this process: what it starts and talks to is as real, and the test is several
        times as fast."""
        before, here = dict(os.environ), os.getcwd()
        handler = signal.getsignal(signal.SIGTERM)
        with contextlib.ExitStack() as stack:
            out, err = (
                stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
                for _ in range(2)
            )
            stdin = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            stdin.write(input)
            stdin.seek(0)
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            stack.enter_context(mock.patch.object(launch, "START_SECONDS", SECONDS))
            if self.quick:
                stack.enter_context(mock.patch.object(launch, "start_process", host_forks().start))
            sys.stdin, rest = stdin, sys.stdin
            try:
                os.environ.clear()
                os.environ.update({**self.env, **(env or {})})
                os.chdir(cwd or self.project)
                code = main(list(arguments))
            finally:
                sys.stdin = rest
                os.environ.clear()
                os.environ.update(before)
                os.chdir(here)
                signal.signal(signal.SIGTERM, handler)
            texts = []
            for file in (out, err):
                file.flush()
                file.seek(0)
                texts.append(file.read())
        return subprocess.CompletedProcess(arguments, code, *texts)

    def ok(self, *arguments: str, **options: Any) -> str:
        """What a command that must succeed has written to stdout."""
        run = self.run(*arguments, **options)
        assert run.returncode == 0, (arguments, run.returncode, run.stdout, run.stderr)
        return run.stdout.strip()

    def lines(self, *arguments: str, **options: Any) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, **options).splitlines()]

    @property
    def llm(self) -> FakeLLM:
        assert self._llm is not None
        return self._llm

    @property
    def store(self) -> Path:
        (path,) = (self.folder / "data" / "retinue" / "projects").glob("*/retinue.db")
        return path

    @property
    def socket(self) -> Path:
        return next((self.folder / "run" / "retinue").glob("*.sock"))

    def host_pid(self) -> int:
        return int(Path(f"{self.store}.lock").read_text() or 0)

    def runs(self) -> list[Any]:
        return (
            self.lines("ps", "--all", "--tree", "--jsonl")
            if (self.folder / "data" / "retinue").exists()
            else []
        )

    def until(self, what: Any, seconds: float = SECONDS) -> Any:
        """Ask again until there is an answer: what happens in other processes can only be looked
        at."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if result := what():
                return result
            time.sleep(0.03)
        raise AssertionError(f"{what} did not come true")

    def close(self) -> None:
        """No process stays behind, also when a test fails half-way."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=SECONDS)
        for lock in (self.folder / "data").glob("retinue/projects/*/retinue.db.lock"):
            with contextlib.suppress(ValueError, ProcessLookupError, FileNotFoundError):
                pid = int(lock.read_text())
                if b"retinue.host.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not asked about yet does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def private_home(folder: Path, script: Any = ("Done.",), **options: Any) -> Iterator[PrivateHome]:
    with Llm(script, **options) as llm:
        home = PrivateHome(folder, llm.llm, RETINUE_MODEL=MODEL, **llm.env)
        try:
            yield home
        finally:
            home.close()


class Gate:
    """A model that answers only when the test lets it. What it heard is counted."""

    def __init__(self, *answers: Any, at: int = 0) -> None:
        self._answers, self._at = answers or ("Done.",), at
        self.opened = threading.Event()
        self.reached = threading.Event()
        self.heard: list[Any] = []

    async def __call__(self, request: Any) -> Any:
        n = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
        self.heard.append(request)
        if n >= self._at:
            self.reached.set()
            await asyncio.to_thread(self.opened.wait, SECONDS)
        return self._answers[min(n, len(self._answers) - 1)]


def whole(text: str) -> ModelReply:
    """A reply that the fake provider does not cut, however long it is: it says what it cost."""
    return ModelReply(message=AssistantMessage(text=text), usage=Usage(input=10, output=10))
