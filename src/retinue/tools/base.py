"""The port to a tool. A tool returns a text, or orders for the machine; it never reaches the engine itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from retinue.core.effects import ChildOutcome
from retinue.core.state import Run
from retinue.core.text import run_id
from retinue.core.values import Order, Orders, Restart, Spec, ToolSchema, Value


class Answer(Value):
    """A text for the model. `error` marks it as a failure that the model can act on."""

    text: str
    error: bool = False


class Submission(Value):
    """The run's result, handed in through a submit tool."""

    text: str
    ok: bool = True
    data: Any = None


class Ask(Value):
    """The tool cannot finish without an answer from outside."""

    question: str


Returned = Answer | Orders | Submission | Ask


class Named(Protocol):
    """An agent, as far as a tool has to know it."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what a tool may know of it. `key` names this call for ever; `again` says that an earlier process
    may have started it."""

    spec: Spec
    run: Run
    call_id: str
    index: int
    key: str
    at: int
    again: bool = False
    defaults: Callable[[str], dict[str, Any]] = field(default=lambda name: {})
    list_children: Callable[[], Awaitable[Sequence[tuple[Spec, Run]]]] | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def cwd(self) -> str:
        return self.spec.order.cwd

    def child_id(self, item: int = 0) -> str:
        """The id that item `item` of this call's children will have, for tools that must name it in their answer."""
        return run_id(self.at, self.id, self.run.turn, self.call_id, self.index, item, count=item)

    def order(self, agent: Named | str, task: str, **options: Any) -> Order:
        """An order for a child: the agent's own defaults, then `options` (the fields of `Order`)."""
        name = agent if isinstance(agent, str) else agent.name
        return Order(agent=name, task=task, **{**self.defaults(name), **options})

    def spawn(self, agent: Named | str, *tasks: str, answer: str | None = None, **options: Any) -> Orders:
        """Orders for one child a task. With `join="call"` (the default) the call waits for all of them."""
        return Orders(spawns=tuple(self.order(agent, t, **options) for t in tasks), answer=answer)

    async def children(self) -> Sequence[tuple[Spec, Run]]:
        """The caller's children, oldest first, live or ended."""
        return [] if self.list_children is None else await self.list_children()


class Tool(Protocol):
    """Contract: `run` returns and never reaches into the engine; an exception becomes an error result. `restart` says
    what may be done with a call that was under way when the process died; a tool that declares nothing is `unsafe`.
    `compose` puts the outcomes of joined children into words when their order says `compose=True`."""

    schema: ToolSchema
    restart: Restart

    async def run(self, caller: Caller, args: dict[str, Any]) -> Returned: ...

    def compose(self, outcomes: Sequence[ChildOutcome]) -> str: ...
