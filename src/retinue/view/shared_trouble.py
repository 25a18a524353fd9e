"""A problem that blocks all runs: when all open runs wait for the same provider, one line says so,
and rows keep their last words."""

from __future__ import annotations

from collections.abc import Callable

from retinue.host.provider_waits import ProviderWait, url_names
from retinue.view.cells import Cells, Line, crop, fits
from retinue.view.rows import TreeView
from retinue.view.run_node import provider_wait
from retinue.view.state_marks import MARKS

KEPT, IDLE = ("rate_limited", "retrying"), ("queued", "waiting")
SAFE = "Nothing is lost or spent."


def shared_wait(view: TreeView) -> tuple[ProviderWait, int] | None:
    """What all open sub-agents wait for, and how many they are; None where not all do, or there is
    only one. Who is queued, or waits for others, is not kept by a provider."""
    below = [node for node in view.nodes.values() if node.parent is not None and not node.is_over]
    others = [node for node in below if node.mark not in (*KEPT, *IDLE)]
    waits = [
        wait for node in below if node.mark in KEPT and (wait := provider_wait(node)) is not None
    ]
    if len(waits) < 2 or others or len({(w.provider, w.answer, w.state) for w in waits}) > 1:
        return None
    return min(waits, key=lambda wait: wait.retry_at or 0), len(waits)


def trouble_lines(
    wait: ProviderWait, n: int, width: int, now: int, clock: Callable[[int], str]
) -> list[Line]:
    """`◷ 9 rate limited: anthropic 429, next try in 57 s at 14:13:05, 3 of 5`, and what to do."""
    mark = MARKS[wait.state]
    at = f" at {clock(wait.retry_at)}" if wait.retry_at is not None and wait.retry_at > now else ""
    head, tries = wait.sentence(now), ""
    if at and ", " in head and " of " in head.rpartition(", ")[2]:
        head, _, tries = head.rpartition(", ")
    text = f": {head}{at}{f', {tries}' if tries else ''}"
    first: Line = [
        Cells(" "),
        Cells(mark.glyph, mark.role, is_glyph=True),
        Cells(f" {n} {mark.word}", mark.role),
        Cells(text),
    ]
    advice = SAFE
    if wait.is_refused:
        names = url_names(wait.provider)
        advice = "Is the server running?" + (f" The base URL is from {names}." if names else "")
    return [crop(first, width), [Cells(fits(f"   {advice}", width - 1), "quiet")]]
