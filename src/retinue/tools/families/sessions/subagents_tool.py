"""`subagents`: manages the sessions a run has started: list them, wait for some, steer one, cancel
one with all it started. Waiting and listing read the record; what is announced or brought is
announced or brought all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.spec import Actions, WaitForRuns
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import ToolSchema, Value
from retinue.formats.fair_cut import clip
from retinue.tools.base import Context, Returned, ToolResult
from retinue.tools.families.base import CallComplaint, as_json, object_schema
from retinue.tools.families.family_states import session_state
from retinue.tools.families.sessions.session_tools import LONGEST_STEER
from retinue.tools.families.sessions.sessions_send_tool import SessionsSendTool
from retinue.tools.families.sessions.sessions_settings import CONTROL, status
from retinue.tools.families.sessions.subagents_rows import (
    error_answer,
    live_below,
    reason_of,
    row_of,
)

MOST_IDS, MOST_SECONDS, USUAL_SECONDS = 32, 60, 30
RECENT_MINUTES = 30


class ControlArgs(Value, forbid_unknown_fields=True, rename="camel"):
    action: Literal["list", "wait", "steer", "kill", "cancel"] = "list"
    target: str = ""
    message: str = ""
    run_ids: tuple[str, ...] = ()
    timeout_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] = USUAL_SECONDS
    recent_minutes: Annotated[float, Meta(ge=0)] = RECENT_MINUTES


class ControlTool(SessionsSendTool):
    """Only for the run's own sessions; a run that may not spawn does not have it."""

    schema = ToolSchema(
        name=CONTROL,
        description=(
            "Control the sub-agents you have spawned. list shows the active and recent "
            "ones; wait returns when all named runs have ended or the time is up, and "
            "you still get every result; steer interrupts one's turn with a message; "
            "kill ends one and everything below it."
        ),
        parameters=object_schema(
            {
                "action": {
                    "type": "string",
                    "enum": ["list", "wait", "steer", "kill", "cancel"],
                    "description": "Default: list; cancel means kill.",
                },
                "target": {
                    "type": "string",
                    "description": "For steer and kill: number in the list, label, "
                    "session key, run id or its start; for kill also `all`.",
                },
                "message": {
                    "type": "string",
                    "description": f"For steer: at most {LONGEST_STEER} characters.",
                },
                "runIds": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": MOST_IDS,
                    "description": "For wait: these runs. Default: all active ones.",
                },
                "timeoutSeconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": MOST_SECONDS,
                    "description": f"For wait ({USUAL_SECONDS}); 0 returns now.",
                },
                "recentMinutes": {
                    "type": "number",
                    "minimum": 0,
                    "description": f"For list ({RECENT_MINUTES}).",
                },
            }
        ),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        if context.is_woken:
            return await self._shown(context, args["runs"])
        request = self.read(args, ControlArgs, "runIds")
        match request.action:
            case "list":
                return await self._list(context, request)
            case "wait":
                return await self._wait(context, request)
            case "steer":
                return await self._steer(context, request)
            case _:
                return await self._kill(context, request)

    async def _own(self, context: Context) -> list[RunRecord]:
        """The last run of each session that is not archived, newest first: their places are the
        numbers in the list."""
        return [*reversed(self.spawned(await context.children(), context.called_at).values())]

    async def _list(self, context: Context, request: ControlArgs) -> Laid:
        since = context.called_at - request.recent_minutes * 60_000
        active, recent = [], []
        for n, (spec, run) in enumerate(await self._own(context), 1):
            ending = ending_of(run)
            row = {
                "index": n,
                "runId": spec.id,
                "sessionKey": self.settings.key_of(spec),
                "label": Long(spec.request.label),
                "task": clip(spec.request.task.rsplit("[Task] ", 1)[-1], 200),
                "status": session_state(run),
                "runtimeMs": (context.called_at if ending is None else ending.at)
                - (run.started_at or spec.created_at),
                "model": run.model_used or spec.model,
                "totalTokens": run.usage.tokens,
                "pendingDescendants": len(await live_below(context, spec.id)),
            }
            if ending is None:
                active.append(row)
            elif ending.at >= since:
                recent.append(row)
        reply = {"status": "ok", "action": "list", "active": active, "recent": recent}
        return Sheet(reply, "recent", lambda row: str(row["status"]))

    # waiting

    async def _wait(self, context: Context, request: ControlArgs) -> Returned | Laid:
        own = await self._own(context)
        ids = list(dict.fromkeys(request.run_ids)) or [
            spec.id for spec, run in own if ending_of(run) is None
        ]
        if len(ids) > MOST_IDS:
            return error_answer(
                f"at most {MOST_IDS} runs can be waited for in one call, not {len(ids)}. "
                "Name some in runIds"
            )
        runs = {spec.id: run for spec, run in await context.children()}
        open_ = [id for id in ids if id in runs and ending_of(runs[id]) is None]
        if (
            not request.timeout_seconds
            or not open_
            or reason_of(ids, runs, {}) in ("attention", "unavailable")
        ):
            return await self._shown(context, ids)
        wait = WaitForRuns(
            runs=tuple(open_),
            timeout_ms=round(request.timeout_seconds * 1_000),
            then=as_json({"runs": ids}),
        )
        return Actions(wait=wait)

    async def _shown(self, context: Context, ids: Sequence[str]) -> Laid:
        """How they are now. Nothing is taken from what will be brought or announced."""
        runs = {spec.id: run for spec, run in await context.children()}
        back = {o.id: o for o in context.ended_children}
        rows = [row_of(id, runs.get(id), back.get(id)) for id in ids]
        reply = {
            "status": "ok",
            "action": "wait",
            "reason": reason_of(ids, runs, back),
            "runs": rows,
        }
        return Sheet(reply, "runs", lambda row: str(row["status"]))

    # steering and killing

    async def _steer(self, context: Context, request: ControlArgs) -> Returned:
        if not request.message.strip() or len(request.message) > LONGEST_STEER:
            raise CallComplaint(
                f"{self.invalid_prefix}: message must have 1 to {LONGEST_STEER} characters"
            )
        record = await self._target(context, request.target)
        return self.deliver(context, record, request.message, steer=True)

    async def _kill(self, context: Context, request: ControlArgs) -> Returned:
        own = await self._own(context)
        if request.target == "all":
            targets = [record for record in own if ending_of(record[1]) is None]
        else:
            targets = [await self._target(context, request.target)]
        live = [spec for spec, run in targets if ending_of(run) is None]
        if not live:
            note = "None of them is active." if request.target == "all" else "It has ended."
            return ToolResult(
                text=as_json({"status": "done", "action": "kill", "killed": 0, "note": note})
            )
        below = [id for spec in live for id in await live_below(context, spec.id)]
        reply = {
            "status": "ok",
            "action": "kill",
            "killed": len(live) + len(below),
            "cascaded": len(below),
            "runIds": [spec.id for spec in live],
            "labels": [spec.request.label for spec in live],
        }
        refusal = status("error", "it has just ended, or is ending")
        return Actions(
            cancels=tuple(s.id for s in live), answer=as_json(reply), refusals={"cancel": refusal}
        )

    async def _target(self, context: Context, target: str) -> RunRecord:
        """By its number in the list, its label, its key, its run id or the beginning of that:
        exactly one."""
        own, target = await self._own(context), target.strip()
        if not target:
            raise CallComplaint(
                f"{self.invalid_prefix}: target is missing: a number of the list, a label, a key "
                "or a run id"
            )
        if target.isdigit() and len(target) < 5:
            if not 1 <= int(target) <= len(own):
                raise CallComplaint(f"no sub-agent {target}; the list has {len(own)}")
            return own[int(target) - 1]
        keys = {self.settings.key_of(spec) for spec, _ in own}
        if target in keys or any(target == spec.id for spec, _ in own):
            return await self.find(context, target)
        matches = [record for record in own if record[0].request.label == target]
        matches = matches or [
            record for record in own if len(target) >= 4 and record[0].id.startswith(target)
        ]
        if len(matches) != 1:
            why = (
                "matches none of your sub-agents"
                if not matches
                else f"matches {len(matches)} of them; use the run id"
            )
            raise CallComplaint(f"'{clip(target, 80)}' {why}")
        return matches[0]
