"""The requests of a host that look at what there is, and those about the store itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable

from retinue import __version__
from retinue.api import Retinue
from retinue.core.state_names import ENDS
from retinue.errors import NotFound, Refused
from retinue.host import replies, requests
from retinue.host.agent_source import AgentSource
from retinue.host.identity import Identity
from retinue.host.metrics import prometheus_text
from retinue.host.server_events import ServerEvent
from retinue.host.tool_list import builtin_tool_list
from retinue.outcomes import Node, state_word
from retinue.store.base import Row, Summary


class Lookups:
    """The part of `Host` that changes no run."""

    def __init__(self, retinue: Retinue, agents: AgentSource, store: str = "") -> None:
        self._retinue, self._agents, self._store = retinue, agents, store
        self.counters: dict[tuple[str, int], int] = {}

    def introduction(self) -> replies.Hello:
        return replies.Hello(
            version=requests.VERSION, retinue=__version__, pid=os.getpid(), store=self._store
        )

    # who sees what

    async def check_visible(self, runs: Iterable[str], who: Identity) -> None:
        """A run of another user is not found, in the words of one that does not exist."""
        for run in runs:
            if not is_visible(await self._retinue.record(run), who):
                raise NotFound(f"Run {run!r} not found.")

    # runs

    async def list_runs(self, request: requests.ListRequest, who: Identity) -> replies.RunPage:
        found, before = list[Summary](), request.before
        while len(found) < request.limit:
            page = await self._retinue.list(
                children=request.children, limit=request.limit, before=before
            )
            for line in page:
                before = line.id
                if request.state not in ("", line.state) or request.label not in ("", line.label):
                    continue
                if who.user and not is_visible(await self._retinue.record(line.id), who):
                    continue
                found.append(line)
                if len(found) == request.limit:
                    break
            if len(page) < request.limit:
                break
        is_full = len(found) == request.limit
        return replies.RunPage(runs=tuple(found), next=before if is_full else "")

    async def show(self, request: requests.ShowRequest, who: Identity) -> replies.RunDetail:
        row = await self._retinue.record(request.run)
        spec, run = row.spec, row.run
        ending = getattr(run.state, "ending", None)
        return replies.RunDetail(
            id=spec.id,
            root=spec.root,
            parent=spec.parent,
            label=spec.order.label or spec.order.agent,
            agent=spec.order.agent,
            task=spec.order.task,
            model=spec.model,
            state=state_word(run),
            turn=run.turn,
            messages=run.length,
            usage=run.usage,
            created_at=spec.created_at,
            started_at=run.started_at,
            ended_at=None if ending is None else ending.at,
        )

    async def tree(self, request: requests.TreeRequest, who: Identity) -> Node:
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
        found = await self._retinue.questions(request.run)
        if who.user:
            seen = [is_visible(await self._retinue.record(q.root), who) for q in found]
            found = [q for q, is_seen in zip(found, seen, strict=True) if is_seen]
        return replies.QuestionList(questions=tuple(found))

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

    # the project

    async def definitions(
        self, request: requests.DefinitionsRequest, who: Identity
    ) -> replies.AgentList:
        return replies.AgentList(agents=tuple(await self._agents.definitions()))

    async def tools(self, request: requests.ToolsRequest, who: Identity) -> replies.BuiltinToolList:
        return replies.BuiltinToolList(tools=await builtin_tool_list())

    async def models(self, request: requests.ModelsRequest, who: Identity) -> replies.ModelList:
        from retinue.host.model_choice import providers

        return replies.ModelList(providers=tuple(providers(self._agents.environ)))

    async def servers(self, request: requests.ServersRequest, who: Identity) -> replies.ServerList:
        mcp = await self._agents.servers(request.plan, request.env, request.approve, request.tool)
        return replies.ServerList(mcp=mcp)

    # the store

    async def artifact(self, request: requests.ArtifactRequest, who: Identity) -> bytes:
        return await self._retinue.artifact(request.sha256, request.offset, request.limit)

    async def costs(self, request: requests.CostsRequest, who: Identity) -> replies.CostReport:
        listing = requests.ListRequest(limit=request.limit, before=request.before)
        page = await self.list_runs(listing, who)
        lines = [await self._cost(line.id) for line in page.runs]
        return replies.CostReport(
            runs=tuple(lines),
            tokens=sum(line.tokens for line in lines),
            usd=sum(line.usd for line in lines),
            next=page.next,
        )

    async def _cost(self, run: str) -> replies.RunCost:
        spec = (await self._retinue.record(run)).spec
        spent = (await self._retinue.budget(run)).spent
        return replies.RunCost(
            run=run,
            label=spec.order.label or spec.order.agent,
            model=spec.model,
            created_at=spec.created_at,
            tokens=spent.tokens,
            usd=spent.usd,
            turns=spent.turns,
            calls=spent.calls,
        )

    async def deliveries(
        self, request: requests.DeliveriesRequest, who: Identity
    ) -> replies.DeliveryList:
        found = await self._retinue.deliveries([request.state] if request.state else ())
        seen = [d for d in found if not who.user or d.origin.user == who.user]
        return replies.DeliveryList(deliveries=tuple(seen))

    async def redeliver(
        self, request: requests.RedeliverRequest, who: Identity
    ) -> replies.EmptyReply:
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

        def progress(done: int, total: int) -> None:
            pages.put_nowait(replies.CompactionProgress(done=done, total=total))

        work = asyncio.ensure_future(self._retinue.compact(progress=progress))
        while not work.done() or not pages.empty():
            with contextlib.suppress(TimeoutError):
                yield ServerEvent("progress", await asyncio.wait_for(pages.get(), 0.1))
        yield ServerEvent("end", await work)

    # the host itself

    async def status(self, request: requests.StatusRequest, who: Identity) -> replies.HostStatus:
        return replies.HostStatus(
            pid=os.getpid(),
            retinue=__version__,
            store=self._store if who.may("admin") else "",
            open=len(self._retinue.open_runs()),
            dormant=tuple(self._retinue.dormant),
            trouble=self._retinue.trouble,
        )

    async def metrics(self, request: requests.MetricsRequest, who: Identity) -> str:
        questions = await self._retinue.questions()
        deliveries = await self._retinue.deliveries()
        return prometheus_text(
            open_runs=len(self._retinue.open_runs()),
            dormant_runs=len(self._retinue.dormant),
            questions=len(questions),
            deliveries=[d.state for d in deliveries],
            is_stuck=bool(self._retinue.trouble),
            requests=self.counters,
        )


def is_visible(row: Row, who: Identity) -> bool:
    """Whether a run is one of those that this identity sees."""
    return not who.user or row.spec.origin.user == who.user
