"""Waiting for one's turn: for a slot in a lane, or for what others of the tree hold of the
budget."""

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


def _in_line(run: Run, event: Alike, ctx: StepContext) -> Run:
    match event:
        case ChildEnded():
            return news(run, event, ctx)
        case Posted():
            return post(run, event.mail, ctx)
        case CancelAsked():
            return cancel(run, event, ctx)
        case Narrowed() | Granted() | Cleared() | Prolonged():
            return note(run, event, ctx)
        case (
            Replied()
            | ModelFailed()
            | ToolReturned()
            | Ordered()
            | Submitted()
            | Asked()
            | Answered()
            | Composed()
        ):
            raise stale(run, event)
        case Decided():
            raise stale(run, event, "it asks for no permission")
        case _:
            assert_never(event)


def queued(run: Run, state: Queued, event: StateEvent, ctx: StepContext) -> Run:
    """In line for a slot in a lane."""
    if not isinstance(event, OF_LINES):
        return _in_line(run, event, ctx)
    match event:
        case Enlisted():
            if run.version:
                raise stale(run, event, "it was enlisted before")
            return _enter_lanes(run, ctx, 0, back=False)
        case Admitted():
            _take_slot(run, state, event, ctx)
            return _enter_lanes(
                run, ctx, state.lane + 1, back=state.back, purpose=state.purpose, kept=state.kept
            )
        case Woke():
            return out_of_time(run, ctx) or waited_too_long(run, ctx)
        case Recovered():
            if state.lane < len(ctx.order.lanes) and ctx.tree.is_waiting(
                run.id, ctx.order.lanes[state.lane]
            ):
                return again(run, event)
            return stop_recovery(run, event, ctx) or _enter_lanes(
                again(run, event), ctx, 0, back=state.back, purpose=state.purpose, kept=state.kept
            )
        case Afforded():
            raise stale(run, event)
        case _:
            assert_never(event)


def _take_slot(run: Run, state: Queued, event: Admitted, ctx: StepContext) -> None:
    """The slot is the run's, if it is the one that it waits for."""
    is_shared = state.lane < len(ctx.order.lanes) and ctx.order.lanes[state.lane].is_shared
    given = ctx.tree.asked if is_shared else ctx.tree.granted
    if run.id not in given or (is_shared and event.ticket != state.ticket):
        raise stale(run, event, "no slot was given to it")
    given.discard(run.id)


def _enter_lanes(
    run: Run,
    ctx: StepContext,
    first: int,
    *,
    back: bool,
    purpose: Purpose = "turn",
    kept: Kept = NEW_CALL,
) -> Run:
    lanes = ctx.order.lanes
    held = ctx.tree.enter(run.id, lanes, first, back=back)
    if held < len(lanes):
        return queue(run, ctx, held, back=back, purpose=purpose, kept=kept)
    return go_on(seated(run, ctx.now) if back else _start(run, ctx), ctx, purpose, kept=kept)


def _start(run: Run, ctx: StepContext) -> Run:
    """The run is seated, and the clocks that count from the start begin here."""
    if run.started_at is not None:
        return seated(run, ctx.now)
    order = ctx.order
    deadline = run.deadline
    if order.clock == "start" and order.timeout_ms is not None:
        deadline = sooner(deadline, ctx.now + order.timeout_ms)
    if order.budget.seconds is not None:
        deadline = sooner(deadline, ctx.now + round(order.budget.seconds * 1000))
    return replace(run, state=idle(run, ctx.now), started_at=ctx.now, deadline=deadline)


def short(run: Run, state: Short, event: StateEvent, ctx: StepContext) -> Run:
    """In line at an account: it goes on with the same call, or ends, when that is decided."""
    if not isinstance(event, OF_LINES):
        return _in_line(run, event, ctx)
    match event:
        case Afforded():
            if run.id not in ctx.tree.ledger.waits:
                raise stale(run, event, "it waits for nothing in the ledger")
            ctx.tree.ledger.leave(run.id)
            return resume(run, ctx, state.purpose, kept=state.kept)
        case Woke():
            return (
                out_of_time(run, ctx) or _unanswered(run, state, ctx) or waited_too_long(run, ctx)
            )
        case Recovered():
            if run.id in ctx.tree.ledger.waits:
                return again(run, event)
            return stop_recovery(run, event, ctx) or _stand_again(again(run, event), state, ctx)
        case Enlisted() | Admitted():
            raise stale(run, event)
        case _:
            assert_never(event)


def _stand_again(run: Run, state: Short, ctx: StepContext) -> Run:
    """After a restart: who waits for an answer waits on, no longer than before. Who waited for
    others asks anew."""
    ledger = ctx.tree.ledger
    if not state.asks or ledger.accounts[state.account].on_limit != "ask":
        return resume(run, ctx, state.purpose, kept=state.kept)
    ask = HoldRequest(state.need, state.last, state.purpose not in ("turn", "compact"), state.lack)
    ledger.wait(run.id, ask, state.kept.ticket, Verdict("short", state.account, state.lack))
    ledger.ease(state.account)  # it may have been decided before anybody was taken up
    return run


def _unanswered(run: Run, state: Short, ctx: StepContext) -> Run | None:
    """Nobody has answered for as long as anybody waits for anything: the limit asks no more, and
    the work lands. Who stands in line behind whoever asked waits as long as that does."""
    if run.wake_at is None or run.wake_at > ctx.now:
        return None
    asked = (
        id
        for (account, _), runs in ctx.tree.asking.items()
        if account == state.account
        for id in runs
    )
    asker = run if state.asks else ctx.tree.runs.get(next(asked, ""))
    if asker is None:
        return None
    if asker.wake_at is not None and asker.wake_at > ctx.now:
        return replace(run, wake_at=sooner(run.deadline, asker.wake_at))
    ctx.tree.ledger.leave(run.id)
    ctx.tree.ledger.set_on_limit(state.account, "land")
    return resume(run, ctx, state.purpose, kept=state.kept)
