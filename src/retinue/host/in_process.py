"""A host inside the command itself, on a store in memory: for runs that leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from retinue.api import Retinue
from retinue.errors import HostGone
from retinue.host import requests as wire
from retinue.host.builder import AgentBuilder
from retinue.host.client import HostClient
from retinue.host.daemon import LineServer, is_bare, rules_of
from retinue.host.host import Host
from retinue.host.keys import KeyedCatalog
from retinue.host.mcp_pool import McpPool


class InProcessHost:
    """Runs in a thread and speaks over a pair of sockets, as one in another process would."""

    def __init__(self, env: Mapping[str, str], workspace: str, pins: Path | None = None) -> None:
        self._env, self._workspace, self._pins = dict(env), workspace, pins
        self._ours, self._theirs = socket.socketpair()
        self._key = secrets.token_hex(32)
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="retinue host", daemon=True)

    def __enter__(self) -> HostClient:
        self._thread.start()
        try:
            return HostClient(self._ours, self._env, self._key)
        except HostGone:
            self._thread.join(10)
            raise self.error or HostGone("the host in this process went away") from None

    def __exit__(self, *exc: object) -> None:
        self._ours.close()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self.error = error
        finally:
            with contextlib.suppress(OSError):
                self._theirs.shutdown(socket.SHUT_RDWR)
            self._theirs.close()

    async def _serve(self) -> None:
        lender = KeyedCatalog(self._env)
        pool = McpPool(self._pins, lender.environ, lender.redactor)
        try:
            rules = rules_of(self._env)
            async with Retinue(
                None,
                models=lender,
                workspace=self._workspace,
                rules=rules,
                unsafe_bare=is_bare(),
                secrets=lender.redactor,
            ) as retinue:
                plans = AgentBuilder("", lender, pool)
                plans.learn = retinue.offer_model
                host = LineServer(Host(retinue, plans, asyncio.Event()), lender, "", self._key)
                reader, writer = await asyncio.open_unix_connection(
                    sock=self._theirs, limit=wire.LINE_LIMIT
                )
                await host.attend(reader, writer)
        finally:
            await pool.close()
