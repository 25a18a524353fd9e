"""The writer's thread, which shares its transactions among all who wait."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from retinue.errors import StoreError
from retinue.store.sqlite import quick_turns
from retinue.store.sqlite.tables import RowBatch
from retinue.store.sqlite.writer import SqliteWriter

MOST_COMMITS = 1_000
T = TypeVar("T")


@dataclass(slots=True)
class PendingCommit:
    """A commit that waits; `encode` makes its rows, here. `era` counts the failures that its caller
    knew of."""

    encode: Callable[[], RowBatch]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[int]
    era: int


@dataclass(slots=True)
class Act:
    """Something else that the writer does between two commits."""

    do: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class CommitGroup:
    """Commits that wait at the same time share one transaction, and its fsync.

    When one fails, all that were sent behind it fail too, until their callers know of the failure:
    otherwise a later batch could be written before an earlier one that is tried again. One that
    cannot be put into rows is refused alone."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._queue: SimpleQueue[PendingCommit | Act | None] = SimpleQueue()
        self._era = 0
        quick_turns.begin()
        self._thread = Thread(target=self._work, name="retinue-store-writer", daemon=True)
        self._thread.start()

    async def commit(self, encode: Callable[[], RowBatch]) -> int:
        loop = asyncio.get_running_loop()
        job = PendingCommit(encode, loop, loop.create_future(), self._era)
        self._queue.put(job)
        return await job.future

    async def do(self, act: Callable[[], T]) -> T:
        """Something short, in the writer's thread, behind the commits that wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(Act(act, loop, future))
        return await future

    def stop(self) -> None:
        """Finish what waits, then end the thread. Blocks. Later commits get the error."""
        self._queue.put(None)
        self._thread.join()
        quick_turns.end()
        with contextlib.suppress(Empty):
            while True:
                late = self._queue.get_nowait()
                if late is not None:
                    with contextlib.suppress(RuntimeError):
                        late.loop.call_soon_threadsafe(_refuse, late.future)

    def _work(self) -> None:
        era, failure = 0, StoreError("The batch was not reached.")
        stop = False
        while not stop:
            jobs, acts, stop = self._next()
            outcomes: list[int | StoreError] = [failure] * len(jobs)
            good: list[int] = []
            batches: list[RowBatch] = []
            for n, job in enumerate(jobs):
                if job.era == era:
                    try:
                        batches.append(job.encode())
                        good.append(n)
                    except StoreError as error:
                        outcomes[n] = error
                    except Exception as error:
                        outcomes[n] = StoreError(
                            f"Cannot convert a batch to rows ({error!r}). This batch was not saved."
                        )
            try:
                for n, last in zip(
                    good, self._writer.write(batches) if batches else (), strict=True
                ):
                    outcomes[n] = last
            except StoreError as error:
                era, failure = era + 1, error
                for n in good:
                    outcomes[n] = failure
            self._report(jobs, outcomes, era)
            if not stop:
                self._writer.tidy()
            for act in acts:
                self._perform(act)

    def _next(self) -> tuple[list[PendingCommit], list[Act], bool]:
        job = self._queue.get()
        jobs: list[PendingCommit] = []
        acts: list[Act] = []
        while job is not None:
            if isinstance(job, Act):
                acts.append(job)
            else:
                jobs.append(job)
            if len(jobs) + len(acts) == MOST_COMMITS:
                return jobs, acts, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, acts, False
        return jobs, acts, True

    def _perform(self, act: Act) -> None:
        def resolve(value: Any, error: Exception | None) -> None:
            if act.future.done():
                return
            if error is None:
                act.future.set_result(value)
            else:
                act.future.set_exception(error)

        value, failed = None, None
        try:
            value = act.do()
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):
            act.loop.call_soon_threadsafe(resolve, value, failed)

    def _report(
        self, jobs: list[PendingCommit], outcomes: list[int | StoreError], era: int
    ) -> None:
        """One call into each loop that has someone waiting."""
        loops: dict[
            asyncio.AbstractEventLoop, list[tuple[asyncio.Future[int], int | StoreError]]
        ] = {}
        for job, outcome in zip(jobs, outcomes, strict=True):
            loops.setdefault(job.loop, []).append((job.future, outcome))
        for loop, tickets in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits
                loop.call_soon_threadsafe(self._take_report, tickets, era)

    def _take_report(
        self, outcomes: list[tuple[asyncio.Future[int], int | StoreError]], era: int
    ) -> None:
        self._era = max(self._era, era)
        for future, outcome in outcomes:
            if future.done():
                continue
            if isinstance(outcome, StoreError):
                future.set_exception(copy.copy(outcome))
            else:
                future.set_result(outcome)


def _refuse(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(StoreError("The store was closed. This batch was not saved."))
