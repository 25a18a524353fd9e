"""Each of the five families on three nodes: the same conversations, results and ends as on one
machine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from retinue import Agent, Retinue, tool
from retinue.core.messages import AssistantMessage, ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from retinue.tools.families.profiles import family
from tests import postgres
from tests.cluster.test_nodes import run
from tests.cluster.workload import node

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
FENCE = re.compile(r"\b[0-9a-f]{12}\b")
SECONDS = re.compile(r"\d+(\.\d+)?\s?(ms|s)\b|\"\w*(duration|elapsed|seconds)\w*\": ?[\d.]+")


@tool(restart="keyed", risk="read")
async def look_up(word: str) -> str:
    """Look a word up."""
    await asyncio.sleep(0.02)
    return f"{word} is a word"


def started(request: ModelRequest) -> list[str]:
    """The sub-agents that the first call has started."""
    text = next(m.text for m in request.messages if isinstance(m, ToolMessage))
    value = json.loads(text)
    return [value[key] for key in ("agent_id", "runId") if key in value]


def agents_script(request: ModelRequest) -> Any:
    if request.turn == 0:
        return call("agent_spawn", prompt="say a")
    if request.turn == 1:
        return call("agent_wait", agent_ids=started(request))
    return "all done"


def of_calls(*lines: Any) -> Callable[[ModelRequest], Any]:
    return lambda request: lines[min(request.turn, len(lines) - 1)]


LEADS: dict[str, Callable[[ModelRequest], Any]] = {
    "agent": agents_script,
    "delegate": of_calls(
        call(
            "delegate_tasks",
            mode="parallel",
            tasks=[
                {"task_id": name, "prompt": f"say {name}", "tools": ["look_up"]} for name in "abc"
            ],
        ),
        "all done",
    ),
    "fanout": of_calls(
        call("spawn_agents", tasks=[{"task": f"say {name}"} for name in "abc"]), "all done"
    ),
    "sessions": of_calls(call("sessions_spawn", task="say a", cleanup="keep"), "all done"),
    "subagent": of_calls(
        call(
            "parallel_subagent",
            tasks=[{"label": name, "task_prompt": f"say {name}"} for name in "abc"],
        ),
        "all done",
    ),
}


def lead(name: str) -> Agent[Any, Any]:
    script = LEADS[name]

    async def say(request: ModelRequest) -> Any:
        await asyncio.sleep(0.02)
        if request.agent == "lead":
            return script(request)
        if not any(isinstance(message, AssistantMessage) for message in request.messages):
            return call("look_up", word="x")
        names = [schema.name for schema in request.tools]
        return call("submit_result", result="said") if "submit_result" in names else "said"

    return Agent(
        "lead",
        "Lead.",
        model=Scripted(say, name="stage"),
        tools=[look_up],
        families=[family(name)],
    )


async def story(retinue: Retinue[Any], agent: Agent[Any, Any]) -> list[Any]:
    """What happened, without what differs each time."""
    out = await retinue.run(agent, "begin")
    await retinue.settle(timeout=30)
    known: dict[str, str] = {}

    def plain(text: str) -> str:
        text = ID.sub(lambda match: known.setdefault(match[0], f"run{len(known)}"), text)
        return SECONDS.sub("so long", FENCE.sub("fence", text))

    every = [info async for info in retinue.runs(children=True)]
    runs = sorted((info for info in every if info.root == out.id), key=lambda info: info.id)
    ends = [(info.agent, info.state, plain(info.task)) for info in runs]
    texts = [
        [(type(m).__name__, plain(m.text)) for m in await retinue.messages(info.id)]
        for info in runs
    ]
    return [out.state, out.text, ends, texts]


@pytest.mark.parametrize("name", sorted(LEADS))
def test_a_family_does_on_three_nodes_what_it_does_on_one_machine(name: str) -> None:
    async def test() -> None:
        async with Retinue(agents=[lead(name)]) as alone:
            expected = await story(alone, lead(name))
        url = postgres.fresh()
        async with (
            node(url, settings=None, agents=[lead(name)]) as asking,
            node(url, agents=[lead(name)]),
            node(url, agents=[lead(name)]),
            node(url, agents=[lead(name)]),
        ):
            stories = await asyncio.gather(*(story(asking, lead(name)) for _ in range(3)))
        assert len(expected[2]) > 1, "sub-agents were started"
        for one in stories:
            assert one == expected

    run(test())
