"""The lines that `search` found, and how a folder is searched when one answer cannot hold them
all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from posixpath import dirname
from typing import NamedTuple

from retinue.models.explorer.file_kinds import is_foreign
from retinue.models.explorer.file_tree import clean_path, read_listing
from retinue.models.explorer.known_answers import CallAnswer, KnownAnswers
from retinue.models.explorer.languages import language_of

_HIT = re.compile(r"^(.+?):(\d+):(.*)$")
_COUNT = re.compile(r"^(.+):(\d+)$")
LIMIT = 5_000
MOST_SPOTS = 24


class Hit(NamedTuple):
    path: str
    line: int
    text: str


def read_hits(text: str) -> list[Hit]:
    out = []
    for line in text.split("\n"):
        found = _HIT.match(line)
        if found:
            out.append(Hit(clean_path(found[1]), int(found[2]), found[3]))
    return out


def read_counts(text: str) -> dict[str, int]:
    return {clean_path(m[1]): int(m[2]) for line in text.split("\n") if (m := _COUNT.match(line))}


def read_paths(text: str) -> list[str]:
    return [
        clean_path(line)
        for line in text.splitlines()
        if line.strip() and not line.startswith(("[", "("))
    ]


def search(
    book: KnownAnswers,
    pattern: str,
    path: str,
    mode: str = "lines",
    glob: str = "",
    fold: bool = False,
) -> CallAnswer | None:
    """One search, as wide as it can be had: with a high limit, or else with the tool's own."""
    args = {"pattern": pattern, "path": path or "."}
    if mode != "lines":
        args["mode"] = mode
    if glob:
        args["glob"] = glob
    extra = {"ignore_case": True} if fold else {}
    got = book.first(("search", {**args, **extra, "limit": LIMIT}), ("search", {**args, **extra}))
    return book.whole(got)


class Sweep:
    """Hits in several places. `whole` turns false when something could not be seen, and `missed`
    says where."""

    def __init__(
        self,
        book: KnownAnswers,
        pattern: str,
        *,
        mode: str = "lines",
        glob: str = "",
        fold: bool = False,
    ) -> None:
        self.book, self.pattern, self.mode, self.glob, self.fold = book, pattern, mode, glob, fold
        self.texts: list[str] = []
        self.missed: list[str] = []

    @property
    def whole(self) -> bool:
        return not self.missed

    def over(self, places: Iterable[str], *, without: Sequence[str] = (), deeper: int = 2) -> None:
        for place in places:
            self._one(place, deeper, without)

    def _one(self, place: str, deeper: int, without: Sequence[str]) -> None:
        got = search(self.book, self.pattern, place, self.mode, self.glob, self.fold)
        if got is None:
            if not self.book.pending:
                self.missed.append(place)
            return
        if got.error:
            self.missed.append(place)
            return
        self.texts.append(got.text)
        if not got.cut:
            return
        inner = self._rest(place, got.text) if deeper > 0 else []
        if inner is None:
            return
        inner = [f for f in inner if f not in without]
        if not inner or len(inner) > MOST_SPOTS:
            self.missed.append(place or ".")
        for spot in inner[:MOST_SPOTS]:
            self._one(spot, deeper - 1, without)

    def _rest(self, place: str, text: str) -> list[str] | None:
        """Where the rest of a cut answer is: folders and files of the place. [] when that is not
        known, None when it is only now asked for. Answers are sorted, so what lies wholly before
        the last path that was shown is complete."""
        got = self.book.ask("list", path=place or ".", depth=1)
        if got is None:
            return None if self.book.pending else []
        if got.error or got.cut:
            return []
        files, folders = read_listing(got.text)
        shown = (
            [h.path for h in read_hits(text)] if self.mode == "lines" else list(read_counts(text))
        )
        last = shown[-1] if shown and shown == sorted(shown) else ""
        folders = [f for f in folders if not is_before(f, last) and not is_foreign(f"{f}/x")]
        return folders + [f for f in sorted(files) if language_of(f) and f >= last]

    @property
    def hits(self) -> list[Hit]:
        return sorted({hit for text in self.texts for hit in read_hits(text)})

    @property
    def counts(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for text in self.texts:
            out.update(read_counts(text))
        return out


def is_before(folder: str, last: str) -> bool:
    """Whether everything in a folder sorts before a path."""
    return bool(last) and f"{folder}/" < last and not last.startswith(f"{folder}/")


def inside(
    path: str, folders: Sequence[str], without: Sequence[str], apart: Sequence[str] = ()
) -> bool:
    """Whether a file belongs to an area (see `tree.Area`)."""
    if dirname(path) in apart or any(path.startswith(f"{w}/") for w in without):
        return False
    return any(not f or path.startswith(f"{f}/") for f in folders)
