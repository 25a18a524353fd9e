"""The arguments of `sessions_spawn`, as a type and a schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from retinue.core.values import Value
from retinue.tools.families.base import object_schema
from retinue.tools.families.sessions.sessions_settings import MOST_SECONDS, SessionsSettings

Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]


class ToolLists(Value, forbid_unknown_fields=True):
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class SessionsSpawnArgs(Value, forbid_unknown_fields=True, rename="camel"):
    """Optional texts that are blank count as missing."""

    task: str
    label: str = ""
    task_name: str = ""
    agent_id: str = ""
    runtime: Literal["subagent"] = "subagent"
    model: str = ""
    timeout_seconds: Seconds | None = None
    run_timeout_seconds: Seconds | None = None
    cleanup: Literal["delete", "keep"] | None = None
    mode: Literal["run", "session"] = "run"
    thread: bool = False
    context: Literal["isolated", "fork"] = "isolated"
    cwd: str = ""
    tools: ToolLists | None = None


def spawn_properties(settings: SessionsSettings) -> dict[str, Any]:
    waits = settings.timeout_means == "wait"
    timeout = (
        "wait this long for its reply; 0 (default) does not wait"
        if waits
        else "limit the run; 0: no limit"
    )
    limit = f"Limit the run; 0: no limit; default: {settings.run_timeout_seconds:g}."
    lists = {n: {"type": "array", "items": {"type": "string"}} for n in ("allow", "deny")}
    return {
        "task": {"type": "string", "description": "The complete task."},
        "label": {"type": "string", "description": "A short name, shown to users."},
        "taskName": {"type": "string", "description": "Same as label."},
        "agentId": {
            "type": "string",
            "description": "Run as this agent; allowed agents only.",
        },
        "runtime": {"type": "string", "enum": ["subagent"]},
        "model": {"type": "string", "description": "Another model; an unknown name is an error."},
        "timeoutSeconds": {"type": "number", "minimum": 0, "description": f"Seconds: {timeout}."},
        "runTimeoutSeconds": {"type": "number", "minimum": 0, "description": limit},
        "cleanup": {
            "type": "string",
            "enum": ["delete", "keep"],
            "description": (
                f"What happens to the session after its announcement ({settings.cleanup})."
            ),
        },
        "mode": {
            "type": "string",
            "enum": ["run", "session"],
            "description": "session (needs thread: true) is kept, so that you can continue it with "
            "sessions_send.",
        },
        "thread": {
            "type": "boolean",
            "description": "Report in its own thread of the chat.",
        },
        "context": {
            "type": "string",
            "enum": ["isolated", "fork"],
            "description": "fork: it gets this conversation (isolated).",
        },
        "cwd": {"type": "string", "description": "Its working directory. Default: yours."},
        "tools": {
            **object_schema(lists),
            "description": "Restrict its tools: only the allowed ones; deny wins.",
        },
    }
