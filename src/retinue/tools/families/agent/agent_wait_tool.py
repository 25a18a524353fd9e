"""`agent_wait`: waits until children have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from retinue.core.answer_layout import Laid, Sheet
from retinue.core.spec import Actions, WaitForRuns
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import ToolSchema, Value
from retinue.tools.base import Context, Returned
from retinue.tools.families.agent.child_status import ChildTool, status_of
from retinue.tools.families.base import CallComplaint, as_json, object_schema

MAX_IDS = 32
MAX_WAIT = 600.0


class Several(Value, forbid_unknown_fields=True):
    agent_ids: tuple[str, ...]
    mode: Literal["all", "any"] = "all"
    timeout_seconds: float = 60.0


class WaitTool(ChildTool):
    schema = ToolSchema(
        name="agent_wait",
        description="Wait until all (or any) of the given sub-agents have ended, or the timeout "
        "passes; returns their states. You are notified of every end even if you do not "
        "wait.",
        parameters=object_schema(
            {
                "agent_ids": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": MAX_IDS,
                },
                "mode": {"type": "string", "enum": ["all", "any"]},
                "timeout_seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": MAX_WAIT,
                    "description": "Default: 60.",
                },
            },
            ("agent_ids",),
        ),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        request = self.read(args, Several, "agent_ids")
        if not 1 <= len(request.agent_ids) <= MAX_IDS:
            raise CallComplaint(
                f"{self.invalid_prefix}: give 1 to {MAX_IDS} agent_ids, "
                f"not {len(request.agent_ids)}"
            )
        if not 0 <= request.timeout_seconds <= MAX_WAIT:
            raise CallComplaint(
                f"{self.invalid_prefix}: timeout_seconds must be between 0 and {MAX_WAIT:.0f}"
            )
        records = await self.find(context, *request.agent_ids)
        live = [spec.id for spec, run in records if ending_of(run) is None]
        over = not live or (request.mode == "any" and len(live) < len(records))
        if over or context.is_woken or not request.timeout_seconds:
            return self._report(records, context.called_at, over=over)
        timeout_ms = round(request.timeout_seconds * 1000)
        wait = WaitForRuns(
            runs=tuple(live), timeout_ms=timeout_ms, first=request.mode == "any", then=as_json(args)
        )
        return Actions(wait=wait)

    def _report(self, records: Sequence[RunRecord], now: int, *, over: bool) -> Laid:
        status = "complete" if over else "timeout"
        agents = [status_of(record, now, more_keys=self.more_keys) for record in records]
        return Sheet({"status": status, "agents": agents}, "agents", lambda row: row["state"])
