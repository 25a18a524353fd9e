"""Task ids: the runs, and a secret that only the server of the same guest can create. Nothing is
stored: an id can be checked after every restart. The ids of several runs are packed, because
clients refuse ids that are long."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import uuid

_RUN = re.compile(r"[0-9a-f-]{36}")
SECRET = 32
SIZE = 16
"""Bytes of the id of a run."""


def task_id(runs: tuple[str, ...], key: bytes) -> str:
    names = runs[0] if len(runs) == 1 else _packed(runs)
    return f"{names}.{_secret(names, key)}"


def runs_of(id: str, key: bytes) -> tuple[str, ...]:
    """The runs of a task; () for an id that is not one of this guest's."""
    names, _, secret = id.rpartition(".")
    if not id.isascii() or not hmac.compare_digest(secret, _secret(names, key)):
        return ()
    return (names,) if _RUN.fullmatch(names) else _unpacked(names)


def _packed(runs: tuple[str, ...]) -> str:
    data = b"".join(uuid.UUID(run).bytes for run in runs)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unpacked(names: str) -> tuple[str, ...]:
    try:
        data = base64.urlsafe_b64decode(names + "=" * (-len(names) % 4))
    except (binascii.Error, ValueError):
        return ()
    pieces = [data[at : at + SIZE] for at in range(0, len(data), SIZE)]
    return tuple(str(uuid.UUID(bytes=piece)) for piece in pieces) if len(data) % SIZE == 0 else ()


def _secret(names: str, key: bytes) -> str:
    return hmac.new(key, names.encode(), hashlib.sha256).hexdigest()[:SECRET]
