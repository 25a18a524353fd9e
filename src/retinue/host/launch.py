"""Connects to the host of a store, and starts it if it is not running."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import msgspec

from retinue import errors
from retinue.errors import HostGone
from retinue.host.client import GREETING_SECONDS, HostClient, connect_to_host
from retinue.host.problem_documents import ProblemDocument, error_of
from retinue.host.project_paths import ProjectPaths

START_SECONDS = 20.0
IDLE_SECONDS = 30.0
DATABASE = "RETINUE_DATABASE"
"""The address of the database, as a host gets it on its stdin: in a list of processes everyone
could read its password."""
KEPT = ("HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "RETINUE_DEBUG")
"""Of the environment for models, this is not a secret, and other parts of the host need it."""


class StartReport(msgspec.Struct, frozen=True):
    """The one line that a host writes to the command that started it."""

    pid: int = 0
    problem: ProblemDocument | None = None

    @property
    def error(self) -> Exception | None:
        return None if self.problem is None else error_of(self.problem)


def reach(paths: ProjectPaths, env: Mapping[str, str]) -> HostClient:
    """A connection to the host of a store; one is started when none answers. The process that gets
    the store's lock is the host, and all others connect to it."""
    until = time.monotonic() + float(env.get("RETINUE_START_SECONDS") or START_SECONDS)
    why: Exception | None = None
    while time.monotonic() < until:
        client = connect_to_host(paths, env)
        if client is not None:
            return client
        failure = _launch(paths, env, until)
        if failure is not None and not isinstance(failure, errors.StoreLocked):
            # When the time is over before a host has said anything, what the one before it said is
            # worth more.
            raise why if why is not None and time.monotonic() >= until else failure
        why = failure
        if why is not None:
            time.sleep(0.05)
    raise why or HostGone(
        f"The host did not respond. Stop it with `retinue host stop`, or read its log: {paths.log}"
    )


def start_process(command: list[str], cwd: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process that does not end with this one."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=cwd,
        env=env,
    )


def _launch(paths: ProjectPaths, env: Mapping[str, str], until: float) -> Exception | None:
    """Start a host and wait until it listens, for a limited time; returns why it could not."""
    idle = env.get("RETINUE_IDLE_SECONDS") or str(IDLE_SECONDS)
    # Not in the project, and -P: a module there with the name of one that the host imports would be
    # taken for it.
    command = [
        sys.executable,
        "-P",
        "-m",
        "retinue.host.daemon",
        "--root",
        paths.root,
        "--store",
        paths.store,
    ]
    variables = {
        name: value for name, value in os.environ.items() if name not in env or name in KEPT
    }
    host = start_process(
        [*command, "--socket", paths.socket, "--log", paths.log, "--idle", idle], "/", variables
    )
    assert host.stdin is not None and host.stdout is not None
    try:
        variables_sent = {**env, DATABASE: paths.database} if paths.database else dict(env)
        host.stdin.write(msgspec.json.encode(variables_sent) + b"\n")
        host.stdin.close()
        report = _report_from(host.stdout.fileno(), max(until, time.monotonic() + 1.0))
    except BrokenPipeError:
        report = None
    host.stdout.close()
    with contextlib.suppress(
        subprocess.TimeoutExpired
    ):  # it is replaced immediately by a process of its own
        host.wait(timeout=GREETING_SECONDS)
    if report is None:
        return HostGone(f"The host could not be started. Its log has the reason: {paths.log}")
    return report.error


def _report_from(pipe: int, until: float) -> StartReport | None:
    """What a host reports until then. What a library prints while it is imported comes the same
    way, and is ignored."""
    text = b""
    while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        data = os.read(pipe, 1 << 16)
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(line, type=StartReport)
        if not data:
            break
    return None


def start_prepared(prepare: Callable[[], tuple[ProjectPaths, Mapping[str, str]]]) -> ProjectPaths:
    """The paths of a project whose host answers now; `prepare` gives them, and the environment."""
    try:
        paths, env = prepare()
        reach(paths, env).close()
    except OSError as error:
        raise not_started(error) from None
    return paths


def not_started(error: OSError) -> HostGone:
    """What the system refused when a host was to be found or started."""
    where = f"{error.filename}: " if error.filename else ""
    return HostGone(
        f"The host cannot be started: {where}{error.strerror or error}. Nothing was done. Run "
        "`retinue doctor` in this directory."
    )
