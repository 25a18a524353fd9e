"""Caches facts by content, and the index of each tree, in the user's cache folder. It is a help and
nothing more: an entry that is damaged, foreign or too large is ignored and made again."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import msgspec

from retinue.sandbox.open_beneath import make_folder
from retinue.syntax.file_scan import FileScan
from retinue.syntax.tree_files import Stamp

NAME = "syntax.db"
MOST_BYTES = 256 << 20
MOST_VALUE = 32 << 20
BUSY_MS = 2_000
CHUNK = 500
DAY_SECONDS = 86_400
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trees (key TEXT PRIMARY KEY, value BLOB NOT NULL, used INTEGER) WITHOUT ROWID;
"""  # noqa: E501


class TreeIndex(msgspec.Struct, array_like=True):
    """What was known of the files of a tree when it was last looked at. `macros` belong to its C
    files."""

    version: bytes = b""
    files: dict[str, tuple[Stamp, FileScan]] = {}
    macros: dict[bytes, bool] = {}


class FactCache:
    """Without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._db = None if folder is None else _opened(folder)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def index(self, tree: str, version: bytes) -> TreeIndex:
        for (value,) in self._rows("SELECT value FROM trees WHERE key = ?", (tree,)):
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                stored = msgspec.msgpack.decode(value, type=TreeIndex)
                if stored.version == version:
                    return stored
        return TreeIndex(version)

    def facts(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Encoded facts of those keys that are known."""
        names = sorted(set(keys))
        out: dict[bytes, bytes] = {}
        for start in range(0, len(names), CHUNK):
            part = names[start : start + CHUNK]
            marks = ",".join("?" * len(part))
            for key, value in self._rows(
                f"SELECT key, value FROM facts WHERE key IN ({marks})", part
            ):
                out[key] = value
        return out

    def keep(self, tree: str, index: TreeIndex | None, facts: Mapping[bytes, bytes]) -> None:
        """Remember; when there is no room or the file is busy, do not."""
        if self._db is None or (index is None and not facts):
            return
        today = int(time.time() // DAY_SECONDS)
        rows = [(k, v, today) for k, v in facts.items() if len(v) <= MOST_VALUE]
        with contextlib.suppress(apsw.Error):
            with self._db:
                self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", rows)
                if index is not None:
                    value = msgspec.msgpack.encode(index)
                    if len(value) <= MOST_VALUE:
                        row = (tree, value, today)
                        self._db.execute("INSERT OR REPLACE INTO trees VALUES (?, ?, ?)", row)
            self._shrink()

    def _shrink(self) -> None:
        """The half that was written first goes when there is too much."""
        assert self._db is not None
        if _size(self._db) <= MOST_BYTES:
            return
        for table in ("facts", "trees"):
            self._db.execute(
                f"DELETE FROM {table} WHERE key IN (SELECT key FROM {table} ORDER BY used, key "
                f"LIMIT (SELECT count(*) / 2 + 1 FROM {table}))"
            )
        self._db.execute("VACUUM")

    def _rows(self, text: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        if self._db is None:
            return
        try:
            yield from self._db.execute(text, tuple(values)).fetchall()
        except apsw.Error:
            return


def _size(db: apsw.Connection) -> int:
    pages = db.pragma("page_count")
    return int(pages) * int(db.pragma("page_size"))


def _opened(folder: Path) -> apsw.Connection | None:
    """The database, made new when it is damaged; None when the folder or the file is not ours
    alone."""
    try:
        make_folder(str(folder))
        path = folder / NAME
        for _ in range(2):
            if not _is_ours(folder) or not _made(path):
                return None
            with contextlib.suppress(apsw.Error):
                return _connected(path)
            for name in (NAME, f"{NAME}-wal", f"{NAME}-shm", f"{NAME}-journal"):
                (folder / name).unlink(missing_ok=True)
    except OSError:
        return None
    return None


def _is_ours(path: Path) -> bool:
    info = os.lstat(path)
    return info.st_uid == os.geteuid() and not stat.S_IMODE(info.st_mode) & 0o077


def _made(path: Path) -> bool:
    """A regular file for its owner alone."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return stat.S_ISREG(os.lstat(path).st_mode) and _is_ours(path)


def _connected(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    db = apsw.Connection(str(path), flags=flags)
    try:
        db.set_busy_timeout(BUSY_MS)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        db.pragma("journal_mode", "WAL")
        db.pragma("synchronous", "OFF")
        db.execute(_TABLES)
        db.execute("SELECT key, value, used FROM facts LIMIT 1").fetchall()
        db.execute("SELECT key, value, used FROM trees LIMIT 1").fetchall()
    except BaseException:
        db.close()
        raise
    return db
