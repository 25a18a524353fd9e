"""A worker: owns trees and drives them. It lives as long as its row is renewed; when that lapsed,
its trees are stopped before it is renewed again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg

from retinue.cluster.activation import Activation
from retinue.cluster.base import Dispatcher
from retinue.cluster.liveness import Heartbeat
from retinue.cluster.node_notices import INBOX, SLOT
from retinue.cluster.ownership import Held, Ownership
from retinue.cluster.provider_pools import ProviderPools
from retinue.cluster.slots import Slots
from retinue.cluster.tree_engine import TreeEngine
from retinue.cluster.tree_store import TreeStore
from retinue.core.lanes import is_directory

log = logging.getLogger("retinue.cluster")

AFTER_ERROR_SECONDS = 5.0
"""So long a tree that met an error of ours is kept from being tried again."""
NOT_HERE_SECONDS = 2.0
"""How long a tree that could not be driven here is ignored."""
LOOK_SECONDS = 1.0
"""How often a worker looks for what no notice has announced."""
OUTDATED = (
    "A newer version of Retinue has changed the tables of this database. This worker takes no more"
    " trees; those that it has continue on newer workers. Replace it."
)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`at_once`: how many trees are driven at a time. `lease_seconds`: after so much silence of a
    worker others take its trees. `idle_seconds`: how long a tree in which nothing happens is kept.
    `drain_seconds`: how long calls that are under way may take when the worker leaves. `offers`:
    labels of what this machine has, for runs that need it."""

    at_once: int = 64
    lease_seconds: float = 10.0
    idle_seconds: float = 5.0
    drain_seconds: float = 30.0
    offers: tuple[str, ...] = ()

    def has(self, need: str) -> bool:
        """Whether a run that needs this can be driven here."""
        return os.path.isdir(need) if is_directory(need) else need in self.offers


class TreeWorker:
    """`make` gives the engine and the store of a tree that was taken; `knows` says whether this
    process can drive it."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        dispatcher: Dispatcher,
        ownership: Ownership,
        slots: Slots,
        pools: ProviderPools,
        make: Callable[[Held], tuple[TreeEngine, TreeStore]],
        knows: Callable[[str], Awaitable[bool]],
        settings: WorkerSettings,
    ) -> None:
        self.heartbeat, self._dispatcher, self._ownership = heartbeat, dispatcher, ownership
        self._slots, self._pools = slots, pools
        self._make, self._knows = make, knows
        self._settings = settings
        self.driven: dict[str, Activation] = {}
        self._taken: set[str] = set()
        self._not_here: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.is_leaving = False

    async def start(self) -> None:
        await self.heartbeat.start()
        work = self._dispatcher.work(self.drive, self._due, self._settings.at_once)
        self._tasks = [
            asyncio.create_task(work, name="retinue worker"),
            asyncio.create_task(self._look(), name="retinue worker looks"),
            asyncio.create_task(self._slots.work(), name="retinue lanes"),
            asyncio.create_task(self._pools.work(), name="retinue accounts"),
        ]

    # trees

    async def _due(self, most: int) -> list[str]:
        """Trees that this worker cannot drive leave room for those behind them."""
        now = asyncio.get_running_loop().time()
        self._not_here = {root: until for root, until in self._not_here.items() if until > now}
        return await self._ownership.due(most, list(self._not_here), self._settings.offers)

    async def drive(self, root: str) -> None:
        """Own a tree until nothing is left to do in it for now."""
        if self.is_leaving or self.heartbeat.is_draining or root in self._taken:
            return
        if not self.heartbeat.is_valid:
            return
        if not await self._knows(root):
            self._not_here[root] = asyncio.get_running_loop().time() + NOT_HERE_SECONDS
            return
        self._taken.add(root)
        try:
            tree = await self._ownership.take(root)
            if tree is not None:
                await self._drive(tree)
        finally:
            self._taken.discard(root)

    async def _drive(self, tree: Held) -> None:
        root = tree.root
        engine, store = self._make(tree)
        settings = self._settings
        activation = Activation(
            tree, engine, store, self._ownership, self._slots, settings.idle_seconds
        )
        self.driven[root] = activation
        try:
            await activation.run()
        except Exception:
            log.exception("the tree %s is let go of after an error", root)
            await asyncio.sleep(AFTER_ERROR_SECONDS)
        finally:
            del self.driven[root]
            if not activation.was_released:
                with contextlib.suppress(psycopg.Error, OSError):
                    await asyncio.shield(self._ownership.give_up([tree]))

    def notice(self, kind: str, names: list[str]) -> None:
        """A notice of another node."""
        for root in names if kind in (INBOX, SLOT) else ():
            activation = self.driven.get(root)
            if activation is not None and kind == INBOX:
                activation.mail_came()
            elif activation is not None:
                activation.slot_came()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.heartbeat.is_draining and not self.is_leaving:
                if self.heartbeat.is_outdated:
                    log.warning(OUTDATED)
                self._tasks.append(asyncio.create_task(self.drain()))
            try:
                roots = list(self.driven)
                for root in await self._ownership.with_mail(roots) if roots else ():
                    self.notice(INBOX, [root])
                await self._slots.sweep()
                await self._let_go_of_lost()
            except (psycopg.Error, OSError) as error:
                log.info("cannot look for mail: %s", error)

    async def _let_go_of_lost(self) -> None:
        """Trees that are ours by their rows and that no one drives: the database was out of reach
        when one was taken or let go of."""
        lost_trees = [tree for tree in await self._ownership.mine() if tree.root not in self._taken]
        if lost_trees:
            await self._ownership.give_up(lost_trees)

    # leaving

    def lapsed(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by the heartbeat's thread: returns when no tree of this worker is driven."""
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self._stop_all(), loop).result()

    async def _stop_all(self) -> None:
        for activation in self.driven.values():
            activation.give_up()
        stopped = [activation.stopped.wait() for activation in self.driven.values()]
        await asyncio.gather(*stopped)

    async def drain(self) -> None:
        """Take no more trees, and let go of each as soon as no call of it is under way."""
        self.is_leaving = True
        for activation in self.driven.values():
            activation.finish()
        stopped = [activation.stopped.wait() for activation in self.driven.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                await asyncio.gather(*stopped)

    async def stop(self) -> None:
        self.is_leaving = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.heartbeat.stop)
