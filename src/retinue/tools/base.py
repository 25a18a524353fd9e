"""The port to a tool. A tool returns a text, or actions for the machine; it never reaches the
engine itself."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Literal, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.answer_fit import fit
from retinue.core.answer_layout import Laid
from retinue.core.capabilities import narrow
from retinue.core.effects import ChildOutcome
from retinue.core.ids import child_id, moment
from retinue.core.messages import Image, Message, ToolCall
from retinue.core.permissions import Ruling
from retinue.core.redaction import Redactor
from retinue.core.spec import Actions, RunRequest, RunSpec
from retinue.core.state import Run, RunRecord, n_items
from retinue.core.type_parameters import D_co, D_contra, RunId, T
from retinue.core.values import Origin, Permissions, Restart, ToolSchema, Value
from retinue.errors import RetinueError
from retinue.sandbox.open_directories import OpenDirectory, real_paths
from retinue.sandbox.private_paths import NOTHING, Private
from retinue.tools.call_preview import CallPreview as CallPreview
from retinue.tools.context_verbs import CallSteps as CallSteps
from retinue.tools.context_verbs import ContextVerbs
from retinue.tools.context_verbs import Delegation as Delegation
from retinue.tools.own_time import resting as resting

NOTHING_SECRET = Redactor()


class ToolResult(Value):
    """A text for the model. `error` marks it as a failure that the model can act on."""

    text: str
    error: bool = False
    images: tuple[Image, ...] = ()


class Submission(Value):
    """The run's result, submitted through a submit tool."""

    text: str
    ok: bool = True
    data: Any = None


class Ask(Value):
    """Returned by a plain function: put a question to a person. The answer is the result of the
    call; with `rerun` the tool is run again, and finds it in `ctx.answer`. With `choices` the
    answer is one of them; another text is refused."""

    question: str
    choices: tuple[str, ...] = ()
    rerun: bool = False


Returned = ToolResult | Actions | Submission | Ask
Risk = Literal["read", "write", "execute", "network"]


class Named(Protocol):
    """An agent, as far as a tool has to know it."""

    @property
    def name(self) -> str: ...


class RuntimeReader(Protocol):
    """What a tool may read of the runtime."""

    def defaults(self, agent: str) -> dict[str, Any]:
        """The default fields of requests for an agent."""

    def tools(self, agent: str) -> Mapping[str, Tool[Any]]:
        """The tools of an agent by name."""

    def models(self) -> Sequence[str]:
        """The models that are known."""

    def resolved(self, model: str) -> str:
        """The model that a known name resolves to: `provider:model` where a catalog has it."""

    def find_model(self, model: str) -> str:
        """Look up a model that no agent names, as `provider:model`: from then on it is known.
        Returns why there is none, or ""."""

    def reachable_agents(self, agent: str) -> Sequence[str]:
        """The agents that runs of an agent may start, by name."""

    def n_calls(self, root: str) -> int:
        """How many calls are under way in a tree, without those of tools that start children."""

    async def children(self, run: str) -> Sequence[RunRecord]:
        """The children of a run, oldest first, live or ended."""

    async def staff(self, spec: RunSpec) -> Sequence[RunRecord]:
        """The children of a run, and those of earlier runs of its conversation, oldest first."""

    async def started(self, since: int) -> Sequence[RunRecord]:
        """Every run that another has started at that time or later, oldest first."""

    async def messages(self, spec: RunSpec, run: Run) -> Sequence[Message]:
        """The conversation of a run."""


class Context(Struct, ContextVerbs[D_co], frozen=True):
    """Who calls, and what a tool may know of it. `deps` is what the runtime was given for its
    tools: `Retinue(deps=...)`. `key` is the permanent name of this call; `again` says that an
    earlier process may have started it; `is_woken`, that it had asked to wait and the wait is over.
    `ended_children` are the outcomes of children it waited for that are not kept, so that
    `children` no longer shows them. `root` is the directory in which the run works, `permissions`
    what it may do at this moment, `rules_above` the rules of the run and its ancestors, each with
    the directory in which they are meant. `rule` says what holds for another call of the same run,
    for tools that are led on from what was permitted to something else. `redactor` knows the
    runtime's secrets: a tool that cuts what it shows cleans it first, because half a secret is no
    longer found. `private` is what no tool may show or touch. `holding` opens the run's
    directories; outside of a runtime there is none. `room` are the characters that an answer may
    have; `keep` puts a text away that is cut in it. `made_at` is when the model made the call, the
    same in every try; `answer` what was answered to `Ask(rerun=True)`; `steps` puts those of its
    function on record; `threads` is where plain functions work."""

    spec: RunSpec
    row: Run
    call_id: str
    index: int
    key: str
    called_at: int
    again: bool = False
    is_woken: bool = False
    ended_children: Sequence[ChildOutcome] = ()
    reader: RuntimeReader | None = None
    root: str = ""
    permissions: Permissions = Permissions()
    rules_above: Sequence[tuple[str, tuple[str, ...]]] = ()
    rule: Callable[[ToolCall], Ruling] | None = None
    redactor: Redactor = NOTHING_SECRET
    holding: OpenDirectory | None = None
    private: Private = NOTHING
    room: int = 65_536
    keep: Callable[[str], Awaitable[str]] | None = None
    deps: D_co = cast(D_co, None)
    tool: str = ""
    made_at: int = 0
    answer: str | None = None
    steps: CallSteps | None = None
    threads: Executor | None = None

    @property
    def run_id(self) -> RunId[Any]:
        return RunId(self.spec.id)

    @property
    def meta(self) -> Mapping[str, str]:
        """What was said of the run when its tree was started, in the program's own words."""
        return self.spec.meta

    @property
    def root_id(self) -> str:
        return self.spec.root

    @property
    def agent(self) -> str:
        return self.spec.request.agent

    @property
    def label(self) -> str:
        return self.spec.request.label

    @property
    def turn(self) -> int:
        return self.row.turn

    @property
    def origin(self) -> Origin:
        return self.spec.origin

    @property
    def cwd(self) -> str:
        """Where it works, as far as it is known."""
        return self.root or self.spec.request.cwd

    @contextmanager
    def opening(self) -> Iterator[tuple[Context[D_co], OpenDirectory]]:
        """The context with real directories, and what opens them: the tree's holding, or one for
        this call alone."""
        if self.holding is not None:
            yield self, self.holding
            return
        root = os.path.realpath(self.root) if os.path.isabs(self.root) else ""
        permissions = real_paths(self.permissions)
        with OpenDirectory(
            (root, *(permissions.read or ()), *(permissions.write or ()))
        ) as holding:
            yield replace(self, root=root, permissions=permissions), holding

    async def fit(self, laid: Laid) -> str:
        """A tool result that fits the available room: its long texts are cut where they have to be,
        its frame never."""
        return await fit(laid, self.room, self.keep, self.redactor.clean)

    def child_id(self, item: int = 0) -> str:
        """The id that item `item` of this call's children will have, for tools that must name it in
        their answer."""
        turn, index = self.row.turn, self.index
        at = moment(self.called_at, turn, index)
        item += n_items(self.row, index)
        return child_id(at, self.run_id, turn, self.call_id, index, item)

    def request(self, agent: Named | str, task: str, **options: Any) -> RunRequest:
        """A request for a child: the agent's own defaults, then `options` (the fields of
        `RunRequest`)."""
        name = agent if isinstance(agent, str) else agent.name
        defaults = {} if self.reader is None else self.reader.defaults(name)
        if "permissions" in defaults and "permissions" in options:
            options["permissions"] = narrow(defaults["permissions"], options["permissions"])
        return RunRequest(agent=name, task=task, **{**defaults, **options})

    def spawn_actions(
        self, agent: Named | str, *tasks: str, answer: str | None = None, **options: Any
    ) -> Actions:
        """Actions that start one child per task. With `join="call"` (the default) the call waits
        for all of them."""
        return Actions(
            spawns=tuple(self.request(agent, t, **options) for t in tasks), answer=answer
        )

    async def children(self) -> Sequence[RunRecord]:
        """The calling run's children, oldest first, open or ended."""
        return [] if self.reader is None else await self.reader.staff(self.spec)


class Tool(Protocol[D_contra]):
    """Contract: `run` returns and never reaches into the engine; an exception becomes an error
    result. `restart` says what may be done with a call that was under way when the process died; a
    tool that declares nothing is `unsafe`. `format_results` puts the outcomes of joined children
    into words when their request says `format_results=True`; what it lays out instead of writing it
    is cut fairly where it is too long.

    A tool may also have: `risk`, what it can do to the world (undeclared is `execute`); `subject`,
    the argument that rules about it look at; `summary(args)`, one line on what a call is about;
    `words`, the texts about the ends of its children; `summarize(group, outcomes)`, the summary of
    a group; `invalid`, how its complaint about malformed arguments begins; `refuses(context)`, why
    no call of that run is taken, whatever its arguments, or ""; `approve`, and then
    `needs_approval(call)`, whether a person is asked before a call; `look_ahead(context, args)`,
    what it would do (`call_preview.CallPreview`), without doing it; `is_lent`, False if the
    children of a family do not get it; `never_waits`, and then
    `run_now(context, args)`, the same as `run` without a coroutine, which makes its context only if
    it needs one."""

    schema: ToolSchema

    @property
    def restart(self) -> Restart: ...

    async def run(self, context: Context[D_contra], args: dict[str, Any]) -> Returned: ...

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str | Laid: ...


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise RetinueError("A tool declared `quick` must not await anything.")
