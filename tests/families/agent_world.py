"""What the tests of the agent family share: one model plays a lead and all its sub-agents;
everything is kept."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from retinue import Agent, Outcome, Retinue, tool
from retinue.core.messages import Message, ToolMessage, UserMessage
from retinue.core.spec import RunSpec
from retinue.core.state import Run
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, VirtualClock, call
from retinue.tools.families.profiles import family

LIMIT = "Cannot spawn sub-agent: concurrency or depth limit reached"
FIVE = ("agent_spawn", "agent_fork", "agent_status", "agent_cancel", "agent_list")
ALL = (*FIVE, "agent_send", "agent_wait", "agent_resume")


@tool(restart="pure", risk="read")
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


@tool(restart="pure", risk="read")
async def rest(seconds: float) -> str:
    """Take a rest."""
    await asyncio.sleep(seconds)
    return "rested"


def spawn(prompt: str, /, **more: Any) -> Any:
    return call("agent_spawn", prompt=prompt, **more)


def fork(prompt: str, /, **more: Any) -> Any:
    return call("agent_fork", prompt=prompt, **more)


def about(name: str, n: int = 0, /, **more: Any) -> Callable[[ModelRequest], Any]:
    """A call of `name` with the id of the n-th sub-agent that was started."""
    return lambda q: call(name, agent_id=ids(q)[n], **more)


def wait(**more: Any) -> Callable[[ModelRequest], Any]:
    return lambda q: call("agent_wait", agent_ids=ids(q), **more)


def results(messages: Sequence[Message]) -> list[Any]:
    """What the calls gave back, as values where it is JSON."""
    return [value_of(m.text) for m in messages if isinstance(m, ToolMessage)]


def value_of(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else text


def ids(request: ModelRequest) -> list[str]:
    """The sub-agents that were started, in the order of the calls."""
    result = [r for r in results(request.messages) if isinstance(r, dict)]
    return [r["agent_id"] for r in result if "model" in r or "resumed_from" in r]


def news(messages: Sequence[Message]) -> list[str]:
    """What a run was told of the ends of its children, without the fences."""
    text = [m for m in messages if isinstance(m, UserMessage) and m.kind == "news"]
    return [m.text.split("\n", 1)[1].rsplit("\n", 1)[0] for m in text]


def prompt_of(request: ModelRequest) -> str:
    """The task of a sub-agent, without what the family says before it."""
    tasks = [m.text for m in request.messages if isinstance(m, UserMessage) and m.kind == "task"]
    return tasks[-1].rsplit("Your task:\n", 1)[-1]


class World:
    """A lead that says `lines`, one a turn, and then "done"; sub-agents do what their prompt says:
    `say x`, `after 10 say x`, or what `does` has for it (a line, several for several turns, or a
    function of the request).

    `at` is where the lead stands: a path other than "0" when somebody else has started it.
    """

    def __init__(
        self,
        *lines: Any,
        does: dict[str, Any] | None = None,
        profile: str = "agent",
        model: str = "",
        **settings: Any,
    ) -> None:
        self.lines, self.does = lines, does or {}
        self.fields: dict[str, Any] = settings.pop("fields", {})
        self.others: Sequence[str] = settings.pop("models", ())
        self.requests: list[ModelRequest] = []
        self.cancelled: list[str] = []
        self.store: Any = MemoryStore()
        self.clock = VirtualClock()
        self.at = "0"
        self.lead = Agent(
            "lead",
            "Lead well.",
            **{
                "model": Scripted(self.say, name=model or "model of lead"),
                "tools": [look_up, rest],
                "families": [family(profile, **settings)],
                **self.fields,
            },
        )

    @property
    def agents(self) -> list[Agent]:
        """The lead, and somebody for each other model that is to be known."""
        return [
            self.lead,
            *(Agent(f"on {m}", model=Scripted(self.say, name=m)) for m in self.others),
        ]

    async def say(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        try:
            if request.path == self.at:
                line = self.lines[request.turn] if request.turn < len(self.lines) else "done"
            else:
                line = self._line_of_child(request)
            line = line(request) if callable(line) else line
            return await line if inspect.isawaitable(line) else line
        except asyncio.CancelledError:
            self.cancelled.append(request.run)
            raise

    def _line_of_child(self, request: ModelRequest) -> Any:
        prompt = prompt_of(request)
        if prompt in self.does:
            line = self.does[prompt]
            return line[min(request.turn, len(line) - 1)] if isinstance(line, list) else line
        if match := re.fullmatch(r"after ([0-9.]+) say (.*)", prompt, re.DOTALL):
            return pause(float(match[1]), match[2])
        return prompt.removeprefix("say ")

    # looking

    def of(self, prompt: str) -> list[ModelRequest]:
        """What was asked of the sub-agents with that prompt."""
        return [r for r in self.requests if r.path != self.at and prompt_of(r) == prompt]

    @property
    def of_lead(self) -> list[ModelRequest]:
        return [r for r in self.requests if r.path == self.at]

    @property
    def results(self) -> list[Any]:
        """All that the lead's calls gave back."""
        return results(self.of_lead[-1].messages)

    @property
    def news(self) -> list[str]:
        return news(self.of_lead[-1].messages)

    @property
    def offered(self) -> list[str]:
        return [t.name for t in self.of_lead[0].tools]

    def schema(self, name: str) -> Any:
        return next(t for t in self.of_lead[0].tools if t.name == name)

    def properties(self, name: str) -> dict[str, Any]:
        results: dict[str, Any] = self.schema(name).parameters["properties"]
        return results

    async def row(self, id: str) -> tuple[RunSpec, Run]:
        row = await self.store.row(id)
        return row.spec, row.run

    # running

    def open(self, **options: Any) -> Retinue:
        return Retinue(self.store, clock=self.clock, agents=self.agents, **options)

    async def go(self, *, seconds: float = 0, rules: Any = None, **options: Any) -> Outcome:
        """Run the lead to its end, and give what may be left some time."""
        async with self.open(limits=rules) as retinue:
            outcome = await retinue.run(self.lead, "Go.", **options)
            await asyncio.sleep(seconds)
            assert not retinue.blocked_reason
        return outcome


def pause(seconds: float, line: Any) -> Callable[[ModelRequest], Any]:
    """A line that is said after a while."""

    async def later(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds)
        return line(request) if callable(line) else line

    return later


async def refusal(*lines: Any, **world: Any) -> str:
    """What the lead is told after the last of `lines`, which must be an error."""
    stage = World(*lines, **world)
    await stage.go()
    last = [m for m in stage.of_lead[len(lines)].messages if isinstance(m, ToolMessage)][-1]
    assert last.error, last
    return last.text
