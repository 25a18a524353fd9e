"""The dispatchers on a real PostgreSQL, each under the contract of the port."""

from __future__ import annotations

from retinue.cluster.base import Dispatcher
from retinue.cluster.in_database import InDatabase
from retinue.cluster.procrastinate_jobs import ProcrastinateJobs
from tests.contracts.dispatcher import DispatcherContract


class TestInDatabase(DispatcherContract):
    def dispatcher(self, url: str) -> Dispatcher:
        return InDatabase(url, look_seconds=0.2)


class TestProcrastinate(DispatcherContract):
    def dispatcher(self, url: str) -> Dispatcher:
        return ProcrastinateJobs(url, stalled_seconds=2.0, look_seconds=0.2)
