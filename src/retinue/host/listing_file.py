"""The rows of a listing, from a SQLite file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from retinue.host.listing import SELECT
from retinue.sandbox.regular_file import read_small
from retinue.store.sqlite.database_file import connect
from retinue.store.sqlite.sqlite_errors import reading

_NAMES = "select name from sqlite_schema where name in ('runs', 'accounts')"
# A file that no writer of this version has opened yet.
_OLD_SELECT = SELECT.replace("r.account", "a.body") + " left join accounts a on a.id = r.id"


class FileRows:
    """A file that is only looked at."""

    def __init__(self, path: str) -> None:
        self._path = path
        with reading(path):
            self._db = connect(path, read_only=True)

    def lines(self, tail: str, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        with reading(self._path):
            names = {name for (name,) in self._db.execute(_NAMES)}
            if "runs" not in names:
                return [], []
            select = _OLD_SELECT if "accounts" in names else SELECT
            rows: list[Any] = self._db.execute(f"{select} {tail}", tuple(args)).fetchall()
            models: list[Any] = self._db.execute("select name, body from models").fetchall()
        return rows, models

    def version(self) -> int:
        return int(self._db.pragma("data_version"))

    def is_held(self) -> bool:
        return is_attended(self._path)

    def close(self) -> None:
        self._db.close(True)


def is_attended(store: str) -> bool:
    """Whether a process holds the store. The lock itself is not tried: that could be in the way of
    a host."""
    try:
        pid = int(read_small(store + ".lock", 32) or b"0")
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return pid > 0 and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and no one has asked about it: where no init process does, it stays."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] == [b"Z"]
    except OSError:
        return False
