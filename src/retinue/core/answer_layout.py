"""An answer with its long texts set apart from its frame. When it is too long as a whole, the long
texts share the room and the frame stays: it is valid JSON or Markdown whatever is cut, and every
row shows its state."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from retinue.core.values import Ending
from retinue.formats.fair_cut import cut, fair, missing, missing_in, same
from retinue.formats.safe_text import clean

L = TypeVar("L", bound="Laid")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
SHORT = "[truncated]"


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
        """How much a text takes where it stands."""
        return len(text)

    def seal(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Sheet(Laid):
    """JSON. `rows` is the key of the list that gives way when not even the frame fits, at its end
    or, with `newest`, at its beginning; `state` is what is counted of those that are left out."""

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
        left = _left_out([p.state for p in self.parts[n:]])
        states = ", ".join(f"{k} {state}" for state, k in left.get("states", {}).items())
        more = f"{left['not_shown']} more hidden ({states})" if left else ""
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


def _filled(value: Any, texts: Iterator[str], shown: dict[int, str]) -> Any:
    if isinstance(value, Long):
        shown[id(value)] = text = clean(next(texts))
        return text
    if isinstance(value, WasCut):
        return value.before or shown[id(value.text)] != clean(value.text.text)
    if isinstance(value, Mapping):
        return {key: _filled(inner, texts, shown) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, texts, shown) for inner in value]
    return value


def closed(text: str) -> str:
    """A text whose last block of code is ended: what comes after it would be read as part of it."""
    fence = ""
    if "```" not in text and "~~~" not in text:
        return text
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        mark, rest = found[1], found[2]
        if not fence:
            fence = "" if mark[0] == "`" and "`" in rest else mark
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip():
            fence = ""
    return f"{text.rstrip(chr(10))}\n{fence}" if fence else text


def _short(n: int, total: int, where: str) -> str:
    return SHORT


def fitting(laid: Laid, room: int, tidy: Callable[[str], str] = same) -> Generator[str, str, str]:
    """The answer in at most `room` characters, if its frame leaves any. Yields each text that is to
    be kept whole and is sent where that is; "" stands for nowhere. `tidy` cleans what will be
    cut."""
    text = laid.whole()
    leaves = laid.leaves()
    if len(text) <= room and all(
        leaf.most is None or len(leaf.text) <= leaf.most for leaf in leaves
    ):
        return text
    texts = [tidy(clean(leaf.text)) for leaf in leaves]
    wanted = [_wanted(laid, leaf, text) for leaf, text in zip(leaves, texts, strict=True)]
    notes = [
        laid.size(leaf.note(len(t), len(t), leaf.where or "artifact " + "0" * 64))
        for leaf, t in zip(leaves, texts, strict=True)
    ]
    frame = len(laid.render([""] * len(leaves)))
    if frame + sum(map(min, wanted, notes)) <= room:
        shown = []
        for leaf, t, allowed in zip(
            leaves, texts, fair_above(wanted, notes, room - frame), strict=True
        ):
            where = leaf.where
            if laid.size(laid.seal(t)) > allowed and not where:
                where = yield t
            shown.append(cut(t, allowed, where, laid.size, laid.seal, leaf.note))
        return laid.render(shown)
    where = yield laid.render(texts)
    return _briefly(laid, room, where, tidy)


def _wanted(laid: Laid, leaf: Long, text: str) -> int:
    size = laid.size(laid.seal(text))
    return size if leaf.most is None else min(size, leaf.most)


def fair_above(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Fair, but nobody who is cut gets less than the word about it takes."""
    base = [min(w, n) for w, n in zip(wanted, least, strict=True)]
    more = fair([w - b for w, b in zip(wanted, base, strict=True)], room - sum(base))
    return [b + m for b, m in zip(base, more, strict=True)]


def _briefly(laid: Laid, room: int, where: str, tidy: Callable[[str], str]) -> str:
    """Too many rows for a word at each cut: one word about all of them; at last some rows are only
    counted."""

    short = {
        id(leaf): min(laid.size(laid.seal(tidy(clean(leaf.text)))), len(SHORT))
        for leaf in laid.leaves()
    }

    def least(n: int) -> int:
        some = laid.shorter(n, where)
        leaves = some.leaves()
        return len(some.render([""] * len(leaves))) + sum(short[id(leaf)] for leaf in leaves)

    low, high = 0, laid.n_rows()
    while low < high:
        n = (low + high + 1) // 2
        low, high = (n, high) if least(n) <= room else (low, n - 1)
    laid = laid.shorter(low, where)
    leaves = laid.leaves()
    texts = [tidy(clean(leaf.text)) for leaf in leaves]
    wanted = [_wanted(laid, leaf, text) for leaf, text in zip(leaves, texts, strict=True)]
    frame = len(laid.render([""] * len(leaves)))
    allowed = fair_above(wanted, [len(SHORT)] * len(leaves), room - frame)
    shown = [
        cut(t, a, "", laid.size, laid.seal, _short) for t, a in zip(texts, allowed, strict=True)
    ]
    return laid.render(shown)


def fit_here(laid: Laid, room: int) -> str:
    """Where nothing can be kept: what was not kept before is only said to be missing."""
    steps = fitting(laid, room)
    try:
        next(steps)
        while True:
            steps.send("")
    except StopIteration as done:
        return str(done.value)


async def fit(
    laid: Laid,
    room: int,
    keep: Callable[[str], Awaitable[str]] | None = None,
    tidy: Callable[[str], str] = same,
) -> str:
    """`keep` puts a text away and says where."""
    steps = fitting(laid, room, tidy)
    try:
        text = next(steps)
        while True:
            text = steps.send("" if keep is None else await keep(text))
    except StopIteration as done:
        return str(done.value)
