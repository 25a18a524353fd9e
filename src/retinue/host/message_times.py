"""When the messages of a run were recorded. Messages have no time of their own: it is read from the
steps of the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.core.events import LogEntry, Replied, TextReturned
from retinue.core.messages import AssistantMessage, Message, ToolMessage


def message_times(messages: Sequence[Message], entries: Iterable[LogEntry]) -> list[int]:
    """The time of each message in milliseconds. `messages` are the run's own, without those that a
    fork has from another run; `entries` are all its steps.

    A reply and the result of a tool have the time of their step, the first message that of the
    first step. Any other message counts as recorded in the last step before the next reply.
    """
    replies = list[int]()
    segments = [0]
    """The time of the last step before each reply, and after the last one."""
    results = dict[tuple[int, str], int]()
    first = 0
    for entry in entries:
        if entry.stale:
            continue
        first = first or entry.at
        if isinstance(entry.event, Replied):
            replies.append(entry.at)
            segments.append(entry.at)
        elif isinstance(entry.event, TextReturned):
            results[len(replies), entry.event.call_id] = entry.at
        segments[-1] = entry.at
    times, n_replies = list[int](), 0
    for message in messages:
        last = segments[min(n_replies, len(replies))]
        if isinstance(message, AssistantMessage):
            times.append(replies[n_replies] if n_replies < len(replies) else last)
            n_replies += 1
        elif isinstance(message, ToolMessage):
            times.append(results.get((n_replies, message.call_id), last))
        else:
            times.append(last if times else first)
    return times
