"""Connections to the server: opens them, shares a few among readers, and reports when the server
cannot be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.errors import ConfigError
from retinue.formats.database_address import hidden, shown
from retinue.store.postgres.postgres_errors import is_cut, store_error

if TYPE_CHECKING:
    import psycopg

MOST_READERS = 4
CONNECT_SECONDS = 10
PATIENCE_SECONDS = 30.0
"""For how long a reader waits for a server that is starting again."""
T = TypeVar("T")


def connect(url: str, **options: Any) -> psycopg.Connection[Any]:
    """A connection that commits each statement. Raises `StoreError`, or `ConfigError` for an
    address that is none."""
    try:
        import psycopg
        from psycopg import conninfo

        from retinue.store.postgres.stored_text import TEXT_DUMPERS
    except ImportError as error:
        raise ConfigError(
            f"{shown(url)} needs the driver psycopg, which cannot be imported ({error}). "
            "Install `retinue[cluster]`."
        ) from error
    try:
        options = {**conninfo.conninfo_to_dict(url), **options}
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"{shown(url)} is not the address of a database ({hidden(url, str(error).strip())}). "
            "It has the form postgresql://USER@HOST:PORT/DATABASE."
        ) from None
    options.setdefault("connect_timeout", CONNECT_SECONDS)
    options.setdefault("application_name", "retinue")
    # A peer that is gone without a word is noticed in half a minute.
    options.setdefault("keepalives_idle", 15)
    options.setdefault("keepalives_interval", 5)
    options.setdefault("keepalives_count", 3)
    options.setdefault("tcp_user_timeout", 30_000)
    try:
        db = psycopg.connect(**options, autocommit=True, prepare_threshold=2)
    except (psycopg.Error, OSError) as error:
        raise store_error(error, url, "Nothing was changed.") from error
    for dumper in TEXT_DUMPERS:
        db.adapters.register_dumper(str, dumper)
    return db


class Readers:
    """Up to `MOST_READERS` connections, each used by one thread at a time. A connection that was
    cut is replaced, and what was asked is asked again: a read changes nothing. A server that was
    never reached is not waited for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._free: list[psycopg.Connection[Any]] = []
        self._places = threading.BoundedSemaphore(MOST_READERS)
        self._lock = threading.Lock()
        self._is_open = self._was_reached = False

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            free, self._free = self._free, []
        for db in free:
            db.close()

    def read(self, ask: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Ask on a free connection, in this thread."""
        until, pause = time.monotonic() + PATIENCE_SECONDS, 0.05
        while True:
            try:
                with self._borrowed() as db:
                    self._was_reached = True
                    return ask(db)
            except Exception as error:
                is_final = not is_cut(error) or time.monotonic() > until
                if is_final or not self._was_reached:
                    raise store_error(error, self._url, "Nothing was changed.") from error
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    @contextmanager
    def _borrowed(self) -> Iterator[psycopg.Connection[Any]]:
        with self._places:
            with self._lock:
                db = self._free.pop() if self._free else None
            if db is None:
                db = connect(self._url)
            try:
                yield db
            finally:
                with self._lock:
                    keep = self._is_open and not db.broken and len(self._free) < MOST_READERS
                    if keep:
                        self._free.append(db)
                if not keep:
                    db.close()
