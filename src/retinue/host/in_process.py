"""A host inside the command's own process, on a store in memory: for runs that are not saved."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from retinue.api import Retinue
from retinue.errors import HostGone
from retinue.host.access_guard import AccessGuard
from retinue.host.agent_source import PlannedAgents
from retinue.host.app import build_app
from retinue.host.builder import AgentBuilder
from retinue.host.client import HostClient
from retinue.host.daemon import greeter
from retinue.host.host import Host
from retinue.host.host_rules import is_bare, rules_of
from retinue.host.host_server import HostServer, unix_listener
from retinue.host.identity import OWNER
from retinue.host.keyring import Keyring
from retinue.host.keys import KeyedCatalog
from retinue.host.mcp_pool import McpPool


class InProcessHost:
    """Runs in a thread and is reached like one in another process, over a socket in a private
    folder and with a key that is only in memory."""

    def __init__(
        self, env: Mapping[str, str], workspace: str, approvals: Path | None = None
    ) -> None:
        self._env, self._workspace, self._approvals = dict(env), workspace, approvals
        self._folder = tempfile.mkdtemp(prefix="retinue-")
        self._address = os.path.join(self._folder, "host.sock")
        self._listener = unix_listener(self._address)
        self._key = secrets.token_hex(32)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._host: Host | None = None
        self._client: HostClient | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="retinue host", daemon=True)

    def __enter__(self) -> HostClient:
        self._thread.start()
        try:
            self._client = HostClient(self._dial, self._env, self._key)
            return self._client
        except (HostGone, ConnectionError):
            self._thread.join(10)
            shutil.rmtree(self._folder, ignore_errors=True)
            raise self.error or HostGone("the host in this process ended") from None

    def __exit__(self, *exc: object) -> None:
        if self._client is not None:
            self._client.close()
        if self._loop is not None and self._host is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._host.leave.set)
        self._thread.join(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _dial(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(self._address)
        return line

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self.error = error
        finally:
            self._listener.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        catalog = KeyedCatalog(self._env)
        pool = McpPool(self._approvals, catalog.environ, catalog.redactor)
        try:
            async with Retinue(
                None,
                models=catalog,
                workspace=self._workspace,
                limits=rules_of(self._env),
                unsafe_no_sandbox=is_bare(),
                secrets=catalog.redactor,
            ) as retinue:
                builder = AgentBuilder("", catalog, pool)
                builder.learn, pool.wait = retinue.offer_model, retinue.wait
                self._host = Host(retinue, PlannedAgents(builder))
                self._host.greet = greeter(self._host, catalog)
                guard = AccessGuard(build_app(self._host), Keyring([(self._key, OWNER)]))
                async with HostServer(guard).serving(self._listener):
                    await self._host.leave.wait()
        finally:
            await pool.close()
