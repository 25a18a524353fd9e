"""The process that holds a store and keeps its runs going: `python -m retinue.cli.host`, started by a command when none
answers. It leaves by itself when nothing is open and nobody has been connected for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue import __version__
from retinue.api import Retinue
from retinue.cli import inside, wire
from retinue.cli.desk import Desk, trouble
from retinue.cli.lending import OFFLINE, Lender
from retinue.cli.mcp_pool import McpPool
from retinue.cli.plans import Plans
from retinue.core.values import Limits, Rules
from retinue.definitions import Agent
from retinue.errors import ConfigError, RetinueError, SandboxMissing

log = logging.getLogger("retinue.host")
GREETING_SECONDS = 10.0
LOG_BYTES = 5 << 20


class Host:
    """Takes connections for one runtime."""

    def __init__(self, desk: Desk, lender: Lender, store: str) -> None:
        self._desk, self._lender, self._store = desk, lender, store
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
        if not problem:
            try:
                line = await asyncio.wait_for(reader.readline(), GREETING_SECONDS)
                greeting = msgspec.json.decode(line, type=wire.Greeting)
                env = greeting.env
                if greeting.hello != wire.VERSION:
                    problem = f"this host speaks version {wire.VERSION}, not {greeting.hello}: run `retinue stop` first"
            except (msgspec.MsgspecError, ValueError):
                problem = "that was no greeting"
        told = wire.Welcome(retinue=__version__, pid=os.getpid(), store=self._store, error=problem)
        writer.write(wire.encode(told) + b"\n")
        await writer.drain()
        if not problem:
            self._lender.bring(env)
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

    def __init__(self, desk: Desk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._desk, self._reader, self._writer = desk, reader, writer
        self._tasks: dict[asyncio.Task[None], bool] = {}

    async def serve(self) -> None:
        try:
            while line := await self._read():
                try:
                    ask = wire.read_ask(line)
                except msgspec.MsgspecError as error:
                    text = f"the host does not understand this ({error}); is it of another version? `retinue stop`"
                    await self._tell(wire.Told(id=_number(line), error=wire.Trouble(kind="ConfigError", message=text)))
                    continue
                task = asyncio.create_task(self._answer(ask))
                self._tasks[task] = isinstance(ask.want, (wire.Watch, wire.Wait))
                task.add_done_callback(lambda done: self._tasks.pop(done, None))
        finally:
            # What was asked for is done, also for somebody who did not wait; only looking ends with the connection.
            for task, only_looks in list(self._tasks.items()):
                if only_looks:
                    task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:  # a line beyond the limit
            text = f"a request of more than {wire.LINE_LIMIT >> 20} MiB is refused; put what is long into a file"
            await self._tell(wire.Told(id=0, error=wire.Trouble(kind="ConfigError", message=text)))
            return b""

    async def _answer(self, ask: wire.Ask) -> None:
        async def tell(item: wire.Item) -> None:
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


async def serve(store: str, address: str, idle_seconds: float, environ: dict[str, str]) -> None:
    """Open the store, listen, and keep going until nothing is left to do or somebody asks to stop."""
    open_agents, models = _left_open(store)
    lender = Lender(environ, models)
    pool = McpPool(Path(store + ".approvals"), lender.environ)
    plans = Plans(store + ".plans", lender, pool)
    try:
        agents = [a for name in open_agents if (a := await _recall(plans, name)) is not None]
        await _attend(store, address, idle_seconds, lender, plans, list(dict.fromkeys(agents)), models)
    finally:
        await pool.close()


async def _attend(
    store: str,
    address: str,
    idle_seconds: float,
    lender: Lender,
    plans: Plans,
    agents: list[Agent],
    models: tuple[str, ...],
) -> None:
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    lender.offered = tuple(name for name in (*models, *plans.offered) if _is_found(lender, name))
    rules = rules_of(lender.environ())
    async with Retinue(store, agents=agents, models=lender, rules=rules, unsafe_bare=is_bare()) as retinue:
        plans.learn = inside.learner(retinue)
        host = Host(Desk(retinue, plans, leave, store), lender, store)
        server = await _listen(host, address)
        try:
            _ready(wire.Welcome(retinue=__version__, pid=os.getpid(), store=store))
            await _until_idle(retinue, host, leave, idle_seconds)
        finally:
            # While we hold the store's lock the address is ours, so nobody else's can be removed.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)
            server.close()
            await host.close()


def rules_of(environ: Mapping[str, str]) -> Rules:
    """The outer limits of a host. How deep and how wide a tree may grow is said for each run, so here is the most that
    can be configured; what holds for all runs was put into the environment by the command that started us."""
    limits, calls = Limits(depth=64, children=1_000_000, per_call=10_000), Rules().calls_per_turn
    if any(name.startswith("RETINUE_LIMITS_") for name in environ):
        from retinue.config.layers import Settings, read_environment

        told = Settings([read_environment(environ)])
        limits, calls = replace(limits, total=told.get("limits.total")), told.get("limits.calls_per_turn")
    return Rules(limits=limits, calls_per_turn=calls)


def is_bare() -> bool:
    """Whether commands run without a sandbox: there is none, and the user's own file says so."""
    from retinue.cli.settings import of_user
    from retinue.sandbox.bwrap import find_sandbox

    if of_user(os.environ, "sandbox", "unsafe_bare") is not True:
        return False
    try:
        find_sandbox()
    except SandboxMissing as error:
        log.warning("commands run without a sandbox, as configured: %s", error)
        return True
    return False


async def _listen(host: Host, address: str) -> asyncio.Server:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)
    before = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(host.attend, address, limit=wire.LINE_LIMIT)
    finally:
        os.umask(before)


async def _until_idle(retinue: Retinue, host: Host, leave: asyncio.Event, idle_seconds: float) -> None:
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
    from retinue.store.sqlite_read import Reader

    if not os.path.exists(store):
        return [], ()
    reader = Reader(store)
    try:
        reader.open()
        rows = reader.load().open
    except Exception:  # opening it for good says better what is wrong
        return [], ()
    finally:
        reader.close()
    agents = dict.fromkeys(row.spec.order.agent for row in rows)
    return list(agents), tuple(dict.fromkeys(row.spec.model for row in rows if ":" in row.spec.model))


async def _recall(plans: Plans, name: str) -> Any:
    try:
        return await plans.home(name)
    except ConfigError as error:
        log.warning("the runs of %s cannot go on yet: %s", name, error)
        return None


def _is_found(lender: Lender, name: str) -> bool:
    try:
        return name != OFFLINE and lender.find(name) is not None
    except ConfigError as error:
        log.warning("the runs with model %s cannot go on yet: %s", name, error)
        return False


def _ready(told: wire.Welcome) -> None:
    """The command that started us reads one line; then our output is the log's."""
    os.write(1, wire.encode(told) + b"\n")
    os.dup2(2, 1)


def _open_log(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > LOG_BYTES:
            os.replace(path, path + ".1")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 2)
    os.close(fd)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def main(argv: Sequence[str] | None = None) -> int:
    """The environment for models comes on stdin, as one line of JSON, so that it is in no list of processes."""
    parser = argparse.ArgumentParser(prog="retinue host")
    parser.add_argument("--store", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--idle", type=float, default=30.0)
    told = parser.parse_args(argv)
    if os.fork():
        os._exit(0)  # whoever started us may go on for long and would be left with a dead child
    try:
        _open_log(told.log)
        environ = msgspec.json.decode(sys.stdin.buffer.readline() or b"{}", type=dict[str, str])
        asyncio.run(serve(told.store, told.socket, told.idle, environ))
    except (RetinueError, OSError) as error:
        log.warning("%s", error)
        with contextlib.suppress(OSError):
            os.write(1, wire.encode(wire.Told(id=0, error=trouble(error))) + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
