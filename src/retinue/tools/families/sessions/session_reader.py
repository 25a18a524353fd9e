"""Which sessions a run can see, and their messages as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.answer_layout import Long
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.core.state import RunRecord, ending_of
from retinue.formats.fair_cut import clip
from retinue.tools.base import Context
from retinue.tools.families.base import CallComplaint, reader_of
from retinue.tools.families.sessions.sessions_settings import SessionsSettings, SessionTool, run_in

MAX_TEXT = 4_000


class SessionReader(SessionTool):
    """A session sees itself and those that it has spawned."""

    def __init__(self, settings: SessionsSettings) -> None:
        self.settings = settings

    def spawned(self, children: Sequence[RunRecord], now: int) -> dict[str, RunRecord]:
        """The last run of each session by its key, the session that was last at work last; without
        archived ones."""
        sessions: dict[str, RunRecord] = {}
        for record in children:
            key = self.settings.key_of(record.spec)
            sessions.pop(key, None)
            sessions[key] = record
        put_away = self.settings.is_archived
        return {
            key: record
            for key, record in sessions.items()
            if not put_away(record[0], ending_of(record[1]), now)
        }

    async def find(self, context: Context, key: str) -> RunRecord:
        own = {
            self.settings.key_of(context.spec),
            "current",
            *(() if context.spec.parent else ("main",)),
        }
        id = run_in(key)
        if key in own or id == context.run_id:
            return RunRecord(context.spec, context.row)
        if id is None:
            like = self.settings.key("<uuid>", "<agent>")
            raise CallComplaint(f"'{clip(key, 80)}' is not a session key: it looks like {like}")
        children = await context.children()
        spawned = self.spawned(children, context.called_at)
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
            f"session '{clip(key, 200)}' not found among those you have spawned. Use "
            "sessions_list to see them"
        )

    async def labelled(self, context: Context, label: str) -> RunRecord:
        spawned = self.spawned(await context.children(), context.called_at)
        matches = [record for record in spawned.values() if record[0].request.label == label]
        if len(matches) != 1:
            why = (
                "matches no session; use sessions_list to see them"
                if not matches
                else f"matches {len(matches)} sessions; use the session key"
            )
            raise CallComplaint(f"label '{clip(label, 80)}' {why}")
        return matches[0]

    async def shown_messages(
        self, context: Context, record: RunRecord, *, tools: bool
    ) -> list[dict[str, Any]]:
        messages = await reader_of(context).messages(*record)
        return [
            plain
            for message in messages
            if (plain := plain_message(message, tools=tools)) is not None
        ]


def plain_message(message: Message, *, tools: bool) -> dict[str, Any] | None:
    match message:
        case AssistantMessage():
            out: dict[str, Any] = {"role": "assistant", "text": Long(message.text, most=MAX_TEXT)}
            if tools and message.calls:
                out["toolCalls"] = [
                    {"name": c.name, "arguments": Long(c.arguments_json, most=MAX_TEXT)}
                    for c in message.calls
                ]
            return out if message.text or "toolCalls" in out else None
        case ToolMessage():
            return (
                {"role": "tool", "name": message.name, "text": Long(message.text, most=MAX_TEXT)}
                if tools
                else None
            )
        case _:
            return {"role": "user", "text": Long(message.text, most=MAX_TEXT)}
