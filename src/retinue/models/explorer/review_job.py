"""The job `review`: the changes are read once for each perspective (risk, tests, docs, size), and
every finding has a severity and a line. Two lines of the report are for machines: `severity: ...`
and `complete: ...`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from retinue.models.explorer.areas import reason
from retinue.models.explorer.child_report import Findings, Row
from retinue.models.explorer.delegation import AreaTask, hand_out
from retinue.models.explorer.diffs import FileDiff, read_diff
from retinue.models.explorer.intent import revision
from retinue.models.explorer.known_answers import CallAnswer, KnownAnswers
from retinue.models.explorer.manifests import numbered
from retinue.models.explorer.report import Report, footer, gaps
from retinue.models.explorer.report_text import at, cell, plural, some
from retinue.models.explorer.review_checks import CHECKS, Finding

SEVERITIES = ("high", "medium", "low")
SAYS = {
    "risk": "Look for risks: secrets, dangerous calls, swallowed errors, leftovers.",
    "tests": "Check the tests: removed, skipped, missing.",
    "docs": "Check public names: changed, removed, undocumented.",
    "size": "Check size and complexity.",
}
MOST_FILES, MOST_NEW, MOST_FINDINGS = 30, 30, 200
_SAFE = re.compile(r"^[\w][\w./~^@{}-]*$")


def review_job(book: KnownAnswers, text: str, note: str = "") -> Report | None:
    rev = revision(text)
    numstat = book.first(
        *(("git", {"args": ["diff", "--numstat", "--relative", *r]}) for r in _ranges(rev))
    )
    status = (
        book.ask("git", args=["status", "--porcelain", "--untracked-files=all"])
        if not rev
        else None
    )
    if book.pending:
        return None
    changed = _numstat(numstat)
    new = _untracked(status)
    if changed is None or not (changed or new):
        return _nothing(book, rev, numstat, changed)
    parts = [_order(name, rev, sorted(changed), new) for name in CHECKS]
    answers = hand_out(book, parts)
    if book.pending or book.resting:
        return None
    for part in parts:
        if part.name not in answers:
            answers[part.name] = judge(book, part.order)
    if book.pending:
        return None
    found = [answers[p.name] for p in parts]
    return _write(book, rev, changed, new, found, note)


def _ranges(rev: str) -> list[list[str]]:
    """What to compare: a revision as it was named, or everything that is not committed, or what is
    only staged."""
    if not rev or not _SAFE.match(rev):
        return [["HEAD"], ["--cached"]]
    return [[rev]]


def _numstat(got: CallAnswer | None) -> dict[str, tuple[int, int]] | None:
    if got is None or got.error:
        return None
    out = {}
    for line in got.text.splitlines():
        found = re.match(r"^(\d+|-)\t(\d+|-)\t(.+)$", line)
        if found:
            out[_renamed(found[3])] = (
                int(found[1]) if found[1] != "-" else 0,
                int(found[2]) if found[2] != "-" else 0,
            )
    return out


def _renamed(path: str) -> str:
    """`a/{b => c}/d` is now `a/c/d`."""
    path = re.sub(r"\{[^{}]* => ([^{}]*)\}", r"\1", path).replace("//", "/")
    return path.rsplit(" => ", 1)[-1]


def _untracked(status: CallAnswer | None) -> list[str]:
    if status is None or status.error:
        return []
    return [
        line[3:].strip('"')
        for line in status.text.splitlines()
        if line.startswith("?? ") and line[-1:] != "/"
    ]


def _order(name: str, rev: str, changed: list[str], new: list[str]) -> AreaTask:
    order = {
        "part": "review",
        "name": name,
        "rev": rev,
        "paths": changed[:200],
        "new": new[:MOST_NEW],
    }
    return AreaTask(name, SAYS[name], order)


def judge(book: KnownAnswers, order: dict[str, Any]) -> Findings:
    """One perspective on the changes."""
    name, rev = str(order.get("name", "")), str(order.get("rev", ""))
    check = CHECKS.get(name)
    if check is None:
        return Findings(name, [["note", f"unknown perspective {name!r}"]], whole=False)
    paths = [p for p in order.get("paths", ()) if isinstance(p, str)]
    fresh = [p for p in order.get("new", ()) if isinstance(p, str)]
    diffs, missed = _diffs(book, rev, paths)
    for path in fresh:
        got = book.ask("read", path=path)
        if got is not None and not got.error:
            diffs.append(FileDiff(path, numbered(got.text), is_new=True))
        elif got is not None or not book.pending:
            missed.append(path)
    if book.pending:
        return Findings(name)
    found = sorted(set(check(diffs)), key=lambda f: (SEVERITIES.index(f[0]), f[1], f[2], f[3]))
    rows: list[Row] = [["finding", *f] for f in found[:MOST_FINDINGS]]
    rows += [["note", f"the change of {m} could not be fully read"] for m in missed[:10]]
    return Findings(name, rows, whole=not missed and len(found) <= MOST_FINDINGS)


def _diffs(book: KnownAnswers, rev: str, paths: Sequence[str]) -> tuple[list[FileDiff], list[str]]:
    """The diff in one answer, or file by file when it is too long for that."""
    if not paths:
        return [], []
    head = ["diff", "--no-color", "--relative"]
    got = book.whole(book.first(*(("git", {"args": [*head, *r]}) for r in _ranges(rev))))
    if got is None:
        return [], [] if book.pending else list(paths)
    if not got.error and not got.cut:
        return read_diff(got.text), []
    out, missed = [], list(paths[MOST_FILES:])
    for path in paths[:MOST_FILES]:
        one = book.whole(
            book.first(*(("git", {"args": [*head, *r, "--", path]}) for r in _ranges(rev)))
        )
        if one is None or one.error:
            missed += [] if book.pending else [path]
            continue
        out += read_diff(one.text)
        missed += [path] if one.cut else []
    return out, missed


def _nothing(
    book: KnownAnswers,
    rev: str,
    numstat: CallAnswer | None,
    changed: dict[str, tuple[int, int]] | None,
) -> Report:
    report = Report()
    if changed is None:
        why = (
            "git is not one of the tools"
            if numstat is None
            else f"git said: {reason(numstat.text)}"
        )
        report.section(f"# Review\n\nNothing to review: {why}.\n\nseverity: none\ncomplete: no")
    else:
        what = (
            f"Nothing changed in {rev}." if rev else ("No changed or new files compared with HEAD.")
        )
        hint = "" if rev else " For the last commit, use: review HEAD~1..HEAD"
        report.section(f"# Review\n\n{what}{hint}\n\nseverity: none\ncomplete: yes")
    report.section(footer(book, []))
    return report


def _write(
    book: KnownAnswers,
    rev: str,
    changed: dict[str, tuple[int, int]],
    new: Sequence[str],
    found: Sequence[Findings],
    note: str,
) -> Report:
    rows: list[tuple[str, Finding]] = [
        (one.name, (severity, path, line, what))
        for one in found
        for severity, path, line, what in one.get("finding", str, str, int, str)
        if severity in SEVERITIES
    ]
    rows.sort(key=lambda r: (SEVERITIES.index(r[1][0]), r[1][1], r[1][2]))
    count = Counter(f[0] for _, f in rows)
    worst = next((s for s in SEVERITIES if count[s]), "none")
    whole = all(one.whole for one in found) and not book.starved
    plus, minus = sum(a for a, _ in changed.values()), sum(b for _, b in changed.values())
    top = [f"# Review of {rev or 'uncommitted changes'}", ""]
    if note:
        top += [note, ""]
    top += [
        f"{plural(len(changed), 'changed file')}, +{plus} -{minus} lines"
        + (f"; {plural(len(new), 'new file')} not in git" if new else ""),
        "",
        f"severity: {worst}",
        f"complete: {'yes' if whole else 'no'}",
        f"findings: {', '.join(f'{count[s]} {s}' for s in SEVERITIES)}",
    ]
    report = Report()
    report.section("\n".join(top))
    for rank, severity in enumerate(SEVERITIES):
        lines = [
            f"| {cell(at(path, line))} | {cell(what)} | {who} |"
            for who, (s, path, line, what) in rows
            if s == severity
        ]
        if lines:
            head = [
                f"## {severity.capitalize()}",
                "",
                "| where | what | perspective |",
                "|---|---|---|",
            ]
            report.section("\n".join([*head, *lines]), rank + 1, f"{severity} findings")
    if not rows:
        report.section(
            "No check found anything. This does not prove that the change is right: the "
            "checks see text, not meaning."
        )
    biggest = sorted(changed.items(), key=lambda kv: (-sum(kv[1]), kv[0]))
    told = [f"{p} +{a} -{b}" for p, (a, b) in biggest] + [f"{p} new" for p in new]
    report.section("## Files\n\n" + some(told, 12), 9, "files")
    report.section(gaps(book, found))
    report.section(footer(book, found))
    return report
