"""A tree of runs as lines of JSON in the shape that programs for Claude's `stream-json` read, with
more in each line.

Pure: the same items give the same lines, whether they come from an open run or from the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from retinue.core import arguments
from retinue.core.events import Asked, Merged, ModelFailed, Replied, StepTaken
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.core.spec import RunSpec
from retinue.core.state import Ended, RunRecord
from retinue.core.values import Usage, Value
from retinue.host.provider_waits import ProviderWait, of_held
from retinue.host.tree_items import (
    CallsHeld,
    MessageAdded,
    RunAdded,
    RunChanged,
    Stepped,
    TextArrived,
    TreeItem,
)
from retinue.outcomes import state_word
from retinue.runtime.held_calls import HeldCall
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import totals

STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
SUBTYPES = {
    "turn_limit": "error_max_turns",
    "deadline": "error_timeout",
    "waited_too_long": "error_timeout",
    "stalled": "error_timeout",
    "cancelled": "error_cancelled",
    "not_submitted": "error_max_structured_output_retries",
}


class StreamHeader(Value):
    """What only the command knows of a run."""

    version: str = ""
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    mcp_servers: tuple[dict[str, str], ...] = ()
    mcp_server_errors: tuple[dict[str, str], ...] = ()
    mode: str = ""
    deltas: bool = False


class StreamJsonWriter:
    """Turns the items of a tree into lines. It remembers what later lines refer to."""

    def __init__(self, head: StreamHeader) -> None:
        self._head = head
        self._specs: dict[str, RunSpec] = {}
        self._top = ""
        self._replies: dict[str, Replied] = {}
        self._usage: dict[str, Usage] = {}
        self._last_at: dict[str, int] = {}
        self._calls: dict[str, tuple[str, str]] = {}
        self._over: set[str] = set()
        self._asked: dict[str, str] = {}
        self._seq = self._at = self._api_ms = 0
        self._waits: dict[str, tuple[object, ...] | None] = {}
        self.denials: list[dict[str, Any]] = []
        self.merges: list[dict[str, Any]] = []

    def lines(self, item: TreeItem) -> Iterator[dict[str, Any]]:
        """The lines that one item gives."""
        match item:
            case RunAdded(spec=spec):
                yield from self._begin(spec)
            case Stepped():
                yield from self._step(item)
            case MessageAdded(run=run, message=message):
                yield from self._message(run, message)
            case RunChanged(row=row):
                yield from self._stand(row.record)
            case CallsHeld(calls=calls):
                yield from self._hold(calls)
            case TextArrived(run=run, text=text):
                if self._head.deltas:
                    delta = {"type": "text_delta", "text": text}
                    event = {"type": "content_block_delta", "index": 0, "delta": delta}
                    yield self._line(
                        run, "stream_event", event=event, parent_tool_use_id=self._slot(run)
                    )

    def _begin(self, spec: RunSpec) -> Iterator[dict[str, Any]]:
        self._specs[spec.id] = spec
        self._last_at[spec.id] = self._at = spec.created_at
        if not self._top:
            self._top = spec.id
            yield self._line(
                spec.id,
                "system",
                subtype="init",
                cwd=spec.request.cwd,
                tools=list(self._head.tools),
                mcp_servers=list(self._head.mcp_servers),
                mcp_server_errors=list(self._head.mcp_server_errors),
                model=spec.model,
                permissionMode=self._head.mode,
                agents=list(self._head.agents),
                skills=list(self._head.skills),
                slash_commands=[],
                retinue_version=self._head.version,
            )
            return
        yield self._line(
            spec.id,
            "system",
            subtype="task_started",
            task_id=spec.id,
            description=view_format.agent_label(spec.request.label or spec.request.agent),
            prompt=spec.request.task,
            tool_use_id=self._slot(spec.id),
            model=spec.model,
            agent=view_format.agent_label(spec.request.agent),
            price_tag=totals.tag_json(spec),
        )

    def _step(self, item: Stepped) -> Iterator[dict[str, Any]]:
        entry, event = item.entry, item.entry.event
        self._seq, self._at = item.seq, entry.at
        run = entry.run
        if entry.stale or run not in self._specs:
            return
        before, self._last_at[run] = self._last_at.get(run, entry.at), entry.at
        if isinstance(event, Replied):
            self._replies[run] = event
            self._usage[run] = self._usage.get(run, Usage()).plus(event.reply.usage)
            self._api_ms += max(0, entry.at - before)
            if run != self._top and event.reply.message.calls:
                last = event.reply.message.calls[-1].name
                yield self._task(run, "task_progress", last_tool_name=last)
        elif isinstance(event, Merged):
            self.merges += [totals.plain(msgspec.structs.asdict(merge)) for merge in event.merges]
        elif isinstance(event, ModelFailed):
            yield self._line(
                run, "system", subtype="api_retry", error=event.kind, message=event.message
            )
        elif isinstance(event, Asked | StepTaken) and event.question:
            yield self._line(
                run,
                "system",
                subtype="needs_input",
                question=event.question,
                tool_use_id=event.call_id,
            )

    def _message(self, run: str, message: Message) -> Iterator[dict[str, Any]]:
        slot = self._slot(run)
        if isinstance(message, AssistantMessage):
            yield self._line(
                run, "assistant", message=self._assistant(run, message), parent_tool_use_id=slot
            )
            return
        if isinstance(message, ToolMessage):
            name, args = self._calls.get(message.call_id, (message.name, "{}"))
            if message.denied:
                denial = {
                    "tool_name": name,
                    "tool_use_id": message.call_id,
                    "tool_input": _input(args),
                }
                self.denials.append({**denial, "agent_id": run})
            content: list[dict[str, Any]] = [
                {
                    "type": "tool_result",
                    "tool_use_id": message.call_id,
                    "content": message.text,
                    "is_error": message.error,
                }
            ]
        else:
            content = [{"type": "text", "text": message.text}]
        body = {"role": "user", "content": content}
        yield self._line(run, "user", message=body, parent_tool_use_id=slot)

    def _assistant(self, run: str, message: AssistantMessage) -> dict[str, Any]:
        replied = self._replies.pop(run, None)
        content: list[dict[str, Any]] = (
            [{"type": "text", "text": message.text}] if message.text else []
        )
        for call in message.calls:
            self._calls[call.id] = (call.name, call.arguments_json)
            content.append(
                {
                    "type": "tool_use",
                    "id": call.id,
                    "name": call.name,
                    "input": _input(call.arguments_json),
                }
            )
        out: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
        out["model"] = (replied.reply.model if replied is not None else "") or self._specs[
            run
        ].model
        if replied is not None:
            out["id"] = f"msg_{run}_{replied.attempt}"
            out["stop_reason"] = STOPS[replied.reply.stop]
            out["usage"] = totals.usage_json(replied.reply.usage)
        return out

    def _hold(self, calls: Iterable[HeldCall]) -> Iterator[dict[str, Any]]:
        """The lines about calls that have not left, because their provider is left alone."""
        for call in calls:
            if (spec := self._specs.get(call.run)) is not None:
                yield from self._wait(call.run, of_held(call, spec.model))

    def _wait(self, run: str, wait: ProviderWait | None) -> Iterator[dict[str, Any]]:
        """A run waits for its provider: one line for each different answer."""
        before, wait_known = self._waits.get(run), wait and wait[:4]
        if before == wait_known:
            return
        self._waits[run] = wait_known
        if wait is not None:
            yield self._line(run, "system", subtype="provider_wait", provider_wait=wait._asdict())

    def _stand(self, row: RunRecord) -> Iterator[dict[str, Any]]:
        id = row.spec.id
        yield from self._wait(id, totals.provider_wait(row))
        if (about := totals.limit_of(row)) and self._asked.get(about) != totals.waits_for(row):
            self._asked[about] = totals.waits_for(row)
            yield self._line(
                about,
                "system",
                subtype="needs_input",
                question=totals.waits_for(row),
                limit_of=about,
            )
        if id == self._top or id in self._over or id not in self._specs:
            return
        if not isinstance(row.run.state, Ended):
            status = view_format.shown_state(state_word(row.run))
            yield self._line(
                id, "system", subtype="task_updated", task_id=id, patch={"status": status}
            )
            return
        self._over.add(id)
        end = row.run.state.ending
        yield self._task(
            id,
            "task_notification",
            status=totals.STATUS.get(end.state, "failed"),
            state=end.state,
            stop=end.stop,
            summary=end.text or end.error,
            missing=totals.missing(row),
            duration_ms=totals.elapsed(row),
            cache=totals.cache_use(row.run.cache),
        )

    def _task(
        self, run: str, subtype: str, duration_ms: int | None = None, **fields: Any
    ) -> dict[str, Any]:
        spec, usage = self._specs[run], self._usage.get(run, Usage())
        if duration_ms is None:
            duration_ms = max(0, self._at - spec.created_at)
        counts = {
            "total_tokens": usage.tokens,
            "tool_uses": usage.calls,
            "duration_ms": duration_ms,
        }
        counts["estimated_tokens"] = usage.estimated
        label = view_format.agent_label(spec.request.label or spec.request.agent)
        return self._line(
            run, "system", subtype=subtype, task_id=run, description=label, usage=counts, **fields
        )

    def result(self, final: TreeRecord) -> dict[str, Any]:
        """The last line: what it came to."""
        top = final.rows[0]
        if not self._top:
            self._top, self._specs[top.spec.id] = top.spec.id, top.spec
        end = totals.ending(top)
        state, stop = (end.state, end.stop) if end is not None else (totals.word(top), "")
        is_error, spent = state != "completed", totals.spent(final)
        self._at = end.at if end is not None else self._at
        return self._line(
            top.spec.id,
            "result",
            subtype=_subtype(state, stop),
            is_error=is_error,
            duration_ms=totals.elapsed(top),
            duration_api_ms=self._api_ms,
            num_turns=top.run.turn,
            result=(end.text or end.error) if end is not None else "",
            structured_output=totals.plain(end.data) if end is not None else None,
            error=end.error if end is not None else "",
            total_cost_usd=spent.usd or 0.0,
            estimated_cost_usd=spent.usd_estimated,
            cost_is_known=spent.cost_is_known,
            is_offline=spent.is_offline,
            usage=totals.usage_json(totals.tree_usage(final)),
            modelUsage=totals.model_usage(final),
            cache=totals.cache_use(totals.tree_cache(final)),
            permission_denials=self.denials,
            merges=self.merges,
            terminal_reason=stop,
            state=state,
            subagent_stats=totals.subagent_stats(final),
            missing=totals.missing(top),
            helpers=totals.plain(end.helpers) if end is not None else None,
        )

    def _slot(self, run: str) -> str | None:
        """The call that started a sub-agent; None for what was watched."""
        spec = self._specs.get(run)
        return (
            spec.parent_call.call_id
            if spec is not None and spec.parent_call is not None and run != self._top
            else None
        )

    def _line(self, run: str, kind: str, **fields: Any) -> dict[str, Any]:
        spec = self._specs.get(run)
        top = self._specs.get(self._top)
        above = spec.parent if spec is not None and run != self._top else ""
        return {
            "type": kind,
            **fields,
            "session_id": self._top,
            "agent_id": run,
            "parent_agent_id": above or None,
            "depth": spec.depth - (top.depth if top is not None else 0) if spec is not None else 0,
            "seq": self._seq,
            "ts": self._at,
        }


def lines(
    head: StreamHeader, items: Iterable[TreeItem], final: TreeRecord
) -> Iterator[dict[str, Any]]:
    """All lines of a tree, the result last."""
    writer = StreamJsonWriter(head)
    for item in items:
        yield from writer.lines(item)
    yield writer.result(final)


def _subtype(state: str, stop: str) -> str:
    if state == "completed":
        return "success"
    if "budget" in stop:
        return "error_max_budget_usd"
    return SUBTYPES.get(stop, "error_during_execution")


def _input(args: str) -> dict[str, Any]:
    values = arguments.read(args)
    return {"raw": args} if values is None else values
