"""Which of the four jobs a task asks for: an explicit line `job: find`, or the words that it is
written in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from retinue.models.explorer.synonyms import STOP

Job = Literal["map", "find", "review", "compare"]
JOBS: tuple[Job, ...] = ("map", "find", "review", "compare")
_LINE = re.compile(r"^\s*(?:--job[ =]|job\s*[:=])\s*([a-zA-Z]+)\s*$", re.MULTILINE)
_WORDS: tuple[tuple[Job, re.Pattern[str]], ...] = (
    (
        "compare",
        re.compile(
            r"\bcompar(?:e|ing|ison)\b|\bdifferences? between\b|\bside by side\b", re.IGNORECASE
        ),
    ),
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
_REVISION = re.compile(
    r"(?<![\w/.-])((?:HEAD|[0-9a-f]{7,40})(?:[~^]\d*)*(?:\.{2,3}(?:HEAD|[\w./-]+)(?:[~^]\d*)*)?|"
    r"[\w][\w/-]*\.{2,3}[\w][\w./~^-]*)(?![\w/-])"
)
_AGAINST = re.compile(
    r"\b(?:against|since|versus|vs\.?|from branch|on branch|relative to)\s+([\w][\w./~^-]*)",
    re.IGNORECASE,
)
_LAST = re.compile(r"\blast (?:(\d+) )?commits?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Intent:
    """`sure`: the job was named or its words were found; otherwise it is the default."""

    job: Job
    text: str
    sure: bool = True
    unknown: str = ""


def read_intent(task: str) -> Intent:
    found = _LINE.search(task)
    text = _LINE.sub("", task).strip()
    if found:
        name = found[1].lower()
        for job in JOBS:
            if job == name:
                return Intent(job, text)
        return Intent(_by_words(text) or "map", text, unknown=found[1])
    job_ = _by_words(text)
    return Intent(job_ or "map", text, sure=job_ is not None)


def _by_words(text: str) -> Job | None:
    """The job whose word stands first; of two at the same place, the one that is more
    particular."""
    best: tuple[int, int] | None = None
    for n, (job, pattern) in enumerate(_WORDS):
        found = pattern.search(text)
        if found is None or (job == "compare" and len(paths_in(text)) < 2):
            continue
        if best is None or found.start() < best[0]:
            best = (found.start(), n)
    return _WORDS[best[1]][0] if best else None


def revision(text: str) -> str:
    """The revision that a review is asked against, "" for what is not committed yet. It can never
    be an option."""
    if found := _LAST.search(text):
        return f"HEAD~{min(int(found[1] or 1), 999)}..HEAD"
    if found := _REVISION.search(text):
        return found[1]
    if found := _AGAINST.search(text):
        word = found[1].rstrip(".")
        return "" if word.lower() in STOP else word
    return ""


_PATH = re.compile(
    r"""[`"']([^`"'\n]+)[`"']|(?<![\w/.-])(\.{0,2}/?(?:[\w@.+-]+/)+[\w@.+-]*|[\w@.+-]+\.\w{1,5})(?![\w/])"""
)


def paths_in(text: str) -> list[str]:
    """What looks like two paths: quoted, with a slash, or the words around `and`, `with`, `to`."""
    out = [(a or b).strip().rstrip("/") or "." for a, b in _PATH.findall(text)]
    if len(out) < 2:
        found = re.search(
            r"\bcompar\w+\s+(?:the\s+)?([\w@./+-]+)\s+(?:and|with|to|against|vs\.?)\s+(?:the\s+)?([\w@./+-]+)",
            text,
            re.I,
        )
        found = found or re.search(r"\bbetween\s+([\w@./+-]+)\s+and\s+([\w@./+-]+)", text, re.I)
        out = [found[1].rstrip("/."), found[2].rstrip("/.")] if found else out
    return [p.removeprefix("./") for p in dict.fromkeys(out)]
