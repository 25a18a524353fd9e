"""Waiting for one's turn: for a slot in a lane, or for what others of the tree hold of the budget."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core.calls import queue, resume
from retinue.core.children import cancel, news, note, stale
from retinue.core.effects import Purpose
from retinue.core.events import (
    Admitted,
    Afforded,
    Answered,
    Asked,
    CancelAsked,
    ChildEnded,
    Cleared,
    Composed,
    Decided,
    Enlisted,
    Granted,
    ModelFailed,
    Narrowed,
    Ordered,
    Posted,
    Prolonged,
    Recovered,
    Replied,
    StateEvent,
    Submitted,
    ToolReturned,
    Woke,
)
from retinue.core.hold_request import HoldRequest, Verdict
from retinue.core.restarts import again, out_of_time, stop_recovery, waited_too_long
from retinue.core.state import NEW_CALL, Kept, Queued, Run, Short
from retinue.core.step_context import StepContext, idle, seated
from retinue.core.turn import go_on, post, sooner

Alike = (
    ChildEnded
    | Posted
    | CancelAsked
    | Narrowed
    | Granted
    | Cleared
    | Prolonged
    | Replied
    | ModelFailed
    | ToolReturned
    | Ordered
    | Submitted
    | Asked
    | Answered
    | Composed
    | Decided
)
"""Whatever a run waits for in line, these are decided alike."""
OF_LINES = (Enlisted, Admitted, Afforded, Woke, Recovered)
"""All others."""


def _in_line(run: Run, event: Alike, d: StepContext) -> Run:
    match event:
        case ChildEnded():
            return news(run, event, d)
        case Posted():
            return post(run, event.mail, d)
        case CancelAsked():
            return cancel(run, event, d)
        case Narrowed() | Granted() | Cleared() | Prolonged():
            return note(run, event, d)
        case Replied() | ModelFailed() | ToolReturned() | Ordered() | Submitted() | Asked() | Answered() | Composed():
            raise stale(run, event)
        case Decided():
            raise stale(run, event, "it asks for no permission")
        case _:
            assert_never(event)


def queued(run: Run, state: Queued, event: StateEvent, d: StepContext) -> Run:
    """In line for a slot in a lane."""
    if not isinstance(event, OF_LINES):
        return _in_line(run, event, d)
    match event:
        case Enlisted():
            if run.version:
                raise stale(run, event, "it was enlisted before")
            return _enter_lanes(run, d, 0, back=False)
        case Admitted():
            _take_slot(run, state, event, d)
            return _enter_lanes(run, d, state.lane + 1, back=state.back, purpose=state.purpose, kept=state.kept)
        case Woke():
            return out_of_time(run, d) or waited_too_long(run, d)
        case Recovered():
            if state.lane < len(d.order.lanes) and d.tree.is_waiting(run.id, d.order.lanes[state.lane]):
                return again(run, event)
            return stop_recovery(run, event, d) or _enter_lanes(
                again(run, event), d, 0, back=state.back, purpose=state.purpose, kept=state.kept
            )
        case Afforded():
            raise stale(run, event)
        case _:
            assert_never(event)


def _take_slot(run: Run, state: Queued, event: Admitted, d: StepContext) -> None:
    """The slot is the run's, if it is the one that it waits for."""
    is_shared = state.lane < len(d.order.lanes) and d.order.lanes[state.lane].is_shared
    given = d.tree.asked if is_shared else d.tree.granted
    if run.id not in given or (is_shared and event.ticket != state.ticket):
        raise stale(run, event, "no slot was given to it")
    given.discard(run.id)


def _enter_lanes(
    run: Run, d: StepContext, first: int, *, back: bool, purpose: Purpose = "turn", kept: Kept = NEW_CALL
) -> Run:
    lanes = d.order.lanes
    held = d.tree.enter(run.id, lanes, first, back=back)
    if held < len(lanes):
        return queue(run, d, held, back=back, purpose=purpose, kept=kept)
    return go_on(seated(run, d.now) if back else _start(run, d), d, purpose, kept=kept)


def _start(run: Run, d: StepContext) -> Run:
    """The run is seated, and the clocks that count from the start begin here."""
    if run.started_at is not None:
        return seated(run, d.now)
    order = d.order
    deadline = run.deadline
    if order.clock == "start" and order.timeout_ms is not None:
        deadline = sooner(deadline, d.now + order.timeout_ms)
    if order.budget.seconds is not None:
        deadline = sooner(deadline, d.now + round(order.budget.seconds * 1000))
    return replace(run, state=idle(run, d.now), started_at=d.now, deadline=deadline)


def short(run: Run, state: Short, event: StateEvent, d: StepContext) -> Run:
    """In line at an account: it goes on with the same call, or ends, when that is decided."""
    if not isinstance(event, OF_LINES):
        return _in_line(run, event, d)
    match event:
        case Afforded():
            if run.id not in d.tree.ledger.waits:
                raise stale(run, event, "it waits for nothing in the ledger")
            d.tree.ledger.leave(run.id)
            return resume(run, d, state.purpose, kept=state.kept)
        case Woke():
            return out_of_time(run, d) or _unanswered(run, state, d) or waited_too_long(run, d)
        case Recovered():
            if run.id in d.tree.ledger.waits:
                return again(run, event)
            return stop_recovery(run, event, d) or _stand_again(again(run, event), state, d)
        case Enlisted() | Admitted():
            raise stale(run, event)
        case _:
            assert_never(event)


def _stand_again(run: Run, state: Short, d: StepContext) -> Run:
    """After a restart: who waits for an answer waits on, no longer than before. Who waited for others asks anew."""
    ledger = d.tree.ledger
    if not state.asks or ledger.accounts[state.account].on_limit != "ask":
        return resume(run, d, state.purpose, kept=state.kept)
    ask = HoldRequest(state.need, state.last, state.purpose not in ("turn", "compact"), state.lack)
    ledger.wait(run.id, ask, state.kept.ticket, Verdict("short", state.account, state.lack))
    ledger.ease(state.account)  # it may have been decided before anybody was taken up
    return run


def _unanswered(run: Run, state: Short, d: StepContext) -> Run | None:
    """Nobody has answered for as long as anybody waits for anything: the limit asks no more, and the work lands. Who
    stands in line behind whoever asked waits as long as that does."""
    if run.wake_at is None or run.wake_at > d.now:
        return None
    asked = (id for (account, _), runs in d.tree.asking.items() if account == state.account for id in runs)
    asker = run if state.asks else d.tree.runs.get(next(asked, ""))
    if asker is None:
        return None
    if asker.wake_at is not None and asker.wake_at > d.now:
        return replace(run, wake_at=sooner(run.deadline, asker.wake_at))
    d.tree.ledger.leave(run.id)
    d.tree.ledger.set_on_limit(state.account, "land")
    return resume(run, d, state.purpose, kept=state.kept)
