"""What the tests of the delegate family share: a lead with scripted sub-agents, and a channel that
remembers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from retinue import Agent, Delivery, Limits, Origin, Retinue, tool
from retinue.core.messages import ToolCall
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from retinue.tools.families.profiles import family

HOOK = Origin(channel="hook", user="ada", thread="t1")
GROUP = re.compile(r"bg-[0-9a-f]{6}")


@tool(restart="pure")
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


@tool(restart="pure")
async def write_down(text: str) -> str:
    """Write something down."""
    return "written"


class Recorder:
    """A channel that keeps what it was told, each key once, and may refuse some texts at first."""

    def __init__(self, refuse: Callable[[str], bool] = lambda text: False) -> None:
        self.heard: dict[str, str] = {}
        self.at: dict[str, float] = {}
        self.origins: set[Origin] = set()
        self.repeated = 0
        self._refuse = refuse

    async def send(self, delivery: Delivery) -> None:
        if self._refuse(delivery.text):
            raise RuntimeError("not now")
        if delivery.key in self.heard:
            self.repeated += 1
            return
        self.heard[delivery.key] = delivery.text
        self.at[delivery.text] = asyncio.get_running_loop().time()
        self.origins.add(delivery.origin)

    @property
    def texts(self) -> list[str]:
        return list(self.heard.values())


def task(id: str, prompt: str = "", tools: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    return {"task_id": id, "prompt": prompt or f"say {id}", "tools": list(tools), **more}


def delegate(mode: str, *tasks: Any) -> ToolCall:
    return call(
        "delegate_tasks", mode=mode, tasks=[task(t) if isinstance(t, str) else t for t in tasks]
    )


def parallel(*tasks: Any) -> ToolCall:
    return delegate("parallel", *tasks)


def background(*tasks: Any) -> ToolCall:
    return delegate("background", *tasks)


DOCUMENT = {
    "parallel_timeout_secs": 120.0,
    "background_timeout_secs": 600.0,
    "turns_per_task": 10,
    "stall_secs": None,
}
"""The limits that the document has, and the family only in its profile."""


class World:
    """A lead that says `lines`, one a turn and then the last message it has read; and sub-agents
    that do what their prompt says: `say x`, or `after 10 say x`, or what `does` has for it (a line,
    or a function of the request)."""

    def __init__(
        self, *lines: Any, does: dict[str, Any] | None = None, name: str = "lead", **settings: Any
    ) -> None:
        self.lines, self.does = lines, does or {}
        self.requests: list[ModelRequest] = []
        self.results: list[str] = []
        self.busy = self.most = 0
        self.model = Scripted(self._say, name=f"model of {name}")
        self.lead = self.agent(name, **settings)

    def agent(self, name: str, **settings: Any) -> Agent:
        return Agent(
            name,
            "Lead.",
            model=self.model,
            tools=[look_up, write_down],
            families=[family("delegate", **{**DOCUMENT, **settings})],
            options={"origin": HOOK},
        )

    async def _say(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        if request.agent.endswith(".delegate"):
            return await self._work(request)
        if request.turn:
            self.results = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        if request.turn >= len(self.lines):
            return request.messages[-1].text
        line = self.lines[request.turn]
        return await line(request) if callable(line) else line

    async def _work(self, request: ModelRequest) -> Any:
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            prompt = request.messages[0].text
            if prompt in self.does:
                line = self.does[prompt]
                return await line(request) if callable(line) else line
            if match := re.fullmatch(r"after ([0-9.]+) say (.*)", prompt, re.DOTALL):
                await asyncio.sleep(float(match[1]))
                return match[2]
            return prompt.removeprefix("say ")
        finally:
            self.busy -= 1

    def of(self, prompt: str) -> list[ModelRequest]:
        """What was asked of the sub-agent with that prompt."""
        return [
            r
            for r in self.requests
            if r.agent.endswith(".delegate") and r.messages[0].text == prompt
        ]

    async def go(
        self,
        channel: Recorder | None = None,
        *,
        seconds: float = 10_000,
        rules: Limits | None = None,
        **options: Any,
    ) -> str:
        """Run the lead to its end, give background work its time, and return the lead's last
        text."""
        channels = {"hook": channel or Recorder()}
        async with Retinue(clock=VirtualClock(), channels=channels, limits=rules) as retinue:
            outcome = await retinue.run(self.lead, "Go.", **options)
            await asyncio.sleep(seconds)
            assert await retinue.verify() == []
        return outcome.text


def pause(seconds: float, line: Any) -> Callable[[ModelRequest], Any]:
    """A line that is said after a while."""

    async def later(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds)
        return line

    return later
