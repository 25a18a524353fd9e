"""Cleans a model's reply before it becomes an event: removes what cannot be stored, and secrets in
the names of its calls."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.ids import digest
from retinue.core.messages import ModelReply
from retinue.core.redaction import Redactor
from retinue.errors import ModelError
from retinue.formats.safe_text import clean


def whole_reply(returned: object) -> ModelReply:
    """What a model has returned, if it is a reply."""
    if isinstance(returned, ModelReply):
        return returned
    raise ModelError(
        f"The model returned {plain_name(returned)}. `complete` returns a "
        "ModelReply(message=AssistantMessage(text=...)).",
        kind="bad_response",
    )


def plain_name(value: object) -> str:
    return "None" if value is None else f"a value of the type {type(value).__name__}"


def clean_reply(reply: ModelReply, redactor: Redactor) -> ModelReply:
    """Only half a character cannot be written, and only text that is not all ASCII can have one."""
    message = reply.message
    is_plain = message.text.isascii() and message.opaque.isascii() and reply.model.isascii()
    for call in message.calls:
        is_plain = is_plain and (call.id + call.name + call.arguments_json).isascii()
    if not is_plain:
        calls = tuple(
            replace(c, id=clean(c.id), name=clean(c.name), arguments_json=clean(c.arguments_json))
            for c in message.calls
        )
        message = replace(
            message, text=clean(message.text), calls=calls, opaque=clean(message.opaque)
        )
        reply = replace(reply, message=message, model=clean(reply.model))
    return _own_ids(reply, redactor) if message.calls and redactor.knows else reply


def _own_ids(reply: ModelReply, redactor: Redactor) -> ModelReply:
    """What names a call is not cleaned later, so that it stays the same: a secret in it goes
    here."""
    message, hidden = reply.message, redactor.clean
    if all(hidden(c.id) is c.id for c in message.calls):
        return reply
    calls = tuple(
        c if hidden(c.id) is c.id else replace(c, id=f"call_{digest(c.id)[:16]}")
        for c in message.calls
    )
    return replace(reply, message=replace(message, calls=calls))
