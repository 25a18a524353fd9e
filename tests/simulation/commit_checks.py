"""What must hold of a transaction: checked against the books when it is committed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retinue.core.changes import Changes
from retinue.core.events import (
    LimitChanged,
    LogEntry,
    Ordered,
    Posted,
)
from retinue.core.messages import Result
from retinue.core.notices import is_known
from retinue.core.state import (
    Run,
)
from tests.simulation.violation import broken, must

if TYPE_CHECKING:
    from tests.simulation.books import Books


LIMIT = re.compile(r" asks: .* Add to the limit.*\(question ([0-9a-f]{16}) of run .*\)$")


def decided(books: Books, changes: Changes) -> None:
    """I10, I30: what limits were raised by; one question for one limit, and one answer to
    it."""
    for entry in changes.entries:
        event = entry.event
        if isinstance(event, LimitChanged) and not entry.stale:
            known = books.raised.setdefault(entry.run, [0, 0, 0, 0])
            if event.then == "ask":  # what was decided before is asked anew
                books.answered.clear()
                books.asked.clear()
            books.raised[entry.run] = [a + b for a, b in zip(known, event.add, strict=True)]
            if event.question in books.answered:
                broken(f"I30 question {event.question} was answered twice")
            books.answered |= {event.question} - {""}
    for delivery in changes.deliveries.values():
        if (
            (asked := LIMIT.search(delivery.text))
            and delivery.state == "pending"
            and not delivery.attempts
        ):
            if asked[1] in books.asked:
                broken(f"I30 somebody was asked twice about one limit: {delivery.text}")
            books.asked.add(asked[1])


def letters(books: Books, changes: Changes) -> None:
    for entry in changes.entries:
        if isinstance(entry.event, Ordered) and entry.event.orders.sends and not entry.stale:
            must(not (why := _unsent(books, entry, changes)), why)


def _unsent(books: Books, entry: LogEntry, changes: Changes) -> str:
    """I3: a letter to another tree is there in the same transaction, or its sender hears why
    not."""
    event = entry.event
    assert isinstance(event, Ordered)
    answers = [
        m for _, _, m in changes.messages if isinstance(m, Result) and m.call_id == event.call_id
    ]
    if any(m.error for m in answers):
        return ""  # the orders were refused, with everything in them
    posted = [e for e in changes.entries if isinstance(e.event, Posted)]
    for send in event.orders.sends:
        arrived = [e for e in posted if e.run == send.to and e.event.mail.text == send.text]  # type: ignore[union-attr]
        back = [
            e
            for e in posted
            if e.run == entry.run and e.event.mail.text.startswith("Your message was not")
        ]  # type: ignore[union-attr]
        if len(arrived) + bool(back) < 1 or len(arrived) > 1:
            return (
                f"I3 the letter {send.text} of {entry.run} arrived {len(arrived)} times, "
                "and it was not told why"
            )
    return ""


def heard_of(books: Books, id: str, changes: Changes, before: set[str]) -> None:
    """I3: a result whose parent ended before it is heard by the nearest of its ancestors that
    lives."""
    spec, ending = books.specs[id], books.ended[id].state.ending  # type: ignore[union-attr]
    if (
        spec.parent not in before
        or is_known(ending)
        or (spec.order.join == "none" and not spec.order.news)
    ):
        return
    above = books.specs[spec.parent]
    deaf = books.ended.keys() | books.stopping.keys()
    while above.id in deaf and above.parent:
        above = books.specs[above.parent]
    if above.id in deaf or (spec.order.skip_token and ending.text.strip() == spec.order.skip_token):
        return
    got = any(to == above.id and mail.sender == id for (to, _), mail in changes.posted.items())
    read = (m for c, _, m in changes.messages if c == above.conversation)
    if not got and not any(getattr(m, "sender", "") == id for m in read):
        broken(f"I3 the result of {id} reached nobody, though {above.id} could have heard it")


def deleted(books: Books, changes: Changes) -> None:
    """I22: what is deleted was not to be kept, has ended, and is not needed for an open call or
    announcement."""
    for id in changes.forgotten:
        spec = books.specs[id]
        if spec.order.retention != "delete" or not spec.parent:
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


def truthful(books: Books, id: str, run: Run) -> None:
    """Success has something to show; who may not be outlived is not; who was to be announced
    is."""
    ending = run.state.ending  # type: ignore[union-attr]
    if not (ending.state != "completed" or ending.text.strip()):
        broken(f"I21 {id} succeeded with nothing to show")
    spec = books.specs[id]
    if ending.stop == "quarantined":
        broken(f"I27 {id} was put aside, though it was never tried alone")
    if ending.state == "cancelled":
        asked = books.cancels[id]
        if not ending.by or ending.along != (asked.by if asked.along else ""):
            broken(f"I7 {id} does not say who ended it: {ending.by!r}, with {ending.along!r}")
    if ending.along:
        # Whoever it ends with may still wait to hear what its stopped call has cost.
        above = books.ended.get(ending.along)
        end = books.stopping[ending.along] if above is None else above.state.ending  # type: ignore[union-attr]
        if spec.order.bond == "keep" and end.state not in ("cancelled", "timed_out"):
            broken(f"I7 {id} was cancelled with its parent, which it may outlive ({end.stop})")
        if spec.order.bond == "wait" and end.stop == "done":
            broken(f"I7 the parent of {id} was to stay for it")
    all_of_them = ending.state in ("cancelled", "timed_out")
    below = [s for s in books.specs.values() if s.parent == id and s.id not in books.ended]
    books.alone_by_then[id] = [s.id for s in below if all_of_them or s.order.bond != "keep"]
    if spec.order.announce and spec.origin.channel:
        books.announced.add(id)
