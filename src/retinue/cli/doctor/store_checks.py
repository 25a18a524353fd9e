"""The store and its files: whether the database is intact, which process has it open, file
permissions, and free space. A store is opened so that not even a file beside it appears."""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator

import apsw

from retinue.cli.context import CommandContext
from retinue.cli.doctor.finding import Finding, in_parallel
from retinue.errors import RetinueError
from retinue.host.health import (
    StoreHealth,
    is_held,
    look_at_database,
    look_at_store,
    store_holder,
)
from retinue.host.project_paths import config_home, data_home, state_home

GIB = 1 << 30
HOST_SECONDS = 3.0
LOW, SCARCE = 2 * GIB, 256 << 20


def store(context: CommandContext) -> Iterator[Finding]:
    if context.paths.database:
        yield from _database(context.paths.database, context.paths.shown_store)
        return
    path = context.paths.store
    if not os.path.exists(path):
        if os.path.exists(path + "-wal"):
            fix = "put the store back next to its -wal file, or restore a backup"
            yield Finding(
                name="store",
                state="broken",
                text=f"{path} is missing, but its -wal file exists",
                fix=fix,
            )
        else:
            yield Finding(
                name="store", state="ok", text=f"no runs yet; they will be stored in {path}"
            )
        return
    size = sum(os.path.getsize(path + tail) for tail in ("", "-wal") if os.path.exists(path + tail))
    try:
        health = look_at_store(path)
    except apsw.Error as error:
        fix = "use a backup: `retinue --store BACKUP ...`. The damaged file was not changed"
        yield Finding(
            name="store", state="broken", text=f"{path} cannot be read ({error})", fix=fix
        )
        return
    if health.kind != "ours":
        yield _other(path, health)
        return
    yield from _ours(
        f"{path}: {_size(size)}", health, "restore a backup (made with `retinue backup`)"
    )


def _database(url: str, address: str) -> Iterator[Finding]:
    try:
        health = look_at_database(url)
    except RetinueError as error:
        yield Finding(name="store", state="broken", text=str(error))
        return
    if health.kind == "empty":
        text = f"no runs yet; they will be stored in {address}"
        yield Finding(name="store", state="ok", text=text)
    elif health.kind == "newer":
        yield _other(address, health)
    else:
        yield from _ours(address, health, "restore a backup of the database")


def _ours(what: str, health: StoreHealth, restore: str) -> Iterator[Finding]:
    for sentence in health.wrong[:10]:
        fix = f"stop using it and {restore}"
        yield Finding(name="store", state="broken", text=sentence, fix=fix)
    if len(health.wrong) > 10:
        yield Finding(
            name="store", state="broken", text=f"and {len(health.wrong) - 10} more like these"
        )
    if not health.wrong:
        old = (
            f", will be upgraded to {health.known} at the next start"
            if health.version < health.known
            else ""
        )
        whole = (
            f"schema {health.version}{old}, hash chain and structure OK, {health.n_open} open runs"
        )
        text = f"{what}, {whole}"
        yield Finding(name="store", state="ok", text=text)
    for why, n in Counter(health.waits).items():
        fix = (
            "set another key or top up the account, then: retinue resume (retinue ps "
            "lists the runs)"
        )
        yield Finding(
            name="runs",
            state="degraded",
            text=f"{n} {'run waits' if n == 1 else 'runs wait'}: {why.removeprefix('auth: ')}",
            fix=fix,
        )
    if health.n_dead:
        text = f"{health.n_dead} announcements could not be delivered"
        yield Finding(name="store", state="degraded", text=text, fix="retinue deliveries")


def _other(path: str, health: StoreHealth) -> Finding:
    """A file that is not a store of this version."""
    if health.kind == "empty":
        return Finding(name="store", state="ok", text=f"{path} is empty")
    if health.kind == "foreign":
        text, fix = f"{path} belongs to another program", "use another file with --store"
        return Finding(name="store", state="broken", text=text, fix=fix)
    text = f"{path} has schema {health.version}; this version supports up to {health.known}"
    return Finding(name="store", state="broken", text=text, fix="upgrade Retinue")


def _size(n: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n = n / 1024  # type: ignore[assignment]
    raise AssertionError


def host(context: CommandContext) -> Iterator[Finding]:
    paths = context.paths
    is_taken = is_held(paths)
    if not is_taken and not os.path.exists(paths.socket):
        yield Finding(
            name="host", state="ok", text="no host is running; a command starts one when needed"
        )
        return
    pid = store_holder(paths.store)
    answer = in_parallel({"host": lambda: _greet(context)}, HOST_SECONDS)["host"]
    if answer is None:
        fix = f"run `kill {pid}`; recorded work is safe" if pid else "retinue host stop"
        yield Finding(
            name="host",
            state="broken",
            text=f"process {pid or '?'} holds the store but does not respond",
            fix=fix,
        )
    elif not answer.is_good:
        yield Finding(
            name="host", state="broken", text=answer.text, fix="retinue host stop, then try again"
        )
    elif answer.text:
        yield Finding(name="host", state="ok", text=answer.text)
    elif is_taken:
        text = f"the store is locked by another program: process {pid} ({_command(pid)})"
        yield Finding(
            name="host",
            state="degraded",
            text=text,
            fix="wait for that program to end, or use another --store",
        )
    else:
        yield Finding(
            name="host",
            state="ok",
            text="no host is running (a stale socket was found; it is harmless)",
        )


def _greet(context: CommandContext) -> str:
    from retinue.host import requests
    from retinue.host.client import connect_to_host

    client = connect_to_host(context.paths, {})
    if client is None:
        return ""
    with client:
        status = client.ask(requests.StatusRequest())
    return f"process {status['pid']} holds the store, {status['open']} open runs"


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(200).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "unknown program"


def loose(context: CommandContext) -> Iterator[tuple[str, int, int]]:
    """Files and directories that others may use, with the rights that they have and those that they
    should have."""
    own = [
        data_home(context.environ),
        state_home(context.environ),
        os.path.join(data_home(context.environ), "projects"),
    ]
    paths = context.paths
    own += [
        os.path.dirname(paths.log),
        os.path.join(data_home(context.environ), "trust.json"),
        paths.log,
    ]
    if not context.store:
        own.append(os.path.dirname(paths.store))
    tails = (
        "",
        "-wal",
        "-shm",
        ".lock",
        ".sent",
        ".plans",
        ".tools",
        ".artifacts",
        ".sock",
        ".sock.key",
    )
    own += [paths.store + tail for tail in tails] + [paths.socket]
    for path in dict.fromkeys(own):
        yield from _loose(path, 0o077)
    for folder in (paths.plans,):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            yield from _loose(os.path.join(folder, name), 0o077)
    # Your own settings are not secret, but no other user may write them: they can turn the sandbox
    # off.
    for path in (
        config_home(context.environ),
        os.path.join(config_home(context.environ), "config.toml"),
    ):
        yield from _loose(path, 0o022)


def _loose(path: str, forbidden: int) -> Iterator[tuple[str, int, int]]:
    try:
        info = os.lstat(path)
    except OSError:
        return
    mode = stat.S_IMODE(info.st_mode)
    if not stat.S_ISLNK(info.st_mode) and mode & forbidden:
        yield path, mode, mode & ~forbidden


def rights(context: CommandContext) -> Iterator[Finding]:
    files = list(loose(context))
    for path, mode, right_mode in files:
        text = (
            f"{path} has mode {mode:04o}; it should be {right_mode:04o} so that other users "
            "cannot access it"
        )
        yield Finding(name="rights", state="broken", text=text, fix="retinue doctor --fix")
    if not files:
        yield Finding(name="rights", state="ok", text="Retinue's files are private to you")


def tighten(context: CommandContext) -> Iterator[str]:
    """Take away what others may do with our files; one sentence for each."""
    for path, mode, right_mode in list(loose(context)):
        try:
            os.chmod(path, right_mode, follow_symlinks=os.chmod not in os.supports_follow_symlinks)
        except OSError as error:
            yield f"{path} could not be changed ({error.strerror}): another user owns it"
        else:
            yield f"{path}: {mode:04o} -> {right_mode:04o}"


def disk(context: CommandContext) -> Iterator[Finding]:
    folder = os.path.dirname(context.paths.store)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder or "/").free
    state = "degraded" if free < LOW else "ok"
    if free < SCARCE:
        state = "broken"
    fix = (
        ""
        if state == "ok"
        else "free some space, or move the store with --store or XDG_DATA_HOME; `retinue rm "
        "--ended` deletes old runs"
    )
    text = f"{_size(free)} free where runs are stored"
    if not os.access(folder, os.W_OK):
        state, fix = (
            "broken",
            (f"make {folder} writable, or use another directory with XDG_DATA_HOME"),
        )
        text = f"{folder} is not writable"
    yield Finding(name="disk", state=state, text=text, fix=fix)  # type: ignore[arg-type]
