"""The rules of a frame, on a screen as it was captured: nothing reaches the last column, every mark
is one of those that have a meaning, and every state has its glyph and its word."""

from __future__ import annotations

import re

from rich.cells import cell_len

from retinue.view.state_marks import MARKS

GLYPHS = "".join(dict.fromkeys(mark.glyph for mark in MARKS.values()))
OTHERS = "├└│▸·…≤↑↓↵•─█▒░▁▂▃▄▅▆▇↳→\N{EN DASH}\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
WORDS = {
    glyph: tuple(mark.word for mark in MARKS.values() if mark.glyph == glyph) for glyph in GLYPHS
}
ROW = re.compile(rf"[▸ ](?:[├└│] )*([{GLYPHS}]) (?!\d)\S")
NUMBER = re.compile(r"(?:\d[smh]|\$[\d.]+|n/a|\N{EN DASH})$")
NOT_A_STATE = re.compile(r" \d+(?:  |$)| [\w-]+ (?:wants to|asks:)| The run has|code=")


def frame_problems(text: str, columns: int, quoted: str = "") -> list[str]:
    """What is wrong with a screen of so many columns. `quoted` are other characters that may be
    there."""
    problems = []
    for line in text.split("\n"):
        if cell_len(line) > columns - 1:
            problems.append(f"{cell_len(line)} cells: {line}")
        strange = {c for c in line if ord(c) > 126 and c not in GLYPHS + OTHERS + quoted}
        problems += [f"{c} has no meaning: {line}" for c in sorted(strange)]
        problems += [f"{glyph} without its word: {line}" for glyph in _wordless(line)]
        if columns >= 80 and (row := ROW.match(line)) and NUMBER.search(line):
            at = next((at for width, at in ((120, 26), (100, 22)) if columns >= width), 20) + 1
            if not line[at:].startswith(WORDS[row[1]]) and not line[3:].startswith(WORDS[row[1]]):
                problems.append(f"no state in its column: {line}")
    return problems


def _wordless(line: str) -> list[str]:
    results = []
    for match in re.finditer(f"[{GLYPHS}]", line):
        after = line[match.end() :]
        has_word = any(word in after for word in WORDS[match[0]])
        if not has_word and not NOT_A_STATE.match(after):
            results.append(match[0])
    return results
