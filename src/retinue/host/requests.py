"""What a command and the host say to each other: JSON, one value a line, over a Unix socket.

The first line each way is a greeting with a version. Then the command makes numbered requests, and
the host answers each with any number of items and one last word; many can be under way on one
connection."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from retinue.core import values
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import Spec
from retinue.core.values import Value
from retinue.host.plan import Plan
from retinue.store.base import Row

VERSION = 1
LINE_LIMIT = 32 << 20


class Greeting(Value):
    """From the command: what it speaks, what the host has put into a file that only its own user
    can read (`key`), the part of its environment that models need, and all secrets in its
    environment (`hidden`), so that the host can keep them out of what it writes. Never stored,
    never logged."""

    hello: int = VERSION
    retinue: str = ""
    key: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    hidden: dict[str, str] = msgspec.field(default_factory=dict)


class Welcome(Value):
    """From the host."""

    hello: int = VERSION
    retinue: str = ""
    pid: int = 0
    store: str = ""
    error: str = ""


class RunTerms(Value):
    """What one run may do and spend: the parts of an order that a person sets. None and "" leave
    the agent's own. `families` are turned on or off by their names."""

    label: str = ""
    cwd: str = ""
    budget: values.Budget = values.Budget()
    on_limit: Literal["", "land", "ask", "stop"] = ""
    timeout_seconds: float | None = None
    max_turns: int | None = None
    mode: str = ""
    rules: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    questions: Literal["", "ask", "deny"] = ""
    announce: bool = False
    families: dict[str, bool] = msgspec.field(default_factory=dict)


class Want(Value, tag=str.lower, tag_field="do"):
    """Base of all requests."""


class Start(Want):
    """`env` are the values of the variables that the plan's servers name: used, and never
    stored."""

    plan: Plan
    task: str
    terms: RunTerms = RunTerms()
    env: dict[str, str] = msgspec.field(default_factory=dict)


class Resume(Want):
    run: str
    task: str = ""
    terms: RunTerms = RunTerms()
    plan: Plan | None = None


class Fork(Want):
    run: str
    task: str
    at: int | None = None
    terms: RunTerms = RunTerms()
    plan: Plan | None = None


class Watch(Want):
    """Everything about a run and those below it, from number `after` of the log on, until the run
    ends."""

    run: str
    after: int = 0
    deltas: bool = False


class Send(Want):
    run: str
    text: str
    steer: bool = False


class Cancel(Want):
    runs: tuple[str, ...]
    reason: str = ""


class Answer(Want):
    """An answer to the question named, or to the only one of a run and those below it."""

    run: str
    text: str = ""
    question: str = ""
    allow: bool | None = None
    always: bool = False
    by: str = ""


class Budget(Want):
    """Raise the limits of a run, or change what happens at them; with a `question`, only as the
    answer to that. Without any of it, only look."""

    run: str
    tokens: int = 0
    usd: float = 0.0
    turns: int = 0
    calls: int = 0
    seconds: float = 0.0
    on_limit: Literal["", "land", "ask", "stop"] = ""
    question: str = ""
    by: str = ""


class Questions(Want):
    """What waits for a person, in one tree or in all."""

    run: str = ""


class Explain(Want):
    """Whether a live run may call a tool, and which rule says so."""

    run: str
    tool: str
    args: str = "{}"


class Servers(Want):
    """How the MCP servers of a plan are; `approve` first takes what one of them offers now, or one
    tool of it."""

    plan: Plan
    env: dict[str, str] = msgspec.field(default_factory=dict)
    approve: str = ""
    tool: str = ""


class Wait(Want):
    runs: tuple[str, ...]
    timeout_seconds: float | None = None
    first: bool = False


class Forget(Want):
    run: str


class Redeliver(Want):
    key: str
    drop: bool = False


class Backup(Want):
    path: str


class Compact(Want):
    pass


class Status(Want):
    pass


class Stop(Want):
    pass


AnyWant = (
    Start
    | Resume
    | Fork
    | Watch
    | Send
    | Cancel
    | Answer
    | Budget
    | Questions
    | Explain
    | Servers
    | Wait
    | Forget
    | Redeliver
    | Backup
    | Compact
    | Status
    | Stop
)


class Ask(Value):
    """A numbered request."""

    id: int
    want: AnyWant


class Trouble(Value):
    """An error on its way back: the name of its class, its words, and the limit or kind that it
    carries."""

    kind: str
    message: str
    about: str = ""


class RunStarted(Value, tag="begun", tag_field="is"):
    """A run of the tree: sent before anything else about it."""

    spec: Spec


class Stepped(Value, tag="step", tag_field="is"):
    """A committed event."""

    seq: int
    entry: LogEntry


class MessageAdded(Value, tag="heard", tag_field="is"):
    """A message of a run's conversation, by its place in it."""

    run: str
    n: int
    message: Message


class RunChanged(Value, tag="stood", tag_field="is"):
    """How a run stands, told when its state has changed."""

    row: Row


class Said(Value, tag="said", tag_field="is"):
    """Text as it comes from a model; a preview, never recorded."""

    run: str
    attempt: int
    text: str


Item = RunStarted | Stepped | MessageAdded | RunChanged | Said


class Compacting(Value):
    """How far a compaction is, in pages."""

    done: int
    total: int


class Told(Value):
    """From the host, about request `id`: an item, how far it is, the last word, or an error."""

    id: int
    item: Item | None = None
    progress: Compacting | None = None
    done: Any = None
    is_last: bool = False
    error: Trouble | None = None


encode = msgspec.json.Encoder().encode
read_ask = msgspec.json.Decoder(Ask).decode
read_told = msgspec.json.Decoder(Told).decode
