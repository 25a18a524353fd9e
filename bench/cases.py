"""One function a figure. Each runs in a process of its own and returns what it saw and whether it
is good enough."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import os
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

from bench.durable import durable_events, postgres_events
from bench.redaction import redaction
from bench.store import STORE_CASES
from bench.workload import RULES, USAGE, Bench, bare_cpu, cpu, retinue_cpu, rss, wall
from retinue import Actions, Agent, Budget, Context, Limits, Retinue, tool
from retinue.core.events import AgentRegistered, CancelAsked, ModelRegistered, Replied, Requested
from retinue.core.history import Conversation, view
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, UserMessage
from retinue.core.spec import RunRequest
from retinue.core.trees import Trees
from retinue.core.values import Definition, ModelInfo
from retinue.models.base import ModelRequest
from retinue.testing import Scripted

Figures = dict[str, Any]


def child_cpu() -> Figures:
    """CPU per child of three turns and two tool calls: by hand, in memory, on SQLite FULL; at 100
    and at 1,000."""
    out: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in (100, 1_000):
            bare = statistics.median(asyncio.run(bare_cpu(n, 5)))
            memory = statistics.median(asyncio.run(retinue_cpu(n, None, 5)))
            disk = statistics.median(
                asyncio.run(retinue_cpu(n, os.path.join(folder, f"{n}.db"), 5))
            )
            out[f"n{n}"] = {
                "bare_ms": round(bare, 3),
                "memory_ms": round(memory, 3),
                "sqlite_ms": round(disk, 3),
                "memory_to_bare": round(memory / bare, 1),
                "sqlite_to_bare": round(disk / bare, 1),
            }
    small, large = out["n100"], out["n1000"]
    out["ok"] = (
        max(small["memory_ms"], large["memory_ms"]) <= 0.5
        and max(small["sqlite_ms"], large["sqlite_ms"]) <= 0.8
    )
    return out


def child_calls() -> Figures:
    """Function calls per child of the same workload, with tools that wait and with quick ones: a
    figure that nothing else on the machine changes."""

    async def measure(*, quick: bool) -> float:
        bench = Bench(100, quick=quick)
        async with Retinue(limits=RULES) as retinue:
            await retinue.run(bench.lead, "warm up")
            profile = cProfile.Profile()
            profile.enable()
            outcome = await retinue.run(bench.lead, "go")
            profile.disable()
            assert outcome.ok
        return sum(entry.callcount for entry in profile.getstats()) / bench.n

    waiting, quick = asyncio.run(measure(quick=False)), asyncio.run(measure(quick=True))
    return {
        "waiting_tools": round(waiting),
        "quick_tools": round(quick),
        "ok": quick <= 1_550 and waiting <= 1_700,
    }


def step_cost() -> Figures:
    """One step with 10 and with 10,000 other runs live: the machine's cost must not know how many
    there are."""

    def trees_with(live: int) -> Trees:
        trees = Trees(Limits())
        definition = Definition(
            name="a", model="m", tools=("t",), reachable_tools=("t",), agents=("a",)
        )
        trees.apply("", 1, AgentRegistered(definition=definition))
        trees.apply("", 1, ModelRegistered(model=ModelInfo(name="m")))
        for i in range(live):
            trees.apply("", 1, Requested(id=f"run {i}", request=RunRequest(agent="a", task="t")))
        trees.take_changes()
        return trees

    def cost(trees: Trees, rounds: int = 2_000) -> float:
        reply = ModelReply(
            message=AssistantMessage(calls=(ToolCall(id="c", name="t"),)), usage=USAGE, stop="calls"
        )
        began = cpu()
        for i in range(rounds):
            id = f"probe {i}"
            trees.apply("", 2, Requested(id=id, request=RunRequest(agent="a", task="t")))
            trees.apply(id, 2, Replied(attempt=1, reply=reply))
            trees.apply(id, 2, CancelAsked())
            trees.take_changes()
        return (cpu() - began) * 1e6 / rounds / 4

    few, many = trees_with(10), trees_with(10_000)
    gc.collect()
    gc.freeze()
    pairs = [(cost(few), cost(many)) for _ in range(7)]
    ratio = statistics.median(b / a for a, b in pairs)
    return {
        "us_at_10": round(statistics.median(a for a, _ in pairs), 1),
        "us_at_10000": round(statistics.median(b for _, b in pairs), 1),
        "ratio": round(ratio, 2),
        "ok": ratio <= 1.5,
    }


def linear_fan_out() -> Figures:
    """One tool call that starts 1,000 children, and one that starts 4,000: cost per child."""

    async def per_child(n: int) -> float:
        worker = Agent("worker", model=Scripted(["done"], name="worker", usage=USAGE))

        @tool(restart="keyed")
        async def spread(caller: Context) -> Actions:
            """Start all."""
            return caller.spawn_actions(worker, *(f"item {i}" for i in range(n)))

        script = [
            ModelReply(
                message=AssistantMessage(calls=(ToolCall(id="c", name="spread"),)), stop="calls"
            ),
            "all done",
        ]
        lead = Agent(
            "lead", model=Scripted(script, name="lead", usage=USAGE), tools=[spread], staff=[worker]
        )
        with tempfile.TemporaryDirectory() as folder:
            async with Retinue(os.path.join(folder, "log.db"), limits=RULES) as retinue:
                best = []
                for _ in range(3):
                    began = cpu()
                    outcome = await retinue.run(lead, "go")
                    best.append((cpu() - began) * 1000 / n)
                    assert outcome.ok
                    assert len(outcome.children) == n
                return min(best)

    small, large = asyncio.run(per_child(1_000)), asyncio.run(per_child(4_000))
    return {
        "ms_at_1000": round(small, 3),
        "ms_at_4000": round(large, 3),
        "ratio": round(large / small, 2),
        "ok": large / small <= 1.5,
    }


def parked_memory() -> Figures:
    """Resident memory of a child that waits for its model, with the memory store."""
    kib = _parked(None)
    return {"kib": round(kib, 1), "ok": kib <= 20}


def parked_memory_sqlite() -> Figures:
    """The same on SQLite; in a process of its own, because memory that was used before is used
    again."""
    with tempfile.TemporaryDirectory() as folder:
        kib = _parked(os.path.join(folder, "log.db"))
    return {"kib": round(kib, 1), "ok": kib <= 20}


def _parked(store: Any) -> float:
    n = 2_000

    async def measure(store: Any) -> float:
        forever = asyncio.Event()

        async def wait(request: ModelRequest) -> str:
            await forever.wait()
            return "never"

        worker = Agent("worker", "Wait.", model=Scripted(wait, name="worker", usage=USAGE))

        @tool(restart="keyed")
        async def spread(caller: Context) -> Actions:
            """Start all."""
            return caller.spawn_actions(worker, *(f"item {i}" for i in range(n)))

        script = [
            ModelReply(
                message=AssistantMessage(calls=(ToolCall(id="c", name="spread"),)), stop="calls"
            ),
            "all done",
        ]
        lead = Agent(
            "lead", model=Scripted(script, name="lead", usage=USAGE), tools=[spread], staff=[worker]
        )
        async with Retinue(store, limits=RULES) as retinue:
            await retinue.spawn(worker, "warm up")
            await asyncio.sleep(0.2)
            gc.collect()
            before = rss()
            run = await retinue.spawn(lead, "go")
            while len(retinue._engine.performer.tasks()) < n + 1:
                await asyncio.sleep(0.05)
            gc.collect()
            after = rss()
            await retinue.cancel(run)
        return (after - before) / n / 1024

    return asyncio.run(measure(store))


def fork_cost() -> Figures:
    """Forking a conversation of 10 and of 1,000 messages: a pointer, so the same."""

    def conversation(n: int) -> Conversation:
        out = Conversation()
        for i in range(n):
            out.append(UserMessage(text=f"message {i} " + "x" * 200))
        return out

    def cost(base: Conversation, rounds: int = 20_000) -> float:
        began = cpu()
        forks = [Conversation(base, len(base)) for _ in range(rounds)]
        used = (cpu() - began) * 1e6 / rounds
        assert len(forks[-1]) == len(base)
        return used

    short, long = conversation(10), conversation(1_000)
    ratio = statistics.median(cost(long) / cost(short) for _ in range(5))
    fork = Conversation(long, len(long))
    same = all(
        a is b for a, b in zip(view(long, 0, len(long)), view(fork, 0, len(fork)), strict=True)
    )
    return {"ratio_1000_to_10": round(ratio, 2), "messages_shared": same, "ok": ratio <= 2 and same}


def _spreading(below: Agent, n: int) -> Any:
    """A tool that starts `n` runs of an agent."""

    @tool(restart="keyed", name="spread")
    async def spread(ctx: Context) -> Actions:
        """Start all."""
        return ctx.spawn_actions(below, *(f"item {i}" for i in range(n)))

    return spread


def cancel_tree() -> Figures:
    """A tree of 1,000 runs (1 + 30 + 30 * 32) is cancelled: from the call to the last end on
    record."""

    async def measure(path: str) -> tuple[float, int, int]:
        async def wait(request: ModelRequest) -> str:
            await asyncio.Event().wait()
            return "never"

        leaf = Agent("leaf", model=Scripted(wait, name="leaf", usage=USAGE))
        script = [
            ModelReply(
                message=AssistantMessage(calls=(ToolCall(id="c", name="spread"),)), stop="calls"
            ),
            "done",
        ]
        middle = Agent(
            "middle",
            model=Scripted(script, name="middle", usage=USAGE),
            tools=[_spreading(leaf, 32)],
            staff=[leaf],
        )
        top = Agent(
            "top",
            model=Scripted(script, name="top", usage=USAGE),
            tools=[_spreading(middle, 30)],
            staff=[middle],
        )
        async with Retinue(path, limits=RULES) as retinue:
            run = await retinue.spawn(top, "go")
            while len(list(retinue._engine.trees.live())) < 991:
                await asyncio.sleep(0.02)
            live = len(list(retinue._engine.trees.live()))
            began = wall()
            state = (await retinue.cancel(run)).state
            seconds = wall() - began
            assert state == "cancelled"
            await asyncio.sleep(0)
            return (
                seconds,
                live,
                len(list(retinue._engine.trees.live())) + len(retinue._engine.performer.tasks()),
            )

    with tempfile.TemporaryDirectory() as folder:
        seconds, live, rest = asyncio.run(measure(os.path.join(folder, "log.db")))
    return {
        "runs": live,
        "seconds": round(seconds, 3),
        "left": rest,
        "ok": seconds < 2 and rest == 0,
    }


def restart() -> Figures:
    """Opening a log with 200 open runs and 1,000 or 20,000 ended ones: the ended ones must not
    matter."""

    async def fill(path: str, ended: int) -> None:
        quick = Agent("quick", model=Scripted(["done"], name="quick", usage=USAGE))

        async def wait(request: ModelRequest) -> str:
            await asyncio.Event().wait()
            return "never"

        slow = Agent("slow", model=Scripted(wait, name="slow", usage=USAGE))
        async with Retinue(path, limits=RULES) as retinue:
            for start in range(0, ended, 500):
                runs = await asyncio.gather(
                    *(retinue.spawn(quick, f"item {start + i}") for i in range(500))
                )
                await asyncio.gather(*map(retinue.wait, runs))
            await asyncio.gather(*(retinue.spawn(slow, f"item {i}") for i in range(200)))

    async def opening(path: str) -> float:
        best = []
        for _ in range(5):
            began = wall()
            async with Retinue(path, limits=RULES) as retinue:
                best.append(wall() - began)
                assert len(retinue.runs_without_agent) == 200
        return min(best)

    with tempfile.TemporaryDirectory() as folder:
        small, large = os.path.join(folder, "small.db"), os.path.join(folder, "large.db")
        asyncio.run(fill(small, 1_000))
        asyncio.run(fill(large, 20_000))
        a, b = asyncio.run(opening(small)), asyncio.run(opening(large))
    return {
        "seconds_at_1000": round(a, 4),
        "seconds_at_20000": round(b, 4),
        "ratio": round(b / a, 2),
        "ok": b / a <= 2,
    }


def budget_cap() -> Figures:
    """1,000 parallel children against one budget: spent to the last unit that fits, never one
    more."""

    async def measure() -> tuple[int, int]:
        limit = 500_000
        n_said = 0

        def work(request: ModelRequest) -> ModelReply:
            nonlocal n_said
            n_said += 130
            if request.turn < 3 and request.purpose == "turn":
                return ModelReply(
                    message=AssistantMessage(
                        text="on it", calls=(ToolCall(id=f"c{request.turn}", name="look"),)
                    ),
                    usage=USAGE_130,
                    stop="calls",
                )
            return ModelReply(message=AssistantMessage(text="done"), usage=USAGE_130)

        @tool(restart="pure")
        async def look() -> str:
            """Look."""
            return "seen"

        info = ModelInfo(name="worker", max_output=400)
        worker = Agent("worker", model=Scripted(work, info=info), tools=[look])

        @tool(restart="keyed")
        async def spread(caller: Context) -> Actions:
            """Start all."""
            return caller.spawn_actions(worker, *(f"item {i}" for i in range(1_000)))

        script = [
            ModelReply(
                message=AssistantMessage(calls=(ToolCall(id="c", name="spread"),)),
                usage=USAGE_130,
                stop="calls",
            ),
            ModelReply(message=AssistantMessage(text="done"), usage=USAGE_130),
        ]
        lead = Agent("lead", model=Scripted(script, name="lead"), tools=[spread], staff=[worker])
        async with Retinue(None, limits=RULES) as retinue:
            outcome = await retinue.run(lead, "go", budget=Budget(tokens=limit))
        return outcome.tree_tokens, limit

    spent, limit = asyncio.run(measure())
    return {"limit": limit, "spent": spent, "over": max(0, spent - limit), "ok": 0 < spent <= limit}


USAGE_130 = USAGE.__class__(input=80, output=50)
CASES: dict[str, Callable[[], Figures]] = {
    f.__name__: f
    for f in (
        child_cpu,
        child_calls,
        step_cost,
        linear_fan_out,
        parked_memory,
        parked_memory_sqlite,
        fork_cost,
        durable_events,
        postgres_events,
        cancel_tree,
        restart,
        budget_cap,
        redaction,
        *STORE_CASES,
    )
}
