"""The workload that all runtimes are measured with: a lead hands N items to N workers; each takes
three turns, with a lookup in the first two. `bare` does the same by hand and is the base of every
ratio."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import time
from typing import Any

from retinue import Actions, Agent, Context, Limits, Retinue, SpawnLimits, tool
from retinue.core.messages import AssistantMessage, Message, ModelReply, ToolCall, ToolMessage
from retinue.core.values import Usage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted

FINAL = ("abcde ghijk mnopq stuvw yzabc " * 10)[:200]
FILLER = "x" * 200
USAGE = Usage(input=100, output=50)
RULES = Limits(calls_per_turn=20_000, spawn_limits=SpawnLimits(depth=8))


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


class Bench:
    """The agents of the workload, and how often the lookup was called. Its tools are coroutines, or
    `quick`."""

    def __init__(self, n: int, *, quick: bool = False) -> None:
        self.n = n
        self.lookups = 0
        self._quick = quick
        self.worker = Agent(
            "worker",
            "Look up, then answer.",
            model=self._model("worker", self._work),
            tools=[self._lookup()],
        )
        worker = self.worker

        @tool(restart="keyed")
        async def delegate(caller: Context, task: str) -> Actions:
            """Hand one item to a worker."""
            return caller.spawn_actions(worker, task)

        @tool(restart="keyed", quick=True, name="delegate")
        def delegate_now(caller: Context, task: str) -> Actions:
            """Hand one item to a worker."""
            return caller.spawn_actions(worker, task)

        self.lead = Agent(
            "lead",
            "Hand out every item.",
            model=self._model("lead", self._lead),
            staff=[worker],
            tools=[delegate_now if quick else delegate],
        )

    def _lookup(self) -> Any:
        @tool(restart="pure")
        async def lookup(key: str) -> str:
            """Look a key up."""
            self.lookups += 1
            return f"r{key} {FILLER}"

        @tool(restart="pure", quick=True, name="lookup")
        def lookup_now(key: str) -> str:
            """Look a key up."""
            self.lookups += 1
            return f"r{key} {FILLER}"

        return lookup_now if self._quick else lookup

    def _model(self, name: str, script: Any) -> Scripted:
        return Scripted(script, name=name, usage=USAGE)

    def _work(self, request: ModelRequest) -> ModelReply:
        step = _step(request.messages[-1])
        if step < 2:
            call = ToolCall(
                id=f"c{request.turn}", name="lookup", arguments_json=f'{{"key":"{step + 1}"}}'
            )
            return ModelReply(message=AssistantMessage(calls=(call,)), usage=USAGE, stop="calls")
        return ModelReply(message=AssistantMessage(text=FINAL), usage=USAGE)

    def _lead(self, request: ModelRequest) -> ModelReply:
        if isinstance(request.messages[-1], ToolMessage):
            return ModelReply(message=AssistantMessage(text=FINAL), usage=USAGE)
        calls = [
            ToolCall(id=f"c{i}", name="delegate", arguments_json=f'{{"task":"item {i}"}}')
            for i in range(self.n)
        ]
        return ModelReply(message=AssistantMessage(calls=tuple(calls)), usage=USAGE, stop="calls")


def _step(last: Message) -> int:
    return int(last.text.split(" ", 1)[0][1:]) if isinstance(last, ToolMessage) else 0


async def retinue_cpu(n: int, store: Any, rounds: int) -> list[float]:
    """CPU milliseconds per child, one figure a round."""
    bench = Bench(n)
    out = []
    async with Retinue(store, limits=RULES) as retinue:
        await retinue.run(bench.lead, "warm up")
        for _ in range(rounds):
            bench.lookups = 0
            gc.collect()
            began = cpu()
            outcome = await retinue.run(bench.lead, "go")
            out.append((cpu() - began) * 1000 / n)
            assert outcome.ok
            assert bench.lookups == 2 * n
    return out


async def bare_cpu(n: int, rounds: int) -> list[float]:
    """The same by hand: lists of dicts, one coroutine a worker, no record of anything."""

    async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        await asyncio.sleep(0)
        last = messages[-1]
        n_done = int(last["content"].split(" ", 1)[0][1:]) if last["role"] == "tool" else 0
        if n_done >= 2:
            return {"role": "assistant", "content": FINAL}
        call = {
            "id": f"c{len(messages)}",
            "name": "lookup",
            "arguments": f'{{"key":"{n_done + 1}"}}',
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    async def lookup(key: str) -> str:
        return f"r{key} {FILLER}"

    async def worker(i: int) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"item {i}"}]
        while True:
            texts = await model(messages)
            messages.append(texts)
            if not texts.get("tool_calls"):
                return str(texts["content"])
            for call in texts["tool_calls"]:
                text = await lookup(json.loads(call["arguments"])["key"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    out = []
    for _ in range(rounds):
        gc.collect()
        began = cpu()
        results = await asyncio.gather(*(worker(i) for i in range(n)))
        out.append((cpu() - began) * 1000 / n)
        assert len(results) == n
    return out


def wall() -> float:
    return time.perf_counter()
