"""Dispatches trees with Procrastinate: one job per activation, with the tree as its lock, deferred
in the transaction that writes the reason.

A queueing lock is never used: a wake during the last moments of a job would be lost. Jobs of
workers that died are retried by a loop in every worker, not by a job, which could be stuck itself.
Because a worker that comes back can finish a job that was given to another, each worker also looks
for trees that are due and have no job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions, jobs

from retinue.cluster.base import Connection, Drive, Due
from retinue.errors import RetinueError

log = logging.getLogger("retinue.cluster")

QUEUE = "retinue"
SCHEMA_LOCK = "select pg_advisory_xact_lock(hashtextextended('procrastinate schema', 19))"
MOST_SWEPT = 20


class ProcrastinateJobs:
    """`stalled_seconds`: after so much silence of a worker its jobs are given to others.
    `look_seconds`: how often is looked for them, and for jobs without a notice."""

    def __init__(self, url: str, stalled_seconds: float = 10.0, look_seconds: float = 1.0) -> None:
        self._url, self._stalled, self._look = url, stalled_seconds, look_seconds
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=6)
        )
        self._drive: Drive | None = None
        self._job = self._app.task(name="retinue.drive", queue=QUEUE)(self._run)

    async def open(self) -> None:
        await self._make_tables()
        await self._app.open_async()

    async def _make_tables(self) -> None:
        async with (
            await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection,
            connection.transaction(),
        ):
            await connection.execute(SCHEMA_LOCK)
            rows = await connection.execute("select to_regclass('procrastinate_jobs') is null")
            (is_missing,) = await rows.fetchone() or (True,)
            if is_missing:
                await connection.execute(self._app.schema_manager.get_schema())

    async def wake(self, connection: Connection, tree: str) -> None:
        await self._job.configure(lock=tree, connection=connection).defer_async(tree=tree)

    async def woken(self, tree: str) -> None:
        pass

    async def _run(self, tree: str) -> None:
        if self._drive is None:
            raise RetinueError("This process drives no trees.")
        await self._drive(tree)

    async def work(self, drive: Drive, due: Due, at_once: int) -> None:
        self._drive = drive
        while True:
            loops = [self._work(at_once), self._retry_stalled(), self._sweep(due)]
            tasks = [asyncio.create_task(loop) for loop in loops]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if error is not None and not isinstance(error, asyncio.CancelledError):
                    log.warning("the dispatcher begins again: %s", error)
            await asyncio.sleep(self._look * random.random())

    async def _work(self, at_once: int) -> None:
        await self._app.run_worker_async(
            queues=[QUEUE],
            concurrency=at_once,
            wait=True,
            fetch_job_polling_interval=self._look,
            abort_job_polling_interval=self._look,
            shutdown_graceful_timeout=0,
            install_signal_handlers=False,
            update_heartbeat_interval=self._stalled / 4,
            stalled_worker_timeout=self._stalled,
            delete_jobs="always",
        )

    async def _retry_stalled(self) -> None:
        manager = self._app.job_manager
        while True:
            await asyncio.sleep(self._look * (0.5 + random.random()))
            with _passing():
                for job in await manager.get_stalled_jobs(
                    queue=QUEUE, seconds_since_heartbeat=self._stalled
                ):
                    with contextlib.suppress(exceptions.ConnectorException):
                        await manager.retry_job(job)

    async def _sweep(self, due: Due) -> None:
        """Trees that want to be driven and that no job is for."""
        while True:
            await asyncio.sleep(self._look * (0.5 + random.random()))
            with _passing():
                trees = await due(MOST_SWEPT)
                for tree in trees:
                    if not await self._has_job(tree):
                        await self._job.configure(lock=tree).defer_async(tree=tree)

    async def _has_job(self, tree: str) -> bool:
        rows: list[jobs.Job] = []
        for status in ("todo", "doing"):
            rows += await self._app.job_manager.list_jobs_async(lock=tree, status=status)
        return bool(rows)

    async def abort(self, tree: str) -> None:
        manager = self._app.job_manager
        for job in await manager.list_jobs_async(lock=tree, status="doing"):
            if job.id is not None:
                await manager.cancel_job_by_id_async(job.id, abort=True)

    async def close(self) -> None:
        await self._app.close_async()


@contextlib.contextmanager
def _passing() -> Any:
    """The database is out of reach for a moment: looked again later."""
    try:
        yield
    except (exceptions.ConnectorException, psycopg.Error, OSError) as error:
        log.info("cannot look for jobs: %s", error)
