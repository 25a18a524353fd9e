"""The job `map`: first the areas of the tree; then each area and the history, by sub-agents if
there are any, else by the lead."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from retinue.models.explorer.child_report import Findings, Row
from retinue.models.explorer.delegation import AreaTask, hand_out
from retinue.models.explorer.known_answers import CallAnswer, KnownAnswers
from retinue.models.explorer.map_report import write_map
from retinue.models.explorer.report import Report, empty_report, gaps
from retinue.models.explorer.report_text import plural
from retinue.syntax.changes.change_set import CommitHistory
from retinue.syntax.overview.map_facts import AreaRow, MapFacts
from retinue.syntax.overview.survey import FILES

TOOL = "symbols"
HISTORY = "history"
T = TypeVar("T")


def map_job(answers: KnownAnswers, note: str = "", *, full: bool = False) -> Report | None:
    """The report, or None while something is still to be asked."""
    answer = answers.whole(answers.ask(TOOL, question="map", **_more(full)))
    if answers.pending:
        return None
    facts = read_answer(answer, MapFacts)
    if facts is None:
        return empty_report("Map", why_not(answer), gaps(answers, []))
    if not facts.roles:
        return empty_report("Map", "This directory is empty: there is nothing to map.", [])
    parts = parts_of(facts, full)
    findings_by_part = gather(answers, parts)
    if findings_by_part is None:
        return None
    findings = list(findings_by_part.values())
    details = {row.name: row for one in findings for row in area_rows(one)}
    return write_map(
        facts,
        details,
        history_of(findings_by_part.get(HISTORY)),
        full=full,
        note=note,
        gaps=gaps(answers, findings),
    )


def _more(full: bool) -> dict[str, Any]:
    return {"full": True} if full else {}


def read_answer(answer: CallAnswer | None, kind: type[T]) -> T | None:
    """An answer as a value of this kind; None for what is none."""
    if answer is None or answer.error:
        return None
    try:
        return msgspec.json.decode(answer.text.encode(), type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def why_not(answer: CallAnswer | None) -> str:
    if answer is None:
        return "The files could not be looked at, so nothing is reported."
    if answer.error:
        first = " ".join(answer.text.split())[:200]
        return f"The files could not be looked at, so nothing is reported: {first}"
    return "What the tool `symbols` answered could not be read, so nothing is reported."


def parts_of(facts: MapFacts, full: bool) -> list[AreaTask]:
    if facts.is_files:
        n_files = sum(area.n_files for area in facts.areas)
        areas = [(FILES, f"Explore {plural(n_files, 'file')} of this tree, one by one.")]
    else:
        areas = [
            (
                area.name,
                f"Explore the area {area.name} ({plural(area.n_files, 'file')}, "
                f"{plural(area.n_lines, 'line')}).",
            )
            for area in facts.areas
        ]
    parts = [
        AreaTask(name, say, {"part": "area", "name": name, **_more(full)})
        for name, say in (areas if facts.areas else [])
    ]
    if facts.areas:
        say = "Read the history: which files change most."
        parts.append(AreaTask(HISTORY, say, {"part": HISTORY, "name": HISTORY}))
    return parts


def gather(answers: KnownAnswers, parts: list[AreaTask]) -> dict[str, Findings] | None:
    """The findings of all parts, by sub-agents or by our own hand; None while they are not all
    there."""
    findings_by_part = hand_out(answers, parts)
    if answers.pending or answers.resting:
        return None
    for part in parts:
        if part.name not in findings_by_part:
            findings_by_part[part.name] = WORK[part.assignment["part"]](answers, part.assignment)
    return None if answers.pending else findings_by_part


def explore_area(answers: KnownAnswers, assignment: dict[str, Any]) -> Findings:
    """What one area is, for the sub-agent that explores it."""
    name = str(assignment.get("name", ""))
    answer = answers.whole(
        answers.ask(TOOL, question="area", area=name, **_more(bool(assignment.get("full"))))
    )
    if answers.pending:
        return Findings(name)
    rows = read_answer(answer, list[AreaRow])
    if not rows:
        return Findings(name, whole=False, why=why_not(answer))
    n_files, n_keys = sum(row.n_files for row in rows), sum(len(row.keys) for row in rows)
    summary = f"{plural(n_files, 'file')}, {plural(n_keys, 'key type')}"
    return Findings(name, [["area", msgspec.to_builtins(row)] for row in rows], said=summary)


def read_history(answers: KnownAnswers, assignment: dict[str, Any]) -> Findings:
    """Which files the last commits changed."""
    answer = answers.whole(answers.ask(TOOL, question=HISTORY))
    if answers.pending:
        return Findings(HISTORY)
    commits = read_answer(answer, CommitHistory)
    if commits is None:
        return Findings(HISTORY, whole=False, why=why_not(answer))
    row: Row = ["history", msgspec.to_builtins(commits)]
    summary = (
        commits.problem
        or f"{plural(commits.n_commits, 'commit')}, {commits.first} to {commits.last}"
    )
    return Findings(HISTORY, [row], said=summary)


WORK = {"area": explore_area, HISTORY: read_history}


def area_rows(findings: Findings) -> list[AreaRow]:
    """The areas among findings. A sub-agent's text is data: what has another shape is ignored."""
    rows = []
    for (value,) in findings.get("area", dict):
        try:
            rows.append(msgspec.convert(value, AreaRow))
        except msgspec.ValidationError:
            continue
    return [row for row in rows if findings.name in (row.name, FILES)]


def history_of(findings: Findings | None) -> CommitHistory | None:
    for (value,) in findings.get("history", dict) if findings is not None else ():
        try:
            return msgspec.convert(value, CommitHistory)
        except msgspec.ValidationError:
            continue
    return None
