"""The other session tools: list and read sessions, write to one, and end the turn until there is
news."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.spec import Actions
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import ToolSchema, Value
from retinue.tools.base import Context, Returned
from retinue.tools.families.base import as_json, object_schema
from retinue.tools.families.family_states import session_state
from retinue.tools.families.sessions.session_reader import SessionReader
from retinue.tools.families.sessions.sessions_settings import SessionsSettings, SessionTool

MAX_SESSIONS = 200
MAX_MESSAGES = 500
MAX_LAST = 20
LONGEST, LONGEST_STEER = 32_000, 4_000
QUIET = (
    "Their results are announced in the chat. Use sessions_history to read a session that is kept."
)


class SessionsListArgs(Value, forbid_unknown_fields=True, rename="camel"):
    limit: Annotated[int, Meta(ge=1, le=MAX_SESSIONS)] = 50
    active_minutes: Annotated[float, Meta(ge=0)] | None = None
    message_limit: Annotated[int, Meta(ge=0, le=MAX_LAST)] = 0


class HistoryArgs(Value, forbid_unknown_fields=True, rename="camel"):
    session_key: str
    limit: Annotated[int, Meta(ge=1, le=MAX_MESSAGES)] = 50
    include_tools: bool = False


class YieldArgs(Value, forbid_unknown_fields=True):
    message: str = ""


class SessionsListTool(SessionReader):
    schema = ToolSchema(
        name="sessions_list",
        description="List your own session and those you have spawned, newest first, with their "
        "states.",
        parameters=object_schema(
            {
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_SESSIONS,
                    "description": "Maximum (50).",
                },
                "activeMinutes": {
                    "type": "number",
                    "minimum": 0,
                    "description": "Only sessions that changed since this time.",
                },
                "messageLimit": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_LAST,
                    "description": "Include this many of the last messages of each (0).",
                },
            }
        ),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        request = self.read(args, SessionsListArgs)
        since = (
            None
            if request.active_minutes is None
            else context.called_at - request.active_minutes * 60_000
        )
        rows: list[dict[str, Any]] = []
        spawned = self.spawned(await context.children(), context.called_at)
        for spec, run in [*reversed(spawned.values()), (context.spec, context.row)]:
            ending = ending_of(run)
            updated = context.called_at if ending is None else ending.at
            if (since is not None and updated < since) or len(rows) >= request.limit:
                continue
            row: dict[str, Any] = {
                "key": self.settings.key_of(spec),
                "kind": "subagent" if spec.parent else "main",
                "sessionId": spec.id,
                "status": session_state(run),
                "model": run.model_used or spec.model,
                "totalTokens": run.usage.tokens,
                "updatedAt": updated,
            }
            if run.usage.estimated:
                row["estimatedTokens"] = run.usage.estimated
            if spec.request.label:
                row["label"] = Long(spec.request.label)
            if request.message_limit:
                row["messages"] = (
                    await self.shown_messages(context, RunRecord(spec, run), tools=False)
                )[-request.message_limit :]
            rows.append(row)
        return Sheet(
            {"count": len(rows), "sessions": rows}, "sessions", lambda row: str(row["status"])
        )


class HistoryTool(SessionReader):
    schema = ToolSchema(
        name="sessions_history",
        description="Read the last messages of a session you have spawned, or of your own.",
        parameters=object_schema(
            {
                "sessionKey": {
                    "type": "string",
                    "description": "The key from sessions_spawn, or `current`.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_MESSAGES,
                    "description": "Maximum (50).",
                },
                "includeTools": {
                    "type": "boolean",
                    "description": "Include tool calls and their results (false).",
                },
            },
            ("sessionKey",),
        ),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        request = self.read(args, HistoryArgs)
        record = await self.find(context, request.session_key)
        message_texts = await self.shown_messages(context, record, tools=request.include_tools)
        key = self.settings.key_of(record[0])
        messages = message_texts[-request.limit :]
        return Sheet(
            {"sessionKey": key, "messages": messages},
            "messages",
            lambda row: str(row["role"]),
            newest=True,
        )


class YieldTool(SessionTool):
    def __init__(self, settings: SessionsSettings) -> None:
        to_chat = (
            "you continue when your sub-agents have ended; their reports are announced in the chat"
        )
        next_ = (
            "the reports of your sub-agents are your next message"
            if settings.announce == "requester"
            else to_chat
        )
        self.schema = ToolSchema(
            name="sessions_yield",
            description=f"End your turn and wait: {next_}.",
            parameters=object_schema(
                {
                    "message": {
                        "type": "string",
                        "description": "What you are waiting for, shown to users.",
                    }
                }
            ),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        request = self.read(args, YieldArgs)
        live = [spec for spec, run in await context.children() if ending_of(run) is None]
        reply: dict[str, Any] = {"status": "yielded", "activeChildren": len(live)}
        if request.message:
            reply["message"] = request.message
        if live and not any(spec.request.tell_parent for spec in live):
            reply["note"] = QUIET
        return Actions(pause=True, answer=as_json(reply))
