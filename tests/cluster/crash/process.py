"""One worker, as a process that can be killed: URL, journal, lease, dispatcher."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from retinue.cluster.dispatchers import dispatcher_of
from retinue.cluster.retinue_node import RetinueNode
from retinue.cluster.tree_store import OF_A_PROCESS, TreeStore
from retinue.cluster.tree_worker import WorkerSettings
from retinue.core.changes import Changes
from tests.cluster.crash.workload import Journal, crew


def journal_commits(journal: Journal) -> None:
    """Who has written what, as the workers see it: tree, epoch, position."""
    commit = TreeStore.commit

    async def noted(self: TreeStore, changes: Changes) -> int:
        position = await commit(self, changes)
        if any(not isinstance(entry.event, OF_A_PROCESS) for entry in changes.entries):
            journal.note("commit", self.root, self.epoch, position)
        return position

    TreeStore.commit = noted  # type: ignore[method-assign]


async def main(url: str, journal: Journal, lease: float, dispatch: str) -> None:
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    settings = WorkerSettings(lease_seconds=lease, idle_seconds=0.5, drain_seconds=10.0)
    dispatcher = dispatcher_of(dispatch, url)
    async with RetinueNode(url, worker=settings, dispatcher=dispatcher, agents=crew(journal)):
        await leave.wait()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    URL, PATH = sys.argv[1:3]
    LEASE, DISPATCH = sys.argv[3:]
    JOURNAL = Journal(PATH)
    journal_commits(JOURNAL)
    asyncio.run(main(URL, JOURNAL, float(LEASE), DISPATCH))
