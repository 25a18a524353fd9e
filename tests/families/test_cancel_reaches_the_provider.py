"""Cancelling is real: whoever cancels, and through whichever family, the provider sees the
connection go and nothing more is asked of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue import Agent, Retinue, tool
from retinue.core.messages import AssistantMessage, ToolMessage
from retinue.core.values import ModelInfo
from retinue.models.anthropic import AnthropicCodec
from retinue.models.http import ConnectionPool, HttpModel
from retinue.testing import MemoryStore, call
from retinue.testing.fake_llm.fake_provider import FakeLLM


@tool(risk="read")
def lookup(q: str) -> str:
    """Look something up."""
    return q


def answers(request: Any, name: str) -> list[Any]:
    return [
        json.loads(m.text)
        for m in request.messages
        if isinstance(m, ToolMessage) and m.name == name
    ]


def by_agent_cancel(request: Any) -> Any:
    n_replies = sum(isinstance(m, AssistantMessage) for m in request.messages)
    if n_replies == 0:
        return call("agent_spawn", prompt="@@slow@@")
    if n_replies == 1:
        return call("lookup", q="meanwhile")
    if n_replies == 2:
        return call("agent_cancel", agent_id=answers(request, "agent_spawn")[0]["agent_id"])
    return "stopped"


def by_cancel_tasks(request: Any) -> Any:
    n_replies = sum(isinstance(m, AssistantMessage) for m in request.messages)
    if n_replies == 0:
        return call(
            "delegate_tasks",
            mode="background",
            tasks=[{"task_id": "t", "prompt": "@@slow@@", "tools": []}],
        )
    if n_replies == 1:
        return call("lookup", q="meanwhile")
    return call("cancel_tasks", task_ids=["t"]) if n_replies == 2 else "done"


def by_end_of_parent(request: Any) -> Any:
    n_replies = sum(isinstance(m, AssistantMessage) for m in request.messages)
    return call("spawn_agents", tasks=[{"task": "@@slow@@"}]) if n_replies == 0 else "done"


WAYS = {
    "agent": by_agent_cancel,
    "delegate": by_cancel_tasks,
    "fanout": by_end_of_parent,
    "subagent": by_end_of_parent,
}


async def scene(way: str) -> tuple[Any, FakeLLM, int]:
    waiting = asyncio.Event()

    async def script(request: Any) -> Any:
        first = request.messages[0].text
        if "@@slow@@" in first:
            waiting.set()
            await asyncio.sleep(30)
            return "too late"
        if any(isinstance(m, ToolMessage) and m.name == "lookup" for m in request.messages):
            await waiting.wait()
        if way == "subagent":
            return call("subagent", label="s", task_prompt="@@slow@@")
        return WAYS[way](request)

    async with FakeLLM(script) as llm:
        client = ConnectionPool()
        info = ModelInfo(name="m", price_in=1, price_out=2)
        model = HttpModel(
            info, AnthropicCodec(), model="m", base_url=llm.url, key="k", client=client
        )
        async with Retinue(MemoryStore()) as retinue:
            lead = Agent("lead", "lead", model=model, tools=[lookup], families=[way])
            run = await retinue.spawn(lead, "go")
            await waiting.wait()
            if way in ("fanout", "subagent"):
                await retinue.cancel(run)
            outcome = await retinue.wait(run, timeout=10)
            for _ in range(100):
                if llm.disconnects:
                    break
                await asyncio.sleep(0.02)
            n_requests = len(llm.requests)
            await asyncio.sleep(0.1)
            assert len(llm.requests) == n_requests
            tree = await retinue.tree(run)
        await client.close()
        return (outcome, tree), llm, n_requests


@pytest.mark.parametrize("way", sorted(WAYS))
def test_the_provider_sees_the_disconnect_and_is_asked_nothing_more(way: str) -> None:
    (outcome, tree), llm, _ = asyncio.run(scene(way))
    assert outcome is not None
    assert outcome.state == ("cancelled" if way in ("fanout", "subagent") else "completed")
    assert llm.disconnects == 1
    assert llm.open == 0
    assert [child.state for child in tree.children] == ["cancelled"]
    assert llm.violations == []
