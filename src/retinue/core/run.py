"""One run: a function for each state, each of which takes every event or refuses it.

Rules of this file: it decides and never acts; a check that can refuse stands before the first change; an event that a
state does not take raises `InvalidTransition`, which the engine records as stale. There are no wildcard arms: a new
event does not type-check until every state has decided about it.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core import asking, policy, spawn
from retinue.core.calls import (
    close_call,
    close_composed,
    detach,
    keep_waiting,
    let_rest,
    queue,
    resume,
    settle,
    stir,
)
from retinue.core.desk import Desk, seated
from retinue.core.ending import book_estimate, conclude, finish
from retinue.core.events import (
    Admitted,
    Answered,
    Asked,
    CancelAsked,
    ChildEnded,
    Composed,
    Decided,
    Enlisted,
    Granted,
    ModelFailed,
    Narrowed,
    Ordered,
    Posted,
    Recovered,
    Replied,
    RunEvent,
    Submitted,
    ToolReturned,
    Woke,
)
from retinue.core.kin import child_at_calls, news, post, stale
from retinue.core.recovery import again, out_of_time, recover_calls, stop_recovery, waited_too_long
from retinue.core.reply import abandon, take_failure, take_reply
from retinue.core.state import Asking, Calls, Ended, Queued, Run, Stopping, Thinking, Waiting, Working
from retinue.core.turn import call_model, next_turn, sooner, think
from retinue.core.values import Artifact, Result
from retinue.errors import Refused


def step(run: Run, event: RunEvent, d: Desk) -> Run:
    """One event through the machine."""
    match run.state:
        case Queued():
            return _queued(run, run.state, event, d)
        case Thinking():
            return _thinking(run, run.state, event, d)
        case Working():
            return _at_calls(run, run.state.calls, event, d)
        case Asking():
            return _at_calls(run, run.state.calls, event, d)
        case Waiting():
            if run.state.calls is not None:
                return _at_calls(run, run.state.calls, event, d)
            return _idle(run, run.state, event, d)
        case Stopping():
            return _stopping(run, run.state, event, d)
        case Ended():
            raise stale(run, event)
        case _:
            assert_never(run.state)


def _queued(run: Run, state: Queued, event: RunEvent, d: Desk) -> Run:
    match event:
        case Enlisted():
            if run.version:
                raise stale(run, event, "it was enlisted before")
            return _enter_lanes(run, d, 0, back=False)
        case Admitted():
            if run.id not in d.roster.granted:
                raise stale(run, event, "no slot was given to it")
            d.roster.granted.discard(run.id)
            return _enter_lanes(run, d, state.lane + 1, back=state.back)
        case ChildEnded():
            return news(run, event, d)
        case Posted():
            return post(run, event.mail, d)
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Granted():
            return _grant(run, event)
        case Woke():
            return out_of_time(run, d) or waited_too_long(run, d)
        case Recovered():
            if state.lane < len(d.order.lanes) and d.roster.waits(run.id, d.order.lanes[state.lane]):
                return again(run)
            return stop_recovery(run, event, d) or _enter_lanes(again(run), d, 0, back=state.back)
        case Replied() | ModelFailed() | ToolReturned() | Ordered() | Submitted() | Asked() | Answered() | Composed():
            raise stale(run, event)
        case Decided():
            raise stale(run, event, "it asks for no permission")
        case _:
            assert_never(event)


def _enter_lanes(run: Run, d: Desk, first: int, *, back: bool) -> Run:
    lanes = d.order.lanes
    held = d.roster.acquire(run.id, lanes, first, back=back)
    if held < len(lanes):
        return queue(run, d, held, back=back)
    return next_turn(seated(run if back else _start(run, d), d.now), d)


def _start(run: Run, d: Desk) -> Run:
    """The clocks that count from the start begin here."""
    if run.started_at is not None:
        return run
    order = d.order
    deadline = run.deadline
    if order.clock == "start" and order.timeout_ms is not None:
        deadline = sooner(deadline, d.now + order.timeout_ms)
    if order.budget.seconds is not None:
        deadline = sooner(deadline, d.now + round(order.budget.seconds * 1000))
    return replace(run, started_at=d.now, deadline=deadline)


def _thinking(run: Run, state: Thinking, event: RunEvent, d: Desk) -> Run:
    match event:
        case Replied():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise stale(run, event, f"attempt {event.attempt} is not the current one")
            return take_reply(replace(run, work=event.work or run.work), state, event, d)
        case ModelFailed():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise stale(run, event, f"attempt {event.attempt} is not the current one")
            return take_failure(run, state, event, d)
        case ChildEnded():
            return news(run, event, d)
        case Posted():
            run = post(run, event.mail, d)
            if not event.mail.steer or state.purpose not in ("turn", "compact"):
                return run
            return next_turn(abandon(run, state, d), d)
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Granted():
            return _grant(run, event)
        case Woke():
            ended = out_of_time(run, d)
            if ended is not None:
                return ended
            if state.retry_at is not None and state.retry_at <= d.now:
                return call_model(run, d, state)
            return run if state.retry_at is not None else waited_too_long(run, d)
        case Recovered():
            if event.attempt != state.attempt:
                return again(run)
            if state.retry_at is not None:
                return stop_recovery(run, event, d) or again(run)
            stopped = stop_recovery(run, event, d, in_flight=True)
            if stopped is not None:
                return stopped
            # The lost attempt may have been paid for: its bound is booked, and the new one is held beside it.
            run = book_estimate(again(run, in_flight=not event.clean), d, state.hold)
            return think(seated(run, d.now), d, state.purpose)
        case Enlisted() | Admitted() | ToolReturned() | Ordered() | Submitted() | Asked() | Answered() | Composed():
            raise stale(run, event)
        case Decided():
            raise stale(run, event, "it asks for no permission")
        case _:
            assert_never(event)


def _at_calls(run: Run, calls: Calls, event: RunEvent, d: Desk) -> Run:
    """Working, Waiting for children, or Asking."""
    busy = calls.tools | calls.woken
    match event:
        case ToolReturned():
            _must_be(run, event, busy, event.turn, event.index)
            if event.spilled is not None:
                run = replace(run, last_tool=event.name)
            result = Result(
                call_id=event.call_id, name=event.name, text=event.text, error=event.error, images=event.images
            )
            return close_call(run, d, calls, event.index, result)
        case Ordered():
            _must_be(run, event, busy, event.turn, event.index)
            return _take_orders(run, calls, event, d)
        case Submitted():
            _must_be(run, event, busy, event.turn, event.index)
            return _take_submission(run, event, d)
        case Asked():
            _must_be(run, event, busy, event.turn, event.index)
            return asking.ask(run, calls, event, d)
        case Answered():
            _must_be(run, event, calls.asks, event.turn, event.index)
            return asking.answer(run, calls, event, d)
        case Decided():
            return asking.decide(run, calls, event, d)
        case Composed():
            if len({index for index, _, _, _ in event.calls}) != len(event.calls):
                raise stale(run, event, "it answers one call twice")
            for index, _, _, _ in event.calls:
                composing = d.roster.is_composing(run.id, index)
                _must_be(run, event, calls.open if composing else 0, event.turn, index)
            return close_composed(run, d, calls, event)
        case ChildEnded():
            return stir(child_at_calls(run, calls, event, d), d)
        case Posted():
            answered = asking.hear_parent(run, calls, event.mail, d)
            if answered is not None:
                return answered
            run = post(run, event.mail, d)
            return detach(run, d, calls) if event.mail.steer else run
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Granted():
            return _grant(run, event)
        case Woke():
            ended = out_of_time(run, d)
            stirred = run if ended is not None else stir(run, d)
            return ended or (waited_too_long(run, d) if stirred is run else stirred)
        case Recovered():
            return recover_calls(run, calls, event, d)
        case Enlisted() | Admitted() | Replied() | ModelFailed():
            raise stale(run, event)
        case _:
            assert_never(event)


def _must_be(run: Run, event: RunEvent, bits: int, turn: int, index: int) -> None:
    if turn != run.turn or index < 0 or not bits >> index & 1:
        raise stale(run, event, f"call {index} of turn {turn} is not open for it")


def _take_orders(run: Run, calls: Calls, event: Ordered, d: Desk) -> Run:
    orders = event.orders
    try:
        planned = spawn.plan(run, d, event)
        spawn.check_words(run, d, orders.sends, orders.cancels)
    except Refused as refusal:
        text = orders.refusals.get(refusal.limit) or f"Refused ({refusal.limit}): {refusal}"
        return close_call(
            run, d, calls, event.index, Result(call_id=event.call_id, name=event.name, text=text, error=True)
        )
    spawn.speak(run, d, event)
    calls = replace(calls, pause=calls.pause or orders.pause)
    if planned:
        run = spawn.hire(run, d, event, planned)
        if planned[0][0].order.join != "none":
            return settle(replace(run, deaths=0), d, let_rest(calls, event.index))
    if orders.wait is not None:
        return keep_waiting(run, d, calls, event, orders.wait)
    ids = ", ".join(spec.id for spec, _ in planned)
    text = orders.answer if orders.answer is not None else f"Started: {ids}" if ids else "Done."
    return close_call(run, d, calls, event.index, Result(call_id=event.call_id, name=event.name, text=text))


def _take_submission(run: Run, event: Submitted, d: Desk) -> Run:
    """The run is over by its own word; its history still gets the result that the call asks for."""
    run = d.append(run, Result(call_id=event.call_id, name=event.name, text="Recorded."))
    run = replace(run, work=event.work or run.work)
    if event.spilled is not None:
        sha, n = event.spilled
        run = replace(run, spilled=(Artifact(path=sha, bytes=n, sha256=sha),))
    else:
        run = replace(run, spilled=())
    if event.ok:
        return finish(run, d, "completed", "submitted", text=event.text, data=event.data)
    return finish(run, d, "failed", "sub_agent_error", error=event.text)


def _idle(run: Run, state: Waiting, event: RunEvent, d: Desk) -> Run:
    """Waiting for mail: a host, a paused turn, or a run that stays for its children."""
    match event:
        case Posted():
            return resume(post(run, event.mail, d), d)
        case ChildEnded():
            run = news(run, event, d)
            silent = not d.roster.has_mail(run.id) and (d.order.host or d.has_children(run))
            return run if silent or (state.all and d.stays(run)) else resume(run, d)
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Granted():
            return _grant(run, event)
        case Woke():
            return out_of_time(run, d) or waited_too_long(run, d)
        case Recovered():
            stopped = stop_recovery(run, event, d)
            if stopped is not None:
                return stopped
            return (
                again(run) if not d.roster.has_mail(run.id) or (state.all and d.stays(run)) else resume(again(run), d)
            )
        case (
            Enlisted()
            | Admitted()
            | Replied()
            | ModelFailed()
            | ToolReturned()
            | Ordered()
            | Submitted()
            | Asked()
            | Answered()
            | Decided()
            | Composed()
        ):
            raise stale(run, event)
        case _:
            assert_never(event)


def _stopping(run: Run, state: Stopping, event: RunEvent, d: Desk) -> Run:
    match event:
        case ChildEnded():
            run = news(run, event, d)
            return run if d.holds_back(run, all=state.all) else conclude(run, d, state.ending)
        case Posted():
            return post(run, event.mail, d)
        case CancelAsked() | Narrowed() | Granted() | Woke():
            return run
        case Recovered():
            if not d.holds_back(run, all=state.all):
                return conclude(run, d, state.ending)
            for child in d.children(run) if state.all else d.bound(run):
                d.tell(child, CancelAsked(by=run.id, reason="the parent ended"))
            return run
        case (
            Enlisted()
            | Admitted()
            | Replied()
            | ModelFailed()
            | ToolReturned()
            | Ordered()
            | Submitted()
            | Asked()
            | Answered()
            | Decided()
            | Composed()
        ):
            raise stale(run, event)
        case _:
            assert_never(event)


def _cancel(run: Run, event: CancelAsked, d: Desk) -> Run:
    return finish(run, d, "cancelled", "cancelled", error=event.reason or f"cancelled by {event.by or 'the user'}")


def _grant(run: Run, event: Granted) -> Run:
    return run if event.grant in run.grants else replace(run, grants=(*run.grants, event.grant))


def _narrow(run: Run, event: Narrowed, d: Desk) -> Run:
    d.roster.narrowed = True
    return replace(run, access=policy.narrow(d.access(run), event.access))
