"""Events between runs: a child's end reaches its parent as a result or as news, messages reach a
mailbox, failures are counted. Also what is requested of a run from outside: to end, to lose
permissions, or to be allowed a call that it asked about."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core.calls import child_joined, remember
from retinue.core.capabilities import narrow
from retinue.core.copy_merges import unmerged_note
from retinue.core.effects import ChildOutcome
from retinue.core.ending import finish
from retinue.core.events import (
    CancelAsked,
    ChildEnded,
    Cleared,
    Granted,
    PermissionsRestricted,
    Prolonged,
    RunEvent,
)
from retinue.core.notices import child_notice, is_known, of_parent, skipped
from retinue.core.provenance import add, is_dismissed, note_of
from retinue.core.spec import RunSpec
from retinue.core.state import Breaker, Ended, OpenCalls, Run, Thinking, calls_of
from retinue.core.step_context import StepContext
from retinue.core.suspects import cleared
from retinue.core.tool_steps import child_back
from retinue.core.turn import post, sooner
from retinue.core.values import Ending, Mail, Who
from retinue.errors import InvalidTransition

CANCELLED_BY: dict[Who, str] = {
    "": "the runtime",
    "user": "the user",
    "parent": "its parent",
    "limit": "a limit",
    "system": "the runtime",
}


def child_at_calls(run: Run, calls: OpenCalls, event: ChildEnded, ctx: StepContext) -> Run:
    outcome = _outcome(run, event, ctx)
    slot = ctx.tree.specs[event.child].parent_call
    fan_in = ctx.tree.fans.get(run.id)
    if slot is not None and fan_in is not None and slot.turn == run.turn:
        fan = fan_in.fans.get(slot.index)
        if fan is not None and event.child in fan.pending:
            child = ctx.tree.specs[event.child]
            run = _count(run, child, outcome, ctx)
            if child.request.retention == "delete":
                fan.discard[child.id] = child
            ctx.tree.dismiss(event.child)
            if fan.join == "step":
                return child_back(run, ctx, fan, child, outcome)
            return child_joined(run, ctx, calls, slot.index, outcome)
    return news(run, event, ctx)


def _outcome(run: Run, event: ChildEnded, ctx: StepContext) -> ChildOutcome:
    """The child's end, from its own row. A child that is unknown, or was counted before, is
    refused."""
    child, spec = ctx.tree.runs.get(event.child), ctx.tree.specs.get(event.child)
    if child is None or spec is None or spec.parent != run.id or not isinstance(child.state, Ended):
        raise stale(run, event, f"{event.child} is not an ended child that is still to be counted")
    return child_outcome(spec, child, child.state.ending)


def child_outcome(spec: RunSpec, run: Run, ending: Ending) -> ChildOutcome:
    return ChildOutcome(
        id=spec.id,
        label=spec.request.label or spec.request.agent,
        task=spec.request.task,
        item=spec.parent_call.item if spec.parent_call else 0,
        ending=ending,
        usage=run.usage,
        created_at=spec.created_at,
        started_at=run.started_at or spec.created_at,
        depth=spec.request.level or spec.depth,
        max_turns=spec.request.max_turns,
        model=run.model_used or spec.model,
        remark=spec.request.remark,
    )


def news(run: Run, event: ChildEnded, ctx: StepContext) -> Run:
    """A child that no call joined has ended: its parent gets a notice by mail, unless the parent
    opted out or ended the child itself."""
    outcome = _outcome(run, event, ctx)
    child, row = ctx.tree.specs[event.child], ctx.tree.runs[event.child]
    run = _count(run, child, outcome, ctx)
    ctx.tree.dismiss(event.child)
    if child.request.retention == "delete":
        run = remember(run, outcome)
        ctx.tree.discard(child.id, child.path)
    if child.request.join == "none" and (
        not child.request.tell_parent or skipped(child.request, outcome.ending)
    ):
        return run
    if is_known(outcome.ending):
        return run
    words = of_parent(ctx.definition, child)
    text = child_notice(words.notice, child, row, outcome.ending, ctx.limits.mail_cap)
    note, announced = note_of(outcome.ending), child.request.announce
    note = "\n".join(filter(None, (note, unmerged_note(child))))
    by_age = child.request.result_order == "creation"
    mail = Mail(
        seq=0,
        text=text,
        sender=event.child,
        kind="news",
        note=note,
        announced=announced,
        by_age=by_age,
    )
    return post(run, mail, ctx)


def _count(run: Run, child: RunSpec, outcome: ChildOutcome, ctx: StepContext) -> Run:
    """What a child came back with is what the run's own result rests on."""
    if not is_dismissed(child.request, outcome.ending):
        helpers = add(run.helpers, outcome.label, outcome.id, outcome.ending)
        run = run if helpers is run.helpers else replace(run, helpers=helpers)
    return _count_failure(run, child, outcome, ctx)


def _count_failure(run: Run, child: RunSpec, outcome: ChildOutcome, ctx: StepContext) -> Run:
    """Equal failures in a row open the breaker; any other end closes it. The children of one call
    were all started before the first of them failed, so their failures count once."""
    ending = outcome.ending
    if ending.state != "failed":
        return run if run.breaker is None else replace(run, breaker=None)
    signature = ending.stop if not ending.error else f"{ending.stop}: {ending.error[:80]}"
    last = run.breaker if run.breaker is not None and run.breaker.signature == signature else None
    slot = child.parent_call
    call = "" if slot is None else f"{slot.turn}.{slot.index}"
    if last is not None and call in last.calls:
        return run
    count = 1 if last is None else last.count + 1
    calls = (*(() if last is None else last.calls), call)[-ctx.limits.breaker_after :]
    until = ctx.now + ctx.limits.breaker_ms if count >= ctx.limits.breaker_after else 0
    return replace(run, breaker=Breaker(signature=signature, count=count, until=until, calls=calls))


def stale(run: Run, event: RunEvent, why: str = "") -> InvalidTransition:
    state = type(run.state).__name__
    return InvalidTransition(
        f"{type(event).__name__} cannot reach a run that is {state}{': ' + why if why else ''}"
    )


def cancel(run: Run, event: CancelAsked, ctx: StepContext) -> Run:
    who: Who = event.who or ("parent" if event.by else "user")
    error = event.reason or f"cancelled by {CANCELLED_BY[who]}"
    return finish(
        run,
        ctx,
        "cancelled",
        "cancelled",
        error=error,
        by=who,
        along=event.by if event.along else "",
        reason=event.reason,
    )


def note(
    run: Run, event: PermissionsRestricted | Granted | Cleared | Prolonged, ctx: StepContext
) -> Run:
    """What may be done is changed, and what is known; not what is being done."""
    match event:
        case PermissionsRestricted():
            ctx.tree.narrowed = True
            return replace(run, permissions=narrow(ctx.access(run), event.permissions))
        case Granted():
            return (
                run
                if event.grant in run.grants
                else replace(run, grants=(*run.grants, event.grant))
            )
        case Cleared():
            return run if run.suspicion is None else replace(run, suspicion=cleared(run))
        case Prolonged():
            return _prolong(run, event, ctx)
        case _:
            assert_never(event)


def _prolong(run: Run, event: Prolonged, ctx: StepContext) -> Run:
    """A run with another deadline has it from elsewhere, and so have all runs below it."""
    if run.deadline != event.deadline:
        return run
    for child in ctx.tree.below(run.id):
        ctx.post_event(child, event)
    run = replace(run, deadline=event.until)
    if run.wake_at != event.deadline:
        return run
    state, calls = run.state, calls_of(run)
    wake_at = sooner(event.until, ctx.now + ctx.patience(state))
    if isinstance(state, Thinking):
        wake_at = sooner(wake_at, state.retry_at)
    for watch in calls.waits if calls is not None else ():
        if calls is not None and not calls.woken >> watch.index & 1:
            wake_at = sooner(wake_at, watch.until)
    return replace(run, wake_at=wake_at)
