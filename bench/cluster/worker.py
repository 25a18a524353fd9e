"""One worker as a process: URL, dispatcher, lease in seconds. It ends on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from bench.cluster.agents import cluster_agents
from retinue.cluster.dispatchers import dispatcher_of
from retinue.cluster.retinue_node import RetinueNode
from retinue.cluster.tree_worker import WorkerSettings


async def work(url: str, dispatch: str, lease: float) -> None:
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    async with RetinueNode(
        url,
        worker=WorkerSettings(lease_seconds=lease, idle_seconds=0.5, drain_seconds=1.0),
        dispatcher=dispatcher_of(dispatch, url),
        agents=cluster_agents(),
    ):
        await leave.wait()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(work(sys.argv[1], sys.argv[2], float(sys.argv[3])))
