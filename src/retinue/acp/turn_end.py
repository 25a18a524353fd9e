"""The stop reason of a prompt, as the protocol names it."""

from __future__ import annotations

from acp import RequestError, schema

from retinue.formats.safe_text import one_line
from retinue.tree_record import TreeRecord
from retinue.view import states, totals

STOPS: dict[str, schema.StopReason] = {
    "turn_limit": "max_turn_requests",
    "budget": "max_tokens",
    "length": "max_tokens",
    "refused": "refusal",
}
"""Reasons of ours that an editor has a word for."""


def turn_end(final: TreeRecord) -> schema.PromptResponse:
    """The reply to a prompt. Raises `RequestError` for a run that failed."""
    row, usage, spent = final.rows[0], totals.tree_usage(final), totals.spent(final)
    ending = totals.ending(row)
    assert ending is not None
    if ending.state == "cancelled":
        reason: schema.StopReason = "cancelled"
    elif ending.state in ("completed", "incomplete") or ending.stop in STOPS:
        reason = STOPS.get(ending.stop, "end_turn")
    else:
        why = one_line(states.failure(ending, row.run.started_at), 400)
        raise RequestError(-32603, f"The run failed: {why}", {"run": row.spec.id})
    return schema.PromptResponse(
        stop_reason=reason,
        usage=schema.Usage(
            total_tokens=usage.input + usage.output,
            input_tokens=usage.input,
            output_tokens=usage.output,
        ),
        field_meta={
            "retinue": {
                "run": row.spec.id,
                "usd": spent.usd,
                "usd_estimated": spent.usd_estimated,
                "tokens_estimated": spent.tokens_estimated,
                "cost_is_known": spent.cost_is_known,
                "missing": totals.missing(row),
            }
        },
    )
