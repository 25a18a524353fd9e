"""The settings of the family `sessions`, and how a session is named: a key ends with the id of the run behind it."""

from __future__ import annotations

import re
import uuid
from typing import Literal

from retinue.core.orders import Spec
from retinue.tools.families.base import Settings

LANE = "subagent"
SKIP = "ANNOUNCE_SKIP"
SPAWN = "sessions_spawn"
TOOLS = (SPAWN, "sessions_list", "sessions_history", "sessions_send", "sessions_yield")
AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class SessionsSettings(Settings):
    """`agent.subagents`. `timeout_means`: what `timeoutSeconds` limits, the spawner's wait or the child's run.
    `announce`: who is told, the chat (in a last turn of the child's own) or the session that spawned it.
    """

    max_concurrent: int = 1
    tools_allow: tuple[str, ...] | None = None
    tools_deny: tuple[str, ...] = ()
    timeout_means: Literal["wait", "run"] = "wait"
    cleanup: Literal["delete", "keep"] = "delete"
    announce: Literal["chat", "requester"] = "chat"
    keys: Literal["plain", "agent"] = "plain"
    max_spawn_depth: int = 1
    max_children_per_agent: int | None = None
    allow_agents: tuple[str, ...] = ()
    model: str = ""
    run_timeout_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.max_concurrent < 1:
            raise ValueError("agent.subagents.maxConcurrent must be at least 1")
        if not 1 <= self.max_spawn_depth <= 5:
            raise ValueError("agent.subagents.maxSpawnDepth must be between 1 and 5")
        if self.max_children_per_agent is not None and not 1 <= self.max_children_per_agent <= 20:
            raise ValueError("agent.subagents.maxChildrenPerAgent must be between 1 and 20")
        if self.run_timeout_seconds < 0:
            raise ValueError("agent.subagents.runTimeoutSeconds must be 0 or more")

    def key(self, id: str, agent: str) -> str:
        return f"subagent:{id}" if self.keys == "plain" else f"agent:{agent}:subagent:{id}"

    def key_of(self, spec: Spec) -> str:
        return self.key(spec.id, spec.order.agent) if spec.parent else f"agent:{spec.order.agent}:main"


def run_in(key: str) -> str | None:
    """The id of the run that a session key names, whatever its style; None when it names none."""
    try:
        return str(uuid.UUID(key.rsplit(":", 1)[-1]))
    except ValueError:
        return None
