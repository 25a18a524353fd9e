"""Keeps secrets out of everything written: events are cleaned before they are queued, and log
records by a filter on handlers, because a logger's own filter does not see records of its
descendants."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from retinue.core.events import Admitted, ChildEnded, Closed, Event, RunCreated, Woke
from retinue.core.redaction import Redactor

E = TypeVar("E", bound=Event)
V = TypeVar("V", bound=msgspec.Struct)
_formatter = logging.Formatter()
_encode = msgspec.json.Encoder().encode
QUIET = (RunCreated, Admitted, Closed, ChildEnded, Woke)
"""Events without a text."""
NAMES = frozenset(
    (
        "id",
        "run",
        "child",
        "conversation",
        "root",
        "parent",
        "resumes",
        "key",
        "call_id",
        "mode",
        "cwd",
    )
)
"""Fields that say which, not what: changed, they would mean something else."""


def clean_event(redactor: Redactor, event: E) -> E:
    """The same event without secrets. Where there are some, its texts are cleaned one by one: a
    secret that happens to be a word of the format changes nothing else."""
    return event if isinstance(event, QUIET) else clean_value(redactor, event)


def clean_value(redactor: Redactor, value: V) -> V:
    """The same for any value that can be stored."""
    if not redactor or not redactor.suspects_json(_encode(value)):
        return value
    cleaned: V = _cleaned(redactor, value)
    return cleaned


def _cleaned(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, str):
        return redactor.clean(value)
    if isinstance(value, msgspec.Struct):
        changes = {}
        for name in _texts(type(value)):
            old = getattr(value, name)
            new = _cleaned(redactor, old)
            if new is not old and new != old:
                changes[name] = new
        return replace(value, **changes) if changes else value
    if isinstance(value, dict):
        return {_cleaned(redactor, k): _cleaned(redactor, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cleaned(redactor, v) for v in value)
    return value


def learn_from(redactor: Redactor, *holders: object) -> None:
    """Learn the secrets, by name, of mappings, and of models, channels and tools that have a
    property `secrets`."""
    for holder in holders:
        secrets = holder if isinstance(holder, Mapping) else getattr(holder, "secrets", None)
        if isinstance(secrets, Mapping):
            redactor.learn(secrets)


@cache
def _texts(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields in which something can be written freely."""
    hints = get_type_hints(kind)
    return tuple(
        f for f in kind.__struct_fields__ if f not in NAMES and get_origin(hints[f]) is not Literal
    )


class Redacting(logging.Filter):
    """Cleans message, arguments, extra fields, traceback and stack of each record. It lets every
    record pass."""

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
            traceback_text = record.exc_text or _formatter.formatException(record.exc_info)
            cleaned = clean(traceback_text)
            if (
                cleaned is not traceback_text
            ):  # without `exc_info` no formatter can write it out again
                record.exc_text, record.exc_info = cleaned, None
        for name, value in list(record.__dict__.items()):
            if type(value) is str:
                cleaned = clean(value)
                if cleaned is not value:
                    record.__dict__[name] = cleaned
        return True
