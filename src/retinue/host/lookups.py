"""Requests that read from the host, and requests about the store itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from retinue import __version__
from retinue.api import Retinue
from retinue.cluster.status_types import ClusterStatus
from retinue.core.state import RunRecord
from retinue.core.state_names import ENDS
from retinue.errors import Refused
from retinue.host import replies, requests
from retinue.host.agent_source import AgentSource
from retinue.host.health import sandbox_health
from retinue.host.identity import Identity
from retinue.host.metrics import prometheus_text
from retinue.host.provider_waits import lack_of
from retinue.host.server_events import ServerEvent
from retinue.host.tool_list import builtin_tool_list
from retinue.host.visibility import Visibility, is_visible
from retinue.outcomes import state_word
from retinue.run_info import RunTree
from retinue.store.base import RunLine


class Lookups(Visibility):
    """The part of `Host` that changes no run."""

    def __init__(self, retinue: Retinue, agents: AgentSource, store: str = "") -> None:
        super().__init__(retinue)
        self._agents, self._store = agents, store
        self.address = store
        """Where the runs are: a file, or a database without its password."""
        self.counters: Counter[tuple[str, str, int]] = Counter()
        """Requests by user, operation and status."""
        self.cluster: Callable[[], ClusterStatus] | None = None
        """Looks at the other nodes of the database, if there are any."""

    def introduction(self) -> replies.Hello:
        return replies.Hello(
            version=requests.VERSION, retinue=__version__, pid=os.getpid(), store=self._store
        )

    # runs

    async def list_runs(self, request: requests.ListRequest, who: Identity) -> replies.RunPage:
        lines, before = list[RunLine](), request.before
        while len(lines) < request.limit:
            page = await self._retinue.run_page(
                children=request.children, limit=request.limit, before=before
            )
            for line in page:
                before = line.id
                if request.state not in ("", line.state) or request.label not in ("", line.label):
                    continue
                if who.user and not is_visible(await self._retinue.record(line.id), who):
                    continue
                lines.append(line)
                if len(lines) == request.limit:
                    break
            if len(page) < request.limit:
                break
        is_full = len(lines) == request.limit
        return replies.RunPage(runs=tuple(lines), next=before if is_full else "")

    async def runs_with(self, meta: Mapping[str, str], who: Identity) -> list[RunLine]:
        """The root runs that were given these words, newest first, among the last `MOST_RUNS`."""
        page = await self._retinue.run_page(children=False, limit=requests.MOST_RUNS)
        return [
            line
            for line in page
            if who.user in ("", line.user) and meta.items() <= line.meta.items()
        ]

    async def row(self, run: str) -> RunRecord:
        """A run as it is on record. Who may see it is checked by the caller."""
        return await self._retinue.record(run)

    async def show(self, request: requests.ShowRequest, who: Identity) -> replies.RunDetail:
        row = await self._retinue.record(request.run)
        spec, run = row.spec, row.run
        ending = getattr(run.state, "ending", None)
        return replies.RunDetail(
            id=spec.id,
            root=spec.root,
            parent=spec.parent,
            label=spec.request.label or spec.request.agent,
            agent=spec.request.agent,
            task=spec.request.task,
            model=spec.model,
            state=state_word(run),
            turn=run.turn,
            messages=run.length,
            usage=run.usage,
            created_at=spec.created_at,
            started_at=run.started_at,
            ended_at=None if ending is None else ending.at,
        )

    async def tree(self, request: requests.TreeRequest, who: Identity) -> RunTree:
        return await self._retinue.tree(request.run)

    async def transcript(
        self, request: requests.TranscriptRequest, who: Identity
    ) -> replies.Transcript:
        row = await self._retinue.record(request.run)
        messages = await self._retinue.messages(request.run, request.start)
        return replies.Transcript(
            run=request.run,
            start=request.start,
            length=row.run.length,
            messages=tuple(messages[: request.limit]),
        )

    async def outcome(
        self, request: requests.OutcomeRequest, who: Identity
    ) -> replies.OutcomeReply:
        outcome = await self._retinue.outcome(request.run)
        row = await self._retinue.record(request.run)
        return replies.OutcomeReply(run=request.run, state=state_word(row.run), outcome=outcome)

    async def questions(
        self, request: requests.QuestionsRequest, who: Identity
    ) -> replies.QuestionList:
        return replies.QuestionList(questions=tuple(await self.visible_questions(request.run, who)))

    async def spending(
        self, request: requests.SpendingRequest, who: Identity
    ) -> replies.SpendingReply:
        return replies.SpendingReply(spending=await self._retinue.budget(request.run))

    async def explain(self, request: requests.ExplainRequest, who: Identity) -> replies.Explanation:
        row = await self._retinue.record(request.run)
        if state_word(row.run) in ENDS:
            raise Refused("ended", f"Run {request.run} has ended and makes no tool calls.")
        text = await self._retinue.explain(request.run, request.tool, request.args)
        return replies.Explanation(text=text)

    async def branches(
        self, request: requests.BranchesRequest, who: Identity
    ) -> replies.BranchList:
        return replies.BranchList(branches=tuple(await self._retinue.branches(request.run)))

    async def diff(self, request: requests.DiffRequest, who: Identity) -> bytes:
        return await self._retinue.diff(request.run)

    # the project

    async def definitions(
        self, request: requests.DefinitionsRequest, who: Identity
    ) -> replies.AgentList:
        return await self._agents.definitions()

    async def tools(self, request: requests.ToolsRequest, who: Identity) -> replies.BuiltinToolList:
        return replies.BuiltinToolList(tools=await builtin_tool_list())

    async def models(self, request: requests.ModelsRequest, who: Identity) -> replies.ModelList:
        from retinue.host.model_choice import providers

        listing = await asyncio.to_thread(list, providers(self._agents.environ))
        return replies.ModelList(providers=tuple(listing))

    async def servers(self, request: requests.ServersRequest, who: Identity) -> replies.ServerList:
        mcp = await self._agents.servers(request.plan, request.env, request.approve, request.tool)
        return replies.ServerList(mcp=mcp)

    async def prompts(self, request: requests.PromptsRequest, who: Identity) -> replies.PromptList:
        if not request.prompt:
            prompts = await self._agents.prompts(request.plan, request.env)
            return replies.PromptList(prompts=tuple(map(msgspec.to_builtins, prompts)))
        return replies.PromptList(text=await self._agents.prompt(request))

    # the store

    async def artifact(self, request: requests.ArtifactRequest, who: Identity) -> bytes:
        await self.check_artifact(request.sha256, who)
        return await self._retinue.artifact(request.sha256, request.offset, request.limit)

    async def costs(self, request: requests.CostsRequest, who: Identity) -> replies.CostReport:
        listing = requests.ListRequest(limit=request.limit, before=request.before)
        page = await self.list_runs(listing, who)
        lines = [await self._cost(line.id) for line in page.runs]
        return replies.CostReport(
            runs=tuple(lines),
            tokens=sum(line.tokens for line in lines),
            usd=sum(line.usd for line in lines),
            tokens_estimated=sum(line.tokens_estimated for line in lines),
            usd_estimated=sum(line.usd_estimated for line in lines),
            tokens_unpriced=sum(line.tokens_unpriced for line in lines),
            cost_is_known=not any(line.usd_estimated or line.tokens_unpriced for line in lines),
            next=page.next,
        )

    async def _cost(self, run: str) -> replies.RunCost:
        spec = (await self._retinue.record(run)).spec
        spending = await self._retinue.budget(run)
        spent = spending.spent
        return replies.RunCost(
            run=run,
            label=spec.request.label or spec.request.agent,
            model=spec.model,
            created_at=spec.created_at,
            tokens=spent.tokens,
            usd=spent.usd,
            turns=spent.turns,
            calls=spent.calls,
            tokens_estimated=spending.tokens_estimated,
            usd_estimated=spending.usd_estimated,
            tokens_unpriced=spending.tokens_unpriced,
        )

    async def deliveries(
        self, request: requests.DeliveriesRequest, who: Identity
    ) -> replies.DeliveryList:
        states = [request.state] if request.state else []
        return replies.DeliveryList(deliveries=tuple(await self.visible_deliveries(states, who)))

    async def redeliver(
        self, request: requests.RedeliverRequest, who: Identity
    ) -> replies.EmptyReply:
        await self.check_delivery(request.key, who)
        if request.drop:
            await self._retinue.drop_delivery(request.key)
        else:
            await self._retinue.redeliver(request.key)
        return replies.EmptyReply()

    async def forget(self, request: requests.ForgetRequest, who: Identity) -> replies.EmptyReply:
        await self._retinue.forget(request.run)
        return replies.EmptyReply()

    async def backup(self, request: requests.BackupRequest, who: Identity) -> replies.EmptyReply:
        await self._retinue.backup(request.path)
        return replies.EmptyReply()

    async def compact(
        self, request: requests.CompactRequest, who: Identity
    ) -> AsyncIterator[ServerEvent]:
        """Progress comes as it is made; a client that goes away does not stop it."""
        pages: asyncio.Queue[replies.CompactionProgress] = asyncio.Queue()

        def progress(n_pages: int, total: int) -> None:
            pages.put_nowait(replies.CompactionProgress(done=n_pages, total=total))

        work = asyncio.ensure_future(self._retinue.compact(progress=progress))
        while not work.done() or not pages.empty():
            with contextlib.suppress(TimeoutError):
                yield ServerEvent("progress", await asyncio.wait_for(pages.get(), 0.1))
        yield ServerEvent("end", await work)

    # the host itself

    async def status(self, request: requests.StatusRequest, who: Identity) -> replies.HostStatus:
        dormant = await self.visible_runs(self._retinue.runs_without_agent, who)
        return replies.HostStatus(
            pid=os.getpid(),
            retinue=__version__,
            store=self.address if who.may("admin") else "",
            open=len(await self.visible_runs(self._retinue.open_runs(), who)),
            dormant=tuple(dormant),
            lacks={run: await self._lack(run) for run in dormant},
            trouble=self._retinue.blocked_reason,
            held=await self.visible_held_calls(who),
            sandbox=await asyncio.to_thread(_sandbox_status) if who.may("admin") else None,
            cluster=await self._cluster_status(who),
        )

    async def _cluster_status(self, who: Identity) -> ClusterStatus | None:
        if self.cluster is None or not who.may("admin"):
            return None
        return await asyncio.to_thread(self.cluster)

    async def _lack(self, run: str) -> str:
        return lack_of((await self._retinue.record(run)).spec.model, self._agents.environ)

    async def metrics(self, request: requests.MetricsRequest, who: Identity) -> str:
        counts: Counter[tuple[str, int]] = Counter()
        for (user, name, status), n in self.counters.items():
            if who.user in ("", user):
                counts[name, status] += n
        return prometheus_text(
            open_runs=len(await self.visible_runs(self._retinue.open_runs(), who)),
            dormant_runs=len(await self.visible_runs(self._retinue.runs_without_agent, who)),
            questions=len(await self.visible_questions("", who)),
            deliveries=[d.state for d in await self.visible_deliveries((), who)],
            is_stuck=bool(self._retinue.blocked_reason),
            requests=counts,
            cluster=await self._cluster_status(who),
        )


def _sandbox_status() -> replies.SandboxStatus:
    health = sandbox_health()
    return replies.SandboxStatus(
        program=health.program,
        guarantees=tuple(one.text for one in health.guarantees),
        is_weak=any(one.is_weak for one in health.guarantees),
        problem=health.problem,
        fix=health.fix,
    )
