"""Text of replies that models are writing: as pieces, and as the whole so far. Nothing of it is
recorded; a watcher that comes late begins with what was written before."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from retinue.core.events import Aborted, LogEntry, ModelFailed, Replied


class TextPiece(msgspec.Struct, frozen=True):
    """Text as it comes from a model: a preview of attempt `attempt`, never recorded. `start` is the
    number of characters before it in this reply."""

    run: str
    attempt: int
    text: str
    start: int = 0


class OpenReplies:
    """What was written until now of each reply that a model is writing."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[int, list[str], int]] = {}

    def add(self, run: str, attempt: int, text: str) -> TextPiece:
        """One more piece of a reply."""
        last, texts, length = self._texts.get(run, (0, [], 0))
        if last != attempt:
            texts, length = [], 0
        texts.append(text)
        self._texts[run] = attempt, texts, length + len(text)
        return TextPiece(run, attempt, text, length)

    def forget(self, run: str) -> None:
        """Its model writes no more: the whole reply follows, or another attempt."""
        self._texts.pop(run, None)

    def __iter__(self) -> Iterator[TextPiece]:
        for run, (attempt, texts, _) in list(self._texts.items()):
            yield TextPiece(run, attempt, "".join(texts))


class TextReader:
    """What one reader has of replies: it takes each character once, from the first one on, and
    nothing of a reply that it has whole."""

    def __init__(self) -> None:
        self._lengths: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, int] = {}

    def new_part(self, piece: TextPiece) -> TextPiece | None:
        """The part of a piece that is new; None if nothing is, or if something before it is
        missing."""
        run, attempt, start = piece.run, piece.attempt, piece.start
        last, length = self._lengths.get(run, (0, 0))
        if attempt < last or attempt <= self._ended.get(run, 0):
            return None
        length = length if attempt == last else 0
        end = start + len(piece.text)
        if start > length or end <= length:
            return None
        self._lengths[run] = attempt, end
        if start == length:
            return piece
        return TextPiece(run, attempt, piece.text[length - start :], length)

    def end(self, entry: LogEntry, *, is_ahead: bool) -> None:
        """A step was read. `is_ahead`: it came from the log, and pieces of before may still come;
        otherwise everything before it was read."""
        if not is_ahead:
            self._ended.clear()
        if not isinstance(entry.event, Replied | ModelFailed | Aborted):
            return
        run, attempt = entry.run, entry.event.attempt
        if run in self._lengths and self._lengths[run][0] <= attempt:
            del self._lengths[run]
        if is_ahead:
            self._ended[run] = max(attempt, self._ended.get(run, 0))
