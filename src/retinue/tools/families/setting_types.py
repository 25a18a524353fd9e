"""The settings of each family as keyword arguments of `family(name, ...)`, for type checkers. The
values and their defaults are in the settings of the families themselves; a test compares both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class CommonSettings(TypedDict, total=False):
    """What all families have."""

    enabled: bool
    guide: bool
    lend_ask: bool
    writers: Literal["worktrees", "turns"]


class AgentFamilySettings(CommonSettings, total=False):
    """Children in the background, looked after by id: `agent_spawn`, `agent_status`, ..."""

    default_provider: str
    default_model: str | None
    concurrency_limits: Mapping[str, int]
    allow_nested_spawn: bool
    grant_spawn_tools: bool
    max_budget_per_agent: int | None
    default_budget: int | None
    inherit_system_prompt: bool
    enable_comms: bool
    allowed_models: Mapping[str, Sequence[str]] | None
    finished_kept: int
    more_tools: bool
    more_keys: bool


class DelegateFamilySettings(CommonSettings, total=False):
    """A group of tasks in one call, or in the background with notices: `delegate_tasks`."""

    max_concurrent_subtasks: int
    max_subtasks_per_request: int
    parallel_timeout_secs: float | None
    background_timeout_secs: float | None
    turns_per_task: int | None
    stall_secs: float | None
    max_background_groups: int
    hourly_token_budget: int | None
    allow_nesting: bool
    max_depth: int
    more_tools: bool
    task_fields: Sequence[Literal["model"]]


class FanoutFamilySettings(CommonSettings, total=False):
    """Several explorers or workers; the turn continues when all have ended: `spawn_agents`."""

    max_tasks: int
    timeout_seconds: float
    explore_turns: int
    work_turns: int
    grace_turns: int
    attempts: int
    explore_tools: Sequence[str]
    explore_model: str
    read_first_files: int
    read_first_bytes: int
    on_restart: Literal["resume", "fail"]
    task_fields: Sequence[Literal["mode", "model", "max_turns", "read_first"]]
    aggregate: Literal["call", "turn"]
    while_waiting: Literal["keep", "refuse"]
    strict: bool


class SessionsFamilySettings(CommonSettings, total=False):
    """Sessions that announce their result: `sessions_spawn`, `sessions_send`, ..."""

    max_concurrent: int
    tools_allow: Sequence[str] | None
    tools_deny: Sequence[str]
    default_deny: Sequence[str]
    timeout_means: Literal["wait", "run"]
    cleanup: Literal["delete", "keep"]
    announce: Literal["chat", "requester"]
    keys: Literal["plain", "agent"]
    max_spawn_depth: int
    max_children_per_agent: int | None
    allow_agents: Sequence[str]
    model: str
    run_timeout_seconds: float
    control: bool
    archive_after_minutes: float


class SubagentFamilySettings(CommonSettings, total=False):
    """One blocking call: a task, then a summary: `subagent`, `parallel_subagent`."""

    max_depth: int
    default_max_turns: int
    output_max_size: int
    max_executions: int | None
    max_total_tokens: int | None
    max_total_time: float | None
    model: str
    chat_enabled: bool | None


SETTING_TYPES: Mapping[str, Any] = {
    "agent": AgentFamilySettings,
    "delegate": DelegateFamilySettings,
    "fanout": FanoutFamilySettings,
    "sessions": SessionsFamilySettings,
    "subagent": SubagentFamilySettings,
}
