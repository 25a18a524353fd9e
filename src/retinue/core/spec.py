"""Requests and specs: what is asked of a run, the spec it becomes, and the other actions of
a tool."""

from __future__ import annotations

from typing import Literal, Self

import msgspec

from retinue.core.cache_figures import Tag
from retinue.core.model_settings import NO_SETTINGS, ModelSettings
from retinue.core.values import (
    Budget,
    JoinMode,
    Origin,
    Permissions,
    ReportMode,
    SpawnLimits,
    Value,
)
from retinue.formats.safe_text import one_line


class ForkPoint(Value):
    """A fork's prefix: the first `length` messages of another conversation, visible from
    `start`."""

    conversation: str
    length: int
    start: int = 0


class History(Value):
    """What a child knows before it starts: nothing, a summary, its parent's last n turns, all of
    its parent's conversation, or that of `run`, which has ended (`base`, of about `tokens`)."""

    kind: Literal["none", "summary", "last", "fork", "run"] = "none"
    text: str = ""
    n: int = 0
    run: str = ""
    base: ForkPoint | None = None
    tokens: int = 0

    @classmethod
    def none(cls) -> Self:
        """Nothing: a child starts with its task alone."""
        return cls()

    @classmethod
    def all(cls) -> Self:
        """The whole conversation of its parent."""
        return cls(kind="fork")

    @classmethod
    def last(cls, turns: int) -> Self:
        """The last turns of its parent's conversation."""
        return cls(kind="last", n=turns)

    @classmethod
    def summary(cls, text: str) -> Self:
        """A text before the task."""
        return cls(kind="summary", text=text)


class Lane(Value):
    """A named queue with a size, for one tree of runs (`scope`) or for all. `on_full` decides
    whether a spawn waits in it or is refused, which only a lane of one tree can do: only there it
    is known how many others want a slot. A lane of the scope `node` has the name of something that
    a run needs of its machine: the run waits in it until it is driven where that is."""

    name: str
    size: int
    on_full: Literal["queue", "refuse"] = "queue"
    scope: Literal["all", "tree", "node"] = "all"

    @property
    def is_shared(self) -> bool:
        return self.scope != "tree" and self.on_full == "queue"

    @property
    def is_need(self) -> bool:
        return self.scope == "node"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"Lane {self.name!r} must have a size of at least 1, not {self.size}.")


class InstructionFile(Value):
    """A file whose text is part of a run's instructions, and about how many tokens it costs in each
    turn."""

    path: str
    sha256: str
    bytes: int
    tokens: int


class Retry(Value):
    """How often a model call is tried, and how long between tries (full jitter below base * 2^n);
    then the run waits for its provider and tries once in a while, or fails."""

    attempts: int = 6
    base_ms: int = 500
    cap_ms: int = 60_000
    then: Literal["wait", "fail"] = "wait"

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base_ms < 0 or self.cap_ms < 0:
            raise ValueError("A retry policy needs at least one attempt and no negative times.")


DRAWN = "drawn"
"""A share by which nothing is set aside: the budget is a limit, and what is spent comes from the
parent's account."""


STORED_REQUEST = {
    "permissions": "access",
    "children_on_end": "orphans",
    "on_parent_end": "bond",
    "tell_parent": "news",
    "stay_open": "host",
    "result_order": "results",
    "format_results": "compose",
    "instruction_files": "loaded",
    "artifact_above_bytes": "keep_whole",
    "budget_share": "share",
    "budget_weight": "weight",
    "timeout_from": "clock",
    "on_unknown_tool": "unknown_tool",
    "history": "context",
}
"""What fields of a request are called in JSON: stores of all versions are read the same way."""


class RunRequest(Value, rename=STORED_REQUEST):
    """Everything that can be asked of one run. Every field has the default of a plain child.

    `children_on_end` says what happens to the run's children when it ends first, `on_parent_end`
    what happens to the run when its parent does ("" leaves that to the parent). `tell_parent`:
    whether a parent that was not waiting gets a notice by mail. A `group` of `group_size` whose
    members announce also announces a summary, after the last of them. `fail_fast`: the failure of
    one child of a call ends its siblings. `results` is the order of those of one call; `creation`
    is also that of news which is read together. `aggregate`: whether the results of children that
    are joined by turn are in the tool result of their own call, or those of all such calls of the
    turn together in that of the last. `while_waiting`: what becomes of a user's message to a parent
    that waits for this child. `mixed_submit`: whether a run that submits its result next to other
    calls is asked again, or has failed. `skip_token`: words that as a whole last text mean that
    there is nothing to tell. A reply of more than `keep_whole` bytes is also kept as an artifact.
    `questions`: whether a person is there to answer them ("" leaves that to the parent; for a root
    it means that tools may ask, and that what would need a permission is denied). `isolation`:
    whether it works in a copy of its own. `copy_of` is the commit that this is a copy of, when it
    was made for a writer among others: what it changes is merged into its parent's files when all
    of them are back. `writers`: whether those who change files at the same time get such copies
    where that is possible, or take turns; of a run that is there, whether it takes turns.
    `silence_ms`: a model or a tool that is silent for so long has stalled, and ends the run.
    `instruction_files` are those that its instructions were put together from. `remark` is what the
    reader of the result should know about the request. `needs` is what its machine must have:
    labels that workers offer, and directories. `dialect` is that of the tool that asks for
    it, and `level` how many runs of it lie between this one and the one that was given the dialect,
    this one included. `may_ask`: whether its tools may ask others; what needs a permission is asked
    for all the same. `settings`: how its model is asked. `meta` are words of the program's own,
    which its children inherit."""

    agent: str
    task: str
    label: str = ""
    join: JoinMode = "call"
    report: ReportMode = "text"
    report_prompt: str = ""
    must_submit: bool = False
    skip_token: str = ""
    history: History = History()
    permissions: Permissions = Permissions()
    instructions: str | None = None
    on_unknown_tool: Literal["error", "ignore"] = "error"
    budget: Budget = Budget()
    budget_share: str = ""
    budget_weight: int = 0
    timeout_ms: int | None = None
    timeout_from: Literal["start", "created"] = "start"
    lanes: tuple[Lane, ...] = ()
    limits: SpawnLimits = SpawnLimits()
    group: str = ""
    group_kind: str = ""
    group_size: int = 0
    model: str = ""
    cwd: str = ""
    retention: Literal["keep", "delete"] = "keep"
    children_on_end: Literal["cancel", "keep", "wait"] = "cancel"
    on_parent_end: Literal["", "cancel", "keep", "wait"] = ""
    tell_parent: bool = True
    stay_open: bool = False
    max_turns: int | None = None
    grace_turns: int = 0
    result_order: Literal["input", "completion", "creation"] = "input"
    format_results: bool = False
    fail_fast: bool = False
    aggregate: Literal["call", "turn"] = "call"
    while_waiting: Literal["keep", "refuse"] = "keep"
    mixed_submit: Literal["ask", "fail"] = "ask"
    artifact_above_bytes: int | None = None
    origin: Origin | None = None
    on_restart: Literal["resume", "fail"] = "resume"
    announce: bool = False
    retry: Retry = Retry()
    questions: Literal["", "ask", "deny"] = ""
    isolation: Literal["", "worktree"] = ""
    copy_of: str = ""
    writers: Literal["worktrees", "turns"] = "worktrees"
    silence_ms: int | None = None
    instruction_files: tuple[InstructionFile, ...] = ()
    remark: str = ""
    dialect: str = ""
    level: int = 0
    may_ask: bool = True
    settings: ModelSettings = NO_SETTINGS
    needs: tuple[str, ...] = ()
    meta: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def shown_group(self) -> str:
        """The group that people know it by: one that is summed up, not one that is only counted."""
        return self.group if self.group_size else ""

    @property
    def name(self) -> str:
        """The run's name, safe inside a line of other text: a label is what a model wrote."""
        return one_line(self.label or self.agent, 200)

    @property
    def granted(self) -> Budget:
        """What its parent has set aside for it."""
        return Budget() if self.budget_share == DRAWN else self.budget

    def __post_init__(self) -> None:
        if self.budget_weight < 0:
            raise ValueError(
                f"RunRequest.budget_weight must be 0 or more, not {self.budget_weight}."
            )


class ParentCall(Value):
    """Where in its parent a child hangs: the turn, the call in that turn, the item in that call;
    and the step of the call's function that asked for it, if one did."""

    turn: int
    index: int
    item: int
    call_id: str
    tool: str = ""
    step: str = ""


class RunSpec(
    Value,
    rename={"request": "order", "parent_call": "slot", "permissions": "capabilities"},
):
    """The immutable request for one run, with everything that was decided when it was taken on.
    `tag` is what its first prompt was expected to cost."""

    id: str
    request: RunRequest
    root: str
    parent: str = ""
    depth: int = 0
    path: str = "0"
    created_at: int = 0
    parent_call: ParentCall | None = None
    conversation: str = ""
    base: ForkPoint | None = None
    resumes: str = ""
    permissions: Permissions = Permissions()
    model: str = ""
    origin: Origin = Origin()
    tag: Tag | None = None
    meta: dict[str, str] = msgspec.field(default_factory=dict)


class SendMessage(Value):
    """A message that a run wants to send to another."""

    to: str
    text: str
    steer: bool = False


class WaitForRuns(Value):
    """Keep the call open until all of these children have ended, or the first of them, or the time
    is over; then run the tool again, with `then` as its arguments. A waiting run gets the same
    notices about them as without waiting."""

    runs: tuple[str, ...]
    timeout_ms: int
    first: bool = False
    then: str = "{}"


class Actions(Value):
    """What a tool wants the machine to do, all of it or nothing.

    `answer` is the call's result, unless children are joined or there is a `wait`: then the call
    stays open until they have ended. `posts` are texts for the channel that asked. `refusals` maps
    a limit's name to the words that the family uses for it ("" for any other limit); `{why}` in
    them is replaced by the numbers, `{json}` by the same inside a string of JSON. `pause` ends the
    turn and waits for news."""

    spawns: tuple[RunRequest, ...] = ()
    sends: tuple[SendMessage, ...] = ()
    cancels: tuple[str, ...] = ()
    posts: tuple[str, ...] = ()
    answer: str | None = None
    wait: WaitForRuns | None = None
    pause: bool = False
    refusals: dict[str, str] = msgspec.field(default_factory=dict)
