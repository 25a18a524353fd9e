"""The loop: events from one queue go through the core, are committed together, published, and only then performed.

The engine remembers nothing about the domain: what it holds beside the roster are tasks, timers and cached messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from retinue.channels.base import Channel
from retinue.core import machine
from retinue.core.events import AnyEvent, Closed, Described, Opened, Recovered, Registered, Woke
from retinue.core.orders import Spec
from retinue.core.roster import Changes, Roster
from retinue.core.secrets import Redactor
from retinue.core.state import Ended, Run, Thinking, Working
from retinue.core.values import Definition, ModelInfo, Rules
from retinue.errors import RetinueError, StoreError, StoreFull
from retinue.models.base import Model
from retinue.runtime import recover
from retinue.runtime.bus import Bus
from retinue.runtime.clock import Clock
from retinue.runtime.perform import Performer, Tools
from retinue.runtime.redact import clean_event
from retinue.runtime.timers import Timers
from retinue.store.base import Store

log = logging.getLogger("retinue")
T = TypeVar("T")
E = TypeVar("E", bound=AnyEvent)

MAX_BATCH = 2_000
TRIAL_SECONDS = 2.0
FULL_RETRY_SECONDS = (0.05, 0.2, 1.0, 5.0)


class Engine:
    """One runtime on one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tools: Tools,
        models: Mapping[str, Model],
        channels: Mapping[str, Channel],
        rules: Rules,
        home: str = "",
        redactor: Redactor | None = None,
    ) -> None:
        self.store, self.clock, self.bus = store, clock, Bus()
        self.roster = Roster(rules)
        self.models = models
        self.redactor = redactor
        self.trouble = ""
        self._tools = tools
        self._queue: deque[tuple[str, AnyEvent, asyncio.Future[str] | None]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ended: dict[str, set[asyncio.Future[None]]] = {}
        self._dormant: dict[str, tuple[Spec, Run]] = {}
        self._open = self._clean = False
        self._on_trial = ""
        self._waiting: list[tuple[asyncio.Future[str], str]] = []
        self._seq = 0
        self._failure: BaseException | None = None
        self.timers = Timers(clock.now, self._wanted, lambda id: self.post(id, Woke()))
        self.performer = Performer(self, tools, models, channels, home)

    # life

    async def start(self) -> None:
        """Take the store over and put the roster together; `recover` then tells the runs."""
        epoch = await self.store.open()
        snapshot = await self.store.load()
        self._seq = snapshot.last_seq
        last = await self.store.entries(snapshot.last_seq - 1, limit=1)
        self._clean = bool(last) and isinstance(last[0][1].event, Closed)
        self._open = True
        rules = self.roster.rules
        order = recover.rebuild(self.roster, snapshot)
        self._dormant = {id: (self.roster.specs[id], self.roster.runs[id]) for id in order}
        for id in order:
            self.timers.set(id, self.roster.runs[id].wake_at)
        self._task = asyncio.get_running_loop().create_task(self._loop(), name="retinue engine")
        self.post("", Opened(epoch=epoch, rules=rules))
        for delivery in snapshot.deliveries:
            if delivery.state in ("pending", "sent"):
                self.performer.deliver_at(delivery.key, delivery.next_at)

    async def stop(self) -> None:
        """Stop at once: what is recorded stays, what is under way is taken up by the next start."""
        tasks = [t for t in (self._task, *self.performer.tasks()) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.timers.close()
        self._disappoint(RetinueError("the runtime was closed; what is on record goes on at its next start"))
        if self._open and self._failure is None:
            machine.apply(self.roster, "", self.clock.now(), Closed())
            with contextlib.suppress(StoreError):
                await self.store.commit(self.roster.take_changes())
        self._open = False
        await self.performer.outbox.close()
        await self.store.close()

    # what the doors use

    def post(self, run: str, event: AnyEvent) -> None:
        """Put an event on the queue. Safe to call from the loop's thread only."""
        self._queue.append((run, self.without_secrets(event), None))
        self._wake.set()

    def without_secrets(self, event: E) -> E:
        """Nothing secret gets past here. What is in no event is on no record, in no transcript and on no channel."""
        return event if self.redactor is None else clean_event(self.redactor, event)

    async def record(self, run: str, event: AnyEvent) -> str:
        """Post an event and wait until its step is committed; returns why it was refused, or ""."""
        if self._failure is not None:
            raise StoreError(f"the runtime has stopped: {self._failure}") from self._failure
        if not self._open:
            raise RetinueError("the runtime is not open: use it inside `async with Retinue(...)`")
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append((run, self.without_secrets(event), done))
        self._wake.set()
        return await done

    def is_used(self, place: str) -> bool:
        """Whether a live run works in a directory or below it."""
        below = f"{place.rstrip('/')}/"
        return any(f"{self.roster.specs[id].order.cwd}/".startswith(below) for id in self.roster.runs)

    def register(self, definition: Definition, model: ModelInfo | None) -> None:
        """Make an agent known. Runs that waited for it since the last start are taken up."""
        if model is not None:
            self.describe(model)
        definition = self.without_secrets(Registered(definition=definition)).definition
        if self.roster.definitions.get(definition.name) != definition:
            self.roster.definitions[definition.name] = definition
            self.post("", Registered(definition=definition))

    def describe(self, model: ModelInfo) -> None:
        """Make a model's facts known."""
        if self.roster.models.get(model.name) != model:
            self.roster.models[model.name] = model
            self.post("", Described(model=model))

    async def take_up(self) -> None:
        """Tell every open run that can go on in this process that it was found.

        Runs that have been in flight at nearly too many deaths are taken up one at a time, each when the one before it
        has moved on or has lived for a while: so the one that kills us is told from those that only stood beside it.
        """
        ready = [(s, r) for s, r in self._dormant.values() if s.model in self.models and s.order.agent in self._tools]
        for spec, run in ready:
            if self._is_suspect(run):
                if self._on_trial:
                    continue
                self._on_trial = spec.id
                asyncio.get_running_loop().call_later(TRIAL_SECONDS, self._acquit, spec.id)
            del self._dormant[spec.id]
            if spec.id not in self.roster.runs:
                continue
            calls = await recover.open_calls(spec, run, self.store.messages, self._tools.restart_class)
            epoch, clean = self.roster.epoch, self._clean
            found = Recovered(epoch=epoch, turn=run.turn, attempt=run.attempt, clean=clean, calls=calls)
            self.post(spec.id, found)
        self.performer.unpark()

    def _is_suspect(self, run: Run) -> bool:
        most = self.roster.rules.max_deaths
        in_flight = isinstance(run.state, (Thinking, Working))
        return in_flight and not self._clean and run.deaths >= max(1, most - 2)

    def _acquit(self, id: str) -> None:
        """The run on trial has moved on, ended, or lived for a while: the next one may be taken up."""
        if self._open and self._on_trial == id:
            self._on_trial = ""
            self.performer.later(self.take_up())

    @property
    def dormant(self) -> tuple[str, ...]:
        """Open runs whose agent or model this program has not named yet."""
        return tuple(self._dormant)

    def ended(self, id: str) -> asyncio.Future[None]:
        """Resolved when the live run `id` has ended and its end is committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(StoreError(f"the runtime has stopped: {self._failure}"))
            return future
        self._ended.setdefault(id, set()).add(future)
        future.add_done_callback(lambda done: self._waited(id, done))
        return future

    def _waited(self, id: str, future: asyncio.Future[None]) -> None:
        waiters = self._ended.get(id)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._ended[id]

    # the loop

    async def _loop(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await self._batch()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    async def _batch(self) -> None:
        """One group commit: as many events as are there, one transaction, then their consequences."""
        queue, roster, now = self._queue, self.roster, self.clock.now()
        waiting = self._waiting
        n = 0
        while queue and n < MAX_BATCH:
            run, event, done = queue.popleft()
            first = len(roster.changes.entries)
            machine.apply(roster, run, now, event)
            n += 1
            if done is not None:
                waiting.append((done, roster.changes.entries[first].stale))
        changes = roster.take_changes()
        seq = await self.with_space(lambda: self.store.commit(changes))
        self._after(changes, seq)
        for done, stale in waiting:
            if not done.done():
                done.set_result(stale)
        waiting.clear()

    async def with_space(self, write: Callable[[], Awaitable[T]]) -> T:
        """A full disk parks whoever writes until there is space again: nothing is performed, nothing is lost."""
        tries = 0
        while True:
            try:
                written = await write()
            except StoreFull as error:
                self.trouble = str(error)
                log.error("nothing can be written; waiting: %s", error)
                await asyncio.sleep(FULL_RETRY_SECONDS[min(tries, len(FULL_RETRY_SECONDS) - 1)])
                tries += 1
            else:
                self.trouble = ""
                return written

    def _after(self, changes: Changes, seq: int) -> None:
        performer = self.performer
        for spec in changes.specs:
            performer.conversations.begin(spec)
        for conversation, n, message in changes.messages:
            performer.conversations.heard(conversation, n, message)
        for id, run in changes.runs.items():
            if isinstance(run.state, Ended):
                self._over(id, run)
            else:
                self.timers.set(id, run.wake_at)
        first, self._seq = seq - len(changes.entries) + 1, seq
        if self.bus.busy:
            self.bus.publish(first, changes.entries)
        for effect in changes.effects:
            performer.perform(effect)
        tried = changes.runs.get(self._on_trial) if self._on_trial else None
        if tried is not None and (not tried.deaths or isinstance(tried.state, Ended)):
            self._acquit(tried.id)

    def _over(self, id: str, run: Run) -> None:
        for waiter in self._ended.pop(id, ()):
            if not waiter.done():
                waiter.set_result(None)
        self.performer.over(id)

    def _wanted(self, id: str) -> int | None:
        run = self.roster.runs.get(id)
        return None if run is None else run.wake_at

    def _fail(self, error: BaseException) -> None:
        """The store is gone, or we have a bug: stop as if killed. The next start goes on from the log."""
        log.critical("the runtime stops: %s", error, exc_info=error)
        self._failure = error
        self.trouble = str(error)
        for task in self.performer.tasks():
            task.cancel()
        self._disappoint(StoreError(f"the runtime has stopped: {error}"))

    def _disappoint(self, error: RetinueError) -> None:
        """Nobody waits for what will not come."""
        waiters: list[asyncio.Future[Any]] = [w for waiting in self._ended.values() for w in waiting]
        waiters += [done for done, _ in self._waiting]
        waiters += [done for _, _, done in self._queue if done is not None]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()
