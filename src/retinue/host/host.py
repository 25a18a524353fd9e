"""The host of a store: one method for each request, over one runtime. How requests arrive is not a
part of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import Any, Protocol

import msgspec

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.core.state import Ended, RunRecord
from retinue.core.values import Origin
from retinue.errors import NotFound, Refused, RetinueError, StoreFull
from retinue.host import replies, requests
from retinue.host.agent_source import AgentSource
from retinue.host.client_tools import is_marked, plain_name, tools_of, with_client_tools
from retinue.host.follow import follow
from retinue.host.identity import Identity
from retinue.host.overview import Overviews
from retinue.host.page_replies import PageReply
from retinue.host.plan import Plan
from retinue.host.run_options import RAISED, lane_options, next_options, start_options, widens
from retinue.host.server_events import ServerEvent
from retinue.host.visibility import is_visible
from retinue.models.catalog import CHAIN
from retinue.open_questions import several
from retinue.pricing import PriceTag

STUCK_SECONDS = 0.5


class PageAccess(Protocol):
    """Where a browser finds the dashboard: the address that it has now, if any, and how one is let
    in."""

    address: str

    async def open(self, *, is_for_own_user: bool) -> PageReply: ...


class Host(Overviews):
    """Carries out requests with one runtime. `greet` takes what a command brings; `page` is the way
    to the dashboard, where there is one; `leave` is set when the host is to end."""

    def __init__(
        self,
        retinue: Retinue,
        agents: AgentSource,
        leave: asyncio.Event | None = None,
        store: str = "",
    ) -> None:
        super().__init__(retinue, agents, store)
        self.leave = leave or asyncio.Event()
        self._left: asyncio.Future[Any] | None = None
        self.greet: Callable[[requests.HelloRequest], Coroutine[Any, Any, None]] | None = None
        self.page: PageAccess | None = None

    def left(self) -> asyncio.Future[Any]:
        """Done when the host leaves: one for all who look out for it."""
        if self._left is None:
            self._left = asyncio.ensure_future(self.leave.wait())
        return self._left

    # starting runs

    async def start(
        self, request: requests.StartRequest, who: Identity, key: str = ""
    ) -> replies.StartReply:
        """Everything that can fail comes before the run, so that who asked for one learns its
        id. With a `key`, the same request starts one run only."""
        self._check_start(request, who)
        choice = await self._agents.of_start(request)
        agent = with_client_tools(choice.agent, request.terms.client_tools or ())
        self._check_limits(request.terms, agent, who)
        options = start_options(request.terms, choice.label, agent)
        options |= lane_options(request.terms, agent, who.user)
        if who.user:
            options["origin"] = Origin(user=who.user)
        named = f"{who.user}\n{key}" if key else ""
        run = await self._placed(self._retinue.spawn(agent, request.task, key=named, **options))
        capabilities = (await self._retinue.record(run)).spec.permissions
        notes = [note for note in [await self._retinue.tools_left_out(run)] if note]
        return replies.StartReply(
            run=run,
            tools=tuple(capabilities.tools or ()),
            mode=capabilities.mode or "manual",
            mcp=choice.mcp,
            notes=tuple(notes),
        )

    def _check_start(self, request: Any, who: Identity) -> None:
        """What could widen the rights of a run beyond those of the project needs more than the
        right to start one."""
        terms = request.terms
        if request.plan is not None or getattr(request, "env", None) or terms.cwd or terms.read:
            who.need("admin", "A plan, an environment or a directory")
        if terms.mode or terms.rules:
            who.need("approve", "A permission mode or rule")

    def _check_limits(self, terms: requests.RunTerms, agent: Agent, who: Identity) -> None:
        """To raise the limits of an agent takes the same right as to raise those of its run."""
        if widens(terms, agent):
            who.need("approve", "More than the agent's own limits")

    async def resume(self, request: requests.ResumeRequest, who: Identity) -> replies.NewRunReply:
        self._check_start(request, who)
        return replies.NewRunReply(run=await self._placed(self._resume(request, who)))

    async def _resume(self, request: requests.ResumeRequest, who: Identity) -> str:
        row = await self._retinue.record(request.run)
        if not isinstance(row.run.state, Ended):
            await self._wake(request.run)
            await self._retinue.retry(row.spec.root)
            return request.run
        agent = await self._agent(row, request.plan, request.terms)
        options = self._next(row, request.terms, agent, who)
        is_named = request.plan is not None or request.terms.client_tools is not None
        if is_named and agent.name != row.spec.request.agent:
            raise Refused(
                "agent",
                f"Run {request.run} keeps its agent and model. Fork it to use another.",
            )
        self._retinue.register(agent)
        return await self._retinue.resume(request.run, request.task or "Continue.", **options)

    async def fork(self, request: requests.ForkRequest, who: Identity) -> replies.NewRunReply:
        self._check_start(request, who)
        row = await self._retinue.record(request.run)
        agent = await self._agent(row, request.plan, request.terms)
        options = self._next(row, request.terms, agent, who)
        if request.plan is not None:
            options["model"] = request.plan.model  # and not that of the run
        work = self._retinue.fork(request.run, request.task, agent=agent, at=request.at, **options)
        return replies.NewRunReply(run=await self._placed(work))

    async def fork_price(self, request: requests.ForkPriceRequest, who: Identity) -> PriceTag:
        row = await self._retinue.record(request.run)
        agent = await self._agent(row, None)
        return await self._retinue.price_tag(
            agent,
            request.task,
            n=request.n,
            fork=request.run,
            at=request.at,
            model=row.spec.model,
        )

    def _next(
        self, row: RunRecord, terms: requests.RunTerms, agent: Agent, who: Identity
    ) -> dict[str, Any]:
        self._check_limits(terms, agent, who)
        options = next_options(row, terms, agent)
        options |= lane_options(terms, agent, row.spec.origin.user or who.user)
        origin = row.spec.origin
        if origin != Origin():
            options["origin"] = origin
        elif who.user:
            options["origin"] = Origin(user=who.user)
        return options

    async def _placed(self, work: Coroutine[Any, Any, str]) -> str:
        """The id of a new run. On a full disk its start stays in the queue, but the client gets an
        answer immediately."""
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=STUCK_SECONDS))[0]:
            if self._retinue.blocked_reason:
                reason = self._retinue.blocked_reason
                raise StoreFull(f"{reason} The run starts when that is possible: `retinue ps`.")
        return await task

    async def _agent(
        self, row: RunRecord, plan: Plan | None, terms: requests.RunTerms | None = None
    ) -> Agent:
        """The agent that continues: that of a plan, or the run's own, built again; with the tools
        of its client, or with those that it has now."""
        named = terms.client_tools if terms is not None else None
        tools = tools_of(row.spec.meta) if named is None else named
        if plan is not None:
            return with_client_tools(await self._agents.of_plan(plan), tools)
        name = row.spec.request.agent
        agent = await self._agents.recall(plain_name(name))
        if agent is None:
            raise NotFound(f"The saved plan of agent {name!r} is missing. Start a new run instead.")
        lead = with_client_tools(agent, tools)
        return next((a for a in lead.reachable_agents() if a.name == name), lead)

    async def _wake(self, run: str) -> None:
        """Let a run continue whose agents could not be built when the host started, or say why they
        still cannot be."""
        if run in self._retinue.runs_without_agent:
            row = await self._retinue.record(run)
            await self._agent(row, None)
            name = row.spec.request.agent
            lead = await self._agents.lead(plain_name(name))
            assert lead is not None
            tools = tools_of(row.spec.meta) if is_marked(name) else ()
            await self._retinue.take_up(with_client_tools(lead, tools))

    async def wake_clients(self) -> None:
        """Runs of an earlier process whose agents have tools of a client continue. For those that
        cannot, the reason is given when someone asks for them."""
        for run in self._retinue.runs_without_agent:
            with contextlib.suppress(RetinueError):
                if is_marked((await self._retinue.record(run)).spec.request.agent):
                    await self._wake(run)

    # runs that are there

    async def watch(
        self, request: requests.WatchRequest, who: Identity
    ) -> AsyncIterator[ServerEvent]:
        """The steps of a tree, each with its number in the log as its id, and its record last."""
        await self._wake(request.run)
        async for news in follow(self._retinue, request.run, request.after, deltas=request.deltas):
            yield news
        yield ServerEvent("end", await self._retinue.tree_record(request.run))

    async def send(self, request: requests.SendRequest, who: Identity) -> replies.EmptyReply:
        await self._retinue.send(request.run, request.text, steer=request.steer)
        return replies.EmptyReply()

    async def cancel(self, request: requests.CancelRequest, who: Identity) -> replies.StatesReply:
        runs = request.runs or tuple(await self._open_tops(who))
        ends = await asyncio.gather(
            *(self._retinue.cancel(run, request.reason, by=request.by) for run in runs)
        )
        return replies.StatesReply(states={end.id: end.state for end in ends})

    async def wait(self, request: requests.WaitRequest, who: Identity) -> replies.StatesReply:
        for run in request.runs:
            await self._wake(run)
        waits = [asyncio.ensure_future(self._retinue.wait(run)) for run in request.runs]
        mode = asyncio.FIRST_COMPLETED if request.first else asyncio.ALL_COMPLETED
        try:
            if waits:
                await asyncio.wait(waits, timeout=request.timeout_seconds, return_when=mode)
        finally:
            for wait in waits:
                wait.cancel()
        ends = zip(request.runs, waits, strict=True)
        return replies.StatesReply(
            states={run: end.result().state if end.done() else None for run, end in ends}
        )

    async def merge(self, request: requests.MergeRequest, who: Identity) -> replies.MergeReply:
        return replies.MergeReply(merge=await self._retinue.merge(request.run))

    async def retry(self, request: requests.RetryRequest, who: Identity) -> replies.EmptyReply:
        row = await self._retinue.record(request.run)
        await self._wake(request.run)
        await self._retinue.retry(row.spec.root)
        return replies.EmptyReply()

    async def answer(self, request: requests.AnswerRequest, who: Identity) -> replies.AnswerReply:
        """A permission is answered with yes or no, a question in words."""
        open_ones = await self._retinue.open_questions(request.run)
        named = [q for q in open_ones if request.question in ("", q.id)]
        if not named:
            raise Refused("question", f"Run {request.run} has no open question.")
        if len(named) > 1:
            raise Refused("question", several(request.run, [(q.id, q.text) for q in named]))
        first, by = named[0], who.user or request.by or "the user"
        await self._wake(first.run)
        if first.kind == "question":
            text = request.text or ("yes" if request.allow else "no")
            await self._retinue.answer(first.id, text, by=by)
            return replies.AnswerReply(run=first.run, question=first.text)
        if request.allow is None:
            raise Refused(
                "question",
                f"{first.label} is waiting for a decision: {first.text} Allow or deny it.",
            )
        await self._retinue.decide(
            first.id, request.allow, by=by, reason=request.text, always=request.always
        )
        return replies.AnswerReply(run=first.run, question=first.text)

    async def raise_budget(
        self, request: requests.BudgetRequest, who: Identity
    ) -> replies.SpendingReply:
        """What is decided is recorded first; then the run continues, if its agents could not be
        built until now."""
        retinue, by = self._retinue, who.user or request.by or "the user"
        more = {name: getattr(request, name) for name in RAISED}
        if any(more.values()):
            await retinue.add_budget(request.run, **more, question=request.question, by=by)
        if request.on_limit:
            await retinue.set_on_limit(request.run, request.on_limit, by=by)
        if any(more.values()) or request.on_limit:
            await self._wake(request.run)
        return replies.SpendingReply(spending=await retinue.budget(request.run))

    async def _open_tops(self, who: Identity) -> list[str]:
        rows = [await self._retinue.record(id) for id in self._retinue.open_runs()]
        live = {row.spec.id for row in rows}
        return [row.spec.id for row in rows if row.spec.parent not in live and is_visible(row, who)]

    # the host itself

    async def hello(self, request: requests.HelloRequest, who: Identity) -> replies.Hello:
        if request.version != requests.VERSION:
            raise Refused(
                "version",
                f"The running host speaks protocol {requests.VERSION}, this command "
                f"{request.version}. Run `retinue host stop`, then try again.",
            )
        if self.greet is not None:
            await self.greet(request)
        address = self.page.address if self.page is not None else ""
        return msgspec.structs.replace(self.introduction(), page=address)

    async def keys_brought(self, providers: Collection[str], resolve: Callable[[str], str]) -> None:
        """Runs that wait for a key of these providers continue."""

        def is_theirs(model: str) -> bool:
            return any(link.partition(":")[0] in providers for link in resolve(model).split(CHAIN))

        for run in self._retinue.runs_without_agent:
            with contextlib.suppress(RetinueError):  # what it lacks is something else
                await self._wake(run)
        await self._retinue.retry(refused=is_theirs)

    async def open_page(self, request: requests.PageRequest, who: Identity) -> PageReply:
        if self.page is None:
            raise Refused("page", "This host is part of another service, which knows its address.")
        return await self.page.open(is_for_own_user=request.is_for_own_user)

    async def stop(self, request: requests.StopRequest, who: Identity) -> replies.EmptyReply:
        self.leave.set()
        return replies.EmptyReply()
