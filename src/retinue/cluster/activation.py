"""One tree on this worker: acquired, driven while something is under way or due soon, and released
when idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from retinue.cluster.ownership import Held, Ownership
from retinue.cluster.slots import Slots
from retinue.cluster.tree_engine import TreeEngine
from retinue.cluster.tree_store import TreeStore
from retinue.core.events import Admitted
from retinue.errors import Defect, RetinueError, StoreError

log = logging.getLogger("retinue.cluster")

NEAR_MS = 5_000
"""A tree whose next time is nearer than this is kept."""
DEFECT_MS = 60_000
"""After a defect of ours a tree is tried again so much later."""
LOOK_SECONDS = 2.0
"""How often a tree at work looks whether it is still needed, whatever happens."""


class Activation:
    """`idle_seconds`: how long a tree in which nothing happens stays warm."""

    def __init__(
        self,
        tree: Held,
        engine: TreeEngine,
        store: TreeStore,
        ownership: Ownership,
        slots: Slots,
        idle_seconds: float,
    ) -> None:
        self.tree, self.engine, self._store = tree, engine, store
        self._ownership, self._slots, self._idle = ownership, slots, idle_seconds
        self._nudge = asyncio.Event()
        self._has_news = self._has_slots = True
        self._read = 0
        self._answers: set[asyncio.Task[None]] = set()
        self._gives_up = self._finishes = self.was_released = False
        self.stopped = asyncio.Event()
        self._since = 0.0
        store.written = self._nudge.set

    # what others say

    def mail_came(self) -> None:
        self._has_news = True
        self._nudge.set()

    def slot_came(self) -> None:
        self._has_slots = True
        self._nudge.set()

    def finish(self) -> None:
        """The worker leaves: the tree is let go of as soon as no call is under way."""
        self._finishes = True
        self._nudge.set()

    def give_up(self) -> None:
        """The tree is no longer ours: nothing more is written, and what is under way is stopped."""
        self._gives_up = True
        self._store.shut()
        self._nudge.set()

    # life

    async def run(self) -> None:
        """Until the tree was let go of. Returns, whatever has happened to it."""
        engine = self.engine
        try:
            await engine.start()
            await self._slots.keep(self.tree, engine.slots_in_use())
            needs = engine.needs
            if needs.is_here or not needs.is_held:
                await engine.found.take_up()
            while not self._gives_up and not await self._is_over():
                await self._wait()
        except StoreError as error:
            log.info("the tree %s is let go of: %s", self.tree.root, error)
        finally:
            self._store.shut()
            for task in self._answers:
                task.cancel()
            await engine.stop()
            self.stopped.set()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._idle, LOOK_SECONDS)):
                await self._nudge.wait()
        self._nudge.clear()

    async def _is_over(self) -> bool:
        """Take in what has come; and let go if nothing has happened for a while."""
        if self._has_news:
            self._has_news = False
            await self._take_mail()
        if self._has_slots:
            self._has_slots = False
            await self._take_slots()
        self.engine.check()
        now = asyncio.get_running_loop().time()
        if self.engine.aside:
            return await self._let_go(self.engine.clock.now() + DEFECT_MS)
        if not self._is_idle():
            self._since = now
            return False
        if not self.engine.trees.by_root:
            return await self._let_go(None)
        if not self.engine.needs.is_here:
            return await self._let_go(self.engine.clock.now())
        if now - self._since < self._idle and not self._finishes:
            return False
        return await self._let_go(self.engine.wake_at)

    def _is_idle(self) -> bool:
        if not self.engine.is_resting:
            return False
        at = self.engine.wake_at
        if not self.engine.needs.is_here:
            return True
        return self._finishes or at is None or at - self.engine.clock.now() > NEAR_MS

    async def _let_go(self, wake_at: int | None) -> bool:
        trees, needs = self.engine.trees.by_root, self.engine.needs
        self.was_released = await self._ownership.release(
            self.tree,
            wake_at,
            needs=needs.names,
            moves=not needs.is_here,
            is_open=bool(trees or self.engine.aside),
            askers=[run for tree in trees.values() for run in tree.asked],
        )
        if self.was_released:
            return True
        self._has_news = self._has_slots = True
        self._nudge.set()
        return False

    async def _take_mail(self) -> None:
        for number, entry in await self._ownership.inbox(self.tree.root, self._read):
            self._read = number
            event = self.engine.without_secrets(entry.event)
            self._store.expect(number, event)
            answer = self.engine.post_and_wait(entry.run, event)
            task = asyncio.create_task(self._answer(number, answer))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, number: int, answer: asyncio.Future[str]) -> None:
        """An event that meets a defect of ours is in no commit: it is answered here, so that it is
        not tried without end."""
        try:
            why = await answer
        except Defect as error:
            why = str(error)
        except RetinueError:
            return
        if self._store.is_expected(number):
            await self._store.drop(number, why)

    async def _take_slots(self) -> None:
        trees = self.engine.trees
        for run, ticket in await self._slots.granted(self.tree.root):
            tree = trees.of(run)
            if tree is not None and run in tree.asked:
                self.engine.post(run, Admitted(ticket=ticket))
