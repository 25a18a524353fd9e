"""Runs tool functions that await children, answers and messages: their steps are recorded, and a
function continues when its results are there. What may happen is decided by `core.tool_steps`.

Nothing is made for a call that takes no step but one small object."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.effects import AnswerStep, CallTool
from retinue.core.events import ActionsReturned, CancelAsked, StepTaken
from retinue.core.ids import digest, moment, step_child_id
from retinue.core.spec import Actions, RunRequest, RunSpec
from retinue.core.state import CallStep, Ended, Run, calls_of
from retinue.errors import NotFound, Refused, RetinueError, WhyStale, WrongThread
from retinue.formats.fair_cut import clip
from retinue.tools.base import Delegation, resting

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine
    from retinue.runtime.tool_events import ToolEvents
    from retinue.runtime.tool_reader import ToolReader

log = logging.getLogger("retinue")
TIMED_OUT = "timed out"
NOT_ASKED_AGAIN = (
    "Tool %r was run again after a restart and did not ask for %s (%s) again. It is cancelled. "
    "Give steps that may change a key=."
)
OVER = (
    "The call of tool {tool!r} has ended and takes no more steps. Await what the tool starts "
    "before it returns."
)
ELSEWHERE = (
    "A tool takes its steps on the event loop of its runtime. Write the tool as `async def` and "
    "await them; a plain function can return Ask(...) or ctx.delegate(...)."
)
USED = (
    "This key was already used in this call, for {agent!r} with the task {task!r}. Use a new key."
)
NOT_WAITED_FOR = "Tool %r returned without waiting for %s (%s). It is cancelled."


class AwaitingTools:
    """The calls of this process whose function awaits an answer."""

    def __init__(self, engine: Engine, events: ToolEvents, reader: ToolReader) -> None:
        self.engine, self.events, self.reader = engine, events, reader
        self._asking: dict[tuple[str, int, int, str], asyncio.Future[str]] = {}

    def check_loop(self) -> None:
        """Steps are taken on the loop of the runtime."""
        task = self.engine.task
        if task is not None and asyncio._get_running_loop() is not task.get_loop():
            raise WrongThread(ELSEWHERE)

    def steps(self, effect: CallTool, run: Run) -> TakenSteps:
        return TakenSteps(self, effect, run)

    def answer(self, effect: AnswerStep) -> None:
        """The function that has asked continues. One that is gone finds the answer on record."""
        where = (effect.run, effect.turn, effect.index, effect.step)
        if (future := self._asking.get(where)) is not None and not future.done():
            future.set_result(effect.text)

    async def question_answer(self, effect: CallTool, step: str, put: StepTaken | None) -> str:
        """The answer to a question, which is put first unless it is on record."""
        where = (effect.run, effect.turn, effect.index, step)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asking[where] = future
        try:
            if put is not None:
                await self.record(effect.run, put)
            with resting():
                return await future
        finally:
            self._asking.pop(where, None)

    async def record(self, run: str, event: StepTaken) -> None:
        """The step is on record when this returns; it raises why it was refused."""
        why = await self.engine.record(run, event)
        refusal = why.refusal if isinstance(why, WhyStale) else None
        if refusal is not None:
            numbers = (refusal.allowed, refusal.wanted)
            raise Refused(refusal.limit, str(refusal), numbers)
        if why:
            raise RetinueError(why)


class TakenSteps:
    """The steps of one call (`tools.context_verbs.CallSteps`)."""

    __slots__ = (
        "_asked",
        "_effect",
        "_home",
        "_is_over",
        "_known",
        "_nth",
        "_started",
        "delegations",
    )

    def __init__(self, home: AwaitingTools, effect: CallTool, run: Run) -> None:
        self._home, self._effect = home, effect
        self._nth: Counter[str] | None = None
        self._started: dict[str, asyncio.Future[None]] = {}
        self._known: dict[str, CallStep] = {}
        self._is_over = False
        self._asked: dict[str, tuple[str, str]] = {}
        self.delegations: list[Delegation[Any]] = []
        calls = calls_of(run) if effect.again or effect.answer is not None else None
        if calls is not None and run.turn == effect.turn:
            self._known = {s.key: s for s in calls.steps if s.index == effect.index}

    def _check_open(self) -> None:
        self._home.check_loop()
        if self._is_over:
            raise RetinueError(OVER.format(tool=self._effect.call.name))

    def nth(self, name: str) -> str:
        self._nth = Counter() if self._nth is None else self._nth
        self._nth[name] += 1
        return digest(name, self._nth[name])

    async def children(
        self, step: str, requests: Sequence[RunRequest], names: Sequence[str], *, parks: bool
    ) -> list[str]:
        self._check_open()
        ids = [self._id(name) for name in names]
        for id, request in zip(ids, requests, strict=True):
            self._check_same(id, request)
        ids_known = {
            id
            for id, request in zip(ids, requests, strict=True)
            if await self._is_known(id, request.agent)
        } | self._started.keys()
        new = {id: n for n, id in enumerate(ids) if id not in ids_known}
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started |= dict.fromkeys(ids, recorded) | {
            id: self._started[id] for id in ids if id in self._started
        }
        try:
            if new:
                spawns = tuple(requests[n] for n in new.values())
                event = await self._step(step, Actions(spawns=spawns), parks=parks)
                event = replace(event, children=tuple(names[n] for n in new.values()))
                await self._home.record(self._effect.run, event)
            elif parks:
                await self._park(step, ids)
        except BaseException:
            for id in new:
                self._started.pop(id, None)
            raise
        finally:
            recorded.set_result(None)
        for id in ids:
            if id in self._started:
                await self._started[id]
        return ids

    async def _park(self, step: str, ids: Sequence[str]) -> None:
        """All of them are on record already: the function waits for those that are still open."""
        live = [id for id in ids if self._home.engine.trees.run(id) is not None]
        if live:
            event = self._event(step, run=live[0], parks=True)
            await self._home.record(self._effect.run, event)

    async def outcomes(self, runs: Sequence[str]) -> list[Any]:
        with resting():
            return [await self._home.reader.outcome(id) for id in runs]

    async def wait(self, step: str, run: str, longest: float | None) -> Any:
        self._check_open()
        result_known = self._known.get(step)
        if result_known is not None and result_known.text == TIMED_OUT:
            raise TimeoutError
        row = await self._home.engine.store.row(run)
        if row is None or row.spec.parent != self._effect.run:
            raise NotFound(f"{run!r} is not a child of this run.")
        if not isinstance(row.run.state, Ended):
            event = self._event(step, run=run, parks=True)
            await self._home.record(self._effect.run, event)
        try:
            with resting():
                async with asyncio.timeout(longest) as limit:
                    return await self._home.reader.outcome(run)
        except TimeoutError:
            if limit.expired():
                event = self._event(step, run=run, result=TIMED_OUT)
                await self._home.record(self._effect.run, event)
            raise

    async def ask(self, step: str, question: str, choices: tuple[str, ...]) -> str:
        self._check_open()
        result_known = self._known.get(step)
        if result_known is not None and result_known.text is not None:
            return result_known.text
        put = self._event(step, question=question, choices=choices, parks=True)
        return await self._home.question_answer(
            self._effect, step, put if result_known is None else None
        )

    async def act(self, step: str, actions: Actions, reason: str = "") -> None:
        self._check_open()
        if step in self._known:
            return
        if actions.cancels and await self._has_ended(actions.cancels[0]):
            return
        event = await self._step(step, actions, reason=reason)
        await self._home.record(self._effect.run, event)

    async def _has_ended(self, id: str) -> bool:
        row = await self._home.engine.store.row(id)
        return (
            row is not None
            and row.spec.parent == self._effect.run
            and isinstance(row.run.state, Ended)
        )

    def _id(self, name: str) -> str:
        e = self._effect
        at = moment(e.made_at, e.turn, e.index)
        return step_child_id(at, e.run, e.turn, e.call.id, e.index, name)

    def _check_same(self, id: str, request: RunRequest) -> None:
        """A key names one child in this run of the function."""
        first_request = self._asked.setdefault(id, (request.agent, request.task))
        if first_request != (request.agent, request.task):
            raise Refused(
                "key", USED.format(agent=first_request[0], task=clip(first_request[1], 80))
            )

    async def _is_known(self, id: str, agent: str) -> bool:
        """Whether an earlier run of this function has started it. The words of its task may have
        changed; its agent says of which type its result is."""
        row = await self._home.engine.store.row(id) if self._effect.again else None
        if row is not None and row.spec.request.agent != agent:
            of = row.spec.request
            raise Refused("key", USED.format(agent=of.agent, task=clip(of.task, 80)))
        return row is not None

    def _event(self, step: str, **fields: Any) -> StepTaken:
        e = self._effect
        fields.setdefault("asked_at", moment(e.made_at, e.turn, e.index))
        return StepTaken(
            turn=e.turn, index=e.index, call_id=e.call.id, name=e.call.name, step=step, **fields
        )

    async def _step(self, step: str, actions: Actions, **fields: Any) -> StepTaken:
        """Actions are checked and cleaned as if the tool had returned them."""
        event = await self._home.events.of(self._effect, actions)
        assert isinstance(event, ActionsReturned)
        return self._event(
            step, actions=event.actions, place=event.place, snapshot=event.snapshot, **fields
        )

    def close(self) -> None:
        """The function has returned. Children that it has not asked for in this run, though an
        earlier one had, are cancelled; the core cancels those that it has not waited for."""
        self._is_over = True
        if not self._started and not self._effect.again:
            return
        for spec in self._open_children():
            about = (self._effect.call.name, spec.request.name, spec.id)
            if spec.id not in self._started:
                log.warning(NOT_ASKED_AGAIN, *about)
                reason = f"{self._effect.call.name} did not ask for it again after a restart"
                end = CancelAsked(by=self._effect.run, reason=reason, who="parent")
                self._home.engine.post(spec.id, end)
            elif spec.request.join == "step":
                log.warning(NOT_WAITED_FOR, *about)

    def _open_children(self) -> list[RunSpec]:
        e, tree = self._effect, self._home.engine.trees.of(self._effect.run)
        if tree is None:
            return []
        specs = [tree.specs[id] for id in tree.children.get(e.run, ()) if id in tree.runs]
        here = [(s, s.parent_call) for s in specs]
        return [
            s
            for s, at in here
            if at is not None and at.step and (at.turn, at.index) == (e.turn, e.index)
        ]
