"""All trees of a store: a summary of each, and one stream of all events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator

from retinue.core.state import Ended
from retinue.core.state_names import ENDS, agent_label
from retinue.core.values import NANOS_PER_USD, Usage
from retinue.errors import NotFound
from retinue.host import requests
from retinue.host.follow import TreeFollower
from retinue.host.identity import Identity
from retinue.host.lookups import Lookups
from retinue.host.page_replies import AgentShare, OverviewReply, RunSummary
from retinue.host.server_events import ServerEvent
from retinue.host.tree_items import TextArrived
from retinue.host.visibility import is_visible
from retinue.outcomes import state_word
from retinue.runtime.text_pieces import TextPiece
from retinue.steps import run_of
from retinue.tree_record import TreeRecord

MOST_TEXT = 400
FREE = ("offline/", "local/")


class Overviews(Lookups):
    """The part of `Host` that tells of all trees together."""

    async def overview(self, request: requests.OverviewRequest, who: Identity) -> OverviewReply:
        roots, more = [request.run], ""
        if not request.run:
            listing = requests.ListRequest(limit=request.limit, before=request.before)
            page = await self.list_runs(listing, who)
            roots, more = [line.id for line in page.runs], page.next
        lines = [summary(await self._retinue.tree_record(root)) for root in roots]
        now = time.time_ns() // 1_000_000
        return OverviewReply(runs=tuple(lines), next=more, now=now)

    async def watch_all(
        self, request: requests.WatchAllRequest, who: Identity
    ) -> AsyncIterator[ServerEvent]:
        """Each tree that is open as it is on record, then the steps behind the first of them: a
        reader sees some steps whose effect it has already, and misses none."""
        after = request.after
        if after is None:
            after = await self._retinue.log_position()
            for root in await self._open_roots(who):
                tree = await self._retinue.tree_record(root)
                yield ServerEvent("tree", tree, str(after))
        follower, visibility = TreeFollower(self._retinue, after), dict[str, bool]()
        async for item in self._retinue.all_steps(after, deltas=request.deltas):
            if not await self._is_shown(
                item.run if isinstance(item, TextPiece) else run_of(item), who, visibility
            ):
                continue
            if isinstance(item, TextPiece):
                yield ServerEvent("delta", TextArrived.of(item))
            elif (news := await follower.about(item)) is not None:
                yield ServerEvent("step", news, str(item.seq))

    async def _open_roots(self, who: Identity) -> list[str]:
        roots = dict.fromkeys(
            [(await self._retinue.record(run)).spec.root for run in self._retinue.open_runs()]
        )
        return await self.visible_runs(roots, who)

    async def _is_shown(self, run: str, who: Identity, visibility: dict[str, bool]) -> bool:
        """Whether a step is about a run, and about one that this identity sees."""
        if run not in visibility:
            try:
                visibility[run] = bool(run) and is_visible(await self._retinue.record(run), who)
            except NotFound:
                return False
        return visibility[run]


def summary(tree: TreeRecord) -> RunSummary:
    """One line about a tree."""
    top, account = tree.rows[0], tree.account
    spec, run = top.spec, top.run
    ending = run.state.ending if isinstance(run.state, Ended) else None
    states = Counter(state_word(row.run) for row in tree.rows)
    spent = account.spent if account is not None else (0, 0, 0, 0)
    guess = account.guess if account is not None else (0, 0, 0)
    is_priced = (tree.priced or not spent[0]) and not guess[2]
    saved = account.cache.saved_nanos if account is not None else 0
    return RunSummary(
        id=spec.id,
        resumes=spec.resumes,
        label=agent_label(spec.request.label or spec.request.agent),
        agent=agent_label(spec.request.agent),
        task=spec.request.task[:MOST_TEXT],
        model=run.model_used or spec.model,
        state=state_word(run),
        stop=ending.stop if ending is not None else "",
        by=ending.by if ending is not None else "",
        reason=ending.reason if ending is not None else "",
        is_along=ending is not None and bool(ending.along),
        text=(ending.error or ending.text)[:MOST_TEXT] if ending is not None else "",
        created_at=spec.created_at,
        started_at=run.started_at,
        ended_at=ending.at if ending is not None else None,
        tokens=spent[0],
        usd=spent[1] / NANOS_PER_USD if is_priced else None,
        usd_estimated=guess[1] / NANOS_PER_USD,
        saved_usd=saved / NANOS_PER_USD,
        n_agents=len(tree.rows),
        n_done=states["completed"],
        n_failed=sum(states[name] for name in ENDS if name not in ("completed", "cancelled")),
        shares=shares(tree),
    )


def shares(tree: TreeRecord) -> tuple[AgentShare, ...]:
    """Where in a tree it was spent: by agent and model, in the order of their first runs."""
    groups: dict[tuple[str, str], list[Usage]] = {}
    for row in tree.rows:
        name = agent_label(row.spec.request.agent), row.run.model_used or row.spec.model
        groups.setdefault(name, []).append(row.run.usage)
    rows = []
    for (agent, model), usages in groups.items():
        nanos, tokens = sum(u.nanos for u in usages), sum(u.tokens for u in usages)
        is_priced = bool(nanos) or not tokens or tree.priced or model.startswith(FREE)
        rows.append(
            AgentShare(
                agent=agent,
                model=model,
                n_runs=len(usages),
                input=sum(u.input + u.estimated for u in usages),
                cached=sum(u.cache_read for u in usages),
                output=sum(u.output for u in usages),
                usd=nanos / NANOS_PER_USD if is_priced else None,
                usd_estimated=sum(u.nanos_estimated for u in usages) / NANOS_PER_USD,
            )
        )
    return tuple(rows)
