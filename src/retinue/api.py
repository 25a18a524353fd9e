"""The public API, and the only module that names concrete classes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from retinue import open_questions
from retinue.agent import Agent
from retinue.branches import Branches
from retinue.channels.base import Channel
from retinue.config import cache_folder, environment_secrets, own_places
from retinue.core.events import MailReceived, PermissionsRestricted, Requested, Woke
from retinue.core.history import complete_turns
from retinue.core.ids import run_id
from retinue.core.messages import Message
from retinue.core.redaction import Redactor
from retinue.core.run_mail import cannot_write
from retinue.core.spawn import fork_point
from retinue.core.spec import ForkPoint, RunRequest
from retinue.core.state import Ended, RunRecord, account_refusal
from retinue.core.values import Limits, Mail, Permissions, checked
from retinue.errors import ConfigError, NotFound, Refused
from retinue.maintenance import Retention
from retinue.models.base import Model, ModelCatalog
from retinue.models.tool_limit import fitting, left_out
from retinue.outcomes import Outcome, RunTree, build_outcome, state_word
from retinue.pricing import PriceTag, Pricing
from retinue.registry import Registry
from retinue.runtime.clock import Clock, SystemClock
from retinue.runtime.engine import Engine
from retinue.runtime.secret_filter import learn_from
from retinue.sandbox.open_directories import real_paths
from retinue.store.base import RunInfo, Store
from retinue.store.memory import MemoryStore
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.tools.builtin.artifacts import PAGE
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.toolbox import Toolbox


class Retinue(Branches):
    """A runtime on one store. Use it as an async context manager.

    `store` is a path (SQLite), None (memory), or a `Store`. Agents named in `agents` are known from
    the start, so that their open runs of an earlier process continue; those of other agents wait
    until their agent is used. `workspace` is the directory in which runs work that name none; where
    there is no sandbox, `unsafe_no_sandbox` runs commands without. `secrets` are values, by name,
    that are never written down (or the `Redactor` that knows them), beside those of environment,
    models, channels and tools. `retention`: what is kept of trees that have ended.
    """

    def __init__(
        self,
        store: str | Path | Store | None = None,
        *,
        agents: Sequence[Agent] = (),
        limits: Limits | None = None,
        channels: Mapping[str, Channel] | None = None,
        models: ModelCatalog | None = None,
        clock: Clock | None = None,
        workspace: str | Path | None = None,
        unsafe_no_sandbox: bool = False,
        secrets: Mapping[str, str] | Redactor | None = None,
        retention: Retention | None = None,
    ) -> None:
        clock = clock or SystemClock()
        try:
            limits, retention = checked(limits or Limits()), checked(retention or Retention())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid limits: {error}") from None
        if not limits.salt:
            limits = msgspec.structs.replace(limits, salt=clock.chance())
        opened = _open(store)
        folder = Path(f"{opened.path}.tools") if isinstance(opened, SqliteStore) else None
        page = max(64, min(PAGE, limits.text_cap - 200))
        private = own_places(opened.path if isinstance(opened, SqliteStore) else "")
        bare = {"unsafe_no_sandbox": unsafe_no_sandbox}
        builtin = BuiltinTools(opened, folder, page=page, private=private, **bare)
        builtin.cache = cache_folder()
        toolbox, known_models = Toolbox(builtin), dict[str, Model]()
        self._starts: dict[str, asyncio.Future[str]] = {}
        home = os.path.realpath(workspace or os.getcwd())
        redactor = secrets if isinstance(secrets, Redactor) else Redactor(secrets or {})
        learn_from(redactor, environment_secrets(), *(channels or {}).values())
        ports = (opened, clock, toolbox, known_models, channels or {})
        super().__init__(Engine(*ports, limits, home, redactor, private), kit, retention)
        self._crew = Registry(self._engine, toolbox, kit, known_models, models, home)
        self._engine.performer.window.outcome = self._outcome_of
        self._pricing, self._first = Pricing(self._engine.trees.shared), tuple(agents)

    async def __aenter__(self) -> Retinue:
        await self._engine.start()
        try:
            catalog = self._registry.catalog
            for name in catalog.offered if catalog is not None else ():
                self._registry.know_model(name)
            for agent in self._first:
                self._registry.register(agent)
            self._registry.know_models()
            await self._builtin.sweep(
                {spec.id for spec, _ in self._engine.trees.live()}, self._engine.is_used
            )
            await self._engine.found.take_up()
            self._begin_keeping()
        except BaseException:
            await self._engine.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._end_keeping()
        await self._engine.stop()
        await self._builtin.close()
        if self._registry.catalog is not None:
            await self._registry.catalog.close()

    # starting runs

    async def run(self, agent: Agent, task: str, **options: Any) -> Outcome:
        """Start a run and wait for its end. `options` are the fields of `RunRequest`."""
        return await self._outcome_of(await self.spawn(agent, task, **options))

    async def spawn(self, agent: Agent, task: str, *, key: str = "", **options: Any) -> str:
        """Start a run and return its id once it is recorded. A `key` starts its run only once."""
        await self.take_up(agent)
        request = self._registry.request(agent, task, options)
        id = run_id(0, "key", key) if key else run_id(self._clock.now(), self._clock.chance())
        tag = self._pricing.tag(request, self._clock.now())
        event = Requested(id=id, request=request, tag=tag)
        if not key:
            return await self._request(event)
        start = self._starts.get(id)
        if start is None:
            start = self._starts[id] = asyncio.ensure_future(self._request_once(event))
            start.add_done_callback(lambda _: self._starts.pop(id))
        return await asyncio.shield(start)

    async def fork(
        self,
        run: str,
        task: str,
        *,
        agent: Agent | None = None,
        at: int | None = None,
        **options: Any,
    ) -> str:
        """Start a run that shares the conversation of `run` up to its last complete turn, or up to
        the last one within its first `at` messages; nothing is copied."""
        row = await self._row(run)
        order, base = await self._fork_of(row, task, agent, at, **options)
        now, size = self._clock.now(), row.run.context + row.run.new_bytes
        fields: dict[str, Any] = {"context": size, "permissions": _held(row, options)}
        tag = self._pricing.tag(order, now, row, base)
        id = run_id(now, self._clock.chance())
        return await self._request(Requested(id=id, request=order, base=base, tag=tag, **fields))

    async def _fork_of(
        self, row: RunRecord, task: str, agent: Agent | None, at: int | None, **options: Any
    ) -> tuple[RunRequest, ForkPoint]:
        agent = agent or self._registry.find(row.spec.request.agent)
        await self.take_up(agent)
        length = fork_point(row.run)
        if at is not None and at < length:
            length = complete_turns(
                await self._store.messages(row.spec.conversation, 0, max(0, at))
            )
        base = ForkPoint(
            conversation=row.spec.conversation, length=length, start=min(length, row.run.start)
        )
        return self._registry.request(agent, task, options), base

    async def price_tag(
        self,
        agent: Agent | None = None,
        task: str = "",
        *,
        n: int = 1,
        fork: str = "",
        **options: Any,
    ) -> PriceTag:
        """What the first prompts of `n` runs would cost, with the provider's cache and without it;
        nothing is started. With `fork` they continue the conversation of that run, as its own agent
        unless another is given."""
        if fork:
            row = await self._row(fork)
            order, base = await self._fork_of(row, task, agent, None, **options)
            return self._pricing.tags(order, self._clock.now(), n, row, base)
        if agent is None:
            raise ConfigError("A price tag needs an agent, or a run to fork.")
        await self.take_up(agent)
        request = self._registry.request(agent, task, options)
        return self._pricing.tags(request, self._clock.now(), n)

    async def resume(self, run: str, task: str = "Continue.", **options: Any) -> str:
        """Continue the conversation of a run that has ended: a new run, the same messages."""
        row = await self._row(run)
        if not isinstance(row.run.state, Ended):
            raise Refused("open", f"Run {run} has not ended. Send it a message instead.")
        agent = self._registry.find(row.spec.request.agent)
        await self.take_up(agent)
        base = ForkPoint(
            conversation=row.spec.conversation, length=row.run.length, start=row.run.start
        )
        if await self._store.messages(base.conversation, base.length, base.length + 1):
            raise Refused(
                "conversation",
                f"Run {run} was already resumed. Resume the latest run, or fork this one.",
            )
        request = self._registry.request(agent, task, options)
        return await self._request(
            Requested(
                id=run_id(self._clock.now(), self._clock.chance()),
                request=request,
                permissions=_held(row, options),
                base=base,
                conversation=row.spec.conversation,
                resumes=run,
                context=row.run.context + row.run.new_bytes,
                tag=self._pricing.tag(request, self._clock.now(), row, base),
                news=await self._unheard(row),
            )
        )

    async def _request_once(self, event: Requested) -> str:
        event = self._engine.without_secrets(event)
        row = await self._store.row(event.id)
        if row is None:
            return await self._request(event)
        old, new = row.spec.request, event.request
        if (old.agent, old.task) != (new.agent, new.task):
            used = f"This key was already used for a different task (run {event.id})."
            raise Refused("key", f"{used} Use a new key.")
        return event.id

    async def _request(self, event: Requested) -> str:
        self._engine.performer.outbox.check(event.request.origin)
        self._engine.trees.refuse_request(event)
        why = await self._engine.record("", event)
        spec = self._engine.trees.spec(event.id)
        if why and spec is None and await self._store.row(event.id) is None:
            raise Refused("request", why)
        return event.id

    def register(self, *agents: Agent) -> None:
        """Register agents. Open runs that waited for them continue at the next start of a run."""
        for agent in agents:
            self._registry.register(agent)

    @property
    def redactor(self) -> Redactor:
        """What keeps secrets out of everything that is written; `redactor.learn` adds to them."""
        return self._engine.redactor

    async def take_up(self, agent: Agent) -> None:
        """Register an agent; runs that waited for it continue."""
        if agent not in self._registry:
            self._registry.register(agent)
            self._registry.know_models()
            await self._engine.found.take_up()

    def offer_model(self, name: str) -> None:
        """Make a model known that no agent has, by its name alone: runs may ask for it."""
        self._registry.know_model(name)

    # talking to runs

    async def send(self, run: str, text: str, *, steer: bool = False) -> None:
        """Put a message into a run's mailbox. It is read at the next turn; `steer` breaks the
        current one off."""
        self._engine.check(run)
        tree = self._engine.trees.of(run)
        why: str | None = f"{run!r} is not an open run that you can send to."
        if tree is not None:
            why = cannot_write(tree, "", run)
        if why is not None:
            await self._row(run)
            raise Refused("mail", why)
        await self._tell(run, MailReceived(mail=Mail(seq=0, text=text, steer=steer)))

    async def retry(self, root: str = "", *, refused: Callable[[str], bool] | None = None) -> None:
        """Runs that wait for their provider try again now, all or those of a tree: a key or money
        was added. With `refused`, only those whose account was refused and of whose model's name it
        is true."""
        self._registry.learn_keys()
        self._registry.know_models()
        await self._engine.found.take_up()
        for id in self._engine.waiting_for_provider(root):
            spec, run = self._engine.trees.spec(id), self._engine.trees.run(id)
            if (
                spec is None
                or run is None
                or (refused and not (account_refusal(run) and refused(spec.model)))
            ):
                continue
            await self._engine.record(id, Woke(early=True))

    async def answer(self, question: str, text: str) -> None:
        """Answer an open question by its id, or by its run as long as that asks nothing else."""
        await self._tell(*open_questions.answer_to(self._engine.trees, question, text))

    async def questions(self, root: str = "") -> Sequence[open_questions.OpenQuestion]:
        """What waits for a person, in all runs or in one tree: questions, calls that need a
        permission, and limits."""
        look = (root, self._registry.preview, self._clock.now(), self._engine.performer.look_ahead)
        return await open_questions.open_questions(self._engine.trees, self._store.messages, *look)

    async def decide(
        self, question: str, allow: bool, *, by: str = "", reason: str = "", always: bool = False
    ) -> None:
        """Permit a call, or do not; raise a limit by what is suggested, or let the work land. The
        first decision counts; a later one is `Refused`. With `always`, the same call is permitted
        in this tree from now on."""
        q = await open_questions.find_question(self._engine.trees, self._store.messages, question)
        await self._tell(q.run, open_questions.decision(q, allow, by, reason, always))

    async def explain(self, run: str, tool: str, args: str = "{}") -> str:
        """Whether a live run may call a tool, and which rule says so."""
        tree = self._engine.trees.of(run)
        if tree is None:
            raise NotFound(f"No open run {run!r}. It may have ended.")
        return tree.explain(run, tool, args, self._clock.now())

    async def restrict(self, run: str, permissions: Permissions) -> None:
        """Take capabilities away from a live run and everything below it."""
        if self._engine.trees.run(run) is None:
            raise NotFound(f"No open run {run!r}. It may have ended.")
        try:
            event = PermissionsRestricted(permissions=real_paths(checked(permissions)))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid capabilities: {error}") from None
        await self._tell(run, event)

    # watching runs

    async def wait(
        self, *runs: str, timeout_seconds: float | None = None, first: bool = False
    ) -> dict[str, Outcome | None]:
        """Wait for all of the runs, or for the first; None for one that is still open. Reading
        takes nothing."""
        futures, runs = {}, tuple(dict.fromkeys(runs))
        for run in runs:
            if not await self._has_ended(run):
                futures[run] = self._engine.ended(run)
        if len(futures) == len(runs) == 1 and timeout_seconds is None:
            await futures[runs[0]]
        elif futures and (not first or len(futures) == len(runs)):
            mode = asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED
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

    async def runs(
        self, *, children: bool = False, limit: int = 100, before: str = ""
    ) -> Sequence[RunInfo]:
        """Runs, newest first. Those that were started by other runs are hidden unless asked for."""
        return await self._store.listing(children=children, limit=limit, before=before)

    async def tree(self, run: str) -> RunTree:
        """A run and everything below it."""
        row = await self._row(run)
        below = [await self.tree(child.spec.id) for child in await self._store.children(run)]
        request = row.spec.request
        return RunTree(
            id=run,
            label=request.label or request.agent,
            agent=request.agent,
            state=state_word(row.run),
            turn=row.run.turn,
            usage=row.run.usage,
            children=tuple(below),
            group=request.shown_group,
        )

    async def messages(self, run: str, start: int = 0) -> Sequence[Message]:
        """A run's conversation from message `start` on, its fork's prefix included."""
        row = await self._row(run)
        return await self._store.messages(row.spec.conversation, start, row.run.length)

    async def tools_left_out(self, run: str) -> str:
        """The note about tools that a run has and its model cannot get; "" if it gets all."""
        spec = (await self._row(run)).spec
        offered = self._engine.performer.tools_for(spec)
        most = getattr(self._registry.models.get(spec.model), "most_tools", 0)
        return left_out(offered, fitting(offered, most), most)

    async def artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Bytes of something that was too long to be shown whole."""
        return await self._store.get_artifact(sha256, offset, limit)

    @property
    def is_busy(self) -> bool:
        """Whether a run can continue here, or an announcement is on its way."""
        trees, dormant = self._engine.trees, set(self.runs_without_agent)
        return any(
            any(d.state in ("pending", "sent") for d in tree.deliveries.values())
            or tree.runs.keys() - dormant
            for tree in trees.by_root.values()
        )

    @property
    def runs_without_agent(self) -> tuple[str, ...]:
        """Open runs of an earlier process whose agent this program has not named yet."""
        return self._engine.found.dormant

    @property
    def blocked_reason(self) -> str:
        """Why nothing moves, when nothing moves: a full disk, a lost store."""
        return self._engine.trouble

    async def _outcome_of(self, id: str) -> Outcome:
        outcome = (await self.wait(id))[id]
        assert outcome is not None
        return outcome

    async def _outcome_or_none(self, id: str) -> Outcome | None:
        row = await self._store.row(id)
        if row is None or not isinstance(row.run.state, Ended):
            return None
        account = await self._store.account(id)
        model = self._engine.trees.shared.models.get(row.spec.model)
        agent = self._registry.agents.get(row.spec.request.agent)
        children = await self._store.children(id) if row.run.n_children else []
        return build_outcome(row, account, children, agent, model)


def _held(row: RunRecord, options: Mapping[str, Any]) -> Permissions:
    """A run that continues another gets its permissions, unless its options say otherwise."""
    permissions = row.run.permissions or row.spec.permissions
    return Permissions() if "permissions" in options else permissions


def _open(store: str | Path | Store | None) -> Store:
    if store is None:
        return MemoryStore()
    return SqliteStore(str(store)) if isinstance(store, (str, Path)) else store
