"""Replies of a host for which the runtime has no value."""

from __future__ import annotations

from typing import Any, dataclass_transform

import msgspec

from retinue.cluster.status_types import ClusterStatus
from retinue.core.merges import BranchMerge
from retinue.core.messages import Message
from retinue.core.values import Delivery, Usage
from retinue.open_questions import OpenQuestion
from retinue.outcomes import Outcome
from retinue.run_info import RunBranch
from retinue.runtime.held_calls import HeldCall
from retinue.spending import Spending
from retinue.store.base import RunLine


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class HostReply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all replies. Unlike values that are stored, they are written with every field."""


class Hello(HostReply):
    """The host that answers. `page` is the address of its dashboard, while it has one open."""

    version: int
    retinue: str
    pid: int
    store: str
    page: str = ""


class EmptyReply(HostReply):
    """It is done, and there is nothing to say about it."""


class NewRunReply(HostReply):
    """The id of a new run, or of one that continues."""

    run: str


class StartReply(HostReply):
    """A new run, the tools that it has, its permission mode, and the states of its MCP servers."""

    run: str
    tools: tuple[str, ...] = ()
    mode: str = ""
    mcp: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


class RunPage(HostReply):
    """A page of runs; `next` is `before` of the page after it, "" on the last."""

    runs: tuple[RunLine, ...]
    next: str = ""


class RunDetail(HostReply):
    """One run. Times are milliseconds since 1970; `usage` is its own, without its sub-agents."""

    id: str
    root: str
    parent: str
    label: str
    agent: str
    task: str
    model: str
    state: str
    turn: int
    messages: int
    usage: Usage
    created_at: int
    started_at: int | None
    ended_at: int | None


class Transcript(HostReply):
    """Messages `start` to `start + len(messages)` of a conversation of `length` messages."""

    run: str
    start: int
    length: int
    messages: tuple[Message, ...]


class OutcomeReply(HostReply):
    """How a run ended; null while it is open."""

    run: str
    state: str
    outcome: Outcome | None


class BranchList(HostReply):
    """The copies of a run and of those below it, oldest first."""

    branches: tuple[RunBranch, ...]


class MergeReply(HostReply):
    """What became of the changes of a run."""

    merge: BranchMerge


class StatesReply(HostReply):
    """The states of runs by their ids; null for one that is still open when the time is over."""

    states: dict[str, str | None]


class QuestionList(HostReply):
    """What waits for a person."""

    questions: tuple[OpenQuestion, ...]


class AnswerReply(HostReply):
    """The question that was answered, and the run that had asked it."""

    run: str
    question: str


class SpendingReply(HostReply):
    """The budget of a run at this moment."""

    spending: Spending


class Explanation(HostReply):
    """A text for people."""

    text: str


class ServerList(HostReply):
    """MCP servers and their states."""

    mcp: tuple[dict[str, Any], ...]


class PromptList(HostReply):
    """Prompts of MCP servers, or the text of the one that was asked for."""

    prompts: tuple[dict[str, Any], ...] = ()
    text: str = ""


class AgentInfo(HostReply):
    """An agent: where it was found, in which `dialect`, and what it says of itself. `model` and
    `tools` are null when it has those of the run that starts it."""

    name: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] | None = None
    scope: str = ""
    path: str = ""
    dialect: str = ""


class FileFault(HostReply):
    """What is wrong with a file that defines agents. An error keeps its agent from being used, a
    warning and a note do not. Line 0 is the whole file."""

    path: str
    line: int
    severity: str
    message: str
    hint: str = ""


class AgentList(HostReply):
    """The agents that can be started, and what is wrong with their files."""

    agents: tuple[AgentInfo, ...]
    faults: tuple[FileFault, ...] = ()


class ToolInfo(HostReply):
    """A built-in tool: its JSON schema, what it can do to the world, and whether an interrupted
    call is repeated after a crash."""

    name: str
    description: str
    parameters: dict[str, Any]
    risk: str
    restart: str


class BuiltinToolList(HostReply):
    """The built-in tools."""

    tools: tuple[ToolInfo, ...]


class ProviderInfo(HostReply):
    """A provider: `ready` when its key is set or it needs none; `default` is the model that is used
    when only the key is there. What that model costs is in dollars for a million tokens, null where
    no price is known."""

    provider: str
    ready: bool
    keys: tuple[str, ...]
    default: str
    usd_in: float | None = None
    usd_out: float | None = None
    usd_cached: float | None = None


class ModelList(HostReply):
    """The providers."""

    providers: tuple[ProviderInfo, ...]


class RunCost(HostReply):
    """What one root run and its sub-agents have cost. Of `tokens_estimated` and `usd_estimated`,
    which are in it, it is only known that they are not more; the price of `tokens_unpriced` is not
    known, and is not in `usd`."""

    run: str
    label: str
    model: str
    created_at: int
    tokens: int
    usd: float
    turns: int
    calls: int
    tokens_estimated: int
    usd_estimated: float
    tokens_unpriced: int


class CostReport(HostReply):
    """The costs of a page of runs, and their sum. `cost_is_known` says whether it is a fact, and
    all that they have cost."""

    runs: tuple[RunCost, ...]
    tokens: int
    usd: float
    tokens_estimated: int
    usd_estimated: float
    tokens_unpriced: int
    cost_is_known: bool
    next: str = ""


class DeliveryList(HostReply):
    """Announcements."""

    deliveries: tuple[Delivery, ...]


class SandboxStatus(HostReply):
    """The sandbox `program` of a host and what it guarantees; `is_weak`: another machine could
    offer more. Or the `problem` that there is none, and its `fix`."""

    program: str = ""
    guarantees: tuple[str, ...] = ()
    is_weak: bool = False
    problem: str = ""
    fix: str = ""


class HostStatus(HostReply):
    """`open` runs; `dormant` ones whose agent the host cannot build, and what each of them `lacks`;
    `trouble`: why nothing moves, when nothing moves; `held`: model calls that wait because their
    provider is left alone after what it answered to others. `store`, `sandbox` and `cluster` (null
    when no other node uses the store) are shown to tokens with the scope `admin`."""

    pid: int
    retinue: str
    store: str
    open: int
    dormant: tuple[str, ...]
    trouble: str
    held: tuple[HeldCall, ...] = ()
    lacks: dict[str, str] = {}
    sandbox: SandboxStatus | None = None
    cluster: ClusterStatus | None = None


class CompactionProgress(HostReply):
    """How far a compaction is, in pages."""

    done: int
    total: int
