"""The problems of a configuration file: all of them together, each with its line and a
suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable

from retinue.core.values import Value
from retinue.errors import ConfigError
from retinue.formats.safe_text import one_line
from retinue.formats.suggestion import did_you_mean

_SECRET = re.compile(
    r"(?:sk|gsk|hf|xai|ghp|gho|ghs|glpat|r8|nvapi|pplx|csk|fw|tgp)[-_][A-Za-z0-9_-]{8,}|AIza[A-Za-z0-9_-]{20,}"
    r"|github_pat_\w{10,}|xox[abprs]-[A-Za-z0-9-]{8,}|AKIA[A-Z0-9]{12,}|eyJ[A-Za-z0-9_-]{10,}\.[\w-]{5,}"
)
"""Shapes of keys that providers give out."""
MOST_PROBLEMS = 100
"""More in one file is too much to read."""


class Problem(Value):
    """One mistake. `where` is the file, the variable or the flag; line 0 is all of it."""

    where: str
    message: str
    line: int = 0
    column: int = 0
    key: str = ""

    def __str__(self) -> str:
        return f"{self.where}{f', line {self.line}' if self.line else ''}: {self.message}"


def problem(where: str, message: str, line: int = 0, column: int = 0, key: str = "") -> Problem:
    """A mistake in words that can be shown: one line, no controls, and nothing that looks like a
    key."""
    return Problem(
        where=where, message=shown(message, 2_000), line=line, column=column, key=shown(key, 200)
    )


def looks_secret(text: str) -> bool:
    return _SECRET.search(text) is not None


class ConfigProblems(ConfigError):
    """All mistakes that were found; as a text, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def unknown(word: str, known_names: Iterable[str], what: str) -> str:
    """The sentence about a name that means nothing."""
    names = list(known_names)
    hint = did_you_mean(word, names) or f" Known: {', '.join(names)}."
    return f"Unknown {what}: {shown(word)!r}.{hint}"


def shown(text: str, most: int = 80) -> str:
    """A word of a file in a message: one line, nothing that a terminal would obey."""
    return one_line(_SECRET.sub("(a key)", text), most)
