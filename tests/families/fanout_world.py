"""A stage for `spawn_agents`: one model plays the lead and all its sub-agents, and everything it
was asked is kept."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from retinue import Agent, Context, Outcome, Retinue, tool
from retinue.core.messages import ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from retinue.tools.families.profiles import family
from retinue.tools.function import FunctionTool

HELPER = "lead.fanout"
Part = Callable[[ModelRequest], Any]


class Cast:
    """The lead says one line a turn (the last one for ever, `None` repeats what it heard); children
    ask `child`."""

    def __init__(self, lead: Sequence[Any], child: Part | None = None) -> None:
        self.lines, self.child = (
            lead,
            child or (lambda q: call("submit_result", result=f"did {task_of(q)}")),
        )
        self.asked: list[ModelRequest] = []

    async def __call__(self, request: ModelRequest) -> Any:
        self.asked.append(request)
        if request.agent != HELPER:
            line = self.lines[min(request.turn, len(self.lines) - 1)]
            return request.messages[-1].text if line is None else line
        child = self.child(request)
        return await child if inspect.isawaitable(child) else child

    @property
    def of_lead(self) -> list[ModelRequest]:
        return [q for q in self.asked if q.agent != HELPER]

    @property
    def of_children(self) -> list[ModelRequest]:
        return [q for q in self.asked if q.agent == HELPER]


def task_of(request: ModelRequest) -> str:
    """The task of a sub-agent, without what was read to it first."""
    return request.messages[0].text.rsplit("Task:\n", 1)[-1]


def spawn(*tasks: str | dict[str, Any]) -> Any:
    """The call: a text stands for a task with nothing else said."""
    return call("spawn_agents", tasks=[{"task": t} if isinstance(t, str) else t for t in tasks])


def reader(contexts: list[Context] | None = None) -> FunctionTool:
    """A tool that only looks, and shows who called it."""

    @tool(risk="read", restart="pure")
    async def look(context: Context) -> str:
        """Look."""
        if contexts is not None:
            contexts.append(context)
        return "seen"

    return look


def writer() -> FunctionTool:
    @tool(risk="write")
    async def write() -> str:
        """Write."""
        return "written"

    return write


def lead(
    cast: Cast, *, tools: Sequence[Any] | None = None, staff: Sequence[Agent] = (), **settings: Any
) -> Agent:
    return Agent(
        "lead",
        "Lead them.",
        model=Scripted(cast, name="big"),
        tools=[reader()] if tools is None else tools,
        staff=staff,
        families=[family("fanout", **settings)],
    )


async def play(
    agent: Agent, then: Callable[[Retinue, str], Awaitable[Any]] | None = None, **options: Any
) -> Played:
    """A run of the lead from its start to its end; `then` is done after the start."""
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent, "Go.", **options)
        if then is not None:
            await then(retinue, run)
        return await played(retinue, run)


class Played(msgspec.Struct):
    """What is left of a run: how it ended, and the results that its calls got."""

    outcome: Outcome
    told: list[ToolMessage]
    ends: dict[str, Outcome]

    @property
    def json(self) -> list[dict[str, Any]]:
        """The aggregated results of the first spawning call."""
        return results(self.told[0])

    @property
    def refusal(self) -> str:
        """The error of the only call, which has started nobody."""
        assert [r.error for r in self.told] == [True], self.told
        assert self.outcome.children == ()
        assert self.outcome.state == "completed", "the lead goes on after a refusal"
        return self.told[0].text


async def played(retinue: Retinue, run: str) -> Played:
    outcome = await retinue.wait(run)
    assert outcome is not None
    messages = [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]
    ends = {c.id: o for c in outcome.children if (o := await retinue.outcome(c.id)) is not None}
    return Played(outcome, messages, ends)


def results(result: ToolMessage) -> list[dict[str, Any]]:
    """What stands under the one key of an aggregated result, which is nothing but the documented
    keys."""
    assert not result.error, result.text
    decoded = msgspec.json.decode(result.text)
    assert list(decoded) == ["sub_agent_results"]
    for one in decoded["sub_agent_results"]:
        assert list(one) == ["agent_id", "task", "outcome"]
        assert uuid.UUID(one["agent_id"]).version == 7
        ((kind, outcome),) = one["outcome"].items()
        assert {"success": ["result"], "failure": ["error", "error_kind"]}[kind] == list(outcome)
    return list(decoded["sub_agent_results"])


def failure(played: Played) -> tuple[str, str]:
    """Error and kind of the only child."""
    (one,) = played.json
    return one["outcome"]["failure"]["error"], one["outcome"]["failure"]["error_kind"]


def success(played: Played) -> str:
    (one,) = played.json
    return str(one["outcome"]["success"]["result"])
