"""A context for unit tests of a tool: dependencies, children's results and answers are given, and
nothing runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, overload

from retinue.core.ids import digest
from retinue.core.messages import ToolCall
from retinue.core.spec import Actions, RunRequest, RunSpec
from retinue.core.state import OpenCalls, Run, Working
from retinue.core.type_parameters import D, RunId
from retinue.core.values import Usage
from retinue.outcomes import Outcome
from retinue.tools.base import Context, Delegation
from retinue.tools.function.returned import as_returned
from retinue.tools.option_values import check_values

MADE_AT = 1_800_000_000_000
"""When the call was made, in milliseconds: a day in 2027."""


@overload
def fake_context(
    *,
    results: Mapping[str, Sequence[object]] | None = None,
    answers: Sequence[str] = (),
    meta: Mapping[str, str] | None = None,
) -> Context[None]: ...
@overload
def fake_context(
    *,
    deps: D,
    results: Mapping[str, Sequence[object]] | None = None,
    answers: Sequence[str] = (),
    meta: Mapping[str, str] | None = None,
) -> Context[D]: ...
def fake_context(
    *,
    deps: Any = None,
    results: Mapping[str, Sequence[object]] | None = None,
    answers: Sequence[str] = (),
    meta: Mapping[str, str] | None = None,
) -> Context[Any]:
    """A context for `my_tool(fake_context(...), ...)`. `results` are those of children by their
    agent, in the order in which they are started: a value is the output of one that completed, an
    exception ends one as failed, an `Outcome` is taken as it is. `answers` are those to
    `ctx.ask`."""
    replies = {"results": results, "answers": answers, "meta": meta}
    check_values("fake_context()", replies, _Given)
    spec = RunSpec(
        id="fake-run",
        root="fake-run",
        request=RunRequest(agent="tester", task="Test."),
        created_at=MADE_AT,
        meta=dict(meta or {}),
    )
    calls = OpenCalls(message=1, count=1, open=1, tools=1, at=MADE_AT)
    return Context(
        spec=spec,
        row=Run(id=spec.id, state=Working(calls=calls), turn=1),
        call_id="call",
        index=0,
        key=f"{spec.id}/1/0",
        called_at=MADE_AT,
        made_at=MADE_AT,
        deps=deps,
        tool="tool",
        steps=FakeSteps(results or {}, answers),
    )


class _Given(TypedDict):
    results: Mapping[str, Sequence[Any]] | None
    answers: Sequence[str]
    meta: Mapping[str, str] | None


class FakeSteps:
    """The steps of a call that no run has made (`tools.context_verbs.CallSteps`). `started` are the
    children that were asked for, `actions` the messages and cancels."""

    def __init__(self, results: Mapping[str, Sequence[object]], answers: Sequence[str]) -> None:
        self.delegations: list[Delegation[Any]] = []
        self.started: dict[str, RunRequest] = {}
        self.actions: list[Actions] = []
        self._results = {agent: list(values) for agent, values in results.items()}
        self._answers = list(answers)
        self._times: Counter[str] = Counter()
        self._outcomes: dict[str, Outcome[Any]] = {}

    def nth(self, name: str) -> str:
        self._times[name] += 1
        return digest(name, self._times[name])

    async def children(
        self, step: str, requests: Sequence[RunRequest], names: Sequence[str], *, parks: bool
    ) -> list[str]:
        ids = [f"child-{name[:12]}" for name in names]
        for id, request in zip(ids, requests, strict=True):
            if id not in self.started:
                self.started[id] = request
                self._outcomes[id] = self._next(id, request)
        return ids

    def _next(self, id: str, request: RunRequest) -> Outcome[Any]:
        values = self._results.get(request.agent, [])
        if not values:
            raise AssertionError(
                f"fake_context() has no result for {request.agent!r} with the task "
                f"{request.task!r}. Write fake_context(results={{{request.agent!r}: [...]}})."
            )
        value = values.pop(0)
        return value if isinstance(value, Outcome) else fake_outcome(id, request, value)

    async def outcomes(self, runs: Sequence[str]) -> list[Any]:
        return [self._outcomes[run] for run in runs]

    async def wait(self, step: str, run: str, longest: float | None) -> Any:
        return self._outcomes[run]

    async def ask(self, step: str, question: str, choices: tuple[str, ...]) -> str:
        if not self._answers:
            raise AssertionError(
                f"fake_context() has no answer to {question!r}. Write fake_context(answers=[...])."
            )
        return self._answers.pop(0)

    async def act(self, step: str, actions: Actions, reason: str = "") -> None:
        self.actions.append(actions)

    def close(self) -> None:
        pass


def fake_outcome(id: str, request: RunRequest, value: object) -> Outcome[Any]:
    """How a child ended that returned this value, or failed with this exception."""
    is_failed = isinstance(value, BaseException)
    text = "" if is_failed else getattr(as_returned(request.agent, value), "text", "")
    return Outcome(
        id=RunId(id),
        agent=request.agent,
        state="failed" if is_failed else "completed",
        stop="error" if is_failed else "done",
        text=text,
        output=None if is_failed else value,
        error=str(value) if is_failed else "",
        artifacts=(),
        last_tool="",
        usage=Usage(),
        tree_tokens=0,
        tree_usd=0.0,
        tree_turns=0,
        tree_calls=0,
        model_requested="",
        model_resolved="",
        model_used="",
        children=(),
        created_ms=MADE_AT,
        started_ms=MADE_AT,
        ended_ms=MADE_AT,
    )


def submit(result: object, /) -> ToolCall:
    """Submit a typed result, in a script for an agent with `output=`."""
    text = getattr(as_returned("submit", [result]), "text", "")
    return ToolCall(id="", name="submit_result", arguments_json=f'{{"result":{text[1:-1]}}}')
