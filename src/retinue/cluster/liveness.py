"""Whether a worker is alive: one row per worker, renewed by its own thread, with how it ended.

A worker is known by its incarnation: a process that starts again is another worker."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection

from retinue import __version__
from retinue.store.postgres.database_schema import migrations

log = logging.getLogger("retinue.cluster")

RENEW = """
update workers set until = clock_timestamp() + make_interval(secs => %s)
where id = %s and until > clock_timestamp()
returning draining, (select max(number) from retinue_schema) > %s
"""
ENLIST = """
insert into workers (id, name, version, node, pid, born, offers, until)
values (%s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
on conflict (id) do update set until = excluded.until
"""


def clock() -> float:
    """Seconds that pass while a process is stopped, or its machine sleeps, too."""
    return (
        time.clock_gettime(time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else (time.monotonic())
    )


def this_node() -> str:
    """Where process numbers mean the same: this machine since its start, this namespace."""
    space = boot = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    return f"{socket.gethostname()} {boot} {space}"


def born(pid: int) -> str:
    """When a process was started, "" when there is none of this number. (A number is given again
    to others.)"""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def lock_of(worker: str) -> int:
    """The number of the lock that a worker holds as long as its process is connected."""
    return int.from_bytes(hashlib.sha256(worker.encode()).digest()[:8], "big", signed=True)


class Verdicts:
    """How workers ended that no longer renew their rows: crashed, or only cut off or stopped."""

    async def has_crashed(self, connection: AsyncConnection[Any], worker: str) -> bool:
        """A process of this machine can be looked for. One of another has crashed if the lock
        that its connection held is free: when a process dies, its connections are closed."""
        row_of_worker = await connection.execute(
            "select node, pid, born from workers where id = %s", (worker,)
        )
        row = await row_of_worker.fetchone()
        if row is None:
            return False
        node, pid, since = row
        if node == this_node():
            return str(since) != born(pid)
        free = await connection.execute("select pg_try_advisory_xact_lock(%s)", (lock_of(worker),))
        (is_free,) = await free.fetchone() or (False,)
        return bool(is_free)


class Heartbeat:
    """Renews the row of a worker in a thread, which a busy event loop does not hold up. When the
    row has lapsed, `lapsed` is called in the thread and must have stopped all trees when it
    returns; then the row is renewed.

    `is_outdated`: a newer version has changed the tables. What has changed only adds to them, so
    trees may be let go of in good order; then newer workers continue."""

    def __init__(self, url: str, worker: str, name: str, lease_seconds: float) -> None:
        self._url, self.worker, self.lease = url, worker, lease_seconds
        self.name = name
        self.offers: tuple[str, ...] = ()
        self.lapsed: Callable[[], None] = lambda: None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retinue heartbeat", daemon=True)
        self._valid_until = 0.0
        self.is_draining = self.is_outdated = False

    @property
    def is_valid(self) -> bool:
        """Whether no other worker can have taken a tree of this one for want of a heartbeat."""
        return clock() < self._valid_until

    async def start(self) -> None:
        await asyncio.to_thread(self._connect_and_enlist)
        self._thread.start()

    def _connect_and_enlist(self) -> None:
        self._connection = self._connect()
        self._enlist()

    def _connect(self) -> psycopg.Connection[Any]:
        wait = max(1, round(self.lease / 2))
        connection = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=wait,
            keepalives_idle=1,
            keepalives_interval=1,
            keepalives_count=3,
            tcp_user_timeout=round(self.lease * 1000),
        )
        connection.execute(f"set statement_timeout = {round(self.lease * 500)}")
        connection.execute("select pg_try_advisory_lock(%s)", (lock_of(self.worker),))
        return connection

    def _enlist(self) -> None:
        began = clock()
        pid = os.getpid()
        me = (self.worker, self.name, __version__, this_node(), pid, born(pid))
        offers = json.dumps({"labels": self.offers})
        self._connection.execute(ENLIST, (*me, offers, self.lease))
        self._valid_until = began + self.lease

    def _run(self) -> None:
        while not self._stop.wait(self.lease / 4):
            try:
                if self._connection.closed:
                    self._connection = self._connect()
                self._renew()
            except (psycopg.Error, OSError) as error:
                log.warning("the heartbeat of this worker did not reach the database: %s", error)
                with contextlib.suppress(psycopg.Error, OSError):
                    self._connection.close()
                if not self.is_valid:
                    self.lapsed()

    def _renew(self) -> None:
        began = clock()
        known = len(migrations())
        row = self._connection.execute(RENEW, (self.lease, self.worker, known)).fetchone()
        if row is not None and self._valid_until:
            self._valid_until = began + self.lease
            is_asked, self.is_outdated = row
            self.is_draining = is_asked or self.is_outdated
            return
        log.warning("this worker was silent for too long: its trees are stopped")
        self._valid_until = 0.0
        self.lapsed()
        self._enlist()

    def stop(self) -> None:
        """Leave in good order: the row says so, and is deleted."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self.lease)
        with contextlib.suppress(psycopg.Error, OSError):
            self._connection.execute("delete from workers where id = %s", (self.worker,))
        with contextlib.suppress(psycopg.Error, OSError):
            self._connection.close()
