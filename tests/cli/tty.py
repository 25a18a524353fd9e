"""A pseudo terminal that keeps every byte a program writes to it, for tests of what reaches a real
one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import PATIENT, SECONDS


class Tty:
    """One program on its own terminal. `raw` is what it has written until now."""

    def __init__(
        self, arguments: tuple[str, ...], env: dict[str, str], cwd: Path, size: tuple[int, int]
    ) -> None:
        self._fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.raw = b""
        self._is_over = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "retinue", *arguments],
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **PATIENT, **env},
            cwd=cwd,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)

    def _take(self) -> None:
        if select.select([self._fd], [], [], 0.1)[0]:
            try:
                data = os.read(self._fd, 65_536)
            except OSError:  # the other side is closed
                data = b""
            self.raw += data
            self._is_over = not data

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "surrogateescape")

    def until(self, what: str, after: int = 0) -> int:
        """Wait for a text among what was written behind so many bytes; where it ends."""
        end = time.monotonic() + SECONDS
        while (at := self.raw.find(what.encode(), after)) < 0:
            if self._is_over or time.monotonic() > end:
                raise AssertionError(f"{what!r} was not written: {self.text!r}")
            self._take()
        return at + len(what.encode())

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ended(self) -> int:
        """Everything until its end; the exit code."""
        end = time.monotonic() + SECONDS
        while not self._is_over:
            if time.monotonic() > end:
                raise AssertionError(f"it did not end: {self.text!r}")
            self._take()
        return self._process.wait(SECONDS)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._fd)


@contextlib.contextmanager
def tty(
    env: dict[str, str], cwd: Path, *arguments: str, size: tuple[int, int] = (100, 30)
) -> Iterator[Tty]:
    tty = Tty(arguments, env, cwd, size)
    try:
        yield tty
    finally:
        tty.close()
