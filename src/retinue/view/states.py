"""The texts of the view: names, ends and provider problems."""

from __future__ import annotations

import msgspec

from retinue.core.spec import RunSpec
from retinue.core.values import Ending
from retinue.formats.safe_text import one_line
from retinue.view.format import agent_label, short_id, shown_state, span_text

__all__ = [
    "agent_label",
    "ending",
    "failure",
    "label",
    "lowered",
    "short_id",
    "shown_state",
    "tail",
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


def label(spec: RunSpec) -> str:
    """The label of an agent: from its request, otherwise its name."""
    return one_line(agent_label(spec.request.label or spec.request.agent), 200) or short_id(spec.id)


def lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def tail(text: str, most: int = 100) -> str:
    """The end of what is being written: of its last line."""
    flat = next((line for part in reversed(text.splitlines()) if (line := one_line(part))), "")
    return flat if len(flat) <= most else "…" + flat[1 - most :]


def ending(end: Ending, started_at: int | None) -> str:
    """What a run came to, in one line."""
    if end.state != "completed":
        return failure(end, started_at)
    text = heading(end.text)
    if not text and end.data is not None:
        text = (
            end.data
            if isinstance(end.data, str)
            else msgspec.json.encode(end.data)[:400].decode("utf-8", "ignore")
        )
    return text or "done"


def heading(text: str) -> str:
    """The first line that says something, without the signs of Markdown before it."""
    for part in text.splitlines():
        if title := part.strip().lstrip("#>*-= ").strip():
            return title
    return ""


CANCELLERS = {"parent": "by its parent", "limit": "by a limit", "system": "by the system"}


def canceller(end: Ending) -> str:
    """Who cancelled a run. The system is the runtime, or another program, such as a supervisor."""
    return CANCELLERS.get(end.by, "by you")


def failure(end: Ending, started_at: int | None) -> str:
    """Why a run did not complete."""
    why = end.error or STOPS.get(end.stop, end.stop.replace("_", " "))
    if end.state == "timed_out":
        after = f" after {span_text(end.at - started_at)}" if started_at and end.at else ""
        return f"timed out{after}"
    if end.state == "incomplete":
        return f"{STOPS.get(end.stop, why)}: {heading(end.text)}" if end.text else why
    if end.state == "cancelled":
        if end.along:
            return "with its parent"
        return end.reason or canceller(end)
    return why or end.state
