"""What `subagents` reports about each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.answer_layout import Long
from retinue.core.effects import ChildOutcome
from retinue.core.state import Asking, Run, ending_of
from retinue.core.values import Ending
from retinue.tools.base import Context, ToolResult
from retinue.tools.families.base import reader_of
from retinue.tools.families.family_states import session_state
from retinue.tools.families.sessions.session_result import is_announcing, session_result
from retinue.tools.families.sessions.sessions_settings import status


def error_answer(text: str) -> ToolResult:
    return ToolResult(text=status("error", text), error=True)


def reason_of(ids: Sequence[str], runs: dict[str, Run], back: dict[str, ChildOutcome]) -> str:
    """Why a wait is over, or what a look has found."""
    if any(id not in runs and id not in back for id in ids):
        return "unavailable"
    live = [run for id in ids if (run := runs.get(id)) is not None and ending_of(run) is None]
    if not live:
        return "completed"
    return "attention" if any(isinstance(run.state, Asking) for run in live) else "timeout"


def row_of(id: str, run: Run | None, back: ChildOutcome | None) -> dict[str, Any]:
    ending: Ending | None = None if run is None else ending_of(run)
    if back is not None:
        ending = back.ending
    if ending is not None:
        return {"runId": id, **session_result(ending)}
    if run is None:
        return {"runId": id, "status": "unknown", "error": "not a recorded run of yours"}
    if is_announcing(run):
        return {"runId": id, "status": "ok", "reply": Long(run.last_text)}
    asks = (
        {"note": "it is waiting for an answer or a permission"}
        if isinstance(run.state, Asking)
        else {}
    )
    return {"runId": id, "status": session_state(run), **asks}


async def live_below(context: Context, run: str) -> list[str]:
    """All open runs below a run."""
    out, todo = [], [run]
    while todo:
        for spec, child in await reader_of(context).children(todo.pop()):
            if ending_of(child) is None:
                out.append(spec.id)
            if child.n_children:
                todo.append(spec.id)
    return out
