"""Agents for the tests of the cluster, and nodes that know them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from retinue import Actions, Agent, Context, tool
from retinue.cluster.retinue_node import RetinueNode
from retinue.cluster.tree_worker import WorkerSettings
from retinue.testing import Scripted, call

QUICK = WorkerSettings(lease_seconds=3.0, idle_seconds=0.3, drain_seconds=5.0)


@tool(restart="keyed")
async def note(context: Context, n: int) -> str:
    """Note a number."""
    return f"noted {n}"


def agents(seconds: float = 0.0, children: int = 5) -> list[Agent[Any, Any]]:
    child: Agent[Any, Any] = Agent(
        "child",
        "Work.",
        model=Scripted(
            [call("note", n=1), call("note", n=2), "child done"], name="child", delay=seconds
        ),
        tools=[note],
    )

    @tool(restart="keyed")
    def fan(context: Context, n: int) -> Actions:
        """Have n parts done."""
        return context.spawn_actions(child, *[f"part {i}" for i in range(n)])

    lead: Agent[Any, Any] = Agent(
        "lead",
        "Lead.",
        model=Scripted([call("fan", n=children), "all done"], name="lead", delay=seconds),
        tools=[fan],
        staff=[child],
    )
    return [lead, child]


@asynccontextmanager
async def node(
    url: str, *, settings: WorkerSettings | None = QUICK, **options: Any
) -> AsyncIterator[RetinueNode[None]]:
    own = options.pop("agents", None) or agents()
    async with RetinueNode(url, worker=settings, agents=own, **options) as one:
        yield one


async def rows(url: str, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await (await connection.execute(sql, args)).fetchall()
