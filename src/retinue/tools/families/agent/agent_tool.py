"""Shared by the tools of the family `agent`: names, texts, and how arguments are read."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from retinue.core.account import DIMENSIONS
from retinue.core.values import NoticeTexts, Value
from retinue.tools.families.base import CallComplaint, FamilyTool

SPAWN, FORK, SEND = "agent_spawn", "agent_fork", "agent_send"
TOOLS = (
    SPAWN,
    FORK,
    "agent_status",
    "agent_cancel",
    "agent_list",
    SEND,
    "agent_wait",
    "agent_resume",
)
GUIDE = (
    "You can start sub-agents that work in the background. `agent_spawn`: independent "
    "work; the sub-agent sees only your prompt. `agent_fork`: work that needs this "
    "conversation. Both return immediately. Use sub-agents for independent parts, for work "
    "that needs another model, or for long work you need not wait for; not for small "
    "steps, tightly coupled work, or answers you need right now. You are notified when "
    "each one ends, so do not poll. Continue with other work, or {wait}. `agent_list` "
    "shows them all."
)
WAIT = "call `agent_wait` if you need the results first"
END = "end your turn if you need the results first: you continue when they arrive"


def guide(has_wait: bool) -> str:
    return GUIDE.format(wait=WAIT if has_wait else END)


RESULT = "\nUse agent_status for the full result."
_PARTIAL = "Sub-agent {label} ({id}) completed with a partial result ({stop}): {brief}"
WORDS = NoticeTexts(
    notice={
        "completed": "Sub-agent {label} ({id}) completed: {brief}" + RESULT,
        "incomplete": _PARTIAL + RESULT,
        **{
            f"incomplete/{lack}_budget": _PARTIAL + "\nIts budget ended it: {error}"
            for lack in DIMENSIONS
        },
        "cancelled": "Sub-agent {label} ({id}) was cancelled.",
        "": "Sub-agent {label} ({id}) failed: {error}",
    },
    denied="Tool not found: {tool}",
)
COMMS = (
    "You work for another agent and can send it messages: call {send} with agent_id "
    "{parent} and your message. It can send you messages, too; they appear in your "
    "conversation as a message from {parent}. {when}\n\nYour task:\n{prompt}"
)
ONCE = (
    "Send a message if you have a question or an interim result that cannot wait. Your "
    "last reply is reported automatically."
)
HOST = (
    "You stay active after your first reply, and each message wakes you. Your replies "
    "are not forwarded: to tell the other agent something, send it a message."
)

MOST = 10**12
"""No amount that a model asks for counts as more, so that sums of them can be stored."""
Amount = Annotated[int, Meta(ge=0)]
T = TypeVar("T")


class AgentTool(FamilyTool):
    dialect = "agent"

    def read(self, args: dict[str, Any], type_: type[T], *objects: str) -> T:
        """The arguments as a value. A field that there is not is named, with those that there
        are."""
        try:
            return super().read(args, type_, *objects)
        except CallComplaint as complaint:
            if "unknown field" not in str(complaint):
                raise
            inside = re.search(r"at `\$\.(\w+)`", str(complaint))
            properties = self.schema.parameters["properties"]
            if inside is not None:
                schema = properties[inside[1]]
                properties = schema.get("properties") or schema["anyOf"][0]["properties"]
            raise CallComplaint(
                f"{complaint}. Known fields: {', '.join(properties) or 'none'}"
            ) from None


class SpawnBudget(Value, forbid_unknown_fields=True):
    max_tokens: Amount | None = None
    max_turns: Amount | None = None
    max_tool_calls: Amount | None = None


def with_comms(prompt: str, parent: str, *, host: bool = False) -> str:
    """A child's first message where it can talk to its parent."""
    return COMMS.format(send=SEND, parent=parent, when=HOST if host else ONCE, prompt=prompt)


def comms_note(id: str) -> str:
    """The same for the parent."""
    return (
        f"To send it a message, call {SEND} with agent_id {id}. Its messages to you "
        f"arrive as a message from {id}."
    )


def short(id: str) -> str:
    """The first twelve hexadecimal digits of an id, as names carry them."""
    return id.replace("-", "")[:12]
