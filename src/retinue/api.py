"""The front door, and the only place that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from retinue import asked
from retinue.channels.base import Channel
from retinue.config import environment_secrets
from retinue.core import machine, policy
from retinue.core.events import (
    AnyEvent,
    CancelAsked,
    Dropped,
    Forgotten,
    Narrowed,
    Posted,
    Requested,
    Requeued,
)
from retinue.core.history import complete_turns
from retinue.core.orders import Base
from retinue.core.secrets import Redactor
from retinue.core.spawn import cannot_write, fork_point
from retinue.core.state import Ended
from retinue.core.text import run_id
from retinue.core.values import Capabilities, Delivery, Guard, Mail, Message, Rules, checked
from retinue.crew import Crew
from retinue.definitions import Agent
from retinue.errors import ConfigError, NotFound, Refused, RetinueError
from retinue.models.base import Model, Models
from retinue.outcomes import Node, Outcome, build_outcome, state_word
from retinue.runtime.bus import Delta, Step
from retinue.runtime.clock import Clock, SystemClock
from retinue.runtime.engine import Engine
from retinue.store.base import Row, Store, Summary
from retinue.store.memory import MemoryStore
from retinue.store.sqlite import SqliteStore
from retinue.tools.builtin.artifacts import PAGE
from retinue.tools.builtin.kit import Kit
from retinue.tools.toolbox import Toolbox


class Retinue:
    """A runtime on one store. Use it as an async context manager.

    `store` is a path (SQLite), None (memory), or a `Store`. Agents named in `agents` are known from the start, so that
    open runs of an earlier process go on at once; those of other agents wait until their agent is used. `workspace` is
    the directory in which runs work that name none; where there is no sandbox, `unsafe_bare` runs commands without.
    `secrets` are values, by name, that are never written down, beside those that the environment holds.
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
        workspace: str | Path | None = None,
        unsafe_bare: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        try:
            rules = checked(rules or Rules())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the rules are wrong: {error}") from None
        if not rules.salt:
            rules = msgspec.structs.replace(rules, salt=self._clock.chance())
        self._store = _open(store)
        folder = Path(f"{self._store.path}.tools") if isinstance(self._store, SqliteStore) else None
        page = max(64, min(PAGE, rules.text_cap - 200))
        self._kit = Kit(self._store, folder, page=page, unsafe_bare=unsafe_bare)
        toolbox, known_models = Toolbox(self._kit), dict[str, Model]()
        self._asked: dict[str, asyncio.Future[str]] = {}
        home = os.path.realpath(workspace or os.getcwd())
        hidden = Redactor({**environment_secrets(), **(secrets or {})})
        self._engine = Engine(
            self._store, self._clock, toolbox, known_models, channels or {}, rules, home, hidden if hidden else None
        )
        self._crew = Crew(self._engine, toolbox, self._kit, known_models, models, home)
        self._first = tuple(agents)

    async def __aenter__(self) -> Retinue:
        await self._engine.start()
        try:
            for name in self._crew.catalog.offered if self._crew.catalog is not None else ():
                self._crew.know_model(name)
            for agent in self._first:
                self._crew.register(agent)
            await self._kit.sweep(set(self._engine.roster.runs), self._engine.is_used)
            await self._engine.take_up()
        except BaseException:
            await self._engine.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.stop()
        await self._kit.close()
        if self._crew.catalog is not None:
            await self._crew.catalog.close()

    # starting runs

    async def run(self, agent: Agent, task: str, **options: Any) -> Outcome:
        """Start a run and wait for its end. `options` are the fields of `Order`; see `spawn`."""
        return await self._outcome_of(await self.spawn(agent, task, **options))

    async def spawn(self, agent: Agent, task: str, *, key: str = "", **options: Any) -> str:
        """Start a run and return its id once it is recorded. The same `key` starts the same run only once."""
        await self._known(agent)
        order = self._crew.order(agent, task, options)
        if not key:
            return await self._request(Requested(id=run_id(self._clock.now(), self._clock.chance()), order=order))
        id = run_id(0, "key", key)
        asked = self._asked.get(id)
        if asked is None:
            asked = self._asked[id] = asyncio.ensure_future(self._request_once(Requested(id=id, order=order)))
            asked.add_done_callback(lambda _: self._asked.pop(id))
        return await asyncio.shield(asked)

    async def fork(
        self, run: str, task: str, *, agent: Agent | None = None, at: int | None = None, **options: Any
    ) -> str:
        """Start a run that shares the conversation of `run` up to its last complete turn, or up to the last one within
        its first `at` messages; nothing is copied."""
        row = await self._row(run)
        agent = agent or self._crew.find(row.spec.order.agent)
        await self._known(agent)
        length = fork_point(row.run)
        if at is not None and at < length:
            length = complete_turns(await self._store.messages(row.spec.conversation, 0, max(0, at)))
        base = Base(conversation=row.spec.conversation, length=length, start=min(length, row.run.start))
        id = run_id(self._clock.now(), self._clock.chance())
        order = self._crew.order(agent, task, options)
        held = _held(row, options)
        context = row.run.context + row.run.fresh
        return await self._request(Requested(id=id, order=order, capabilities=held, base=base, context=context))

    async def resume(self, run: str, task: str = "Go on.", **options: Any) -> str:
        """Go on in the conversation of a run that has ended: a new run, the same messages."""
        row = await self._row(run)
        if not isinstance(row.run.state, Ended):
            raise Refused("open", f"run {run} has not ended; send it a message instead")
        agent = self._crew.find(row.spec.order.agent)
        await self._known(agent)
        base = Base(conversation=row.spec.conversation, length=row.run.length, start=row.run.start)
        if await self._store.messages(base.conversation, base.length, base.length + 1):
            raise Refused("conversation", f"run {run} has been resumed before; resume the last run, or fork this one")
        id = run_id(self._clock.now(), self._clock.chance())
        return await self._request(
            Requested(
                id=id,
                order=self._crew.order(agent, task, options),
                capabilities=_held(row, options),
                base=base,
                conversation=row.spec.conversation,
                resumes=run,
                context=row.run.context + row.run.fresh,
            )
        )

    async def _request_once(self, event: Requested) -> str:
        event = self._engine.without_secrets(event)
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

    # agents

    def register(self, *agents: Agent) -> None:
        """Make agents known. Open runs of an earlier process that waited for them go on at the next start of a run."""
        for agent in agents:
            self._crew.register(agent)

    async def _known(self, agent: Agent) -> None:
        if agent not in self._crew:
            self._crew.register(agent)
            await self._engine.take_up()

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
        await self._tell(run, asked.oldest_answer(self._engine.roster, run, text))

    async def questions(self, root: str = "") -> Sequence[asked.OpenQuestion]:
        """What waits for a person, in all runs or in one tree: questions, and calls that need a permission."""
        return await asked.open_questions(self._engine.roster, self._store.messages, root)

    async def decide(self, question: str, allow: bool, *, by: str = "", reason: str = "", always: bool = False) -> None:
        """Permit a call, or do not. The first decision counts; a later one is `Refused`. With `always`, the same call
        is permitted in this tree from now on."""
        q = await asked.find_question(self._engine.roster, self._store.messages, question)
        await self._tell(q.run, asked.decision(q, allow, by, reason, always))

    async def explain(self, run: str, tool: str, args: str = "{}") -> str:
        """Whether a live run may call a tool, and which rule says so."""
        roster = self._engine.roster
        if run not in roster.specs:
            raise NotFound(f"no live run {run!r}")
        definition = roster.definitions[roster.specs[run].order.agent]
        guard = definition.guards.get(tool, Guard())
        now, mode, cwds = self._clock.now(), roster.rules.mode, roster.cwds(run)
        return policy.explain(roster.ancestry(run), tool, now, guard, args, mode, cwds)

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
    def is_busy(self) -> bool:
        """Whether a run can go on here, or an announcement is on its way."""
        roster = self._engine.roster
        on_the_way = any(d.state in ("pending", "sent") for d in roster.deliveries.values())
        return on_the_way or bool(roster.runs.keys() - set(self.dormant))

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
        model = self._engine.roster.models.get(row.spec.model)
        agent = self._crew.agents.get(row.spec.order.agent)
        return build_outcome(row, account, await self._store.children(id), agent, model)


def _held(row: Row, options: Mapping[str, Any]) -> Capabilities:
    """Who goes on from another run holds no more than that did, unless whoever asks for it says what it may do."""
    return Capabilities() if "access" in options else row.run.access or row.spec.capabilities


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
