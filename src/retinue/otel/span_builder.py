"""The events of trees as spans: one for each run (`invoke_agent`), each attempt of a model call
(`chat`) and each tool call (`execute_tool`). A span is made of the event that ends it, and the
same events make the same spans: live, and from the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from retinue import events as ev
from retinue.otel import span_attributes as names
from retinue.otel.span_content import SpanContent
from retinue.otel.span_ids import TracePlace, call_span, model_span, run_span, trace_place


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened during a span, at a time in nanoseconds."""

    name: str
    at: int
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span that is over. Times are in nanoseconds since 1970; `parent_id` 0 is none. `is_open`:
    it was not over, and its end is that of what is on record."""

    place: TracePlace
    id: int
    parent_id: int
    name: str
    run: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[SpanEvent, ...] = ()
    message: str = ""
    is_open: bool = False

    @property
    def operation(self) -> str:
        return str(self.attributes["gen_ai.operation.name"])

    @property
    def error(self) -> str:
        """What kind of error it ended with, "" for none."""
        return str(self.attributes.get("error.type", ""))


@dataclass(slots=True)
class _OpenRun:
    """What is kept of a run until it ends: how it started, where its spans are, the conversation of
    its tree, what happened to it, what its model has not read yet, and the calls of tools that are
    open."""

    start: ev.RunStarted
    place: TracePlace
    parent_id: int
    conversation: str
    events: list[SpanEvent] = field(default_factory=list)
    unread: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[str, ev.ToolStarted] = field(default_factory=dict)
    turn: int = 0
    results: Counter[str] = field(default_factory=Counter)
    """How many results this turn has for an id."""

    def shared(self, operation: str) -> dict[str, Any]:
        return names.shared_attributes(operation, self.start, self.conversation)


class SpanBuilder:
    """Takes the events of trees, each tree from its first event on, and tells which spans each of
    them has ended. `content`: with prompts and replies, from which `clean` takes secrets."""

    def __init__(self, *, content: bool = False, clean: Callable[[str], str] = str) -> None:
        self._content = SpanContent(content, clean)
        self._open: dict[str, _OpenRun] = {}
        self._last = 0

    def take(self, event: ev.Event) -> list[TraceSpan]:
        self._last = max(self._last, _nanos(event.at))
        if isinstance(event, ev.RunStarted):
            self._begin(event)
            return []
        run = self._open.get(event.run)
        if run is None:
            return []
        match event:
            case ev.ModelReplied() | ev.ModelRetried():
                return [self._chat(run, event)]
            case ev.ToolStarted(call=call):
                run.calls.setdefault(call.id, event)
            case ev.ToolReturned():
                return [self._tool(run, event)]
            case ev.RunEnded():
                del self._open[event.run]
                return [*self._calls(run, event.at, is_open=False), self._agent(run, event)]
            case _:
                run.events += self._note(run, event)
        return []

    def rest(self) -> Iterator[TraceSpan]:
        """Spans of what is still open, up to the last event."""
        for run in self._open.values():
            end = _time(self._last)
            yield from self._calls(run, end, is_open=True)
            yield self._span(run, run.start, self._last, is_open=True)

    def _begin(self, event: ev.RunStarted) -> None:
        root, parent = self._open.get(event.root), event.parent
        place = root.place if root is not None else trace_place(event.root, event.meta)
        conversation = event.conversation if root is None else root.conversation
        above = place.parent_id
        if parent is not None:
            above = run_span(parent)
            if event.call_id:
                above = call_span(parent, event.call_turn, event.call_id)
        run = self._open[event.run] = _OpenRun(event, place, above, conversation)
        if self._content.is_on:
            run.unread.append(self._content.user(event.task))

    def _agent(self, run: _OpenRun, end: ev.RunEnded) -> TraceSpan:
        own, content = names.end_attributes(end), self._content
        if content.is_on:
            task, reply = content.user(run.start.task), content.reply(end.text)
            own |= content.messages("gen_ai.input.messages", [task])
            own |= content.messages("gen_ai.output.messages", [reply])
        return self._span(run, run.start, _nanos(end.at), own, message=end.error)

    def _span(
        self,
        run: _OpenRun,
        start: ev.RunStarted,
        end: int,
        own: dict[str, Any] | None = None,
        *,
        message: str = "",
        is_open: bool = False,
    ) -> TraceSpan:
        """The span of a run."""
        return TraceSpan(
            place=run.place,
            id=run_span(start.run),
            parent_id=run.parent_id,
            name=f"invoke_agent {names.short_name(start.agent)}",
            run=start.run,
            start=_nanos(start.at),
            end=end,
            attributes=run.shared("invoke_agent") | names.run_attributes(start) | (own or {}),
            events=tuple(run.events),
            message=self._content.text("message", message).get("message", ""),
            is_open=is_open,
        )

    def _chat(self, run: _OpenRun, event: ev.ModelReplied | ev.ModelRetried) -> TraceSpan:
        attributes, content = run.shared("chat"), self._content
        attributes |= names.reply_attributes(run.start, event)
        if isinstance(event, ev.ModelReplied) and content.is_on:
            attributes |= content.messages("gen_ai.input.messages", run.unread)
            reply = content.reply(event.text, event.calls)
            attributes |= content.messages("gen_ai.output.messages", [reply])
            run.unread.clear()
        message = event.error if isinstance(event, ev.ModelRetried) else ""
        return TraceSpan(
            place=run.place,
            id=model_span(event.run, event.seq),
            parent_id=run_span(event.run),
            name=f"chat {attributes['gen_ai.request.model']}",
            run=event.run,
            start=_nanos(event.at - timedelta(seconds=event.seconds)),
            end=_nanos(event.at),
            attributes=attributes,
            message=content.text("message", message).get("message", ""),
        )

    def _tool(self, run: _OpenRun, event: ev.ToolReturned) -> TraceSpan:
        call, content = event.call, self._content
        run.calls.pop(call.id, None)
        if run.turn != event.turn:
            run.turn = event.turn
            run.results.clear()
        id = call_span(event.run, event.turn, call.id, run.results[call.id])
        run.results[call.id] += 1
        if content.is_on:
            run.unread.append(content.result(call.id, event.text))
        own = names.result_attributes(event)
        own |= content.text("gen_ai.tool.call.arguments", call.arguments_json)
        own |= content.text("gen_ai.tool.call.result", event.text)
        own |= names.tool_attributes(call.name, call.id)
        return _call_span(run, id, event.seconds, event.at, own)

    def _calls(self, run: _OpenRun, end: datetime, *, is_open: bool) -> Iterator[TraceSpan]:
        """Calls that have no result, up to a time: those of a run that has ended were cancelled."""
        for event in run.calls.values():
            seconds = max(0.0, (end - event.at).total_seconds())
            own = names.tool_attributes(event.call.name, event.call.id)
            id = call_span(event.run, event.turn, event.call.id)
            own |= {} if is_open else {"error.type": "cancelled"}
            yield _call_span(run, id, seconds, end, own, is_open=is_open)

    def _note(self, run: _OpenRun, event: ev.Event) -> Iterator[SpanEvent]:
        """What happens to a run and is not a span of its own."""
        own: dict[str, Any] = {}
        match event:
            case ev.RunWaiting(waiting_for=reason):
                own = {"retinue.waiting_for": reason}
            case ev.QuestionAsked(question=question):
                own = {"retinue.question.id": question.id}
            case ev.QuestionAnswered(question_id=id, allowed=allowed):
                own = {"retinue.question.id": id}
                own |= {} if allowed is None else {"retinue.question.allowed": allowed}
            case ev.MessageReceived(sender=sender, text=text):
                own = {"retinue.sender": sender}
                if self._content.is_on:
                    run.unread.append(self._content.user(text))
            case ev.Announced(channel=channel, delivered=delivered):
                own = {"retinue.channel": channel, "retinue.delivered": delivered}
            case _:
                return
        yield SpanEvent(f"retinue.{event.type}", _nanos(event.at), own)


def _call_span(
    run: _OpenRun,
    id: int,
    seconds: float,
    end: datetime,
    own: dict[str, Any],
    *,
    is_open: bool = False,
) -> TraceSpan:
    return TraceSpan(
        place=run.place,
        id=id,
        parent_id=run_span(run.start.run),
        name=f"execute_tool {own['gen_ai.tool.name']}",
        run=run.start.run,
        start=_nanos(end - timedelta(seconds=seconds)),
        end=_nanos(end),
        attributes=run.shared("execute_tool") | own,
        is_open=is_open,
    )


def _nanos(at: datetime) -> int:
    """The record has milliseconds."""
    return round(at.timestamp() * 1000) * 1_000_000


def _time(nanos: int) -> datetime:
    return datetime.fromtimestamp(nanos / 1e9, UTC)
