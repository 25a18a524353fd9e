"""`sessions_send`: sends a message to another session."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from retinue.core.answer_layout import Laid
from retinue.core.spec import Actions, ForkPoint, History, SendMessage
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import ToolSchema, Value
from retinue.tools.base import Context, Returned, ToolResult
from retinue.tools.families.base import CallComplaint, as_json, object_schema
from retinue.tools.families.sessions.session_reader import SessionReader
from retinue.tools.families.sessions.session_result import is_announcing
from retinue.tools.families.sessions.session_tools import LONGEST, LONGEST_STEER
from retinue.tools.families.sessions.sessions_settings import SESSION, SessionsSettings, status
from retinue.tools.families.sessions.sessions_spawn import SessionsSpawnTool
from retinue.tools.families.sessions.sessions_texts import NOTE, words_of

BETWEEN_STEERS_MS = 2_000
Steered = dict[tuple[str, str], int]
"""When a run has last steered which session of its own."""


class SendArgs(Value, forbid_unknown_fields=True, rename="camel"):
    message: str
    session_key: str = ""
    label: str = ""
    steer: bool = False


class SessionsSendTool(SessionReader):
    schema = ToolSchema(
        name="sessions_send",
        description="Send a message to a session you have spawned. A running session "
        "reads it at its next turn; one that has ended and is kept "
        "continues with it, and announces again when it is done.",
        parameters=object_schema(
            {
                "message": {"type": "string", "description": f"At most {LONGEST} characters."},
                "sessionKey": {"type": "string", "description": "The key from sessions_spawn."},
                "label": {
                    "type": "string",
                    "description": "Instead of the key, if it matches one session.",
                },
                "steer": {
                    "type": "boolean",
                    "description": f"Interrupt its current turn (false); at most {LONGEST_STEER} "
                    "characters.",
                },
            },
            ("message",),
        ),
    )

    def __init__(self, settings: SessionsSettings, steered: Steered) -> None:
        super().__init__(settings)
        self.notices, self._steered = words_of(settings), steered

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        request = self.read(args, SendArgs)
        most = LONGEST_STEER if request.steer else LONGEST
        if not request.message.strip() or len(request.message) > most:
            raise CallComplaint(f"{self.invalid_prefix}: message must have 1 to {most} characters")
        if bool(request.session_key) == bool(request.label):
            raise CallComplaint(f"{self.invalid_prefix}: give either sessionKey or label")
        if request.session_key:
            record = await self.find(context, request.session_key)
        else:
            record = await self.labelled(context, request.label)
        return self.deliver(context, record, request.message, steer=request.steer)

    def deliver(
        self, context: Context, record: RunRecord, message: str, *, steer: bool
    ) -> Returned:
        spec, run = record
        if spec.id == context.run_id:
            raise CallComplaint("a session cannot send to itself")
        key = self.settings.key_of(spec)
        if ending_of(run) is not None:
            return self._go_on(context, record, key, message)
        if is_announcing(run):
            wait = f"{key} is done and is writing its announcement. Send to it when it has ended"
            return ToolResult(text=status("error", wait), error=True)
        if steer and self._is_too_soon((context.run_id, key), context.called_at):
            text = (
                "it was steered less than 2 s ago. Wait a moment, and put everything in one message"
            )
            return ToolResult(text=status("rate_limited", text), error=True)
        reply = as_json({"status": "accepted", "sessionKey": key, "runId": spec.id})
        refusal = status(
            "error", f"cannot send to {key} now: it has ended, or it has too many unread messages"
        )
        send = SendMessage(to=spec.id, text=message, steer=steer)
        return Actions(sends=(send,), answer=reply, refusals={"comms": refusal})

    def _is_too_soon(self, who: tuple[str, str], now: int) -> bool:
        """Whether a session was steered a moment ago, with whichever tool; if not, it is now."""
        for one in [one for one, at in self._steered.items() if now - at >= BETWEEN_STEERS_MS]:
            del self._steered[one]
        if who in self._steered:
            return True
        self._steered[who] = now
        return False

    def _go_on(self, context: Context, record: RunRecord, key: str, message: str) -> Returned:
        """An ended session is continued by a new run with the same conversation. One that is to be
        deleted is not: it may be gone before the run starts."""
        spec, run = record
        old = spec.request
        if old.group_kind != SESSION or old.retention != "keep":
            why = 'is not kept. Spawn another (cleanup "keep" would keep it)'
            return ToolResult(text=status("error", f"{key} has ended and {why}"), error=True)
        spawn = SessionsSpawnTool(self.settings)
        base = ForkPoint(conversation=spec.conversation, length=run.length, start=run.start)
        history = History(kind="run", run=spec.id, base=base, tokens=run.context + run.new_bytes)
        child_request = replace(old, task=message, history=history, **spawn.common(context, key))
        if old.origin is not None:
            child_request = replace(child_request, announce=True)
        reply = {
            "status": "accepted",
            "sessionKey": key,
            "runId": context.child_id(),
            "continues": spec.id,
            "note": NOTE,
        }
        return Actions(
            spawns=(child_request,),
            answer=as_json(reply),
            refusals=spawn.refusals(context, old.agent),
        )
