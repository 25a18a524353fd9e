"""The health of this machine and store as facts, which `doctor` puts into words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import apsw

from retinue.core.state import Thinking, account_refusal
from retinue.errors import SandboxMissing, StoreError
from retinue.host.listing_file import is_attended
from retinue.host.project_paths import ProjectPaths
from retinue.sandbox.base import Guarantee
from retinue.sandbox.regular_file import read_small
from retinue.sandbox.trusted_programs import find
from retinue.store.row_batch import read_run
from retinue.store.sqlite.database_file import APPLICATION_ID, connect, migrations
from retinue.store.sqlite.integrity import check_chains, check_structure


@dataclass(frozen=True)
class StoreHealth:
    """`version` is the schema of the file, `known` the newest that this program knows. `waits`: why
    runs wait whose account their provider refuses, one for each of them. `wrong`: what is damaged,
    a sentence each."""

    kind: Literal["ours", "empty", "foreign", "newer"]
    version: int = 0
    known: int = 0
    n_open: int = 0
    n_dead: int = 0
    waits: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def look_at_store(path: str) -> StoreHealth:
    """A store is opened so that not even a file beside it appears. Raises `apsw.Error` for what
    cannot be read."""
    db = _open(path)
    try:
        if db.pragma("application_id") != APPLICATION_ID:
            return StoreHealth("foreign" if os.path.getsize(path) else "empty")
        version, n_known = int(db.pragma("user_version")), len(migrations())
        if version > n_known:
            return StoreHealth("newer", version, n_known)
        n_open: Any = db.execute("select count(*) from runs where open = 1").get
        n_dead: Any = db.execute("select count(*) from outbox where state = 'dead'").get
        wrong = (*check_chains(db), *check_structure(db))
        return StoreHealth(
            "ours", version, n_known, int(n_open), int(n_dead), () if wrong else _refused(db), wrong
        )
    finally:
        db.close(True)


def look_at_database(url: str) -> StoreHealth:
    """The same of a database. Raises `StoreError` for one that cannot be read."""
    from retinue.store.postgres.connections import connect as connect_database
    from retinue.store.postgres.database_schema import migrations as database_migrations
    from retinue.store.postgres.database_schema import version_of
    from retinue.store.postgres.postgres_integrity import verify

    with connect_database(url) as db:
        version, n_known = version_of(db), len(database_migrations())
        if not version or version > n_known:
            return StoreHealth("newer" if version else "empty", version, n_known)
        runs: list[Any] = db.execute("select body from runs where open").fetchall()
        dead = db.execute("select count(*) from outbox where state = 'dead'").fetchall()
        wrong = tuple(verify(db, url))
        waits = () if wrong else _waits(runs)
        return StoreHealth("ours", version, n_known, len(runs), dead[0][0], waits, wrong)


def _refused(db: apsw.Connection) -> tuple[str, ...]:
    return _waits(db.execute("select body from runs where open = 1").fetchall())


def _waits(bodies: list[Any]) -> tuple[str, ...]:
    runs = [read_run(body) for (body,) in bodies]
    return tuple(
        run.state.waits_for
        for run in runs
        if isinstance(run.state, Thinking) and account_refusal(run)
    )


def _open(path: str) -> apsw.Connection:
    """Without a log beside it the file is all there is, and is read as one that cannot change: a
    log must not appear, since a missing one tells that a file is a copy."""
    if os.path.exists(path + "-wal"):
        return connect(path, read_only=True)
    uri = Path(os.path.abspath(path)).as_uri() + "?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def is_held(paths: ProjectPaths) -> bool:
    """Whether a process holds the store."""
    if paths.database:
        from retinue.store.postgres.postgres_reader import PostgresReader

        with contextlib.suppress(StoreError):
            return PostgresReader(paths.database).is_held()
        return False
    return is_attended(paths.store)


def store_holder(path: str) -> int:
    """The process that holds a store, 0 when it is not known."""
    try:
        return int(read_small(path + ".lock", 32) or b"0")
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True)
class SandboxHealth:
    """The sandbox `program` and what it guarantees; or the `problem` that there is none, and its
    `fix`."""

    program: str = ""
    guarantees: tuple[Guarantee, ...] = ()
    problem: str = ""
    fix: str = ""


def look_at_sandbox(environ: Mapping[str, str], root: str) -> SandboxHealth:
    """The sandbox that a host of a project would start."""
    program, refused = find_program("bwrap", environ, root)
    return sandbox_health(os.path.dirname(program), refused)


def sandbox_health(path: str | None = None, refused: str = "") -> SandboxHealth:
    """The sandbox of this process, or of the directory `path`. `refused`: why a program that is
    there is not used."""
    from retinue.sandbox.bwrap import find_sandbox

    try:
        sandbox = find_sandbox(path=path)
    except SandboxMissing as error:
        fix = " ".join(filter(None, (error.fix, refused)))
        return SandboxHealth(problem=error.problem, fix=fix)
    return SandboxHealth(program=sandbox.program, guarantees=sandbox.guarantees)


def find_program(name: str, environ: Mapping[str, str], root: str) -> tuple[str, str]:
    """A program that the host would start, and why one that is there is not used: a command of a
    project could have put it there."""
    return find(name, environ.get("PATH", os.defpath), (root,))


def oldest_git() -> tuple[int, ...]:
    """The oldest git with which changes of sub-agents can be merged."""
    from retinue.sandbox.branch_merge import OLDEST_GIT

    return OLDEST_GIT
