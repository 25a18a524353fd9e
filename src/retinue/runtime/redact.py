"""Secrets are kept out of everything that is written down: events are cleaned before they are queued, and with them all
that follows from them; records of the program's log by a filter for handlers, since those of a logger do not see what
its descendants write.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from retinue.core.events import Admitted, AnyEvent, ChildEnded, Closed, Enlisted, Woke
from retinue.core.secrets import Redactor

_formatter = logging.Formatter()
_encode = msgspec.json.Encoder().encode
_decode: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
QUIET = (Enlisted, Admitted, Closed, ChildEnded, Woke)
"""Events without a text."""


def clean_event(redactor: Redactor, event: AnyEvent) -> AnyEvent:
    """The same event without secrets. The marks that replace them are plain, so that JSON stays JSON; a secret that is
    also a word of the format is looked for in the texts one by one."""
    if isinstance(event, QUIET):
        return event
    data = _encode(event)
    cleaned = redactor.clean_bytes(data)
    if cleaned == data:
        return event
    try:
        return _decode.decode(cleaned)
    except msgspec.MsgspecError:
        builtins = msgspec.to_builtins(event)
        again: AnyEvent = msgspec.convert({**_texts(redactor, builtins), "event": builtins["event"]}, AnyEvent)
        return again


def _texts(redactor: Redactor, value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return value if name in ("is", "role", "event", "kind", "state", "stop", "id") else redactor.clean(value)
    if isinstance(value, dict):
        return {k: _texts(redactor, v, k) for k, v in value.items()}
    return [_texts(redactor, v) for v in value] if isinstance(value, (list, tuple)) else value


class Redacting(logging.Filter):
    """Cleans message, arguments, extra fields, traceback and stack of each record. It lets every record pass."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        clean = self._redactor.clean
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit: the handler would print them to report it
            message = f"{record.msg} {record.args}"
            record.msg, record.args = message, ()
        cleaned = clean(message)
        if cleaned is not message:
            record.msg, record.args = cleaned, ()
        if record.exc_info and record.exc_info[0] is not None:
            told = record.exc_text or _formatter.formatException(record.exc_info)
            cleaned = clean(told)
            if cleaned is not told:  # without `exc_info` no formatter can write it out again
                record.exc_text, record.exc_info = cleaned, None
        for name, value in list(record.__dict__.items()):
            if type(value) is str:
                cleaned = clean(value)
                if cleaned is not value:
                    record.__dict__[name] = cleaned
        return True
