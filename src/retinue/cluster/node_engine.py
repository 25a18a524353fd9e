"""Replaces the engine on a node: sends events to the inbox of a tree, whichever node drives
it, and reads state from the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import psycopg

from retinue.cluster.node_notices import ANSWERED, ENDED
from retinue.cluster.node_store import NodeStore
from retinue.cluster.ownership import Ownership
from retinue.core.changes import Changes
from retinue.core.events import AnyEvent, Forgotten, LogEntry, Requested
from retinue.core.shared import Shared
from retinue.core.state import Ended
from retinue.core.trees import Trees
from retinue.core.values import Definition, ModelInfo
from retinue.errors import RetinueError, StoreError
from retinue.runtime import recover
from retinue.runtime.engine import Engine
from retinue.store.base import Store
from retinue.store.postgres.postgres_errors import store_error

log = logging.getLogger("retinue.cluster")

LOOK_SECONDS = 0.5
"""How often is looked for answers and ends that no notice has announced."""
ANSWER_SECONDS = 60.0
"""How long an event waits for the tree that it is for."""
MAYBE = "It is not known whether the event was kept."
NOT_OPEN = "{event} for {run}, which is not live"
UNANSWERED = (
    "No worker has taken the event within {seconds:.0f} s. It is kept and will be taken. Check"
    " `retinue cluster status`."
)


class NodeEngine(Engine):
    """`trees` are the trees that were looked at last, as they are on record."""

    ownership: Ownership
    record_store: NodeStore

    def __init__(self, store: Store, *ports: Any) -> None:
        super().__init__(store, *ports)
        self.ports = ports
        self.shared: Shared = self.trees.shared
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._unsaved = Changes()
        self._looks = asyncio.Event()
        self._published = 0
        self._follower: asyncio.Task[None] | None = None

    # life

    async def start(self) -> None:
        await self.know_agents()
        self._open = True
        self._follower = asyncio.create_task(self._follow(), name="retinue follows")

    async def stop(self) -> None:
        self._open = False
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        self._disappoint(RetinueError("The runtime was closed. Its runs continue on workers."))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RetinueError("The runtime was closed."))
                future.exception()
        await self.performer.outbox.close()
        self.performer.holdings.close()
        await self.store.close()

    async def know_agents(self) -> None:
        """Agents and models that other nodes have made known."""
        agents = await self.record_store.known_agents()
        for definition in agents.definitions:
            self.shared.definitions.setdefault(definition.name, definition)
        for model in agents.models:
            self.shared.models.setdefault(model.name, model)

    # what goes to a tree

    async def record(self, run: str, event: AnyEvent) -> str:
        self.check(run)
        event = self.without_secrets(event)
        if isinstance(event, Forgotten):
            await self.store.commit(Changes(forgotten=[event.root]))
            return ""
        await self._save_agents()
        root = await self._root_of(run, event)
        entry = LogEntry(run=run, at=self.clock.now(), event=event, tree=root)
        number = await self._put(root, entry) if root else None
        if number is None:
            return NOT_OPEN.format(event=type(event).__name__, run=run)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(asyncio.shield(future), ANSWER_SECONDS)
        except TimeoutError:
            raise StoreError(UNANSWERED.format(seconds=ANSWER_SECONDS)) from None
        finally:
            self._waiting.pop(number, None)

    async def _put(self, root: str, entry: LogEntry) -> int | None:
        try:
            return await self.ownership.put(root, entry)
        except (psycopg.Error, OSError) as error:
            raise store_error(error, self.record_store.database.url, MAYBE) from error

    async def _root_of(self, run: str, event: AnyEvent) -> str:
        if isinstance(event, Requested):
            return event.id
        if (key := getattr(event, "key", "")) and not run:
            return next((d.root for d in await self.store.deliveries() if d.key == key), "")
        row = await self.store.row(run)
        return "" if row is None else row.spec.root

    def post(self, run: str, event: AnyEvent) -> None:
        self.performer.later(self._post(run, event))

    async def _post(self, run: str, event: AnyEvent) -> None:
        with contextlib.suppress(RetinueError):
            await self.record(run, event)

    def register(self, definition: Definition, model: ModelInfo | None) -> None:
        if model is not None:
            self.describe(model)
        if self.shared.definitions.get(definition.name) != definition:
            self.shared.definitions[definition.name] = definition
            self._unsaved.definitions.append(definition)

    def describe(self, model: ModelInfo) -> None:
        if self.shared.models.get(model.name) != model:
            self.shared.models[model.name] = model
            self._unsaved.models.append(model)

    async def _save_agents(self) -> None:
        unsaved, self._unsaved = self._unsaved, Changes()
        if unsaved.definitions or unsaved.models:
            await self.store.commit(unsaved)

    # what is read

    async def look(self, run: str = "") -> None:
        """Read a run's tree as it is on record, or all that are open."""
        trees = Trees(self.shared.limits)
        trees.shared = self.shared
        root = ""
        if run:
            row = await self.store.row(run)
            root = run if row is None else row.spec.root
        snapshot = await self.record_store.snapshot(root)
        recover.rebuild(trees, snapshot)
        trees.find_successors()
        self.trees = trees

    async def caught_up(self) -> None:
        self.position = max(self.position, await self.record_store.position())

    def ended(self, id: str) -> asyncio.Future[None]:
        if not self._open:
            return super().ended(id)
        self._looks.set()
        return self.end_waiters.wait(id)

    # notices

    def notice(self, kind: str, names: list[str]) -> None:
        if kind == ANSWERED and any(int(n) in self._waiting for n in names):
            self._looks.set()
        elif kind == ENDED:
            for name in names:
                self.end_waiters.release(name)
            self._looks.set()

    async def _follow(self) -> None:
        """Answers, ends and steps, as they are found on record."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._looks.wait()
            self._looks.clear()
            try:
                await self._find_answers()
                await self._find_ends()
                await self._publish()
            except (StoreError, psycopg.Error, OSError) as error:
                log.info("cannot follow what happens: %s", error)

    async def _find_answers(self) -> None:
        if not self._waiting:
            return
        for number, why in await self.ownership.answers(list(self._waiting)):
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(why)

    async def _find_ends(self) -> None:
        for id in self.end_waiters.names:
            row = await self.store.row(id)
            if row is None or isinstance(row.run.state, Ended):
                self.end_waiters.release(id)

    async def _publish(self) -> None:
        """A client that watches has read the log up to a position that is behind this one."""
        if not self.bus.busy:
            self._published = await self.record_store.safe_position()
            return
        while page := await self.store.entries(self._published):
            for self._published, entry in page:
                self.position = max(self.position, self._published)
                self.bus.publish(self._published, [entry])
