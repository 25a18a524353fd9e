"""What the workers do while they are killed: trees whose leads and children think, call tools that
may run once only, and hand back results that are told apart."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from retinue import Actions, Agent, Context, tool
from retinue.core.messages import UserMessage
from retinue.testing import Scripted, call

CHILDREN = 3
THINKS = 0.08
WORKS = 0.03


class Journal:
    """Lines of several processes in one file, each written whole."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, *words: object) -> None:
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())


def crew(journal: Journal) -> list[Agent[Any, Any]]:
    @tool(restart="unsafe")
    async def pay(context: Context, n: int) -> str:
        """Pay an amount. It cannot be taken back."""
        journal.note("pay", context.run_id, context.call_id)
        await asyncio.sleep(WORKS)
        return f"paid {n}"

    @tool(restart="keyed")
    async def note(context: Context, n: int) -> str:
        """Note a number."""
        await asyncio.sleep(WORKS)
        return f"noted {n}"

    def work(request: Any) -> Any:
        task = next(m.text for m in request.messages if isinstance(m, UserMessage))
        script = [call("pay", n=1), call("note", n=2), f"result of {task}"]
        return script[min(request.turn, 2)]

    child: Agent[Any, Any] = Agent(
        "child", "Work.", model=Scripted(work, name="child", delay=THINKS), tools=[pay, note]
    )

    @tool(restart="keyed")
    def fan(context: Context, n: int) -> Actions:
        """Have n parts done."""
        task = context.spec.request.task
        return context.spawn_actions(child, *[f"{task}/{i}" for i in range(n)])

    def lead_script(request: Any) -> Any:
        script = [call("pay", n=7), call("fan", n=CHILDREN), "all done"]
        return script[min(request.turn, 2)]

    lead: Agent[Any, Any] = Agent(
        "lead",
        "Lead.",
        model=Scripted(lead_script, name="lead", delay=THINKS),
        tools=[pay, fan],
        staff=[child],
    )
    return [lead, child]
