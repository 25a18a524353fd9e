"""The text of one model call as it arrives, for watchers."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.redaction import Redactor, Stream
from retinue.runtime.bus import Bus


class ReplyPreview(Struct, eq=False):
    """Call it with each piece, between its beginning and its end (`with`). It is fed also without
    watchers, so that one who comes later has the text from its beginning, and no one sees the rest
    of a secret."""

    bus: Bus
    redactor: Redactor
    run: str
    attempt: int
    shown: Stream | None = None
    is_over: bool = False

    def __enter__(self) -> ReplyPreview:
        return self

    def __call__(self, text: str) -> None:
        if self.is_over:
            return
        if self.shown is None:
            self.shown = self.redactor.stream()
        self._publish(self.shown.feed(text))

    def __exit__(self, failure: object, *_: object) -> None:
        if self.shown is not None:
            if failure is None:
                self._publish(self.shown.close())
            self.bus.open_replies.forget(self.run)
        self.is_over = True

    def _publish(self, text: str) -> None:
        if text:
            self.bus.preview(self.run, self.attempt, text)
