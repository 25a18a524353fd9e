"""The adapter of `peer.py` with every step in SQLite, synchronous=FULL: in the harness as
`retinue_sqlite_peer.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from peers import retinue_peer  # type: ignore[import-not-found]

NAME = "retinue, SQLite"
VENV = "retinue"
IMPORT = "import retinue; from retinue.models import http"
MODES = ("http", "inproc")
ONLY = ("w1", "w2")


class Peer(retinue_peer.Peer):  # type: ignore[misc]
    async def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="retinue-bench-")
        self.ctx.db = str(Path(self._folder.name) / "log.db")
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        self._folder.cleanup()
