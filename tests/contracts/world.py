"""What the contract of a store is driven with: the real core, played by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from retinue.core.changes import Changes
from retinue.core.events import (
    Aborted,
    ActionsReturned,
    AgentRegistered,
    AnyEvent,
    ModelRegistered,
    Replied,
    Requested,
    TextReturned,
)
from retinue.core.ids import run_id
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.spec import Actions, RunRequest
from retinue.core.state import Run
from retinue.core.trees import Trees
from retinue.core.values import Budget, Definition, Limits, ModelInfo, Usage

START = 1_763_000_000_000


class World:
    """Trees that are driven by hand; `take` gives what has to be written."""

    def __init__(self) -> None:
        self.trees = Trees(Limits())
        self.at = START
        tools = ("read", "spawn")
        self.apply("", ModelRegistered(model=ModelInfo(name="m", price_in=3, price_out=15)))
        definition = Definition(
            name="worker",
            model="m",
            tools=tools,
            reachable_tools=tools,
            agents=("worker",),
            prompt_bytes=40,
        )
        self.apply("", AgentRegistered(definition=definition))

    def apply(self, run: str, event: AnyEvent) -> None:
        self.at += 1
        self.trees.apply(run, self.at, event)
        for _, stopped in list(self.trees.live()):
            for call in stopped.broken_off:
                self.trees.apply(stopped.id, self.at, Aborted(attempt=call.attempt))
        assert not self.trees.failed, self.trees.failed

    @property
    def changes(self) -> Changes:
        """What `take` would give."""
        changes = Changes()
        for tree in self.trees._touched.values():
            changes.add(tree.changes)
        return changes

    def take(self) -> Changes:
        return self.trees.take_changes()

    def run(self, id: str) -> Run:
        run = self.trees.run(id)
        assert run is not None
        return run

    def start(self, task: str = "Do it.", **request: Any) -> str:
        """A root that is thinking."""
        id = request.pop("id", "") or run_id(self.at, "root", self.at)
        names = ("base", "conversation", "resumes")
        event = Requested(
            id=id,
            **{name: request.pop(name) for name in names if name in request},
            request=RunRequest(
                agent="worker", task=task, budget=Budget(tokens=1_000_000), **request
            ),
        )
        self.apply("", event)
        return id

    def call(self, run: str, *names: str) -> None:
        calls = tuple(ToolCall(id=f"c{n}", name=name) for n, name in enumerate(names))
        self._reply(run, AssistantMessage(text="Working.", calls=calls), "calls")

    def say(self, run: str, text: str = "Done.") -> None:
        """A last word: the run ends, unless it has more to do."""
        self._reply(run, AssistantMessage(text=text), "end")

    def _reply(self, run: str, message: AssistantMessage, stop: Any) -> None:
        reply = ModelReply(message=message, usage=Usage(input=100, output=10), stop=stop)
        self.apply(run, Replied(attempt=self.run(run).attempt, reply=reply))

    def result(self, run: str, index: int = 0, text: str = "ok") -> None:
        turn = self.run(run).turn
        self.apply(
            run, TextReturned(turn=turn, index=index, call_id=f"c{index}", name="read", text=text)
        )

    def spawn(self, run: str, *tasks: str, index: int = 0, **order: Any) -> list[str]:
        """Children of a run that has just called `spawn`."""
        before = set(self.trees.index.runs)
        orders = Actions(
            spawns=tuple(RunRequest(agent="worker", task=task, **order) for task in tasks)
        )
        turn = self.run(run).turn
        self.apply(
            run,
            ActionsReturned(
                turn=turn, index=index, call_id=f"c{index}", name="spawn", actions=orders
            ),
        )
        return [id for id in self.trees.index.runs if id not in before]

    def family(self, *tasks: str, **order: Any) -> tuple[str, list[str]]:
        root = self.start()
        self.call(root, "spawn")
        return root, self.spawn(root, *(tasks or ("a", "b", "c")), **order)


def run_async(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def texts(messages: list[Any]) -> list[str]:
    return [message.text for message in messages]


async def all_of(store: Any) -> dict[str, Any]:
    """Everything that can be asked, to compare two stores or two moments."""
    runs = await store.listing(children=True, limit=10_000)
    return {
        "load": await store.load(),
        "runs": [await store.row(one.id) for one in runs],
        "listing": runs,
        "entries": await store.entries(limit=100_000),
        "deliveries": await store.deliveries(),
        "accounts": [await store.account(one.id) for one in runs],
        "boards": {one.id: [(b.key, b.act) for b in await store.task_list(one.id)] for one in runs},
        "messages": {
            one.id: await store.messages((await store.row(one.id)).spec.conversation)
            for one in runs
        },
    }


class Opening:
    """How a contract gets its store."""

    def make(self, folder: Path) -> Any:
        """A store that is not open yet; each folder has its own data."""
        raise NotImplementedError

    async def opened(self, folder: Path) -> Any:
        store = self.make(folder)
        await store.open()
        return store
