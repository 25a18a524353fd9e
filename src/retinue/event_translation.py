"""The steps of the log as public events.

A step says what was decided, and what follows from it is in no row of the log: that a run has
ended, that a tool runs, that a user is asked. So the rows of a tree are folded once more, exactly
as the machine has taken them, and what a step has changed becomes its events. The same rows
give the same events with the same numbers, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from retinue import events as public
from retinue.core import events as log
from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.effects import CallModel, CallTool
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage
from retinue.core.shared import Shared
from retinue.core.spec import RunSpec
from retinue.core.state import (
    Ended,
    Queued,
    Run,
    RunRecord,
    Stopping,
    limit_in_question,
    questions_of,
)
from retinue.core.trees import Trees
from retinue.core.type_parameters import RunId
from retinue.core.values import Delivery, Ending, Usage
from retinue.open_questions import OpenQuestion, about_calls, about_limits
from retinue.question_types import typed_question
from retinue.run_info import waiting_for
from retinue.runtime.bus import Step
from retinue.runtime.text_pieces import TextPiece
from retinue.spending import spending_of

PER_STEP = 4096
"""Positions that each step of the log has for its events: more than one step can cause."""
Draft = tuple[type[public.Event], str, dict[str, Any]]
"""An event without what all events have: its type, its run, its own fields."""
NOT_KEPT = Ending(state="completed", stop="done", text="[This run is not kept.]")
FACTS = (log.Opened, log.AgentRegistered, log.ModelRegistered)


def step_of(seq: int) -> int:
    """The step of the log that an event came from."""
    return seq // PER_STEP


def last_of(step: int) -> int:
    """A position behind all events of a step."""
    return step * PER_STEP + PER_STEP - 1


@dataclass(slots=True)
class _Family:
    """What is kept of one tree between steps: rows as they were, the last message with calls of
    each run, when calls of tools and of its model ("") began, what ended runs below a run have
    used, what is asked about limits."""

    specs: dict[str, RunSpec] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    said: dict[str, AssistantMessage] = field(default_factory=dict)
    begun: dict[tuple[str, str], int] = field(default_factory=dict)
    below: dict[str, Usage] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)


def learn(facts: Shared, event: log.AnyEvent) -> None:
    """What a row about the whole store says of agents, models and limits."""
    match event:
        case log.Opened(epoch=epoch, limits=limits):
            facts.epoch, facts.limits = epoch, limits
        case log.AgentRegistered(definition=agent):
            facts.definitions[agent.name] = agent
        case log.ModelRegistered(model=model):
            facts.models[model.name] = model
        case _:
            pass


class Translator:
    """Takes the steps of trees, each tree from its first step on, and tells the events of each."""

    def __init__(self, shared: Shared) -> None:
        self._trees = Trees(shared.limits)
        own = self._trees.shared
        own.epoch = shared.epoch
        own.definitions |= shared.definitions
        own.models |= shared.models
        self._families: dict[str, _Family] = {}

    def lacks(self, step: Step) -> bool:
        """Whether the earlier steps of its tree have to be taken first."""
        entry = step.entry
        is_first = isinstance(entry.event, log.Requested)
        return bool(entry.tree) and entry.tree not in self._families and not is_first

    def take(self, step: Step) -> list[public.Event]:
        """One step, as what has happened."""
        entry = step.entry
        if not entry.tree:
            if isinstance(entry.event, FACTS):
                self._trees.fold(entry)
                self._trees.take_changes()
            return []
        family = self._families.setdefault(entry.tree, _Family())
        if isinstance(entry.event, log.ChildEnded) and not entry.stale:
            self._end_unkept(entry.event.child)
        self._trees.fold(entry)
        drafts = list(self._translate(family, entry, self._trees.take_changes()))
        if entry.tree not in self._trees.by_root:
            del self._families[entry.tree]
        return [
            _event(family, draft, step.seq * PER_STEP + min(n, PER_STEP - 1), entry.at)
            for n, draft in enumerate(drafts)
            if draft[1] in family.specs
        ]

    def preview(self, delta: TextPiece, seq: int, at: int) -> list[public.Event]:
        """Text that a model writes, behind the last event: it has no position of its own."""
        spec = self._trees.spec(delta.run)
        if spec is None:
            return []
        family = self._families[spec.root]
        own = {"attempt": delta.attempt, "text": delta.text, "start": delta.start}
        return [_event(family, (public.TextDelta, delta.run, own), seq, at)]

    def _end_unkept(self, child: str) -> None:
        """A run that is not kept has left no rows but its request: only its parent tells that it
        has ended."""
        tree, run = self._trees.of(child), self._trees.run(child)
        if tree is not None and run is not None and not isinstance(run.state, Ended):
            tree.runs[child] = replace(run, state=Ended(ending=NOT_KEPT))

    def _translate(self, family: _Family, entry: log.LogEntry, changes: Changes) -> Iterator[Draft]:
        family.specs |= {spec.id: spec for spec in changes.specs}
        before = {id: family.runs[id] for id in changes.runs if id in family.runs}
        family.runs |= changes.runs
        if not entry.stale:
            yield from _direct(family, entry, before.get(entry.run), changes.runs.get(entry.run))
        family.deliveries |= changes.deliveries
        yield from _results(family, entry.at, changes)
        yield from self._questions(family, entry, before, changes)
        for effect in changes.effects:
            if isinstance(effect, CallModel):
                family.begun[effect.run, ""] = entry.at
            elif isinstance(effect, CallTool):
                family.begun.setdefault((effect.run, effect.call.id), entry.at)
                own = {"turn": effect.turn, "call": effect.call}
                yield public.ToolStarted, effect.run, own
        for id, run in changes.runs.items():
            yield from _waits(family, entry, before.get(id), run)
            if isinstance(run.state, Ended) and not _has_ended(before.get(id)):
                yield _end(family, run, run.state)

    def _questions(
        self, family: _Family, entry: log.LogEntry, before: dict[str, Run], changes: Changes
    ) -> Iterator[Draft]:
        for id, run in changes.runs.items():
            question_ids = {q.id for q in questions_of(before.get(id))}
            if not any(q.id not in question_ids for q in questions_of(run)):
                continue
            for q in about_calls(self._trees, id, family.said.get(id, AssistantMessage())):
                if q.id not in question_ids:
                    yield public.QuestionAsked, id, {"question": typed_question(q, None)}
        if family.limits or entry.tree in self._trees.index.asking:
            yield from self._about_limits(family, entry, changes)

    def _about_limits(
        self, family: _Family, entry: log.LogEntry, changes: Changes
    ) -> Iterator[Draft]:
        """A raised limit gives its question another id before those who wait there continue: only a
        run that has come to a limit asks."""
        open_ones = {q.id: q for q in about_limits(self._trees) if q.root == entry.tree}
        event = entry.event
        if isinstance(event, log.LimitChanged) and not entry.stale:
            lets = event.then not in ("land", "stop")
            own = {"allowed": lets, "text": event.reason, "by": event.by}
            for id, run in list(family.limits.items()):
                if id == event.question or id not in open_ones or (not lets and run == entry.run):
                    del family.limits[id]
                    yield public.QuestionAnswered, run, {"question_id": id, **own}
        family.limits = {id: run for id, run in family.limits.items() if id in open_ones}
        if any(limit_in_question(run) for run in changes.runs.values()):
            for id, q in open_ones.items():
                if id not in family.limits:
                    family.limits[id] = q.run
                    yield self._limit_question(family, q, entry.at)

    def _limit_question(self, family: _Family, q: OpenQuestion, at: int) -> Draft:
        tree = self._trees.of(q.run)
        live = tree.ledger.accounts.get(q.run) if tree is not None else None
        row = RunRecord(family.specs[q.run], family.runs[q.run])
        spending = spending_of(row, live or Account(id=q.run), at, (q.id,))
        return public.QuestionAsked, q.run, {"question": typed_question(q, spending)}


def _event(family: _Family, draft: Draft, seq: int, at: int) -> public.Event:
    kind, id, own = draft
    spec = family.specs[id]
    return kind(
        seq=seq,
        at=datetime.fromtimestamp(at / 1000, UTC),
        run=RunId(id),
        root=RunId(spec.root),
        depth=spec.depth,
        label=spec.request.name,
        **own,
    )


def _direct(
    family: _Family, entry: log.LogEntry, before: Run | None, after: Run | None
) -> Iterator[Draft]:
    """What the step itself says."""
    own: dict[str, Any]
    id, spec = entry.run, family.specs.get(entry.run)
    elapsed = (entry.at - family.begun.get((id, ""), entry.at)) / 1000
    match entry.event:
        case log.RunCreated() if spec is not None:
            own = {"parent": RunId[Any](spec.parent) if spec.parent else None, "model": spec.model}
            own |= {"agent": spec.request.agent, "task": spec.request.task}
            own |= {"conversation": spec.conversation, "meta": spec.meta}
            if (call := spec.parent_call) is not None:
                own |= {"call_id": call.call_id, "call_turn": call.turn}
            yield public.RunStarted, id, own
        case log.Replied(reply=reply) if after is not None:
            answer = reply.message
            usage = _minus(after.usage, before.usage if before is not None else Usage())
            own = {"turn": after.turn, "text": answer.text, "calls": answer.calls, "usage": usage}
            own |= {"model": reply.model or after.model_used, "seconds": elapsed}
            yield public.ModelReplied, id, own
        case log.ModelFailed(attempt=attempt, message=error, kind=kind) if after is not None:
            retry_at = getattr(after.state, "retry_at", None)
            if not isinstance(after.state, Ended | Stopping):
                seconds = max(0, (retry_at or entry.at) - entry.at) / 1000
                own = {"attempt": attempt, "error": error, "next_try_in": seconds}
                own |= {"kind": kind, "seconds": elapsed}
                yield public.ModelRetried, id, own
        case log.Answered(index=index, text=text, by=by) as event:
            ids = (q.id for q in questions_of(before) if q.index == index)
            own = {"question_id": event.question or next(ids, ""), "allowed": None}
            yield public.QuestionAnswered, id, own | {"text": text, "by": by}
        case log.Decided(question=question, allow=allow, reason=reason, by=by):
            own = {"question_id": question, "allowed": allow, "text": reason, "by": by}
            yield public.QuestionAnswered, id, own
        case log.MailReceived(mail=mail) if mail.kind == "mail":
            yield public.MessageReceived, id, {"sender": mail.sender, "text": mail.text}
        case log.Acked(key=key) if (delivery := family.deliveries.get(key)) is not None:
            own = {"channel": delivery.origin.channel, "delivered": True, "error": ""}
            yield public.Announced, delivery.run, own
        case log.Bounced(key=key, error=error) if (d := family.deliveries.get(key)) is not None:
            own = {"channel": d.origin.channel, "delivered": False, "error": error}
            yield public.Announced, d.run, own
        case _:
            pass


def _results(family: _Family, at: int, changes: Changes) -> Iterator[Draft]:
    """The messages that the step has added: what a model said last, and results of its calls."""
    runs = {family.specs[id].conversation: id for id in changes.runs if id in family.specs}
    for conversation, _, message in changes.messages:
        id = runs.get(conversation, "")
        if isinstance(message, AssistantMessage) and message.calls:
            family.said[id] = message
        if not isinstance(message, ToolMessage) or not id:
            continue
        source = family.said.get(id, AssistantMessage())
        matches = (call for call in source.calls if call.id == message.call_id)
        own: dict[str, Any] = {"turn": family.runs[id].turn, "text": message.text}
        own["call"] = next(matches, ToolCall(id=message.call_id, name=message.name))
        own |= {"is_error": message.error, "is_denied": message.denied}
        began = family.begun.pop((id, message.call_id), at)
        yield public.ToolReturned, id, own | {"seconds": (at - began) / 1000}


def _waits(family: _Family, entry: log.LogEntry, before: Run | None, run: Run) -> Iterator[Draft]:
    if before is None:
        return
    was = None if isinstance(entry.event, log.RunCreated) else waiting_for(before)
    now = waiting_for(run)
    if now is not None and (was is None or was[0] != now[0]):
        spec = family.specs[run.id]
        detail = now[1]
        if isinstance(run.state, Queued) and run.state.lane >= 0:
            lane = spec.request.lanes[run.state.lane]
            detail = f"a worker with {lane.name}" if lane.is_need else lane.name
        yield public.RunWaiting, run.id, {"waiting_for": now[0], "detail": detail}


def _end(family: _Family, run: Run, state: Ended) -> Draft:
    ending, spec = state.ending, family.specs[run.id]
    usage = family.below.pop(run.id, Usage()).plus(run.usage)
    if spec.parent:
        family.below[spec.parent] = family.below.get(spec.parent, Usage()).plus(usage)
    family.said.pop(run.id, None)
    family.begun.pop((run.id, ""), None)
    began = ending.at if run.started_at is None else run.started_at
    own: dict[str, Any]
    own = {"state": ending.state, "stop": ending.stop, "text": ending.text, "error": ending.error}
    own |= {"usage": run.usage, "tree_usage": usage, "seconds": (ending.at - began) / 1000}
    return public.RunEnded, run.id, own


def _has_ended(run: Run | None) -> bool:
    return run is not None and isinstance(run.state, Ended)


def _minus(usage: Usage, other: Usage) -> Usage:
    names = Usage.__struct_fields__
    return Usage(**{name: getattr(usage, name) - getattr(other, name) for name in names})
