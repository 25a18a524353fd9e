"""The end of a run: children are notified or kept, reserved amounts are released, slots are freed,
and every waiting run is notified once."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from retinue.core.account import Guess
from retinue.core.effects import AbortRun
from retinue.core.events import Aborted, Admitted, CancelAsked, ChildEnded, MailReceived
from retinue.core.ids import digest
from retinue.core.model_price import charged
from retinue.core.notices import child_notice, is_known, listed, skipped
from retinue.core.price_tags import reckon
from retinue.core.provenance import add, is_dismissed, note_of, total
from retinue.core.state import (
    Amounts,
    Asking,
    BrokenOff,
    ByDimension,
    Ended,
    Queued,
    Run,
    Short,
    Stopping,
    Thinking,
    Waiting,
    Working,
    asks,
    holds_slots,
)
from retinue.core.step_context import StepContext
from retinue.core.values import Delivery, Ending, EndState, Helpers, Mail, Usage, Who
from retinue.core.writers import let_next_in
from retinue.errors import InvalidTransition
from retinue.formats.fair_cut import clip

NO_HELPERS = Helpers()
ENDED_BY: dict[EndState, Who] = {
    "timed_out": "limit",
    "incomplete": "limit",
    "interrupted": "system",
}
BACK = "Results received so far:"
GONE = (
    "The agent you asked has ended. Use your best judgement, and state your assumptions "
    "in your result."
)


def finish(
    run: Run,
    ctx: StepContext,
    state: EndState,
    stop: str,
    *,
    text: str | None = None,
    error: str = "",
    data: Any = None,
    by: Who = "",
    along: str = "",
    reason: str = "",
) -> Run:
    """The run has its ending. Children end first unless they may outlive it."""
    text = _so_far(run, ctx) if text is None else text
    if state == "completed" and not text.strip():
        state, stop, error = "failed", "empty", "the run ended without any output"
    is_cut = len(text) > ctx.limits.text_cap
    text = clip(text, ctx.limits.text_cap, run.artifacts[-1].path if run.artifacts else "")
    if run.work is not None:
        is_merged = bool(ctx.request.copy_of)
        text = f"{text}\n\n{run.work.words(is_merged=is_merged)}".strip()
    ending = Ending(
        state=state,
        stop=stop,
        text=text,
        error=error,
        data=data,
        artifacts=run.artifacts,
        is_cut=is_cut,
        last_tool=run.last_tool,
        work=run.work,
        at=ctx.now,
        by=by or ENDED_BY.get(state, ""),
        along=along,
        reason=reason,
    )
    run = let_go(run, ctx)
    for child in ctx.children(run):
        if ctx.tree.specs[child].request.questions == "deny" and asks(ctx.tree.runs[child]):
            ctx.post_event(child, MailReceived(mail=Mail(seq=0, text=GONE, sender=run.id)))
    # A cancel reaches also those whom an ended child has left behind; an ordinary end leaves them
    # alone.
    cancelled = state in ("cancelled", "timed_out")
    live = list(ctx.tree.below(run.id)) if cancelled else ctx.bound(run)
    for child in live:
        ctx.post_event(child, take_along(run, ending))
    if run.broken_off or ctx.holds_back(run, all=cancelled):
        return replace(run, state=Stopping(ending=ending, all=cancelled), wake_at=None)
    return conclude(run, ctx, ending)


def _so_far(run: Run, ctx: StepContext) -> str:
    """What there is to show of a run that was cut short. Results of joined children that it had no
    turn to read are part of it, because no other run gets them."""
    fan_in = ctx.tree.fans.get(run.id)
    back = (
        tuple(o for fan in fan_in.in_order() for o in fan.in_order()) if fan_in is not None else ()
    )
    text = run.last_text or run.child_texts
    room = max(ctx.limits.text_cap - len(text) - len(BACK) - 4, ctx.limits.text_cap // 2)
    return f"{text}\n\n{BACK}\n\n{listed(back, room)}".strip() if back else text


def take_along(run: Run, ending: Ending) -> CancelAsked:
    """Runs below a run that ends, and that may not outlive it, are ended with the same cause."""
    return CancelAsked(
        by=run.id, reason=f"the parent ended: {ending.stop}", who=ending.by or "parent", along=True
    )


def let_go(run: Run, ctx: StepContext) -> Run:
    """Stop what is under way, charge what it may have cost, free the slots."""
    match run.state:
        case Thinking():
            run = break_off(run, run.state, ctx)
        case Working() | Waiting() | Asking():
            ctx.perform(AbortRun(run=run.id))
        case Short():
            ctx.tree.ledger.leave(run.id)
        case Queued() | Stopping() | Ended():
            pass
    free_slots(run, ctx)
    return run


def break_off(run: Run, state: Thinking, ctx: StepContext) -> Run:
    """Stop a model call. A call that was never sent costs nothing; otherwise its cost is reported
    later."""
    if state.retry_at is not None:
        ctx.tree.ledger.release(run.id, state.hold)
        return run
    ctx.perform(AbortRun(run=run.id, attempt=state.attempt))
    return replace(
        run,
        broken_off=(
            *run.broken_off,
            BrokenOff(attempt=state.attempt, hold=state.hold, expected=state.expected),
        ),
    )


def pay_for_broken_off(run: Run, ctx: StepContext, event: Aborted) -> Run:
    """The cost of a stopped call is known. The run may end only after that."""
    call = next((b for b in run.broken_off if b.attempt == event.attempt), None)
    if call is None:
        raise InvalidTransition(
            f"Aborted for {run.id}: attempt {event.attempt} was not stopped, or is paid for"
        )
    run = replace(run, broken_off=tuple(b for b in run.broken_off if b is not call))
    run = pay(run, ctx, call, event.usage) if event.sent else run
    if not event.sent:
        ctx.tree.ledger.release(run.id, call.hold)
    state = run.state
    if (
        isinstance(state, Stopping)
        and not run.broken_off
        and not ctx.holds_back(run, all=state.all)
    ):
        return conclude(run, ctx, state.ending)
    return run


def pay(run: Run, ctx: StepContext, call: BrokenOff, usage: Usage | None) -> Run:
    """A call that has left and came to nothing: what it is known to have cost, or its bound."""
    hold = call.hold
    if usage is None:
        return book_estimate(run, ctx, hold)
    used = within(charged(ctx.model, usage), hold, turns=hold[2])
    ctx.tree.ledger.settle(
        run.id, hold, (min(hold[0], used.tokens), used.nanos, hold[2], hold[3]), guess(used, ctx)
    )
    return reckon(replace(run, usage=run.usage.plus(used)), ctx, used, call.expected)


def within(usage: Usage, hold: Amounts, turns: int = 0) -> Usage:
    """What a call that came to nothing has cost: no more than was held for it."""
    nanos = min(hold[1], usage.nanos)
    return replace(
        usage, nanos=nanos, nanos_estimated=min(nanos, usage.nanos_estimated), turns=turns, calls=0
    )


def guess(usage: Usage, ctx: StepContext) -> Guess:
    """What of it is not known exactly."""
    model = ctx.model
    is_priced = model.price_in is not None and model.price_out is not None
    return (usage.estimated, usage.nanos_estimated, 0 if is_priced else usage.tokens)


def book_estimate(run: Run, ctx: StepContext, hold: tuple[int, int, int, int]) -> Run:
    """A call that was sent and never answered has an unknown cost, so its upper bound is
    charged."""
    bound = ByDimension(*hold)
    used = Usage(
        estimated=bound.tokens,
        nanos=bound.nanos,
        nanos_estimated=bound.nanos,
        turns=bound.turns,
        calls=bound.calls,
    )
    ctx.tree.ledger.settle(run.id, hold, hold, guess(used, ctx))
    return replace(run, usage=run.usage.plus(used))


def free_slots(run: Run, ctx: StepContext) -> None:
    """Give back what the run holds in its lanes and wake those who waited for it."""
    tree, lanes = ctx.tree, ctx.request.lanes
    if not lanes:
        return
    match run.state:
        case Thinking() | Working():
            n_lanes = len(lanes) if holds_slots(run) else 0
        case Queued(lane=lane) if lane < 0:
            return  # it waits for its turn to write, and holds nothing
        case Queued(lane=lane):
            n_lanes = lane + tree.leave_queue(run.id, lanes[lane])
        case Short() | Waiting() | Asking() | Stopping() | Ended():
            return
    for promoted in tree.give_back(run.id, lanes[:n_lanes]):
        ctx.post_event(promoted, Admitted())


def conclude(run: Run, ctx: StepContext, ending: Ending) -> Run:
    """Terminal. The parent's news is part of this transaction."""
    spec, tree = ctx.spec, ctx.tree
    tree.ledger.close(run.id)
    tree.leave_group(spec)
    let_next_in(ctx)
    helpers = _rests_on(run, ctx)
    ending = ending if helpers == NO_HELPERS else replace(ending, helpers=helpers)
    run = replace(
        run,
        state=Ended(ending=ending),
        defect="",  # it may end before it was resumed
        wake_at=None,
        deadline=None,
        last_text="",
        child_texts="",
        artifacts=(),
        work=None,
        helpers=NO_HELPERS,
    )
    for mail in ctx.tree.mail.get(run.id, ()):
        if mail.kind == "news":
            send_on(ctx, mail, is_quiet=ending.state == "cancelled")
    if tree.is_live(spec.parent):
        ctx.post_event(spec.parent, ChildEnded(child=run.id))
    elif spec.parent:
        pass_on(run, ctx, ending)
    _announce(run, ctx, ending)
    return run


def pass_on(run: Run, ctx: StepContext, ending: Ending) -> None:
    """The run's parent has ended. Its result goes to the nearest open run above, to the run that
    continues the conversation of its root, or to the channel that asked for the work."""
    request = ctx.request
    if (
        is_known(ending)
        or skipped(request, ending)
        or (request.join == "none" and not request.tell_parent)
    ):
        return
    text = child_notice(ctx.words.notice, ctx.spec, run, ending, ctx.limits.mail_cap)
    mail = Mail(
        seq=0,
        text=text,
        sender=run.id,
        kind="news",
        note=note_of(ending),
        announced=request.announce,
    )
    send_on(ctx, mail)


def send_on(ctx: StepContext, mail: Mail, *, is_quiet: bool = False) -> None:
    """A notice about this run, or one that it will no longer read, goes to the nearest open run
    above, or to the run that continues the conversation of the root; otherwise to the channel that
    asked for the work, unless the work was cancelled."""
    above = ctx.tree.nearest(ctx.spec.parent)
    if above:
        ctx.post_event(above, MailReceived(mail=mail))
    elif ctx.tree.successor:
        ctx.tree.letters.append((ctx.tree.successor, MailReceived(mail=mail), mail.sender))
    elif not (mail.announced or is_quiet or _is_called_off(ctx)):
        ctx.say(mail.text, "passed on", mail.sender, note=mail.note)


def _is_called_off(ctx: StepContext) -> bool:
    """Whether a run above this one is being cancelled."""
    above = ctx.tree.specs.get(ctx.spec.parent)
    while above is not None:
        run = ctx.tree.runs.get(above.id)
        if (
            run is not None
            and isinstance(run.state, Stopping)
            and run.state.ending.state == "cancelled"
        ):
            return True
        above = ctx.tree.specs.get(above.parent)
    return False


def _rests_on(run: Run, ctx: StepContext) -> Helpers:
    """Whose work the result rests on; who is at work now will be too late for it."""
    helpers, out = run.helpers, []
    for id in ctx.children(run) if ctx.tree.children.get(run.id) else ():
        spec, child = ctx.tree.specs[id], ctx.tree.runs[id]
        label = spec.request.label or spec.request.agent
        if not isinstance(child.state, Ended):
            out += [] if spec.request.stay_open else [(label, id)]
        elif not is_dismissed(spec.request, child.state.ending):
            helpers = add(helpers, label, id, child.state.ending)
    return total(helpers, run.n_children, out)


def _announce(run: Run, ctx: StepContext, ending: Ending) -> None:
    """Tell the channel that asked, also that the run's group is complete."""
    spec, request, tree = ctx.spec, ctx.request, ctx.tree
    if not request.announce or not spec.origin.channel:
        return
    is_killed = bool(ending.along)
    parent = tree.specs.get(spec.parent)
    n_ended = request.group_size - tree.n_members(spec)
    text = child_notice(ctx.words.announcement, spec, run, ending, ctx.limits.mail_cap, n_ended)
    quiet = is_killed or skipped(request, ending) or not text
    delivery = Delivery(
        key=digest(run.id, "completion"),
        run=run.id,
        root=spec.root,
        path=spec.path,
        discard=spec.parent if request.retention == "delete" else "",
        origin=spec.origin,
        text=text,
        note=note_of(ending),
        state="suppressed" if quiet else "pending",
        next_at=ctx.now,
    )
    ctx.dispatch(delivery)
    if request.group_size and n_ended == request.group_size and not is_killed:
        assert parent is not None and spec.parent_call is not None
        ctx.dispatch(
            Delivery(
                key=digest(parent.id, request.group_kind, request.group, "summary"),
                run=parent.id,
                root=spec.root,
                path=parent.path,
                origin=spec.origin,
                text="",
                group=request.group,
                tool=spec.parent_call.tool,
                next_at=ctx.now,
            )
        )
