"""The writer thread of a store, which groups waiting commits into one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

from retinue.errors import StoreError
from retinue.store import quick_turns

MOST_COMMITS = 1_000
T = TypeVar("T")
B = TypeVar("B")


class BatchWriter(Protocol[B]):
    """What the thread works for."""

    def write(self, batches: list[B]) -> Sequence[int | StoreError]:
        """In one transaction: the position of the last event of each, or why it was refused. Raises
        `StoreError` if nothing was written."""

    def tidy(self) -> None:
        """Something short that no one waits for."""


@dataclass(slots=True)
class CommitLine:
    """Commits that build on each other: when one fails, all that were sent behind it fail too,
    until their caller knows of the failure. Otherwise a later one could be written before an
    earlier one that is tried again. `era` counts the failures, `known` those that their caller
    knows of."""

    era: int = 0
    known: int = 0
    failure: StoreError = field(
        default_factory=lambda: StoreError("This batch was not reached. It was not saved.")
    )


@dataclass(slots=True)
class PendingCommit(Generic[B]):
    """A commit that waits; `encode` makes its rows, here. `era` counts the failures of its line
    that its caller knew of."""

    encode: Callable[[], B]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[int]
    line: CommitLine
    era: int


@dataclass(slots=True)
class Act:
    """Something else that the writer does between two commits."""

    do: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class CommitGroup(Generic[B]):
    """Commits that wait at the same time share one transaction, and its fsync. One that cannot be
    put into rows is refused alone."""

    def __init__(self, writer: BatchWriter[B]) -> None:
        self._writer = writer
        self._queue: SimpleQueue[PendingCommit[B] | Act | None] = SimpleQueue()
        self._line = CommitLine()
        quick_turns.begin()
        self._thread = Thread(target=self._work, name="retinue-store-writer", daemon=True)
        self._thread.start()

    async def commit(self, encode: Callable[[], B], line: CommitLine | None = None) -> int:
        """Behind all others of its line; without one, behind all others that have none."""
        loop, line = asyncio.get_running_loop(), line or self._line
        job = PendingCommit(encode, loop, loop.create_future(), line, line.known)
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
        stop = False
        while not stop:
            jobs, acts, stop = self._next()
            outcomes: list[int | StoreError] = [job.line.failure for job in jobs]
            good: list[int] = []
            batches: list[B] = []
            for n, job in enumerate(jobs):
                if job.era == job.line.era:
                    try:
                        batches.append(job.encode())
                        good.append(n)
                    except StoreError as error:
                        outcomes[n] = error
                    except Exception as error:
                        outcomes[n] = StoreError(
                            f"Cannot convert a batch to rows ({error!r}). This batch was not saved."
                        )
            for n, outcome in zip(good, self._write(batches), strict=True):
                outcomes[n], job = outcome, jobs[n]
                if isinstance(outcome, StoreError) and job.line.era == job.era:
                    job.line.era, job.line.failure = job.era + 1, outcome
            self._report(jobs, outcomes)
            if not stop:
                self._writer.tidy()
            for act in acts:
                self._perform(act)

    def _write(self, batches: list[B]) -> Sequence[int | StoreError]:
        try:
            return self._writer.write(batches) if batches else ()
        except StoreError as error:
            return [error] * len(batches)

    def _next(self) -> tuple[list[PendingCommit[B]], list[Act], bool]:
        job = self._queue.get()
        jobs: list[PendingCommit[B]] = []
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

    def _report(self, jobs: list[PendingCommit[B]], outcomes: list[int | StoreError]) -> None:
        """One call into each loop that has someone waiting."""
        loops: dict[asyncio.AbstractEventLoop, list[Report]] = {}
        for job, outcome in zip(jobs, outcomes, strict=True):
            loops.setdefault(job.loop, []).append((job.future, outcome, job.line, job.line.era))
        for loop, news in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits
                loop.call_soon_threadsafe(_take_report, news)


Report = tuple[asyncio.Future[int], int | StoreError, CommitLine, int]


def _take_report(outcomes: list[Report]) -> None:
    for future, outcome, line, era in outcomes:
        line.known = max(line.known, era)
        if future.done():
            continue
        if isinstance(outcome, StoreError):
            future.set_exception(copy.copy(outcome))
        else:
            future.set_result(outcome)


def _refuse(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(StoreError("The store was closed. This batch was not saved."))
