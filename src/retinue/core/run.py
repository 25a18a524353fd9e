"""One run: a function for each state, each of which takes every event or refuses it.

Rules of this file: it decides and never acts; a check that can refuse stands before the first change; an event that a
state does not take raises `InvalidTransition`, which the engine records as stale. There are no wildcard arms: a new event
does not type-check until every state has decided about it.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core import policy, spawn
from retinue.core.calls import (
    child_joined,
    close_call,
    close_recovered,
    detach,
    dispatch,
    queue,
    resume,
    settle,
    start_tool,
)
from retinue.core.desk import Desk
from retinue.core.effects import Abort, Outcome
from retinue.core.ending import book_estimate, conclude, describe, finish
from retinue.core.events import (
    Admitted,
    Answered,
    Asked,
    CancelAsked,
    ChildEnded,
    Composed,
    Enlisted,
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
from retinue.core.state import (
    Asking,
    Breaker,
    Calls,
    Ended,
    Queued,
    Run,
    Stopping,
    Thinking,
    Waiting,
    Working,
)
from retinue.core.turn import (
    ANNOUNCE,
    SUMMARY,
    await_mail,
    call_model,
    next_turn,
    prompt_bound,
    relist_children,
    sooner,
    think,
)
from retinue.core.values import Artifact, Mail, Result, User, digest
from retinue.errors import InvalidTransition, Refused

UNKNOWN = "Interrupted by a restart: this call may or may not have taken effect. Check before you repeat it. (outcome_unknown)"


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
            return _idle(run, event, d)
        case Stopping():
            return _stopping(run, run.state, event, d)
        case Ended():
            raise _stale(run, event)
        case _:
            assert_never(run.state)


def _stale(run: Run, event: RunEvent, why: str = "") -> InvalidTransition:
    state = type(run.state).__name__
    return InvalidTransition(f"{type(event).__name__} cannot reach a run that is {state}{': ' + why if why else ''}")


def _queued(run: Run, state: Queued, event: RunEvent, d: Desk) -> Run:
    match event:
        case Enlisted():
            return _enter_lanes(run, d, 0, back=False)
        case Admitted():
            if run.id not in d.roster.granted:
                raise _stale(run, event, "no slot was given to it")
            d.roster.granted.discard(run.id)
            return _enter_lanes(run, d, state.lane + 1, back=state.back)
        case ChildEnded():
            return _news(run, event, d)
        case Posted():
            return _post(run, event.mail, d)
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Woke():
            return _out_of_time(run, d) or replace(run, wake_at=sooner(run.deadline, d.now + d.rules.wait_ms))
        case Recovered():
            return _stop_recovery(run, event, d) or _enter_lanes(_again(run), d, 0, back=state.back)
        case Replied() | ModelFailed() | ToolReturned() | Ordered() | Submitted() | Asked() | Answered() | Composed():
            raise _stale(run, event)
        case _:
            assert_never(event)


def _enter_lanes(run: Run, d: Desk, first: int, *, back: bool) -> Run:
    lanes = d.order.lanes
    held = d.roster.acquire(run.id, lanes, first, back=back)
    if held < len(lanes):
        return queue(run, d, held, back=back)
    return next_turn(run if back else _start(run, d), d)


def _start(run: Run, d: Desk) -> Run:
    """The clocks that count from the start begin here."""
    if run.started_at is not None:
        return run
    order = d.order
    limits = [run.deadline]
    if order.clock == "start" and order.timeout_ms is not None:
        limits.append(d.now + order.timeout_ms)
    if order.budget.seconds is not None:
        limits.append(d.now + round(order.budget.seconds * 1000))
    return replace(run, started_at=d.now, deadline=sooner(*limits))


def _thinking(run: Run, state: Thinking, event: RunEvent, d: Desk) -> Run:
    match event:
        case Replied():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise _stale(run, event, f"attempt {event.attempt} is not the current one")
            return _take_reply(run, state, event, d)
        case ModelFailed():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise _stale(run, event, f"attempt {event.attempt} is not the current one")
            return _take_failure(run, state, event, d)
        case ChildEnded():
            return _news(run, event, d)
        case Posted():
            run = _post(run, event.mail, d)
            if not event.mail.steer or state.purpose not in ("turn", "compact"):
                return run
            return next_turn(_abandon(run, state, d), d)
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Woke():
            ended = _out_of_time(run, d)
            if ended is not None:
                return ended
            if state.retry_at is not None and state.retry_at <= d.now:
                return call_model(run, d, state)
            return replace(run, wake_at=sooner(run.deadline, state.retry_at or d.now + d.rules.wait_ms))
        case Recovered():
            if state.retry_at is not None:
                return _stop_recovery(run, event, d) or _again(run)
            stopped = _stop_recovery(run, event, d, in_flight=True)
            if stopped is not None:
                return stopped
            # The lost attempt may have been paid for: its bound is booked, and the new one is held beside it.
            return think(book_estimate(_again(run, in_flight=True), d, state.hold), d, state.purpose)
        case Enlisted() | Admitted() | ToolReturned() | Ordered() | Submitted() | Asked() | Answered() | Composed():
            raise _stale(run, event)
        case _:
            assert_never(event)


def _abandon(run: Run, state: Thinking, d: Desk) -> Run:
    """Break off a model call; what it may have cost is booked."""
    if state.retry_at is not None:
        d.roster.ledger.release(run.id, state.hold)
        return run
    d.perform(Abort(run=run.id))
    return book_estimate(run, d, state.hold)


def _take_reply(run: Run, state: Thinking, event: Replied, d: Desk) -> Run:
    reply, said = event.reply, event.reply.message
    used = reply.usage
    nanos = used.nanos or d.model.cost(used.input, used.output)
    used = replace(used, nanos=nanos, turns=1)
    d.roster.ledger.settle(run.id, state.hold, (used.input + used.output, nanos, 1, 0))
    known = used.input + used.output or prompt_bound(run, d)
    spilled = run.spilled
    if event.spilled is not None:
        sha, n = event.spilled
        spilled = (Artifact(path=sha, bytes=n, sha256=sha),)
    elif said.text:
        spilled = ()
    run = replace(
        run,
        turn=run.turn + 1,
        usage=run.usage.plus(used),
        said=said.text or run.said,
        spilled=spilled,
        model_used=reply.model or d.spec.model,
        deaths=0,
    )
    run = replace(d.append(run, said), context=known, fresh=0)
    if reply.stop == "refusal":
        return finish(run, d, "failed", "refused", error=said.text or "the model refused")
    if state.purpose == "compact":
        return next_turn(relist_children(run, d, said.text or run.said), d)
    if said.calls:
        return _take_calls(run, state, event, d)
    if not said.text.strip():
        return _take_silence(run, state, d)
    return _take_text(run, state, event, d)


def _take_calls(run: Run, state: Thinking, event: Replied, d: Desk) -> Run:
    said = event.reply.message
    cut = event.reply.stop == "length"
    match state.purpose:
        case "turn":
            return dispatch(run, d, said, cut=cut)
        case "grace":
            if len(said.calls) == 1 and said.calls[0].name in d.definition.submits and not cut:
                return dispatch(run, d, said, cut=False)
            return finish(run, d, "incomplete", "turn_limit")
        case "final":
            return finish(run, d, "incomplete", "budget")
        case "summary" | "announce":
            return finish(run, d, "incomplete", "no_report")
        case "compact":
            raise AssertionError("a compaction is taken before its calls are read")
        case _:
            assert_never(state.purpose)


def _take_silence(run: Run, state: Thinking, d: Desk) -> Run:
    """Nothing said, nothing called: ask again, then admit that there is no output."""
    if run.empty >= d.rules.empty_replies or state.purpose == "final":
        return finish(run, d, "failed", "empty", error="the model returned no text")
    run = replace(run, empty=run.empty + 1)
    return think(d.append(run, User(text="Your reply was empty. Answer now.", kind="nudge")), d, state.purpose)


def _take_text(run: Run, state: Thinking, event: Replied, d: Desk) -> Run:
    """The run has nothing more to do, unless news waits, its report is a turn of its own, or it must stay."""
    order, text = d.order, event.reply.message.text
    if event.reply.stop == "length":
        return finish(run, d, "incomplete", "length", text=text)
    if state.purpose == "final":
        return finish(run, d, "incomplete", "budget", text=text)
    if state.purpose == "grace":
        return finish(run, d, "incomplete", "turn_limit", text=text)
    if state.purpose in ("summary", "announce"):
        return finish(run, d, "completed", "done", text=text)
    if d.roster.has_mail(run.id):
        return next_turn(run, d)
    if order.orphans == "wait" and d.children(run):
        return _rest(run, d)
    if order.report in ("summary", "announce"):
        prompt = order.report_prompt or (SUMMARY if order.report == "summary" else ANNOUNCE)
        run = d.append(replace(run, summarised=True), User(text=prompt, kind="nudge"))
        return think(run, d, "summary" if order.report == "summary" else "announce")
    if order.host:
        return _rest(run, d)
    return finish(run, d, "completed", "done", text=text)


def _rest(run: Run, d: Desk) -> Run:
    from retinue.core.ending import free_slots

    free_slots(run, d)
    return await_mail(run, d)


def _take_failure(run: Run, state: Thinking, event: ModelFailed, d: Desk) -> Run:
    retry = d.order.retry
    tries = state.tries + 1
    if event.retry and tries < retry.attempts:
        ceiling = min(retry.cap_ms, retry.base_ms << min(tries - 1, 20))
        jitter = int(digest(run.id, run.attempt, "jitter")[:8], 16) % (ceiling + 1)
        at = d.now + max(event.after_ms, 0) + jitter
        return replace(run, state=replace(state, tries=tries, retry_at=at), wake_at=sooner(run.deadline, at))
    d.roster.ledger.release(run.id, state.hold)
    run = replace(run, state=replace(state, retry_at=d.now))
    state = replace(state, hold=(0, 0, 0, 0), retry_at=d.now)
    run = replace(run, state=state)
    if event.kind == "context_exhausted" and state.purpose == "turn" and run.length - run.start > 4:
        return think(run, d, "compact")
    error = f"Failed after {tries} attempts: {event.message}" if event.retry else event.message
    return finish(run, d, "failed", event.kind, error=error)


def _at_calls(run: Run, calls: Calls, event: RunEvent, d: Desk) -> Run:
    """Working, Waiting for joined children, or Asking."""
    match event:
        case ToolReturned():
            _must_be(run, event, calls.tools, event.turn, event.index)
            if event.spilled is not None:
                run = replace(run, last_tool=event.name)
            result = Result(call_id=event.call_id, name=event.name, text=event.text, error=event.error)
            return close_call(run, d, calls, event.index, result)
        case Ordered():
            _must_be(run, event, calls.tools, event.turn, event.index)
            return _take_orders(run, calls, event, d)
        case Submitted():
            _must_be(run, event, calls.tools, event.turn, event.index)
            return _take_submission(run, event, d)
        case Asked():
            _must_be(run, event, calls.tools, event.turn, event.index)
            bit = 1 << event.index
            return settle(run, d, replace(calls, tools=calls.tools & ~bit, asks=calls.asks | bit))
        case Answered():
            _must_be(run, event, calls.asks, event.turn, event.index)
            return close_call(run, d, calls, event.index, Result(call_id=event.call_id, text=event.text))
        case Composed():
            for index, _, _, _ in event.calls:
                _must_be(run, event, calls.open & ~calls.tools & ~calls.asks, event.turn, index)
            for index, call_id, name, text in event.calls:
                run = d.append(run, Result(call_id=call_id, name=name, text=text, error=event.error))
                calls = replace(calls, open=calls.open & ~(1 << index))
            return settle(run, d, calls)
        case ChildEnded():
            return _child_at_calls(run, calls, event, d)
        case Posted():
            run = _post(run, event.mail, d)
            return detach(run, d, calls) if event.mail.steer else run
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Woke():
            return _out_of_time(run, d) or _waited_too_long(run, d)
        case Recovered():
            return _recover_calls(run, calls, event, d)
        case Enlisted() | Admitted() | Replied() | ModelFailed():
            raise _stale(run, event)
        case _:
            assert_never(event)


def _must_be(run: Run, event: RunEvent, bits: int, turn: int, index: int) -> None:
    if turn != run.turn or index < 0 or not bits >> index & 1:
        raise _stale(run, event, f"call {index} of turn {turn} is not open for it")


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
    spawn.speak(run, d, orders.sends, orders.cancels)
    calls = replace(calls, pause=calls.pause or orders.pause)
    if planned:
        run = spawn.hire(run, d, event, planned)
        if planned[0][0].order.join != "none":
            run = replace(run, deaths=0)
            return settle(run, d, replace(calls, tools=calls.tools & ~(1 << event.index)))
    ids = ", ".join(spec.id for spec, _ in planned)
    text = orders.answer if orders.answer is not None else f"Started: {ids}" if ids else "Done."
    return close_call(run, d, calls, event.index, Result(call_id=event.call_id, name=event.name, text=text))


def _take_submission(run: Run, event: Submitted, d: Desk) -> Run:
    """The run is over by its own word; its history still gets the result that the call asks for."""
    run = d.append(run, Result(call_id=event.call_id, name=event.name, text="Recorded."))
    if event.spilled is not None:
        sha, n = event.spilled
        run = replace(run, spilled=(Artifact(path=sha, bytes=n, sha256=sha),))
    else:
        run = replace(run, spilled=())
    if event.ok:
        return finish(run, d, "completed", "submitted", text=event.text, data=event.data)
    return finish(run, d, "failed", "sub_agent_error", error=event.text)


def _child_at_calls(run: Run, calls: Calls, event: ChildEnded, d: Desk) -> Run:
    outcome = _outcome(run, event, d)
    slot = d.roster.specs[event.child].slot
    fan_in = d.roster.fans.get(run.id)
    if slot is not None and fan_in is not None and slot.turn == run.turn:
        fan = fan_in.fans.get(slot.index)
        if fan is not None and event.child in fan.pending:
            run = _count_failure(run, outcome, d)
            d.roster.dismiss(event.child)
            return child_joined(run, d, calls, slot.index, outcome)
    return _news(run, event, d)


def _outcome(run: Run, event: ChildEnded, d: Desk) -> Outcome:
    """The child's end, from its own row. A child that is unknown, or was counted before, is refused."""
    child, spec = d.roster.runs.get(event.child), d.roster.specs.get(event.child)
    if child is None or spec is None or spec.parent != run.id or not isinstance(child.state, Ended):
        raise _stale(run, event, f"{event.child} is not an ended child that is still to be counted")
    return Outcome(
        id=spec.id,
        label=spec.order.label or spec.order.agent,
        task=spec.order.task,
        item=spec.slot.item if spec.slot else 0,
        ending=child.state.ending,
        usage=child.usage,
        created_at=spec.created_at,
    )


def _news(run: Run, event: ChildEnded, d: Desk) -> Run:
    """A child that nobody joined has ended: its parent hears of it by mail."""
    outcome = _outcome(run, event, d)
    run = _count_failure(run, outcome, d)
    d.roster.dismiss(event.child)
    text = describe(outcome.label, outcome.ending, d.rules.mail_cap)
    return _post(run, Mail(seq=0, text=text, sender=event.child, kind="news"), d)


def _count_failure(run: Run, outcome: Outcome, d: Desk) -> Run:
    """Equal failures in a row open the breaker; any other end closes it."""
    ending = outcome.ending
    if ending.state != "failed":
        return replace(run, breaker=None) if run.breaker is not None and ending.state == "completed" else run
    signature = ending.stop if not ending.error else f"{ending.stop}: {ending.error[:80]}"
    last = run.breaker
    count = last.count + 1 if last is not None and last.signature == signature else 1
    until = d.now + d.rules.breaker_ms if count >= d.rules.breaker_after else 0
    return replace(run, breaker=Breaker(signature=signature, count=count, until=until))


def _post(run: Run, mail: Mail, d: Desk) -> Run:
    """Into the mailbox. The number is the receiver's: it orders everything that reaches it."""
    run = replace(run, mail_seq=run.mail_seq + 1)
    d.roster.post(run.id, replace(mail, seq=run.mail_seq))
    return run


def _idle(run: Run, event: RunEvent, d: Desk) -> Run:
    """Waiting for mail: a host, a paused turn, or a run that stays for its children."""
    match event:
        case Posted():
            return resume(_post(run, event.mail, d), d)
        case ChildEnded():
            run = _news(run, event, d)
            hold_on = d.order.orphans == "wait" and not d.order.host and d.children(run)
            return run if hold_on else resume(run, d)
        case CancelAsked():
            return _cancel(run, event, d)
        case Narrowed():
            return _narrow(run, event, d)
        case Woke():
            return _out_of_time(run, d) or _waited_too_long(run, d)
        case Recovered():
            stopped = _stop_recovery(run, event, d)
            if stopped is not None:
                return stopped
            return resume(_again(run), d) if d.roster.has_mail(run.id) and not d.children(run) else _again(run)
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
            | Composed()
        ):
            raise _stale(run, event)
        case _:
            assert_never(event)


def _stopping(run: Run, state: Stopping, event: RunEvent, d: Desk) -> Run:
    match event:
        case ChildEnded():
            run = _news(run, event, d)
            return run if d.children(run) else conclude(run, d, state.ending)
        case Posted():
            return _post(run, event.mail, d)
        case CancelAsked() | Narrowed() | Woke():
            return run
        case Recovered():
            if not d.children(run):
                return conclude(run, d, state.ending)
            for child in d.children(run):
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
            | Composed()
        ):
            raise _stale(run, event)
        case _:
            assert_never(event)


def _cancel(run: Run, event: CancelAsked, d: Desk) -> Run:
    return finish(run, d, "cancelled", "cancelled", error=event.reason or f"cancelled by {event.by or 'the user'}")


def _narrow(run: Run, event: Narrowed, d: Desk) -> Run:
    return replace(run, access=policy.narrow(d.access(run), event.access))


def _out_of_time(run: Run, d: Desk) -> Run | None:
    if run.deadline is None or run.deadline > d.now:
        return None
    return finish(run, d, "timed_out", "deadline", error="the deadline passed")


def _waited_too_long(run: Run, d: Desk) -> Run:
    state = run.state
    until = state.until if isinstance(state, (Waiting, Asking)) else (run.wake_at or 0)
    if until > d.now:
        return replace(run, wake_at=sooner(run.deadline, until))
    if isinstance(state, Waiting) and state.calls is None and run.said:
        return finish(run, d, "completed", "idle")
    return finish(run, d, "timed_out", "waited_too_long", error="nothing came within the longest wait that is allowed")


def _again(run: Run, *, in_flight: bool = False) -> Run:
    return replace(run, restarts=run.restarts + 1, deaths=run.deaths + 1 if in_flight else run.deaths)


def _stop_recovery(run: Run, event: Recovered, d: Desk, *, in_flight: bool = False) -> Run | None:
    """Why a run is not taken up again after a restart: it asked not to be, it is too old, or it keeps killing us."""
    rules, order = d.rules, d.order
    lost = replace(run, state=Waiting()) if not isinstance(run.state, Thinking) else run
    if order.on_restart == "fail":
        return finish(lost, d, "interrupted", "restart", error="the process died while the run was open")
    if d.now - d.spec.created_at > rules.max_age_ms:
        return finish(lost, d, "interrupted", "too_old", error="the run was too old to be taken up again")
    if run.restarts >= rules.max_restarts:
        return finish(lost, d, "interrupted", "restarts", error=f"the run was restarted {run.restarts} times")
    if in_flight and run.deaths + 1 >= rules.max_deaths:
        error = f"the process died {run.deaths + 1} times in a row with this run in flight"
        return finish(lost, d, "interrupted", "quarantined", error=error)
    return None


def _recover_calls(run: Run, calls: Calls, event: Recovered, d: Desk) -> Run:
    """Tools that were under way are repeated, looked after, or reported as unknown: by their class, never by luck."""
    stopped = _stop_recovery(run, event, d, in_flight=bool(calls.tools))
    if stopped is not None:
        return stopped
    run = _again(run, in_flight=bool(calls.tools))
    for found in event.calls:
        bit = 1 << found.index
        if not calls.tools & bit:
            continue
        if found.restart == "unsafe":
            result = Result(call_id=found.call.id, name=found.call.name, text=UNKNOWN, error=True)
            run = d.append(run, result)
            calls = replace(calls, open=calls.open & ~bit, tools=calls.tools & ~bit)
        else:
            start_tool(run, d, found.index, found.call, again=True)
    run, calls = close_recovered(run, d, calls)
    return settle(run, d, calls)
