"""A report in sections, which fits the room that a reply has: what matters least is left out, and
that is said."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.formats.safe_text import one_line
from retinue.models.explorer.child_report import Findings
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.report_text import plural

FOOTER = "Offline explorer (no LLM). To use a model: export ANTHROPIC_API_KEY=... or retinue config"


class Report:
    """`rank`: sections of a higher rank are left out first; those of rank 0 never."""

    def __init__(self) -> None:
        self._sections: list[tuple[int, str, str]] = []

    def section(self, text: str, rank: int = 0, name: str = "") -> None:
        if text.strip():
            self._sections.append((rank, name, text.strip("\n")))

    def text(self, room: int = 1 << 30) -> str:
        kept = list(self._sections)
        gone: list[str] = []
        while _size(kept, gone) > room:
            least = max(kept, key=lambda s: s[0], default=None)
            if least is None or least[0] == 0:
                break
            kept.remove(least)
            gone.append(least[1] or "a section")
        out = _join(kept, gone)
        return out if len(out.encode()) <= room else _cut(out, room)


def _join(kept: list[tuple[int, str, str]], gone: list[str]) -> str:
    texts = [text for _, _, text in kept]
    if gone:
        texts.insert(max(0, len(texts) - 1), f"Omitted to save space: {', '.join(reversed(gone))}.")
    return "\n\n".join(texts) + "\n"


def _size(kept: list[tuple[int, str, str]], gone: list[str]) -> int:
    return len(_join(kept, gone).encode())


def _cut(text: str, room: int) -> str:
    """The last resort: as much as fits, and the footer."""
    tail = f"\n[truncated to save space]\n\n{FOOTER}\n"
    return text.encode()[: max(0, room - len(tail))].decode("utf-8", "ignore") + tail


def footer(book: KnownAnswers, found: Iterable[Findings]) -> str:
    found = list(found)
    children = [f for f in found if f.by_child]
    calls = book.n_calls + sum(f.calls for f in children)
    agents = 1 + len(children)
    who = f"{agents} agents" if agents > 1 else "1 agent"
    counted = (
        f"{plural(calls, 'tool call')} by {who}; every statement above cites the file it "
        "comes from."
    )
    return f"---\n{FOOTER}\n{counted}"


def gaps(book: KnownAnswers, found: Iterable[Findings]) -> str:
    """What the report does not know, in so many words."""
    lines = list(book.gaps)
    for one in found:
        if one.why:
            lines.append(f"`{one.name}` is missing from this report: {one_line(one.why, 200)}")
        elif not one.whole:
            lines += [f"`{one.name}`: {one_line(n, 200)}" for n in one.notes] or [
                f"`{one.name}` was not fully explored; its counts are lower bounds"
            ]
    if book.work.stop:
        lines.append("a message asked to stop, so the report has only what was known by then")
    elif book.starved:
        lines.append("a limit was reached, so the report has only what was known by then")
    lines += [
        f"a message arrived and was not used (there is no LLM to read it): {one_line(t, 80)}"
        for t in (() if book.work.stop else book.work.unread)
    ]
    if not lines:
        return ""
    return "## What is missing\n\n" + "\n".join(f"- {line}" for line in dict.fromkeys(lines))
