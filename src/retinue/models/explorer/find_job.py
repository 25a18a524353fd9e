"""The job `find`: asks one question of the tree's syntax and writes the answer as a report."""

from __future__ import annotations

import msgspec

from retinue.formats.safe_text import one_line
from retinue.models.explorer.find_report import prose, write_names, write_words
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.report import Report, gaps
from retinue.syntax.symbol_answers import FindAnswer

HOW = prose(
    "offline, no model. Definitions, imports and calls come from syntax trees (tree-sitter); "
    "comments, strings and declarations do not count as calls, and calls through a pointer or "
    "a macro's body are not seen. Mentions are a text search for the whole word."
)
NO_TOOL = "The tool `symbols` is not offered to this run, and without it nothing can be looked up."


def find_job(
    answers: KnownAnswers, question: str, note: str = "", *, full: bool = False
) -> Report | None:
    text = question.strip()
    report = Report()
    title = one_line(text, 80) or "Find"
    report.section("\n\n".join([f"# {title}", *([note] if note else [])]))
    if not text:
        report.section("The question names nothing to look for.")
    elif not answers.can("symbols") and not answers.used("symbols"):
        report.section(NO_TOOL)
    else:
        arguments = {"text": text, **({"full": True} if full else {})}
        answer = answers.whole(answers.ask("symbols", **arguments))
        if answers.pending:
            return None
        _write(report, "" if answer is None or answer.error else answer.text, answers)
        if answer is not None and answer.error:
            report.section(f"The tree could not be searched: {one_line(answer.text, 300)}")
    report.section(_gaps(answers))
    report.section(f"---\n{HOW}")
    return report


def _write(report: Report, text: str, answers: KnownAnswers) -> None:
    if not text:
        return
    try:
        find_answer = msgspec.json.decode(text, type=FindAnswer)
    except (msgspec.DecodeError, msgspec.ValidationError):
        answers.gap("the answer about symbols was cut or could not be read")
        return
    for one in find_answer.names:
        write_names(report, one)
    if find_answer.words is not None:
        write_words(report, find_answer.words)
    for gap in find_answer.gaps:
        answers.gap(gap)
    for problem in find_answer.problems[:5]:
        answers.gap(problem)
    if find_answer.left_out:
        sentence = ", ".join(f"{role} ({n:,})" for role, n in sorted(find_answer.left_out.items()))
        answers.gap(f"files not read, by reason: {sentence}")


def _gaps(answers: KnownAnswers) -> str:
    lines = [prose(f"- {gap}") for gap in gaps(answers, ())]
    return "## Not looked at\n\n" + "\n".join(lines) if lines else ""
