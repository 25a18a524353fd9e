"""A node: the API of a runtime over one PostgreSQL that many nodes share, and a worker that drives
trees of any of them."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self
from uuid import uuid4

from psycopg_pool import AsyncConnectionPool

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.cluster.base import Dispatcher
from retinue.cluster.in_database import InDatabase
from retinue.cluster.liveness import Heartbeat
from retinue.cluster.node_engine import NodeEngine
from retinue.cluster.node_notices import Listener
from retinue.cluster.node_store import NodeStore
from retinue.cluster.ownership import Held, Ownership
from retinue.cluster.provider_pools import ProviderPools
from retinue.cluster.slots import Slots
from retinue.cluster.tenant_budgets import PaidModels, TenantAllowance
from retinue.cluster.tree_engine import TreeEngine
from retinue.cluster.tree_store import TreeStore
from retinue.cluster.tree_worker import TreeWorker, WorkerSettings
from retinue.core.type_parameters import Deps_co

USUAL = WorkerSettings()
Recall = Callable[[str], Awaitable[Agent[Any, Any] | None]]
"""The agent of this name, if this node can build it."""


class RetinueNode(Retinue[Deps_co]):
    """`Retinue` on a database that other nodes use at the same time. What is started here runs on
    any node that knows its agent, and what is asked here reaches it there.

    `worker` says how this node drives trees; None: it drives none, and only asks. `recall` gives
    agents that were not named. `dispatcher` is how trees get to workers."""

    _engine_type = NodeEngine
    _engine: NodeEngine

    def __init__(
        self,
        url: str,
        *,
        worker: WorkerSettings | None = USUAL,
        dispatcher: Dispatcher | None = None,
        recall: Recall | None = None,
        name: str = "",
        agents: Sequence[Agent[Any, Any]] = (),
        **options: Any,
    ) -> None:
        self._node_store = NodeStore(url)
        super().__init__(self._node_store, agents=agents, **options)
        self._url, self._recall, self._options = url, recall, options
        self.id, self.name = str(uuid4()), name or f"{socket.gethostname()}:{os.getpid()}"
        self._pool: Any = AsyncConnectionPool(
            url, min_size=1, max_size=8, open=False, kwargs={"autocommit": True}
        )
        self._dispatcher = dispatcher or InDatabase(url)
        self._ownership = Ownership(self._pool, self._dispatcher, self.id)
        self._engine.ownership, self._engine.record_store = self._ownership, self._node_store
        self._slots = Slots(self._pool, self._dispatcher)
        self._pools = ProviderPools(self._pool, self.id)
        self._listener = Listener(url, self._notice)
        self.worker: TreeWorker | None = None
        self._settings = worker

    async def __aenter__(self) -> Self:
        try:
            await self._node_store.open()
            await self._pool.open()
            await self._dispatcher.open()
            self._listener.start()
            await super().__aenter__()
            await self._start_worker()
        except BaseException:
            await self._listener.stop()
            await self._close_connections()
            raise
        return self

    async def _start_worker(self) -> None:
        if self._settings is not None:
            self._registry.share_accounts(self._pools.join)
            loop = asyncio.get_running_loop()
            heartbeat = Heartbeat(self._url, self.id, self.name, self._settings.lease_seconds)
            heartbeat.offers = self._settings.offers
            self.worker = TreeWorker(
                heartbeat,
                self._dispatcher,
                self._ownership,
                self._slots,
                self._pools,
                self._make,
                self._knows,
                self._settings,
            )
            heartbeat.lapsed = functools.partial(self.worker.lapsed, loop)
            await self.worker.start()

    async def __aexit__(self, *exc: object) -> None:
        if self.worker is not None:
            await self.worker.drain()
            await self.worker.stop()
        await self._listener.stop()
        await super().__aexit__(*exc)
        await self._close_connections()

    async def _close_connections(self) -> None:
        await self._dispatcher.close()
        await self._pool.close()
        await self._node_store.close()

    def _notice(self, kind: str, names: list[str]) -> None:
        self._engine.notice(kind, names)
        if self.worker is not None:
            self._pools.notice(kind)
            self.worker.notice(kind, names)

    # trees that are driven here

    async def _knows(self, root: str) -> bool:
        """Whether the agent of a tree can be had here, and what its runs need."""
        agent, needs, has_mail = await self._ownership.wanted(root)
        if not has_mail and not all(map(self._offers, needs)):
            return False
        if agent in self._registry.agents:
            return True
        agent_here = await self._recall(agent) if self._recall is not None else None
        if agent_here is not None:
            await self.take_up(agent_here)
        return agent in self._registry.agents

    def _make(self, tree: Held) -> tuple[TreeEngine, TreeStore]:
        node = self._engine
        store = TreeStore(self._node_store.database, tree, self._is_valid)
        performer = node.performer
        clock, tools, models = node.ports[:3]
        allowance = TenantAllowance(self._pool, tree.root, tree.tenant)
        engine = TreeEngine(
            store,
            clock,
            tools,
            PaidModels(models, allowance) if tree.tenant else models,
            *node.ports[3:],
            shared=node.shared,
            touch=self._slots.touch,
            offers=self._offers,
            handed_over=tree.handed_over,
        )
        allowance.exposure = engine.exposure
        engine.performer.deps, engine.performer.hooks = performer.deps, performer.hooks
        reader = engine.performer.tool_reader
        reader.know_model = performer.tool_reader.know_model
        reader.outcome = performer.tool_reader.outcome
        return engine, store

    def _offers(self, need: str) -> bool:
        return self._settings is not None and self._settings.has(need)

    def _is_valid(self) -> bool:
        return self.worker is not None and self.worker.heartbeat.is_valid
