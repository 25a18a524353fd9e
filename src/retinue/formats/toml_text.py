"""Parses foreign TOML in linear time; an error has its position."""

from __future__ import annotations

import re
from typing import Any

MOST_PARTS = 100
"""`tomllib` needs memory in the square of a key's parts: 100,000 of them end the process."""

_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)|\'\'\'(?:[^\']|\'(?!\'\'))*+(?:\'{3,5}|\Z)'
    r'|(?P<part>"(?:[^"\\\n]|\\[^\n])*+"?|\'[^\'\n]*+\'?|[\w-]+)'
    r"|(?P<gap>[ \t]+)|(?P<dot>\.)|#[^\n]*+|.",
    re.DOTALL,
)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class BadToml(ValueError):
    """The text is not TOML. `line` and `column` are 0 where there is no place."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column

    def __str__(self) -> str:
        place = f"line {self.line}" + (f", column {self.column}" if self.column else "")
        return f"{place}: {self.args[0]}" if self.line else str(self.args[0])

    @property
    def message(self) -> str:
        return str(self.args[0])


def load(text: str) -> dict[str, Any]:
    """The values of a text; `BadToml` when there are none."""
    import tomllib

    if line := _long_key(text):
        raise BadToml(f"This key has more than {MOST_PARTS} parts", line)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadToml("nested too deeply") from None
    except ValueError as error:
        problem = str(error)
        place = _PLACE.search(problem)
        message = problem[: place.start()] if place else problem
        if place and place[1]:
            raise BadToml(message, int(place[1]), int(place[2])) from None
        raise BadToml(message, text.rstrip().count("\n") + 1 if place else 0) from None


def _long_key(text: str) -> int:
    """The first line with a key of very many parts; 0 for none."""
    if all(line.count(".") < MOST_PARTS for line in text.split("\n")):
        return 0
    n_parts, is_open = 0, True
    for token in _TOKEN.finditer(text):
        if token["part"]:
            n_parts = n_parts + 1 if is_open else 1
            is_open = False
            if n_parts > MOST_PARTS:
                return text.count("\n", 0, token.start()) + 1
        elif token["dot"]:
            is_open = True
        elif not token["gap"]:
            n_parts, is_open = 0, True
    return 0
