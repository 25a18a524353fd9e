"""How one of several agents ended, as `spawn_agents` reports it."""

from __future__ import annotations

from typing import Any

from retinue.core.answer_layout import Long, result_of
from retinue.core.values import Ending
from retinue.tools.families.family_states import error_kind
from retinue.tools.families.fanout.fanout_texts import NO_OUTPUT


def outcome_of(ending: Ending) -> dict[str, Any]:
    """A child that ran out of turns has done what it has said; any other limit is a failure that
    keeps the text."""
    is_done = ending.state == "completed" or (ending.stop == "turn_limit" and ending.text.strip())
    if is_done:
        return {"success": {"result": result_of(ending)}}
    return {"failure": {"error": Long(_error(ending)), "error_kind": error_kind(ending)}}


def _error(ending: Ending) -> str:
    why = ending.error or ending.stop
    match ending.state:
        case "incomplete":
            head = (
                NO_OUTPUT
                if ending.stop == "turn_limit"
                else f"Incomplete: stopped by a limit ({why})"
            )
        case "timed_out":
            head = f"Timed out: {why}"
        case "cancelled":
            head = f"Cancelled: {why}"
        case "interrupted":
            head = f"Interrupted: {why}"
        case _:
            head = why
    has_text = (
        ending.text.strip() and ending.stop != "sub_agent_error" and ending.text != ending.error
    )
    return f"{head}\nText so far: {ending.text}" if has_text else head
