"""A reply as it comes from a model, before it becomes an event: without what cannot be written, and
without secrets in the names of its calls."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.ids import digest
from retinue.core.messages import Reply
from retinue.core.redaction import Redactor
from retinue.formats.safe_text import clean


def clean_reply(reply: Reply, redactor: Redactor) -> Reply:
    """What cannot be written is half a character, and stands only where not all is ASCII."""
    said = reply.message
    is_plain = said.text.isascii() and said.opaque.isascii() and reply.model.isascii()
    for call in said.calls:
        is_plain = is_plain and (call.id + call.name + call.args).isascii()
    if not is_plain:
        calls = tuple(
            replace(c, id=clean(c.id), name=clean(c.name), args=clean(c.args)) for c in said.calls
        )
        said = replace(said, text=clean(said.text), calls=calls, opaque=clean(said.opaque))
        reply = replace(reply, message=said, model=clean(reply.model))
    return _own_ids(reply, redactor) if said.calls and redactor.knows else reply


def _own_ids(reply: Reply, redactor: Redactor) -> Reply:
    """What names a call is not cleaned later, so that it stays the same: a secret in it goes
    here."""
    said, hidden = reply.message, redactor.clean
    if all(hidden(c.id) is c.id for c in said.calls):
        return reply
    calls = tuple(
        c if hidden(c.id) is c.id else replace(c, id=f"call_{digest(c.id)[:16]}")
        for c in said.calls
    )
    return replace(reply, message=replace(said, calls=calls))
