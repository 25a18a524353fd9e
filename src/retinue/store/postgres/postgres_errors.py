"""Translates PostgreSQL's errors: what was wrong, what was kept, and what to do next."""

from __future__ import annotations

import sys
from typing import Any

from retinue.errors import (
    RetinueError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnreachable,
)
from retinue.formats.database_address import hidden, shown

FULL = ("53100", "53200", "53400", "58030")
"""disk_full, out_of_memory, configuration_limit_exceeded, io_error"""
AWAY = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "25006", "57014", "55P03", "25P03")
"""Connection lost; the server stops, crashed, starts, or cut an idle connection; too many
connections; it is read-only, as a standby is; a statement, lock or transaction took too long."""
AGAIN = ("40001", "40P01", "40003")
"""A transaction that others got in the way of: it can be repeated immediately."""
DAMAGED = ("XX001", "XX002")


def state_of(error: BaseException) -> str:
    """The SQLSTATE of an error of the driver, "" where there is none."""
    return getattr(error, "sqlstate", None) or ""


def _refusal(text: str) -> str:
    """A connection that was not made has no SQLSTATE, only the words of the server."""
    if "database" in text and "does not exist" in text:
        return "3D000"
    if "authentication failed" in text or "no pg_hba.conf" in text or "no password" in text:
        return "28P01"
    return "28000" if "role" in text and "does not exist" in text else ""


def _is_driver(error: BaseException, name: str) -> bool:
    driver: Any = sys.modules.get("psycopg")
    return driver is not None and isinstance(error, getattr(driver, name))


def is_cut(error: BaseException) -> bool:
    """Whether the connection is gone, or the server is not there."""
    if isinstance(error, StoreUnreachable):
        return True
    if _is_driver(error, "InterfaceError"):
        return True
    return _is_driver(error, "OperationalError") and (
        not state_of(error) or state_of(error).startswith(AWAY[:5])
    )


def is_away(error: BaseException) -> bool:
    """Whether the server does not take this now."""
    return is_cut(error) or state_of(error).startswith(AWAY)


def is_passing(error: BaseException) -> bool:
    """Whether the same transaction can succeed when it is tried again."""
    return state_of(error) in AGAIN


def is_full(error: BaseException) -> bool:
    return state_of(error) in FULL


def store_error(error: Exception, url: str, note: str) -> StoreError:
    """The typed error; `note` says what has become of what was to be done."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, RetinueError) or not (
        _is_driver(error, "Error") or isinstance(error, OSError) or _is_undecoded(error)
    ):
        raise error
    where, text, code = shown(url), hidden(url, _one_line(error)), state_of(error)
    code = code or _refusal(text)
    if code in DAMAGED or _is_undecoded(error):
        return StoreCorrupt(f"{where} is damaged ({text}). {note} Restore a backup.")
    if code in FULL:
        return StoreFull(
            f"{where} cannot be written to ({text}). {note} Earlier data is safe. Free some "
            "space on the database server."
        )
    if code in ("28P01", "28000"):
        return StoreError(f"{where} refused the user or password ({text}). {note}")
    if code == "3D000":
        return StoreError(f"{where} does not exist ({text}). {note} Create the database first.")
    if code == "42501":
        return StoreError(
            f"{where} does not allow this ({text}). {note} Give the user rights on the schema."
        )
    if code == "55P03":
        return StoreLocked(f"{where} was locked by another process for too long. {note}")
    if is_cut(error) or code.startswith(AWAY):
        return StoreUnreachable(
            f"{where} did not answer ({text}). {note} Earlier data is safe. Check that the "
            "server runs and accepts writes."
        )
    return StoreError(f"{where} rejected a statement ({text}). {note} Earlier data is safe.")


def _is_undecoded(error: BaseException) -> bool:
    decoder = sys.modules.get("msgspec")
    return decoder is not None and isinstance(error, decoder.DecodeError)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
