"""One life of the program that is killed: it opens the log, asks for its roots by key, and stays
until all is done.

What really happens is written down outside the log, in records that a kill cannot tear. A fuse may
end the process at a named point. `python -m tests.crash.workload FOLDER` is one life in a process
of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from retinue import (
    Actions,
    Agent,
    Ask,
    ChildOutcome,
    Context,
    History,
    Lane,
    Limits,
    Origin,
    Retinue,
    Retry,
)
from retinue.core.changes import Changes
from retinue.core.messages import ModelReply
from retinue.core.spec import RunRequest, SendMessage
from retinue.core.values import Delivery, Restart
from retinue.errors import Refused, StoreLocked
from retinue.models.base import ModelRequest
from retinue.models.scripted import Scripted
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.tools.function import FunctionTool
from tests.crash import plan as plans
from tests.crash.plan import Node, Plan, Script

POINTS = (
    "open-before",
    "open-after",
    "root-before",
    "root-after",
    "commit-before",
    "commit-inside",
    "commit-after",
    "model-start",
    "model-end",
    "tool-start",
    "tool-end",
    "send-before",
    "send-inside",
    "send-after",
    "answer-before",
    "answer-after",
)
LOG, JOURNAL, RECEIPTS = "log.db", "journal", "receipts"
OUTCOMES, GO = "outcomes.json", "go"
RECORD = 512
"""A record never crosses a page, and within a page the kernel finishes a write before it looks at a
kill."""

LOCKED = 3
NEVER = 3_600.0


class Fuse:
    """Ends the process at the `nth` passage of `point`."""

    def __init__(self, point: str = "", nth: int = 1) -> None:
        self.point, self.nth = point, nth

    def at(self, point: str) -> None:
        if point == self.point:
            self.nth -= 1
            if self.nth == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)


class Book:
    """A file that is only ever added to, one record at a time, by one process after the other."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **fields: Any) -> None:
        line = msgspec.json.encode(fields)
        assert len(line) < RECORD, line
        os.write(self._fd, line.ljust(RECORD - 1) + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def read_book(path: Path) -> list[dict[str, Any]]:
    return (
        [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        if path.exists()
        else []
    )


class Data(msgspec.Struct):
    """What a child hands in that has an output type."""

    said: str


class Watched(SqliteStore):
    """The store as it is, with a fuse around what makes it durable."""

    def __init__(self, world: World) -> None:
        super().__init__(world.folder / LOG)
        self._world = world

    async def open(self) -> int:
        self._world.fuse.at("open-before")
        self._world.life = await super().open()
        self._world.fuse.at("open-after")
        return self._world.life

    async def commit(self, changes: Changes) -> int:
        self._world.fuse.at("commit-before")
        seq = await super().commit(changes)
        self._world.fuse.at("commit-after")
        return seq


class Hook:
    """The other side of a channel: it takes each key once, and fails now and then."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def send(self, delivery: Delivery) -> None:
        world = self._world
        world.fuse.at("send-before")
        keys = {r["key"] for r in read_book(world.folder / RECEIPTS) if r["is"] == "new"}
        await asyncio.sleep(_pause("send", delivery.key))
        if delivery.attempts == 1 and zlib.crc32(delivery.key.encode()) % 3 == 0:
            world.receipts.write(**{"is": "failed"}, key=delivery.key, text=delivery.text)
            raise ConnectionError("try again")
        kind = "again" if delivery.key in keys else "new"
        world.receipts.write(**{"is": kind}, key=delivery.key, text=delivery.text)
        world.fuse.at("send-inside")
        await asyncio.sleep(0)
        world.fuse.at("send-after")


class Queueing(Scripted):
    """A model whose calls wait before they leave, as they do for a provider. That is written down
    before and after."""

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world.think, **options)
        self._world = world

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        request.progress.wait()
        await asyncio.sleep(_pause("queue", f"{request.path} {request.turn}"))
        self._world.fuse.at("model-start")
        self._world.note_call(request, "model")
        return await super().complete(request, emit)


class World:
    """Everything of one workload that can be made before the process forks: nothing here is open
    yet."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.script = Script(plan)
        self.fuse = Fuse()
        self.life = 0
        self.tools = Tools(self)
        model = Queueing(self, name="model")
        clerk = Agent("clerk", model=model, tools=self.tools.all, output=Data)
        self.lead = Agent("lead", model=model, tools=self.tools.all, staff=[clerk])
        self.rules = Limits(
            max_deaths=plan.max_deaths,
            max_restarts=1_000_000,
            text_cap=plans.TEXT_CAP,
            delivery_base_ms=1,
            delivery_cap_ms=3,
            delivery_tries=1_000_000,
        )

    def note_call(self, request: ModelRequest, kind: str) -> None:
        self.journal.write(
            **{"is": kind},
            life=self.life,
            run=request.run,
            turn=request.turn,
            attempt=request.attempt,
        )

    async def think(self, request: ModelRequest) -> Any:
        self.note_call(request, "left")
        await asyncio.sleep(_pause("model", f"{request.path} {request.turn}"))
        line = self.script(request)
        self.fuse.at("model-end")
        return line

    async def live(self, fuse: Fuse, patience: float = 30.0, *, hold: bool = False) -> None:
        """From the start of a process to the end of all work."""
        self.fuse = fuse
        self.journal, self.receipts = Book(self.folder / JOURNAL), Book(self.folder / RECEIPTS)
        apsw.connection_hooks.append(self._watch)
        try:
            outcomes = await self._work(patience, hold=hold)
        finally:
            apsw.connection_hooks.remove(self._watch)
            self.journal.close()
            self.receipts.close()
        part = self.folder / (OUTCOMES + ".part")
        part.write_bytes(msgspec.json.encode(outcomes))
        part.replace(self.folder / OUTCOMES)

    def _watch(self, db: apsw.Connection) -> None:
        """The writer's thread passes here when a transaction is complete and nothing of it is in
        the file yet."""
        db.set_commit_hook(lambda: bool(self.fuse.at("commit-inside")))  # type: ignore[func-returns-value]

    async def _work(self, patience: float, *, hold: bool) -> dict[str, Any]:
        retinue = Retinue(
            Watched(self), agents=[self.lead], limits=self.rules, channels={"hook": Hook(self)}
        )
        async with retinue:
            roots = [await self._root(retinue, root) for root in self.plan.roots]
            answering = asyncio.create_task(self._answer(retinue, roots, hold=hold))
            try:
                async with asyncio.timeout(patience):
                    await self._wait(retinue, roots)
                is_stuck = False
            except TimeoutError:
                is_stuck = True
            answering.cancel()
            return {
                "stuck": is_stuck,
                "roots": roots,
                "wrong": [*await retinue.verify()],
                "life": self.life,
            }

    async def _root(self, retinue: Retinue, root: Node) -> str:
        self.fuse.at("root-before")
        options = _options(root)
        id = await retinue.spawn(
            self.lead, root.task, key=self.plan.key(root), origin=Origin(channel="hook"), **options
        )
        self.fuse.at("root-after")
        self.journal.write(**{"is": "root"}, life=self.life, name=root.name, run=id)
        return id

    async def _answer(self, retinue: Retinue, roots: Sequence[str], *, hold: bool) -> None:
        if hold:
            await _until(self._may_answer)
        while True:
            for id in roots:
                try:
                    self.fuse.at("answer-before")
                    await retinue.answer(id, plans.YES)
                    self.fuse.at("answer-after")
                except Refused:
                    await asyncio.sleep(0.002)

    async def _may_answer(self) -> bool:
        return (self.folder / GO).exists()

    async def _wait(self, retinue: Retinue, roots: Sequence[str]) -> None:
        """The roots, then what outlives them, then what is still to be sent."""
        await asyncio.gather(*map(retinue.wait, roots))
        await _until(lambda: self._all_ended(retinue))
        await _until(lambda: self._all_sent(retinue))

    async def _all_ended(self, retinue: Retinue) -> bool:
        return not [s async for s in retinue.runs(state="open", children=True)]

    async def _all_sent(self, retinue: Retinue) -> bool:
        return not [d async for d in retinue.deliveries(state=("pending", "sent"))]


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(0.002)


def _options(node: Node) -> dict[str, Any]:
    """The order for a node."""
    options: dict[str, Any] = {
        "label": node.name,
        "announce": node.announce,
        "children_on_end": "keep" if node.leaves else "wait",
        "retry": Retry(attempts=6, base_ms=1, cap_ms=3, then="fail"),
    }
    if node.kind == "late":
        options["timeout_ms"] = 30
    if node.kind == "error":
        options["report"] = "submit"
    if node.fork:
        options["history"] = History(kind="fork")
    if node.lane:
        options["lanes"] = (Lane(name="narrow", size=2),)
    return options


def _pause(*what: str) -> float:
    return random.Random(" ".join(what)).choice((0.0, 0.0, 0.001, 0.002, 0.004))


class Tools:
    """One of each restart class, and those by which runs deal with each other."""

    def __init__(self, world: World) -> None:
        self._world = world
        kinds: list[tuple[str, Restart]] = [
            ("pure", "pure"),
            ("keyed", "keyed"),
            ("long", "pure"),
            ("sleep", "pure"),
        ]
        orders: list[tuple[Callable[..., Any], Restart]] = [
            (self.call_off, "keyed"),
            (self.tell, "keyed"),
            (self.ask, "pure"),
            (self.poison, "pure"),
        ]
        self.all = [
            *(
                FunctionTool(self._plain(name), name=name, restart=restart)
                for name, restart in kinds
            ),
            *(FunctionTool(function, restart=restart) for function, restart in orders),
            FunctionTool(self.hand_out, restart="keyed", format_results=_compose),
            FunctionTool(self.unsafe),
        ]

    def _begin(self, context: Context, tool: str) -> None:
        self._world.fuse.at("tool-start")
        self._note(context, tool, "start")

    def _end(self, context: Context, tool: str) -> None:
        self._note(context, tool, "end")
        self._world.fuse.at("tool-end")

    def _note(self, context: Context, tool: str, kind: str) -> None:
        self._world.journal.write(
            **{"is": kind},
            life=self._world.life,
            pid=os.getpid(),
            tool=tool,
            key=context.key,
            run=context.run_id,
            call=context.call_id,
        )

    def _plain(self, name: str) -> Callable[..., Any]:
        async def run(context: Context, node: str, step: int, n: int) -> str:
            self._begin(context, name)
            await asyncio.sleep(NEVER if name == "sleep" else _pause(context.key))
            self._end(context, name)
            return plans.answer(name, node, step, n)

        return run

    def unsafe(self, context: Context, node: str, step: int, n: int) -> str:
        """Runs in a thread, as a plain function does, and declares nothing."""
        self._begin(context, "unsafe")
        time.sleep(_pause(context.key))
        self._end(context, "unsafe")
        return plans.answer("unsafe", node, step, n)

    async def hand_out(self, context: Context, node: str, step: int, n: int) -> Actions:
        self._begin(context, "hand_out")
        act = self._world.script.act(node, step, n)
        spawns = tuple(self._order(context, child, compose=act.compose) for child in act.children)
        self._end(context, "hand_out")
        return Actions(spawns=spawns)

    def _order(self, context: Context, child: Node, *, compose: bool) -> RunRequest:
        agent = "clerk" if child.kind in ("data", "error") else "lead"
        return context.request(
            agent, child.task, join=child.join, format_results=compose, **_options(child)
        )

    async def call_off(self, context: Context, node: str, step: int, n: int) -> Actions:
        self._begin(context, "call_off")
        target = self._world.script.act(node, step, n).target
        (run_id,) = [
            spec.id for spec, _ in await context.children() if spec.request.label == target
        ]
        self._end(context, "call_off")
        return Actions(cancels=(run_id,), answer="Called off.")

    async def tell(self, context: Context, node: str, step: int, n: int) -> Actions:
        self._begin(context, "tell")
        await asyncio.sleep(0)
        self._end(context, "tell")
        return Actions(
            sends=(SendMessage(to=context.spec.parent, text=plans.mail(node)),), answer="Told."
        )

    async def ask(self, context: Context, node: str, step: int, n: int) -> Ask:
        self._begin(context, "ask")
        await asyncio.sleep(0)
        self._end(context, "ask")
        return Ask(question="May I?")

    async def poison(self, context: Context, node: str, step: int, n: int) -> str:
        """Gives the others time to get on, then takes the process with it."""
        self._begin(context, "poison")
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
        return ""


def _compose(outcomes: Sequence[ChildOutcome]) -> str:
    parts = []
    for o in outcomes:
        e = o.ending
        parts.append(f"{o.label} {e.state.replace('_', ' ')} ({e.stop}) {e.error} {e.text}")
    return "\n".join(parts)


def main() -> int:
    """One cold life."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plan", default="0", help="a seed, or poison, or hold")
    parser.add_argument("--point", default="", choices=("", *POINTS))
    parser.add_argument("--nth", type=int, default=1)
    args = parser.parse_args()
    world = World(plan_named(args.plan), args.folder)
    try:
        asyncio.run(world.live(Fuse(args.point, args.nth), hold=args.plan == "hold"))
    except StoreLocked as error:
        print(error)
        return LOCKED
    return 0


def plan_named(name: str) -> Plan:
    if name == "poison":
        return plans.poison()
    return plans.hold() if name == "hold" else plans.make(int(name))


if __name__ == "__main__":
    sys.exit(main())
