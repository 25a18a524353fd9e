"""Finds a child by its id, and formats its status."""

from __future__ import annotations

import uuid
from typing import Any

from retinue.core.answer_layout import Long, result_of
from retinue.core.provenance import provenance_text
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import Value
from retinue.tools.base import Context
from retinue.tools.families.agent.agent_tool import AgentTool
from retinue.tools.families.base import CallComplaint
from retinue.tools.families.family_states import agent_state


class One(Value, forbid_unknown_fields=True):
    agent_id: str


ID_SCHEMA = {
    "type": "string",
    "description": "The agent_id that agent_spawn or agent_fork returned.",
}


class ChildTool(AgentTool):
    """Reads the calling run's own children, whichever family started them. Of those that have ended
    only the newest are shown; the log keeps all."""

    def __init__(self, n_kept: int = 256, *, more_keys: bool = True) -> None:
        self.kept, self.more_keys = n_kept, more_keys

    async def visible(self, context: Context) -> list[RunRecord]:
        children = list(await context.children())
        if context.is_woken:  # A child that was waited for is found even if it is no longer shown.
            return children
        ended = sorted(
            (e.at, spec.id) for spec, run in children if (e := ending_of(run)) is not None
        )
        ids = {id for _, id in ended[: max(0, len(ended) - self.kept)]}
        return [record for record in children if record[0].id not in ids]

    async def find(self, context: Context, *ids: str) -> list[RunRecord]:
        """Children by their ids, each once."""
        uuids = dict.fromkeys(uuid_of(id) for id in ids)
        records = {record[0].id: record for record in await self.visible(context)}
        for id in uuids:
            if id not in records:
                raise CallComplaint(f"Sub-agent not found: {id}")
        return [records[id] for id in uuids]


def uuid_of(id: str) -> str:
    try:
        return str(uuid.UUID(id))
    except ValueError as error:
        raise CallComplaint(f"Invalid agent_id format: {error}") from None


def started(record: RunRecord) -> int:
    spec, run = record
    return spec.created_at if run.started_at is None else run.started_at


def status_of(record: RunRecord, now: int, *, more_keys: bool = True) -> dict[str, Any]:
    """Keys that do not apply are absent. `more_keys`: with those that the document does not
    have."""
    spec, run = record
    ending, state = ending_of(run), agent_state(run)
    out: dict[str, Any] = {"agent_id": spec.id, "state": state}
    if state == "completed" and ending is not None:
        out["output"] = result_of(ending)
    if state == "failed" and ending is not None:
        out["error"] = Long(ending.error or ending.stop)
    if more_keys and ending is not None and ending.stop.endswith("_budget"):
        out["note"] = Long(ending.error)
    if ending is not None and (missing := provenance_text(ending.helpers)):
        out["missing"] = missing
    out["is_final"] = ending is not None
    out["duration_ms"] = max(0, (now if ending is None else ending.at) - started(record))
    if ending is not None:
        out["tokens_used"] = run.usage.tokens
        if more_keys and run.usage.estimated:
            out["tokens_estimated"] = run.usage.estimated
    return out
