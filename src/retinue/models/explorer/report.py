"""A report in sections that fits the maximum length of a reply: the least important parts are
omitted, and the report says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.formats.safe_text import one_line
from retinue.models.explorer.child_report import Findings
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.report_text import bullets, wrapped

OFFLINE = "offline, no model."
"""How the last paragraph of every report begins."""


class Report:
    """`rank`: sections of a higher rank are omitted first; those of rank 0 never."""

    def __init__(self) -> None:
        self._sections: list[tuple[int, str, str]] = []

    def section(self, text: str, rank: int = 0, name: str = "") -> None:
        if text.strip():
            self._sections.append((rank, name, text.strip("\n")))

    def text(self, room: int = 1 << 30) -> str:
        sections = list(self._sections)
        omissions: list[str] = []
        while _size(sections, omissions) > room:
            least = max(sections, key=lambda s: s[0], default=None)
            if least is None or least[0] == 0:
                break
            sections.remove(least)
            omissions.append(least[1] or "a section")
        out = _join(sections, omissions)
        return out if len(out.encode()) <= room else _cut(out, room)


def _join(sections: list[tuple[int, str, str]], omissions: list[str]) -> str:
    texts = [text for _, _, text in sections]
    if omissions:
        texts.insert(
            max(0, len(texts) - 1), f"Omitted to save space: {', '.join(reversed(omissions))}."
        )
    return "\n\n".join(texts) + "\n"


def _size(sections: list[tuple[int, str, str]], omissions: list[str]) -> int:
    return len(_join(sections, omissions).encode())


def _cut(text: str, room: int) -> str:
    """The last resort: as much as fits, and the footer."""
    tail = f"\n[truncated to save space]\n\n---\n{OFFLINE}\n"
    return text.encode()[: max(0, room - len(tail))].decode("utf-8", "ignore") + tail


def empty_report(title: str, why: str, gaps: Sequence[str]) -> Report:
    """A report that has nothing to say, and says why."""
    report = Report()
    report.section(f"# {title}\n\n{wrapped(why)}")
    report.section(bullets(gaps))
    report.section(f"---\n{OFFLINE}")
    return report


def gaps(answers: KnownAnswers, findings: Iterable[Findings]) -> list[str]:
    """What the report does not know, in so many words."""
    lines = list(answers.gaps)
    for one in findings:
        if one.why:
            lines.append(f"`{one.name}` is missing from this report: {one_line(one.why, 200)}")
        elif not one.whole:
            lines += [f"`{one.name}`: {one_line(n, 200)}" for n in one.notes] or [
                f"`{one.name}` was not fully explored; its counts are lower bounds"
            ]
    if answers.work.stop:
        lines.append("a message asked to stop, so the report has only what was known by then")
    elif answers.starved:
        lines.append("a limit was reached, so the report has only what was known by then")
    lines += [
        f"a message arrived and was not used (there is no LLM to read it): {one_line(t, 80)}"
        for t in (() if answers.work.stop else answers.work.unread)
    ]
    return list(dict.fromkeys(lines))
