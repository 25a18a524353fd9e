"""The text about a session's end."""

from __future__ import annotations

from typing import Any

from retinue.core.answer_layout import Long
from retinue.core.answer_layout import result_of as answer_result
from retinue.core.provenance import provenance_text
from retinue.core.state import Run, Thinking
from retinue.core.values import Ending, Helpers
from retinue.tools.families.family_states import SESSIONS


def session_result(ending: Ending) -> dict[str, Any]:
    """How a run ended, for a call that waited: its own last text, not the announcement. A failure
    has no result."""
    out: dict[str, Any] = {"status": SESSIONS[ending.state]}
    out |= _missing(ending.helpers)
    if ending.state == "completed":
        return {
            **out,
            "reply": Long(ending.data) if isinstance(ending.data, str) else answer_result(ending),
        }
    out["error"] = Long(ending.error or ending.stop)
    if ending.text and ending.state in ("incomplete", "timed_out"):
        out["partial"] = answer_result(ending)
    return out


def _missing(helpers: Helpers) -> dict[str, str]:
    missing = provenance_text(helpers)
    return {"missing": missing} if missing else {}


def is_announcing(run: Run) -> bool:
    """Whether a run has done its task and is writing its message for the chat."""
    return isinstance(run.state, Thinking) and run.state.purpose == "announce"
