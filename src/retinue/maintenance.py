"""Maintenance of the store: retention, copies, checks and compaction. With a `Retention`, old trees
are forgotten in the background, one at a time, and their space is returned to the disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from retinue.core.events import AnyEvent, Dropped, Forgotten, Requeued
from retinue.core.open_work import at_work, is_announcing
from retinue.core.state import RunRecord
from retinue.core.tree import Tree
from retinue.core.values import Delivery, DeliveryState
from retinue.errors import ConfigError, NotFound, Refused, RetinueError
from retinue.option_types import Retention
from retinue.portal import Portal, check_loop
from retinue.runtime.bus import Watcher
from retinue.runtime.engine import Engine
from retinue.store.base import Compacted, Progress
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.checked_verbs import checks_arguments
from retinue.tools.start_options import Seconds, seconds

log = logging.getLogger("retinue.store")
AT_ONCE = 20  # trees that are looked for at a time


@checks_arguments
class Housekeeping:
    """The part of `Retinue` that looks after what is on record."""

    def __init__(self, engine: Engine, builtin_tools: BuiltinTools, retention: Retention) -> None:
        self._engine, self._builtin, self._retention = engine, builtin_tools, retention
        self._store, self._clock = engine.store, engine.clock
        self._keeping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _check_loop(self) -> None:
        check_loop(self._loop)

    async def _row(self, id: str) -> RunRecord:
        self._check_loop()
        run, spec = self._engine.on_record.get(id), self._engine.trees.spec(id)
        if run is not None and spec is not None:
            return RunRecord(spec, run)
        row = await self._store.row(id)
        if row is None:
            raise NotFound(f"Run {id!r} not found.", "run", id)
        return row

    async def _record(self, run: str, event: AnyEvent) -> None:
        """Record an event; what the machine refuses, because the run has moved on, is refused
        here."""
        self._check_loop()
        why = await self._engine.record(run, event)
        if why:
            raise Refused("state", why)

    async def forget(self, run: str) -> None:
        """Delete an ended root run, its conversation and everything below it, with its artifacts
        and the records of its commands."""
        await self._forget(run)
        await self._builtin.forget_runs(self._store.known)

    async def _forget(self, root: str) -> None:
        row = await self._row(root)
        if row.spec.parent:
            raise Refused(
                "root",
                f"{root} is a sub-agent. Call `forget()` on its root run, {row.spec.root}, "
                "instead.",
            )
        if self._is_live(root):
            raise Refused("open", f"{root} has open runs. Cancel it first.")
        await self._record("", Forgotten(root=root))

    def _is_live(self, root: str) -> bool:
        return self._engine.trees.is_open(root)

    async def tidy_up(self) -> int:
        """Forget now what the retention does not keep; returns how many trees that were."""
        retention = self._retention
        before = (
            None
            if retention.age_seconds is None
            else self._clock.now() - int(retention.age_seconds * 1000)
        )
        n = 0
        if before is not None or retention.count is not None:
            while n_gone := await self._forget_all(
                await self._store.expendable(before=before, beyond=retention.count, limit=AT_ONCE)
            ):
                n += n_gone
        if retention.size is not None:
            while n_gone := await self._forget_down_to(retention.size):
                n += n_gone
        if n:
            await self._builtin.forget_runs(self._store.known)
            await self._store.compact()
        return n

    async def _forget_down_to(self, size: int) -> int:
        n = 0
        if (await self._store.space()).used > size:
            for root in await self._store.expendable(beyond=0, limit=AT_ONCE):
                n += await self._forget_all([root])
                if (await self._store.space()).used <= size:
                    break
        return n

    async def _forget_all(self, roots: Iterable[str]) -> int:
        n = 0
        for root in roots:
            with contextlib.suppress(Refused, NotFound):  # it continues, or was deleted before
                while not self._is_live(root) and await self._store.thin(root):
                    pass
                await self._forget(root)
                n += 1
        return n

    def _begin_keeping(self) -> None:
        if self._retention.is_on:
            self._keeping = asyncio.get_running_loop().create_task(
                self._keep(), name="retinue retention"
            )

    async def _end_keeping(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            try:
                n = await self.tidy_up()
            except RetinueError as error:
                log.warning("cannot delete runs beyond the retention limits: %s", error)
            else:
                if n:
                    log.info("deleted %d runs beyond the retention limits", n)
            await asyncio.sleep(self._retention.every_seconds)

    def portal(self) -> Portal:
        """The way in from other threads: `retinue.portal().call(retinue.run, agent, task)`."""
        if self._loop is None:
            raise RetinueError("This runtime is not open. Write: async with Retinue(...).")
        return Portal(self._loop)

    async def compact(self, *, progress: Progress | None = None) -> Compacted:
        """Give what is free in the store's file back to the disk, while it is in use."""
        self._check_loop()
        return await self._store.compact(progress=progress)

    async def deliveries(
        self, *, state: DeliveryState | Sequence[DeliveryState] | None = None
    ) -> AsyncIterator[Delivery]:
        """Announcements and where they are, in these states or in all; `dead` ones can be sent
        again."""
        self._check_loop()
        states = (state,) if isinstance(state, str) else state or ()
        for wrong in set(states) - set(get_args(DeliveryState)):
            state_names = ", ".join(get_args(DeliveryState))
            raise ConfigError(
                f"deliveries(state={wrong!r}) is not a state. There are {state_names}."
            )
        for delivery in await self._store.deliveries(states):
            yield delivery

    async def redeliver(self, key: str) -> None:
        """Send a dead announcement again."""
        await self._record("", Requeued(key=key))

    async def drop_delivery(self, key: str) -> None:
        """Give up on an announcement."""
        await self._record("", Dropped(key=key))
        self._engine.performer.outbox.leave(key)

    async def settle(self, *runs: str, timeout: Seconds | None = None) -> bool:
        """Wait until nothing is left to do in the trees of these runs, or in any: all runs in them
        have ended, in the background too, and every announcement has arrived or is given up. What
        the runs before them in their conversations have left is part of it; who lives only for
        messages is not waited for. False when the time was not enough, or when the agent of a run
        is not registered here."""
        self._check_loop()
        of = [await self._conversation(run) for run in runs]
        with contextlib.suppress(TimeoutError), self._engine.bus.watch() as watcher:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                while not self._is_stuck(trees := self._trees_of(of)) and await self._go_on(
                    trees, watcher
                ):
                    pass
                await self._engine.caught_up()
        return not any(at_work(tree) or is_announcing(tree) for tree in self._trees_of(of))

    async def _conversation(self, run: str) -> tuple[str, str]:
        root = (await self._row(run)).spec.root
        return root, (await self._row(root)).spec.conversation

    def _trees_of(self, of: Sequence[tuple[str, str]]) -> list[Tree]:
        trees = self._engine.trees
        if not of:
            return list(trees.by_root.values())
        return [tree for root, conversation in of for tree in trees.up_to(root, conversation)]

    def _is_stuck(self, trees: Sequence[Tree]) -> bool:
        """Whether all that is left waits for an agent or a model that this program does not
        know."""
        ids = [id for tree in trees for id in at_work(tree)]
        return (
            bool(ids)
            and set(ids) <= set(self._engine.found.dormant)
            and not any(map(is_announcing, trees))
        )

    async def _go_on(self, trees: Sequence[Tree], watcher: Watcher) -> bool:
        """Wait until something has happened in them; whether there was anything left to wait
        for."""
        dormant = set(self._engine.found.dormant)
        ids = [id for tree in trees for id in at_work(tree) if id not in dormant]
        if not ids and not any(map(is_announcing, trees)):
            return False
        watcher.catch_up()
        ends = [self._engine.ended(id) for id in ids[:1]]
        awaited: list[asyncio.Future[Any]] = [asyncio.ensure_future(watcher.change()), *ends]
        try:
            finished, _ = await asyncio.wait(
                awaited, timeout=1.0, return_when=asyncio.FIRST_COMPLETED
            )
            for end in ends:
                if end in finished:
                    end.result()
            self._engine.check()
        finally:
            for future in awaited:
                future.cancel()
        return True

    async def backup(self, path: str | Path) -> None:
        """A consistent copy of the store, made while it is in use."""
        self._check_loop()
        await self._store.backup(str(path))

    async def verify(self) -> Sequence[str]:
        """Problems found in the store; empty if it is sound."""
        self._check_loop()
        return await self._store.verify()
