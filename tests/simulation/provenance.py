"""I28 and a part of I3: who did not return is counted for whoever reads the result, and what a run
had no time to read is read by another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from retinue.core.changes import Changes
from retinue.core.ids import digest
from retinue.core.messages import Message, UserMessage
from retinue.core.notices import is_known, skipped
from retinue.core.provenance import is_dismissed, provenance_text
from retinue.core.values import Ending, Mail

if TYPE_CHECKING:
    from tests.simulation.books import Books


def end_of(books: Books, id: str) -> Ending:
    return books.ended[id].state.ending  # type: ignore[union-attr]


def count(books: Books, id: str, now: set[str]) -> str:
    """What is wrong with the count of helpers in the end of a run, "" when nothing is. `now` are
    those who have ended in the same transaction."""
    helpers = end_of(books, id).helpers
    n = [0, 0, 0]
    for spec in books.children.get(id, ()):
        if spec.id in now and spec.id not in books.told.get(id, ()):
            return ""  # both ended in one transaction, and who was first cannot be seen from here
        n[0] += 1
        if spec.id not in books.ended:
            n[1] += not spec.request.stay_open
            continue
        ending = end_of(books, spec.id)
        if is_dismissed(spec.request, ending):
            continue
        if ending.state in ("completed", "incomplete"):
            n[0] += ending.helpers.n_started
            n[1] += ending.helpers.n_lost
            n[2] += ending.helpers.n_partial + (ending.state == "incomplete")
        else:
            n[1] += 1
    if n != [helpers.n_started, helpers.n_lost, helpers.n_partial]:
        return f"I28 {id} rests on {n} (started, lost, partial) and tells {helpers}"
    named, most = len(helpers.lost), helpers.n_lost + helpers.n_partial
    return "" if named == min(5, most) else f"I28 {id} names {named} of {most}"


def untold(books: Books, id: str, mine: Iterable[Message], unread: set[str]) -> str:
    """Which child's missing helpers its parent has not read of in words of the runtime, "" when it
    has of all."""
    text = None
    for child in books.told.get(id, ()):
        order, ending = books.specs[child].request, end_of(books, child)
        is_silent = (
            is_known(ending)
            or skipped(order, ending)
            or (order.join == "none" and not order.tell_parent)
        )
        if is_silent or child in unread or ending.helpers.is_whole:
            continue
        if text is None:
            notes = (m for m in mine if isinstance(m, UserMessage) and m.kind in ("note", "news"))
            text = "\n".join(m.text for m in notes)
        if provenance_text(ending.helpers) not in text and "more of these" not in text:
            return f"I28 {id} was not told who is missing behind the result of {child}"
    return ""


def unheard(books: Books, id: str, box: Iterable[Mail], changes: Changes) -> str:
    """I3: which news of an ended run nobody reads, "" when somebody reads all of it."""
    box = [mail for mail in box if mail.kind == "news"]
    if not box:
        return ""
    spec = books.specs[id]
    ends, requests = [end_of(books, id)], set[str]()
    above = books.specs.get(spec.parent)
    while above is not None and books.is_deaf(above.id):
        # It may have heard of it in this very transaction, and have ended since.
        requests |= {
            getattr(m, "sender", "") for c, _, m in changes.messages if c == above.conversation
        }
        ends.append(
            end_of(books, above.id) if above.id in books.ended else books.stopping[above.id]
        )
        above = books.specs.get(above.parent)
    for mail in box:
        if mail.sender in requests:
            continue
        if above is not None:
            is_there = any(
                to == above.id and m.sender == mail.sender for (to, _), m in changes.posted.items()
            )
            read = (m for c, _, m in changes.messages if c == above.conversation)
            if not is_there and not any(getattr(m, "sender", "") == mail.sender for m in read):
                return f"I3 {above.id} was not told of {mail.sender}, of whom {id} had not read"
        elif (
            spec.origin.channel
            and not mail.announced
            and not any(e.state == "cancelled" for e in ends)
        ):
            roots = [spec.id, *(s.id for s in books.specs.values() if s.root == spec.root)]
            if not any(
                digest(run, "passed on", mail.sender) in changes.deliveries for run in roots
            ):
                return f"I3 nobody was told of {mail.sender}, of whom {id} had not read"
    return ""
