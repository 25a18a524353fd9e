"""The job `review`: what changed, definition by definition, and what the checks say of it. Two
lines are for programs: `severity:` is the worst finding, `complete:` whether every changed file
was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.models.explorer.intent import revision
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.map_job import TOOL, read_answer, why_not
from retinue.models.explorer.report import OFFLINE, Report, gaps
from retinue.models.explorer.report_text import bullets, cell, listed, plural, some, spot, wrapped
from retinue.syntax.changes.review_facts import SEVERITIES, ChangeRow, ReviewFacts, RoleCount

MADE = "Definitions compared from the syntax trees of both versions (tree-sitter), changes by git."
ROLES = {"source": "source", "test": "tests", "aside": "examples, documentation and tooling"}
MOST_ROWS = 40
MOST_FINDINGS = 40
MOST_COMMENTS = 8
MOST_NAMES = 5


def review_job(
    answers: KnownAnswers, text: str, note: str = "", *, full: bool = False
) -> Report | None:
    """The report, or None while something is still to be asked."""
    revision_text = revision(text)
    answer = answers.whole(
        answers.ask(TOOL, question="changes", **({"text": revision_text} if revision_text else {}))
    )
    if answers.pending:
        return None
    facts = read_answer(answer, ReviewFacts)
    if facts is None:
        return _nothing(why_not(answer), gaps(answers, []))
    if facts.problem:
        return _nothing(f"{facts.problem}.", gaps(answers, []))
    return write_review(facts, full=full, note=note, missing=gaps(answers, []))


def _nothing(why: str, missing: Sequence[str]) -> Report:
    report = Report()
    reason = why[0].upper() + why[1:]
    report.section(
        f"# Review\n\nseverity: none\ncomplete: no\n\n{wrapped(f'Nothing was reviewed. {reason}')}"
    )
    report.section(bullets(missing))
    report.section(f"---\n{OFFLINE}")
    return report


def write_review(
    facts: ReviewFacts, *, full: bool, note: str = "", missing: Sequence[str] = ()
) -> Report:
    worst = next((s for s in SEVERITIES if any(f.severity == s for f in facts.findings)), "none")
    is_whole = not facts.unread and not missing
    report = Report()
    top = [wrapped(f"# Review of {facts.title}"), ""]
    if note:
        top += [wrapped(note), ""]
    top += [f"severity: {worst}", f"complete: {'yes' if is_whole else 'no'}", ""]
    report.section("\n".join([*top, wrapped(_summary(facts))]))
    report.section(_changes(facts, full=full), 3, "what changed")
    report.section(_findings(facts, full=full), 1, "findings")
    report.section(_checked(facts), 4, "checks")
    report.section("## Not checked\n\n" + bullets(_unchecked(facts, missing)))
    report.section("---\n" + wrapped(f"{OFFLINE} {MADE}"))
    return report


def _summary(facts: ReviewFacts) -> str:
    total = RoleCount(
        "",
        sum(role.n_files for role in facts.roles),
        sum(role.n_added for role in facts.roles),
        sum(role.n_removed for role in facts.roles),
    )
    commits = f"{plural(facts.n_commits, 'commit')}, " if facts.n_commits > 1 else ""
    sentence = f"{commits}{_counted(total)}"
    parts = [
        f"{ROLES[r.role]} {_lines(r)} in {plural(r.n_files, 'file')}"
        for r in facts.roles
        if r.role in ROLES
    ]
    return (
        f"{sentence}; of that, {', '.join(parts)}." if parts else f"{sentence}, none of them code."
    )


def _counted(role: RoleCount) -> str:
    return f"{plural(role.n_files, 'file')}, {_lines(role)}"


def _lines(role: RoleCount) -> str:
    return f"+{role.n_added:,} -{role.n_removed:,}"


def _changes(facts: ReviewFacts, *, full: bool) -> str:
    rows = [row for row in facts.changes if row.change != "comments"]
    comments = [name for row in facts.changes if row.change == "comments" for name in row.names]
    if not rows and not comments:
        return ""
    parts = ["## What changed, by definition"]
    most = len(rows) if full else MOST_ROWS
    if rows:
        lines = ["| change | definition | place |", "|---|---|---|"]
        lines += [_row(row) for row in rows[:most]]
        parts.append("\n".join(lines))
    if len(rows) > most:
        parts.append(f"And {len(rows) - most:,} more.")
    if comments:
        comment_text = some(
            [f"`{name}`" for name in comments], len(comments) if full else MOST_COMMENTS
        )
        parts.append(wrapped(f"Comments or docstrings only: {comment_text}."))
    return "\n\n".join(parts)


def _row(row: ChangeRow) -> str:
    names = some([f"`{name}`" for name in row.names], MOST_NAMES)
    note = f": {row.note}" if row.note else ""
    place = spot(row.place) if row.place else row.path
    return f"| {row.change} | {cell(names + note)} | {cell(place)} |"


def _findings(facts: ReviewFacts, *, full: bool) -> str:
    if not facts.findings:
        return "## Findings\n\nNo check found anything. What the code does was not judged."
    most = len(facts.findings) if full else MOST_FINDINGS
    rows = [
        wrapped(f"**{one.severity}** {spot(one.place)}: {one.text}", f"{n}. ", "   ")
        for n, one in enumerate(facts.findings[:most], start=1)
    ]
    if len(facts.findings) > most:
        rows.append(f"\nAnd {len(facts.findings) - most:,} more.")
    return "## Findings\n\n" + "\n".join(rows)


def _checked(facts: ReviewFacts) -> str:
    rows = list(facts.notes)
    if facts.checked:
        names_text = ", ".join(facts.checked)
        rows.append(f"{names_text[0].upper()}{names_text[1:]}.")
    return "## Checked, and nothing found\n\n" + bullets(rows) if rows else ""


def _unchecked(facts: ReviewFacts, missing: Sequence[str]) -> Iterator[str]:
    yield "What the code does when it runs. No test was run."
    others = next((role for role in facts.roles if role.role == "other"), None)
    n_text = (others.n_files if others else 0) - len(facts.unread)
    if n_text > 0:
        yield (
            f"{plural(n_text, 'file')} in no language that is parsed: read as text, for conflict "
            "marks, keys and notes only."
        )
    rows = [f"{one.path} ({one.why}, +{one.n_added:,} -{one.n_removed:,})" for one in facts.unread]
    if rows:
        yield f"Not read: {some(rows, 10) if len(rows) > 2 else listed(rows)}."
    yield from missing
