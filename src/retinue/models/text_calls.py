"""Recovers tool calls that a model wrote as text: found, removed from the text, and never
invented.

Only tools that are offered count. A tag marks a call; a fenced block or an object at the start of a
line is one if it has both a name and arguments, so that JSON which is merely shown stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from retinue.formats.safe_text import clean
from retinue.models.written_object import extent_of

MAX_FAILURES = 1_000
MAX_REPAIRS = 16
"""So often is something in one reply taken for JSON that is none, and repaired: both cost time."""

_TAGS = "tool_calls?|function_calls?|tool_use"
_OPEN = re.compile(
    rf"<(?P<tag>{_TAGS})>|<function=(?P<function>[\w.-]+)>|(?P<mark>\[TOOL_CALLS\])"
    r"|```(?P<fence>[\w-]*)[ \t]*\n|^[ \t]*(?P<bare>(?=[{\[]))",
    re.MULTILINE,
)
_MAY_OPEN = re.compile(
    r"(?:<[\w=]{0,15}|`{1,2}|\[[A-Z_]{0,10}|```[\w-]*[ \t]*|(?:\A|(?<=\n))[ \t]*)\Z"
)
_CLOSE = re.compile(rf"\s*(?:</(?:{_TAGS}|function)>|```)?")
_SPACE = re.compile(r"[\s,;]*")

_WRAPPERS = ("tool_call", "function_call", "function")
_NAMES = ("name", "tool_name", "tool", "function", "action")
_ARGUMENTS = ("arguments", "args", "parameters", "input", "action_input")


class Written(NamedTuple):
    """A call as it was written; `args` is the JSON text of an object."""

    name: str
    args: str


class RecoveredCalls(NamedTuple):
    """What is left of a text, and the calls that were in it, in sequence."""

    text: str
    calls: tuple[Written, ...]


class _Opened(NamedTuple):
    """How a possible call begins. `sure`: it is marked as one, so a name is enough. `function`: the
    mark has it."""

    at: int
    sure: bool
    function: str


def recover(text: str, names: Collection[str], *, is_cut: bool = False) -> RecoveredCalls:
    """The calls to tools of these `names`. A call that is repeated word for word right behind
    itself is taken once: small models loop. Of a text that `is_cut`, only what is complete
    counts."""
    if not any(name in text for name in names):
        return RecoveredCalls(text, ())
    reader = _Reader(text, frozenset(names), is_cut)
    calls: list[Written] = []
    texts: list[str] = []
    start = at = 0
    while (match := _OPEN.search(text, at)) is not None:
        calls_here, end = reader.calls(match)
        if not calls_here:
            at = max(match.end(), match.start() + 1)
            continue
        texts.append(text[start : match.start()])
        last = calls[-1] if calls else None
        for one in calls_here:
            if one != last:
                calls.append(one)
            last = one
        start = at = end
    if not calls:
        return RecoveredCalls(text, ())
    texts.append(text[start:])
    return RecoveredCalls(
        "\n".join(part for piece in texts if (part := piece.strip())), tuple(calls)
    )


class TextPreview:
    """Text that can be shown while it comes: from where a call may begin, nothing is."""

    def __init__(self) -> None:
        self._text = ""
        self._shown = 0
        self._held = False

    def feed(self, delta: str) -> str:
        """The text that is new and cannot be part of a call."""
        self._text += delta
        if self._held:
            return ""
        opened = _OPEN.search(self._text, self._shown)
        self._held = opened is not None
        until = opened or _MAY_OPEN.search(self._text, max(self._shown, len(self._text) - 40))
        return self._show(len(self._text) if until is None else until.start())

    def rest(self) -> str:
        """What was held back, for when it turned out to be no call."""
        return self._show(len(self._text))

    def _show(self, end: int) -> str:
        start, self._shown = self._shown, max(self._shown, end)
        return self._text[start : self._shown]


class _Reader:
    def __init__(self, text: str, names: frozenset[str], is_cut: bool) -> None:
        self._text, self._names, self._is_cut = text, names, is_cut
        self._failures = 0

    def calls(self, match: re.Match[str]) -> tuple[list[Written], int]:
        """The calls behind an opening, and where the text continues; none if it opened something
        else."""
        function = match["function"] or ""
        at = match.end()
        if (
            match["tag"] or function or match["mark"]
        ):  # inside a tag some models write a fence as well
            fence = re.compile(r"\s*```[\w-]*").match(self._text, at)
            at = fence.end() if fence else at
        opened = _Opened(at, bool(match["tag"] or function or match["mark"]), function)
        calls_here: list[Written] = []
        end = at
        for value, stop in self._values(opened):
            if function and isinstance(value, dict):
                value = {"name": function, "arguments": value}
            some = list(self._read(value, opened.sure))
            if not some:
                break
            calls_here += some
            end = stop
        for _ in range(2):  # the fence inside the tag, then the tag
            close = _CLOSE.match(self._text, end)
            end = close.end() if calls_here and close and match["bare"] is None else end
        return calls_here, end

    def _values(self, opened: _Opened) -> Iterator[tuple[Any, int]]:
        """One JSON value behind the other, with where each ends."""
        at = opened.at
        while True:
            space = _SPACE.match(self._text, at)
            at = space.end() if space else at
            if self._text[at : at + 1] not in ("{", "[") or self._failures > MAX_FAILURES:
                return
            try:
                value, at = _DECODER.raw_decode(self._text, at)
            except RecursionError:
                return
            except ValueError:
                repaired = self._repaired(at)
                if repaired is None:
                    return
                value, at = repaired
            yield value, at

    def _repaired(self, at: int) -> tuple[Any, int] | None:
        self._failures += 1
        if self._failures > MAX_REPAIRS:
            return None
        extent = extent_of(self._text, at, may_close=not self._is_cut)
        if extent is None:
            return None
        source, end = extent
        try:
            return _DECODER.decode(source), end
        except (ValueError, RecursionError):
            return None

    def _read(self, value: Any, sure: bool, depth: int = 0) -> Iterator[Written]:
        """The calls in a value; nothing at all if a part of it is none."""
        several = value.get("tool_calls") if isinstance(value, dict) else value
        if isinstance(several, list) and depth < 2:
            parts = [list(self._read(item, sure, depth + 1)) for item in several]
            yield from (call for part in parts for call in part) if all(parts) else ()
            return
        if not isinstance(value, dict):
            return
        value = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), dict)), value)
        key = next((key for key in _NAMES if isinstance(value.get(key), str)), "")
        if not key or value[key] not in self._names:
            return
        args = _arguments(value, key, sure)
        if args is not None:
            yield Written(value[key], args)


def _arguments(value: dict[str, Any], name: str, sure: bool) -> str | None:
    """The arguments as JSON; in a marked call they may be missing, or be next to the name."""
    key = next((key for key in _ARGUMENTS if key in value), None)
    if key is not None:
        args = value[key]
    elif sure:
        args = {k: v for k, v in value.items() if k not in (name, "id", "type")}
    else:
        return None
    try:
        if isinstance(args, str):
            args = json.loads(args or "{}")
        args = {} if args is None else args
        return (
            clean(json.dumps(args, ensure_ascii=False, allow_nan=False))
            if isinstance(args, dict)
            else None
        )
    except (ValueError, TypeError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)
