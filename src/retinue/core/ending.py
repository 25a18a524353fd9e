"""The end of a run: children are told or kept, holds go back, slots are freed, whoever waits is told, once."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from retinue.core.desk import Desk
from retinue.core.effects import Abort, Deliver
from retinue.core.events import Admitted, CancelAsked, ChildEnded
from retinue.core.state import Asking, Ended, Queued, Run, Stopping, Thinking, Waiting, Working
from retinue.core.text import clip, digest
from retinue.core.values import Delivery, End, Ending, Usage


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
    ending = Ending(
        state=state,
        stop=stop,
        text=clip(text, d.rules.text_cap, run.spilled[-1].path if run.spilled else ""),
        error=error,
        data=data,
        artifacts=run.spilled,
        last_tool=run.last_tool,
        at=d.now,
    )
    run = let_go(run, d)
    # A cancel reaches also those whom an ended child has left behind; an ordinary end leaves them alone.
    cancelled = state in ("cancelled", "timed_out")
    live = list(d.roster.below(run.id)) if cancelled else d.children(run) if d.order.orphans != "keep" else []
    for child in live:
        d.tell(child, CancelAsked(by=run.id, reason=f"the parent ended: {stop}"))
    if live and d.has_children(run):
        return replace(run, state=Stopping(ending=ending), wake_at=None)
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
            held = len(lanes)
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
    run = replace(run, state=Ended(ending=ending), wake_at=None, deadline=None, said="", gathered="", spilled=())
    if roster.is_live(spec.parent):
        d.tell(spec.parent, ChildEnded(child=run.id))
    _announce(run, d, ending)
    return run


def _announce(run: Run, d: Desk, ending: Ending) -> None:
    spec, order = d.spec, d.order
    if not order.announce or not spec.origin.channel:
        return
    skipped = order.report == "announce" and bool(order.skip_token) and ending.text.strip() == order.skip_token
    delivery = Delivery(
        key=digest(run.id, "completion"),
        run=run.id,
        root=spec.root,
        path=spec.path,
        discard=spec.parent if order.retention == "delete" else "",
        origin=spec.origin,
        text=describe(spec.order.label or spec.order.agent, ending, d.rules.mail_cap),
        state="suppressed" if skipped else "pending",
        next_at=d.now,
    )
    d.roster.changes.deliveries[delivery.key] = delivery
    if not skipped:
        d.roster.deliveries[delivery.key] = delivery
        d.perform(Deliver(key=delivery.key, at=d.now))


def describe(name: str, ending: Ending, cap: int) -> str:
    """A child's end in words, for mail and for announcements. The state is the runtime's, never the model's."""
    if ending.state == "completed":
        return clip(ending.text, cap)
    head = f"{name} {ending.state.replace('_', ' ')} ({ending.stop})"
    if ending.error:
        head += f": {ending.error}"
    return clip(f"{head}\nText so far: {ending.text}" if ending.text else head, cap)
