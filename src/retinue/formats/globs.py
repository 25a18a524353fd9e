"""Globs over paths, as in .gitignore: `*` and `?` stay within a name, `**` spans names, `[a-z]` is
a set of characters.

No pattern takes more than time in proportion to the lengths of pattern and path: patterns come from
models and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

MAX_ALTERNATIVES = 64
CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
}
ANY = re.compile(r"(?s:.*)")


class BadGlob(ValueError):
    """The pattern cannot be read; the message says why."""


class Glob:
    """A pattern by names: each part matches one name, None any number of them."""

    __slots__ = ("parts",)

    def __init__(
        self,
        names: Sequence[str],
        compiled: Callable[[str], re.Pattern[str]],
        *,
        anchored: bool = True,
    ) -> None:
        parts: list[re.Pattern[str] | None] = [] if anchored else [None]
        for i, name in enumerate(names):
            if name == "**":
                if not parts or parts[-1] is not None:
                    parts.append(None)
                if i == len(names) - 1:
                    parts.append(ANY)  # everything inside, not the directory itself
            else:
                parts.append(compiled(name))
        self.parts = tuple(parts)

    def matches(self, path: str) -> bool:
        names, parts = path.split("/"), self.parts
        i = j = mark = 0
        star = -1
        while j < len(names):
            part = parts[i] if i < len(parts) else ANY
            if i < len(parts) and part is None:
                star, mark = i, j
                i += 1
            elif i < len(parts) and part is not None and part.fullmatch(names[j]):
                i += 1
                j += 1
            elif star >= 0:
                mark += 1
                i, j = star + 1, mark
            else:
                return False
        return all(p is None for p in parts[i:])


def path_glob(pattern: str, *, anchored: bool) -> Glob:
    """A pattern of a .gitignore or a model; without an anchor it may begin at any depth."""
    return Glob([n for n in pattern.split("/") if n], name_pattern, anchored=anchored)


@lru_cache(maxsize=4096)
def rule_glob(pattern: str) -> Glob:
    """The path of a permission rule: from the top, and only what `rule_pattern` knows is special,
    since a file may have any other character in its name."""
    return Glob(pattern.split("/"), rule_pattern)


@lru_cache(maxsize=4096)
def name_pattern(name: str) -> re.Pattern[str]:
    """One name as a regular expression."""
    return _compiled(name, "[^/]", has_sets=True)


@lru_cache(maxsize=4096)
def rule_pattern(text: str) -> re.Pattern[str]:
    """A tool, a command or a name in a permission rule: `*` and `?` match slashes too, and there
    are no sets."""
    return _compiled(text, ".", has_sets=False)


def _compiled(text: str, any_one: str, *, has_sets: bool) -> re.Pattern[str]:
    """The part between two stars is matched at its first place only (an atomic group): that is
    right for globs, and keeps a pattern full of stars from trying every division of a text."""
    chunks = [""]
    i = 0
    while i < len(text):
        c = text[i]
        i += 1
        if c == "*":
            chunks.append("")
        elif c == "?":
            chunks[-1] += any_one
        elif c == "\\" and i < len(text):
            chunks[-1] += re.escape(text[i])
            i += 1
        elif c == "[" and has_sets:
            expression, i = _set(text, i)
            chunks[-1] += expression
        else:
            chunks[-1] += re.escape(c)
    if len(chunks) == 1:
        return re.compile(f"(?s:{chunks[0]})")
    middle = "".join(f"(?>{any_one}*?{c})" for c in chunks[1:-1] if c)
    return re.compile(f"(?s:{chunks[0]}{middle}{any_one}*{chunks[-1]})")


def _set(name: str, i: int) -> tuple[str, int]:
    """A set of characters that starts behind its bracket: the expression, and where it ends."""
    start = i
    negated = i < len(name) and name[i] in "!^"
    i += negated
    out = ""
    first = True
    while i < len(name) and (name[i] != "]" or first):
        first = False
        if name.startswith("[:", i) and ":]" in name[i + 2 :]:
            end = name.index(":]", i + 2)
            out += CLASSES.get(name[i + 2 : end], "")
            i = end + 2
            continue
        low, i = _char(name, i)
        if i + 1 < len(name) and name[i] == "-" and name[i + 1] != "]":
            high, i = _char(name, i + 1)
            if low <= high:
                out += f"{re.escape(low)}-{re.escape(high)}"
        else:
            out += re.escape(low)
    if i >= len(name):
        raise BadGlob(f"the [ at character {start} of {name!r} is not closed")
    if not out:
        return ("[^/]" if negated else "(?!)"), i + 1
    return (f"[^/{out}]" if negated else f"(?!/)[{out}]"), i + 1


def _char(name: str, i: int) -> tuple[str, int]:
    return (name[i + 1], i + 2) if name[i] == "\\" and i + 1 < len(name) else (name[i], i + 1)


def alternatives(pattern: str) -> list[str]:
    """The patterns that `{a,b}` expands to."""
    plain: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        group = _braces(text)
        if group is None:
            plain.append(text)
        else:
            start, end, options = group
            todo += [text[:start] + option + text[end:] for option in options]
        if len(plain) + len(todo) > MAX_ALTERNATIVES:
            raise BadGlob(f"the braces expand to more than {MAX_ALTERNATIVES} patterns")
    return plain


def _braces(text: str) -> tuple[int, int, list[str]] | None:
    """The first pair of braces with a comma: where it starts and ends, and its options."""
    starts: list[int] = []
    commas: list[list[int]] = []
    i = 0
    while i < len(text):
        c = text[i]
        if c == "\\":
            i += 1
        elif c == "{":
            starts.append(i)
            commas.append([])
        elif c == "," and starts:
            commas[-1].append(i)
        elif c == "}" and starts:
            start, cuts = starts.pop(), commas.pop()
            if cuts:
                edges = [start, *cuts, i]
                return start, i + 1, [text[a + 1 : b] for a, b in pairwise(edges)]
        i += 1
    return None


class Globs:
    """A pattern as a model writes it: without a slash it is about names at any depth; `!` in front
    turns it round."""

    def __init__(self, pattern: str) -> None:
        self.negated = pattern.startswith("!")
        text = pattern[1:] if self.negated else pattern
        if not text.strip("/"):
            raise BadGlob("the pattern is empty")
        if len(text) > 4096:
            raise BadGlob("the pattern is longer than 4096 characters")
        self._names: list[re.Pattern[str]] = []
        self._paths: list[Glob] = []
        for one in alternatives(text):
            if "/" in one.strip("/") or "**" in one:
                self._paths.append(
                    path_glob(one.removeprefix("./"), anchored="/" in one.strip("/"))
                )
            else:
                self._names.append(name_pattern(one.strip("/")))

    def match(self, *paths: str) -> bool:
        """Whether it says yes to a path that can be written in each of these ways."""
        name = paths[0].rpartition("/")[2]
        is_match = any(n.fullmatch(name) for n in self._names) or any(
            g.matches(p) for g in self._paths for p in paths
        )
        return is_match != self.negated
