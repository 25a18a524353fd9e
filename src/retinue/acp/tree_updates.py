"""What happens in a run, as updates for an editor: the agent's text and tool calls, and each
sub-agent as a tool call and as an entry of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from acp import schema
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)

from retinue.acp import call_updates
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.formats.safe_text import one_line
from retinue.host.tree_items import MessageAdded, RunAdded, RunChanged, TextArrived, TreeItem
from retinue.tree_record import RunRecord
from retinue.view import format as view_format
from retinue.view import states, totals

STATUSES: dict[str, schema.ToolCallStatus] = {"queued": "pending", "completed": "completed"}
AGAIN = "The reply was interrupted. The model is asked again."
MOST_NOTE = 2_000


@dataclass
class ShownCall:
    """A tool call as the editor has it."""

    id: str
    content: list[call_updates.Content]


@dataclass
class ShownChild:
    """A sub-agent as the editor has it. `word` is its state."""

    name: str
    title: str
    word: str = "queued"

    @property
    def status(self) -> schema.ToolCallStatus:
        failed = self.word in (*view_format.FAILURES, "cancelled")
        return "failed" if failed else STATUSES.get(self.word, "in_progress")

    @property
    def entry(self) -> schema.PlanEntry:
        """A plan knows no failure: the words say it."""
        is_over = self.status in ("completed", "failed")
        note = f" ({self.word.replace('_', ' ')})" if self.status == "failed" else ""
        status: Any = "completed" if is_over else self.status
        return plan_entry(self.title + note, status=status)


class TreeUpdates:
    """Turns the items of one session into updates. It remembers what the editor has: an item that
    comes twice is shown once. `top` is the run whose text is the agent's."""

    def __init__(self, cwd: str) -> None:
        self.top, self.cwd = "", cwd
        self._n_messages = 0
        self._calls: dict[str, ShownCall] = {}
        self._children: dict[str, ShownChild] = {}
        self._child_messages: dict[str, int] = {}
        self._attempt, self._streamed = 0, ""
        self._wait = ""

    def follow(self, run: str) -> None:
        """The next items are about this run, which continues the conversation."""
        if run != self.top:
            self.top, self._children, self._attempt = run, {}, 0
            self._streamed = ""

    def call_id(self, run: str, call: str) -> str:
        """The tool call of the editor that a call of a run belongs to: that of its sub-agent, for
        one below the top. "" while the editor does not have it."""
        if run != self.top or not call:
            return _child_id(run)
        return self._calls[call].id if call in self._calls else ""

    def updates(self, item: TreeItem) -> Iterator[Any]:
        """The updates that one item gives."""
        match item:
            case RunAdded(spec=spec) if spec.id != self.top and spec.id not in self._children:
                name = states.label(spec)
                title = f"{name}: {one_line(spec.request.task, 120)}"
                self._children[spec.id] = ShownChild(name, title)
                task = call_updates.text_content(spec.request.task)
                yield start_tool_call(
                    _child_id(spec.id), title, kind="other", status="pending", content=[task]
                )
                yield self._plan()
            case TextArrived(run=run) if run == self.top:
                yield from self._say(item)
            case MessageAdded(run=run, n=n, message=message) if run == self.top:
                yield from self.message(n, message)
            case MessageAdded(run=run, n=n, message=AssistantMessage(calls=calls)):
                if calls and n > self._child_messages.get(run, -1):
                    self._child_messages[run] = n
                    yield self._activity(run, calls[-1])
            case RunChanged(row=row):
                yield from self._change(row.record)
            case _:
                return

    def message(self, n: int, message: Message, *, is_replay: bool = False) -> Iterator[Any]:
        """A recorded message of the top run, by its number. In a replay the person's own messages
        are shown too."""
        if n < self._n_messages:
            return
        self._n_messages = n + 1
        match message:
            case AssistantMessage():
                yield from self._reply(n, message)
            case ToolMessage():
                yield from self._result(message)
            case UserMessage(kind="task", sender="", text=text):
                if is_replay:
                    yield update_user_message_text(text)
            case UserMessage(text=text):
                yield update_agent_thought_text(one_line(text, MOST_NOTE) + "\n")

    # the agent's own text and calls

    def _say(self, item: TextArrived) -> Iterator[Any]:
        if item.attempt != self._attempt:
            if self._streamed:
                yield update_agent_thought_text(AGAIN)
            self._attempt, self._streamed = item.attempt, ""
        if text := item.text[max(0, len(self._streamed) - item.start) :]:
            self._streamed += text
            yield self._chunk(text)

    def _reply(self, n: int, message: AssistantMessage) -> Iterator[Any]:
        rest = message.text
        if rest.startswith(self._streamed):
            rest = rest[len(self._streamed) :]
        elif self._streamed:
            yield update_agent_thought_text(AGAIN)
        self._attempt = self._attempt or -n
        if rest:
            yield self._chunk(rest)
        self._attempt, self._streamed = 0, ""
        for number, call in enumerate(message.calls):
            yield self._start(f"{self.top}/{n}/{number}", call)

    def _chunk(self, text: str) -> schema.AgentMessageChunk:
        return schema.AgentMessageChunk(
            session_update="agent_message_chunk",
            content=text_block(text),
            message_id=f"{self.top}/{self._attempt}",
        )

    def _start(self, id: str, call: ToolCall) -> Any:
        thought_text = call.arguments.get("thought")
        if call.name == "think" and isinstance(thought_text, str):
            return update_agent_thought_text(thought_text)
        shown_call = self._calls[call.id] = ShownCall(id, call_updates.changes(call, self.cwd))
        return start_tool_call(
            id,
            call_updates.title(call),
            kind=call_updates.kind(call),
            status="in_progress",
            content=shown_call.content,
            locations=call_updates.locations(call, self.cwd),
            raw_input=call_updates.raw_input(call),
        )

    def _result(self, message: ToolMessage) -> Iterator[Any]:
        shown_call = self._calls.get(message.call_id)
        if shown_call is not None:
            yield update_tool_call(
                shown_call.id,
                status="failed" if message.error or message.denied else "completed",
                content=call_updates.result_content(shown_call.content, message.text),
            )

    # sub-agents

    def _activity(self, run: str, call: ToolCall) -> Any:
        """What a sub-agent does now."""
        child = self._children.get(run)
        name = child.name if child is not None else "sub-agent"
        return update_tool_call(
            _child_id(run),
            title=f"{name}: {call_updates.title(call)}",
            status="in_progress",
            locations=call_updates.locations(call, self.cwd),
        )

    def _change(self, row: RunRecord) -> Iterator[Any]:
        if row.spec.id == self.top:
            wait = totals.waits_for(row)
            if wait and wait != self._wait:
                yield update_agent_thought_text(f"Waiting: {one_line(wait, MOST_NOTE)}\n")
            self._wait = wait
            return
        child, word = self._children.get(row.spec.id), totals.word(row)
        if child is None or child.word == word:
            return
        before, child.word = child.status, word
        if child.status == before:
            return
        ending = totals.ending(row)
        text = (ending.text or ending.error) if ending is not None else ""
        yield update_tool_call(
            _child_id(row.spec.id),
            title=child.title,
            status=child.status,
            content=[call_updates.text_content(text)] if text else None,
        )
        yield self._plan()

    def _plan(self) -> schema.AgentPlanUpdate:
        return update_plan([child.entry for child in self._children.values()])


def _child_id(run: str) -> str:
    return f"run/{run}"
