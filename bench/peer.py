"""Retinue's adapter for the harness that measures it beside other frameworks.

The harness is not part of this repository. Its `peers/` directory gets this file as
`retinue_peer.py`; each workload runs in a process of its own against a fake provider on loopback,
beside a bare loop that is the base of every ratio."""

from __future__ import annotations

from typing import Any

from common import FINAL, PARENT_SYSTEM, SYSTEM, Ctx  # type: ignore[import-not-found]

from retinue import Actions, Agent, Context, Limits, Retinue, tool
from retinue.core.changes import Changes
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Ended, Run
from retinue.core.values import Ending, ModelInfo
from retinue.models.base import ModelRequest
from retinue.models.codec import Options
from retinue.models.http import ConnectionPool, HttpModel
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.testing import MemoryStore, Scripted, call

NAME = "retinue"
VENV = "retinue"
IMPORT = "import retinue; from retinue.models import http"
MODES = ("http", "inproc")


class Peer:
    def __init__(self, ctx: Ctx) -> None:
        self.ctx = ctx

    async def start(self) -> None:
        ctx = self.ctx

        @tool(restart="pure", quick=True)
        def lookup(key: str) -> str:
            """Look a key up."""
            return str(ctx.lookup(key))

        @tool(restart="pure", quick=True)
        def delegate(task: str, caller: Context) -> Actions:
            """Delegate a task."""
            return caller.spawn_actions("worker", task)

        self.client = ConnectionPool()
        model = self._model()
        self.worker = Agent(
            "worker", SYSTEM, model=model, tools=[lookup], options={"max_turns": 10_000}
        )
        self.lead = Agent("lead", PARENT_SYSTEM, model=model, tools=[delegate], staff=[self.worker])
        self.store = ctx.db or MemoryStore()
        rules = Limits(calls_per_turn=100_000, compact_at=1e9)
        self.retinue = Retinue(self.store, agents=[self.lead, self.worker], limits=rules)
        await self.retinue.__aenter__()

    def _model(self) -> Any:
        info = ModelInfo(name="fake", window=10**9, max_output=1_024)
        if self.ctx.mode == "inproc":
            return Scripted(self._fake, info=info)
        codec = OpenAIChatCodec(limit_field="max_tokens", cache_key=False)
        options = Options(stream=False, cache=False)
        url = self.ctx.base_url + "/v1"
        return HttpModel(
            info, codec, model="fake", base_url=url, key="x", client=self.client, options=options
        )

    def _fake(self, request: ModelRequest) -> Any:
        last = request.messages[-1]
        if request.agent == "lead":
            if isinstance(last, ToolMessage):
                return FINAL
            return [
                call("delegate", task=self.ctx.worker_prompt(i)) for i in range(self.ctx.fanout)
            ]
        step = self.ctx.next_step(last.text if isinstance(last, ToolMessage) else None)
        return FINAL if step is None else call("lookup", key=str(step))

    async def stop(self) -> None:
        await self.retinue.__aexit__(None, None, None)
        await self.client.close()

    async def run_one(self, prompt: str) -> str:
        return (await self.retinue.run(self.worker, prompt)).unwrap()

    run_durable = run_one

    async def fanout(self, n: int) -> str:
        return (await self.retinue.run(self.lead, self.ctx.parent_prompt(n))).unwrap()

    def make_history(self, messages: int, chars: int) -> str:
        """An ended run with a conversation of so many messages, put into the store as it would
        stand there."""
        texts: list[Any] = []
        for i in range(messages // 4):
            texts += [
                UserMessage(text=f"q{i} " + "u" * chars),
                AssistantMessage(
                    calls=(ToolCall(id=f"c{i}", name="lookup", arguments_json='{"key":"1"}'),)
                ),
                ToolMessage(call_id=f"c{i}", name="lookup", text="x" * chars),
                AssistantMessage(text="a" * chars),
            ]
        id = f"history {messages}"
        changes = Changes()
        changes.specs.append(
            RunSpec(
                id=id,
                request=RunRequest(agent="worker", task=""),
                root=id,
                conversation=id,
                model="fake",
            )
        )
        changes.messages += [(id, n, message) for n, message in enumerate(texts)]
        ending = Ending(state="completed", stop="done", text="done")
        changes.runs[id] = Run(
            id=id, state=Ended(ending=ending), length=len(texts), context=len(texts) * chars
        )
        commit = self.store.commit(changes)
        try:
            commit.send(None)
        except StopIteration:
            return id
        raise AssertionError("the memory store waited")

    async def fork(self, history: str, prompt: str) -> str:
        run = await self.retinue.fork(history, prompt, agent=self.worker)
        outcome = await self.retinue.wait(run)
        assert outcome is not None
        return outcome.unwrap()
