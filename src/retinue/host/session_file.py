"""Browser sessions that survive a restart of the host: hashes of cookies, in a private file that no
sandbox sees."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

import msgspec


class SessionFile:
    """The hashes with the time until which each is valid, in seconds since 1970. A file that is
    missing or cannot be read is empty: a browser signs in again."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock

    def seconds_left(self) -> dict[bytes, float]:
        """For how long each hash is still valid."""
        now = self._clock()
        valid = {digest: until for digest, until in self._read().items() if until > now}
        return {bytes.fromhex(digest): until - now for digest, until in valid.items()}

    def add(self, digest: bytes, seconds: float) -> None:
        now = self._clock()
        valid = {name: until for name, until in self._read().items() if until > now}
        self._write({**valid, digest.hex(): now + seconds})

    def _read(self) -> dict[str, float]:
        try:
            with open(self._path, "rb") as file:
                valid = msgspec.json.decode(file.read(1 << 20), type=dict[str, float])
            return {digest: until for digest, until in valid.items() if bytes.fromhex(digest)}
        except (OSError, ValueError, msgspec.MsgspecError):
            return {}

    def _write(self, valid: dict[str, float]) -> None:
        """Replaced as a whole; made for its owner alone."""
        folder = os.path.dirname(self._path)
        os.makedirs(folder, 0o700, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(valid))
        os.replace(name, self._path)
