"""One running command, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from retinue.core.redaction import ByteStream
from retinue.sandbox.base import CommandExit, Running
from retinue.tools.builtin.command_record import CommandEnd, CommandRecord


@dataclass
class LiveCommand:
    """A command under way. `over` is set when its end is on disk; `news` whenever there is more
    output; `notes` are added to those of its end. What it writes goes through `stream`, so that no
    secret is on disk, whole or cut in two."""

    run: str
    record: CommandRecord
    stream: ByteStream
    background: bool = False
    notes: tuple[str, ...] = ()
    running: Running | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    watching: asyncio.Task[CommandEnd] | None = None
    forget: Callable[[], object] = lambda: None

    def sink(self, data: bytes) -> None:
        self.record.write(self.stream.feed(data))
        self.news.set()

    async def wait(self, seconds: float | None) -> CommandEnd:
        """Until nothing of it is left; then its end is on disk, however this came about."""
        assert self.running is not None
        try:
            ended = await self.running.wait(seconds)
        except asyncio.CancelledError:
            # In a task of its own, so that cancelling twice does not lose the record.
            self.watching = asyncio.get_running_loop().create_task(self._conclude())
            await asyncio.shield(self.watching)
            raise
        return self._note(ended)

    async def _conclude(self) -> CommandEnd:
        assert self.running is not None
        return self._note(await self.running.wait())

    def _note(self, ended: CommandExit) -> CommandEnd:
        try:
            self.record.write(self.stream.close())
            return self.record.finish(replace(ended, notes=(*ended.notes, *self.notes)))
        finally:  # on a full disk too: others wait for this
            self.forget()
            self.over.set()
            self.news.set()
