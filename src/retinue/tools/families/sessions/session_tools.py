"""The other session tools: list and read sessions, write to one, and end the turn until there is
news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.messages import Assistant, Message, Result
from retinue.core.spec import Base, Context, Orders, Send
from retinue.core.state import ending_of
from retinue.core.values import ToolSchema, Value
from retinue.formats.fair_cut import clip
from retinue.tools.base import Answer, Caller, Kin, Returned
from retinue.tools.families.base import CallComplaint, as_json, looking, object_schema
from retinue.tools.families.family_states import session_state
from retinue.tools.families.sessions.sessions_settings import (
    SESSION,
    SessionsSettings,
    SessionTool,
    run_in,
    status,
)
from retinue.tools.families.sessions.sessions_spawn import SessionsSpawnTool, is_announcing
from retinue.tools.families.sessions.sessions_texts import NOTE, words_of

MAX_SESSIONS, MAX_MESSAGES, MAX_LAST, MAX_TEXT = 200, 500, 20, 4_000
LONGEST, LONGEST_STEER = 32_000, 4_000
BETWEEN_STEERS_MS = 2_000
Steered = dict[tuple[str, str], int]
"""When a run has last steered which session of its own."""
QUIET = (
    "Their results are announced in the chat; a session that is kept can be read with "
    "sessions_history."
)


class SessionsListArgs(Value, forbid_unknown_fields=True, rename="camel"):
    limit: Annotated[int, Meta(ge=1, le=MAX_SESSIONS)] = 50
    active_minutes: Annotated[float, Meta(ge=0)] | None = None
    message_limit: Annotated[int, Meta(ge=0, le=MAX_LAST)] = 0


class HistoryArgs(Value, forbid_unknown_fields=True, rename="camel"):
    session_key: str
    limit: Annotated[int, Meta(ge=1, le=MAX_MESSAGES)] = 50
    include_tools: bool = False


class SendArgs(Value, forbid_unknown_fields=True, rename="camel"):
    message: str
    session_key: str = ""
    label: str = ""
    steer: bool = False


class YieldArgs(Value, forbid_unknown_fields=True):
    message: str = ""


class _Sessions(SessionTool):
    """A session sees itself and those that it has spawned."""

    def __init__(self, settings: SessionsSettings) -> None:
        self.settings = settings

    def spawned(self, children: Sequence[Kin], now: int) -> dict[str, Kin]:
        """The last run of each session by its key, the session that was last at work last; without
        archived ones."""
        found: dict[str, Kin] = {}
        for spec, run in children:
            key = self.settings.key_of(spec)
            found.pop(key, None)
            found[key] = (spec, run)
        put_away = self.settings.is_archived
        return {
            key: kin for key, kin in found.items() if not put_away(kin[0], ending_of(kin[1]), now)
        }

    async def find(self, caller: Caller, key: str) -> Kin:
        own = {
            self.settings.key_of(caller.spec),
            "current",
            *(() if caller.spec.parent else ("main",)),
        }
        id = run_in(key)
        if key in own or id == caller.id:
            return caller.spec, caller.run
        if id is None:
            like = self.settings.key("<uuid>", "<agent>")
            raise CallComplaint(f"'{clip(key, 80)}' is not a session key: it looks like {like}")
        children = await caller.children()
        spawned = self.spawned(children, caller.at)
        for spec, _ in children:
            name = self.settings.key_of(spec)
            if id in (spec.id, run_in(name)) and name in spawned:
                return spawned[name]
            if id in (spec.id, run_in(name)):
                minutes = self.settings.archive_after_minutes
                raise CallComplaint(
                    f"session '{clip(key, 200)}' is archived: it ended more than {minutes:g} "
                    "minutes ago"
                )
        raise CallComplaint(
            f"session '{clip(key, 200)}' was not found among those that you have spawned"
        )

    async def labelled(self, caller: Caller, label: str) -> Kin:
        spawned = self.spawned(await caller.children(), caller.at)
        found = [kin for kin in spawned.values() if kin[0].order.label == label]
        if len(found) != 1:
            why = (
                "names no session"
                if not found
                else f"names {len(found)} sessions; use the session key"
            )
            raise CallComplaint(f"label '{clip(label, 80)}' {why}")
        return found[0]

    async def said(self, caller: Caller, kin: Kin, *, tools: bool) -> list[dict[str, Any]]:
        messages = await looking(caller).messages(*kin)
        return [
            shown for message in messages if (shown := _plain(message, tools=tools)) is not None
        ]


def _plain(message: Message, *, tools: bool) -> dict[str, Any] | None:
    match message:
        case Assistant():
            out: dict[str, Any] = {"role": "assistant", "text": Long(message.text, most=MAX_TEXT)}
            if tools and message.calls:
                out["toolCalls"] = [
                    {"name": c.name, "arguments": Long(c.args, most=MAX_TEXT)}
                    for c in message.calls
                ]
            return out if message.text or "toolCalls" in out else None
        case Result():
            return (
                {"role": "tool", "name": message.name, "text": Long(message.text, most=MAX_TEXT)}
                if tools
                else None
            )
        case _:
            return {"role": "user", "text": Long(message.text, most=MAX_TEXT)}


class SessionsListTool(_Sessions):
    schema = ToolSchema(
        name="sessions_list",
        description="Your own session and those that you have spawned, newest first, with their "
        "states.",
        parameters=object_schema(
            {
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_SESSIONS,
                    "description": "At most (50).",
                },
                "activeMinutes": {
                    "type": "number",
                    "minimum": 0,
                    "description": "Only those that changed since.",
                },
                "messageLimit": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_LAST,
                    "description": "With so many of the last messages of each (0).",
                },
            }
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        asked = self.read(args, SessionsListArgs)
        since = None if asked.active_minutes is None else caller.at - asked.active_minutes * 60_000
        rows: list[dict[str, Any]] = []
        spawned = self.spawned(await caller.children(), caller.at)
        for spec, run in [*reversed(spawned.values()), (caller.spec, caller.run)]:
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
            if run.usage.estimated:
                row["estimatedTokens"] = run.usage.estimated
            if spec.order.label:
                row["label"] = Long(spec.order.label)
            if asked.message_limit:
                row["messages"] = (await self.said(caller, (spec, run), tools=False))[
                    -asked.message_limit :
                ]
            rows.append(row)
        return Sheet(
            {"count": len(rows), "sessions": rows}, "sessions", lambda row: str(row["status"])
        )


class HistoryTool(_Sessions):
    schema = ToolSchema(
        name="sessions_history",
        description="The last messages of a session that you have spawned, or of your own.",
        parameters=object_schema(
            {
                "sessionKey": {
                    "type": "string",
                    "description": "As sessions_spawn gave it, or `current`.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_MESSAGES,
                    "description": "At most (50).",
                },
                "includeTools": {
                    "type": "boolean",
                    "description": "Also tool calls and their results (false).",
                },
            },
            ("sessionKey",),
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        asked = self.read(args, HistoryArgs)
        kin = await self.find(caller, asked.session_key)
        shown = await self.said(caller, kin, tools=asked.include_tools)
        key = self.settings.key_of(kin[0])
        messages = shown[-asked.limit :]
        return Sheet(
            {"sessionKey": key, "messages": messages},
            "messages",
            lambda row: str(row["role"]),
            newest=True,
        )


class SessionsSendTool(_Sessions):
    schema = ToolSchema(
        name="sessions_send",
        description="Write to a session that you have spawned. One that is running reads it at "
        "its next turn; one "
        "that has ended and is kept goes on with it, and announces again when it is done.",
        parameters=object_schema(
            {
                "message": {"type": "string", "description": f"At most {LONGEST} characters."},
                "sessionKey": {"type": "string", "description": "As sessions_spawn gave it."},
                "label": {
                    "type": "string",
                    "description": "Instead of the key, if it names one session.",
                },
                "steer": {
                    "type": "boolean",
                    "description": f"Break off its current turn for it (false); at most "
                    f"{LONGEST_STEER} characters.",
                },
            },
            ("message",),
        ),
    )

    def __init__(self, settings: SessionsSettings, steered: Steered) -> None:
        super().__init__(settings)
        self.words, self._steered = words_of(settings), steered

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        asked = self.read(args, SendArgs)
        most = LONGEST_STEER if asked.steer else LONGEST
        if not asked.message.strip() or len(asked.message) > most:
            raise CallComplaint(f"{self.invalid}: message must have 1 to {most} characters")
        if bool(asked.session_key) == bool(asked.label):
            raise CallComplaint(f"{self.invalid}: give either sessionKey or label")
        if asked.session_key:
            kin = await self.find(caller, asked.session_key)
        else:
            kin = await self.labelled(caller, asked.label)
        return self.deliver(caller, kin, asked.message, steer=asked.steer)

    def deliver(self, caller: Caller, kin: Kin, message: str, *, steer: bool) -> Returned:
        spec, run = kin
        if spec.id == caller.id:
            raise CallComplaint("a session cannot write to itself")
        key = self.settings.key_of(spec)
        if ending_of(run) is not None:
            return self._go_on(caller, kin, key, message)
        if is_announcing(run):
            wait = f"{key} is done and writes its announcement; write to it when it has ended"
            return Answer(text=status("error", wait), error=True)
        if steer and self._is_too_soon((caller.id, key), caller.at):
            text = "it was steered less than 2 s ago; wait a moment, and say it in one message"
            return Answer(text=status("rate_limited", text), error=True)
        reply = as_json({"status": "accepted", "sessionKey": key, "runId": spec.id})
        gone = status(
            "error", f"{key} cannot be written to now: it has ended, or has too much unread mail"
        )
        send = Send(to=spec.id, text=message, steer=steer)
        return Orders(sends=(send,), answer=reply, refusals={"comms": gone})

    def _is_too_soon(self, who: tuple[str, str], now: int) -> bool:
        """Whether a session was steered a moment ago, with whichever tool; if not, it is now."""
        for one in [one for one, at in self._steered.items() if now - at >= BETWEEN_STEERS_MS]:
            del self._steered[one]
        if who in self._steered:
            return True
        self._steered[who] = now
        return False

    def _go_on(self, caller: Caller, kin: Kin, key: str, message: str) -> Returned:
        """An ended session is taken up by a new run with the same conversation. One that is to be
        deleted is not: it may be gone before the run starts."""
        spec, run = kin
        old = spec.order
        if old.group_kind != SESSION or old.retention != "keep":
            why = 'is not kept; spawn another (cleanup "keep" would keep it)'
            return Answer(text=status("error", f"{key} has ended and {why}"), error=True)
        spawn = SessionsSpawnTool(self.settings)
        base = Base(conversation=spec.conversation, length=run.length, start=run.start)
        context = Context(kind="run", run=spec.id, base=base, tokens=run.context + run.fresh)
        order = replace(old, task=message, context=context, **spawn.common(caller, key))
        if old.origin is not None:
            order = replace(order, announce=True)
        reply = {
            "status": "accepted",
            "sessionKey": key,
            "runId": caller.child_id(),
            "continues": spec.id,
            "note": NOTE,
        }
        return Orders(
            spawns=(order,), answer=as_json(reply), refusals=spawn.refusals(caller, old.agent)
        )


class YieldTool(SessionTool):
    def __init__(self, settings: SessionsSettings) -> None:
        to_chat = (
            "you go on when your sub-agents have ended; what they report is announced in the chat"
        )
        next_ = (
            "what your sub-agents report is your next message"
            if settings.announce == "requester"
            else to_chat
        )
        self.schema = ToolSchema(
            name="sessions_yield",
            description=f"End your turn and wait: {next_}.",
            parameters=object_schema(
                {"message": {"type": "string", "description": "What you wait for, for people."}}
            ),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        asked = self.read(args, YieldArgs)
        live = [spec for spec, run in await caller.children() if ending_of(run) is None]
        reply: dict[str, Any] = {"status": "yielded", "activeChildren": len(live)}
        if asked.message:
            reply["message"] = asked.message
        if live and not any(spec.order.news for spec in live):
            reply["note"] = QUIET
        return Orders(pause=True, answer=as_json(reply))
