"""Which sessions a caller may see, and their messages as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.answer_layout import Long
from retinue.core.messages import Assistant, Message, Result
from retinue.core.state import ending_of
from retinue.formats.fair_cut import clip
from retinue.tools.base import Caller, Kin
from retinue.tools.families.base import CallComplaint, looking
from retinue.tools.families.sessions.sessions_settings import SessionsSettings, SessionTool, run_in

MAX_TEXT = 4_000


class SessionReader(SessionTool):
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
            f"session '{clip(key, 200)}' not found among those you have spawned. Use "
            "sessions_list to see them"
        )

    async def labelled(self, caller: Caller, label: str) -> Kin:
        spawned = self.spawned(await caller.children(), caller.at)
        found = [kin for kin in spawned.values() if kin[0].order.label == label]
        if len(found) != 1:
            why = (
                "matches no session; use sessions_list to see them"
                if not found
                else f"matches {len(found)} sessions; use the session key"
            )
            raise CallComplaint(f"label '{clip(label, 80)}' {why}")
        return found[0]

    async def said(self, caller: Caller, kin: Kin, *, tools: bool) -> list[dict[str, Any]]:
        messages = await looking(caller).messages(*kin)
        return [
            shown
            for message in messages
            if (shown := plain_message(message, tools=tools)) is not None
        ]


def plain_message(message: Message, *, tools: bool) -> dict[str, Any] | None:
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
