"""Opens a database file for this process: the lock, checks that refuse it unchanged, migrations,
and a new epoch.

Refusals come before the first change, and a refused file is closed without a checkpoint: its bytes
stay as found."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
from pathlib import Path

import apsw

from retinue.errors import StoreCorrupt, StoreError, StoreTooNew
from retinue.sandbox.open_beneath import sync_folder
from retinue.store.sqlite.sqlite_errors import busy, open_error

MIGRATIONS = Path(__file__).parents[1] / "migrations"
BUSY_MS = 30_000
APPLICATION_ID = 0x52455431


def connect(path: str, *, read_only: bool = False) -> apsw.Connection:
    """A connection to a file that exists. It checkpoints on request, not when it is closed."""
    # Looked at, not opened: to close it again would take away the locks of this process. A pipe
    # would be waited for.
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreError(
            f"{path} is not a regular file. Nothing was changed. Use another file.", path=path
        )
    if read_only and not os.path.exists(path + "-wal"):
        # No one has it open. A reader would leave an empty -wal behind, by which a copy that was
        # made without its own would look whole to the next who opens it.
        uri = f"file:{urllib.parse.quote(os.path.abspath(path))}?immutable=1"
        return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=512)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.set_busy_timeout(BUSY_MS)
    if read_only:
        db.execute("pragma query_only = on")
    return db


def prepare(db: apsw.Connection, path: str, synchronous: str) -> None:
    """Make a connection the writer's."""
    if db.pragma("journal_mode", "wal") != "wal":
        raise StoreError(
            f"{path} is on a file system without shared memory, which SQLite needs. Move "
            "the store to a local disk.",
            path=path,
        )
    db.pragma("synchronous", synchronous)
    db.pragma("foreign_keys", True)
    # Checkpoints are made by the writer, after the waiters have been notified.
    db.pragma("wal_autocheckpoint", 0)
    db.pragma("journal_size_limit", 1 << 26)


def take_over(path: str, synchronous: str) -> tuple[apsw.Connection, int]:
    """The writer's connection and the new epoch. The calling process holds the lock."""
    try:
        has_wal = os.path.exists(path + "-wal")
        if has_wal and not os.path.exists(path):
            raise StoreCorrupt(
                f"{path} is missing, but its -wal file exists. Restore the store, or move "
                "the -wal file away.",
                path=path,
            )
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        db = connect(path)
    except (apsw.Error, OSError) as error:
        raise open_error(error, path) from error
    try:
        version, files = _check(db, path, has_wal=has_wal), migrations()
        if 0 < version < len(files):
            _keep_old(db, path, version + 1)
        if not version:
            db.pragma("auto_vacuum", "incremental")  # before the first table, or not at all
        prepare(db, path, synchronous)
        for number in range(version + 1, len(files) + 1):
            _migrate(db, files[number - 1], number, path)
        epoch = _next_epoch(db, path)
        # A copy of the file alone must know what it is, and that it is one.
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        sync_folder(os.path.dirname(path))
        return db, epoch
    except StoreError:
        db.close(True)
        raise
    except Exception as error:
        db.close(True)
        raise open_error(error, path) from error


def migrations() -> list[Path]:
    return sorted(MIGRATIONS.glob("[0-9]*.sql"))


def _check(db: apsw.Connection, path: str, *, has_wal: bool) -> int:
    """The schema's version, or the reason why this file is not ours to change."""
    version: int = db.pragma("user_version")
    ours = db.pragma("application_id") == APPLICATION_ID
    if not ours:
        if version or db.execute("select count(*) from sqlite_schema").get:
            raise StoreError(
                f"{path} belongs to another program. The file was not changed. Use another file.",
                path=path,
            )
        return 0
    n_known = len(migrations())
    if version > n_known:
        raise StoreTooNew(
            f"{path} has schema {version}; this version supports up to {n_known}. The file "
            "was not changed. Upgrade Retinue, or use another store.",
            path=path,
        )
    home = db.execute("select value from meta where key = 'home'").get
    if home is not None and home != os.stat(path).st_ino and not has_wal:
        raise StoreCorrupt(
            f"{path} is a copy of a store that was in use, without its -wal file, so its "
            "last commits may be missing. The file was not changed. Copy both files "
            "while nothing runs, or use `retinue backup`.",
            path=path,
        )
    return version


def _migrate(db: apsw.Connection, file: Path, number: int, path: str) -> None:
    from retinue.store.sqlite.migration_steps import STEPS  # a reader does not load it

    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(file.read_text(encoding="utf-8"))
        if number in STEPS:
            STEPS[number](db, path)
        db.pragma("user_version", number)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _next_epoch(db: apsw.Connection, path: str) -> int:
    """Fence every earlier process. `home` is the file's inode while it is in use: see `_check`."""

    db.execute("BEGIN IMMEDIATE")
    upsert = "insert into meta values (?, ?) on conflict (key) do update set value = "
    db.execute(upsert + "value + 1", ("epoch", 1))
    db.execute(upsert + "excluded.value", ("home", os.stat(path).st_ino))
    epoch: int = db.execute("select value from meta where key = 'epoch'").get
    db.execute("COMMIT")
    return epoch


def _keep_old(db: apsw.Connection, path: str, number: int) -> None:
    """A copy from before migration `number`; one that exists already is never replaced."""
    name = f"{path}.before-{number:04}"
    n = 1
    while os.path.exists(name):
        n += 1
        name = f"{path}.before-{number:04}-{n}"
    copy_database(db, name)


def copy_database(source: apsw.Connection, target: str) -> None:
    """A whole copy of one moment that needs no -wal beside it and is not marked as in use. Never
    overwrites."""
    if os.path.exists(target):
        raise StoreError(
            f"{target} already exists and was not changed. Use another name for the copy.",
            path=target,
        )
    part = f"{target}.part-{os.getpid()}"
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        copy = apsw.Connection(part, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with copy.backup("main", source, "main") as backup:
                backup.step(-1)
            copy.execute("pragma journal_mode = delete")
            copy.execute("pragma synchronous = off")  # the whole file is synced below
            copy.execute("delete from meta where key = 'home'")
        finally:
            copy.close(True)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        _place(part, target)
    except (apsw.BusyError, apsw.LockedError) as error:
        raise busy(target) from error
    except (apsw.Error, OSError) as error:
        raise StoreError(
            f"Cannot write the copy {target} ({error}). The store was not changed.", path=target
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _place(part: str, target: str) -> None:
    """Give a finished file its name, without replacing one that came up meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(part, target)
    sync_folder(os.path.dirname(target))
