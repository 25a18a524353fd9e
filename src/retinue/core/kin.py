"""Between runs: a child's end reaches its parent, joined or as news; messages reach a mailbox; failures are counted."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.calls import child_joined, remember
from retinue.core.desk import Desk
from retinue.core.effects import ChildOutcome
from retinue.core.events import ChildEnded, RunEvent
from retinue.core.orders import Spec
from retinue.core.state import Breaker, Calls, Ended, Run
from retinue.core.text import clip
from retinue.core.values import Ending, Mail
from retinue.core.words import of_parent, skipped, tell
from retinue.errors import InvalidTransition


def child_at_calls(run: Run, calls: Calls, event: ChildEnded, d: Desk) -> Run:
    outcome = _outcome(run, event, d)
    slot = d.roster.specs[event.child].slot
    fan_in = d.roster.fans.get(run.id)
    if slot is not None and fan_in is not None and slot.turn == run.turn:
        fan = fan_in.fans.get(slot.index)
        if fan is not None and event.child in fan.pending:
            run = _count_failure(run, outcome, d)
            child = d.roster.specs[event.child]
            if child.order.retention == "delete":
                fan.discard.append(child)
            d.roster.dismiss(event.child)
            return child_joined(run, d, calls, slot.index, outcome)
    return news(run, event, d)


def _outcome(run: Run, event: ChildEnded, d: Desk) -> ChildOutcome:
    """The child's end, from its own row. A child that is unknown, or was counted before, is refused."""
    child, spec = d.roster.runs.get(event.child), d.roster.specs.get(event.child)
    if child is None or spec is None or spec.parent != run.id or not isinstance(child.state, Ended):
        raise stale(run, event, f"{event.child} is not an ended child that is still to be counted")
    return child_outcome(spec, child, child.state.ending)


def child_outcome(spec: Spec, run: Run, ending: Ending) -> ChildOutcome:
    return ChildOutcome(
        id=spec.id,
        label=spec.order.label or spec.order.agent,
        task=spec.order.task,
        item=spec.slot.item if spec.slot else 0,
        ending=ending,
        usage=run.usage,
        created_at=spec.created_at,
        started_at=run.started_at or spec.created_at,
        depth=spec.depth,
        max_turns=spec.order.max_turns,
        model=run.model_used or spec.model,
    )


def news(run: Run, event: ChildEnded, d: Desk) -> Run:
    """A child that nobody joined has ended: its parent hears of it by mail, unless it asked not to."""
    outcome = _outcome(run, event, d)
    run = _count_failure(run, outcome, d)
    child, row = d.roster.specs[event.child], d.roster.runs[event.child]
    d.roster.dismiss(event.child)
    if child.order.retention == "delete":
        run = remember(run, outcome)
        d.roster.discard(child.id, child.root, child.path)
    if child.order.join == "none" and (not child.order.news or skipped(child.order, outcome.ending)):
        return run
    words = of_parent(d.definition, child)
    text = tell(words.notice, child, row, outcome.ending, d.rules.mail_cap)
    return post(run, Mail(seq=0, text=text, sender=event.child, kind="news"), d)


def _count_failure(run: Run, outcome: ChildOutcome, d: Desk) -> Run:
    """Equal failures in a row open the breaker; any other end closes it."""
    ending = outcome.ending
    if ending.state != "failed":
        return run if run.breaker is None else replace(run, breaker=None)
    signature = ending.stop if not ending.error else f"{ending.stop}: {ending.error[:80]}"
    last = run.breaker
    count = last.count + 1 if last is not None and last.signature == signature else 1
    until = d.now + d.rules.breaker_ms if count >= d.rules.breaker_after else 0
    return replace(run, breaker=Breaker(signature=signature, count=count, until=until))


def post(run: Run, mail: Mail, d: Desk) -> Run:
    """Into the mailbox. The number is the receiver's: it orders everything that reaches it."""
    run = replace(run, mail_seq=run.mail_seq + 1)
    d.roster.post(run.id, replace(mail, seq=run.mail_seq, text=clip(mail.text, d.rules.mail_cap)))
    return run


def stale(run: Run, event: RunEvent, why: str = "") -> InvalidTransition:
    state = type(run.state).__name__
    return InvalidTransition(f"{type(event).__name__} cannot reach a run that is {state}{': ' + why if why else ''}")
