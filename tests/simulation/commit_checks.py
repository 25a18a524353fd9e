"""What must hold of a transaction: checked against the books when it is committed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retinue.core.changes import Changes
from retinue.core.events import (
    ActionsReturned,
    LimitChanged,
    MailReceived,
)
from retinue.core.messages import ToolMessage
from retinue.core.notices import is_known
from retinue.core.state import (
    Run,
)
from retinue.core.values import Delivery
from tests.simulation import provenance
from tests.simulation.violation import broken

if TYPE_CHECKING:
    from tests.simulation.books import Books


LIMIT = re.compile(r" asks: .* Add to the limit.*\(question ([0-9a-f]{16}) of run .*\)$")


def decided(books: Books, run: str, event: LimitChanged) -> None:
    """I10, I30: what limits were raised by; one answer to one question."""
    before = books.raised.get(run, [0, 0, 0, 0])
    books.raised[run] = [a + b for a, b in zip(before, event.add, strict=True)]
    if event.then == "ask":  # what was decided before is asked anew
        books.answered.clear()
        books.asked.clear()
    if event.question in books.answered:
        broken(f"I30 question {event.question} was answered twice")
    books.answered |= {event.question} - {""}


def asked_once(books: Books, changes: Changes) -> None:
    """I30: one question for one limit."""
    for delivery in changes.deliveries.values():
        if delivery.state != "pending" or delivery.attempts:
            continue
        question = LIMIT.search(delivery.text)
        if question is not None:
            if question[1] in books.asked:
                broken(f"I30 somebody was asked twice about one limit: {delivery.text}")
            books.asked.add(question[1])


def letters(books: Books, run: str, event: ActionsReturned, changes: Changes) -> None:
    """I3: a letter to another tree is there in the same transaction, or its sender hears why
    not."""
    results = [m for _, _, m in changes.messages if isinstance(m, ToolMessage)]
    if any(m.error for m in results if m.call_id == event.call_id):
        return  # the orders were refused, with everything in them
    posted = [
        (e.run, e.event.mail.text) for e in changes.entries if isinstance(e.event, MailReceived)
    ]
    is_back = any(to == run and text.startswith("Your message was not") for to, text in posted)
    for send in event.actions.sends:
        n = posted.count((send.to, send.text))
        if n > 1 or (n == 0 and not is_back):
            broken(f"I3 the letter {send.text} of {run} arrived {n} times, and it was not told why")


def summed_up(books: Books, delivery: Delivery) -> None:
    members = [s for s in books.children[delivery.run] if s.request.group == delivery.group]
    if any(s.id not in books.ended for s in members):
        broken(f"I4 group {delivery.group} was summed up before its last member ended")


def ended(books: Books, run: Run, changes: Changes, now: set[str]) -> None:
    """Of a run that has ended, together with the others of `now`."""
    _truthful(books, run.id, run)
    _heard_of(books, run.id, changes, now)
    why = provenance.count(books, run.id, now)
    why = why or provenance.unheard(books, run.id, books.boxes.pop(run.id, {}).values(), changes)
    if why:
        broken(why)


def _heard_of(books: Books, id: str, changes: Changes, now: set[str]) -> None:
    """I3: a result whose parent ended before it is heard by the nearest of its ancestors that
    lives."""
    spec, ending = books.specs[id], books.ended[id].state.ending  # type: ignore[union-attr]
    if (
        spec.parent not in books.ended
        or spec.parent in now
        or is_known(ending)
        or (spec.request.join == "none" and not spec.request.tell_parent)
    ):
        return
    above = books.specs[spec.parent]
    while books.is_deaf(above.id) and above.parent:
        above = books.specs[above.parent]
    if books.is_deaf(above.id) or (
        spec.request.skip_token and ending.text.strip() == spec.request.skip_token
    ):
        return
    is_there = any(to == above.id and mail.sender == id for (to, _), mail in changes.posted.items())
    read = (m for c, _, m in changes.messages if c == above.conversation)
    if not is_there and not any(getattr(m, "sender", "") == id for m in read):
        broken(f"I3 the result of {id} reached nobody, though {above.id} could have heard it")


def deleted(books: Books, changes: Changes) -> None:
    """I22: what is deleted was not to be kept, has ended, and is not needed for an open call or
    announcement."""
    for id in changes.forgotten:
        spec = books.specs[id]
        if spec.request.retention != "delete" or not spec.parent:
            broken(f"I22 {id} was deleted and should have been kept")
        kin = [s for s in books.specs.values() if s.root == spec.root]
        tree = {s.id for s in kin if f"{s.path}/".startswith(f"{spec.path}/")}
        if any(
            d.run in tree and d.state in ("pending", "sent", "dead")
            for d in books.deliveries.values()
        ):
            broken(f"I22 {id} was deleted before its announcement arrived")
        tree -= books.deleted
        books.deleted |= tree
        books.purged |= {n for n, entry in enumerate(books.log, 1) if entry.run in tree}


def _truthful(books: Books, id: str, run: Run) -> None:
    """Success has something to show; who may not be outlived is not; who was to be announced
    is."""
    ending = run.state.ending  # type: ignore[union-attr]
    if not (ending.state != "completed" or ending.text.strip()):
        broken(f"I21 {id} succeeded with nothing to show")
    spec = books.specs[id]
    if ending.stop == "quarantined":
        broken(f"I27 {id} was put aside, though it was never tried alone")
    if ending.state == "cancelled":
        cancel_event = books.cancels[id]
        if not ending.by or ending.along != (cancel_event.by if cancel_event.along else ""):
            broken(f"I7 {id} does not say who ended it: {ending.by!r}, with {ending.along!r}")
    if ending.along:
        # Whoever it ends with may still wait to hear what its stopped call has cost.
        above = books.ended.get(ending.along)
        end = books.stopping[ending.along] if above is None else above.state.ending  # type: ignore[union-attr]
        if spec.request.on_parent_end == "keep" and end.state not in ("cancelled", "timed_out"):
            broken(f"I7 {id} was cancelled with its parent, which it may outlive ({end.stop})")
        if spec.request.on_parent_end == "wait" and end.stop == "done":
            broken(f"I7 the parent of {id} was to stay for it")
    all_of_them = ending.state in ("cancelled", "timed_out")
    below = [s for s in books.children.get(id, ()) if s.id not in books.ended]
    if below:
        books.alone_by_then[id] = [
            s.id for s in below if all_of_them or s.request.on_parent_end != "keep"
        ]
    if spec.request.announce and spec.origin.channel:
        books.announced.add(id)
