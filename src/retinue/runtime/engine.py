"""The event loop of a runtime: events from one queue go through the core, are committed together,
published, and only then performed.

While one batch is written the next one is stepped, so that in memory the trees are ahead of the
record; what is shown and performed follows the record. The engine remembers nothing about the
domain: what it holds beside the trees are tasks, timers and cached messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from retinue.channels.base import Channel
from retinue.core.changes import Changes
from retinue.core.events import (
    AgentRegistered,
    AnyEvent,
    Closed,
    LogEntry,
    ModelRegistered,
    Opened,
    Woke,
)
from retinue.core.redaction import Redactor
from retinue.core.restarts import waiting_for_provider
from retinue.core.state import Ended, Run
from retinue.core.trees import MANY, Trees
from retinue.core.values import Definition, Limits, ModelInfo
from retinue.errors import Defect, RetinueError, StoreError
from retinue.models.base import Model
from retinue.runtime import recover, set_aside
from retinue.runtime.bus import Bus
from retinue.runtime.clock import Clock
from retinue.runtime.commits import CommitBatch, Commits, Waiter
from retinue.runtime.end_waiters import EndWaiters
from retinue.runtime.found_runs import FoundRuns
from retinue.runtime.performer import Performer
from retinue.runtime.secret_filter import clean_event
from retinue.runtime.timers import Timers
from retinue.runtime.tool_runner import ToolRunner
from retinue.sandbox.private_paths import NOTHING, Private
from retinue.store.base import Store

log = logging.getLogger("retinue.runs")
E = TypeVar("E", bound=AnyEvent)

MAX_STEPS = 250
"""How much is done between two turns of the event loop: steps, with the news for other runs, and
effects. With 20 to 40 µs for each, and as much again for the tasks that are begun, others wait 20
ms."""
MAX_MS = 20
LOOK_EVERY = 16
"""Or for so long, if steps or quick tools take longer: the clock is looked at after so many."""
MAX_UNWRITTEN = 4_000
"""So many steps are taken ahead of the store, no more."""
FEW_EFFECTS = 64
"""If a batch asks for no more than that, they are started before the next batch is given to the
store: this takes less time than a commit, and immediate answers need not wait for another
commit."""
TURNS = 2
"""The turns of the event loop that effects get to answer immediately, before the next batch is
given to the store."""


class Engine:
    """One runtime on one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tools: ToolRunner,
        models: Mapping[str, Model],
        channels: Mapping[str, Channel],
        limits: Limits,
        home: str = "",
        redactor: Redactor | None = None,
        private: Private = NOTHING,
    ) -> None:
        self.store, self.clock, self.bus = store, clock, Bus()
        self.trees = Trees(limits)
        self.models = models
        self.redactor, self.private = Redactor() if redactor is None else redactor, private
        self.on_record: dict[str, Run] = {}
        """The live runs as the store has them: what people are shown. In memory they may be a step
        ahead."""
        self._tools = tools
        self._queue: deque[tuple[str, AnyEvent | None, asyncio.Future[str] | None]] = deque()
        self._wake = asyncio.Event()
        self.commits = Commits(store, self._wake.set)
        self.roots: dict[str, str] = {}
        self._n_unwritten = self._n_done = 0
        self.task: asyncio.Task[None] | None = None
        self.end_waiters = EndWaiters()
        self._open = self._is_performing = False
        self.aside: dict[str, Defect] = {}
        self.waiting: list[Waiter] = []
        self.position = 0
        self._failure: BaseException | None = None
        self.timers = Timers(clock.now, self._wanted, lambda id: self.post(id, Woke()))
        self.home = home
        self.performer = Performer(self, tools, models, channels, home)
        self.found = FoundRuns(self, tools, {}, 0, clean=True)

    # life

    async def start(self) -> None:
        """Take the store over and put the trees together; `take_up` then tells the runs."""
        epoch = await self.store.open()
        snapshot = await self.store.load()
        self.position = snapshot.last_seq
        is_clean = await self._was_closed(snapshot.last_seq)
        self._open = True
        limits = self.trees.shared.limits
        open_ids = recover.rebuild(self.trees, snapshot)
        rows = {spec.id: (spec, run) for spec, run in self.trees.live()}
        self.found = FoundRuns(
            self, self._tools, {id: rows[id] for id in open_ids}, epoch, clean=is_clean
        )
        for id, (spec, run) in rows.items():
            self.on_record[id], self.roots[id] = run, spec.root
            self.timers.set(id, run.wake_at)
        self.task = asyncio.get_running_loop().create_task(self._loop(), name="retinue engine")
        self.post("", Opened(epoch=epoch, limits=limits))
        for delivery in snapshot.deliveries:
            if delivery.state in ("pending", "sent"):
                self.performer.deliver_at(delivery.key, delivery.next_at)

    async def _was_closed(self, last: int) -> bool:
        """Whether the process before this one has let go of the store in good order."""
        rows = await self.store.entries(last - 1, limit=1)
        return bool(rows) and isinstance(rows[0][1].event, Closed)

    async def look(self, run: str = "") -> None:
        """Called before the tree of a run, or all of them, are read: here they are in memory."""

    async def stop(self) -> None:
        """Stop immediately. What is recorded stays; the next start resumes the rest."""
        tasks = [t for t in (self.task, *self.performer.tasks()) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.timers.close()
        if self._open:
            await self._say_goodbye()
        self._open = False
        self._disappoint(
            RetinueError("The runtime was closed. Recorded runs continue at its next start.")
        )
        await self.performer.outbox.close()
        self.performer.holdings.close()
        await self.store.close()

    async def _say_goodbye(self) -> None:
        """The last commit. Steps that were not yet given to the store are in it, if everything
        before them is recorded; after a failure it is written alone: something is lost then, but no
        run has crashed this process."""
        last = CommitBatch(Changes(), [])
        if await self.commits.finish() and self._failure is None:
            while not self.trees.is_settled:
                self.trees.go_on(MANY)
                set_aside.set_aside_failed(self)
            last = CommitBatch(self.trees.take_changes(), self.waiting)
        last.changes.entries.append(LogEntry(run="", at=self.clock.now(), event=Closed()))
        with contextlib.suppress(StoreError):
            await self.store.commit(last.changes)
            last.release()

    @property
    def trouble(self) -> str:
        """Why runs are stalled, "" if they are not."""
        return self.commits.trouble if self._failure is None else str(self._failure)

    # what the API uses

    def post(self, run: str, event: AnyEvent) -> None:
        """Put an event on the queue. Safe to call from the loop's thread only."""
        if self.redactor.knows:
            event = clean_event(self.redactor, event)
        self._queue.append((run, event, None))
        self._wake.set()

    def without_secrets(self, event: E) -> E:
        """Nothing secret gets past here. What is in no event is on no record, in no transcript and
        on no channel."""
        return clean_event(self.redactor, event) if self.redactor else event

    def post_and_wait(self, run: str, event: AnyEvent) -> asyncio.Future[str]:
        """The same; resolved when its step is committed, with why it was refused, or ""."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append((run, self.without_secrets(event), future))
        self._wake.set()
        return future

    async def record(self, run: str, event: AnyEvent) -> str:
        """Post an event and wait until its step is committed; returns why it was refused, or ""."""
        self.check(run)
        return await self.post_and_wait(run, event)

    def check(self, run: str = "") -> None:
        """Raise if the engine has stopped, and `Defect` if the run's tree was set aside."""
        if self._failure is not None:
            raise StoreError(f"The runtime has stopped: {self._failure}") from self._failure
        if not self._open:
            raise RetinueError("The runtime is not open. Use it inside `async with Retinue(...)`.")
        if run in self.aside:
            raise self.aside[run]

    async def caught_up(self) -> None:
        """Wait until everything that is decided by now is on record, and so in `on_record`."""
        is_ahead = (
            self._queue or self.trees.has_changes or self.commits.under_way or self._is_performing
        )
        if self._open and self._failure is None and is_ahead:
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._queue.append(("", None, future))
            self._wake.set()
            await future

    def is_unsent(self, id: str, attempt: int) -> bool:
        """Whether it is known that a model call of a live run has not left, in this process or one
        before it."""
        run = self.on_record.get(id) or self.trees.run(id)
        return run is not None and self.store.sent.is_unsent(id, run.epoch, attempt)

    def is_used(self, place: str) -> bool:
        """Whether a live run works in a directory or below it."""
        below = f"{place.rstrip('/')}/"
        return any(f"{spec.request.cwd}/".startswith(below) for spec, _ in self.trees.live())

    def waiting_for_provider(self, root: str = "") -> list[str]:
        """The runs that wait for their provider, all of them or those of one tree."""
        trees = [self.trees.by_root.get(root)] if root else list(self.trees.by_root.values())
        return [id for tree in trees if tree is not None for id in waiting_for_provider(tree)]

    def register(self, definition: Definition, model: ModelInfo | None) -> None:
        """Make an agent known. Runs that waited for it since the last start are resumed."""
        if model is not None:
            self.describe(model)
        definition = self.without_secrets(AgentRegistered(definition=definition)).definition
        definitions = self.trees.shared.definitions
        if definitions.get(definition.name) != definition:
            definitions[definition.name] = definition
            self.post("", AgentRegistered(definition=definition))

    def describe(self, model: ModelInfo) -> None:
        """Make a model's facts known."""
        if self.trees.shared.models.get(model.name) != model:
            self.trees.shared.models[model.name] = model
            self.post("", ModelRegistered(model=model))

    def ended(self, id: str) -> asyncio.Future[None]:
        """Resolved when the live run `id` has ended and its end is committed."""
        why = self._failure
        error = self.aside.get(id) if why is None else StoreError(f"The runtime has stopped: {why}")
        if error is None:
            return self.end_waiters.wait(id)
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(error)
        return refused

    # the loop

    async def _loop(self) -> None:
        try:
            while True:
                while await self._go_on():
                    pass
                # Whatever woke it is done: nothing has come, and nothing was waited for, since.
                self._wake.clear()
                await self._wake.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    async def _go_on(self) -> bool:
        """Recorded effects are performed, arrived events are stepped, and steps are given to the
        store as soon as it is free. Returns whether there is anything more to do."""
        batch = self.commits.take()
        if batch is not None:
            if len(batch.changes.effects) > FEW_EFFECTS:
                self._write()
            await self._after(batch)
            for _ in range(TURNS if batch.task is not None else 0):
                await asyncio.sleep(0)
        if self._can_step():
            self._step()
        self._write()
        if self._n_done >= MAX_STEPS:
            await self._breathe()
        return self.commits.has_arrived or self._can_step()

    def _can_step(self) -> bool:
        """Whether something has come that may be stepped, or news is left of what was."""
        if self.trees.unsettled:
            return True
        return bool(self._queue) and self._n_unwritten < MAX_UNWRITTEN

    async def _breathe(self) -> None:
        """Enough was done: others have their turn."""
        self._n_done = 0
        await asyncio.sleep(0)

    def _step(self) -> None:
        """Some steps. An event and the news that it causes are one transaction, however long."""
        queue, trees, now = self._queue, self.trees, self.clock.now()
        n, look = 0, LOOK_EVERY
        while n < MAX_STEPS:
            if trees.unsettled:
                n += trees.go_on(min(MAX_STEPS, look) - n)
            elif queue:
                n += 1
                run, event, future = queue.popleft()
                if future is None and event is not None:
                    trees.begin(run, now, event)
                else:
                    self._take(run, event, future, now)
            else:
                break
            if trees.failed:
                set_aside.set_aside_failed(self)
            if n >= look:
                look = n + LOOK_EVERY
                if self.clock.now() - now > MAX_MS:
                    self._n_done = MAX_STEPS
                    break
        self._n_done += n
        self._n_unwritten = self._n_unwritten + n if trees.has_changes else 0

    def _take(
        self, run: str, event: AnyEvent | None, future: asyncio.Future[str] | None, now: int
    ) -> None:
        trees = self.trees
        if event is None or future is None:
            self._let_catch_up(future)
        else:
            root = trees.root_of(run, event)
            self.waiting.append((future, trees.begin(run, now, event), root))

    def _let_catch_up(self, future: asyncio.Future[str] | None) -> None:
        """A task waits until everything up to here is recorded."""
        if future is None or future.done():
            return
        if self.trees.has_changes:
            self.waiting.append((future, "", ""))
        elif self.commits.under_way is not None:
            self.commits.under_way.waiting.append((future, "", ""))
        else:
            future.set_result("")

    def _write(self) -> bool:
        """One group commit: as much as was stepped while the one before it was written. Whether
        there was one."""
        trees = self.trees
        if self.commits.under_way is None and trees.has_changes and trees.is_settled:
            changes = trees.take_changes()
            waiting, self.waiting, self._n_unwritten = self.waiting, [], 0
            self.commits.begin(changes, waiting)
            return True
        return False

    async def _after(self, batch: CommitBatch) -> None:
        """The batch is on record: what is shown follows, and what it asks for is begun."""
        self._is_performing = True
        try:
            changes = (
                set_aside.without_set_aside(self, batch.changes) if self.aside else batch.changes
            )
            await self._show(changes)
            first, self.position = batch.seq - len(changes.entries) + 1, batch.seq
            if self.bus.busy:
                self.bus.publish(first, changes.entries)
            perform, began = self.performer.perform, self.clock.now()
            for effect in changes.effects:
                self._n_done += 1
                if self._n_done >= MAX_STEPS or self._is_late(began):
                    await self._breathe()
                    began = self.clock.now()
                if self.aside and set_aside.is_set_aside(self, effect):
                    continue
                try:
                    perform(effect)
                except Exception as error:
                    self.trees.failed.append((set_aside.root_of(self, effect), error))
                    set_aside.set_aside_failed(self)
            self.found.saw(changes.runs)
            while len(batch.waiting) > MAX_STEPS:
                batch.release(MAX_STEPS)
                await self._breathe()
        finally:
            self._is_performing = False
            batch.release()

    def _is_late(self, began: int) -> bool:
        return not self._n_done % LOOK_EVERY and self.clock.now() - began > MAX_MS

    async def _show(self, changes: Changes) -> None:
        conversations = self.performer.conversations
        for spec in changes.specs:
            self.roots[spec.id] = spec.root
            conversations.begin(spec)
        conversations.add(changes.messages)
        for id, run in changes.runs.items():
            if isinstance(run.state, Ended):
                self._n_done += 1
                if self._n_done >= MAX_STEPS:
                    await self._breathe()
                self._over(id)
            else:
                self.on_record[id] = run
                self.timers.set(id, run.wake_at)

    def _over(self, id: str) -> None:
        self.on_record.pop(id, None)
        self.roots.pop(id, None)
        self.timers.drop(id)
        self.store.sent.drop(id)
        self.end_waiters.release(id)
        self.performer.over(id)

    def _wanted(self, id: str) -> int | None:
        run = self.trees.run(id)
        return None if run is None else run.wake_at

    def _fail(self, error: BaseException) -> None:
        """The store is gone, or we have a bug: stop as if killed. The next start continues from the
        log."""
        log.critical("the runtime stops: %s", error, exc_info=error)
        self._failure = error
        self.performer.stop()
        self._disappoint(StoreError(f"The runtime has stopped: {error}"))

    def _disappoint(self, error: RetinueError) -> None:
        """No task waits for what will not come."""
        waiters: list[asyncio.Future[Any]] = [*self.end_waiters]
        waiters += [future for future, _, _ in self.waiting] + [
            future for _, _, future in self._queue if future is not None
        ]
        if self.commits.under_way is not None:
            waiters += [future for future, _, _ in self.commits.under_way.waiting]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()
