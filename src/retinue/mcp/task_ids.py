"""The id of a task: its runs, and a secret that only the server of the same guest can make. Nothing
is stored: an id can be checked after every restart."""

from __future__ import annotations

import hashlib
import hmac
import re

_RUN = re.compile(r"[0-9a-f-]{36}")
SECRET = 32


def task_id(runs: tuple[str, ...], key: bytes) -> str:
    names = "+".join(runs)
    return f"{names}.{_secret(names, key)}"


def runs_of(id: str, key: bytes) -> tuple[str, ...]:
    """The runs of a task; () for an id that is not one of this guest's."""
    names, _, secret = id.rpartition(".")
    runs = tuple(names.split("+"))
    if not id.isascii() or not all(_RUN.fullmatch(run) for run in runs):
        return ()
    return runs if hmac.compare_digest(secret, _secret(names, key)) else ()


def _secret(names: str, key: bytes) -> str:
    return hmac.new(key, names.encode(), hashlib.sha256).hexdigest()[:SECRET]
