"""The end of a run: children are told or kept, holds go back, slots are freed, whoever waits is told, once."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from retinue.core.desk import Desk
from retinue.core.effects import Abort
from retinue.core.events import Admitted, CancelAsked, ChildEnded, Posted
from retinue.core.state import Asking, Ended, Queued, Run, Stopping, Thinking, Waiting, Working, asks, is_seated
from retinue.core.text import clip, digest
from retinue.core.values import Delivery, End, Ending, Mail, Usage
from retinue.core.words import skipped, tell

GONE = "Whoever you asked has ended. Go on with your best judgement, and say in your result what you assumed."


def finish(
    run: Run,
    d: Desk,
    state: End,
    stop: str,
    *,
    text: str | None = None,
    error: str = "",
    data: Any = None,
) -> Run:
    """The run has its ending. Children end first unless they may outlive it."""
    text = run.said or run.gathered if text is None else text
    if state == "completed" and not text.strip():
        state, stop, error = "failed", "empty", "the run ended without any output"
    if run.work is not None:
        text = f"{text}\n\n{run.work.words}".strip()
    ending = Ending(
        state=state,
        stop=stop,
        text=clip(text, d.rules.text_cap, run.spilled[-1].path if run.spilled else ""),
        error=error,
        data=data,
        artifacts=run.spilled,
        last_tool=run.last_tool,
        work=run.work,
        at=d.now,
    )
    run = let_go(run, d)
    for child in d.children(run):
        if d.roster.specs[child].order.questions == "deny" and asks(d.roster.runs[child]):
            d.tell(child, Posted(mail=Mail(seq=0, text=GONE, sender=run.id)))
    # A cancel reaches also those whom an ended child has left behind; an ordinary end leaves them alone.
    cancelled = state in ("cancelled", "timed_out")
    live = list(d.roster.below(run.id)) if cancelled else d.bound(run)
    for child in live:
        d.tell(child, CancelAsked(by=run.id, reason=f"the parent ended: {stop}"))
    if d.holds_back(run, all=cancelled):
        return replace(run, state=Stopping(ending=ending, all=cancelled), wake_at=None)
    return conclude(run, d, ending)


def let_go(run: Run, d: Desk) -> Run:
    """Stop what is under way, book what it may have cost, free the slots."""
    match run.state:
        case Thinking(hold=hold, retry_at=retry_at):
            if retry_at is None:
                d.perform(Abort(run=run.id))
                run = book_estimate(run, d, hold)
            else:
                d.roster.ledger.release(run.id, hold)
        case Working() | Waiting() | Asking():
            d.perform(Abort(run=run.id))
        case Queued() | Stopping() | Ended():
            pass
    free_slots(run, d)
    return run


def book_estimate(run: Run, d: Desk, hold: tuple[int, int, int, int]) -> Run:
    """A call that was sent and never answered: nobody knows what it cost, so the bound is booked."""
    tokens, nanos, turns, calls = hold
    d.roster.ledger.settle(run.id, hold, hold)
    return replace(run, usage=run.usage.plus(Usage(estimated=tokens, nanos=nanos, turns=turns, calls=calls)))


def free_slots(run: Run, d: Desk) -> None:
    """Give back what the run holds in its lanes and wake those who waited for it."""
    roster, lanes = d.roster, d.order.lanes
    if not lanes:
        return
    match run.state:
        case Thinking() | Working():
            held = len(lanes) if is_seated(run) else 0
        case Queued(lane=lane):
            held = lane
            if run.id in roster.granted:
                roster.granted.discard(run.id)
                held += 1
            else:
                roster.leave_queue(run.id, lanes[lane])
        case Waiting() | Asking() | Stopping() | Ended():
            return
    for promoted in roster.release(lanes[:held]):
        d.tell(promoted, Admitted())


def conclude(run: Run, d: Desk, ending: Ending) -> Run:
    """Terminal. The parent's news is part of this transaction."""
    spec, roster = d.spec, d.roster
    roster.ledger.close(run.id)
    roster.leave_group(spec)
    run = replace(
        run, state=Ended(ending=ending), wake_at=None, deadline=None, said="", gathered="", spilled=(), work=None
    )
    if roster.is_live(spec.parent):
        d.tell(spec.parent, ChildEnded(child=run.id))
    _announce(run, d, ending)
    return run


def _announce(run: Run, d: Desk, ending: Ending) -> None:
    """Tell the channel that asked, also that the run's group is complete."""
    spec, order, roster = d.spec, d.order, d.roster
    if not order.announce or not spec.origin.channel:
        return
    parent = roster.specs.get(spec.parent)
    done = order.group_size - roster.n_members(spec)
    quiet = skipped(order, ending)
    delivery = Delivery(
        key=digest(run.id, "completion"),
        run=run.id,
        root=spec.root,
        path=spec.path,
        discard=spec.parent if order.retention == "delete" else "",
        origin=spec.origin,
        text=tell(d.words.announcement, spec, run, ending, d.rules.mail_cap, done),
        state="suppressed" if quiet else "pending",
        next_at=d.now,
    )
    d.dispatch(delivery)
    if order.group_size and done == order.group_size:
        assert parent is not None and spec.slot is not None
        d.dispatch(
            Delivery(
                key=digest(parent.id, order.group_kind, order.group, "summary"),
                run=parent.id,
                root=spec.root,
                path=parent.path,
                origin=spec.origin,
                text="",
                group=order.group,
                tool=spec.slot.tool,
                next_at=d.now,
            )
        )
