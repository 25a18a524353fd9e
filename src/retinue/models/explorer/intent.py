"""Decides which of the three jobs a task asks for, and in how much detail: by explicit lines (`job:
find`, `detail: full`), or by its words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Job = Literal["map", "find", "review"]
JOBS: tuple[Job, ...] = ("map", "find", "review")
_LINE = re.compile(r"^\s*(?:--job[ =]|job\s*[:=])\s*([a-zA-Z]+)\s*$", re.MULTILINE)
_WORDS: tuple[tuple[Job, re.Pattern[str]], ...] = (
    (
        "review",
        re.compile(
            r"\breview\b|\b(?:check|look at|inspect|audit) (?:my|the|our|these|this) "
            r"(?:\w+ )?(?:changes?|diff|commits?|patch|pull request|pr|branch|work)\b|\bwhat did "
            r"i (?:change|break)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "map",
        re.compile(
            r"\bmap\b|\boverview\b|\barchitecture\b|\bunderstand\b|"
            r"\bexplain (?:this|the) (?:code ?base|repo\w*|project)\b|"
            r"\bsummar(?:y|i[sz]e)\b|\bonboard|"
            r"\bhow is (?:this|the) (?:code ?base|repo\w*|project) (?:built|organi[sz]ed)",
            re.IGNORECASE,
        ),
    ),
    (
        "find",
        re.compile(
            r"\bwhere\b|\bfind\b|\bsearch(?:es)? for\b|\bwhich "
            r"(?:file|function|class|module|code|part)s?\b|\blocate\b|"
            r"\bhow (?:is|are|does|do) "
            r".+\b(?:work|done|handled|implemented|made|computed|stored|sent)\b|"
            r"\bwho (?:calls|uses)\b|\blook for\b|\bgrep\b",
            re.IGNORECASE,
        ),
    ),
)
_FULL_LINE = re.compile(r"^\s*detail\s*[:=]\s*full\s*$", re.MULTILINE | re.IGNORECASE)
_FULL_FLAG = re.compile(r"(?:^|\s)--full(?=\s|$)")
_FULL = re.compile(r"\bin full\b|\bfull (?:map|report|review|overview)\b", re.IGNORECASE)
_REVISION = re.compile(
    r"(?<![\w/.-])((?:HEAD|[0-9a-f]{7,40})(?:[~^]\d*)*(?:\.{2,3}(?:HEAD|[\w./-]+)(?:[~^]\d*)*)?|"
    r"[\w][\w./-]*?\.{2,3}[\w][\w./~^-]*)(?![\w/-])"
)
_AGAINST = re.compile(
    r"\b(?:against|since|versus|vs\.?|from branch|on branch|relative to)\s+([\w][\w./~^-]*)",
    re.IGNORECASE,
)
_NO_NAME = frozenset(("a", "an", "it", "its", "my", "our", "that", "the", "these", "this", "those"))
_LAST = re.compile(r"\blast (?:(\d+) )?commits?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Intent:
    """`sure`: the job was named or its words were found; otherwise it is the default. `full`: more
    than a page is wanted."""

    job: Job
    text: str
    sure: bool = True
    unknown: str = ""
    full: bool = False


def read_intent(task: str) -> Intent:
    match = _LINE.search(task)
    full = any(pattern.search(task) for pattern in (_FULL_LINE, _FULL_FLAG, _FULL))
    text = _FULL_FLAG.sub("", _FULL_LINE.sub("", _LINE.sub("", task))).strip()
    if match:
        name = match[1].lower()
        for job in JOBS:
            if job == name:
                return Intent(job, text, full=full)
        return Intent(_by_words(text) or "map", text, unknown=match[1], full=full)
    job_ = _by_words(text)
    return Intent(job_ or "map", text, sure=job_ is not None, full=full)


def _by_words(text: str) -> Job | None:
    """The job whose word comes first; of two at the same place, the one that is more particular."""
    best: tuple[int, int] | None = None
    for n, (_, pattern) in enumerate(_WORDS):
        match = pattern.search(text)
        if match and (best is None or match.start() < best[0]):
            best = (match.start(), n)
    return _WORDS[best[1]][0] if best else None


def revision(text: str) -> str:
    """The revision that a review is asked against, "" for what is not committed yet. It can never
    be an option."""
    if match := _LAST.search(text):
        return f"HEAD~{min(int(match[1] or 1), 999)}..HEAD"
    if match := _REVISION.search(text):
        return match[1].rstrip(".")
    if match := _AGAINST.search(text):
        word = match[1].rstrip(".")
        return "" if word.lower() in _NO_NAME else word
    return ""
