"""A whole tree as it moves: its steps, and with each the new messages and the state of its run."""

from __future__ import annotations

from collections.abc import AsyncIterator

from retinue.api import Retinue
from retinue.core.events import Replied
from retinue.core.messages import AssistantMessage
from retinue.core.state import RunRecord, calls_of
from retinue.core.values import ModelInfo
from retinue.errors import NotFound
from retinue.host.message_cursor import MessageCursor, inherited
from retinue.host.server_events import ServerEvent
from retinue.host.tree_items import StepNews, StoredRun, TextArrived
from retinue.outcomes import state_word
from retinue.runtime.bus import Step
from retinue.runtime.text_pieces import TextPiece
from retinue.steps import run_of


class TreeFollower:
    """Follows a run and everything below it: runs that start, each step, each message, each change
    of state. `after` is the position in the log that a reader has seen already."""

    def __init__(self, retinue: Retinue, after: int) -> None:
        self._retinue, self._after = retinue, after
        self._cursors: dict[str, MessageCursor] = {}
        self._stood: dict[str, object] = {}
        self._models: set[str] = set()

    async def about(self, step: Step) -> StepNews | None:
        """Everything that belongs to a step; None for a run that was deleted meanwhile."""
        run = run_of(step)
        try:
            row = await self._retinue.record(run)
        except NotFound:
            return None
        cursor, is_new = self._cursors.get(run), run not in self._cursors
        if cursor is None:
            cursor = self._cursors[run] = MessageCursor(await self._n_sent(row))
        if cursor.known < row.run.length:
            cursor.add(await self._retinue.messages(run, cursor.known))
        stands = _stands(row)
        has_changed, self._stood[run] = self._stood.get(run) != stands, stands
        return StepNews(
            seq=step.seq,
            entry=step.entry,
            started=row.spec if is_new else None,
            messages=tuple(cursor.take(run, step.entry)),
            row=StoredRun.of(row) if has_changed else None,
            model=self._new_model(row.spec.model) if is_new else None,
        )

    def _new_model(self, name: str) -> ModelInfo | None:
        if name in self._models:
            return None
        self._models.add(name)
        return self._retinue.known_model(name)

    async def _n_sent(self, row: RunRecord) -> int:
        """How many messages of a run a reader that returns at `after` has surely got: all up to the
        last reply before it. What came after that reply may come again, under the same number."""
        first = inherited(row)
        if not self._after:
            return first
        n_replies = await self._replies(row.spec.id)
        if not n_replies:
            return first
        for n, message in enumerate(await self._retinue.messages(row.spec.id, first), first + 1):
            n_replies -= isinstance(message, AssistantMessage)
            if not n_replies:
                return n
        return row.run.length

    async def _replies(self, run: str) -> int:
        entries = await self._retinue.entries(run, until=self._after)
        return sum(isinstance(e.event, Replied) and not e.stale for e in entries)


async def follow(
    retinue: Retinue, top: str, after: int = 0, *, deltas: bool = False
) -> AsyncIterator[ServerEvent]:
    """Everything about a tree: from the log behind position `after`, then as it comes, until its
    top has ended."""
    follower = TreeFollower(retinue, after)
    async for item in retinue.steps(top, after, deltas=deltas):
        if isinstance(item, TextPiece):
            yield ServerEvent("delta", TextArrived.of(item))
        elif (news := await follower.about(item)) is not None:
            yield ServerEvent("step", news, str(item.seq))


def _stands(row: RunRecord) -> tuple[object, ...]:
    """What a viewer has to know anew: the state, when the model is tried again, how much is
    asked."""
    state = row.run.state
    calls = calls_of(row.run)
    n = len(calls.questions) if calls is not None else 0
    return state_word(row.run), getattr(state, "retry_at", None), n, getattr(state, "asks", "")
