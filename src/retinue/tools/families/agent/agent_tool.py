"""What the tools of the family `agent` have in common: their names, the family's words, how
arguments are read."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from retinue.core.account import DIMENSIONS
from retinue.core.values import Value, Words
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
    "You can start helpers that work in the background. Use `agent_spawn` for independent work: "
    "the helper knows only the prompt you write. Use `agent_fork` when the work needs what was "
    "said so far. Both return at once. Several helpers suit work that falls into independent "
    "parts, needs another model, or takes long while you have something else to do; they do not "
    "suit small steps, work that must be coordinated closely, or an answer that is needed at once. "
    "You are told when a helper ends, so do not poll: go on with other work, or {wait}. "
    "`agent_list` shows all of them at a glance."
)
WAIT = "call `agent_wait` when you can do nothing without the results"
END = (
    "end your turn when you can do nothing without the results: you are asked again when they "
    "are there"
)


def guide(has_wait: bool) -> str:
    return GUIDE.format(wait=WAIT if has_wait else END)


RESULT = "\nUse agent_status for the whole result."
_PARTIAL = "Sub-agent {label} ({id}) completed with a partial result ({stop}): {brief}"
WORDS = Words(
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
    "You work for another agent and can write to it: call {send} with agent_id {parent} and your "
    "message. It may "
    "write to you; what it writes stands in your conversation as a message from {parent}. "
    "{when}\n\n"
    "Your task:\n{prompt}"
)
ONCE = (
    "Write when you have a question or an interim result that cannot wait; your last reply is "
    "reported by itself."
)
HOST = (
    "You stay after your first reply and are woken by each message. Your replies are not passed "
    "on: what the other agent is to read, write to it."
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
            known = self.schema.parameters["properties"]
            if inside is not None:
                schema = known[inside[1]]
                known = schema.get("properties") or schema["anyOf"][0]["properties"]
            raise CallComplaint(f"{complaint}; there is: {', '.join(known) or 'none'}") from None


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
        f"To write to it, call {SEND} with agent_id {id}. What it writes to you arrives as a "
        f"message from {id}."
    )


def short(id: str) -> str:
    """The first twelve hexadecimal digits of an id, as names carry them."""
    return id.replace("-", "")[:12]
