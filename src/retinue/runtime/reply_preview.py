"""The text of one model call as it comes, for watchers."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.redaction import Redactor, Stream
from retinue.runtime.bus import Bus


class ReplyPreview(Struct, eq=False):
    """Call it with each piece, and `close` it behind the last one. It is fed also without watchers,
    so that a watcher who comes in the middle of a secret does not see the rest of it."""

    bus: Bus
    redactor: Redactor
    run: str
    attempt: int
    shown: Stream | None = None

    def __call__(self, text: str) -> None:
        if self.shown is None:
            self.shown = self.redactor.stream()
        self._publish(self.shown.feed(text))

    def close(self) -> None:
        if self.shown is not None:
            self._publish(self.shown.close())

    def _publish(self, text: str) -> None:
        if text and self.bus.busy:
            self.bus.preview(self.run, self.attempt, text)
