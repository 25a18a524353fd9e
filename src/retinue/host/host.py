"""Where a host takes requests: each becomes a call of the runtime, and its result goes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue import __version__
from retinue.agent import Agent
from retinue.api import Retinue
from retinue.budgets import Spending
from retinue.core.capabilities import narrow
from retinue.core.state import Ended
from retinue.core.values import Budget, Capabilities
from retinue.errors import NotFound, Refused, RetinueError, StoreFull
from retinue.host import requests as wire
from retinue.host.builder import AgentBuilder
from retinue.host.follow import follow
from retinue.host.mcp_pool import told
from retinue.host.plan import Plan
from retinue.models.catalog import CHAIN
from retinue.open_questions import several
from retinue.store.base import Row

Tell = Callable[[wire.Item | wire.Compacting], Awaitable[None]]
STUCK_SECONDS = 0.5
RAISED = ("tokens", "usd", "turns", "calls", "seconds")


class Host:
    """Does what is wanted, with one runtime."""

    def __init__(
        self, retinue: Retinue, plans: AgentBuilder, leave: asyncio.Event, store: str = ""
    ) -> None:
        self._retinue, self._plans, self._leave, self._store = retinue, plans, leave, store

    async def do(self, want: wire.AnyWant, tell: Tell) -> Any:
        """The last word on a request. Raises `RetinueError`."""
        retinue = self._retinue
        match want:
            case wire.Start():
                return await self._start(want)
            case wire.Resume():
                return {"run": await self._placed(self._resume(want))}
            case wire.Fork():
                return {"run": await self._placed(self._fork(want))}
            case wire.Watch():
                await self._wake(want.run)
                async for item in follow(retinue, want.run, want.after, deltas=want.deltas):
                    await tell(item)
                return await retinue.tree_record(want.run)
            case wire.Send():
                await retinue.send(want.run, want.text, steer=want.steer)
            case wire.Cancel():
                return {"states": await self._cancel(want)}
            case wire.Answer():
                return await self._answer(want)
            case wire.Budget():
                return {"spending": msgspec.to_builtins(await self._budget(want))}
            case wire.Questions():
                return {"questions": msgspec.to_builtins(await retinue.questions(want.run))}
            case wire.Explain():
                return {"text": await retinue.explain(want.run, want.tool, want.args)}
            case wire.Servers():
                return {"mcp": await self._servers(want)}
            case wire.Wait():
                return {"states": await self._wait(want)}
            case wire.Forget():
                await retinue.forget(want.run)
            case wire.Redeliver():
                await (retinue.drop_delivery if want.drop else retinue.redeliver)(want.key)
            case wire.Backup():
                await retinue.backup(want.path)
            case wire.Compact():
                return await self._compact(tell)
            case wire.Status():
                return self._status()
            case wire.Stop():
                self._leave.set()
        return {}

    async def _compact(self, tell: Tell) -> dict[str, Any]:
        """Progress is told as it comes; whoever has gone away does not stop it."""
        told: set[asyncio.Task[None]] = set()

        def progress(done: int, total: int) -> None:
            task = asyncio.ensure_future(_told(tell, wire.Compacting(done=done, total=total)))
            told.add(task)
            task.add_done_callback(told.discard)

        done = await self._retinue.compact(progress=progress)
        await asyncio.gather(*told)
        return dict(msgspec.to_builtins(done))

    async def _placed(self, work: Coroutine[Any, Any, str]) -> str:
        """The id of a new run. On a full disk its start stays in line, but whoever asked is told at
        once."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=STUCK_SECONDS))[0]:
            if self._retinue.trouble:
                raise StoreFull(
                    f"{self._retinue.trouble} The run starts when that is possible: `retinue ps`."
                )
        return await task

    async def _start(self, want: wire.Start) -> dict[str, Any]:
        """The new run, the tools that it has, and how its servers are. Whatever can fail comes
        before the run, so that whoever asked for one learns its id."""
        agent = await self._plans.agent(want.plan, want.env)
        options = _options(want.terms, want.plan.lead, agent)
        servers = await self._plans.pool.servers(want.plan, {})
        mcp = [told(s) for s in servers.status()] if servers is not None else []
        run = await self._placed(self._retinue.spawn(agent, want.task, **options))
        held = (await self._retinue.record(run)).spec.capabilities
        notes = [note for note in [await self._retinue.tools_left_out(run)] if note]
        told_of = {
            "tools": list(held.tools or ()),
            "mode": held.mode or "manual",
            "mcp": mcp,
            "notes": notes,
        }
        return {"run": run, **told_of}

    async def _servers(self, want: wire.Servers) -> list[dict[str, Any]]:
        servers = await self._plans.pool.servers(want.plan, want.env)
        if servers is None:
            if want.approve:
                raise NotFound(f"there is no MCP server named {want.approve!r}")
            return []
        await servers.refresh()
        if want.approve:
            await servers.approve(want.approve, want.tool)
        return [told(s) for s in servers.status()]

    async def keys_brought(self, providers: Collection[str], resolve: Callable[[str], str]) -> None:
        """Runs that wait for a key of these providers go on."""

        def is_theirs(model: str) -> bool:
            return any(link.partition(":")[0] in providers for link in resolve(model).split(CHAIN))

        await self._retinue.retry(refused=is_theirs)

    async def _resume(self, want: wire.Resume) -> str:
        row = await self._retinue.record(want.run)
        if not isinstance(row.run.state, Ended):
            await self._wake(want.run)
            await self._retinue.retry(row.spec.root)
            return want.run
        agent = await self._agent(row, want.plan)
        options = _again(row, want.terms, agent)
        if want.plan is not None and agent.name != row.spec.order.agent:
            raise Refused(
                "agent",
                f"run {want.run} goes on with its own agent and model; fork it to go on with "
                "another",
            )
        self._retinue.register(agent)
        return await self._retinue.resume(want.run, want.task or "Go on.", **options)

    async def _fork(self, want: wire.Fork) -> str:
        row = await self._retinue.record(want.run)
        agent = await self._agent(row, want.plan)
        return await self._retinue.fork(
            want.run, want.task, agent=agent, at=want.at, **_again(row, want.terms, agent)
        )

    async def _agent(self, row: Row, plan: Plan | None) -> Agent:
        """The agent that goes on: that of a plan, or the run's own, built again from its plan."""
        if plan is not None:
            return await self._plans.agent(plan)
        name = row.spec.order.agent
        found = await self._plans.recall(name)
        if found is None:
            raise NotFound(
                f"the plan of agent {name!r} is not beside the store; start a new run instead"
            )
        return found

    async def _wake(self, run: str) -> None:
        """Let a run go on whose agents could not be built when the host started, or say why they
        still cannot be."""
        if run in self._retinue.dormant:
            row = await self._retinue.record(run)
            await self._agent(row, None)
            lead = await self._plans.home(row.spec.order.agent)
            assert lead is not None
            await self._retinue.take_up(lead)

    async def _cancel(self, want: wire.Cancel) -> dict[str, str]:
        runs = want.runs or tuple(await self._open_tops())
        states = await asyncio.gather(*(self._retinue.cancel(run, want.reason) for run in runs))
        return dict(zip(runs, states, strict=True))

    async def _wait(self, want: wire.Wait) -> dict[str, str | None]:
        for run in want.runs:
            await self._wake(run)
        ends = await self._retinue.wait(
            *want.runs, timeout_seconds=want.timeout_seconds, first=want.first
        )
        return {id: None if end is None else end.state for id, end in ends.items()}

    async def _answer(self, want: wire.Answer) -> dict[str, str]:
        """Answer a question of a tree, or its only one: a permission with yes or no, a question in
        words."""
        asked = await self._retinue.questions(want.run)
        mine = [q for q in asked if want.question in ("", q.id)]
        if not mine:
            raise Refused("question", f"run {want.run} is not asking anything")
        if len(mine) > 1:
            raise Refused("question", several(want.run, [(q.id, q.text) for q in mine]))
        first = mine[0]
        if first.kind != "question":
            if want.allow is None:
                raise Refused("question", f"{first.label} needs a yes or a no: {first.text}")
            await self._retinue.decide(
                first.id, want.allow, by=want.by or "the user", reason=want.text, always=want.always
            )
        else:
            text = want.text or ("yes" if want.allow else "no")
            await self._retinue.answer(first.id, text)
        return {"run": first.run, "question": first.text}

    async def _budget(self, want: wire.Budget) -> Spending:
        """What is decided is on record first; then the run is taken up, if its agents could not be
        built until now."""
        retinue, more, by = (
            self._retinue,
            {name: getattr(want, name) for name in RAISED},
            want.by or "the user",
        )
        if any(more.values()):
            await retinue.add_budget(want.run, **more, question=want.question, by=by)
        if want.on_limit:
            await retinue.set_on_limit(want.run, want.on_limit, by=by)
        if any(more.values()) or want.on_limit:
            await self._wake(want.run)
        return await retinue.budget(want.run)

    async def _open_tops(self) -> list[str]:
        rows = [await self._retinue.record(id) for id in self._retinue.open_runs()]
        live = {row.spec.id for row in rows}
        return [row.spec.id for row in rows if row.spec.parent not in live]

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "retinue": __version__,
            "store": self._store,
            "open": len(self._retinue.open_runs()),
            "dormant": list(self._retinue.dormant),
            "trouble": self._retinue.trouble,
        }


async def _told(tell: Tell, item: wire.Compacting) -> None:
    with contextlib.suppress(ConnectionError):
        await tell(item)


def _options(terms: wire.RunTerms, label: str, agent: Agent | None = None) -> dict[str, Any]:
    """The options of a run, as the runtime takes them. What an agent's file allows itself binds as
    well: the stricter of the two holds, and of its budget whatever nobody has set otherwise."""
    out: dict[str, Any] = {"label": terms.label or label}
    if terms.cwd:
        out["cwd"] = terms.cwd
    if terms.budget != Budget():
        own = agent.budget if agent is not None else Budget()
        set_ = {
            name: value for name in RAISED if (value := getattr(terms.budget, name)) is not None
        }
        out["budget"] = replace(own, **set_)
    if terms.on_limit:
        budget = out.get("budget") or (agent.budget if agent is not None else Budget())
        out["budget"] = replace(budget, on_limit=terms.on_limit)
    if terms.timeout_seconds is not None:
        out["timeout_seconds"] = terms.timeout_seconds
    if terms.max_turns is not None:
        out["max_turns"] = terms.max_turns
    if terms.questions:
        out["questions"] = terms.questions
    if terms.families:
        out["families"] = dict(terms.families)
    own_access = (
        agent.options.get("access", Capabilities()) if agent is not None else Capabilities()
    )
    access = narrow(own_access, _access(terms, Capabilities()))
    if access != Capabilities():
        out["access"] = access
    return out


def _access(terms: wire.RunTerms, held: Capabilities) -> Capabilities:
    changes: dict[str, Any] = {}
    if terms.mode:
        changes["mode"] = terms.mode
    if terms.rules:
        changes["rules"] = tuple(sorted({*held.rules, *terms.rules}))
    if terms.deny:
        changes["deny"] = tuple(sorted({*held.deny, *terms.deny}))
    if terms.tools is not None:
        changes["tools"] = tuple(sorted(terms.tools))
    if terms.read:
        changes |= {"read": tuple(sorted(terms.read)), "write": tuple(sorted(terms.read))}
    return replace(held, **changes) if changes else held


def _again(row: Row, terms: wire.RunTerms, agent: Agent) -> dict[str, Any]:
    """The options of a run that goes on from another: what held for that one, where nothing else is
    asked for."""
    spec, order = row.spec, row.spec.order
    held = row.run.access or spec.capabilities
    out = _options(terms, order.label or order.agent)
    out.setdefault("cwd", order.cwd)
    out.setdefault("model", spec.model)
    if order.questions:
        out.setdefault("questions", order.questions)
    # A family that is turned on had been turned off by whoever turns it on; what the agent's file
    # denies stays denied.
    names = {name for f in agent.dialects if terms.families.get(f.name) for name in f.tool_names}
    own = agent.options.get("access", Capabilities())
    lifted = names - {*own.deny}
    if lifted & {*held.deny}:
        held = replace(held, deny=tuple(d for d in held.deny if d not in lifted))
    out["access"] = _access(terms, held)
    return out


def trouble(error: BaseException) -> wire.Trouble:
    """An error for the wire. Only our own are told in full: others may hold what nobody should
    see."""
    if isinstance(error, RetinueError):
        about = getattr(error, "limit", "") or getattr(error, "kind", "")
        return wire.Trouble(kind=type(error).__name__, message=str(error), about=about)
    if isinstance(error, OSError):
        return wire.Trouble(
            kind="OSError", message=f"{error.filename or ''}: {error.strerror}".lstrip(": ")
        )
    return wire.Trouble(
        kind="RetinueError", message=f"the host failed: {type(error).__name__}; its log says more"
    )
