"""Reads the states and outcomes of runs: the part of the public API that changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, overload

from retinue.agent import Agent
from retinue.branches import Branches
from retinue.core.messages import Message
from retinue.core.state import Ended, RunRecord
from retinue.core.state_names import ENDS
from retinue.core.type_parameters import RunId, T
from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.models.tool_limit import fitting, left_out
from retinue.option_types import Retention
from retinue.outcomes import Outcome, build_outcome
from retinue.registry import Registry
from retinue.run_info import PUBLIC_STATES, RunInfo, RunState, RunTree, info_fields
from retinue.runtime.engine import Engine
from retinue.runtime_health import Health
from retinue.store.base import RunLine
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.checked_verbs import checks_arguments
from retinue.tools.option_values import check_values
from retinue.tools.start_options import Seconds, seconds

PAGE = 100
"""So many runs of a listing are read at a time."""


class _Filter(TypedDict):
    """What a listing of runs can ask for, beside states."""

    agent: str | None
    user: str | None
    meta: Mapping[str, str] | None
    since: datetime | None
    limit: int | None


@checks_arguments
class Reads(Branches):
    """The part of `Retinue` that reads the states and outcomes of runs."""

    def __init__(
        self, engine: Engine, builtin: BuiltinTools, retention: Retention, registry: Registry
    ) -> None:
        super().__init__(engine, builtin, retention)
        self._registry = registry

    async def find(self, run: str, agent: Agent[T, Any]) -> RunId[T]:
        """A stored id with its type again. Raises `NotFound` if there is no such run, and
        `ConfigError` if it is a run of another agent."""
        of = (await self._row(run)).spec.request.agent
        if of != agent.name:
            raise ConfigError(f"Run {run} is a run of {of!r}, not of {agent.name!r}.")
        return RunId(run)

    @overload
    async def wait(self, run: RunId[T], *, timeout: Seconds | None = None) -> Outcome[T]: ...
    @overload
    async def wait(self, run: str, *, timeout: Seconds | None = None) -> Outcome[Any]: ...
    async def wait(self, run: str, *, timeout: Seconds | None = None) -> Outcome[Any]:
        """Wait for the end of a run. Raises `TimeoutError` when the time is over; the run
        continues."""
        if not await self._has_ended(run):
            end = self._engine.ended(run)
            if timeout is None:
                await end
            else:
                await asyncio.wait_for(end, seconds(timeout))
        outcome = await self._outcome_or_none(run)
        assert outcome is not None
        return outcome

    @overload
    async def outcome(self, run: RunId[T]) -> Outcome[T] | None: ...
    @overload
    async def outcome(self, run: str) -> Outcome[Any] | None: ...
    async def outcome(self, run: str) -> Outcome[Any] | None:
        """How a run ended, or None while it is open."""
        await self._row(run)
        return await self._outcome_or_none(run)

    async def runs(
        self,
        *,
        state: RunState | Sequence[RunState] | Literal["open", "ended"] | None = None,
        agent: str | None = None,
        user: str | None = None,
        meta: Mapping[str, str] | None = None,
        since: datetime | None = None,
        children: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[RunInfo]:
        """Runs, newest first; pages are fetched as you go. Those that other runs have started are
        hidden unless asked for. `state` is one or several, or `open` or `ended`; `meta` are words
        that a run must have been given; `limit` is the most that are returned."""
        own = {"agent": agent, "user": user, "meta": meta, "since": since, "limit": limit}
        check_values("runs()", own, _Filter)
        states = stored_states(state)
        at = 0 if since is None else round(since.timestamp() * 1000)
        n, before = 0, ""
        while limit is None or n < limit:
            page = await self.run_page(
                children=children, limit=PAGE, before=before, states=states, since=at
            )
            for line in page:
                if _is_one(line, agent, user, meta or {}):
                    yield await self.info(line.id)
                    n += 1
                    if n == limit:
                        return
            if len(page) < PAGE:
                return
            before = page[-1].id

    async def run_page(self, *, limit: int, before: str = "", **choice: Any) -> Sequence[RunLine]:
        """One page of the listing behind the run `before`, in the words of the store."""
        return await self._store.listing(limit=limit, before=before, **choice)

    async def info(self, run: str) -> RunInfo:
        """One run, as a listing has it."""
        row = await self._row(run)
        return RunInfo(**info_fields(row, has_agent=run not in self.runs_without_agent))

    async def tree(self, run: str) -> RunTree:
        """A run and everything below it."""
        row = await self._row(run)
        below = [await self.tree(child.spec.id) for child in await self._store.children(run)]
        has_agent = run not in self.runs_without_agent
        return RunTree(**info_fields(row, has_agent=has_agent), children=tuple(below))

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
        self._check_loop()
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
        """Open runs of an earlier process whose agent is not registered yet."""
        return self._engine.found.dormant

    @property
    def blocked_reason(self) -> str:
        """Why runs are stalled, such as a full disk or a lost store; "" if they are not."""
        return self._engine.trouble

    async def health(self) -> Health:
        """The state of the runtime: `ok`, or why runs are stalled."""
        self._check_loop()
        await self._engine.look()
        live = list(self._engine.trees.live())
        dormant = set(self.runs_without_agent)
        unknown = sorted({spec.request.agent for spec, _ in live if spec.id in dormant})
        status = getattr(self._registry.catalog, "status", None)
        return Health(
            ok=not self.blocked_reason and not unknown,
            trouble=self.blocked_reason,
            open_runs=len(live),
            unknown_agents=tuple(unknown),
            models=() if status is None else tuple(status()),
        )

    async def _outcome_or_none(self, id: str) -> Outcome[Any] | None:
        row = await self._store.row(id)
        if row is None or not isinstance(row.run.state, Ended):
            return None
        account = await self._store.account(id)
        model = self._engine.trees.shared.models.get(row.spec.model)
        agent = self._registry.agents.get(row.spec.request.agent)
        children = await self._store.children(id) if row.run.n_children else []
        output = await self._output_of(children)
        return build_outcome(row, account, children, agent, model, output)

    async def _output_of(self, rows: Sequence[RunRecord]) -> int:
        """The tokens that models wrote in these runs and in all below them."""
        below = [await self._store.children(r.spec.id) for r in rows if r.run.n_children]
        own = sum([row.run.usage.output for row in rows])
        return own + sum([await self._output_of(children) for children in below])


def stored_states(state: str | Sequence[str] | None) -> tuple[str, ...]:
    """The states of the machine that a filter means."""
    if state is None:
        return ()
    if not isinstance(state, Collection):
        raise ConfigError(f"runs(): state is the name of a state or several, not {state!r}.")
    wishes = (state,) if isinstance(state, str) else tuple(state)
    out: list[str] = []
    for name in wishes:
        if name in ("open", "ended"):
            out += [s for s in PUBLIC_STATES if (s in ENDS) == (name == "ended")]
        elif name in PUBLIC_STATES.values():
            out += [s for s, public in PUBLIC_STATES.items() if public == name]
        else:
            states = ("open", "ended", *dict.fromkeys(PUBLIC_STATES.values()))
            raise ConfigError(
                f"runs(state={name!r}) is not a state.{did_you_mean(name, states)} There are "
                f"{', '.join(states)}."
            )
    return tuple(out)


def _is_one(line: RunLine, agent: str | None, user: str | None, meta: Mapping[str, str]) -> bool:
    return (
        (agent is None or line.agent == agent)
        and (user is None or line.user == user)
        and meta.items() <= line.meta.items()
    )
