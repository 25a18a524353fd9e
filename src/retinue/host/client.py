"""A command's end of the line: finds the host or starts one, makes requests, and reads what comes
back. It blocks; a command does one thing."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from retinue import __version__, errors
from retinue.core.secret_values import secrets_of
from retinue.errors import HostGone, HostSilent
from retinue.host import requests as wire
from retinue.host.project_paths import ProjectPaths

START_SECONDS = 20.0
IDLE_SECONDS = 30.0
GREETING_SECONDS = 15.0
"""A host greets at once unless its machine is very busy. One that never does is ended by `retinue
stop`."""


class HostClient:
    """One connection to a host."""

    def __init__(self, line: socket.socket, env: Mapping[str, str], key: str) -> None:
        self._line, self._buffer, self._n = line, bytearray(), 0
        self.hurry(GREETING_SECONDS)
        self.welcome = self._greet(env, key)
        self.hurry(None)

    def hurry(self, seconds: float | None) -> None:
        """How long the host may take over its next line; without a limit a run can be waited
        for."""
        self._line.settimeout(seconds)

    def _greet(self, env: Mapping[str, str], key: str) -> wire.Welcome:
        greeting = wire.Greeting(
            retinue=__version__, key=key, env=dict(env), hidden=secrets_of(os.environ)
        )
        self._write(wire.encode(greeting))
        line = self._read()
        welcome = msgspec.json.decode(line, type=wire.Welcome)
        if welcome.error:
            raise errors.ConfigError(welcome.error)
        return welcome

    def ask(self, want: wire.AnyWant) -> Any:
        """Make a request and wait for its last word; raises what the host raised."""
        told = self.last(self.begin(want))
        return told.done

    def begin(self, want: wire.AnyWant) -> int:
        """Make a request; its number is in everything that is told about it."""
        self._n += 1
        self._write(wire.encode(wire.Ask(id=self._n, want=want)))
        return self._n

    def last(self, number: int) -> wire.Told:
        while True:
            told = self.told()
            if told.error is not None and told.id in (number, 0):
                raise as_error(told.error)
            if told.id == number and told.is_last:
                return told

    def told(self) -> wire.Told:
        """The next thing that the host tells, about any request."""
        return wire.read_told(self._read())

    def has_line(self) -> bool:
        """Whether something can be read without waiting."""
        return b"\n" in self._buffer

    def fileno(self) -> int:
        return self._line.fileno()

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> HostClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        try:
            self._line.sendall(line + b"\n")
        except TimeoutError:
            raise HostSilent(peer(self._line)) from None
        except (BrokenPipeError, ConnectionError) as error:
            raise _gone() from error

    def _read(self) -> bytes:
        buffer, start = self._buffer, 0
        while (end := buffer.find(b"\n", start)) < 0:
            start = len(buffer)
            try:
                data = self._line.recv(1 << 18)
            except TimeoutError:
                raise HostSilent(peer(self._line)) from None
            except ConnectionError as error:
                raise _gone() from error
            if not data:
                raise _gone()
            buffer += data
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        return line


def _gone() -> HostGone:
    return HostGone(
        "the host of this project went away. What is on record is kept: `retinue ps`, `retinue "
        "attach`."
    )


def as_error(told: wire.Trouble) -> Exception:
    kind = getattr(errors, told.kind, errors.RetinueError)
    if issubclass(kind, (errors.Refused,)):
        return errors.Refused(told.about, told.message)
    if issubclass(kind, errors.ModelError):
        return kind(told.message, told.about)
    return kind(told.message)


def connect(places: ProjectPaths, env: Mapping[str, str]) -> HostClient | None:
    """A connection to the host of a store, if there is one."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(places.socket)
        if not _is_ours(line):
            raise errors.ConfigError(
                f"{places.socket} belongs to somebody else: remove it, or choose another --store"
            )
        return HostClient(line, env, _key(places.key))
    except HostSilent:
        line.close()
        raise
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, HostGone):
        line.close()
        return None
    except BaseException:
        line.close()
        raise


def _key(path: str) -> str:
    """What the host wants to see; "" when there is no such file, and then the host says so."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1024).strip()
    except OSError:
        return ""


def _is_ours(line: socket.socket) -> bool:
    return not hasattr(socket, "SO_PEERCRED") or _credentials(line)[1] == os.getuid()


def peer(line: socket.socket) -> int:
    """The process at the other end, 0 where the system does not tell."""
    return _credentials(line)[0] if hasattr(socket, "SO_PEERCRED") else 0


def _credentials(line: socket.socket) -> tuple[int, int, int]:
    packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, group = struct.unpack("3i", packed)
    return pid, user, group


def reach(places: ProjectPaths, env: Mapping[str, str]) -> HostClient:
    """A connection to the host of a store; one is started when none answers. Whoever gets the
    store's lock is the host, and everybody else connects to it."""
    until = time.monotonic() + float(env.get("RETINUE_START_SECONDS") or START_SECONDS)
    why: Exception | None = None
    while time.monotonic() < until:
        client = connect(places, env)
        if client is not None:
            return client
        found = _launch(places, env, until)
        if found is not None and not isinstance(found, errors.StoreLocked):
            # When the time is over before a host has said anything, what the one before it said is
            # worth more.
            raise why if why is not None and time.monotonic() >= until else found
        why = found
        if why is not None:
            time.sleep(0.05)
    raise why or HostGone(
        "the host did not answer. `retinue stop` ends it; its log may say more: " + places.log
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


def _launch(places: ProjectPaths, env: Mapping[str, str], until: float) -> Exception | None:
    """Start a host and wait until it listens, but not for ever; returns why it could not."""
    idle = env.get("RETINUE_IDLE_SECONDS") or str(IDLE_SECONDS)
    # Not in the project, and -P: a module there with the name of one that the host imports would be
    # taken for it.
    command = [
        sys.executable,
        "-P",
        "-m",
        "retinue.host.daemon",
        "--root",
        places.root,
        "--store",
        places.store,
    ]
    kept = {name: value for name, value in os.environ.items() if name not in env or name in KEPT}
    host = start_process(
        [*command, "--socket", places.socket, "--log", places.log, "--idle", idle], "/", kept
    )
    assert host.stdin is not None and host.stdout is not None
    try:
        host.stdin.write(wire.encode(dict(env)) + b"\n")
        host.stdin.close()
        is_told = select.select([host.stdout], [], [], max(1.0, until - time.monotonic()))[0]
        line = host.stdout.readline() if is_told else b""
    except BrokenPipeError:
        line = b""
    host.stdout.close()
    with contextlib.suppress(
        subprocess.TimeoutExpired
    ):  # it leaves its place to a process of its own at once
        host.wait(timeout=GREETING_SECONDS)
    if not line:
        return HostGone(f"the host could not be started; its log says why: {places.log}")
    told = msgspec.json.decode(line, type=wire.Told | None) if b'"error"' in line else None
    return as_error(told.error) if told is not None and told.error is not None else None


KEPT = ("HOME", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "RETINUE_DEBUG")
"""Of what the environment for models holds, this is no secret, and other parts of the host need
it."""
