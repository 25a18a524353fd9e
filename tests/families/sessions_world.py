"""What the tests of the sessions family share: a lead with scripted sub-agents, and a chat that
remembers."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from retinue import Agent, Delivery, Origin, Outcome, Retinue, tool
from retinue.core.messages import Message, ToolMessage, UserMessage
from retinue.core.spec import RunSpec
from retinue.core.state import Run
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, VirtualClock, call
from retinue.tools.families.profiles import family

CHAT = Origin(channel="chat", user="ada", thread="t1")
SESSION_TOOLS = {
    "sessions_spawn",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_yield",
}
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@tool(restart="pure", risk="read")
async def read(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


@tool(restart="pure", risk="execute")
async def bash(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@tool(restart="pure", risk="network")
async def cron(when: str) -> str:
    """Plan something."""
    return f"planned for {when}"


class Chat:
    """A channel that keeps what it was told, each key once; it may refuse everything, or never
    answer."""

    def __init__(
        self, *, refuses: bool = False, hangs: bool = False, by_key: dict[str, str] | None = None
    ) -> None:
        self.refuses, self.hangs = refuses, hangs
        self.by_key: dict[str, str] = dict(by_key or {})
        self.at: list[float] = []
        self.sent: list[Delivery] = []
        self.tries = self.repeated = 0

    async def send(self, delivery: Delivery) -> None:
        self.tries += 1
        if self.refuses:
            raise RuntimeError("the chat is closed")
        self.repeated += delivery.key in self.by_key
        if delivery.key not in self.by_key:
            self.by_key[delivery.key] = delivery.text
            self.at.append(asyncio.get_running_loop().time())
            self.sent.append(delivery)
        if self.hangs:
            await asyncio.sleep(1_000_000)

    @property
    def texts(self) -> list[str]:
        return list(self.by_key.values())


def spawn(task: str, /, **more: Any) -> Any:
    return call("sessions_spawn", task=task, **more)


def send(n: int, message: str, /, **more: Any) -> Callable[[ModelRequest], Any]:
    """A message to the n-th session that was spawned."""
    return lambda q: call("sessions_send", sessionKey=keys(q.messages)[n], message=message, **more)


def history(n: int, /, **more: Any) -> Callable[[ModelRequest], Any]:
    return lambda q: call("sessions_history", sessionKey=keys(q.messages)[n], **more)


def pause(seconds: float, line: Any) -> Callable[[ModelRequest], Any]:
    """A line that is said after a while."""

    async def later(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds)
        return line(request) if callable(line) else line

    return later


def results(messages: Sequence[Message]) -> list[Any]:
    """What the calls gave back, as values where it is JSON."""
    return [value_of(m.text) for m in messages if isinstance(m, ToolMessage)]


def value_of(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else text


def keys(messages: Sequence[Message]) -> list[str]:
    """The sessions that were spawned, in the order of the calls."""
    return [
        r["childSessionKey"]
        for r in results(messages)
        if isinstance(r, dict) and "childSessionKey" in r
    ]


def news(messages: Sequence[Message]) -> list[str]:
    """What a run was told of the ends of its children, without the fences."""
    text = [m for m in messages if isinstance(m, UserMessage) and m.kind == "news"]
    return [m.text.split("\n", 1)[1].rsplit("\n", 1)[0] for m in text]


def event(text: str) -> dict[str, str]:
    """The fields of a completion event; what follows `result:` is the result."""
    head, result = text.split("\nresult:\n", 1)
    fields = dict(line.split(": ", 1) for line in head.split("\n")[1:])
    return {"type": head.split("\n")[0], **fields, "result": result}


def task_of(request: ModelRequest) -> str:
    """The task of a sub-agent, without what the family says before it."""
    tasks = [m.text for m in request.messages if isinstance(m, UserMessage) and m.kind == "task"]
    return tasks[-1].rsplit("[Task] ", 1)[-1]


class World:
    """A lead that says `lines`, one a turn, and then "done"; sub-agents do what their task says:
    `say x`, `after 10 say x`, or what `does` has for it (a line, several for several turns, or a
    function of the request). What they announce is `announces` of their task, or else "I " and
    their task."""

    def __init__(
        self,
        *lines: Any,
        does: dict[str, Any] | None = None,
        announces: dict[str, Any] | None = None,
        profile: str = "clawdbot",
        **settings: Any,
    ) -> None:
        self.lines, self.does, self.announces = lines, does or {}, announces or {}
        self.fields: dict[str, Any] = settings.pop("fields", {})
        self.others: Sequence[str] = settings.pop("models", ())
        self.requests: list[ModelRequest] = []
        self.busy = self.most = 0
        self.ended_at = -1.0
        self.store: Any = MemoryStore()
        self.clock = VirtualClock()
        self.chat = Chat()
        self.lead = Agent(
            "lead",
            "Lead well.",
            **{
                "model": Scripted(self.say, name="model of lead"),
                "tools": [read, bash, cron],
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
        child = request.path != "0" and task_of(request) != "Go."
        self.busy += child
        self.most = max(self.most, self.busy)
        try:
            line = self._line_of_child(request) if child else self._line(request)
            line = line(request) if callable(line) else line
            return await line if inspect.isawaitable(line) else line
        finally:
            self.busy -= child

    def _line(self, request: ModelRequest) -> Any:
        return self.lines[request.turn] if request.turn < len(self.lines) else "done"

    def _line_of_child(self, request: ModelRequest) -> Any:
        task = task_of(request)
        if request.purpose == "announce":
            return self.announces.get(task, f"I {task}")
        if task in self.does:
            line = self.does[task]
            return line[min(request.turn, len(line) - 1)] if isinstance(line, list) else line
        if match := re.fullmatch(r"after ([0-9.]+) say (.*)", task, re.DOTALL):
            return pause(float(match[1]), match[2])
        return task.removeprefix("say ")

    # looking

    def of(self, task: str) -> list[ModelRequest]:
        """What was asked of the sub-agents with that task."""
        return [r for r in self.requests if r.path != "0" and task_of(r) == task]

    @property
    def of_lead(self) -> list[ModelRequest]:
        return [r for r in self.requests if r.path == "0"]

    @property
    def results(self) -> list[Any]:
        """All that the lead's calls gave back."""
        return results(self.of_lead[-1].messages)

    @property
    def events(self) -> list[dict[str, str]]:
        """The completions that the lead was told of."""
        return [event(text) for text in news(self.of_lead[-1].messages)]

    def offered(self, task: str) -> set[str]:
        """The tools that the sub-agent with that task may call."""
        return {t.name for t in self.of(task)[0].tools}

    def properties(self, name: str = "sessions_spawn") -> dict[str, Any]:
        own_tool = next(t for t in self.lead.own_tools if t.schema.name == name)
        results: dict[str, Any] = own_tool.schema.parameters["properties"]
        return results

    async def rows(self, run: str) -> list[tuple[RunSpec, Run]]:
        """What is kept of the children of a run."""
        return [(row.spec, row.run) for row in await self.store.children(run)]

    # running

    def open(self, **options: Any) -> Retinue:
        channels = options.pop("channels", {"chat": self.chat})
        return Retinue(
            self.store, clock=self.clock, agents=self.agents, channels=channels, **options
        )

    async def go(
        self, *, seconds: float = 10_000, rules: Any = None, origin: Origin = CHAT, **options: Any
    ) -> Outcome:
        """Run the lead to its end, and give what goes on in the background its time."""
        async with self.open(limits=rules) as retinue:
            outcome = await retinue.run(self.lead, "Go.", origin=origin, **options)
            self.ended_at = asyncio.get_running_loop().time()
            await asyncio.sleep(seconds)
            assert not retinue.blocked_reason
            assert await retinue.verify() == []
        return outcome


async def refusal(*lines: Any, **world: Any) -> Any:
    """What the lead is told after the last of `lines`, which must be an error."""
    options = world.pop("options", {})
    stage = World(*lines, **world)
    await stage.go(**options)
    last = [m for m in stage.of_lead[len(lines)].messages if isinstance(m, ToolMessage)][-1]
    assert last.error, last
    return value_of(last.text)
