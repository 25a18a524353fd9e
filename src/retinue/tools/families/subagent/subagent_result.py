"""The text about a sub-agent's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.answer_layout import Long, WasCut
from retinue.core.effects import ChildOutcome
from retinue.formats.money import bound
from retinue.tools.families.family_states import SUBAGENT
from retinue.tools.families.subagent.subagent_output import cut, mark

UNPAID = ("budget", "tokens_budget")
ASKED_TWICE = ("done", "turn_limit", "budget", "no_report")
"""Ends before which the child was asked a second time, after its task: for its summary, or for what
it has."""


def fail_fast_notice(outcomes: Sequence[ChildOutcome]) -> dict[str, Any]:
    """Whose failure has ended the batch, and who was cancelled because of it, by their places among
    the tasks."""
    cancelled = [o for o in outcomes if _is_cut_off(o)]
    if not cancelled:
        return {}
    failed = [o for o in outcomes if o.is_failure and not _is_cut_off(o)]
    first = min(failed, key=lambda o: (o.ending.at, o.item))
    return {
        "fail_fast": {
            "failed": {"index": first.item, "label": first.label},
            "cancelled": [{"index": o.item, "label": o.label} for o in cancelled],
        }
    }


def _is_cut_off(one: ChildOutcome) -> bool:
    """Whether a task was cancelled because another of its batch had failed."""
    return one.ending.state == "cancelled" and one.ending.by == "system" and not one.ending.along


def line_of(one: ChildOutcome, size: int, *, has_quota: bool) -> dict[str, Any]:
    whole = result_of(one, size, has_quota=has_quota)
    line = {
        "label": Long(one.label),
        "success": whole["success"],
        "output": whole["output"],
        "duration_ms": one.ending.at - one.started_at,
    }
    if "error" in whole:
        line["error"] = whole["error"]
    line["tokens_used"] = one.usage.tokens
    if whole["success"] and one.ending.state != "completed":
        line["completion_status"] = SUBAGENT[one.ending.state]
    return line


def _error_of(one: ChildOutcome, *, has_quota: bool) -> str:
    ending = one.ending
    if has_quota and ending.stop in UNPAID and not one.usage.turns:
        return f"Resource quota exceeded: {ending.error or 'the rest does not pay for one call'}"
    if _is_cut_off(one):
        return f"Cancelled by fail_fast: {ending.error}"
    return f"Subagent task execution failed: {ending.error or ending.stop}"


def result_of(one: ChildOutcome, size: int, *, has_quota: bool = False) -> dict[str, Any]:
    """The result object: what came of the task, and facts about it as texts."""
    ending, usage = one.ending, one.usage
    success = ending.state in ("completed", "incomplete") and bool(ending.text.strip())
    whole = ending.artifacts[-1] if ending.artifacts else None
    output, truncated = cut(ending.text, size, whole)
    output_text = Long(
        output, f"artifact {whole.path}" if whole is not None else "", note=mark(whole)
    )
    metadata: dict[str, Any] = {
        "subagent_label": Long(one.label),
        "recursion_depth": str(one.depth),
        "completion_status": SUBAGENT[ending.state],
        "turns_used": "2" if ending.stop in ASKED_TWICE else "1",
    }
    if ending.stop == "turn_limit":
        metadata |= {"max_turns_reached": "true", "max_turns": str(one.max_turns)}
    if usage.tokens:
        metadata["tokens_used"] = bound(str(usage.tokens), is_bound=bool(usage.estimated))
    if usage.input or usage.output:
        metadata |= {"prompt_tokens": str(usage.input), "completion_tokens": str(usage.output)}
    if ending.state != "completed":
        metadata["stop_reason"] = ending.stop
    error = {} if success else {"error": Long(_error_of(one, has_quota=has_quota))}
    return {
        "success": success,
        "output": output_text,
        **error,
        "truncated": WasCut(output_text, truncated),
        "metadata": metadata,
    }
