"""Explains why a text to replace was not found, with the most similar lines of the file."""

from __future__ import annotations

import difflib
import re

from retinue.tools.builtin.text_file import displayable, split_lines

MAX_LINES = 20_000
MAX_WIDTH = 200
N_CANDIDATES = 100
N_SHOWN = 3


def nearest(text: str, old: str) -> str:
    """A sentence for the model, with the lines that it probably meant."""
    lines = split_lines(text)[:MAX_LINES]
    lines_sought = split_lines(old) or [old]
    at = _but_for_spaces(lines, lines_sought)
    if at is not None:
        excerpt = _numbered(lines, at, len(lines_sought))
        return f"Only spaces or tabs differ from these lines; copy them exactly:\n{excerpt}"
    key = max(lines_sought, key=lambda w: len(w.strip()))
    places = _alike(lines, key)
    if not places:
        return "Nothing in the file is similar. Read the file again."
    before = lines_sought.index(key)
    size = min(len(lines_sought), 12)
    excerpt = "\n...\n".join(_numbered(lines, max(0, p - before), size) for p in places)
    return f"The nearest lines are:\n{excerpt}"


def _but_for_spaces(lines: list[str], lines_sought: list[str]) -> int | None:
    squeezed = ["".join(line.split()) for line in lines]
    block = ["".join(line.split()) for line in lines_sought]
    if not any(block):
        return None
    at = "\n".join(["", *squeezed, ""]).find("\n".join(["", *block, ""]))
    return None if at < 0 else "\n".join(["", *squeezed, ""]).count("\n", 0, at)


def _alike(lines: list[str], key: str) -> list[int]:
    """Few lines are compared in full: those that share most words with the one that is looked
    for."""
    key = key.strip()[:MAX_WIDTH]
    words = set(re.findall(r"\w+", key))
    scored = [
        (len(words & set(re.findall(r"\w+", line[:MAX_WIDTH]))), -i) for i, line in enumerate(lines)
    ]
    best = [
        -i
        for n, i in sorted(scored, reverse=True)[:N_CANDIDATES]
        if n or len(lines) <= 4 * N_CANDIDATES
    ]
    ratios = {
        i: difflib.SequenceMatcher(None, key, lines[i].strip()[:MAX_WIDTH]).ratio() for i in best
    }
    good = sorted((i for i in best if ratios[i] >= 0.5), key=lambda i: (-ratios[i], i))
    return sorted(good[:N_SHOWN])


def _numbered(lines: list[str], start: int, n: int) -> str:
    lines_near = lines[start : start + min(n, 20)]
    return "\n".join(
        f"{start + i + 1}\t{displayable(line)[:MAX_WIDTH]}" for i, line in enumerate(lines_near)
    )
