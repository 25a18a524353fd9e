"""Every request to a host, as a value. How a request travels over HTTP is in `operations.py`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from retinue.core import values
from retinue.core.values import Value
from retinue.host.plan import Plan

VERSION = 2
"""Of what a command and its host say to each other. 1 was lines of JSON."""
MOST_RUNS = 1_000

PageSize = Annotated[int, Meta(ge=1, le=MOST_RUNS)]
Position = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Amount = Annotated[int, Meta(ge=0, le=1 << 53)]
Money = Annotated[float, Meta(ge=0, le=1e9)]
Task = Annotated[str, Meta(min_length=1)]
OnLimitOrNone = Literal["", "land", "ask", "stop"]


class RunTerms(Value):
    """What one run may do and spend: the parts of a request that a user sets. None and "" keep the
    agent's own. `families` are turned on or off by their names. `instructions` come behind the
    agent's own. `meta` are words of the client's own, kept with the run. `client_tools` are carried
    out by the client: a call waits as a question until it is answered with the result. Of the runs
    of one user with `at_once`, so many work at the same time, and others wait for their turn. A run
    that continues another has that one's unless it names its own. With `within_agent`, an amount of
    the budget only ever lowers the agent's own. Without `follow_links`, `cwd` and `read` are used
    as they are written, and a link on the way is refused."""

    label: str = ""
    cwd: str = ""
    follow_links: bool = True
    budget: values.Budget = values.Budget()
    within_agent: bool = False
    on_limit: OnLimitOrNone = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    max_turns: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    at_once: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    mode: str = ""
    rules: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    questions: Literal["", "ask", "deny"] = ""
    announce: bool = False
    families: dict[str, bool] = msgspec.field(default_factory=dict)
    instructions: str = ""
    meta: dict[str, str] = msgspec.field(default_factory=dict)
    client_tools: tuple[values.ToolSchema, ...] | None = None


class HostRequest(Value, forbid_unknown_fields=True):
    """Base of all requests."""


class HelloRequest(HostRequest):
    """A command introduces itself: the protocol it speaks, the part of its environment that models
    need, and all secrets of its environment (`hidden`), so that the host keeps them out of what it
    writes. Never stored, never logged."""

    version: int = VERSION
    env: dict[str, str] = msgspec.field(default_factory=dict)
    hidden: dict[str, str] = msgspec.field(default_factory=dict)


class StartRequest(HostRequest):
    """Start a run: of the `agent` and `model` named, or of those that the project's configuration
    names. `families` are those that it has in place of the project's: none for an agent that works
    alone."""

    # A command sends a plan, which says everything itself; `env` are then the values of the
    # variables that its servers name, which are used and never stored.

    task: Task
    agent: str = ""
    model: str = ""
    families: tuple[str, ...] | None = None
    terms: RunTerms = RunTerms()
    plan: Plan | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)


class ResumeRequest(HostRequest):
    """Continue a run that has ended as a new run with the same conversation; one that waits for its
    provider tries again."""

    run: str
    task: str = ""
    terms: RunTerms = RunTerms()
    plan: Plan | None = None


class ForkRequest(HostRequest):
    """Start a run with the conversation of another, up to message `at`."""

    run: str
    task: Task
    at: Position | None = None
    terms: RunTerms = RunTerms()
    plan: Plan | None = None


class ForkPriceRequest(HostRequest):
    """What the first prompts of `n` forks of a run would cost, with its conversation up to message
    `at`. Nothing is started."""

    run: str
    task: str = ""
    n: Annotated[int, Meta(ge=1, le=10_000)] = 1
    at: Position | None = None


class RetryRequest(HostRequest):
    """Let the runs of a tree that wait for their provider try again now."""

    run: str


class WatchRequest(HostRequest):
    """Everything about a run and its sub-agents, after position `after` of the log, until the run
    ends. With `deltas`, also text as models write it."""

    run: str
    after: Position = 0
    deltas: bool = False


class WatchAllRequest(HostRequest):
    """Everything about all runs, for as long as you listen: first the trees that are open, then
    each step. With `after`, the steps behind that position of the log, and no trees before them.
    With `deltas`, also text as models write it."""

    after: Position | None = None
    deltas: bool = False


class OverviewRequest(HostRequest):
    """Root runs, newest first, each with what it and its sub-agents came to; with `run`, only that
    one."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: str = ""
    run: str = ""


class SendRequest(HostRequest):
    """Send a message to an open run; `steer` interrupts its current turn."""

    run: str
    text: str
    steer: bool = False


class CancelRequest(HostRequest):
    """End runs and their sub-agents; without `runs`, all open ones. `by` is who wants that: a
    person, or another program (`system`), such as a supervisor."""

    runs: tuple[str, ...] = ()
    reason: str = ""
    by: Literal["user", "system"] = "user"


class AnswerRequest(HostRequest):
    """Answer the question named, or the only one of a run and its sub-agents: a permission with
    `allow`, a question with `text`. `always` allows the same call in this tree from now on."""

    run: str
    text: str = ""
    question: str = ""
    allow: bool | None = None
    always: bool = False
    by: str = ""


class BudgetRequest(HostRequest):
    """Raise the limits of a run, or change what happens at them; with a `question`, only as the
    answer to it."""

    run: str
    tokens: Amount = 0
    usd: Money = 0.0
    turns: Amount = 0
    calls: Amount = 0
    seconds: Money = 0.0
    on_limit: OnLimitOrNone = ""
    question: str = ""
    by: str = ""


class SpendingRequest(HostRequest):
    """The limits of a run, and what is spent and held of them."""

    run: str


class QuestionsRequest(HostRequest):
    """What waits for a person, in one tree or in all."""

    run: str = ""


class ExplainRequest(HostRequest):
    """Whether an open run may call a tool, and which rule says so."""

    run: str
    tool: str
    args: str = "{}"


class ServersRequest(HostRequest):
    """The MCP servers of a plan and their states; `approve` first accepts what one of them offers
    now, or one tool of it."""

    plan: Plan
    env: dict[str, str] = msgspec.field(default_factory=dict)
    approve: str = ""
    tool: str = ""


class PromptsRequest(HostRequest):
    """The prompts of the MCP servers of a plan; with a `server` and a `prompt`, the text of that
    one."""

    plan: Plan
    env: dict[str, str] = msgspec.field(default_factory=dict)
    server: str = ""
    prompt: str = ""
    arguments: dict[str, str] = msgspec.field(default_factory=dict)


class WaitRequest(HostRequest):
    """Wait until all of these runs have ended, or the first of them, or the time is over."""

    runs: tuple[str, ...]
    timeout_seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    first: bool = False


class ListRequest(HostRequest):
    """Runs, newest first. `children` includes those that runs have started; `state` and `label`
    are filters; `before` is the last id of the page before."""

    state: str = ""
    label: str = ""
    children: bool = False
    limit: PageSize = 100
    before: str = ""


class ShowRequest(HostRequest):
    """One run in its current state."""

    run: str


class TreeRequest(HostRequest):
    """A run and everything below it."""

    run: str


class TranscriptRequest(HostRequest):
    """The conversation of a run, from message `start` on."""

    run: str
    start: Position = 0
    limit: PageSize = 100


class OutcomeRequest(HostRequest):
    """How a run ended; `outcome` is null while it is open."""

    run: str


class BranchesRequest(HostRequest):
    """The copies in which a run and those below it have worked, and what became of them."""

    run: str


class DiffRequest(HostRequest):
    """What a run has changed in its copy, as a diff."""

    run: str


class MergeRequest(HostRequest):
    """Merge what an ended run has left on its branch into the files of its directory. With a
    conflict nothing is changed."""

    run: str


class ForgetRequest(HostRequest):
    """Delete a root run that has ended, and everything below it."""

    run: str


class ArtifactRequest(HostRequest):
    """Bytes of an artifact: the stored full text of what was too long to be shown whole."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    offset: Position = 0
    limit: Position | None = None


class DefinitionsRequest(HostRequest):
    """The agents that can be started here."""


class ToolsRequest(HostRequest):
    """The built-in tools."""


class ModelsRequest(HostRequest):
    """The providers, and whether their key is set."""


class CostsRequest(HostRequest):
    """What the newest root runs have cost, each with its sub-agents."""

    limit: PageSize = 100
    before: str = ""


class DeliveriesRequest(HostRequest):
    """Announcements and their states."""

    state: Literal["", "pending", "sent", "acked", "suppressed", "dead"] = ""


class RedeliverRequest(HostRequest):
    """Send a dead announcement again, or give up on one."""

    key: str
    drop: bool = False


class BackupRequest(HostRequest):
    """Copy the store to a new file on the host's machine."""

    path: Annotated[str, Meta(pattern="^/")]


class CompactRequest(HostRequest):
    """Give the space of deleted runs back to the disk."""


class StatusRequest(HostRequest):
    """The state of the host."""


class MetricsRequest(HostRequest):
    """Counters for Prometheus."""


class PageRequest(HostRequest):
    """Where the dashboard is, with a code that lets a browser in once; a host that listens on no
    address begins to, on loopback. A code that goes onto a command line, where every user of the
    machine can read it, `is_for_own_user` only."""

    is_for_own_user: bool = False


class StopRequest(HostRequest):
    """End the host. Open runs are kept and continue with the next host."""
