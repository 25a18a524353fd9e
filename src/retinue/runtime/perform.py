"""One coroutine for each effect; whatever comes of it goes back to the engine as an event. Exceptions become events."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, assert_never, cast

from msgspec.structs import replace

from retinue.channels.base import Channel
from retinue.core.calls import plain_result
from retinue.core.effects import Abort, CallModel, CallTool, ChildOutcome, Compose, Deliver, Effect, Transmit
from retinue.core.events import (
    Asked,
    Composed,
    ModelFailed,
    Ordered,
    Replied,
    RunEvent,
    Submitted,
    ToolReturned,
)
from retinue.core.history import History
from retinue.core.orders import Order, Orders, Spec
from retinue.core.policy import allows
from retinue.core.state import Run
from retinue.core.text import clean, clip
from retinue.core.values import Call, Reply, Restart, ToolSchema, Work, checked
from retinue.errors import ModelError, ModelUnavailable, RetinueError
from retinue.models.base import Model, Request
from retinue.runtime.conversations import Conversations
from retinue.runtime.outbox import Outbox
from retinue.runtime.window import Window
from retinue.sandbox.worktree import Changes
from retinue.tools.base import Answer, Ask, Caller, Returned, Submission, Tool

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine

log = logging.getLogger("retinue")
T = TypeVar("T")


class Tools(Protocol):
    """The toolbox, as far as the runtime has to know it."""

    def __contains__(self, agent: object) -> bool: ...

    def schemas(self, agent: str) -> tuple[ToolSchema, ...]: ...

    def restart_class(self, agent: str, name: str) -> Restart: ...

    def run(self, agent: str, caller: Caller, call: Call) -> Coroutine[Any, Any, Returned]: ...

    def compose(self, agent: str, name: str, outcomes: Sequence[ChildOutcome]) -> str: ...

    def is_quick(self, agent: str, name: str) -> bool: ...

    def summarize(self, agent: str, name: str, group: str, outcomes: Sequence[ChildOutcome]) -> str | None: ...

    def defaults(self, agent: str) -> dict[str, Any]: ...

    def tools(self, agent: str) -> Mapping[str, Tool]: ...

    def place(self, spec: Spec, home: str) -> Coroutine[Any, Any, str]: ...

    def work(self, spec: Spec) -> Coroutine[Any, Any, Changes | None]: ...

    def over(self, run: str, is_used: Callable[[str], bool]) -> Awaitable[None] | None: ...


class Performer:
    """Tasks under way and the messages they need, by run."""

    def __init__(
        self,
        engine: Engine,
        tools: Tools,
        models: Mapping[str, Model],
        channels: Mapping[str, Channel],
        home: str = "",
    ) -> None:
        self._engine, self._tools, self._models, self._home = engine, tools, models, home
        self._tasks: dict[str, dict[int, asyncio.Task[None]]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.conversations = Conversations(engine.store)
        self._parked: list[CallModel | CallTool | Compose] = []
        self._offered: dict[tuple[str, Any], tuple[ToolSchema, ...]] = {}
        self._window = Window(engine, tools)
        self.outbox = Outbox(engine, tools, channels)

    def over(self, id: str) -> None:
        """The run has ended: nothing of it is under way, and its messages are in the store."""
        self.conversations.drop(id)
        self._stop(id)
        if (rest := self._tools.over(id, self._engine.is_used)) is not None:
            self.later(rest)

    # effects

    def perform(self, effect: Effect) -> None:
        """Begin it. The run is as the committed step left it; by the time its task starts it may have moved on."""
        roster = self._engine.roster
        match effect:
            case CallModel() | CallTool():
                spec, run = roster.specs.get(effect.run), roster.runs.get(effect.run)
                if spec is None or run is None:
                    return
                if spec.model not in self._models or spec.order.agent not in self._tools:
                    self._parked.append(effect)
                elif isinstance(effect, CallModel):
                    self._start(effect.run, -1, self._call_model(effect, spec, run))
                elif not spec.order.isolation and self._tools.is_quick(spec.order.agent, effect.call.name):
                    self._call_quick(effect, spec, run)
                else:
                    self._start(effect.run, effect.index, self._call_tool(effect, spec, run))
            case Compose():
                spec = roster.specs.get(effect.run)
                if spec is not None and spec.order.agent not in self._tools:
                    self._parked.append(effect)
                elif spec is not None:
                    self.later(self._compose(effect, spec))
            case Abort():
                self._stop(effect.run)
            case Deliver():
                self.deliver_at(effect.key, effect.at)
            case Transmit():
                self.later(self.outbox.transmit(effect))
            case _:
                assert_never(effect)

    def unpark(self) -> None:
        """An agent or a model became known: what waited for it is begun, or waits on."""
        parked, self._parked = self._parked, []
        for effect in parked:
            run = self._engine.roster.runs.get(effect.run)
            at = effect.attempt if isinstance(effect, CallModel) else effect.turn
            if run is not None and at == (run.attempt if isinstance(effect, CallModel) else run.turn):
                self.perform(effect)

    def tasks(self) -> list[asyncio.Task[None]]:
        return [t for of_run in self._tasks.values() for t in of_run.values()] + list(self._sending)

    def _start(self, run: str, slot: int, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.setdefault(run, {})[slot] = task

    def _done(self, run: str, slot: int) -> None:
        mine = self._tasks.get(run)
        if mine is not None and mine.get(slot) is asyncio.current_task():
            del mine[slot]
            if not mine:
                del self._tasks[run]

    def _stop(self, run: str) -> None:
        for task in self._tasks.pop(run, {}).values():
            if task is not asyncio.current_task():
                task.cancel()

    def _answer(self, run: str, slot: int, event: RunEvent) -> None:
        self._done(run, slot)
        self._engine.post(run, event)

    async def _call_model(self, effect: CallModel, spec: Spec, run: Run) -> None:
        engine, attempt = self._engine, effect.attempt
        event: RunEvent
        try:
            reply = await self._ask(effect, spec, run)
            spilled = await self._spill(reply.message.text, spec.order.keep_whole)
            work = None if reply.message.calls else await self._work(spec)
            event = Replied(attempt=attempt, reply=reply, spilled=spilled, work=work)
        except ModelUnavailable as error:
            after = round(error.after_seconds * 1000)
            event = ModelFailed(attempt=attempt, kind=error.kind, message=str(error), retry=True, after_ms=after)
        except ModelError as error:
            event = ModelFailed(attempt=attempt, kind=error.kind, message=str(error))
        except RetinueError as error:
            event = ModelFailed(attempt=attempt, kind="runtime_error", message=str(error))
        except asyncio.CancelledError:
            if _asked_to_stop():
                raise
            event = ModelFailed(
                attempt=attempt, kind="server_error", message="the model's call was cancelled from inside"
            )
        except Exception as error:
            log.exception("model %s failed in a way it should not", effect.run)
            event = ModelFailed(attempt=attempt, kind="server_error", message=f"{type(error).__name__}: {error}")
        if engine.roster.runs.get(effect.run) is not None:
            self._answer(effect.run, -1, event)

    async def _ask(self, effect: CallModel, spec: Spec, run: Run) -> Reply:
        roster, bus = self._engine.roster, self._engine.bus
        model = self._models.get(spec.model)
        if model is None:
            raise ModelError(f"no model {spec.model!r} in this process", kind="invalid_request")
        conversation = await self.conversations.of(spec, run.length)
        order = spec.order
        definition = roster.definitions[order.agent]
        offered, declarer = self._tools_for(spec), self._declarer(spec)
        request = Request(
            run=run.id,
            root=spec.root,
            path=spec.path,
            agent=order.agent,
            model=spec.model,
            turn=run.turn,
            attempt=effect.attempt,
            purpose=effect.purpose,
            instructions=definition.instructions if order.instructions is None else order.instructions,
            messages=History(conversation, run.start, run.length),
            tools=offered if effect.purpose in ("turn", "grace") else (),
            max_output=effect.max_output,
            key=effect.key,
            declared=offered if declarer is spec else self._tools_for(declarer),
        )

        redactor = self._engine.redactor
        shown = redactor.stream() if redactor is not None else None

        def emit(text: str) -> None:
            if bus.busy and (text := text if shown is None else shown.feed(text)):
                bus.preview(run.id, effect.attempt, text)

        reply = _clean_reply(await model.complete(request, emit))
        if shown is not None and bus.busy and (rest := shown.close()):
            bus.preview(run.id, effect.attempt, rest)
        return reply if getattr(model, "exact", False) else checked(reply)

    def _declarer(self, spec: Spec) -> Spec:
        """Whose list of tools a run declares: its own, or that of the run it was forked from."""
        specs = self._engine.roster.specs
        while spec.order.context.kind == "fork" and (parent := specs.get(spec.parent)) is not None:
            if parent.order.agent != spec.order.agent:
                break
            spec = parent
        return spec

    def _tools_for(self, spec: Spec) -> tuple[ToolSchema, ...]:
        """The agent's tools that its run may call; the same tuple for all runs of one kind."""
        held = self._engine.roster.held(spec.id) if spec.id in self._engine.roster.specs else spec.capabilities
        key = (spec.order.agent, (held.tools, held.deny))
        offered = self._offered.get(key)
        if offered is None:
            offered = tuple(t for t in self._tools.schemas(spec.order.agent) if allows(held, t.name))
            self._offered[key] = offered
        return offered

    async def _work(self, spec: Spec) -> Work | None:
        """What an isolated run has done until now; its diff is kept before anybody is told of it."""
        if not spec.order.isolation:
            return None
        try:
            done = await self._tools.work(spec)
        except RetinueError as error:
            log.warning("the changes of %s could not be read: %s", spec.id, error)
            return None
        if done is None:
            return None
        redactor = self._engine.redactor
        text = done.diff if redactor is None else redactor.clean_bytes(done.diff)
        diff = await self._engine.with_space(lambda: self._engine.store.put_artifact(text))
        told = {f: getattr(done, f) for f in ("branch", "base", "commit", "files", "added", "removed")}
        return Work(**told, diff=diff.sha256)

    def _caller(self, effect: CallTool, spec: Spec, run: Run, place: str = "") -> Caller:
        return Caller(
            spec=spec,
            run=run,
            call_id=effect.call.id,
            index=effect.index,
            key=effect.key,
            at=effect.at,
            again=effect.again,
            woken=effect.woken,
            back=effect.back,
            look=self._window,
            root=place or spec.order.cwd or self._home,
            held=self._engine.roster.held(spec.id),
            bounds=self._engine.roster.bounds(spec.id),
        )

    def _call_quick(self, effect: CallTool, spec: Spec, run: Run) -> None:
        """A tool that never waits needs no task, unless its text has to be put away first."""
        try:
            returned = at_once(self._tools.run(spec.order.agent, self._caller(effect, spec, run), effect.call))
        except Exception as error:
            returned = self._failure(effect, error)
        report = self._report(effect, returned)
        if len(getattr(returned, "text", "")) > self._engine.roster.rules.text_cap:
            self._start(effect.run, effect.index, report)
        else:
            at_once(report)

    async def _call_tool(self, effect: CallTool, spec: Spec, run: Run) -> None:
        try:
            place = await self._tools.place(spec, self._home) if spec.order.isolation else ""
            returned = await self._tools.run(spec.order.agent, self._caller(effect, spec, run, place), effect.call)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _asked_to_stop():
                raise
            returned = self._failure(effect, error)
        await self._report(effect, returned)

    def _failure(self, effect: CallTool, error: BaseException) -> Answer:
        log.debug("tool %s failed", effect.call.name, exc_info=error)
        text = f"The tool failed: {type(error).__name__}: {error}"
        return Answer(text=clip(text, self._engine.roster.rules.text_cap), error=True)

    async def _report(self, effect: CallTool, returned: Returned) -> None:
        try:
            event = await self._tool_event(effect, returned)
        except Exception as error:
            event = await self._tool_event(effect, self._failure(effect, error))
        if effect.run in self._engine.roster.runs:
            self._answer(effect.run, effect.index, event)

    async def _tool_event(self, effect: CallTool, returned: Returned) -> RunEvent:
        where: Any = {"turn": effect.turn, "index": effect.index, "call_id": effect.call.id, "name": effect.call.name}
        match returned:
            case Answer(text=text, error=error):
                text = self._without_secrets(clean(text))
                spilled = await self._spill(text)
                if spilled is not None:
                    text = clip(text, self._engine.roster.rules.text_cap, spilled[0])
                return ToolReturned(**where, text=text, error=error, images=checked(returned).images, spilled=spilled)
            case Orders():
                orders, place = await self._placed(effect.run, checked(returned))
                return Ordered(**where, orders=orders, asked_at=effect.at, place=place)
            case Submission():
                done, spec = checked(returned), self._engine.roster.specs.get(effect.run)
                work = await self._work(spec) if spec is not None else None
                spilled = await self._spill(done.text)
                return Submitted(**where, text=done.text, ok=done.ok, data=done.data, spilled=spilled, work=work)
            case Ask():
                return Asked(**where, question=checked(returned).question)
            case _:
                assert_never(returned)

    async def _placed(self, run: str, orders: Orders) -> tuple[Orders, str]:
        """Where children are sent is told without links, so that the core can compare it; and where their parent is."""
        spec = self._engine.roster.specs.get(run)
        place = await self._tools.place(spec, self._home) if spec is not None and spec.order.isolation else ""
        root = place or (spec.order.cwd if spec is not None else "") or self._home
        if not root or not any(o.cwd and o.cwd != root for o in orders.spawns):
            return orders, place
        return replace(orders, spawns=tuple(_without_links(o, root) for o in orders.spawns)), place

    def _without_secrets(self, text: str) -> str:
        """Before anything is cut off: half a secret would not be found any more."""
        redactor = self._engine.redactor
        return text if redactor is None or len(text) <= self._engine.roster.rules.text_cap else redactor.clean(text)

    async def _compose(self, effect: Compose, spec: Spec) -> None:
        texts, failed = [], False
        for joined in effect.calls:
            try:
                if joined.plain:
                    text, _ = plain_result(joined.outcomes)
                else:
                    text = self._tools.compose(spec.order.agent, joined.name, joined.outcomes)
                text = await self._cut(text)
            except Exception as error:
                log.exception("tool %s could not compose its results", joined.name)
                text, failed = f"The results could not be put into words: {type(error).__name__}: {error}", True
            texts.append((joined.index, joined.call_id, joined.name, text))
        self._engine.post(effect.run, Composed(turn=effect.turn, calls=tuple(texts), error=failed))

    async def _cut(self, text: str) -> str:
        spilled = await self._spill(text)
        return text if spilled is None else clip(text, self._engine.roster.rules.text_cap, spilled[0])

    async def _spill(self, text: str, keep: int | None = None) -> tuple[str, int] | None:
        """An over-long text is kept whole, under its hash, before anybody is told of it."""
        data = text.encode("utf-8", "replace") if keep is not None else b""
        if len(text) <= self._engine.roster.rules.text_cap and (keep is None or len(data) <= keep):
            return None
        data = data or text.encode("utf-8", "replace")
        if self._engine.redactor is not None:
            data = self._engine.redactor.clean_bytes(data)
        artifact = await self._engine.with_space(lambda: self._engine.store.put_artifact(data))
        return artifact.sha256, artifact.bytes

    # deliveries

    def deliver_at(self, key: str, at: int) -> None:
        self.later(self.outbox.deliver(key, at))

    def later(self, work: Any) -> None:
        """Work that belongs to no run's task."""
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)


def _without_links(order: Order, root: str) -> Order:
    return replace(order, cwd=os.path.realpath(os.path.join(root, order.cwd))) if order.cwd else order


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    work.close()
    raise RetinueError("a quick tool may not wait")


def _asked_to_stop() -> bool:
    """Whether this task was cancelled by us; a tool or a model may also raise the same exception by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _clean_reply(reply: Reply) -> Reply:
    said = reply.message
    if said.text.isascii() and all(c.args.isascii() for c in said.calls):
        return reply
    calls = tuple(replace(c, args=clean(c.args), name=clean(c.name)) for c in said.calls)
    return replace(reply, message=replace(said, text=clean(said.text), calls=calls))
