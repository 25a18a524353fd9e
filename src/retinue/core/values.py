"""Frozen values that are stored, sent and compared.

Times are integer milliseconds since the epoch, money is integer nano-dollars, tokens are integers:
sums stay exact."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from retinue.core.model_price import Price, cost_of, most_cost, settle_price
from retinue.core.value_base import Value as Value
from retinue.core.value_base import checked as checked


class ProviderTrouble(Value):
    """What came instead of a reply: whose (`provider`), from where (`host`), and the `answer`: an
    HTTP status, or a word where there was none, such as `refused`."""

    provider: str = ""
    answer: str = ""
    host: str = ""


JoinMode = Literal["call", "turn", "step", "none"]
ReportMode = Literal["text", "submit", "summary", "announce"]
EndState = Literal["completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted"]
Who = Literal["", "user", "parent", "limit", "system"]
"""What ended a run: a user or program, the run that started it, a limit, or the runtime."""
OnLimit = Literal["land", "ask", "stop"]
Restart = Literal["pure", "keyed", "reconcile", "adoptable", "unsafe"]

Mode = Literal["bypassPermissions", "auto", "acceptEdits", "manual", "dontAsk", "plan"]
MODES = ("bypassPermissions", "auto", "acceptEdits", "manual", "dontAsk", "plan")
"""Permission modes, each stricter than the one before it."""
NANOS_PER_USD = 1_000_000_000
MOST_TOKENS = 1 << 31
"""More than any call has; a larger number is ignored. Sums of prices then fit into 64 bits."""


class Artifact(Value, rename={"size": "bytes"}):
    """Bytes kept outside the conversation: the whole of a cut output, or a file a run made."""

    path: str
    size: int
    sha256: str


def size_of_change(files: int, added: int, removed: int) -> str:
    """`6 files, +210 -41`."""
    return f"{files} file{'' if files == 1 else 's'}, +{added} -{removed}"


class BranchWork(Value):
    """What an isolated run left on its branch: how much, since when, and where the diff is."""

    branch: str
    base: str
    commit: str
    files: int
    added: int
    removed: int
    diff: str

    def words(self, *, is_merged: bool) -> str:
        """What is said of it behind the result. What is merged later is not looked for on a
        branch."""
        where = "" if is_merged else f" on branch {self.branch} since {self.base[:12]}"
        size = size_of_change(self.files, self.added, self.removed)
        return f"[Changes{where}: {size}; the diff is in artifact {self.diff}]"


class Usage(Value):
    """What was spent. `estimated` counts the tokens that were booked without a provider's word, and
    `nanos_estimated` is what of `nanos` was: of these it is only known that they are not more."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    estimated: int = 0
    nanos: int = 0
    nanos_estimated: int = 0
    turns: int = 0
    calls: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.estimated

    @property
    def cost_is_known(self) -> bool:
        return not self.nanos_estimated

    @property
    def is_exact(self) -> bool:
        """Whether no part of it is only known as a bound: a provider has counted all of it."""
        return not self.estimated and not self.nanos_estimated

    @property
    def usd(self) -> float:
        return self.nanos / NANOS_PER_USD

    def plus(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            estimated=self.estimated + other.estimated,
            nanos=self.nanos + other.nanos,
            nanos_estimated=self.nanos_estimated + other.nanos_estimated,
            turns=self.turns + other.turns,
            calls=self.calls + other.calls,
        )


MOST_AMOUNT = 1 << 53
"""More than any run can spend of anything. Sums and products of such numbers stay finite."""


class Budget(Value):
    """What a run and all its descendants may spend together; None means no limit of its own.
    `seconds` counts from the run's start on the clock of the wall: time is shared by all who run in
    parallel. `on_limit`, for the others: `land` takes one last turn, which was kept back, `ask`
    waits for a person's answer, `stop` ends immediately."""

    tokens: Annotated[int, Meta(ge=0, le=MOST_AMOUNT)] | None = None
    usd: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    turns: Annotated[int, Meta(ge=0, le=MOST_AMOUNT)] | None = None
    calls: Annotated[int, Meta(ge=0, le=MOST_AMOUNT)] | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    on_limit: OnLimit = "land"

    def __post_init__(self) -> None:
        limits = (self.tokens, self.usd, self.turns, self.calls, self.seconds)
        if limits == (None, None, None, None, None):
            return
        for name in ("tokens", "usd", "turns", "calls", "seconds"):
            amount = getattr(self, name)
            if amount is not None and not 0 <= amount <= MOST_AMOUNT:
                raise ValueError(
                    f"Budget.{name} must be 0 or more and finite, not {amount!r}. Omit it "
                    "for no limit."
                )


class ModelInfo(Value):
    """Facts about a model. A `price` of None is unknown, never free. The four amounts are the same
    in nano-dollars per token; those of the cache are the input's if unknown. `resolved` is the
    model that an alias names. `preamble` is the most tokens that the provider adds to a prompt by
    itself (what it tells the model about tools, and the like). `cache_tokens` is the shortest
    prefix that its prompt cache is known to keep, `shared_tokens` the shortest for which siblings
    wait until the first of them has it there; 0: none."""

    name: str = ""
    window: int = 200_000
    max_output: int = 8_192
    price_in: int | None = None
    price_out: int | None = None
    price_cache_read: int | None = None
    price_cache_write: int | None = None
    resolved: str = ""
    preamble: int = 0
    cache_tokens: int = 0
    shared_tokens: int = 0
    price: Price | None = None

    def __post_init__(self) -> None:
        settle_price(self)

    def cost(self, input_tokens: int, output_tokens: int) -> int:
        """The most that so many tokens can cost, as if the whole prompt were written to a cache."""
        return most_cost(self, input_tokens, output_tokens)

    def cost_of(self, usage: Usage) -> int:
        """What a call has cost, its cached parts at their own prices."""
        return cost_of(self, usage)

    @property
    def priced(self) -> bool:
        return self.price_in is not None and self.price_out is not None


class ToolSchema(Value):
    """A tool as a model sees it. `strict`: providers that can hold calls to its schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool = False


class NoticeTexts(Value):
    """How a tool speaks of the children that it has started: templates by how they ended
    (`incomplete/turn_limit`, or `incomplete`), "" for any other end. `notice` is for the parent's
    mailbox, `announcement` for the channel (an empty one is not sent), `denied` for a child that
    calls a tool which it does not have, `refused` the same by tool ("": any other that its agent
    has), `elsewhere` for a call whose results are in another call's tool result. Braces:
    `notices.notice_fields`."""

    notice: dict[str, str] = field(default_factory=dict)
    announcement: dict[str, str] = field(default_factory=dict)
    denied: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    elsewhere: str = ""


class PermissionGrant(Value):
    """A rule by which a person has said yes once and for all, for calls made in one directory."""

    rule: str
    cwd: str = ""


class ToolRisk(Value):
    """What permissions have to know of a tool: what it can do to the world, and which argument says
    to what. `guarded` tools need a person's permission unless a rule allows them; others only where
    a rule says so. `changes_files`: in the run's directory, where others may do so at the same
    time."""

    risk: Literal["read", "write", "execute", "network", "spawn"] = "execute"
    subject: str = ""
    guarded: bool = False
    changes_files: bool = False


STORED_DEFINITION = {
    "agents": "crew",
    "reachable_tools": "reach",
    "submit_tools": "submits",
    "prompt_bytes": "size",
    "notices": "words",
    "tool_risks": "guards",
}
"""What fields of a definition are called in JSON."""


class Definition(Value, rename=STORED_DEFINITION):
    """The stored form of an agent: what a run needs to continue when the program that defined it is
    gone. `agents` are itself, the agents on its staff, and those on theirs; `reachable_tools` is
    every tool that any of them has: the most that its runs can ever hold. `prompt_bytes` is the
    number of bytes that its instructions and tool schemas add to a prompt. `notices` are those of
    its tools that have their own, `tool_risks` what permissions have to know of them."""

    name: str
    instructions: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    submit_tools: tuple[str, ...] = ()
    reachable_tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    prompt_bytes: int = 0
    notices: dict[str, NoticeTexts] = field(default_factory=dict)
    tool_risks: dict[str, ToolRisk] = field(default_factory=dict)


class Permissions(Value, rename={"may_spawn": "spawn"}):
    """What a run may do, and the most it may pass on. None in a request means: as much as the
    parent has.

    `tools`, `agents`, `models`, `read`, `write`, `hosts`, `env`, `announce` and `comms` are sets
    (sorted tuples); `deny` and `rules` only grow. `depth` and `fanout` are what is left below this
    run. `mode` (one of MODES, "" for no opinion) and `rules` say which calls are made, asked about,
    or refused. Only `capabilities.derive` makes one for a child."""

    tools: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    agents: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    announce: tuple[str, ...] | None = None
    comms: tuple[str, ...] | None = None
    depth: int | None = None
    fanout: int | None = None
    may_spawn: bool = True
    sandbox: int = 0
    expires: int | None = None
    mode: str = ""
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode and self.mode not in MODES:
            raise ValueError(f"Unknown permission mode {self.mode!r}. Known: {', '.join(MODES)}")


class Origin(Value):
    """Who asked, and where: captured when the root starts, never changed, used for every
    announcement."""

    channel: str = ""
    user: str = ""
    thread: str = ""


class Lost(Value):
    """A sub-agent that did not return, or returned only a part. `path` are the labels from the run
    that reports it down to the sub-agent. `state` is how it ended, "open" while it had not; `stop`
    why, in one word, and `by` who ended it."""

    path: tuple[str, ...]
    id: str
    state: Literal["incomplete", "failed", "timed_out", "cancelled", "interrupted", "open"]
    stop: str = ""
    by: Who = ""


class Helpers(Value):
    """Whose work a result rests on, as the runtime counted them: all runs started below the run, as
    far as their results came up. `n_lost` never returned, `n_partial` returned only a part; `lost`
    are the first of both."""

    n_started: int = 0
    n_lost: int = 0
    n_partial: int = 0
    lost: tuple[Lost, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.n_lost and not self.n_partial


class Ending(Value):
    """How a run ended, as the runtime saw it; never parsed from what a model wrote.

    `stop` says why, in one word of a closed list (docs/reference/states.md); `error` is for people.
    `text` is the result, or the last text when the run was stopped; when it `is_cut`, `artifacts`
    holds the whole. `data` is the typed result that was submitted, or, after an announcement, the
    text that it announces. `by` is who ended it, when it did not end by itself, and `reason` what
    was said to it; `along` is the run above it whose end it had to share. `helpers` counts the
    sub-agents whose work it rests on."""

    state: EndState
    stop: str
    text: str = ""
    error: str = ""
    data: Any = None
    artifacts: tuple[Artifact, ...] = ()
    is_cut: bool = False
    last_tool: str = ""
    work: BranchWork | None = None
    at: int = 0
    by: Who = ""
    along: str = ""
    helpers: Helpers = Helpers()
    reason: str = ""


class SpawnLimits(Value):
    """Numbers that can refuse a spawn; None does not. `tree` counts the live runs below the
    root."""

    depth: int | None = None
    children: int | None = None
    total: int | None = None
    per_call: int | None = None
    groups: int | None = None
    tree: int | None = None


class Limits(Value, rename={"spawn_limits": "limits"}):
    """The numbers of one runtime: its defaults and its outer limits."""

    spawn_limits: SpawnLimits = SpawnLimits(depth=8, children=10_000, per_call=10_000)
    calls_per_turn: int = 64
    max_turns: int = 1_000
    text_cap: int = 65_536
    mode: str = "manual"
    min_output: int = 256
    final_output: int = 1_024
    asking_output: int = 4_096
    usual_output: int = 32_768
    budget_output: int = 8_192
    cut_replies: int = 8
    rejected_results: int | None = 3
    compact_at: float = 0.8
    mail_per_sender: int = 64
    mail_cap: int = 32_768
    empty_replies: int = 2
    breaker_after: int = 5
    breaker_ms: int = 60_000
    wait_ms: int = 24 * 3_600_000
    max_deaths: int = 3
    max_restarts: int = 1_000
    max_age_ms: int = 7 * 24 * 3_600_000
    delivery_tries: int = 8
    delivery_base_ms: int = 1_000
    delivery_cap_ms: int = 300_000
    delivery_timeout_ms: int = 120_000
    salt: str = ""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"Unknown permission mode {self.mode!r}. Known: {', '.join(MODES)}")


class Mail(Value):
    """A message in a run's mailbox, delivered at its next turn boundary; `sender` is set by the
    runtime. `note` is what the runtime itself has to say about it, and a mail of the kind `note` is
    nothing else. `announced`: the channel that asked for the work got the same notice. `by_age`:
    news that is read together is in the order of the starts."""

    seq: int
    text: str
    sender: str = ""
    kind: Literal["mail", "news", "note"] = "mail"
    steer: bool = False
    note: str = ""
    announced: bool = False
    by_age: bool = False


DeliveryState = Literal["pending", "sent", "acked", "suppressed", "dead"]


class Delivery(Value):
    """An announcement on its way out. One key for one logical completion, whatever is tried.
    `discard` names the parent of a run that is to be deleted afterwards. With a `group` it is the
    summary of that group of the run's children, put into words when it is sent by the `tool` that
    started them. `note` is what the runtime itself adds to the text."""

    key: str
    run: str
    origin: Origin
    text: str
    root: str = ""
    path: str = ""
    discard: str = ""
    group: str = ""
    tool: str = ""
    note: str = ""
    state: DeliveryState = "pending"
    attempts: int = 0
    bounces: int = 0
    next_at: int = 0
    error: str = ""
