"""Performs effects, each in a coroutine; the result goes back to the engine as an event. Exceptions
become events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import replace

from retinue.channels.base import Channel
from retinue.core.capabilities import allows
from retinue.core.effects import (
    AbortRun,
    AnswerStep,
    AskSlot,
    CallModel,
    CallTool,
    Effect,
    FormatResults,
    FreeSlot,
    Merge,
    ScheduleDelivery,
    SendDelivery,
)
from retinue.core.events import (
    Aborted,
    Admitted,
    Replied,
    RunEvent,
    TextReturned,
    Woke,
)
from retinue.core.history import ShownMessages
from retinue.core.limit_questions import with_budget_of_now
from retinue.core.messages import ModelReply
from retinue.core.spec import RunSpec
from retinue.core.state import Run, Thinking
from retinue.core.values import ToolSchema, checked
from retinue.errors import ModelError, RetinueError
from retinue.formats.safe_text import clean
from retinue.models.base import Model, ModelRequest, Progress
from retinue.runtime.awaiting_tools import AwaitingTools
from retinue.runtime.conversations import Conversations
from retinue.runtime.coroutines import CallTask, asked_to_stop, take_cancellation
from retinue.runtime.held_calls import HeldCall, held_calls
from retinue.runtime.joined_results import format_results, merge_changes
from retinue.runtime.long_texts import Texts
from retinue.runtime.look_ahead import LookAhead
from retinue.runtime.model_failures import model_failure
from retinue.runtime.outbox import Outbox
from retinue.runtime.reply_cleanup import clean_reply, whole_reply
from retinue.runtime.reply_preview import ReplyPreview
from retinue.runtime.run_hooks import RunHooks
from retinue.runtime.tool_events import ToolEvents, is_plain
from retinue.runtime.tool_reader import ToolReader
from retinue.runtime.tool_runner import ToolRunner
from retinue.sandbox.open_directories import OpenDirectories, OpenDirectory
from retinue.tools.base import Context, Returned, ToolResult, at_once

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine


class Performer:
    """Tasks under way and the messages they need, by run."""

    def __init__(
        self,
        engine: Engine,
        tools: ToolRunner,
        models: Mapping[str, Model],
        channels: Mapping[str, Channel],
        home: str = "",
    ) -> None:
        self._engine = engine
        self._tools = tools
        self._models = models
        self._home = home
        self.deps: object = None
        self.hooks: RunHooks | None = None
        self._agents = tools.agents
        self._tasks: dict[str, dict[int, CallTask]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.conversations, self._texts = Conversations(engine.store), Texts(engine)
        self._parked: list[CallModel | CallTool | FormatResults] = []
        self._progress: dict[str, tuple[int, Progress]] = {}
        self._offered: dict[tuple[Any, ...], tuple[ToolSchema, ...]] = {}
        self.tool_reader = ToolReader(engine, tools)
        self.outbox = Outbox(engine, tools, channels)
        self.holdings = OpenDirectories()
        self.look_ahead = LookAhead(engine, tools, home, self._context)
        self._tool_events = ToolEvents(
            engine, tools, self._texts, self.outbox, self.conversations, home
        )
        self._awaiting = AwaitingTools(engine, self._tool_events, self.tool_reader)

    def over(self, id: str) -> None:
        """The run has ended: nothing of it is under way, and its messages are in the store."""
        self.conversations.drop(id)
        self._tool_events.over(id)
        self._progress.pop(id, None)
        self._stop(id)
        self.holdings.over(id)
        if self.hooks is not None:
            self.hooks.ended(id)
        if self._parked:
            self._parked = [effect for effect in self._parked if effect.run != id]
        if not self._engine.on_record or len(self._offered) > 256:
            self._offered.clear()
        if (rest := self._tools.over(id, self._engine.is_used)) is not None:
            self.later(rest)

    # effects

    def perform(self, effect: Effect) -> None:
        """Begin it. The run is as it is on record; in memory it may have moved on."""
        engine = self._engine
        match effect:
            case CallModel() | CallTool():
                spec, run = engine.trees.spec(effect.run), engine.on_record.get(effect.run)
                if spec is None or run is None:
                    return
                if spec.model not in self._models or spec.request.agent not in self._agents:
                    self._parked.append(effect)
                elif isinstance(effect, CallModel):
                    self._start(effect.run, -1, self._call_model(effect, spec, run))
                elif self._is_quick(spec, effect.call.name):
                    self._call_quick(effect, spec, run)
                else:
                    work = self._call_tool(effect, spec, run)
                    self._start(effect.run, effect.index, work, name=effect.call.name)
            case AnswerStep():
                self._awaiting.answer(effect)
            case FormatResults():
                spec = engine.trees.spec(effect.run)
                if spec is not None and spec.request.agent not in self._agents:
                    self._parked.append(effect)
                elif spec is not None:
                    self.later(self._compose(effect, spec.request.agent))
            case Merge():
                self.later(self._merge(effect))
            case AbortRun():
                self._stop(effect.run)
                if effect.attempt:
                    engine.post(effect.run, self._aborted(effect.run, effect.attempt))
            case AskSlot() | FreeSlot():
                if (granted := engine.trees.seat(effect)) is not None:
                    engine.post(granted[0], Admitted(ticket=granted[1]))
            case ScheduleDelivery():
                self.deliver_at(effect.key, effect.at)
            case SendDelivery():
                self.later(self.outbox.transmit(effect))
            case _:
                assert_never(effect)

    def _aborted(self, run: str, attempt: int) -> Aborted:
        """What became of a model call that is stopped. It may be one that an earlier process has
        begun."""
        latest, progress = self._progress.get(run, (0, Progress()))
        is_sent = progress.sent if latest == attempt else not self._engine.is_unsent(run, attempt)
        return Aborted(
            attempt=attempt,
            sent=is_sent,
            usage=progress.usage if latest == attempt and is_sent else None,
        )

    def unpark(self) -> None:
        """An agent or a model became known: what waited for it is begun, or waits on."""
        parked, self._parked = self._parked, []
        for effect in parked:
            run = self._engine.trees.run(effect.run)
            at = effect.attempt if isinstance(effect, CallModel) else effect.turn
            if run is not None and at == (
                run.attempt if isinstance(effect, CallModel) else run.turn
            ):
                self.perform(effect)

    def held_calls(self) -> tuple[HeldCall, ...]:
        """The model calls that wait for a provider which is left alone."""
        calls = ((run, progress) for run, (_, progress) in self._progress.items())
        return tuple(held_calls(calls, self._engine.clock.now()))

    def tasks(self) -> list[asyncio.Task[None]]:
        return [t for of_run in self._tasks.values() for t in of_run.values()] + list(self._sending)

    def calls(self) -> list[tuple[str, str]]:
        """The tool calls that are under way: whose, and of which tool."""
        return [
            (run, t.get_name())
            for run, mine in self._tasks.items()
            for slot, t in mine.items()
            if slot >= 0
        ]

    def _start(self, run: str, slot: int, work: Any, name: str = "") -> None:
        self._tasks.setdefault(run, {})[slot] = CallTask(work, self._engine.task, name)

    def _done(self, run: str, slot: int) -> None:
        mine = self._tasks.get(run)
        if mine is not None and mine.get(slot) is asyncio.current_task():
            del mine[slot]
            if not mine:
                del self._tasks[run]

    def _stop(self, run: str) -> None:
        for task in self._tasks.pop(run, {}).values():
            if task is not asyncio.current_task():
                task.stop()

    def stop(self) -> None:
        """Nothing of what is under way is recorded."""
        for run in list(self._tasks):
            self._stop(run)
        for task in self._sending:
            task.cancel()

    def _answer(self, run: str, slot: int, event: RunEvent) -> None:
        self._done(run, slot)
        self._engine.post(run, event)

    async def _call_model(self, effect: CallModel, spec: RunSpec, run: Run) -> None:
        engine, attempt = self._engine, effect.attempt
        try:
            event: RunEvent = await self._replied(attempt, spec, await self._ask(effect, spec, run))
            await take_cancellation()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and asked_to_stop():
                raise
            wake = partial(engine.post, effect.run, Woke(early=True))
            tries = run.state.tries if isinstance(run.state, Thinking) else 0
            event = model_failure(effect.run, attempt, error, wake, tries)
        if engine.trees.run(effect.run) is not None:
            self._answer(effect.run, -1, event)

    async def _replied(self, attempt: int, spec: RunSpec, reply: ModelReply) -> Replied:
        """A reply as it is recorded, with all that has to be known of it."""
        refused: tuple[tuple[int, str], ...] = ()
        if self.hooks is not None and reply.message.calls:
            calls, refused = await self.hooks.before_tools(spec, reply.message.calls)
            if calls != reply.message.calls:
                reply = replace(reply, message=replace(reply.message, calls=calls))
        text, spilled = reply.message.text, None
        if text and not self._texts.fits(text, keep := self._texts.longest(spec)):
            spilled = await self._texts.spill(text, keep)
        work = (
            await self._tool_events.work(spec)
            if spec.request.isolation and not reply.message.calls
            else None
        )
        calls = reply.message.calls
        asks = self._tools.to_approve(spec.request.agent, calls) if calls else 0
        return Replied(
            attempt=attempt, reply=reply, spilled=spilled, work=work, asks=asks, refused=refused
        )

    async def _ask(self, effect: CallModel, spec: RunSpec, run: Run) -> ModelReply:
        shared, model = self._engine.trees.shared, self._models.get(spec.model)
        if model is None:
            raise ModelError(
                f"Unknown model {spec.model!r} in this process", kind="invalid_request"
            )
        conversation = self.conversations.at_hand(spec.conversation)
        if conversation is None:
            conversation = await self.conversations.of(spec, run.length)
        run_request, definition = spec.request, shared.definitions[spec.request.agent]
        offered = declared = self.tools_for(spec)
        if run_request.history.kind == "fork" and (other := self._declarer(spec)) is not spec:
            declared = self.tools_for(other)
        mark = self._engine.store.sent.marker(run.id, effect.attempt)
        request = ModelRequest(
            run=run.id,
            root=spec.root,
            path=spec.path,
            agent=run_request.agent,
            model=spec.model,
            turn=run.turn,
            attempt=effect.attempt,
            purpose=effect.purpose,
            instructions=definition.instructions
            if run_request.instructions is None
            else run_request.instructions,
            messages=ShownMessages(conversation, run.start, run.length),
            tools=offered if effect.purpose in ("turn", "grace") else (),
            max_output=effect.max_output,
            key=effect.key,
            declared=declared,
            progress=Progress(mark, is_told=getattr(model, "says_progress", False)),
            settings=run_request.settings,
        )
        self._progress[run.id] = (effect.attempt, request.progress)
        if self.hooks is not None:
            request = await self.hooks.before_model(spec, request)
        redactor = self._engine.redactor
        with ReplyPreview(self._engine.bus, redactor, run.id, effect.attempt) as preview:
            reply = clean_reply(whole_reply(await model.complete(request, preview)), redactor)
        reply = reply if getattr(model, "exact", False) else checked(reply)
        if self.hooks is not None:
            reply = await self.hooks.after_model(spec, request, reply)
        return reply

    def tools_changed(self) -> None:
        """An agent was replaced: what is offered to its runs is sent again."""
        self._offered.clear()

    def _declarer(self, spec: RunSpec) -> RunSpec:
        """Whose list of tools a run declares: its own, or that of the run it was forked from."""
        find = self._engine.trees.spec
        while spec.request.history.kind == "fork" and (parent := find(spec.parent)) is not None:
            if parent.request.agent != spec.request.agent:
                break
            spec = parent
        return spec

    def tools_for(self, spec: RunSpec) -> tuple[ToolSchema, ...]:
        """The agent's tools that its run may call; the same tuple for all runs of one kind."""
        tree = self._engine.trees.of(spec.id)
        permissions = tree.permissions_of(spec.id) if tree is not None else spec.permissions
        key = (spec.request.agent, permissions.tools, permissions.deny)
        offered = self._offered.get(key)
        if offered is None:
            offered = tuple(
                t for t in self._tools.schemas(spec.request.agent) if allows(permissions, t.name)
            )
            self._offered[key] = offered
        return offered

    def _context(self, effect: CallTool, spec: RunSpec, run: Run, place: str = "") -> Context:
        tree = self._engine.trees.of(spec.id)
        if tree is None:
            raise RetinueError(f"Run {spec.id} has ended.")
        return Context(
            spec=with_budget_of_now(tree, spec),
            row=run,
            call_id=effect.call.id,
            index=effect.index,
            key=effect.key,
            called_at=effect.at,
            again=effect.again,
            is_woken=effect.woken,
            ended_children=effect.back,
            reader=self.tool_reader,
            root=place or spec.request.cwd or self._home,
            permissions=tree.permissions_of(spec.id),
            rules_above=tree.bounds(spec.id),
            rule=partial(tree.rule_on, spec.id),
            redactor=self._engine.redactor,
            holding=self._holding(spec),
            private=self._engine.private,
            room=self._engine.trees.shared.limits.text_cap,
            keep=self._texts.keep,
            deps=self.deps,
            tool=effect.call.name,
            made_at=effect.made_at,
            answer=effect.answer,
            steps=self._awaiting.steps(effect, run),
            threads=self._tools.threads,
        )

    def _holding(self, spec: RunSpec) -> OpenDirectory:
        """What opens the directories of the run's tree: the one that its first run was sent to, and
        those added."""
        first = self._engine.trees.spec(spec.root) or spec
        folders = (*(first.permissions.read or ()), *(first.permissions.write or ()))
        return self.holdings.of(spec.root, spec.id, (first.request.cwd or self._home, *folders))

    def _is_quick(self, spec: RunSpec, tool: str) -> bool:
        """Whether a call needs no task. A hook may wait."""
        if spec.request.isolation or self.hooks is not None:
            return False
        return self._tools.is_quick(spec.request.agent, tool)

    def _call_quick(self, effect: CallTool, spec: RunSpec, run: Run) -> None:
        """A tool that never waits needs no task, unless its text has to be put away first."""
        call, engine = effect.call, self._engine
        try:
            returned = self._tools.run_now(
                spec.request.agent, partial(self._context, effect, spec, run), call
            )
        except Exception as error:
            returned = self._tool_events.failure(effect, error)
        most = engine.trees.shared.limits.text_cap
        if type(returned) is ToolResult and is_plain(returned):
            text = clean(returned.text)
            if len(text) <= most:
                if engine.trees.run(effect.run) is not None:
                    event = TextReturned(
                        turn=effect.turn,
                        index=effect.index,
                        call_id=call.id,
                        name=call.name,
                        text=text,
                        error=returned.error,
                    )
                    engine.post(effect.run, event)
                return
        report = self._report(effect, returned)
        if len(getattr(returned, "text", "")) > most:
            self._start(effect.run, effect.index, report)
        else:
            at_once(report)

    async def _call_tool(self, effect: CallTool, spec: RunSpec, run: Run) -> None:
        context = None
        try:
            place = await self._tools.place(spec, self._home) if spec.request.isolation else ""
            context = self._context(effect, spec, run, place)
            returned = await self._tools.run(spec.request.agent, context, effect.call)
            await take_cancellation()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and asked_to_stop():
                raise
            returned = self._tool_events.failure(effect, error)
        if context is not None and context.steps is not None:
            context.steps.close()
        await self._report(effect, returned)

    async def _report(self, effect: CallTool, returned: Returned) -> None:
        try:
            spec = self._engine.trees.spec(effect.run)
            if self.hooks is not None and spec is not None and isinstance(returned, ToolResult):
                returned = await self.hooks.after_tool(spec, effect.call, returned)
            event = await self._tool_events.of(effect, returned)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and asked_to_stop():
                raise
            event = await self._tool_events.of(effect, self._tool_events.failure(effect, error))
        if self._engine.trees.run(effect.run) is not None:
            self._answer(effect.run, effect.index, event)

    async def _compose(self, effect: FormatResults, agent: str) -> None:
        event = await format_results(effect, agent, self._tools, self._texts)
        self._engine.post(effect.run, event)

    async def _merge(self, effect: Merge) -> None:
        self._engine.post(effect.run, await merge_changes(effect, self._tools))

    # deliveries

    def deliver_at(self, key: str, at: int) -> None:
        self.outbox.line_up(key)
        self.later(self.outbox.deliver(key, at))

    def later(self, work: Any) -> None:
        """Work that belongs to no run's task."""
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
