"""A whole tree as it moves: its steps, and with them what was said and how each run stands."""

from __future__ import annotations

from collections.abc import AsyncIterator

from retinue.api import Retinue
from retinue.core.state import calls_of
from retinue.errors import NotFound
from retinue.host.message_cursor import MessageCursor, inherited
from retinue.host.requests import Item, RunChanged, RunStarted, Said, Stepped
from retinue.outcomes import state_word
from retinue.runtime.bus import Delta, Step
from retinue.steps import run_of
from retinue.store.base import Row


class TreeFollower:
    """Tells of a run and everything below it: who begins, each step, what was said, how each
    stands."""

    def __init__(self, retinue: Retinue, *, is_late: bool) -> None:
        self._retinue, self._is_late = retinue, is_late
        self._places: dict[str, MessageCursor] = {}
        self._stood: dict[str, object] = {}

    async def about(self, step: Step) -> AsyncIterator[Item]:
        run = run_of(step)
        try:
            row = await self._retinue.record(run)
        except NotFound:
            return
        place = self._places.get(run)
        if place is None:
            place = self._places[run] = MessageCursor(
                row.run.length if self._is_late else inherited(row)
            )
            yield RunStarted(spec=row.spec)
        yield Stepped(seq=step.seq, entry=step.entry)
        if place.known < row.run.length:
            place.add(await self._retinue.messages(run, place.known))
        for heard in place.hear(run, step.entry):
            yield heard
        stands = _stands(row)
        if self._stood.get(run) != stands:
            self._stood[run] = stands
            yield RunChanged(row=row)


async def follow(
    retinue: Retinue, top: str, after: int = 0, *, deltas: bool = False
) -> AsyncIterator[Item]:
    """Everything about a tree: from the log behind position `after`, then as it comes, until its
    top has ended."""
    told = TreeFollower(retinue, is_late=after > 0)
    async for item in retinue.watch(top, after, deltas=deltas):
        if isinstance(item, Delta):
            yield Said(run=item.run, attempt=item.attempt, text=item.text)
        else:
            async for news in told.about(item):
                yield news


def _stands(row: Row) -> tuple[object, ...]:
    """What a viewer has to know anew: the state, when the model is tried again, how much is
    asked."""
    state = row.run.state
    calls = calls_of(row.run)
    n = len(calls.questions) if calls is not None else 0
    return state_word(row.run), getattr(state, "retry_at", None), n, getattr(state, "asks", "")
