"""What gives the trees of a shared database to its workers, as it is written in a setting:
`database`, `procrastinate`, or `temporal://HOST:PORT/NAMESPACE`."""

from __future__ import annotations

from urllib.parse import urlsplit

DATABASE, PROCRASTINATE, TEMPORAL = "database", "procrastinate", "temporal"
FORMS = f"`{DATABASE}`, `{PROCRASTINATE}`, or `{TEMPORAL}://HOST:PORT/NAMESPACE`"


def dispatch(text: str) -> str:
    if text in (DATABASE, PROCRASTINATE):
        return text
    try:
        parts = urlsplit(text)
        is_temporal = parts.scheme == TEMPORAL and bool(parts.hostname and parts.port)
    except ValueError:
        is_temporal = False
    if not is_temporal or parts.username is not None or not text.isprintable():
        raise ValueError(f"Write {FORMS}")
    return text
