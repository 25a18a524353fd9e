"""A stage for `subagent`: one model plays the lead and all helpers, and everything that it was
asked is kept."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from retinue import Agent, Outcome, Retinue, tool
from retinue.core.messages import ToolCall, ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from retinue.tools.families.profiles import family

HELPER = "lead.subagent"


@tool(restart="pure")
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


@tool(restart="pure")
async def write_down(text: str) -> str:
    """Write something down."""
    return "written"


@tool(restart="pure")
async def break_down() -> str:
    """Fail."""
    raise OSError("the disk is gone")


TOOLS = (look_up, write_down, break_down)
PLAIN = {"look_up", "write_down", "break_down", "artifact"}
NESTING = {"subagent", "parallel_subagent"}


def one(prompt: str, label: str = "", **more: Any) -> ToolCall:
    """A call of `subagent`; its label is its prompt unless told."""
    return call("subagent", **task(prompt, label, **more))


def many(*tasks: str | dict[str, Any], **more: Any) -> ToolCall:
    return call(
        "parallel_subagent", tasks=[task(t) if isinstance(t, str) else t for t in tasks], **more
    )


def task(prompt: str, label: str = "", **more: Any) -> dict[str, Any]:
    return {"label": label or prompt, "task_prompt": prompt, **more}


class Stage:
    """The lead says `lines`, one a turn, then "done". A helper says the lines that `does` has for
    its prompt, one a turn, then that it did it; asked for a summary it says what `sums` has. A line
    can be a function of the request."""

    def __init__(
        self,
        *lines: Any,
        does: dict[str, Any] | None = None,
        sums: dict[str, Any] | None = None,
        tools: Sequence[Any] = TOOLS,
        seconds: float = 0.0,
        **settings: Any,
    ) -> None:
        self.lines, self.does, self.sums = lines, does or {}, sums or {}
        self.requests: list[ModelRequest] = []
        self.busy = self.most = 0
        self.model = Scripted(self._say, name="big", delay=seconds)
        self.lead = Agent(
            "lead",
            "Lead.",
            model=self.model,
            tools=tools,
            families=[family("subagent", **settings)],
        )

    async def _say(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        line: Any
        if request.path == "0":
            line = self.lines[request.turn] if request.turn < len(self.lines) else "done"
            return await said(line, request)
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            return await said(self._work(request), request)
        finally:
            self.busy -= 1

    def _work(self, request: ModelRequest) -> Any:
        prompt = request.messages[0].text
        if request.purpose == "summary":
            return self.sums.get(prompt, f"sum of {prompt}")
        does = self.does.get(prompt, f"did {prompt}")
        if not isinstance(does, list):
            return does
        return does[request.turn] if request.turn < len(does) else f"did {prompt}"

    def of(self, prompt: str) -> list[ModelRequest]:
        """What was asked of the helper with that prompt."""
        return [q for q in self.requests if q.path != "0" and q.messages[0].text == prompt]

    def offered(self, prompt: str) -> set[str]:
        """The tools that a helper could call, in all its turns."""
        record = [{t.name for t in q.tools} for q in self.of(prompt) if q.purpose == "turn"]
        assert record and all(names == record[0] for names in record)
        return record[0]

    async def go(
        self, then: Callable[[Retinue, str], Awaitable[Any]] | None = None, **options: Any
    ) -> Played:
        """A run of the lead from its start to its end; `then` is done after the start."""
        rules = options.pop("rules", None)
        async with Retinue(
            clock=VirtualClock(), limits=rules, agents=options.pop("agents", ())
        ) as retinue:
            run = await retinue.spawn(self.lead, "Go.", **options)
            if then is not None:
                await then(retinue, run)
            return await played(retinue, run)


async def said(line: Any, request: ModelRequest) -> Any:
    line = line(request) if callable(line) else line
    return await line if inspect.isawaitable(line) else line


def pause(seconds: float, line: Any) -> Callable[[ModelRequest], Any]:
    """A line that is said after a while."""

    async def later(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds)
        return await said(line, request)

    return later


class Played(msgspec.Struct):
    """What is left of a run: how it ended, what its calls were answered, and all runs below it by
    their label."""

    outcome: Outcome
    told: list[ToolMessage]
    below: dict[str, Outcome]

    @property
    def result(self) -> dict[str, Any]:
        """The result object of the first call."""
        return results(self.told)[0]

    @property
    def refusal(self) -> str:
        """The error of the first call; it has started nobody, and the lead goes on."""
        assert self.told[0].error, self.told[0]
        assert self.outcome.state == "completed"
        assert self.below == {}
        return self.told[0].text


async def played(retinue: Retinue, run: str) -> Played:
    outcome = await retinue.wait(run)
    assert outcome is not None
    messages = [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]
    below: dict[str, Outcome] = {}
    todo = list(outcome.children)
    while todo:
        child = todo.pop()
        end = await retinue.outcome(child.id)
        assert end is not None
        below[child.label] = end
        todo += end.children
    assert await retinue.verify() == []
    return Played(outcome, messages, below)


def results(messages: Sequence[ToolMessage]) -> list[dict[str, Any]]:
    """Result objects, which are nothing but the documented keys."""
    out = []
    for result in messages:
        assert not result.error, result.text
        results: dict[str, Any] = msgspec.json.decode(result.text)
        if "results" in results:
            check_batch(results)
        else:
            error = [] if results["success"] else ["error"]
            assert list(results) == ["success", "output", *error, "truncated", "metadata"]
            assert all(isinstance(v, str) for v in results["metadata"].values())
        out.append(results)
    return out


def check_batch(results: dict[str, Any]) -> None:
    stopped = ["fail_fast"] if "fail_fast" in results else []
    assert list(results) == ["results", "total_duration_ms", "successful", "failed", *stopped]
    for line in results["results"]:
        error = [] if line["success"] else ["error"]
        partial = ["completion_status"] if "completion_status" in line else []
        assert list(line) == [
            "label",
            "success",
            "output",
            "duration_ms",
            *error,
            "tokens_used",
            *partial,
        ]
        assert line["success"] or not partial
    good = sum(line["success"] for line in results["results"])
    assert (results["successful"], results["failed"]) == (good, len(results["results"]) - good)
