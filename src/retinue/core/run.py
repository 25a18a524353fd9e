"""One run: a function for each state, each of which takes every event or refuses it.

Theory of operation. A run is always in one of eight states. `Queued` and `Short` wait for their
turn: for slots in lanes, or for budget that others hold. `Thinking` has a model call under way (or
one that is tried again at `retry_at`). A reply with calls leads to `Working`, while any of its
tools runs; to `Asking`, while none runs and a person has to answer; to `Waiting`, while only
children are out, or while there is nothing to do until mail comes. A reply without calls leads to
the end, which `Stopping` delays until children have ended and a stopped call is paid for. `Ended`
is final. These hold a slot in each of their lanes: `Thinking`, and `Working` but for one that gave
its slots back while it waited for a permission. `holding_slots` is the moment between two acts of
such a run: an idle `Thinking` that holds nothing. An event carries what fences it off from older
ones: the attempt for model calls, turn and index for tools, a ticket for slots.

Rules of this file: it decides and never acts; a check that can refuse comes before the first
change; an event that a state does not take raises `InvalidTransition`, which the engine records as
stale. There are no wildcard arms: a new event does not type-check until every state has decided
about it."""

from __future__ import annotations

import json
from typing import assert_never

from msgspec.structs import replace

from retinue.core import questions, run_mail, spawn
from retinue.core.admission import queued, short
from retinue.core.calls import (
    close_call,
    close_composed,
    close_merged,
    detach,
    keep_waiting,
    let_rest,
    resume,
    settle,
    stir,
)
from retinue.core.children import cancel, child_at_calls, news, note, stale
from retinue.core.copy_merges import note_merge
from retinue.core.ending import book_estimate, conclude, finish, pay_for_broken_off, take_along
from retinue.core.events import (
    Aborted,
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
    RunEvent,
    StateEvent,
    StepTaken,
    Submitted,
    TextReturned,
    Woke,
)
from retinue.core.messages import ToolMessage
from retinue.core.notices import fill
from retinue.core.reply import abandon, take_failure, take_reply, wrap_up
from retinue.core.restarts import again, out_of_time, recover_calls, stop_recovery, waited_too_long
from retinue.core.state import (
    Asking,
    Ended,
    OpenCalls,
    Queued,
    Run,
    Short,
    Stopping,
    Thinking,
    Waiting,
    Working,
    account_refusal,
    count_items,
)
from retinue.core.step_context import StepContext, holding_slots
from retinue.core.step_taking import take_step
from retinue.core.tool_steps import close_steps, go_on
from retinue.core.turn import next_turn, post, think, try_again
from retinue.core.values import Artifact
from retinue.errors import Refused


def step(run: Run, event: RunEvent, ctx: StepContext) -> Run:
    """One event through the machine."""
    if isinstance(event, Aborted):
        return pay_for_broken_off(run, ctx, event)
    if isinstance(event, Recovered):
        run = _pay_after_restart(run, event, ctx)
    match run.state:
        case Thinking() as state:
            return _thinking(run, state, event, ctx)
        case Working(calls=calls) | Asking(calls=calls):
            return _at_calls(run, calls, event, ctx)
        case Waiting(calls=calls) as state:
            if calls is not None:
                return _at_calls(run, calls, event, ctx)
            return _idle(run, state, event, ctx)
        case Queued() as state:
            return queued(run, state, event, ctx)
        case Short() as state:
            return short(run, state, event, ctx)
        case Stopping() as state:
            return _stopping(run, state, event, ctx)
        case Ended():
            raise stale(run, event)
        case _:
            assert_never(run.state)


def _pay_after_restart(run: Run, event: Recovered, ctx: StepContext) -> Run:
    """The cost of calls that were stopped before the process crashed stays unknown. A later attempt
    than the one found was made and stopped by this process, which will say it."""
    for lost_call in run.broken_off:
        if lost_call.attempt in event.unsent:
            ctx.tree.ledger.release(run.id, lost_call.hold)
        elif lost_call.attempt <= event.attempt:
            run = book_estimate(run, ctx, lost_call.hold)
    if not run.broken_off:
        return run
    return replace(run, broken_off=tuple(b for b in run.broken_off if b.attempt > event.attempt))


def _thinking(run: Run, state: Thinking, event: StateEvent, ctx: StepContext) -> Run:
    match event:
        case Replied():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise stale(run, event, f"attempt {event.attempt} is not the current one")
            return take_reply(
                run if event.work is None else replace(run, work=event.work), state, event, ctx
            )
        case ModelFailed():
            if event.attempt != state.attempt or state.retry_at is not None:
                raise stale(run, event, f"attempt {event.attempt} is not the current one")
            return take_failure(run, state, event, ctx)
        case ChildEnded():
            return news(run, event, ctx)
        case Merged():
            return note_merge(run, ctx, event)
        case MailReceived():
            run = post(run, event.mail, ctx)
            if not event.mail.steer or state.purpose not in ("turn", "compact"):
                return run
            return next_turn(abandon(run, state, ctx), ctx)
        case CancelAsked():
            return cancel(run, event, ctx)
        case PermissionsRestricted() | Granted() | Cleared() | Prolonged():
            return note(run, event, ctx)
        case Woke():
            ended = out_of_time(run, ctx)
            if ended is not None:
                return ended
            if state.retry_at is not None and event.early:
                fresh = replace(
                    state, tries=0, waits_for="", waits_kind="", trouble=None, patient_until=None
                )
                return try_again(run, ctx, fresh)
            if state.retry_at is not None and state.retry_at <= ctx.now:
                return try_again(run, ctx, state)
            return run if state.retry_at is not None else waited_too_long(run, ctx)
        case Recovered():
            return _recover_thinking(run, state, event, ctx)
        case (
            RunCreated()
            | Admitted()
            | Afforded()
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


def _recover_thinking(run: Run, state: Thinking, event: Recovered, ctx: StepContext) -> Run:
    if event.attempt != state.attempt:
        return again(run, event)
    if state.retry_at is not None:
        # A new process may have been given another key.
        stopped, is_refused = stop_recovery(run, event, ctx), account_refusal(run) == "auth"
        return stopped or (
            try_again(again(run, event), ctx, state) if is_refused else again(run, event)
        )
    stopped = stop_recovery(run, event, ctx)
    if stopped is not None:
        return stopped
    run = again(run, event)
    if state.attempt in event.unsent:
        ctx.tree.ledger.release(run.id, state.hold)
    else:
        # The lost attempt may have been paid for: its bound is booked, and the new one is held
        # beside it.
        run = book_estimate(run, ctx, state.hold)
    return think(holding_slots(run, ctx.now), ctx, state.purpose)


def _at_calls(run: Run, calls: OpenCalls, event: StateEvent, ctx: StepContext) -> Run:
    """Working, Waiting for children, or Asking."""
    busy = calls.tools | calls.woken | calls.parked
    match event:
        case TextReturned():
            _must_be(run, event, busy, event.turn, event.index)
            run, calls = close_steps(run, ctx, calls, event.index)
            return _take_result(run, calls, event, ctx)
        case ActionsReturned():
            _must_be(run, event, busy, event.turn, event.index)
            run, calls = close_steps(run, ctx, calls, event.index)
            return _take_actions(run, calls, event, ctx)
        case StepTaken():
            _must_be(run, event, busy, event.turn, event.index)
            return take_step(run, calls, event, ctx)
        case Submitted():
            _must_be(run, event, busy, event.turn, event.index)
            run, calls = close_steps(run, ctx, calls, event.index)
            return _take_submission(run, event, ctx)
        case Asked():
            _must_be(run, event, busy, event.turn, event.index)
            run, calls = close_steps(run, ctx, calls, event.index)
            return questions.ask(run, calls, event, ctx)
        case Answered():
            _must_be(run, event, calls.asks, event.turn, event.index)
            return questions.answer(run, calls, event, ctx)
        case Decided():
            return questions.decide(run, calls, event, ctx)
        case ResultsFormatted():
            if len({index for index, _, _, _ in event.calls}) != len(event.calls):
                raise stale(run, event, "it answers one call twice")
            for index, _, _, _ in event.calls:
                composing = ctx.tree.is_composing(run.id, index)
                _must_be(run, event, calls.open if composing else 0, event.turn, index)
            return close_composed(run, ctx, calls, event)
        case Merged():
            return close_merged(run, ctx, calls, event)
        case ChildEnded():
            return go_on(stir(child_at_calls(run, calls, event, ctx), ctx), ctx)
        case MailReceived():
            answered = questions.take_parent_answer(run, calls, event.mail, ctx)
            if answered is not None:
                return answered
            run = post(run, event.mail, ctx)
            return detach(run, ctx, calls) if event.mail.steer else run
        case CancelAsked():
            return cancel(run, event, ctx)
        case PermissionsRestricted() | Granted() | Cleared() | Prolonged():
            return note(run, event, ctx)
        case Woke():
            ended = out_of_time(run, ctx)
            stirred = run if ended is not None else stir(run, ctx)
            return ended or (waited_too_long(run, ctx) if stirred is run else stirred)
        case Recovered():
            return recover_calls(run, calls, event, ctx)
        case RunCreated() | Admitted() | Afforded() | Replied() | ModelFailed():
            raise stale(run, event)
        case _:
            assert_never(event)


def _take_result(run: Run, calls: OpenCalls, event: TextReturned, ctx: StepContext) -> Run:
    if event.spilled is not None:
        run = replace(run, last_tool=event.name)
    result = ToolMessage(
        call_id=event.call_id,
        name=event.name,
        text=event.text,
        error=event.error,
        images=event.images,
    )
    if event.error and event.name in ctx.definition.submit_tools:
        most, run = ctx.limits.rejected_results, replace(run, rejected=run.rejected + 1)
        if most is not None and run.rejected > most:
            why = f"the result was rejected {run.rejected} times, at last: {event.text}"
            run = ctx.append(run, result)
            return finish(run, ctx, "failed", "rejected_result", error=why)
    return close_call(run, ctx, calls, event.index, result)


def _must_be(run: Run, event: RunEvent, bits: int, turn: int, index: int) -> None:
    if turn != run.turn or index < 0 or not bits >> index & 1:
        raise stale(run, event, f"call {index} of turn {turn} is not open for it")


def _take_actions(run: Run, calls: OpenCalls, event: ActionsReturned, ctx: StepContext) -> Run:
    actions = event.actions
    try:
        planned = spawn.plan(run, ctx, event)
        run_mail.check_words(run, ctx, actions.sends, actions.cancels)
    except Refused as refusal:
        text = (
            actions.refusals.get(refusal.limit)
            or actions.refusals.get("")
            or "Refused ({limit}): {why}"
        )
        quoted = json.dumps(str(refusal), ensure_ascii=False)[1:-1]
        text = fill(text, {"limit": refusal.limit, "why": str(refusal), "json": quoted})
        return close_call(
            run,
            ctx,
            calls,
            event.index,
            ToolMessage(call_id=event.call_id, name=event.name, text=text, error=True),
        )
    run_mail.speak(run, ctx, event)
    calls = replace(calls, pause=calls.pause or actions.pause)
    if planned:
        run = spawn.start_children(run, ctx, event, planned)
        if planned[0][0].request.join != "none":
            return settle(replace(run, suspicion=None), ctx, let_rest(calls, event.index))
    if actions.wait is not None:
        if planned:
            calls = count_items(calls, event.index, len(planned))
        return keep_waiting(run, ctx, calls, event, actions.wait)
    ids = ", ".join(spec.id for spec, _ in planned)
    text = f"Started: {ids}" if ids else "Done."
    if actions.answer is not None:
        text = actions.answer
    return close_call(
        run, ctx, calls, event.index, ToolMessage(call_id=event.call_id, name=event.name, text=text)
    )


def _take_submission(run: Run, event: Submitted, ctx: StepContext) -> Run:
    """The run is over by its own word; its history still gets the result that the call asks for."""
    run = ctx.append(run, ToolMessage(call_id=event.call_id, name=event.name, text="Recorded."))
    run = replace(run, work=event.work or run.work)
    if event.spilled is not None:
        sha, n = event.spilled
        run = replace(run, artifacts=(Artifact(path=sha, size=n, sha256=sha),))
    else:
        run = replace(run, artifacts=())
    if event.ok:
        return finish(run, ctx, "completed", "submitted", text=event.text, data=event.data)
    return finish(run, ctx, "failed", "sub_agent_error", error=event.text)


def _idle(run: Run, state: Waiting, event: StateEvent, ctx: StepContext) -> Run:
    """Waiting for mail: a host, a paused turn, or a run that stays for its children."""
    match event:
        case MailReceived():
            return resume(post(run, event.mail, ctx), ctx)
        case Merged():
            run = note_merge(run, ctx, event)
            return resume(run, ctx) if ctx.tree.has_mail(run.id) else run
        case ChildEnded():
            run = news(run, event, ctx)
            if ctx.tree.has_mail(run.id):
                return run if state.all and ctx.stays(run) else resume(run, ctx)
            if ctx.request.stay_open or ctx.has_children(run):
                return run
            # A child without a notice was the last: the run's text is its result.
            return wrap_up(run, ctx, run.last_text, resume) if state.all else resume(run, ctx)
        case CancelAsked():
            return cancel(run, event, ctx)
        case PermissionsRestricted() | Granted() | Cleared() | Prolonged():
            return note(run, event, ctx)
        case Woke():
            return out_of_time(run, ctx) or waited_too_long(run, ctx)
        case Recovered():
            stopped = stop_recovery(run, event, ctx)
            if stopped is not None:
                return stopped
            after, is_silent = (
                again(run, event),
                not ctx.tree.has_mail(run.id) or (state.all and ctx.stays(run)),
            )
            return after if is_silent else resume(after, ctx)
        case (
            RunCreated()
            | Admitted()
            | Afforded()
            | Replied()
            | ModelFailed()
            | TextReturned()
            | ActionsReturned()
            | StepTaken()
            | Submitted()
            | Asked()
            | Answered()
            | Decided()
            | ResultsFormatted()
        ):
            raise stale(run, event)
        case _:
            assert_never(event)


def _stopping(run: Run, state: Stopping, event: StateEvent, ctx: StepContext) -> Run:
    match event:
        case ChildEnded():
            run = news(run, event, ctx)
            is_held = run.broken_off or ctx.holds_back(run, all=state.all)
            return run if is_held else conclude(run, ctx, state.ending)
        case MailReceived():
            return post(run, event.mail, ctx)
        case CancelAsked() | PermissionsRestricted() | Granted() | Woke() | Cleared() | Prolonged():
            return run
        case Recovered():
            if not run.broken_off and not ctx.holds_back(run, all=state.all):
                return conclude(run, ctx, state.ending)
            for child in ctx.children(run) if state.all else ctx.bound(run):
                ctx.post_event(child, take_along(run, state.ending))
            return run
        case (
            RunCreated()
            | Admitted()
            | Afforded()
            | Replied()
            | ModelFailed()
            | TextReturned()
            | ActionsReturned()
            | StepTaken()
            | Submitted()
            | Asked()
            | Answered()
            | Decided()
            | ResultsFormatted()
            | Merged()
        ):
            raise stale(run, event)
        case _:
            assert_never(event)
