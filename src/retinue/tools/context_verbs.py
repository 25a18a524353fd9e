"""What a tool's function can do through its context: start children, ask, send messages. Each
awaited verb is a step on record.

A step is found by what it asks, and by which time that is asked in this call; `key=` names one by
hand. So a function that is run again after a crash gets back what it got before, also when its
steps come in another order or there are more of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, Unpack, overload

from msgspec.structs import replace

from retinue.core.spec import Actions, Lane, RunRequest, SendMessage
from retinue.core.type_parameters import D_co, RunId, T, T_co
from retinue.errors import ConfigError, Refused, RetinueError
from retinue.tools.checked_verbs import checks_arguments
from retinue.tools.option_values import shown
from retinue.tools.outcome_list import Outcomes
from retinue.tools.start_options import ChildOptions, Seconds, child_fields, name_of, seconds

if TYPE_CHECKING:
    from retinue.agent import Agent
    from retinue.core.values import Origin
    from retinue.outcomes import Outcome
    from retinue.tools.base import Named, RuntimeReader

NOT_RETURNED = (
    "Tool {tool!r} made a delegation and did not return it. Write: return ctx.delegate(...)."
)
NOWHERE = (
    "announce=True sends the end of a run to the channel of its origin, and there is none. Write "
    'origin=Origin(channel="...") when the first run is started. Nothing was started.'
)
NOT_ON_STAFF = (
    "Tool {tool!r} starts {agent!r}, which is not on the staff of {lead!r}. "
    "Write Agent({quoted}, ..., staff=[{agent}])."
)


class Delegation(Generic[T_co]):
    """Children to whom a tool hands its call over. Made by `ctx.delegate`, and must be returned."""

    __slots__ = ("actions",)

    def __init__(self, actions: Actions) -> None:
        self.actions = actions


class CallSteps(Protocol):
    """The steps of one call, as the runtime takes them. `delegations` are those that its function
    has made."""

    delegations: list[Delegation[Any]]

    def nth(self, name: str) -> str:
        """The name with which time it is asked for in this run of the function."""

    async def children(
        self, step: str, requests: Sequence[RunRequest], names: Sequence[str], *, parks: bool
    ) -> list[str]:
        """Their ids, once they are on record; those who were before are not started again."""

    async def outcomes(self, runs: Sequence[str]) -> list[Any]:
        """How they ended, when all of them have."""

    async def wait(self, step: str, run: str, longest: float | None) -> Any:
        """How a child ended, when it has."""

    async def ask(self, step: str, question: str, choices: tuple[str, ...]) -> str:
        """The answer."""

    def close(self) -> None:
        """The function has returned: children that are no longer wanted are cancelled, and
        named."""

    async def act(self, step: str, actions: Actions, reason: str = "") -> None:
        """Messages and cancels go out, once."""


@checks_arguments
class ContextVerbs(Generic[D_co]):
    """The verbs of `Context`."""

    __slots__ = ()

    if TYPE_CHECKING:
        steps: CallSteps | None
        reader: RuntimeReader | None
        made_at: int
        called_at: int
        tool: str

        @property
        def agent(self) -> str: ...
        @property
        def origin(self) -> Origin: ...
        def request(self, agent: Named | str, task: str, **options: Any) -> RunRequest: ...

    @property
    def now(self) -> datetime:
        """When the call was made; the same in every try."""
        return datetime.fromtimestamp((self.made_at or self.called_at) / 1000, UTC)

    async def run(
        self, agent: Agent[T, D_co], task: str, **options: Unpack[ChildOptions]
    ) -> Outcome[T]:
        """Start a child and wait for it."""
        outcome: Outcome[T] = (await self._gather("run", agent, (task,), None, options))[0]
        return outcome

    async def gather(
        self,
        agent: Agent[T, D_co],
        *tasks: str,
        at_once: int | None = None,
        **options: Unpack[ChildOptions],
    ) -> Outcomes[T]:
        """Start a child for each task and wait for all of them; outcomes are in the order of the
        tasks. At most `at_once` of them work at a time."""
        return Outcomes(await self._gather("gather", agent, tasks, at_once, options))

    async def spawn(
        self, agent: Agent[T, D_co], task: str, **options: Unpack[ChildOptions]
    ) -> RunId[T]:
        """Start a child in the background. Its end reaches the model of this run as a message."""
        requests, names = self._requests("spawn", agent, (task,), None, options, "none")
        return RunId((await self._steps.children(names[0], requests, names, parks=False))[0])

    @overload
    async def wait(self, run: RunId[T], *, timeout: Seconds | None = None) -> Outcome[T]: ...
    @overload
    async def wait(self, run: str, *, timeout: Seconds | None = None) -> Outcome[Any]: ...
    async def wait(self, run: str, *, timeout: Seconds | None = None) -> Outcome[Any]:
        """Wait for a child that `spawn` started. Raises `TimeoutError`; the child continues."""
        step = self._steps.nth(name_of("wait", run))
        longest = None if timeout is None else seconds(timeout)
        outcome: Outcome[Any] = await self._steps.wait(step, run, longest)
        return outcome

    def delegate(
        self,
        agent: Agent[T, D_co],
        *tasks: str,
        at_once: int | None = None,
        **options: Unpack[ChildOptions],
    ) -> Delegation[T]:
        """Hand the call over: `return ctx.delegate(reader, *files)`. The model reads what the
        children report; the function is over and never run again."""
        requests, _ = self._requests("delegate", agent, tasks, at_once, options, "call")
        delegation = Delegation[T](Actions(spawns=tuple(requests)))
        self._steps.delegations.append(delegation)
        return delegation

    async def ask(self, question: str, *, choices: Sequence[str] = ()) -> str:
        """Put a question to a person and wait for the answer, through restarts if need be. With
        `choices` the answer is one of them; another text is refused."""
        if not question.strip():
            raise ConfigError("ask() needs a question, not an empty text.")
        step = self._steps.nth(name_of("ask", question, list(choices)))
        return await self._steps.ask(step, question, tuple(choices))

    async def send(self, run: str, text: str) -> None:
        """Put a message into the mailbox of a child, or of the parent."""
        step = self._steps.nth(name_of("send", run, text))
        await self._steps.act(step, Actions(sends=(SendMessage(to=run, text=text),)))

    async def cancel(self, run: str, reason: str = "") -> None:
        """End a child and everything below it. One that has ended stays as it is."""
        step = self._steps.nth(name_of("cancel", run))
        await self._steps.act(step, Actions(cancels=(run,)), reason)

    @property
    def _steps(self) -> CallSteps:
        if self.steps is None:
            raise RetinueError("A tool can take steps only when a run has called it.")
        return self.steps

    async def _gather(
        self, verb: str, agent: Named, tasks: Sequence[str], at_once: int | None, options: Any
    ) -> list[Any]:
        requests, names = self._requests(verb, agent, tasks, at_once, options, "step")
        if not requests:
            return []
        step = names[0] if len(names) == 1 else name_of(*names)
        runs = await self._steps.children(step, requests, names, parks=True)
        return await self._steps.outcomes(runs)

    def _requests(
        self,
        verb: str,
        agent: Named,
        tasks: Sequence[str],
        at_once: int | None,
        options: Any,
        join: str,
    ) -> tuple[list[RunRequest], list[str]]:
        """One request for each task, and the name of each within the call."""
        self._check_staff(verb, agent)
        check_at_once(f"{verb}()", at_once)
        fields = child_fields(verb, options)
        model = fields.get("model", "")
        if model and self.reader is not None and (why := self.reader.find_model(model)):
            raise ConfigError(f"Tool {self.tool!r}: {why}")
        if fields.get("announce") and not (fields.get("origin") or self.origin).channel:
            raise Refused("channel", NOWHERE)
        kind, narrow = (agent.name, fields), tuple[Lane, ...]()
        if at_once is not None:
            name = self._steps.nth(name_of("at_once", at_once, *kind))
            narrow = (Lane(name=f"at_once/{name[:16]}", size=at_once, scope="tree"),)
        # The outcome of an awaited child is its report.
        silence = {"tell_parent": False} if join == "step" else {}
        requests, names = [], []
        for n, task in enumerate(tasks):
            request = self.request(agent, task, **{**fields, **silence, "join": join})
            requests.append(replace(request, lanes=(*request.lanes, *narrow)))
            if key := options.get("key", ""):
                names.append(name_of("key", key, n))
            else:
                names.append(self._steps.nth(name_of(*kind, task, join == "step")))
        return requests, names

    def _check_staff(self, verb: str, agent: Named) -> None:
        if not isinstance(getattr(agent, "name", None), str):
            raise ConfigError(f"{verb}(): agent is an Agent, not {shown(agent)}.", field="agent")
        reachable = None if self.reader is None else self.reader.reachable_agents(self.agent)
        if reachable is not None and agent.name not in reachable:
            named = {"agent": agent.name, "lead": self.agent, "quoted": f'"{self.agent}"'}
            raise ConfigError(NOT_ON_STAFF.format(tool=self.tool, **named))


def check_at_once(verb: str, at_once: int | None) -> None:
    """At least one works at a time."""
    if at_once is not None and at_once < 1:
        raise ConfigError(f"{verb} needs at_once=1 or more, not {at_once}.", field="at_once")


def check_delegated(steps: CallSteps | None, tool: str, returned: object) -> None:
    """A delegation that is not what the function returned would start no child."""
    if steps is not None and any(one is not returned for one in steps.delegations):
        raise ConfigError(NOT_RETURNED.format(tool=tool))
