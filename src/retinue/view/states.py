"""The words of the view: states and their glyphs, ends and troubles."""

from __future__ import annotations

import msgspec

from retinue.core.spec import Spec
from retinue.core.values import Ending
from retinue.formats.safe_text import one_line
from retinue.view.format import agent_label, glyph, short_id, shown_state, span, state_text

__all__ = [
    "agent_label",
    "ending",
    "failure",
    "glyph",
    "label",
    "short_id",
    "shown_state",
    "span",
    "state_text",
    "tail",
    "trouble",
]

STOPS = {
    "budget": "the budget is spent",
    "turn_limit": "no turns left",
    "length": "reply truncated",
    "timeout": "timed out",
    "no_report": "no result submitted",
    "empty": "empty reply from the model",
    "refused": "refused by the model",
}
KINDS = {
    "rate_limit": "rate limit",
    "rate_limited": "rate limit",
    "overloaded": "overloaded",
    "unavailable": "not reachable",
    "timeout": "no response in time",
    "server": "server error",
}


def label(spec: Spec) -> str:
    """What an agent is called: by its order, else by its name."""
    return one_line(agent_label(spec.order.label or spec.order.agent), 200) or short_id(spec.id)


def tail(text: str, most: int = 100) -> str:
    """The end of what is being written: of its last line."""
    flat = next((said for part in reversed(text.splitlines()) if (said := one_line(part))), "")
    return flat if len(flat) <= most else "…" + flat[1 - most :]


def trouble(kind: str, message: str) -> str:
    return (
        KINDS.get(kind) or (kind.replace("_", " ") if kind else one_line(message, 80)) or "failed"
    )


def waiting_for_provider(kind: str, what: str, until: int | None, now: int, tries: int) -> str:
    """`waiting for the provider: rate limit, next try in 12 s`."""
    is_over_by_itself = until is not None and until > now and kind != "auth"
    left = (
        ""
        if until is None or not is_over_by_itself
        else f", next try in {(until - now + 999) // 1000} s"
    )
    again = f" (try {tries + 1})" if tries else ""
    return f"waiting for the provider: {one_line(what, 80)}{left}{again}"


def ending(end: Ending, started_at: int | None) -> str:
    """What a run came to, in one line."""
    if end.state != "completed":
        return failure(end, started_at)
    said = heading(end.text)
    if not said and end.data is not None:
        said = (
            end.data
            if isinstance(end.data, str)
            else msgspec.json.encode(end.data)[:400].decode("utf-8", "ignore")
        )
    return said or "done"


def heading(text: str) -> str:
    """The first line that says something, without the signs of Markdown before it."""
    for part in text.splitlines():
        if said := part.strip().lstrip("#>*-= ").strip():
            return said
    return ""


def failure(end: Ending, started_at: int | None) -> str:
    """Why a run did not complete."""
    why = end.error or STOPS.get(end.stop, end.stop.replace("_", " "))
    if end.state == "timed_out":
        after = f" after {span(end.at - started_at)}" if started_at and end.at else ""
        return f"timed out{after}"
    if end.state == "incomplete":
        return f"{STOPS.get(end.stop, why)}: {heading(end.text)}" if end.text else why
    return why or end.state
