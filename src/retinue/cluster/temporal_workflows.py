"""Trees dispatched by Temporal: a workflow for each tree that has something to do, started or
signalled by a wake, which runs an activity that drives the tree.

Temporal keeps its own record, so a wake is sent after the transaction that it belongs to. A process
that dies in between is why each worker also looks for trees that are due: their workflows are
started if they have none. A workflow ends when no wake has come since its last activity began;
Temporal refuses that end if a signal has arrived meanwhile, so no wake is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from datetime import timedelta

import psycopg
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from retinue.cluster.base import Connection, Drive, Due
from retinue.errors import RetinueError

log = logging.getLogger("retinue.cluster")

QUEUE = "retinue"
MOST_SWEPT = 20
LONGEST = timedelta(days=3650)
"""Temporal wants an end for every activity; how long a tree is driven is not its concern."""
RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=10)
)
WENT_WRONG = (RPCError, TemporalError, RuntimeError, OSError)


@workflow.defn(name="retinue.tree")
class TreeWorkflow:
    """Drives a tree, and again as long as it was woken meanwhile."""

    def __init__(self) -> None:
        self._is_woken = False

    @workflow.signal
    def wake(self) -> None:
        self._is_woken = True

    @workflow.run
    async def run(self, tree: str, silence_seconds: float) -> None:
        while True:
            self._is_woken = False
            await workflow.execute_activity(
                "retinue.drive",
                tree,
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=timedelta(seconds=silence_seconds),
                retry_policy=RETRIES,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            if not self._is_woken:
                return
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[tree, silence_seconds])


class TemporalWorkflows:
    """`address` is Temporal's, like `temporal:7233`. `store` distinguishes the trees of several
    databases in one namespace. `silence_seconds`: after so much silence of a worker its activities
    are given to others. `look_seconds`: how often is looked for trees that have no workflow."""

    def __init__(
        self,
        address: str,
        *,
        namespace: str = "default",
        store: str = "retinue",
        silence_seconds: float = 10.0,
        look_seconds: float = 1.0,
    ) -> None:
        self._address, self._namespace, self._store = address, namespace, store
        self._silence, self._look = silence_seconds, look_seconds
        self._client: Client | None = None
        self._drive: Drive | None = None

    async def open(self) -> None:
        try:
            self._client = await Client.connect(self._address, namespace=self._namespace)
        except WENT_WRONG as error:
            raise RetinueError(
                f"Temporal at {self._address} cannot be reached: {error}. Start it, or check the"
                " address."
            ) from error

    @property
    def client(self) -> Client:
        if self._client is None:
            raise RetinueError("The dispatcher is not open.")
        return self._client

    @property
    def queue(self) -> str:
        return f"{QUEUE}-{self._store}"

    def _name(self, tree: str) -> str:
        return f"{self._store}-{tree}"

    async def wake(self, connection: Connection, tree: str) -> None:
        pass

    async def woken(self, tree: str) -> None:
        """A wake that cannot be sent is found by a worker that looks for due trees."""
        with _passing("wake a tree"):
            await self._start(tree, signal="wake")

    async def _start(self, tree: str, signal: str | None = None) -> None:
        await self.client.start_workflow(
            TreeWorkflow.run,
            args=[tree, self._silence],
            id=self._name(tree),
            task_queue=self.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=signal,
        )

    async def work(self, drive: Drive, due: Due, at_once: int) -> None:
        self._drive = drive
        while True:
            worker = Worker(
                self.client,
                task_queue=self.queue,
                workflows=[TreeWorkflow],
                activities=[self._activity],
                workflow_runner=UnsandboxedWorkflowRunner(),
                max_concurrent_activities=at_once,
                graceful_shutdown_timeout=timedelta(0),
                max_heartbeat_throttle_interval=timedelta(seconds=self._look),
                default_heartbeat_throttle_interval=timedelta(seconds=self._look),
            )
            sweep = asyncio.create_task(self._sweep(due))
            try:
                await worker.run()
            except WENT_WRONG as error:
                log.warning("the dispatcher begins again: %s", error)
            finally:
                sweep.cancel()
                await asyncio.gather(sweep, return_exceptions=True)
            await asyncio.sleep(self._look * random.random())

    @activity.defn(name="retinue.drive")
    async def _activity(self, tree: str) -> None:
        if self._drive is None:
            raise RetinueError("This process drives no trees.")
        heartbeats = asyncio.create_task(self._send_heartbeats())
        try:
            await self._drive(tree)
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self) -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(min(self._silence / 4, self._look))

    async def _sweep(self, due: Due) -> None:
        """Trees that want to be driven and that have no workflow."""
        while True:
            await asyncio.sleep(self._look * (0.5 + random.random()))
            with _passing("look for due trees"):
                for tree in await due(MOST_SWEPT):
                    await self._start(tree)

    async def abort(self, tree: str) -> None:
        try:
            await self.client.get_workflow_handle(self._name(tree)).cancel()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def close(self) -> None:
        """The client's connection is closed as soon as nothing refers to it."""
        self._client = None


@contextlib.contextmanager
def _passing(act: str) -> Iterator[None]:
    """Temporal or the database is out of reach for a moment: looked again later."""
    try:
        yield
    except (*WENT_WRONG, psycopg.Error) as error:
        log.info("cannot %s: %s", act, error)
