"""The settings of the family `sessions`, how its tools read arguments, and how sessions are named:
after their first run, and the runs that continue one are a group of that name."""

from __future__ import annotations

import math
import re
import uuid
from typing import Any, Literal, TypeVar

from retinue.core.spec import RunSpec
from retinue.core.values import Ending
from retinue.formats.fair_cut import clip
from retinue.tools.families.base import CallComplaint, FamilySettings, FamilyTool, as_json

LANE = "subagent"
SKIP, SILENT = "ANNOUNCE_SKIP", "NO_REPLY"
SPAWN = "sessions_spawn"
CONTROL = "subagents"
TOOLS = (SPAWN, "sessions_list", "sessions_history", "sessions_send", "sessions_yield", CONTROL)
SESSION = "session"
AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_SECONDS = 86_400
T = TypeVar("T")


class SessionsSettings(FamilySettings):
    """`agent.subagents`. `timeout_means`: what `timeoutSeconds` limits, the spawner's wait or the
    child's run. `announce`: where the result goes, to the chat (in a last turn of the child's own)
    or to the session that spawned it. `default_deny` is what no child gets whatever the file says
    in `tools`; `run_timeout_seconds` 0 means no limit. `control` adds the tool `subagents`. A
    session without a thread of its own is archived `archive_after_minutes` after its end (0:
    never): it is no longer listed, read or continued; its messages stay recorded."""

    max_concurrent: int = 1
    tools_allow: tuple[str, ...] | None = None
    tools_deny: tuple[str, ...] = ()
    default_deny: tuple[str, ...] = ()
    timeout_means: Literal["wait", "run"] = "wait"
    cleanup: Literal["delete", "keep"] = "delete"
    announce: Literal["chat", "requester"] = "chat"
    keys: Literal["plain", "agent"] = "plain"
    max_spawn_depth: int = 1
    max_children_per_agent: int | None = None
    allow_agents: tuple[str, ...] = ()
    model: str = ""
    run_timeout_seconds: float = 0.0
    control: bool = False
    archive_after_minutes: float = 0.0

    def __post_init__(self) -> None:
        if self.max_concurrent < 1:
            raise ValueError("agent.subagents.maxConcurrent must be at least 1")
        if not 1 <= self.max_spawn_depth <= 5:
            raise ValueError("agent.subagents.maxSpawnDepth must be between 1 and 5")
        if self.max_children_per_agent is not None and not 1 <= self.max_children_per_agent <= 20:
            raise ValueError("agent.subagents.maxChildrenPerAgent must be between 1 and 20")
        if not 0 <= self.run_timeout_seconds <= MOST_SECONDS:
            raise ValueError(
                f"agent.subagents.runTimeoutSeconds must be between 0 and {MOST_SECONDS}"
            )
        if not 0 <= self.archive_after_minutes < math.inf:
            raise ValueError("agent.subagents.archiveAfterMinutes must be 0 or more, and finite")

    def is_archived(self, spec: RunSpec, ending: Ending | None, now: int) -> bool:
        """Whether a session has ended too long ago. One with a thread of its own is not put
        away."""
        minutes = self.archive_after_minutes
        return bool(
            minutes and ending and not spec.request.origin and now >= ending.at + minutes * 60_000
        )

    def key(self, id: str, agent: str) -> str:
        return f"subagent:{id}" if self.keys == "plain" else f"agent:{agent}:subagent:{id}"

    def key_of(self, spec: RunSpec) -> str:
        agent = lead_of(spec.request.agent)
        if spec.request.group_kind == SESSION:
            return spec.request.group
        return self.key(spec.id, agent) if spec.parent else f"agent:{agent}:main"


def lead_of(agent: str) -> str:
    """The agent for which a sub-agent of this family works; any other works for itself."""
    return agent.removesuffix(".sessions")


def run_in(key: str) -> str | None:
    """The id of the run that a session key names, whatever its style; None when it names none."""
    try:
        return str(uuid.UUID(key.rsplit(":", 1)[-1]))
    except ValueError:
        return None


def status(word: Literal["forbidden", "error", "rate_limited"], error: str) -> str:
    """A refusal as the model that called a session tool reads it."""
    return as_json({"status": word, "error": clip(error, 2_000)})


class SessionTool(FamilyTool):
    dialect = "sessions"

    def read(self, args: dict[str, Any], type_: type[T], *objects: str) -> T:
        """The arguments as a value. A null counts as a missing argument; an unknown field is named,
        with the known ones."""
        properties = self.schema.parameters["properties"]
        for name in args:
            if name not in properties:
                names = ", ".join(properties)
                raise CallComplaint(
                    f"{self.invalid_prefix}: unknown parameter '{clip(name, 80)}'. Known: {names}"
                )
        try:
            return super().read({k: v for k, v in args.items() if v is not None}, type_, *objects)
        except CallComplaint as complaint:
            inside = re.search(r"unknown field .* at `\$\.(\w+)`", str(complaint))
            if inside is None:
                raise
            raise CallComplaint(
                f"{complaint}. Known: {', '.join(properties[inside[1]]['properties'])}"
            ) from None
