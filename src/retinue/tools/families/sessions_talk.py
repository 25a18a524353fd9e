"""The other session tools: list and read sessions, write to one, and end the turn until there is news."""

from __future__ import annotations

from typing import Any

from retinue.core.orders import Base, Context, Orders, Send
from retinue.core.text import clip
from retinue.core.values import Assistant, Message, Result, ToolSchema, Value
from retinue.tools.base import Answer, Caller, Kin, Returned
from retinue.tools.families.base import Complaint, FamilyTool, as_json, looking, object_schema
from retinue.tools.families.sessions_settings import SessionsSettings, run_in
from retinue.tools.families.sessions_spawn import NOTE, SpawnTool
from retinue.tools.families.states import ending_of, session_state

MAX_SESSIONS, MAX_MESSAGES, MAX_TEXT = 200, 500, 4_000
LONGEST = 32_000


class ListArgs(Value, forbid_unknown_fields=True, rename="camel"):
    limit: int = 50
    active_minutes: float | None = None
    message_limit: int = 0


class HistoryArgs(Value, forbid_unknown_fields=True, rename="camel"):
    session_key: str
    limit: int = 50
    include_tools: bool = False


class SendArgs(Value, forbid_unknown_fields=True, rename="camel"):
    message: str
    session_key: str | None = None
    label: str | None = None
    steer: bool = False


class YieldArgs(Value, forbid_unknown_fields=True):
    message: str = ""


class _Sessions(FamilyTool):
    """A session sees itself and those that it has spawned."""

    def __init__(self, settings: SessionsSettings) -> None:
        self.settings = settings

    async def find(self, caller: Caller, key: str) -> Kin:
        if key == self.settings.key_of(caller.spec) or key in ("main", "current"):
            return caller.spec, caller.run
        id = run_in(key)
        if id is None:
            raise Complaint(f"'{key}' is not a session key: it looks like {self.settings.key('<uuid>', '<agent>')}")
        if id == caller.id:
            return caller.spec, caller.run
        for kin in await caller.children():
            if kin[0].id == id:
                return kin
        raise Complaint(f"session '{key}' was not found among those that you have spawned")

    async def labelled(self, caller: Caller, label: str) -> Kin:
        found = [kin for kin in await caller.children() if kin[0].order.label == label]
        if len(found) != 1:
            why = "names no session" if not found else f"names {len(found)} sessions; use the session key"
            raise Complaint(f"label '{label}' {why}")
        return found[0]


def _plain(message: Message, *, tools: bool) -> dict[str, Any] | None:
    match message:
        case Assistant():
            out: dict[str, Any] = {"role": "assistant", "text": clip(message.text, MAX_TEXT)}
            if tools and message.calls:
                out["toolCalls"] = [{"name": c.name, "arguments": clip(c.args, MAX_TEXT)} for c in message.calls]
            return out if message.text or "toolCalls" in out else None
        case Result():
            return {"role": "tool", "name": message.name, "text": clip(message.text, MAX_TEXT)} if tools else None
        case _:
            return {"role": "user", "text": clip(message.text, MAX_TEXT)}


class ListTool(_Sessions):
    schema = ToolSchema(
        name="sessions_list",
        description="Your own session and those that you have spawned, newest first, with their states.",
        parameters=object_schema(
            {
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_SESSIONS},
                "activeMinutes": {"type": "number", "minimum": 0, "description": "Only those that changed since."},
                "messageLimit": {"type": "integer", "minimum": 0, "maximum": 20, "description": "Last messages."},
            }
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, ListArgs)
        if not 1 <= asked.limit <= MAX_SESSIONS or not 0 <= asked.message_limit <= 20:
            raise Complaint(f"{self.invalid}: limit must be 1 to {MAX_SESSIONS} and messageLimit 0 to 20")
        since = None if asked.active_minutes is None else caller.at - round(asked.active_minutes * 60_000)
        rows: list[dict[str, Any]] = []
        for spec, run in [*reversed(await caller.children()), (caller.spec, caller.run)]:
            ending = ending_of(run)
            updated = caller.at if ending is None else ending.at
            if (since is not None and updated < since) or len(rows) >= asked.limit:
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
            if spec.order.label:
                row["label"] = spec.order.label
            if asked.message_limit:
                said = await looking(caller).messages(spec, run)
                shown = [m for message in said if (m := _plain(message, tools=False)) is not None]
                row["messages"] = shown[-asked.message_limit :]
            rows.append(row)
        return Answer(text=as_json({"count": len(rows), "sessions": rows}))


class HistoryTool(_Sessions):
    schema = ToolSchema(
        name="sessions_history",
        description="The last messages of a session that you have spawned, or of your own.",
        parameters=object_schema(
            {
                "sessionKey": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_MESSAGES},
                "includeTools": {"type": "boolean", "description": "Also tool calls and their results (false)."},
            },
            ("sessionKey",),
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, HistoryArgs)
        if not 1 <= asked.limit <= MAX_MESSAGES:
            raise Complaint(f"{self.invalid}: limit must be between 1 and {MAX_MESSAGES}")
        spec, run = await self.find(caller, asked.session_key)
        said = await looking(caller).messages(spec, run)
        shown = [m for message in said if (m := _plain(message, tools=asked.include_tools)) is not None]
        key = self.settings.key_of(spec)
        return Answer(text=as_json({"sessionKey": key, "messages": shown[-asked.limit :]}))


class SendTool(_Sessions):
    schema = ToolSchema(
        name="sessions_send",
        description="Write to a session that you have spawned. One that is running reads it at its next turn; one "
        "that has ended goes on with it, and announces again when it is done.",
        parameters=object_schema(
            {
                "message": {"type": "string"},
                "sessionKey": {"type": "string"},
                "label": {"type": "string", "description": "Instead of the key, if it names one session."},
                "steer": {"type": "boolean", "description": "Break off its current turn for it (false)."},
            },
            ("message",),
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, SendArgs)
        if not asked.message.strip() or len(asked.message) > LONGEST:
            raise Complaint(f"{self.invalid}: message must have 1 to {LONGEST} characters")
        if (asked.session_key is None) == (asked.label is None):
            raise Complaint(f"{self.invalid}: give either sessionKey or label")
        if asked.session_key is not None:
            spec, run = await self.find(caller, asked.session_key)
        else:
            spec, run = await self.labelled(caller, asked.label or "")
        if spec.id == caller.id:
            raise Complaint("a session cannot write to itself")
        key = self.settings.key_of(spec)
        if ending_of(run) is not None:
            return self._go_on(caller, (spec, run), asked.message)
        reply = as_json({"status": "accepted", "sessionKey": key, "runId": spec.id})
        gone = as_json({"status": "error", "error": f"{key} cannot be written to now: it has ended or has unread mail"})
        send = Send(to=spec.id, text=asked.message, steer=asked.steer)
        return Orders(sends=(send,), answer=reply, refusals={"comms": gone})

    def _go_on(self, caller: Caller, kin: Kin, message: str) -> Returned:
        """An ended session is taken up by a new run with the same conversation."""
        spec, run = kin
        old = spec.order
        base = Base(conversation=spec.conversation, length=run.length, start=run.start)
        order = caller.order(
            old.agent,
            message,
            label=old.label,
            join="none",
            context=Context(kind="run", run=spec.id, base=base, tokens=run.context + run.fresh),
            access=old.access,
            instructions=old.instructions,
            unknown_tool="ignore",
            lanes=old.lanes,
            limits=old.limits,
            model=spec.model,
            cwd=old.cwd,
            timeout_ms=old.timeout_ms,
            retention=old.retention,
            must_submit=False,
            **SpawnTool(self.settings)._reports(caller, host=False),
        )
        id = caller.child_id()
        key = self.settings.key(id, old.agent)
        reply = {"status": "accepted", "sessionKey": key, "runId": id, "continues": spec.id, "note": NOTE}
        return Orders(spawns=(order,), answer=as_json(reply))


class YieldTool(FamilyTool):
    schema = ToolSchema(
        name="sessions_yield",
        description="End your turn and wait: what your sub-agents report is your next message.",
        parameters=object_schema({"message": {"type": "string", "description": "What you wait for, for people."}}),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, YieldArgs)
        live = sum(ending_of(run) is None for _, run in await caller.children())
        reply: dict[str, Any] = {"status": "yielded", "activeChildren": live}
        if asked.message:
            reply["message"] = asked.message
        return Orders(pause=True, answer=as_json(reply))
