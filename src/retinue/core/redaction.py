"""Removes known secret values from everything written: as they are, and in encoded forms.

Everything is done in bytes. Clean data costs one look for a long row of letters and digits, and one
plain search for each secret that has no such row; what is found there says which forms to look for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from retinue.core import secret_forms
from retinue.core.secret_matcher import LEAST, SecretMatcher

PIECE = 256
"""A longer value is looked for in pieces of this length: any text with the whole of it has all of
them."""


_ARMOUR = re.compile(r"-----[A-Z0-9 ]+-----")
_PASS = "surrogatepass"


class Redactor:
    """Replaces secrets by `[redacted:NAME]`, or by `[redacted]` when they were given without names.
    It may learn more of them while it is in use."""

    def __init__(self, values: Mapping[str, str] | Iterable[str] = ()) -> None:
        self._named: dict[str, str] = {}
        self._matcher = SecretMatcher({})
        self.knows = False
        """Whether there is anything to look for; fast, because it is checked at every step."""
        self.learn(values)

    def __repr__(self) -> str:
        return f"Redactor({len(self._named)} values)"

    def __bool__(self) -> bool:
        return self.knows

    def learn(self, values: Mapping[str, str] | Iterable[str]) -> None:
        """Know these too, from now on. What is known is never forgotten."""
        pairs = values.items() if isinstance(values, Mapping) else (("", value) for value in values)
        new = {
            piece: name
            for name, value in pairs
            for piece in pieces(value)
            if piece not in self._named
        }
        if new:
            self._named = {**self._named, **new}
            self._matcher = SecretMatcher(self._named)
            self.knows = True

    def clean(self, text: str) -> str:
        """The text without the secrets; the very same object when there are none in it."""
        if not self._named:
            return text
        data = text.encode("utf-8", _PASS)
        cleaned = self._matcher.clean(data)
        return text if cleaned is data else cleaned.decode("utf-8", _PASS)

    def clean_bytes(self, data: bytes) -> bytes:
        """The same for bytes that may be no text at all; secrets are looked for in UTF-8."""
        return self._matcher.clean(data)

    def clean_tree(self, value: Any) -> Any:
        """The same for everything that JSON can say, names too."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, dict):
            return {self.clean_tree(k): self.clean_tree(v) for k, v in value.items()}
        return [self.clean_tree(v) for v in value] if isinstance(value, list) else value

    def suspects_json(self, data: bytes) -> bool:
        """False for nearly all JSON that is clean, and for none that is not: escaped twice or
        thrice, or with colours between its letters, a secret still shows."""
        return self._matcher.suspects(data) or b"\\u00" in data

    def stream(self) -> Stream:
        """For a text that comes in pieces."""
        return Stream(self)

    def byte_stream(self) -> ByteStream:
        """For data that comes in pieces."""
        return ByteStream(self)


class ByteStream:
    """Holds back the end of what it was fed as long as that may be the beginning of a secret, and
    no more."""

    __slots__ = ("_data", "_n_shown", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._data, self._n_shown = redactor, b"", 0

    def feed(self, piece: bytes) -> bytes:
        """As much as may be shown now."""
        if not self._redactor and not self._data:
            return piece
        self._data += piece
        return self._show(self._redactor._matcher.open_at(self._data, self._n_shown))

    def close(self) -> bytes:
        """What was held back: no more follows."""
        return self._data if not self._data else self._show(len(self._data))

    def _show(self, stop: int) -> bytes:
        output, stop = self._redactor._matcher.clean_part(self._data, self._n_shown, stop)
        # Whether a line break is one of wrapped base64 depends on the line before it.
        self._data = self._data[max(0, stop - secret_forms.WIDTH) :]
        self._n_shown = min(stop, secret_forms.WIDTH)
        return output


class Stream:
    """The same for text."""

    __slots__ = ("_bytes",)

    def __init__(self, redactor: Redactor) -> None:
        self._bytes = ByteStream(redactor)

    def feed(self, piece: str) -> str:
        if not piece or not (self._bytes._redactor or self._bytes._data):
            return piece
        return self._bytes.feed(piece.encode("utf-8", _PASS)).decode("utf-8", _PASS)

    def close(self) -> str:
        return self._bytes.close().decode("utf-8", _PASS) if self._bytes._data else ""


def pieces(value: str) -> Iterator[str]:
    """What is looked for: the lines of a value, since logs are written by lines, and no more than
    `PIECE` at a time."""
    lines = [line.strip() for line in value.splitlines()]
    long_enough = [line for line in lines if len(line) >= LEAST and not _ARMOUR.fullmatch(line)]
    for line in long_enough or [value.strip()]:
        while len(line) >= PIECE + LEAST:
            yield line[:PIECE]
            line = line[PIECE:]
        if len(line) >= LEAST and not _ARMOUR.fullmatch(line):
            yield line
