"""Shortens an answer to the space available, divided fairly among its texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence

from retinue.core.answer_layout import Laid, Long
from retinue.formats.fair_cut import cut, fair, same
from retinue.formats.safe_text import clean

SHORT = "[truncated]"


def _short(n: int, total: int, where: str) -> str:
    return SHORT


def fitting(laid: Laid, room: int, tidy: Callable[[str], str] = same) -> Generator[str, str, str]:
    """The answer in at most `room` characters, if its frame leaves any. Yields each text that is to
    be kept whole and is sent the place where it was kept; "" means nowhere. `tidy` cleans what will
    be cut."""
    text = laid.whole()
    leaves = laid.leaves()
    if len(text) <= room and all(
        leaf.most is None or len(leaf.text) <= leaf.most for leaf in leaves
    ):
        return text
    texts = [tidy(clean(leaf.text)) for leaf in leaves]
    sizes = [_wanted(laid, leaf, text) for leaf, text in zip(leaves, texts, strict=True)]
    notes = [
        laid.size(leaf.note(len(t), len(t), leaf.where or "artifact " + "0" * 64))
        for leaf, t in zip(leaves, texts, strict=True)
    ]
    frame = len(laid.render([""] * len(leaves)))
    if frame + sum(map(min, sizes, notes)) <= room:
        lines = []
        for leaf, t, allowed in zip(
            leaves, texts, fair_above(sizes, notes, room - frame), strict=True
        ):
            where = leaf.where
            if laid.size(laid.seal(t)) > allowed and not where:
                where = yield t
            lines.append(cut(t, allowed, where, laid.size, laid.seal, leaf.note))
        return laid.render(lines)
    where = yield laid.render(texts)
    return _briefly(laid, room, where, tidy)


def _wanted(laid: Laid, leaf: Long, text: str) -> int:
    size = laid.size(laid.seal(text))
    return size if leaf.most is None else min(size, leaf.most)


def fair_above(sizes: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Fair, but a text that is cut gets at least the room that the note about the cut needs."""
    base = [min(w, n) for w, n in zip(sizes, least, strict=True)]
    more = fair([w - b for w, b in zip(sizes, base, strict=True)], room - sum(base))
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
    sizes = [_wanted(laid, leaf, text) for leaf, text in zip(leaves, texts, strict=True)]
    frame = len(laid.render([""] * len(leaves)))
    allowed = fair_above(sizes, [len(SHORT)] * len(leaves), room - frame)
    short_texts = [
        cut(t, a, "", laid.size, laid.seal, _short) for t, a in zip(texts, allowed, strict=True)
    ]
    return laid.render(short_texts)


def fit_here(laid: Laid, room: int) -> str:
    """Where nothing can be kept: what was not kept before is only said to be missing."""
    steps = fitting(laid, room)
    try:
        next(steps)
        while True:
            steps.send("")
    except StopIteration as end:
        return str(end.value)


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
    except StopIteration as end:
        return str(end.value)
