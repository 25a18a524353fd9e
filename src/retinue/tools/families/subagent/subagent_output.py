"""Shortens an output of the family `subagent` to a number of bytes, with the mark of the family's
document."""

from __future__ import annotations

from collections.abc import Callable

from retinue.core.values import Artifact
from retinue.formats.fair_cut import NOTE, boundary

MARK = "\n... (truncated)"


def cut(text: str, size: int, whole: Artifact | None) -> tuple[str, bool]:
    """At most `size` bytes, never half a character; the mark says where the whole is. A text too
    long even to be passed on has been cut before: then only the artifact is complete."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return text, whole is not None and NOTE.search(text[-200:]) is not None
    text_shown = text[: boundary(text, len(data[:size].decode("utf-8", "ignore")))]
    return f"{text_shown}{mark(whole)(0, 0, '')}", True


def mark(whole: Artifact | None) -> Callable[[int, int, str], str]:
    """The document's word at a cut."""
    if whole is not None:
        return lambda n, total, where: (
            f"{MARK}\n(full text, {whole.size} bytes, in artifact {whole.path})"
        )
    return lambda n, total, where: f"{MARK}\n(full text in {where})" if where else MARK
