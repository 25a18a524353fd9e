"""The host process, which has the store open and drives its runs: `python -m retinue.host.daemon`,
started by a command if none is running. It leaves by itself when nothing is open and no one has
been connected for a while."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from starlette.routing import Route

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.cluster.status_types import ClusterStatus
from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.errors import ConfigError, RetinueError
from retinue.formats.database_address import shown
from retinue.host.access_guard import AccessGuard
from retinue.host.agent_source import PlannedAgents
from retinue.host.app import build_app
from retinue.host.builder import AgentBuilder
from retinue.host.dashboard_access import DashboardAccess
from retinue.host.host import Host
from retinue.host.host_log import open_log
from retinue.host.host_rules import dispatch_of, is_bare, retention_of, rules_of
from retinue.host.host_server import HostServer, unix_listener
from retinue.host.identity import OWNER
from retinue.host.key_file import new_key, remove
from retinue.host.keyring import Keyring
from retinue.host.keys import OFFLINE, KeyedCatalog
from retinue.host.large_blocks import return_large_blocks
from retinue.host.launch import DATABASE, StartReport
from retinue.host.mcp_pool import McpPool
from retinue.host.problem_documents import problem_of
from retinue.host.project_paths import approvals_of, key_of, sessions_of
from retinue.host.project_planner import ProjectPlanner
from retinue.host.requests import HelloRequest
from retinue.host.session_file import SessionFile
from retinue.host.stored_runs import reader_of, store_of
from retinue.models.providers import DIRECTORY

log = logging.getLogger("retinue.host")


@dataclass
class HostedStore:
    """A store, held by this process, and how it is reached. `database` is where the runs are if not
    in the file `store`; then only what belongs to them is beside that. `keyring` lets clients in;
    `hosts` are names beside those of loopback; `listeners` are sockets beside the Unix socket at
    `address`; `more_routes` are routes beside those of the host. `is_shared`:
    other nodes use the database at the same time; `offers` is what this one has for runs that need
    it."""

    root: str
    store: str
    address: str
    environ: dict[str, str]
    redactor: Redactor = field(default_factory=Redactor)
    keyring: Keyring = field(default_factory=Keyring)
    hosts: tuple[str, ...] = ()
    listeners: tuple[socket.socket, ...] = ()
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    more_routes: Callable[[Host], Sequence[Route]] = lambda host: ()
    database: str = ""
    is_shared: bool = False
    offers: tuple[str, ...] = ()

    async def serve(self, idle_seconds: float | None, ready: Callable[[], None]) -> None:
        """Open the store, listen, and keep going until someone asks to stop, or until nothing has
        been open or connected for `idle_seconds`."""
        async with self._opened() as (retinue, builder, catalog):
            planner = ProjectPlanner(self.root, self.store, self.address, catalog.environ)
            host = Host(retinue, PlannedAgents(builder, planner), self.leave, self.store)
            host.address = shown(self.database) or self.store
            host.greet = greeter(host, catalog)
            host.cluster = self._cluster_status()
            await host.wake_clients()
            async with self._listening(host) as server:
                host.page = DashboardAccess(self.keyring, server, self.listeners)
                ready()
                await _until_idle(retinue, server, self.leave, idle_seconds)

    async def work(self, ready: Callable[[], None]) -> None:
        """Open the database and drive trees, without listening, until someone asks to stop."""
        async with self._opened():
            ready()
            await self.leave.wait()

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Retinue, AgentBuilder, KeyedCatalog]]:
        """The runtime, with the agents and models of the runs that are open."""
        return_large_blocks()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.leave.set)
        # A node gets agents with the trees that it is given.
        open_agents, models = ([], ()) if self.is_shared else _left_open(self.store, self.database)
        environ = {**self.environ, DIRECTORY: self.root}
        catalog = KeyedCatalog(environ, models, self.redactor)
        pool = McpPool(Path(approvals_of(self.store)), catalog.environ, catalog.redactor)
        builder = AgentBuilder(self.store + ".plans", catalog, pool)
        try:
            recalled_agents = [await _recall(builder, name) for name in open_agents]
            agents = [
                agent
                for agent in dict.fromkeys(recalled_agents)
                if agent is not None and _has_models(catalog, agent)
            ]
            names = (*models, *builder.offered)
            catalog.offered = tuple(name for name in names if _is_found(catalog, name))
            ports: dict[str, Any] = {
                "agents": agents,
                "models": catalog,
                "secrets": catalog.redactor,
                "workspace": self.root,
                "unsafe_no_sandbox": is_bare(),
                "limits": rules_of(catalog.environ()),
                "retention": retention_of(catalog.environ()),
            }
            async with self._runtime(builder, ports) as retinue:
                builder.learn, pool.wait = retinue.offer_model, retinue.wait
                yield retinue, builder, catalog
        finally:
            await pool.close()

    def _runtime(self, builder: AgentBuilder, ports: dict[str, Any]) -> Retinue:
        """The runtime of this store: alone, or as one of several nodes of a database."""
        if not self.is_shared:
            return Retinue(store_of(self.store, self.database), **ports)
        from retinue.cluster.dispatchers import dispatcher_of
        from retinue.cluster.retinue_node import RetinueNode
        from retinue.cluster.shared_plans import SharedPlans
        from retinue.cluster.tree_worker import WorkerSettings

        plans = SharedPlans(self.database)
        builder.share, builder.fetch = plans.put, plans.get
        dispatcher = dispatcher_of(dispatch_of(self.environ), self.database)
        return RetinueNode(
            self.database,
            worker=WorkerSettings(offers=self.offers),
            dispatcher=dispatcher,
            recall=builder.recall,
            **ports,
        )

    def _cluster_status(self) -> Callable[[], ClusterStatus] | None:
        if not self.is_shared:
            return None
        from retinue.cluster.status import cluster_status

        return functools.partial(cluster_status, self.database)

    @contextlib.asynccontextmanager
    async def _listening(self, host: Host) -> AsyncIterator[HostServer]:
        self.keyring.add(new_key(key_of(self.address)), OWNER)
        self.keyring.keep_sessions(SessionFile(sessions_of(self.store)))
        app = AccessGuard(build_app(host, self.more_routes(host)), self.keyring, hosts=self.hosts)
        server, listener = HostServer(app), unix_listener(self.address)
        try:
            async with server.serving(listener, *self.listeners):
                try:
                    yield server
                finally:
                    # While we hold the store's lock the address is ours, so no one else's can be
                    # removed.
                    self.leave.set()
                    remove(self.address, key_of(self.address))
        finally:
            listener.close()


def greeter(host: Host, catalog: KeyedCatalog) -> Any:
    """What a command brings is learnt, and runs that waited for it continue."""

    async def greet(hello: HelloRequest) -> None:
        catalog.redactor.learn(hello.hidden)
        if providers := catalog.bring(hello.env):
            await host.keys_brought(providers, catalog.resolve)

    return greet


async def _until_idle(
    retinue: Retinue, server: HostServer, leave: asyncio.Event, idle_seconds: float | None
) -> None:
    if idle_seconds is None:
        await leave.wait()
        return
    beat = max(0.05, min(1.0, idle_seconds / 4))
    loop = asyncio.get_running_loop()
    last = loop.time()
    while not leave.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leave.wait(), beat)
        if server.n_connected or retinue.is_busy:
            last = loop.time()
        elif loop.time() - last >= idle_seconds:
            return


def _left_open(store: str, database: str) -> tuple[list[str], tuple[str, ...]]:
    """The agents and models of the runs that an earlier process has left open."""
    if not database and not os.path.exists(store):
        return [], ()
    reader = reader_of(store, database)
    try:
        reader.open()
        rows = reader.load().open
    except Exception:  # opening it for good says better what is wrong
        return [], ()
    finally:
        reader.close()
    agents = dict.fromkeys(row.spec.request.agent for row in rows)
    return list(agents), tuple(
        dict.fromkeys(row.spec.model for row in rows if ":" in row.spec.model)
    )


async def _recall(builder: AgentBuilder, name: str) -> Any:
    try:
        return await builder.home(name)
    except ConfigError as error:
        log.warning("the runs of %s cannot continue yet: %s", name, error)
        return None


def _is_found(catalog: KeyedCatalog, name: str) -> bool:
    try:
        return name != OFFLINE and catalog.find(name) is not None
    except ConfigError as error:
        log.warning("the runs with model %s cannot continue yet: %s", name, error)
        return False


def _has_models(catalog: KeyedCatalog, agent: Agent) -> bool:
    """Whether the models of an agent and of its staff can be called. If not, its runs stay as they
    are until a client brings what is missing; the runs of others are not their concern."""
    names = {member.model for member in agent.reachable_agents() if isinstance(member.model, str)}
    return all(_is_found(catalog, name) for name in names if name and name != OFFLINE)


def _report(report: StartReport) -> None:
    """The command that started us reads one line; then our output is the log's."""
    os.write(1, msgspec.json.encode(report) + b"\n")
    os.dup2(2, 1)


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
    options = parser.parse_args(argv)
    if os.fork():
        os._exit(0)  # the starter may run for long: it must not be left with a dead child
    try:
        redactor = Redactor(secrets_of(os.environ))
        open_log(options.log, redactor)
        environ = msgspec.json.decode(sys.stdin.buffer.readline() or b"{}", type=dict[str, str])
        asyncio.run(_hosted(options, environ, redactor))
    except (RetinueError, OSError) as error:
        log.warning("%s", error)
        with contextlib.suppress(OSError):
            _report(StartReport(problem=problem_of(error)))
        return 1
    return 0


async def _hosted(options: Any, environ: dict[str, str], redactor: Redactor) -> None:
    hosted = HostedStore(options.root, options.store, options.socket, environ, redactor)
    hosted.database = environ.pop(DATABASE, "")
    await hosted.serve(options.idle, lambda: _report(StartReport(pid=os.getpid())))


if __name__ == "__main__":
    sys.exit(main())
