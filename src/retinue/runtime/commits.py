"""Writes steps to the store: one batch at a time, in order, while the engine continues with the
next one. No effect of a batch is performed, and no waiter is notified, before the batch is
recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from retinue.core.changes import Changes
from retinue.core.state import Run
from retinue.errors import StoreFull
from retinue.store.base import Store

log = logging.getLogger("retinue.store")
T = TypeVar("T")

Waiter = tuple[asyncio.Future[str], str, str]
"""Who waits for a step: until it is on record, with why it was refused, and the root of its
tree."""

FULL_RETRY_SECONDS = (0.05, 0.2, 1.0, 5.0)
FINISH_SECONDS = 30.0


class CommitBatch:
    """Steps that were given to the store together, by a task if the store has to be waited for.
    `seq` is the position of its last event, once it is on record."""

    __slots__ = ("changes", "seq", "task", "waiting")

    def __init__(self, changes: Changes, waiting: list[Waiter]) -> None:
        self.changes, self.waiting = changes, waiting
        self.seq = 0
        self.task: asyncio.Task[int] | None = None

    def release(self, most: int | None = None) -> None:
        """The batch is recorded: the waiters for its steps continue, or as many of them as
        given."""
        batch, self.waiting = self.waiting[:most], self.waiting[most:] if most else []
        for future, stale, _ in batch:
            if not future.done():
                future.set_result(stale)


class Commits:
    """At most one batch is on its way. `wake` is called when it has arrived, or cannot."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store, self._wake = store, wake
        self.under_way: CommitBatch | None = None
        self.trouble = ""

    def begin(self, changes: Changes, waiting: list[Waiter]) -> None:
        """Hand a batch over. With a store that need not wait it is on record when this returns."""
        assert self.under_way is None, "one batch at a time"
        batch = self.under_way = CommitBatch(changes, waiting)
        work = self.with_space(lambda: self._store.commit(changes))
        try:
            first = work.send(None)
        except StopIteration as end:
            batch.seq = end.value
        else:
            batch.task = asyncio.get_running_loop().create_task(
                _rest(work, first), name="retinue commit"
            )
            batch.task.add_done_callback(lambda _: self._wake())

    @property
    def has_arrived(self) -> bool:
        """Whether there is something to `take`."""
        batch = self.under_way
        return batch is not None and (batch.task is None or batch.task.done())

    def take(self) -> CommitBatch | None:
        """The batch that has arrived, if there is one. Raises what the store says when it
        cannot."""
        batch = self.under_way
        if batch is None or (batch.task is not None and not batch.task.done()):
            return None
        if batch.task is not None:
            batch.seq = batch.task.result()
        self.under_way = None
        return batch

    def run(self, id: str) -> Run | None:
        """A run as it is being written."""
        return None if self.under_way is None else self.under_way.changes.runs.get(id)

    async def finish(self) -> bool:
        """Nothing more comes. Whether everything that was given to the store is recorded; a batch
        that waits for space never is, nor one that the store does not answer for
        `FINISH_SECONDS`."""
        batch = self.under_way
        if batch is None:
            return True
        if batch.task is not None:
            if not self.trouble:
                await asyncio.wait((batch.task,), timeout=FINISH_SECONDS)
            batch.task.cancel()
            await asyncio.wait((batch.task,))
            if batch.task.cancelled() or batch.task.exception() is not None:
                return False
        self.under_way = None
        batch.release()
        return True

    async def with_space(self, write: Callable[[], Awaitable[T]]) -> T:
        """A full disk pauses all writers until there is space again: nothing is performed, nothing
        is lost."""
        tries = 0
        while True:
            try:
                is_written = await write()
            except StoreFull as error:
                self.trouble = str(error)
                log.error("cannot write to the store; retrying: %s", error)
                await asyncio.sleep(FULL_RETRY_SECONDS[min(tries, len(FULL_RETRY_SECONDS) - 1)])
                tries += 1
            else:
                self.trouble = ""
                return is_written


class _Begun:
    """A coroutine that has run until its first wait, to be awaited from there on. (A task is begun
    in the next turn of the loop; most batches of a store in memory need none.)"""

    def __init__(self, work: Coroutine[Any, Any, T], first: Any) -> None:
        self._work, self._first = work, first

    def __await__(self) -> Generator[Any, Any, Any]:
        work, waits_for = self._work, self._first
        while True:
            try:
                try:
                    value = yield waits_for
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(value)
            except StopIteration as end:
                return end.value


async def _rest(work: Coroutine[Any, Any, int], first: Any) -> int:
    seq: int = await _Begun(work, first)
    return seq
