"""Replies for the dashboard: an overview of all trees, and the page's address."""

from __future__ import annotations

from retinue.host.replies import HostReply


class AgentShare(HostReply):
    """What the runs of one agent with one model took within a tree, without their sub-agents. `usd`
    is null when the price is not known; of `usd_estimated`, which is in it, it is only known that
    it is not more. `input` counts tokens from a cache too."""

    agent: str
    model: str
    n_runs: int
    input: int
    cached: int
    output: int
    usd: float | None
    usd_estimated: float


class RunSummary(HostReply):
    """What one root run and its sub-agents came to. `text` is the beginning of its result, or why
    there is none; `by`, `reason` and `is_along` say who cancelled it, and that it shared the end of
    a run above it. `usd` is null when the price of a model is not known; `saved_usd` is what prompt
    caches saved. `n_agents` counts the runs of its tree, `n_done` those that completed, `n_failed`
    those that ended otherwise. `shares` says where in the tree it was spent. `resumes` is the run
    whose conversation it continues."""

    id: str
    resumes: str
    label: str
    agent: str
    task: str
    model: str
    state: str
    stop: str
    by: str
    reason: str
    is_along: bool
    text: str
    created_at: int
    started_at: int | None
    ended_at: int | None
    tokens: int
    usd: float | None
    usd_estimated: float
    saved_usd: float
    n_agents: int
    n_done: int
    n_failed: int
    shares: tuple[AgentShare, ...] = ()


class OverviewReply(HostReply):
    """A page of root runs; `next` is `before` of the page after it, "" on the last. `now` is the
    host's clock."""

    runs: tuple[RunSummary, ...]
    next: str = ""
    now: int = 0


class PageReply(HostReply):
    """The address of the dashboard, and a code for one browser."""

    address: str
    code: str
