"""Divides a tree into areas: folders, or groups of files if one folder has them all.

The top folders are where it begins. While there are few areas, the largest is opened if it holds
much of the source; files directly in an opened folder are an area of their own, which has the
folder's name. A large folder without folders is divided by the first word of the files' names. A
file that is alone at the top is an area by its name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from posixpath import basename

MOST_OPENED = 9
"""With this many areas nothing more is opened."""
LARGE = 0.3
"""The part of all bytes from which on an area is opened."""
FLAT = 40
"""Files in a folder without folders from which on it is divided by words."""
LEAST_OF_WORD = 3
OTHER = "other"
ROOT = "./"
_WORD = re.compile(r"[-_.]")


def divide(sizes: Mapping[str, int]) -> dict[str, str]:
    """The area of each source file, from the bytes of each. Only folders are opened: a group of
    names is as small as it gets."""
    groups: dict[str, list[str]] = {}
    for path in sorted(sizes):
        folder, slash, _ = path.partition("/")
        groups.setdefault(folder + slash if slash else ROOT, []).append(path)
    total, closed = sum(sizes.values()) or 1, set[str]()
    while len(groups) < MOST_OPENED:
        weights = {name: sum(sizes[p] for p in files) for name, files in groups.items()}
        waiting = [name for name in groups if name.endswith("/") and name not in closed]
        largest = min(waiting, key=lambda name: (-weights[name], name), default="")
        if not largest or weights[largest] < total * LARGE:
            break
        closed.add(largest)
        files = groups.pop(largest)
        groups.update(_opened(largest, files))
    if len(groups.get(ROOT, ())) == 1:
        (only,) = groups.pop(ROOT)
        groups[only] = [only]
    return {path: name for name, files in groups.items() for path in files}


def _opened(name: str, files: Iterable[str]) -> dict[str, list[str]]:
    """The parts of an area; itself when it has none."""
    base = "" if name == ROOT else name
    parts: dict[str, list[str]] = {}
    for path in files:
        folder, slash, _ = path[len(base) :].partition("/")
        parts.setdefault(base + folder + slash if slash else name, []).append(path)
    if list(parts) == [name] and len(parts[name]) > FLAT:
        return _by_words(base, parts[name])
    return parts


def _by_words(base: str, files: list[str]) -> dict[str, list[str]]:
    words = Counter(_word(path) for path in files)
    parts: dict[str, list[str]] = {}
    for path in files:
        word = _word(path)
        is_area = words[word] >= LEAST_OF_WORD
        parts.setdefault(f"{base}{word}*" if is_area else f"{base}{OTHER}", []).append(path)
    return parts


def _word(path: str) -> str:
    return _WORD.split(basename(path), maxsplit=1)[0]


def is_by_words(names: Iterable[str]) -> bool:
    return any(name.endswith("*") for name in names)
