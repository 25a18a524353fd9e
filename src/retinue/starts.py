"""Starts runs: of an agent, or from the conversation of another run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Generic, Literal, Unpack, overload

from retinue.acts import Acts
from retinue.agent import Agent
from retinue.core.events import Requested
from retinue.core.history import complete_turns
from retinue.core.ids import run_id
from retinue.core.spawn import fork_point
from retinue.core.spec import ForkPoint, Lane, Retry, RunRequest
from retinue.core.state import Ended, RunRecord
from retinue.core.type_parameters import Deps_co, RunId, T
from retinue.core.values import Permissions
from retinue.errors import ConfigError, Refused
from retinue.option_types import Retention, RunOptions, check_run_options
from retinue.outcomes import Outcome
from retinue.pricing import PriceTag, Pricing
from retinue.registry import Registry
from retinue.runtime.engine import Engine
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.checked_verbs import checks_arguments
from retinue.tools.context_verbs import NOWHERE, check_at_once
from retinue.tools.outcome_list import Outcomes


@checks_arguments
class Starts(Acts, Generic[Deps_co]):
    """The part of `Retinue` that starts runs."""

    def __init__(
        self, engine: Engine, builtin: BuiltinTools, retention: Retention, registry: Registry
    ) -> None:
        super().__init__(engine, builtin, retention, registry)
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._pricing = Pricing(engine.trees.shared)

    async def run(
        self,
        agent: Agent[T, Deps_co],
        task: str,
        *,
        on_cancel: Literal["keep", "cancel"] = "keep",
        **options: Unpack[RunOptions],
    ) -> Outcome[T]:
        """Start a run and wait for its end. When its provider stays down, it fails after its tries
        with the reason, unless `retry` says otherwise. `on_cancel` says what becomes of it when the
        task that waits here is cancelled: it continues, or ends with that task."""
        run = await self._start("run()", agent, task, {**failing(agent), **options})
        try:
            return await self.wait(run)
        except asyncio.CancelledError:
            if on_cancel == "cancel":
                await asyncio.shield(
                    self.cancel(run, "The task that waited for this run was cancelled.")
                )
            raise

    async def gather(
        self,
        agent: Agent[T, Deps_co],
        *tasks: str,
        at_once: int | None = None,
        **options: Unpack[RunOptions],
    ) -> Outcomes[T]:
        """Start a run for each task and wait for all of them; `at_once` of them work at a time. A
        `key` names all of them, each by its place."""
        check_run_options("gather()", options)
        check_at_once("gather()", at_once)
        key = options.pop("key", "")
        if at_once is not None:
            lane = Lane(name=f"gather {key or self._clock.chance()}", size=at_once)
            options["lanes"] = (*options.get("lanes", ()), lane)
        keys = [f"{key} {n}" if key else "" for n in range(len(tasks))]
        named = [dict(options, key=k) if k else dict(options) for k in keys]
        runs = [
            await self._start("gather()", agent, task, {**failing(agent), **own})
            for task, own in zip(tasks, named, strict=True)
        ]
        return Outcomes(await asyncio.gather(*map(self.wait, runs)))

    async def spawn(
        self, agent: Agent[T, Deps_co], task: str, **options: Unpack[RunOptions]
    ) -> RunId[T]:
        """Start a run and return its id once it is recorded. The same `key` starts the same run
        only once."""
        return await self._start("spawn()", agent, task, options)

    async def _start(
        self, verb: str, agent: Agent[T, Any], task: str, options: Mapping[str, Any]
    ) -> RunId[T]:
        self._check_loop()
        check_run_options(verb, options)
        own = dict(options)
        key = own.pop("key", "")
        await self.take_up(agent)
        run_request = self._registry.request(agent, task, own)
        id = run_id(0, "key", key) if key else run_id(self._clock.now(), self._clock.chance())
        event = Requested(
            id=id, request=run_request, tag=self._pricing.tag(run_request, self._clock.now())
        )
        if not key:
            return RunId(await self._request(event))
        request = self._asked.get(id)
        if request is None:
            request = self._asked[id] = asyncio.ensure_future(self._request_once(event))
            request.add_done_callback(lambda result: self._end_of_request(id, result))
        return RunId(await asyncio.shield(request))

    @overload
    async def fork(
        self,
        run: str,
        task: str,
        *,
        agent: Agent[T, Deps_co],
        at: int | None = None,
        **options: Unpack[RunOptions],
    ) -> RunId[T]: ...
    @overload
    async def fork(
        self, run: RunId[T], task: str, *, at: int | None = None, **options: Unpack[RunOptions]
    ) -> RunId[T]: ...
    @overload
    async def fork(
        self, run: str, task: str, *, at: int | None = None, **options: Unpack[RunOptions]
    ) -> RunId[Any]: ...
    async def fork(
        self,
        run: str,
        task: str,
        *,
        agent: Agent[Any, Any] | None = None,
        at: int | None = None,
        **options: Any,
    ) -> RunId[Any]:
        """Start a run that shares the conversation of `run` up to its last complete turn, or up to
        the last one within its first `at` messages; nothing is copied."""
        check_run_options("fork()", options)
        row = await self._row(run)
        options = _inherited(row, options)
        run_request, base = await self._fork_of(row, task, agent, at, **options)
        now, size = self._clock.now(), row.run.context + row.run.new_bytes
        fields: dict[str, Any] = {"context": size, "permissions": _permissions(row, options)}
        tag = self._pricing.tag(run_request, now, row, base)
        id = run_id(now, self._clock.chance())
        event = Requested(id=id, request=run_request, base=base, tag=tag, **fields)
        return RunId(await self._request(event))

    async def _fork_of(
        self,
        row: RunRecord,
        task: str,
        agent: Agent[Any, Any] | None,
        at: int | None,
        **options: Any,
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
        return self._registry.request(agent, task, options, _directories(row)), base

    async def price_tag(
        self,
        agent: Agent[Any, Any] | None = None,
        task: str = "",
        *,
        n: int = 1,
        fork: str = "",
        at: int | None = None,
        **options: Any,
    ) -> PriceTag:
        """What the first prompts of `n` runs would cost, with the provider's cache and without it;
        nothing is started. With `fork` they continue the conversation of that run, as its own agent
        unless another is given, and from `at` as in `fork`."""
        if fork:
            row = await self._row(fork)
            run_request, base = await self._fork_of(row, task, agent, at, **options)
            return self._pricing.tags(run_request, self._clock.now(), n, row, base)
        if agent is None:
            raise ConfigError("A price tag needs an agent, or a run to fork.")
        await self.take_up(agent)
        return self._pricing.tags(
            self._registry.request(agent, task, options), self._clock.now(), n
        )

    async def price_fork(self, run: str, count: int = 1) -> PriceTag:
        """What so many forks of a run would cost before they say a word; nothing is started."""
        return await self.price_tag(fork=run, n=count)

    @overload
    async def resume(
        self, run: RunId[T], task: str = "Continue.", **options: Unpack[RunOptions]
    ) -> RunId[T]: ...
    @overload
    async def resume(
        self, run: str, task: str = "Continue.", **options: Unpack[RunOptions]
    ) -> RunId[Any]: ...
    async def resume(self, run: str, task: str = "Continue.", **options: Any) -> RunId[Any]:
        """Continue the conversation of a run that has ended: a new run, the same messages."""
        check_run_options("resume()", options)
        row = await self._row(run)
        options = _inherited(row, options)
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
        run_request = self._registry.request(agent, task, options, _directories(row))
        event = Requested(
            id=run_id(self._clock.now(), self._clock.chance()),
            request=run_request,
            permissions=_permissions(row, options),
            base=base,
            conversation=row.spec.conversation,
            resumes=run,
            context=row.run.context + row.run.new_bytes,
            tag=self._pricing.tag(run_request, self._clock.now(), row, base),
            news=await self._unread_results(row),
        )
        return RunId(await self._request(event))

    def _end_of_request(self, id: str, request: asyncio.Future[str]) -> None:
        """The caller may have been cancelled: then nothing reads why the request failed."""
        del self._asked[id]
        if not request.cancelled():
            request.exception()

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
        request = event.request
        self._engine.performer.outbox.check(request.origin)
        if request.announce and not (request.origin and request.origin.channel):
            raise Refused("channel", NOWHERE)
        self._engine.trees.refuse_request(event)
        why = await self._engine.record("", event)
        spec = self._engine.trees.spec(event.id)
        if why and spec is None and await self._store.row(event.id) is None:
            raise Refused("request", why)
        return event.id

    def register(self, *agents: Agent[Any, Deps_co]) -> None:
        """Make agents known. Open runs of an earlier process that waited for them continue at the
        next start of a run."""
        for agent in agents:
            self._registry.register(agent)

    async def take_up(self, agent: Agent[Any, Any]) -> None:
        """Register an agent; runs that waited for it continue."""
        if agent not in self._registry:
            await self._registry.toolsets.open_for(agent)
            self._registry.register(agent)
            self._registry.know_models()
            await self._engine.found.take_up()

    def offer_model(self, name: str) -> None:
        """Make a model known that no agent has, by its name alone: runs may ask for it."""
        self._registry.know_model(name)


def failing(agent: Agent[Any, Any]) -> dict[str, Any]:
    """A program that waits for a run gets an error if its provider is down; a run in the background
    waits for the provider."""
    return {} if "retry" in agent.options else {"retry": Retry(then="fail")}


def _inherited(row: RunRecord, options: Mapping[str, Any]) -> dict[str, Any]:
    """A run that continues another keeps its metadata, unless its options set other values."""
    return {**options, "meta": {**row.spec.meta, **options.get("meta", {})}}


def _directories(row: RunRecord) -> set[str]:
    """Where a run was to work, as it is on record."""
    permissions = row.run.permissions or row.spec.permissions
    paths = (row.spec.request.cwd, *(permissions.read or ()), *(permissions.write or ()))
    return {path for path in paths if path}


def _permissions(row: RunRecord, options: Mapping[str, Any]) -> Permissions:
    """A run that continues another gets its permissions, unless its options say otherwise."""
    permissions = row.run.permissions or row.spec.permissions
    return Permissions() if "permissions" in options else permissions
