"""The real engine on virtual time: real coroutines, real store, real recovery; only the models and
tools are scripted.

The process dies by being abandoned: its commit never returns, its tasks are dropped, and the next
life starts on what the store has. The checks read only the store and the journal of what was really
started."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

import msgspec

from retinue import (
    Actions,
    Agent,
    Ask,
    Context,
    ModelError,
    ModelUnavailable,
    NotFound,
    Origin,
    Refused,
    Retinue,
    ToolResult,
    tool,
)
from retinue.core.changes import Changes
from retinue.core.events import LimitChanged
from retinue.core.messages import AssistantMessage, ModelReply, ToolMessage, UserMessage
from retinue.core.state import Asking, Ended
from retinue.core.trees import Trees
from retinue.core.values import Delivery, ModelInfo
from retinue.models.base import ModelRequest
from retinue.runtime import engine
from retinue.store.base import Store
from retinue.testing import MemoryStore, VirtualClock, run_virtual
from tests.simulation import script
from tests.simulation.history_checks import MARK
from tests.simulation.violation import must


class World:
    """What really happened outside, through all lives."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.starts: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.made_at: dict[str, Any] = {}
        self.tokens = 0
        self.counted: dict[str, tuple[int, int, int]] = {}
        self.left: Counter[str] = Counter()
        self.lives = 0
        self.store: Any = None
        self.broken: list[str] = []
        self.generosity = random.Random(f"{seed} generosity")

    def must(self, holds: object, what: str) -> None:
        """What a model or a tool finds wrong: raised there, it would be taken for a failure of
        theirs."""
        if not holds:
            self.broken.append(what)

    def most_in(self, request: ModelRequest) -> int:
        """The longest prompt that a provider can count now: it does not count the same messages in
        two ways."""
        n, prompt, output = self.counted.get(request.run, (0, 0, 0))
        if not n or len(request.messages) < n:
            return sum(len(m.text) for m in request.messages)
        return (
            prompt
            + (output if len(request.messages) > n else 0)
            + sum(len(m.text) for m in request.messages[n + 1 :])
        )


class Mortal:
    """A store whose process may die before or after a commit, and that is slow now and then: what
    comes meanwhile is stepped, and must not be seen before it is on record."""

    def __init__(self, inner: Store, r: random.Random, rate: float, died: asyncio.Event) -> None:
        self._inner, self._died = inner, died
        self._random, self._rate = r, rate
        self._slow = r.choice((0.0, 0.5))
        self._is_writing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, changes: Changes) -> int:
        must(
            not self._is_writing,
            "I13 a batch was handed over before the one before it was on record",
        )
        self._is_writing = True
        if self._random.random() < self._slow:
            await asyncio.sleep(self._random.choice((0.0, 0.01, 0.3, 2.0)))
        if self._random.random() < self._rate:
            await self._die()
        seq = await self._inner.commit(changes)
        self._is_writing = False
        if self._random.random() < self._rate:
            await self._die()
        return seq

    async def _die(self) -> None:
        self._died.set()
        await asyncio.get_running_loop().create_future()


class ScriptedModel:
    def __init__(self, world: World) -> None:
        self.info: ModelInfo = script.MODEL
        self._world = world

    async def complete(self, request: ModelRequest, emit: object) -> ModelReply:
        seed = self._world.seed
        row = await self._world.store.row(request.run)
        is_known = (
            row is not None
            and row.run.attempt >= request.attempt
            and row.run.length >= len(request.messages)
        )
        self._world.must(is_known, f"I6 {request.run} asks its model before that is on record")
        r = random.Random(f"{seed} {request.path} {request.attempt} delay")
        if r.random() < 0.5:
            request.progress.wait()
            await asyncio.sleep(r.choice((0.0, 0.2, 2.0)))
            request.progress.leave()
        self._world.left[request.run] += 1
        await asyncio.sleep(r.choice((0.0, 0.01, 0.5, 3.0)))
        _provider_valid(self._world, request)
        fails = script.failure(seed, request.path, request.attempt)
        if fails is not None:
            kind, retry, after = fails
            raise ModelUnavailable(kind, kind, after / 1000) if retry else ModelError(kind, kind)
        tools = tuple(t.name for t in request.tools)
        most_in = self._world.most_in(request)
        reply = script.reply(
            seed, request.path, request.turn, request.purpose, tools, most_in, request.max_output
        )
        self._world.tokens += reply.usage.input + reply.usage.output
        self._world.counted[request.run] = (
            len(request.messages),
            reply.usage.input,
            reply.usage.output,
        )
        return reply


def _provider_valid(world: World, request: ModelRequest) -> None:
    """I8, as strictly as a provider: every call is answered next, in order, and nothing else is."""
    owed: list[str] = []
    must = world.must
    for message in request.messages:
        if isinstance(message, ToolMessage):
            must(
                owed and owed.pop(0) == message.call_id,
                f"I8 {request.run} was sent a result out of place",
            )
            continue
        must(not owed, f"I8 {request.run} was sent a call without a result")
        owed = [c.id for c in message.calls] if isinstance(message, AssistantMessage) else []
    must(not owed, f"I8 {request.run} was sent a call without a result")
    must(
        isinstance(request.messages[0], UserMessage),
        f"I8 {request.run} was sent a conversation that begins with a reply",
    )
    must(
        isinstance(request.messages[-1], (UserMessage, ToolMessage)),
        f"I8 {request.run} was asked after its own reply",
    )


def agents(world: World) -> list[Agent]:
    async def pause(context: Context) -> None:
        world.starts[context.key] += 1
        row = await world.store.row(context.spec.id)
        is_known = row is not None and row.run.turn >= context.row.turn
        world.must(is_known, f"I6 {context.key} is begun before it is on record")
        r = random.Random(f"{world.seed} {context.key} tool")
        await asyncio.sleep(r.choice((0.0, 0.0, 0.2, 2.0)))

    @tool(restart="pure")
    async def read(context: Context) -> str:
        await pause(context)
        return "read done"

    @tool(restart="keyed")
    async def post(context: Context) -> str:
        await pause(context)
        return "post done"

    @tool
    async def write(context: Context) -> str:
        world.must(world.starts[context.key] == 0, f"I5 write {context.key} was started twice")
        await pause(context)
        return "write done"

    @tool(restart="pure")
    async def ask(context: Context) -> Ask | ToolResult:
        await pause(context)
        return Ask(question="?")

    def words(outcomes: Any) -> str:
        return " ".join(o.ending.text for o in outcomes)

    @tool(restart="keyed", format_results=words)
    async def hand_out(context: Context) -> Actions:
        await pause(context)
        return script.orders(world.seed, context.spec.path, context.row.turn, context.index)

    @tool(restart="pure")
    async def watch(context: Context) -> Actions | str:
        if context.is_woken:
            return "watch done"
        await pause(context)
        children = tuple(
            spec.id for spec, run in await context.children() if not isinstance(run.state, Ended)
        )
        return script.watch(
            world.seed, context.spec.path, context.row.turn, context.index, children
        )

    async def stages(context: Context) -> str:
        """The same steps in every run of a function, and what came of them."""
        r = random.Random(f"{world.seed} {context.key} stages")
        out = list[str]()
        for n in range(r.choice((1, 2, 2))):
            kind, tasks = r.choice(("run", "gather", "spawn", "ask")), r.choice((1, 2, 2))
            if kind == "ask":
                with contextlib.suppress(Refused):
                    out.append(await context.ask(f"{n}?"))
                continue
            with contextlib.suppress(Refused):
                if kind == "spawn":
                    await context.spawn(worker, f"beside {n}", tell_parent=False)
                    continue
                texts = [f"part {n} {k}" for k in range(tasks)]
                outcomes = await context.gather(worker, *texts, at_once=r.choice((None, 1)))
                world.must(
                    len(outcomes) == tasks, f"I36 {context.key} got {len(outcomes)} of {tasks}"
                )
                out += [outcome.text for outcome in outcomes]
        return " ".join(out) or "done"

    @tool(restart="keyed")
    async def survey(context: Context) -> str:
        when = world.made_at.setdefault(context.key, context.now)
        world.must(when == context.now, f"I36 the time of {context.key} has changed")
        await pause(context)
        return await stages(context)

    @tool
    async def errand(context: Context) -> str:
        world.must(world.starts[context.key] == 0, f"I5 errand {context.key} was started twice")
        await pause(context)
        return await stages(context)

    tools = [ask, hand_out, post, read, watch, write, survey, errand]
    model = ScriptedModel(world)
    worker = Agent("worker", model=model, tools=tools, output=str)
    return [Agent("lead", model=model, tools=tools, staff=[worker])]


class Hook:
    def __init__(self, world: World) -> None:
        self._world = world

    async def send(self, delivery: Delivery) -> None:
        await asyncio.sleep(0.1)
        self._world.received[delivery.key] += 1


async def simulate(seed: int, store: Any) -> World:
    """Live, die and live again until the root has ended and everything is delivered."""
    world, r = World(seed), random.Random(seed)
    engine.MAX_STEPS = r.choice((1, 3, 10, 500))
    rate = r.choice((0.0, 0.02, 0.08))
    clock = VirtualClock()
    root = ""
    while world.lives < 60:
        world.lives += 1
        died = asyncio.Event()
        world.store = store
        life = Mortal(store, r, rate if world.lives < 40 else 0.0, died)
        retinue = Retinue(
            life,
            agents=agents(world),
            limits=script.rules(seed),
            channels={"hook": Hook(world)},
            clock=clock,
        )
        work = asyncio.ensure_future(_one_life(retinue, world, seed))
        death = asyncio.ensure_future(died.wait())
        await asyncio.wait((work, death), return_when=asyncio.FIRST_COMPLETED)
        finished = work.done() and not died.is_set()
        if work.done() and work.exception() is not None and not died.is_set():
            raise work.exception()  # type: ignore[misc]
        await _abandon(retinue, work, death)
        store = store.survivor() if hasattr(store, "survivor") else store
        if finished:
            root = work.result()
            await _check(store, world, root)
            return world
        await asyncio.sleep(r.choice((0.0, 1.0, 20.0)))
    raise AssertionError(f"I20 seed {seed} does not come to its end")


async def _one_life(retinue: Retinue, world: World, seed: int) -> str:
    await retinue.__aenter__()
    order = script.root_order(seed)
    options = {
        f: value
        for f in ("budget", "children_on_end", "max_turns", "grace_turns", "report")
        if (value := getattr(order, f)) is not None
    }
    if order.timeout_ms is not None:
        options["timeout"] = order.timeout_ms / 1000
    origin = Origin(channel="hook")
    root = await retinue.spawn(
        retinue._registry.agents["lead"],
        "root task",
        key=f"root {seed}",
        lanes=order.lanes,
        retry=order.retry,
        origin=origin,
        announce=True,
        **options,
    )
    running = retinue._engine
    for _ in range(100_000):
        await running.caught_up()
        must(
            not running._failure and not running.aside,
            f"the engine stopped: {running._failure!r} {running.aside}",
        )
        deliveries = [
            d for tree in running.trees.by_root.values() for d in tree.deliveries.values()
        ]
        if not running.trees.has_runs and not any(d.state != "dead" for d in deliveries):
            await (
                running.caught_up()
            )  # the last steps were taken while those before them were written
            break
        for _, run in list(running.trees.live()):
            if isinstance(run.state, Asking):
                with contextlib.suppress(Refused):
                    await retinue.answer(run.id, "yes")
        for question in await retinue.open_questions():
            if question.kind == "budget" and world.generosity.random() < 0.2:
                with contextlib.suppress(Refused, NotFound):
                    await retinue.decide(question.id, world.generosity.random() < 0.6)
        await asyncio.sleep(1.0)
    await running.caught_up()
    return root


async def _abandon(retinue: Retinue, *tasks: asyncio.Task[Any]) -> None:
    """Death: nothing more is written, and nobody says goodbye."""
    dead = retinue._engine
    batch = dead.commits.under_way
    commit = None if batch is None else batch.task
    all_tasks = [t for t in (dead.task, commit, *dead.performer.tasks(), *tasks) if t is not None]
    for task in all_tasks:
        task.cancel()
    await asyncio.gather(*all_tasks, return_exceptions=True)
    dead.timers.close()


async def _check(store: Any, world: World, root: str) -> None:
    must(not world.broken, "; ".join(world.broken[:3]))
    await store.open()
    rows = [await store.row(s.id) for s in await store.listing(children=True, limit=10_000)]
    must(rows and all(isinstance(r.run.state, Ended) for r in rows), "I1 not everybody has ended")
    endings = {r.spec.id: r.run.state.ending for r in rows}
    for row in rows:
        own = await store.messages(
            row.spec.conversation, row.spec.base.length if row.spec.base else 0, row.run.length
        )
        marks: Counter[str] = Counter()
        for message in own:
            if not isinstance(message, AssistantMessage):
                marks.update(set(MARK.findall(message.text)))
        must(
            max(marks.values(), default=0) <= 1,
            f"I3 a result stands twice in {row.spec.id}: {marks}",
        )
        n = world.left[row.spec.id]
        must(
            row.run.usage.turns <= n,
            f"I10 {row.spec.id} paid for {row.run.usage.turns} calls, {n} have left",
        )
    entries = await store.entries(0, "", 1_000_000)
    raised = [
        e.event
        for _, e in entries
        if isinstance(e.event, LimitChanged) and e.run == root and not e.stale
    ]
    limit = script.root_order(world.seed).budget.tokens
    limit = None if limit is None else limit + sum(event.add[0] for event in raised)
    must(limit is None or world.tokens <= limit, f"I10 {world.tokens} tokens of {limit}")
    for delivery in await store.deliveries():
        must(
            delivery.state in ("acked", "suppressed", "dead"),
            f"I4 delivery {delivery.key} is {delivery.state}",
        )
        must(
            delivery.state != "acked" or world.received[delivery.key],
            f"I4 {delivery.key} was never received",
        )
    must(not await store.verify(), "I13 the log does not verify")
    if [seq for seq, _ in entries] != list(range(1, len(entries) + 1)):
        return  # runs were deleted, and their rows of the log with them: the fold needs all of them
    folded = Trees(script.rules(world.seed))
    for _, entry in entries:
        folded.fold(entry)
    ended = folded.take_changes().runs
    for id, ending in endings.items():
        must(ended[id].state == Ended(ending=ending), f"I14 the fold gives another end for {id}")


def run_engine_seed(seed: int, make: Any = MemoryStore) -> World:
    return run_virtual(simulate(seed, make()))


def trace(seed: int) -> bytes:
    """Every event of a schedule, for comparing two runs of it byte by byte."""
    store = MemoryStore()

    async def main() -> list[Any]:
        await simulate(seed, store)
        last = store.survivor()
        await last.open()
        return await last.entries(0, "", 1_000_000)

    return msgspec.json.encode(run_virtual(main()))
