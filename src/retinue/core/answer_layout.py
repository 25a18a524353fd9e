"""Separates the long texts of an answer from its frame. When it is too long as a whole, the long
texts share the room and the frame stays: it is valid JSON or Markdown whatever is cut, and every
row shows its state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from retinue.core.values import Ending
from retinue.formats.fair_cut import missing, missing_in
from retinue.formats.safe_text import clean

L = TypeVar("L", bound="Laid")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


@dataclass(frozen=True, slots=True)
class Long:
    """A text that may be cut. `where` is where the whole of it is already; `most` is all that is
    shown of it however much room there is; `note` is the word at a cut, if it is another than the
    usual one."""

    text: str
    where: str = ""
    most: int | None = None
    note: Callable[[int, int, str], str] = missing


def result_of(ending: Ending) -> Long:
    """What a run has said. If it was cut when it was taken in, the whole was kept then."""
    if not ending.is_cut or not ending.artifacts:
        return Long(ending.text)
    return Long(ending.text, f"artifact {ending.artifacts[-1].path}", note=missing_in(ending.text))


@dataclass(frozen=True, slots=True)
class WasCut:
    """In a sheet, behind a long text: whether that is cut, or was before."""

    text: Long
    before: bool = False


class Laid:
    """What both kinds have in common."""

    def whole(self) -> str:
        return self.render([leaf.text for leaf in self.leaves()])

    def leaves(self) -> list[Long]:
        raise NotImplementedError

    def render(self, texts: Sequence[str]) -> str:
        """With these texts in the places of its leaves."""
        raise NotImplementedError

    def n_rows(self) -> int:
        raise NotImplementedError

    def shorter(self: L, n: int, where: str) -> L:
        """With `n` of its rows, and a word about the others and where the whole is."""
        raise NotImplementedError

    def size(self, text: str) -> int:
        """How much room a text takes in its place."""
        return len(text)

    def seal(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Sheet(Laid):
    """JSON. `rows` is the key of the list that gives way when not even the frame fits, at its end
    or, with `newest`, at its beginning; `state` is what is counted of the rows that are omitted."""

    body: Mapping[str, Any]
    rows: str = ""
    state: Callable[[Any], str] = field(default=lambda row: "")
    newest: bool = False

    def leaves(self) -> list[Long]:
        return list(_leaves(self.body))

    def render(self, texts: Sequence[str]) -> str:
        return msgspec.json.encode(_filled(self.body, iter(texts), {})).decode()

    def n_rows(self) -> int:
        return len(self.body[self.rows]) if self.rows else 0

    def shorter(self, n: int, where: str) -> Sheet:
        body, rows = dict(self.body), self.body.get(self.rows, ())
        first = len(rows) - n if self.newest else 0
        if self.rows:
            body[self.rows] = rows[first : first + n]
        body["cut"] = _left_out([self.state(r) for r in (*rows[:first], *rows[first + n :])]) | {
            "whole": where
        }
        return replace(self, body=body)

    def size(self, text: str) -> int:
        return len(msgspec.json.encode(text).decode()) - 2


@dataclass(frozen=True, slots=True)
class LayoutPart:
    """One row of a page."""

    title: str
    text: Long
    state: str = ""


@dataclass(frozen=True, slots=True)
class LayoutPage(Laid):
    """Markdown: a beginning, then rows with their titles. What a text leaves open, its row
    closes."""

    head: str
    parts: tuple[LayoutPart, ...]
    tail: str = ""

    def leaves(self) -> list[Long]:
        return [part.text for part in self.parts]

    def render(self, texts: Sequence[str]) -> str:
        rows = [f"{p.title}\n{self.seal(text)}" for p, text in zip(self.parts, texts, strict=True)]
        return "\n\n".join(piece for piece in (self.head, *rows, self.tail) if piece)

    def n_rows(self) -> int:
        return len(self.parts)

    def shorter(self, n: int, where: str) -> LayoutPage:
        rest = _left_out([p.state for p in self.parts[n:]])
        states = ", ".join(f"{k} {state}" for state, k in rest.get("states", {}).items())
        more = f"{rest['not_shown']} more hidden ({states})" if rest else ""
        at = f"full text in {where}" if where else ""
        note = "; ".join(filter(None, (more, at)))
        return replace(self, parts=self.parts[:n], tail=f"[truncated: {note}]")

    def seal(self, text: str) -> str:
        return closed(text)


def _left_out(states: Sequence[str]) -> dict[str, Any]:
    if not states:
        return {}
    count: dict[str, int] = {}
    for state in states:
        count[state] = count.get(state, 0) + 1
    return {"not_shown": len(states), "states": count}


def _leaves(value: Any) -> Iterator[Long]:
    if isinstance(value, Long):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)


def _filled(value: Any, texts: Iterator[str], cut_texts: dict[int, str]) -> Any:
    if isinstance(value, Long):
        cut_texts[id(value)] = text = clean(next(texts))
        return text
    if isinstance(value, WasCut):
        return value.before or cut_texts[id(value.text)] != clean(value.text.text)
    if isinstance(value, Mapping):
        return {key: _filled(inner, texts, cut_texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, texts, cut_texts) for inner in value]
    return value


def closed(text: str) -> str:
    """A text whose last block of code is ended: what comes after it would be read as part of it."""
    fence = ""
    if "```" not in text and "~~~" not in text:
        return text
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match is None:
            continue
        mark, rest = match[1], match[2]
        if not fence:
            fence = "" if mark[0] == "`" and "`" in rest else mark
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip():
            fence = ""
    return f"{text.rstrip(chr(10))}\n{fence}" if fence else text
