"""Checks of new lines: unfinished work, keys, errors, and leftovers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retinue.syntax.changes.review_facts import ReviewFinding
from retinue.syntax.changes.review_input import ReviewedFile, ReviewInput
from retinue.syntax.project.places import Place

LATER = re.compile("\\b(?:TO" + "DO|FIX" + "ME|XXX|HACK)\\b")
CONFLICT = re.compile(r"^(?:<{7}|>{7})(?: |$)")
GUESSED = "text that looks like a secret"
KEYS = (
    (re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY"), "a private key"),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "an AWS access key"),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}\b"), "a GitHub token"),
    (re.compile(r"\bsk-(?:ant-)?[A-Za-z0-9_-]{24,}\b"), "an API key"),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}\b"), "a Slack token"),
    (re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"), "a Google API key"),
    (
        re.compile(
            r"\b(?:password|passwd|secret|api_?key|access_?token|auth_?token)\b['\"]?\s*[:=]\s*"
            r"['\"][^'\"\s$<{]{8,}['\"]",
            re.IGNORECASE,
        ),
        GUESSED,
    ),
)
DEBUGGERS = frozenset(("breakpoint", "set_trace", "dbg"))
_DEBUGGER = re.compile(r"^\s*(?:debugger;?|binding\.pry)\s*$")
_ASSERT = re.compile(r"^\s*assert\s+(.+?)\s+is not None\b")
_BARE = re.compile(r"^\s*except\s*:")
_IGNORE = re.compile(r"#\s*(type:\s*ignore|noqa)\b|//\s*(eslint-disable|@ts-ignore|nolint)\b")


def conflict_marks(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in source.files:
        for n, text in file.added:
            if CONFLICT.match(text):
                yield ReviewFinding("high", Place(file.path, n), "a mark of a merge conflict.")


def keys(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in source.files:
        for n, text in file.added:
            for pattern, what in KEYS:
                if pattern.search(text) and not (what == GUESSED and file.role != "source"):
                    yield ReviewFinding("high", Place(file.path, n), f"{what} in the text.")
                    break


def syntax_errors(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in source.files:
        before = file.old.facts.errors if file.old is not None else 0
        if file.new is not None and file.new.facts.errors > before:
            place = Place(file.path, max(1, file.new.facts.error_line))
            yield ReviewFinding("high", place, "the grammar cannot read a passage here.")


def bare_excepts(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in _python(source):
        for n, _ in file.code(_BARE):
            yield ReviewFinding("low", Place(file.path, n), "an `except` that catches everything.")


def _python(source: ReviewInput) -> list[ReviewedFile]:
    return [f for f in source.files if f.new is not None and f.new.language == "python"]


def debuggers(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in source.files:
        new = {n for n, _ in file.added}
        calls = file.new.facts.calls if file.new is not None else ()
        lines = {c.line for c in calls if c.name in DEBUGGERS and c.line in new}
        lines |= {n for n, _ in file.code(_DEBUGGER)}
        for n in sorted(lines):
            yield ReviewFinding("low", Place(file.path, n), "a call of a debugger.")


def none_asserts(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in _python(source):
        for n, match in file.code(_ASSERT) if file.role == "source" else ():
            yield ReviewFinding(
                "low",
                Place(file.path, n),
                f"an added `assert` in source guards `{match[1]}`, which can be `None`. With "
                "`python -O` it is not executed.",
            )


def waivers(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in source.files:
        for n, text in file.added:
            if match := _IGNORE.search(text):
                what = match[1] or match[2]
                yield ReviewFinding("info", Place(file.path, n), f"a `{what}` was added.")


def postponed(source: ReviewInput) -> Iterator[ReviewFinding]:
    for file in source.files:
        for n, text in file.added:
            if match := LATER.search(text):
                yield ReviewFinding("info", Place(file.path, n), f"a `{match[0]}` was added.")
