"""The process that holds a store and keeps its runs going: `python -m retinue.host.daemon`, started
by a command when none answers. It leaves by itself when nothing is open and nobody has been
connected for a while."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue import __version__
from retinue.agent import Agent
from retinue.api import Retinue
from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.core.values import Limits, Rules
from retinue.errors import ConfigError, RetinueError, SandboxMissing
from retinue.host import requests as wire
from retinue.host.builder import AgentBuilder
from retinue.host.host import Host, trouble
from retinue.host.keys import OFFLINE, KeyedCatalog
from retinue.host.mcp_pool import McpPool
from retinue.host.project_paths import approvals_of, key_of
from retinue.maintenance import Retention
from retinue.models.providers import DIRECTORY
from retinue.runtime.secret_filter import Redacting

log = logging.getLogger("retinue.host")
GREETING_SECONDS = 10.0
LOG_BYTES = 5 << 20
WRONG_KEY = (
    "the key that belongs to this host was not shown, so nothing is done for you. It is in the "
    "file beside the host's "
    "socket, which commands in the sandbox do not see. If the host was started with other XDG "
    "folders, use the same."
)


class LineServer:
    """Takes connections for one runtime, from whoever knows its `key`. That a peer has our user id
    is not enough: a command in the sandbox has it too."""

    def __init__(self, desk: Host, lender: KeyedCatalog, store: str, key: str) -> None:
        self._desk, self._lender, self._store, self._key = desk, lender, store, key
        self._connections: set[asyncio.Task[None]] = set()
        self.n_connected = 0

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its greeting to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.n_connected += 1
        try:
            if await self._greet(reader, writer):
                await _Line(self._desk, reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the host leaves
        finally:
            self.n_connected -= 1
            self._connections.discard(task)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        peer = writer.get_extra_info("socket")
        problem = "" if _is_ours(peer) else "you are not the owner of this host"
        env: dict[str, str] = {}
        hidden: dict[str, str] = {}
        if not problem:
            try:
                line = await asyncio.wait_for(reader.readline(), GREETING_SECONDS)
                greeting = msgspec.json.decode(line, type=wire.Greeting)
                env, hidden = greeting.env, greeting.hidden
                if greeting.hello != wire.VERSION:
                    problem = (
                        f"this host speaks version {wire.VERSION}, not {greeting.hello}: "
                        "run `retinue stop` first"
                    )
                elif not hmac.compare_digest(greeting.key.encode(), self._key.encode()):
                    problem = WRONG_KEY
            except (msgspec.MsgspecError, ValueError):
                problem = "that was no greeting"
        known = wire.Welcome(retinue=__version__, pid=os.getpid(), store=self._store)
        told = wire.Welcome(error=problem) if problem else known
        writer.write(wire.encode(told) + b"\n")
        await writer.drain()
        if not problem:
            self._lender.redactor.learn(hidden)
            if providers := self._lender.bring(env):
                await self._desk.keys_brought(providers, self._lender.resolve)
        return not problem

    async def close(self) -> None:
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


def _is_ours(peer: Any) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", packed)[1] == os.getuid())


class _Line:
    """The requests of one connection; each is a task."""

    def __init__(
        self, desk: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._desk, self._reader, self._writer = desk, reader, writer
        self._tasks: dict[asyncio.Task[None], bool] = {}

    async def serve(self) -> None:
        try:
            while line := await self._read():
                try:
                    ask = wire.read_ask(line)
                except msgspec.MsgspecError as error:
                    text = (
                        f"the host does not understand this ({error}); is it of another "
                        "version? `retinue stop`"
                    )
                    await self._tell(
                        wire.Told(
                            id=_number(line), error=wire.Trouble(kind="ConfigError", message=text)
                        )
                    )
                    continue
                task = asyncio.create_task(self._answer(ask))
                self._tasks[task] = isinstance(ask.want, (wire.Watch, wire.Wait))
                task.add_done_callback(lambda done: self._tasks.pop(done, None))
        finally:
            # What was asked for is done, also for somebody who did not wait; only looking ends with
            # the connection.
            for task, only_looks in list(self._tasks.items()):
                if only_looks:
                    task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:  # a line beyond the limit
            text = (
                f"a request of more than {wire.LINE_LIMIT >> 20} MiB is refused; put what is "
                "long into a file"
            )
            await self._tell(wire.Told(id=0, error=wire.Trouble(kind="ConfigError", message=text)))
            return b""

    async def _answer(self, ask: wire.Ask) -> None:
        async def tell(item: wire.Item | wire.Compacting) -> None:
            if isinstance(item, wire.Compacting):
                await self._tell(wire.Told(id=ask.id, progress=item))
            else:
                await self._tell(wire.Told(id=ask.id, item=item))

        try:
            done = await self._desk.do(ask.want, tell)
            told = wire.Told(id=ask.id, done=done, is_last=True)
        except (RetinueError, OSError) as error:
            told = wire.Told(id=ask.id, error=trouble(error))
        except ConnectionError:
            return
        except Exception as error:
            log.exception("request %s failed", type(ask.want).__name__)
            told = wire.Told(id=ask.id, error=trouble(error))
        with contextlib.suppress(ConnectionError):
            await self._tell(told)

    async def _tell(self, told: wire.Told) -> None:
        self._writer.write(wire.encode(told) + b"\n")
        await self._writer.drain()


def _number(line: bytes) -> int:
    try:
        return int(msgspec.json.decode(line)["id"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0


async def serve(
    root: str,
    store: str,
    address: str,
    idle_seconds: float,
    environ: dict[str, str],
    redactor: Redactor | None = None,
) -> None:
    """Open the store, listen, and keep going until nothing is left to do or somebody asks to
    stop."""
    open_agents, models = _left_open(store)
    lender = KeyedCatalog({**environ, DIRECTORY: root}, models, redactor)
    pool = McpPool(Path(approvals_of(store)), lender.environ, lender.redactor)
    plans = AgentBuilder(store + ".plans", lender, pool)
    try:
        agents = [a for name in open_agents if (a := await _recall(plans, name)) is not None]
        await _attend(
            root, store, address, idle_seconds, lender, plans, list(dict.fromkeys(agents)), models
        )
    finally:
        await pool.close()


async def _attend(
    root: str,
    store: str,
    address: str,
    idle_seconds: float,
    lender: KeyedCatalog,
    plans: AgentBuilder,
    agents: list[Agent],
    models: tuple[str, ...],
) -> None:
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    lender.offered = tuple(name for name in (*models, *plans.offered) if _is_found(lender, name))
    rules = rules_of(lender.environ())
    ports: dict[str, Any] = {"models": lender, "rules": rules, "secrets": lender.redactor}
    ports["retention"] = retention_of(lender.environ())
    async with Retinue(
        store, agents=agents, workspace=root, unsafe_bare=is_bare(), **ports
    ) as retinue:
        plans.learn = retinue.offer_model
        host = LineServer(Host(retinue, plans, leave, store), lender, store, _new_key(address))
        server = await _listen(host, address)
        try:
            _ready(wire.Welcome(retinue=__version__, pid=os.getpid(), store=store))
            await _until_idle(retinue, host, leave, idle_seconds)
        finally:
            # While we hold the store's lock the address is ours, so nobody else's can be removed.
            for path in (address, key_of(address)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            server.close()
            await host.close()


def rules_of(environ: Mapping[str, str]) -> Rules:
    """The outer limits of a host. How deep and how wide a tree may grow is said for each run, so
    here is the most that can be configured; what holds for all runs was put into the environment by
    the command that started us."""
    limits, calls = Limits(depth=64, children=1_000_000, per_call=10_000), Rules().calls_per_turn
    if any(name.startswith("RETINUE_LIMITS_") for name in environ):
        from retinue.config.layers import EffectiveSettings, read_environment

        told = EffectiveSettings([read_environment(environ)])
        limits, calls = (
            replace(limits, total=told.get("limits.total")),
            told.get("limits.calls_per_turn"),
        )
    return Rules(limits=limits, calls_per_turn=calls)


def retention_of(environ: Mapping[str, str]) -> Retention:
    """What is kept of runs that have ended: the user's own settings, as the command that started us
    has told them."""
    if not any(name.startswith("RETINUE_RETENTION_") for name in environ):
        return Retention()
    from retinue.config.layers import EffectiveSettings, read_environment

    told = EffectiveSettings([read_environment(environ)])
    megabytes = told.get("retention.size_mb")
    return Retention(
        age_seconds=told.get("retention.age"),
        count=told.get("retention.count"),
        size=None if megabytes is None else megabytes << 20,
    )


def is_bare() -> bool:
    """Whether commands run without a sandbox: there is none, and the user's own file says so."""
    from retinue.host.project_config import of_user
    from retinue.sandbox.bwrap import find_sandbox

    if of_user(os.environ, "sandbox", "unsafe_bare") is not True:
        return False
    try:
        find_sandbox()
    except SandboxMissing as error:
        log.warning("commands run without a sandbox, as configured: %s", error)
        return True
    return False


def _new_key(address: str) -> str:
    """A new one for each host, in a file for its owner alone that was not there before."""
    key, path = secrets.token_hex(32), key_of(address)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(key)
    return key


async def _listen(host: LineServer, address: str) -> asyncio.Server:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)
    before = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(host.attend, address, limit=wire.LINE_LIMIT)
    finally:
        os.umask(before)


async def _until_idle(
    retinue: Retinue, host: LineServer, leave: asyncio.Event, idle_seconds: float
) -> None:
    beat = max(0.05, min(1.0, idle_seconds / 4))
    loop = asyncio.get_running_loop()
    last = loop.time()
    while not leave.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leave.wait(), beat)
        if host.n_connected or retinue.is_busy:
            last = loop.time()
        elif loop.time() - last >= idle_seconds:
            return


def _left_open(store: str) -> tuple[list[str], tuple[str, ...]]:
    """The agents and models of the runs that an earlier process has left open."""
    from retinue.store.sqlite.reader import SqliteReader

    if not os.path.exists(store):
        return [], ()
    reader = SqliteReader(store)
    try:
        reader.open()
        rows = reader.load().open
    except Exception:  # opening it for good says better what is wrong
        return [], ()
    finally:
        reader.close()
    agents = dict.fromkeys(row.spec.order.agent for row in rows)
    return list(agents), tuple(
        dict.fromkeys(row.spec.model for row in rows if ":" in row.spec.model)
    )


async def _recall(plans: AgentBuilder, name: str) -> Any:
    try:
        return await plans.home(name)
    except ConfigError as error:
        log.warning("the runs of %s cannot go on yet: %s", name, error)
        return None


def _is_found(lender: KeyedCatalog, name: str) -> bool:
    try:
        return name != OFFLINE and lender.find(name) is not None
    except ConfigError as error:
        log.warning("the runs with model %s cannot go on yet: %s", name, error)
        return False


def _ready(told: wire.Welcome) -> None:
    """The command that started us reads one line; then our output is the log's."""
    os.write(1, wire.encode(told) + b"\n")
    os.dup2(2, 1)


def _open_log(path: str, redactor: Redactor) -> None:
    """Nothing gets into it that was not cleaned: what Python would write to stderr by itself goes
    through it too."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > LOG_BYTES:
            os.replace(path, path + ".1")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 2)
    os.close(fd)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Redacting(redactor))
    logging.basicConfig(
        handlers=[handler],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.captureWarnings(True)
    sys.excepthook = lambda kind, error, trace: log.critical(
        "the host failed", exc_info=(kind, error, trace)
    )
    sys.unraisablehook = lambda found: log.error(
        "%s", found.err_msg or "an error was lost", exc_info=found.exc_value
    )
    threading.excepthook = lambda found: log.error("a thread failed", exc_info=found.exc_value)


def main(argv: Sequence[str] | None = None) -> int:
    """The environment for models comes on stdin, as one line of JSON, so that it is in no list of
    processes. The project is never the directory of this process: libraries look for parts of
    themselves where they are started."""
    parser = argparse.ArgumentParser(prog="retinue host")
    parser.add_argument("--root", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--idle", type=float, default=30.0)
    told = parser.parse_args(argv)
    if os.fork():
        os._exit(0)  # whoever started us may go on for long and would be left with a dead child
    try:
        redactor = Redactor(secrets_of(os.environ))
        _open_log(told.log, redactor)
        environ = msgspec.json.decode(sys.stdin.buffer.readline() or b"{}", type=dict[str, str])
        asyncio.run(serve(told.root, told.store, told.socket, told.idle, environ, redactor))
    except (RetinueError, OSError) as error:
        log.warning("%s", error)
        with contextlib.suppress(OSError):
            os.write(1, wire.encode(wire.Told(id=0, error=trouble(error))) + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
