"""Waiting before a turn: for a slot in a lane, or for budget that other runs of the tree have
reserved."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core.calls import queue, resume
from retinue.core.children import cancel, news, note, stale
from retinue.core.copy_merges import note_merge
from retinue.core.effects import Purpose
from retinue.core.events import (
    ActionsReturned,
    Admitted,
    Afforded,
    Answered,
    Asked,
    CancelAsked,
    ChildEnded,
    Cleared,
    Decided,
    Granted,
    MailReceived,
    Merged,
    ModelFailed,
    PermissionsRestricted,
    Prolonged,
    Recovered,
    Replied,
    ResultsFormatted,
    RunCreated,
    StateEvent,
    StepTaken,
    Submitted,
    TextReturned,
    Woke,
)
from retinue.core.hold_request import HoldRequest, Verdict
from retinue.core.restarts import again, out_of_time, stop_recovery, waited_too_long
from retinue.core.state import NEW_CALL, Kept, Queued, Run, Short
from retinue.core.step_context import StepContext, holding_slots, idle
from retinue.core.turn import go_on, post, sooner
from retinue.core.writer_lines import TURN

Alike = (
    ChildEnded
    | MailReceived
    | CancelAsked
    | PermissionsRestricted
    | Granted
    | Cleared
    | Prolonged
    | Replied
    | ModelFailed
    | TextReturned
    | ActionsReturned
    | StepTaken
    | Submitted
    | Asked
    | Answered
    | ResultsFormatted
    | Decided
    | Merged
)
"""These are decided in the same way, whatever the run queues for."""
OF_LINES = (RunCreated, Admitted, Afforded, Woke, Recovered)
"""All others."""


def _in_line(run: Run, event: Alike, ctx: StepContext) -> Run:
    match event:
        case ChildEnded():
            return news(run, event, ctx)
        case MailReceived():
            return post(run, event.mail, ctx)
        case Merged():
            return note_merge(run, ctx, event)
        case CancelAsked():
            return cancel(run, event, ctx)
        case PermissionsRestricted() | Granted() | Cleared() | Prolonged():
            return note(run, event, ctx)
        case (
            Replied()
            | ModelFailed()
            | TextReturned()
            | ActionsReturned()
            | StepTaken()
            | Submitted()
            | Asked()
            | Answered()
            | ResultsFormatted()
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
        case RunCreated():
            if run.version:
                raise stale(run, event, "the run exists already")
            return _wait_for_turn(run, ctx) or _enter_lanes(run, ctx, 0, back=False)
        case Admitted():
            if state.lane == TURN:
                if not ctx.tree.writer_lines.stand(ctx.spec):
                    raise stale(run, event, "it is not its turn to write")
            else:
                _take_slot(run, state, event, ctx)
            return _enter_lanes(
                run,
                ctx,
                state.lane + 1,
                back=state.back,
                purpose=state.purpose,
                progress=state.kept,
            )
        case Woke():
            return out_of_time(run, ctx) or waited_too_long(run, ctx)
        case Recovered():
            if state.lane == TURN and not ctx.tree.writer_lines.stand(ctx.spec):
                return stop_recovery(run, event, ctx) or again(run, event)
            if TURN < state.lane < len(ctx.request.lanes) and ctx.tree.is_waiting(
                run.id, ctx.request.lanes[state.lane]
            ):
                return again(run, event)
            return stop_recovery(run, event, ctx) or _enter_lanes(
                again(run, event),
                ctx,
                0,
                back=state.back,
                purpose=state.purpose,
                progress=state.kept,
            )
        case Afforded():
            raise stale(run, event)
        case _:
            assert_never(event)


def _wait_for_turn(run: Run, ctx: StepContext) -> Run | None:
    """The run as it waits until others have changed files, if it has to."""
    is_its_turn = ctx.tree.writer_lines.stand(ctx.spec)
    return None if is_its_turn else replace(run, state=Queued(lane=TURN))


def _take_slot(run: Run, state: Queued, event: Admitted, ctx: StepContext) -> None:
    """The slot is the run's, if it is the one that it waits for."""
    is_shared = state.lane < len(ctx.request.lanes) and ctx.request.lanes[state.lane].is_shared
    ids = ctx.tree.asked if is_shared else ctx.tree.granted
    if run.id not in ids or (is_shared and event.ticket != state.ticket):
        raise stale(run, event, "no slot was given to it")
    ids.discard(run.id)


def _enter_lanes(
    run: Run,
    ctx: StepContext,
    first: int,
    *,
    back: bool,
    purpose: Purpose = "turn",
    progress: Kept = NEW_CALL,
) -> Run:
    lanes = ctx.request.lanes
    n_lanes = ctx.tree.enter(run.id, lanes, first, back=back)
    if n_lanes < len(lanes):
        return queue(run, ctx, n_lanes, back=back, purpose=purpose, progress=progress)
    return go_on(
        holding_slots(run, ctx.now) if back else _start(run, ctx), ctx, purpose, progress=progress
    )


def _start(run: Run, ctx: StepContext) -> Run:
    """The run has its slots, and the clocks that count from the start begin here."""
    if run.started_at is not None:
        return holding_slots(run, ctx.now)
    request = ctx.request
    deadline = run.deadline
    if request.timeout_from == "start" and request.timeout_ms is not None:
        deadline = sooner(deadline, ctx.now + request.timeout_ms)
    if request.budget.seconds is not None:
        deadline = sooner(deadline, ctx.now + round(request.budget.seconds * 1000))
    return replace(run, state=idle(run, ctx.now), started_at=ctx.now, deadline=deadline)


def short(run: Run, state: Short, event: StateEvent, ctx: StepContext) -> Run:
    """In line at an account: when that is decided, it continues with the same call or ends."""
    if not isinstance(event, OF_LINES):
        return _in_line(run, event, ctx)
    match event:
        case Afforded():
            if run.id not in ctx.tree.ledger.waits:
                raise stale(run, event, "it waits for nothing in the ledger")
            ctx.tree.ledger.leave(run.id)
            return resume(run, ctx, state.purpose, progress=state.kept)
        case Woke():
            return (
                out_of_time(run, ctx) or _unanswered(run, state, ctx) or waited_too_long(run, ctx)
            )
        case Recovered():
            if run.id in ctx.tree.ledger.waits:
                return again(run, event)
            return stop_recovery(run, event, ctx) or _stand_again(again(run, event), state, ctx)
        case RunCreated() | Admitted():
            raise stale(run, event)
        case _:
            assert_never(event)


def _stand_again(run: Run, state: Short, ctx: StepContext) -> Run:
    """After a restart: who waits for an answer waits on, no longer than before. Who waited for
    others asks anew."""
    ledger = ctx.tree.ledger
    if not state.asks or ledger.accounts[state.account].on_limit != "ask":
        return resume(run, ctx, state.purpose, progress=state.kept)
    ask = HoldRequest(state.need, state.last, state.purpose not in ("turn", "compact"), state.lack)
    ledger.wait(run.id, ask, state.kept.ticket, Verdict("short", state.account, state.lack))
    ledger.ease(state.account)  # it may have been decided before any run was resumed
    return run


def _unanswered(run: Run, state: Short, ctx: StepContext) -> Run | None:
    """No one has answered within the longest wait: the limit stops asking, and the run takes its
    last turn. A run that queues after the one that asked waits as long as that one."""
    if run.wake_at is None or run.wake_at > ctx.now:
        return None
    askers = (
        id
        for (account, _), runs in ctx.tree.asking.items()
        if account == state.account
        for id in runs
    )
    asker = run if state.asks else ctx.tree.runs.get(next(askers, ""))
    if asker is None:
        return None
    if asker.wake_at is not None and asker.wake_at > ctx.now:
        return replace(run, wake_at=sooner(run.deadline, asker.wake_at))
    ctx.tree.ledger.leave(run.id)
    ctx.tree.ledger.set_on_limit(state.account, "land")
    return resume(run, ctx, state.purpose, progress=state.kept)
