"""The position of each key of a TOML text. `tomllib` tells values and not their places; this tells
places and leaves the values to it. A text that is not TOML is followed as far as it makes sense.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import Literal, NamedTuple

Path = tuple[str | int, ...]
MOST_NESTED = 60

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_LONG = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|\'\'\'(?:[^\']|\'(?!\'\'))*\'{3,5}', re.DOTALL
)
_PLAIN = re.compile(r"[^\s,\]}#\"'\[{][^,\]}#\n]*")


class KeySpan(NamedTuple):
    """One key or table header: `at` is where it begins, `start` to `stop` is its value. What is
    `inline` is inside another value."""

    path: Path
    at: int
    start: int
    stop: int
    kind: Literal["value", "table"] = "value"
    inline: bool = False


class NotToml(Exception):
    """From here on this is not TOML."""


class KeyPositions:
    """All keys of a text. `twice` are repeated keys, each with its first position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spots: dict[Path, KeySpan] = {}
        self.headers: list[KeySpan] = []
        self.twice: list[tuple[KeySpan, KeySpan]] = []
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._at = 0
        self._arrays: dict[Path, int] = {}
        self.whole = True
        try:
            self._statements()
        except (NotToml, RecursionError):
            self.whole = False

    def line(self, at: int) -> int:
        return bisect_right(self._starts, at)

    def column(self, at: int) -> int:
        return at - self._starts[self.line(at) - 1] + 1

    def of(self, path: Path) -> tuple[int, int]:
        """The line and column of a key, or of the nearest table above it; (0, 0) when there is
        none."""
        while path:
            if spot := self.spots.get(path):
                return self.line(spot.at), self.column(spot.at)
            path = path[:-1]
        return 0, 0

    def _statements(self) -> None:
        prefix: Path = ()
        while True:
            self._skip(_BLANK)
            if self._at >= len(self.text):
                return
            prefix = self._header() if self.text[self._at] == "[" else self._pair(prefix)
            self._skip(_SPACE)
            if self._at < len(self.text) and self.text[self._at] not in "\r\n#":
                raise NotToml

    def _header(self) -> Path:
        begin, is_array = self._at, self.text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        key = self._key()
        self._expect("]]" if is_array else "]")
        path: Path = ()
        for n, part in enumerate(key):
            path = (*path, part)
            is_last = n == len(key) - 1
            if is_last and is_array:
                self._arrays[path] = self._arrays.get(path, 0) + 1
            if path in self._arrays:
                self.spots.setdefault(path, KeySpan(path, begin, begin, self._at, "table"))
                path = (*path, self._arrays[path] - 1)
        spot = KeySpan(path, begin, begin, self._at, "table")
        self.headers.append(spot)
        self._note(spot)
        return path

    def _pair(self, prefix: Path, *, inline: bool = False, depth: int = 0) -> Path:
        begin = self._at
        key = self._key()
        self._expect("=")
        self._skip(_SPACE)
        start = self._at
        self._value((*prefix, *key), depth)
        for n in range(1, len(key)):
            above = (*prefix, *key[:n])
            self.spots.setdefault(above, KeySpan(above, begin, begin, self._at, "table", inline))
        self._note(KeySpan((*prefix, *key), begin, start, self._at, "value", inline))
        return prefix

    def _note(self, spot: KeySpan) -> None:
        spot_before = self.spots.get(spot.path)
        if spot_before is not None and (
            spot_before.kind == "value" or spot.kind == "value" or spot_before in self.headers
        ):
            self.twice.append((spot_before, spot))
        else:
            self.spots[spot.path] = spot

    def _value(self, path: Path, depth: int) -> None:
        if depth > MOST_NESTED or self._at >= len(self.text):
            raise NotToml
        head = self.text[self._at]
        if head == "[":
            self._array(path, depth)
        elif head == "{":
            self._table(path, depth)
        elif self.text.startswith(('"""', "'''"), self._at):
            self._skip(_LONG, needed=True)
        elif head in "\"'":
            self._skip(_QUOTED, needed=True)
        else:
            text = self._skip(_PLAIN, needed=True)
            self._at -= len(text) - len(text.rstrip())

    def _array(self, path: Path, depth: int) -> None:
        self._at += 1
        n = 0
        while True:
            self._skip(_BLANK)
            if self._take("]"):
                return
            begin = self._at
            self._value((*path, n), depth + 1)
            self._note(KeySpan((*path, n), begin, begin, self._at, "value", inline=True))
            n += 1
            self._skip(_BLANK)
            if not self._take(","):
                self._expect("]")
                return

    def _table(self, path: Path, depth: int) -> None:
        self._at += 1
        self._skip(_BLANK)
        if self._take("}"):
            return
        while True:
            self._skip(_BLANK)
            self._pair(path, inline=True, depth=depth + 1)
            self._skip(_BLANK)
            if not self._take(","):
                self._expect("}")
                return

    def _key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self._skip(_SPACE)
            if self._at < len(self.text) and self.text[self._at] in "\"'":
                parts.append(_unquoted(self._skip(_QUOTED, needed=True)))
            else:
                parts.append(self._skip(_BARE, needed=True))
            self._skip(_SPACE)
            if not self._take("."):
                return tuple(parts)
            if len(parts) > MOST_NESTED:
                raise NotToml

    def _skip(self, pattern: re.Pattern[str], *, needed: bool = False) -> str:
        match = pattern.match(self.text, self._at)
        if match is None:
            if needed:
                raise NotToml
            return ""
        self._at = match.end()
        return match[0]

    def _take(self, mark: str) -> bool:
        if self.text.startswith(mark, self._at):
            self._at += len(mark)
            return True
        return False

    def _expect(self, mark: str) -> None:
        self._skip(_SPACE)
        if not self._take(mark):
            raise NotToml


def read_key(text: str) -> tuple[str, ...]:
    """A dotted key, as `models.aliases."gpt-5.2"`; `ValueError` when it is none."""
    try:
        places = KeyPositions("")
        places.text = text
        key = places._key()
    except NotToml:
        raise ValueError(f"{text!r} is not a key. Use e.g. models.default") from None
    if places._at != len(text):
        raise ValueError(f"{text!r} is not a key. Use e.g. models.default")
    return key


def dotted(path: Path) -> str:
    """A path as a key is written; places in lists in brackets."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part + 1}]"
        else:
            out += ("." if out else "") + (part if _BARE.fullmatch(part) else quoted(part))
    return out


def quoted(text: str) -> str:
    """A text as a basic string of TOML."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else _escaped(c)) for c in text) + '"'


def _escaped(c: str) -> str:
    return f"\\u{ord(c):04X}" if ord(c) < 0x10000 else f"\\U{ord(c):08X}"


def _unquoted(raw: str) -> str:
    try:
        return str(tomllib.loads(f"x = {raw}")["x"])
    except tomllib.TOMLDecodeError:
        raise NotToml from None
