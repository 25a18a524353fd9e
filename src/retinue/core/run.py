"""One run: a function for each state, each of which takes every event or refuses it.

Theory of operation. A run is always in one of eight states. `Queued` and `Short` wait for their turn: for slots in
lanes, or for budget that others hold. `Thinking` has a model call under way (or one that is tried again at `retry_at`).
A reply with calls leads to `Working`, while any of its tools runs; to `Asking`, while none runs and a person has to
answer; to `Waiting`, while only children are out, or while there is nothing to do until mail comes. A reply without
calls leads to the end, which `Stopping` delays until children have ended and a stopped call is paid for. `Ended` is
final.

*Seated* is a run that holds a slot in each of its lanes: `Thinking`, and `Working` but for one that gave its slots back
while it waited for a permission. `desk.seated` is the moment between two acts of such a run: an idle `Thinking` that
holds nothing. An event carries what fences it off from older ones: the attempt for model calls, turn and index for
tools, a ticket for slots.

Rules of this file: it decides and never acts; a check that can refuse stands before the first change; an event that a
state does not take raises `InvalidTransition`, which the engine records as stale. There are no wildcard arms: a new
event does not type-check until every state has decided about it.
"""

from __future__ import annotations

import json
from typing import assert_never

from msgspec.structs import replace

from retinue.core import questions as asking
from retinue.core import spawn
from retinue.core.admission import queued, short
from retinue.core.calls import close_call, close_composed, detach, keep_waiting, let_rest, resume, settle, stir
from retinue.core.children import cancel, child_at_calls, news, note, stale
from retinue.core.ending import book_estimate, conclude, finish, pay_for_broken_off, take_along
from retinue.core.events import (
    Aborted,
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
    RunEvent,
    StateEvent,
    Submitted,
    ToolReturned,
    Woke,
)
from retinue.core.notices import fill
from retinue.core.reply import abandon, take_failure, take_reply
from retinue.core.restarts import again, out_of_time, recover_calls, stop_recovery, waited_too_long
from retinue.core.state import (
    Asking,
    Calls,
    Ended,
    Queued,
    Run,
    Short,
    Stopping,
    Thinking,
    Waiting,
    Working,
    account_refusal,
)
from retinue.core.step_context import StepContext, seated
from retinue.core.turn import next_turn, post, think, try_again
from retinue.core.values import Artifact, Result
from retinue.errors import Refused


def step(run: Run, event: RunEvent, d: StepContext) -> Run:
    """One event through the machine."""
    if isinstance(event, Aborted):
        return pay_for_broken_off(run, d, event)
    if isinstance(event, Recovered):
        run = _pay_after_restart(run, event, d)
    match run.state:
        case Queued():
            return queued(run, run.state, event, d)
        case Thinking():
            return _thinking(run, run.state, event, d)
        case Short():
            return short(run, run.state, event, d)
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


def _pay_after_restart(run: Run, event: Recovered, d: StepContext) -> Run:
    """Nobody will say any more what calls have cost that were stopped before the process died."""
    for lost in run.broken_off:
        if lost.attempt in event.unsent:
            d.tree.ledger.release(run.id, lost.hold)
        else:
            run = book_estimate(run, d, lost.hold)
    return replace(run, broken_off=()) if run.broken_off else run


def _thinking(run: Run, state: Thinking, event: StateEvent, d: StepContext) -> Run:
    match event:
        case Replied():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise stale(run, event, f"attempt {event.attempt} is not the current one")
            return take_reply(run if event.work is None else replace(run, work=event.work), state, event, d)
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
            return cancel(run, event, d)
        case Narrowed() | Granted() | Cleared() | Prolonged():
            return note(run, event, d)
        case Woke():
            ended = out_of_time(run, d)
            if ended is not None:
                return ended
            if state.retry_at is not None and event.early:
                fresh = replace(state, tries=0, waits_for="", waits_kind="", patient_until=None)
                return try_again(run, d, fresh)
            if state.retry_at is not None and state.retry_at <= d.now:
                return try_again(run, d, state)
            return run if state.retry_at is not None else waited_too_long(run, d)
        case Recovered():
            return _recover_thinking(run, state, event, d)
        case (
            Enlisted()
            | Admitted()
            | Afforded()
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


def _recover_thinking(run: Run, state: Thinking, event: Recovered, d: StepContext) -> Run:
    if event.attempt != state.attempt:
        return again(run, event)
    if state.retry_at is not None:
        # A new process may have been given another key.
        stopped, is_refused = stop_recovery(run, event, d), account_refusal(run) == "auth"
        return stopped or (try_again(again(run, event), d, state) if is_refused else again(run, event))
    stopped = stop_recovery(run, event, d)
    if stopped is not None:
        return stopped
    run = again(run, event)
    if state.attempt in event.unsent:
        d.tree.ledger.release(run.id, state.hold)
    else:
        # The lost attempt may have been paid for: its bound is booked, and the new one is held beside it.
        run = book_estimate(run, d, state.hold)
    return think(seated(run, d.now), d, state.purpose)


def _at_calls(run: Run, calls: Calls, event: StateEvent, d: StepContext) -> Run:
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
                composing = d.tree.is_composing(run.id, index)
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
            return cancel(run, event, d)
        case Narrowed() | Granted() | Cleared() | Prolonged():
            return note(run, event, d)
        case Woke():
            ended = out_of_time(run, d)
            stirred = run if ended is not None else stir(run, d)
            return ended or (waited_too_long(run, d) if stirred is run else stirred)
        case Recovered():
            return recover_calls(run, calls, event, d)
        case Enlisted() | Admitted() | Afforded() | Replied() | ModelFailed():
            raise stale(run, event)
        case _:
            assert_never(event)


def _must_be(run: Run, event: RunEvent, bits: int, turn: int, index: int) -> None:
    if turn != run.turn or index < 0 or not bits >> index & 1:
        raise stale(run, event, f"call {index} of turn {turn} is not open for it")


def _take_orders(run: Run, calls: Calls, event: Ordered, d: StepContext) -> Run:
    orders = event.orders
    try:
        planned = spawn.plan(run, d, event)
        spawn.check_words(run, d, orders.sends, orders.cancels)
    except Refused as refusal:
        text = orders.refusals.get(refusal.limit) or orders.refusals.get("") or "Refused ({limit}): {why}"
        quoted = json.dumps(str(refusal), ensure_ascii=False)[1:-1]
        text = fill(text, {"limit": refusal.limit, "why": str(refusal), "json": quoted})
        return close_call(
            run, d, calls, event.index, Result(call_id=event.call_id, name=event.name, text=text, error=True)
        )
    spawn.speak(run, d, event)
    calls = replace(calls, pause=calls.pause or orders.pause)
    if planned:
        run = spawn.hire(run, d, event, planned)
        if planned[0][0].order.join != "none":
            return settle(replace(run, suspicion=None), d, let_rest(calls, event.index))
    if orders.wait is not None:
        return keep_waiting(run, d, calls, event, orders.wait)
    ids = ", ".join(spec.id for spec, _ in planned)
    text = orders.answer if orders.answer is not None else f"Started: {ids}" if ids else "Done."
    return close_call(run, d, calls, event.index, Result(call_id=event.call_id, name=event.name, text=text))


def _take_submission(run: Run, event: Submitted, d: StepContext) -> Run:
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


def _idle(run: Run, state: Waiting, event: StateEvent, d: StepContext) -> Run:
    """Waiting for mail: a host, a paused turn, or a run that stays for its children."""
    match event:
        case Posted():
            return resume(post(run, event.mail, d), d)
        case ChildEnded():
            run = news(run, event, d)
            silent = not d.tree.has_mail(run.id) and (d.order.host or d.has_children(run))
            return run if silent or (state.all and d.stays(run)) else resume(run, d)
        case CancelAsked():
            return cancel(run, event, d)
        case Narrowed() | Granted() | Cleared() | Prolonged():
            return note(run, event, d)
        case Woke():
            return out_of_time(run, d) or waited_too_long(run, d)
        case Recovered():
            stopped = stop_recovery(run, event, d)
            if stopped is not None:
                return stopped
            found, is_silent = again(run, event), not d.tree.has_mail(run.id) or (state.all and d.stays(run))
            return found if is_silent else resume(found, d)
        case (
            Enlisted()
            | Admitted()
            | Afforded()
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


def _stopping(run: Run, state: Stopping, event: StateEvent, d: StepContext) -> Run:
    match event:
        case ChildEnded():
            run = news(run, event, d)
            is_held = run.broken_off or d.holds_back(run, all=state.all)
            return run if is_held else conclude(run, d, state.ending)
        case Posted():
            return post(run, event.mail, d)
        case CancelAsked() | Narrowed() | Granted() | Woke() | Cleared() | Prolonged():
            return run
        case Recovered():
            if not d.holds_back(run, all=state.all):
                return conclude(run, d, state.ending)
            for child in d.children(run) if state.all else d.bound(run):
                d.tell(child, take_along(run, state.ending))
            return run
        case (
            Enlisted()
            | Admitted()
            | Afforded()
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
