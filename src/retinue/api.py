"""The front door, and the only place that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from retinue.channels.base import Channel
from retinue.config import environment_catalog
from retinue.core import machine
from retinue.core.events import (
    Answered,
    AnyEvent,
    CancelAsked,
    Dropped,
    Forgotten,
    Narrowed,
    Posted,
    Requested,
    Requeued,
)
from retinue.core.orders import Base, Order
from retinue.core.spawn import cannot_write, fork_point
from retinue.core.state import Asking, Ended, Working
from retinue.core.text import run_id
from retinue.core.values import Assistant, Capabilities, Delivery, Mail, Message, Rules, checked
from retinue.definitions import Agent, define
from retinue.errors import ConfigError, NotFound, Refused, RetinueError
from retinue.models.base import Model, Models
from retinue.outcomes import Node, Outcome, build_outcome, state_word
from retinue.runtime.bus import Delta, Step
from retinue.runtime.clock import Clock, SystemClock
from retinue.runtime.engine import Engine
from retinue.store.base import Row, Store, Summary
from retinue.store.memory import MemoryStore
from retinue.store.sqlite import SqliteStore
from retinue.tools.base import Tool
from retinue.tools.builtin.artifacts import PAGE, ArtifactTool
from retinue.tools.toolbox import Toolbox


class Retinue:
    """A runtime on one store. Use it as an async context manager.

    `store` is a path (SQLite), None (memory), or a `Store`. Agents named in `agents` are known from the start, so that
    open runs of an earlier process go on at once; those of other agents wait until their agent is used.
    """

    def __init__(
        self,
        store: str | Path | Store | None = None,
        *,
        agents: Sequence[Agent] = (),
        rules: Rules | None = None,
        channels: Mapping[str, Channel] | None = None,
        models: Models | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        try:
            rules = checked(rules or Rules())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the rules are wrong: {error}") from None
        if not rules.salt:
            rules = msgspec.structs.replace(rules, salt=self._clock.chance())
        self._toolbox = Toolbox()
        self._models: dict[str, Model] = {}
        self._catalog = models
        self._agents: dict[str, Agent] = {}
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._store = _open(store)
        self._engine = Engine(self._store, self._clock, self._toolbox, self._models, channels or {}, rules)
        self._first = tuple(agents)

    async def __aenter__(self) -> Retinue:
        await self._engine.start()
        try:
            for name in self._catalog.offered if self._catalog is not None else ():
                self._know_model(name)
            for agent in self._first:
                self._register(agent)
            await self._engine.take_up()
        except BaseException:
            await self._engine.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.stop()
        if self._catalog is not None:
            await self._catalog.close()

    # starting runs

    async def run(self, agent: Agent, task: str, **options: Any) -> Outcome:
        """Start a run and wait for its end. `options` are the fields of `Order`; see `spawn`."""
        return await self._outcome_of(await self.spawn(agent, task, **options))

    async def spawn(self, agent: Agent, task: str, *, key: str = "", **options: Any) -> str:
        """Start a run and return its id once it is recorded. The same `key` starts the same run only once."""
        await self._known(agent)
        order = self._order(agent, task, options)
        if not key:
            return await self._request(Requested(id=run_id(self._clock.now(), self._clock.chance()), order=order))
        id = run_id(0, "key", key)
        asked = self._asked.get(id)
        if asked is None:
            asked = self._asked[id] = asyncio.ensure_future(self._request_once(Requested(id=id, order=order)))
            asked.add_done_callback(lambda _: self._asked.pop(id))
        return await asyncio.shield(asked)

    async def fork(self, run: str, task: str, *, agent: Agent | None = None, **options: Any) -> str:
        """Start a run that shares the conversation of `run` up to its last complete turn; nothing is copied."""
        row = await self._row(run)
        agent = agent or self._agent(row.spec.order.agent)
        await self._known(agent)
        base = Base(conversation=row.spec.conversation, length=fork_point(row.run), start=row.run.start)
        id = run_id(self._clock.now(), self._clock.chance())
        order = self._order(agent, task, options)
        return await self._request(
            Requested(id=id, order=order, base=base, context=row.run.context + row.run.fresh),
        )

    async def resume(self, run: str, task: str = "Go on.", **options: Any) -> str:
        """Go on in the conversation of a run that has ended: a new run, the same messages."""
        row = await self._row(run)
        if not isinstance(row.run.state, Ended):
            raise Refused("open", f"run {run} has not ended; send it a message instead")
        agent = self._agent(row.spec.order.agent)
        await self._known(agent)
        base = Base(conversation=row.spec.conversation, length=row.run.length, start=row.run.start)
        if await self._store.messages(base.conversation, base.length, base.length + 1):
            raise Refused("conversation", f"run {run} has been resumed before; resume the last run, or fork this one")
        id = run_id(self._clock.now(), self._clock.chance())
        return await self._request(
            Requested(
                id=id,
                order=self._order(agent, task, options),
                base=base,
                conversation=row.spec.conversation,
                resumes=run,
                context=row.run.context + row.run.fresh,
            )
        )

    async def _request_once(self, event: Requested) -> str:
        row = await self._store.row(event.id)
        if row is None:
            return await self._request(event)
        if (row.spec.order.agent, row.spec.order.task) != (event.order.agent, event.order.task):
            raise Refused("key", f"this key has started another task before, in run {event.id}")
        return event.id

    async def _request(self, event: Requested) -> str:
        machine.refuse_request(self._engine.roster, event)
        why = await self._engine.record("", event)
        if why and event.id not in self._engine.roster.specs and await self._store.row(event.id) is None:
            raise Refused("request", why)
        return event.id

    def _order(self, agent: Agent, task: str, options: dict[str, Any]) -> Order:
        options = agent.order_options(options)
        self._know_model(options.get("model", ""))
        if (seconds := options.pop("timeout_seconds", None)) is not None:
            options["timeout_ms"] = round(seconds * 1000)
        try:
            return checked(Order(agent=agent.name, task=task, **options))
        except TypeError as error:
            known = ", ".join(Order.__struct_fields__)
            raise ConfigError(f"{error}; the options of a run are: {known}") from None
        except ValueError as error:
            raise ConfigError(f"an option of the run is wrong: {error}") from None

    # agents

    def register(self, *agents: Agent) -> None:
        """Make agents known. Open runs of an earlier process that waited for them go on at the next start of a run."""
        for agent in agents:
            self._register(agent)

    def _register(self, agent: Agent) -> None:
        crew = list(agent.crew())
        tools = {a.name: self._equip(a) for a in crew}
        models = dict(self._models)
        for member in crew:
            if self._agents.get(member.name, member) is not member:
                raise ConfigError(f"two different agents are named {member.name!r}")
            if (
                not isinstance(member.model, str)
                and models.setdefault(member.model_name, member.model) is not member.model
            ):
                raise ConfigError(f"two different models are named {member.model_name!r}: give one another name")
        boxes = Toolbox()
        for member in crew:
            boxes.add(member.name, tools[member.name])
        self._models.update(models)
        for member in crew:
            self._toolbox.add(member.name, tools[member.name], member.order_defaults)
            self._agents[member.name] = member
            if isinstance(member.model, str):
                self._know_model(member.model)
            self._engine.register(define(member, tools), member.model_info)

    def _know_model(self, name: str) -> None:
        """A model that is given by its name alone is looked up in the catalog."""
        if name not in self._models and ":" in name:
            self._catalog = self._catalog or environment_catalog()
            self._models[name] = model = self._catalog.find(name)
            self._engine.describe(replace(model.info, name=name))

    def _equip(self, agent: Agent) -> Sequence[Tool]:
        own = agent.own_tools
        if not own or any(t.schema.name == "artifact" for t in own):
            return own
        page = max(64, min(PAGE, self._engine.roster.rules.text_cap - 200))
        return (*own, ArtifactTool(self._store.get_artifact, page))

    async def _known(self, agent: Agent) -> None:
        if self._agents.get(agent.name) is not agent:
            self._register(agent)
            await self._engine.take_up()

    def _agent(self, name: str) -> Agent:
        agent = self._agents.get(name)
        if agent is None:
            raise NotFound(f"agent {name!r} is not known to this program; register it first")
        return agent

    # talking to runs

    async def send(self, run: str, text: str, *, steer: bool = False) -> None:
        """Put a message into a run's mailbox. It is read at the next turn; `steer` breaks the current one off."""
        why = cannot_write(self._engine.roster, "", run)
        if why is not None:
            await self._row(run)
            raise Refused("mail", why)
        await self._tell(run, Posted(mail=Mail(seq=0, text=text, steer=steer)))

    async def cancel(self, run: str, reason: str = "") -> str:
        """End a run and everything below it; returns the state it really ended in, which may be another."""
        if run in self._engine.roster.runs:
            await self._engine.record(run, CancelAsked(reason=reason))
        return await self._ended_state(run)

    async def answer(self, run: str, text: str) -> None:
        """Answer the oldest open question of a run."""
        live = self._engine.roster.runs.get(run)
        calls = live.state.calls if live is not None and isinstance(live.state, (Asking, Working)) else None
        if live is None or calls is None or not calls.asks:
            raise Refused("question", f"run {run} is not asking anything")
        index = (calls.asks & -calls.asks).bit_length() - 1
        spec = self._engine.roster.specs[run]
        (said,) = await self._store.messages(spec.conversation, calls.message, calls.message + 1)
        assert isinstance(said, Assistant)
        await self._tell(run, Answered(turn=live.turn, index=index, call_id=said.calls[index].id, text=text))

    async def narrow(self, run: str, access: Capabilities) -> None:
        """Take capabilities away from a live run and everything below it."""
        if run not in self._engine.roster.runs:
            raise NotFound(f"no live run {run!r}")
        try:
            event = Narrowed(access=checked(access))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the capabilities are wrong: {error}") from None
        await self._tell(run, event)

    # watching runs

    async def wait(
        self, *runs: str, timeout_seconds: float | None = None, first: bool = False
    ) -> dict[str, Outcome | None]:
        """Wait for all of the runs, or for the first; None stands for one that is still open. Reading takes nothing."""
        futures, runs = {}, tuple(dict.fromkeys(runs))
        for run in runs:
            if not await self._has_ended(run):
                futures[run] = self._engine.ended(run)
        if futures and (not first or len(futures) == len(runs)):
            mode: Literal["FIRST_COMPLETED", "ALL_COMPLETED"] = "FIRST_COMPLETED" if first else "ALL_COMPLETED"
            await asyncio.wait(futures.values(), timeout=timeout_seconds, return_when=mode)
        for future in futures.values():
            if future.done():
                future.result()
            else:
                future.cancel()
        return {r: await self._outcome_or_none(r) for r in runs}

    async def outcome(self, run: str) -> Outcome | None:
        """How a run ended, or None while it is open."""
        await self._row(run)
        return await self._outcome_or_none(run)

    async def stream(self, run: str, after: int = 0) -> AsyncIterator[Step | Delta]:
        """The steps of a run from number `after` on: those of the log first, then as they come, until its end."""
        with self._engine.bus.watch(run) as watcher:
            ended = None if await self._has_ended(run) else self._engine.ended(run)
            try:
                while True:
                    while page := await self._store.entries(after, run):
                        for after, entry in page:
                            yield Step(after, entry)
                    if ended is None or (ended.done() and watcher.queue.empty()):
                        return
                    while not watcher.lost and (item := await watcher.next(ended)) is not None:
                        if isinstance(item, Delta) or item.seq > after:
                            after = item.seq if isinstance(item, Step) else after
                            yield item
                    watcher.catch_up()
            finally:
                if ended is not None and not ended.done():
                    ended.cancel()

    async def list(self, *, children: bool = False, limit: int = 100, before: str = "") -> Sequence[Summary]:
        """Runs, newest first. Those that were started by other runs are hidden unless asked for."""
        return await self._store.listing(children=children, limit=limit, before=before)

    async def tree(self, run: str) -> Node:
        """A run and everything below it."""
        row = await self._row(run)
        below = [await self.tree(child.spec.id) for child in await self._store.children(run)]
        order = row.spec.order
        return Node(
            id=run,
            label=order.label or order.agent,
            agent=order.agent,
            state=state_word(row.run),
            turn=row.run.turn,
            usage=row.run.usage,
            children=tuple(below),
        )

    async def messages(self, run: str) -> Sequence[Message]:
        """A run's conversation, its fork's prefix included."""
        row = await self._row(run)
        return await self._store.messages(row.spec.conversation, 0, row.run.length)

    async def artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Bytes of something that was too long to be shown whole."""
        return await self._store.get_artifact(sha256, offset, limit)

    # keeping house

    async def forget(self, root: str) -> None:
        """Delete an ended root run, its conversation and everything below it."""
        row = await self._row(root)
        if row.spec.parent:
            raise Refused("root", f"{root} is not a root; forget {row.spec.root} instead")
        if any(s.root == root for s in self._engine.roster.specs.values()):
            raise Refused("open", f"{root} has open runs; cancel it first")
        await self._tell("", Forgotten(root=root))

    async def deliveries(self, states: Iterable[str] = ()) -> Sequence[Delivery]:
        """Announcements and where they are; `dead` ones can be sent again."""
        return await self._store.deliveries(states)

    async def redeliver(self, key: str) -> None:
        """Send a dead announcement again."""
        await self._tell("", Requeued(key=key))

    async def drop_delivery(self, key: str) -> None:
        """Give up on an announcement."""
        await self._tell("", Dropped(key=key))

    async def drain(self, timeout_seconds: float = 30.0) -> bool:
        """Wait until every announcement has arrived or is given up; False when the time was not enough."""
        with contextlib.suppress(TimeoutError), self._engine.bus.watch() as watcher:
            async with asyncio.timeout(timeout_seconds):
                while await self._store.deliveries(("pending", "sent")):
                    await watcher.queue.get()
        return not await self._store.deliveries(("pending", "sent"))

    async def backup(self, path: str | Path) -> None:
        """A consistent copy of the store, made while it is in use."""
        await self._store.backup(str(path))

    async def verify(self) -> Sequence[str]:
        """What is wrong with the store; nothing, one hopes."""
        return await self._store.verify()

    @property
    def dormant(self) -> tuple[str, ...]:
        """Open runs of an earlier process whose agent this program has not named yet."""
        return self._engine.dormant

    @property
    def trouble(self) -> str:
        """Why nothing moves, when nothing moves: a full disk, a lost store."""
        return self._engine.trouble

    async def _tell(self, run: str, event: AnyEvent) -> None:
        """Record an event; what the machine refuses, because the run has moved on, is refused here."""
        why = await self._engine.record(run, event)
        if why:
            raise Refused("state", why)

    async def _has_ended(self, id: str) -> bool:
        """Whether the end of a run is on record. (In memory it may have ended a moment before.)"""
        row = await self._store.row(id)
        if row is None and id not in self._engine.roster.runs:
            raise NotFound(f"no run {id!r}")
        return row is not None and isinstance(row.run.state, Ended)

    async def _ended_state(self, id: str) -> str:
        if not await self._has_ended(id):
            await self._engine.ended(id)
        return state_word((await self._row(id)).run)

    async def _row(self, id: str) -> Row:
        roster = self._engine.roster
        if id in roster.runs and id in roster.specs:
            return Row(roster.specs[id], roster.runs[id])
        row = await self._store.row(id)
        if row is None:
            raise NotFound(f"no run {id!r}")
        return row

    async def _outcome_of(self, id: str) -> Outcome:
        outcome = (await self.wait(id))[id]
        assert outcome is not None
        return outcome

    async def _outcome_or_none(self, id: str) -> Outcome | None:
        row = await self._store.row(id)
        if row is None or not isinstance(row.run.state, Ended):
            return None
        account = await self._store.account(id)
        return build_outcome(row, account, await self._store.children(id), self._agents.get(row.spec.order.agent))


def run_sync(agent: Agent, task: str, *, store: str | Path | Store | None = None, **options: Any) -> Outcome:
    """Run one agent to its end in a program that has no event loop of its own."""
    if asyncio._get_running_loop() is not None:
        raise RetinueError("run_sync cannot be used inside an event loop: await Retinue(...).run(...) instead")

    async def main() -> Outcome:
        async with Retinue(store) as retinue:
            return await retinue.run(agent, task, **options)

    return asyncio.run(main())


def _open(store: str | Path | Store | None) -> Store:
    if store is None:
        return MemoryStore()
    return SqliteStore(str(store)) if isinstance(store, (str, Path)) else store
