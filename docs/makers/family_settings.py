"""What each setting of each family means, and the page that is made of it."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec

from retinue.tools.families.base import FamilySettings
from retinue.tools.families.profiles import FAMILIES, PROFILES, family_type
from retinue.tools.families.setting_spelling import camel

ALL = {
    "enabled": "whether the family is on for runs that do not switch it",
    "guide": "whether the system prompt says when to delegate and when not to",
    "lend_ask": "whether children may ask questions, with `ask` and other tools; permission "
    "requests are always possible",
    "writers": "sub-agents that change files at the same time: `worktrees`, in copies that are "
    "merged (where the call waits for them, in git), or `turns`",
}
MEANINGS: dict[str, dict[str, str]] = {
    "agent": {
        "default_provider": "the provider of a child that names none; `inherit` is the parent's",
        "default_model": "the model of a child that names none; `inherit` is the parent's, null "
        "the first of the list",
        "concurrency_limits": "a table: see below",
        "concurrency_limits.max_depth": "how many levels of children there may be below the lead",
        "concurrency_limits.max_concurrent_ops": "operations in progress in one tree; beyond it a "
        "spawn is refused",
        "concurrency_limits.max_concurrent_agents": "running children of one tree; beyond it a "
        "spawn is refused",
        "concurrency_limits.max_children_per_agent": "open children of one agent; beyond it a "
        "spawn is refused",
        "allow_nested_spawn": "whether children may spawn if they have the tools for it",
        "grant_spawn_tools": "whether children get the tools of the family",
        "max_budget_per_agent": "the most tokens a child may request; null is no limit",
        "default_budget": "the tokens of a child that requests none; null is no limit",
        "inherit_system_prompt": "whether children get their parent's instructions",
        "enable_comms": "whether children can write to their parent, and stay open for messages",
        "allowed_models": "the models that may be requested, by provider; null: any known model",
        "finished_kept": "how many ended children status and list show",
        "more_tools": "whether `agent_send`, `agent_wait` and `agent_resume` are offered in "
        "addition to the five",
        "more_keys": "whether a status also has `note` (which budget ended it) and "
        "`tokens_estimated`",
    },
    "delegate": {
        "max_concurrent_subtasks": "tasks of one call at a time; the others wait",
        "max_subtasks_per_request": "tasks of one call at most",
        "parallel_timeout_secs": "timeout of a task in mode parallel, in seconds; null is none",
        "background_timeout_secs": "timeout of a task in mode background, in seconds; null is none",
        "turns_per_task": "turns of a task at most; null is no limit",
        "stall_secs": "seconds without a sign of its model or its tools after which a task has "
        "stalled and ends; null is no limit",
        "max_background_groups": "groups of one agent at a time; beyond it a call is refused",
        "hourly_token_budget": "tokens that all sub-agents of the runtime may use in an hour; "
        "null is no limit",
        "allow_nesting": "whether a task may be given `delegate_tasks`",
        "max_depth": "how many levels of sub-agents there may then be",
        "more_tools": "whether `cancel_tasks` and `list_tasks` are offered too",
        "task_fields": "fields of a task besides `task_id`, `prompt`, `context_summary`, `tools`",
    },
    "fanout": {
        "max_tasks": "tasks of one call at most",
        "timeout_seconds": "timeout of a child in seconds, from its creation",
        "explore_turns": "turns of a child that only reads",
        "work_turns": "turns of a child that may write",
        "grace_turns": "turns after the last, to submit what it has",
        "attempts": "how often a model call is tried",
        "explore_tools": "tools that explorers get whatever their declared risk",
        "explore_model": "the model of explorers; empty: the parent's",
        "read_first_files": "files that one task may be given",
        "read_first_bytes": "the most bytes shown of one of them",
        "on_restart": "whether a child that a crash interrupted continues or fails",
        "task_fields": "fields of a task besides `task` and `cwd`; without `mode` children have "
        "all plain tools",
        "aggregate": "whether each call answers with its own results, or the last of a turn with "
        "all of them",
        "while_waiting": "whether a user's message to a parent that waits is kept, or refused as "
        "busy",
        "strict": "whether a result submitted together with other calls fails the child, or is "
        "requested again",
    },
    "sessions": {
        "max_concurrent": "sub-agents of all runs at a time; the others wait",
        "tools_allow": "the only tools that children get; null: all",
        "tools_deny": "tools that children do not get, whatever a call says",
        "default_deny": "the same, in addition to `tools.deny` of a file",
        "timeout_means": "what `timeoutSeconds` limits: the spawner's wait, or the child's run",
        "cleanup": "what happens to a session after its announcement, unless the call says so",
        "announce": "who gets the result: the chat the work came from, or the spawning session",
        "keys": "how session keys look: `subagent:<uuid>`, or `agent:<agent>:subagent:<uuid>`",
        "max_spawn_depth": "how many levels of sessions there may be below the lead, 1 to 5",
        "max_children_per_agent": "open children of one session, 1 to 20; null is no limit",
        "allow_agents": "agents that `agentId` may name; `*` is any",
        "model": "the model of children; empty: the parent's",
        "run_timeout_seconds": "timeout of a child in seconds; 0 is no limit",
        "control": "whether the tool `subagents` is offered: list, wait, steer, kill",
        "archive_after_minutes": "when an ended session without a thread is archived; 0: never",
    },
    "subagent": {
        "max_depth": "levels of agents including the lead, 1 to 10",
        "default_max_turns": "turns of a child that names none, 1 to 100",
        "output_max_size": "bytes of an output that are shown, at least 1,024",
        "max_executions": "children that one tree may start; null is no limit",
        "max_total_tokens": "tokens that all children of one tree may use; null is no limit",
        "max_total_time": "seconds from the first child's start; null is no limit",
        "chat_enabled": "whether a chat has the tools from the start, or when a message asks for "
        "them; null: as `enabled`",
        "model": "the model of children; empty: the parent's",
    },
}
_HEAD = """\
# Family settings

Every setting of every family. In Python: `family("sessions", max_concurrent=4)`; in a file:
`[families.sessions]`, or the section that the [system behind the
family](../guides/families.md#the-systems-behind-the-families) uses. `sessions` also takes that
system's spelling: `maxConcurrent`, `tools.deny`. A profile is a family with other defaults. This
page is generated by `make docs`.

| setting of every family | type | default | meaning |
|---|---|---|---|
"""


def fields_of(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, Any]]:
    """Type and default of each setting; those of a table by `table.name`."""
    hints, defaults, out = typing.get_type_hints(kind), kind(), {}
    for name in kind.__struct_fields__:
        out[name] = (hints[name], getattr(defaults, name))
        if isinstance(hints[name], type) and issubclass(hints[name], msgspec.Struct):
            out |= {f"{name}.{inner}": about for inner, about in fields_of(hints[name]).items()}
    return out


def type_words(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return type_words(inner[0])
    if origin is typing.Literal:
        return " or ".join(f"`{word}`" for word in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_words(one) for one in inner)
    if origin is tuple:
        return f"list of {type_words(inner[0])}s"
    if origin is dict:
        return f"table of {type_words(inner[1])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    names = {
        str: "text",
        int: "integer",
        float: "number",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(kind, str(kind))


def default_words(value: Any) -> str:
    return "" if isinstance(value, msgspec.Struct) else f"`{msgspec.json.encode(value).decode()}`"


def page() -> str:
    parts = [
        _HEAD
        + "\n".join(_row(name, fields_of(FamilySettings)[name], text) for name, text in ALL.items())
    ]
    for kind in FAMILIES:
        result = family_type(kind)
        profiles = {p: values for p, (of, values) in PROFILES.items() if of == kind}
        lines = [f"## {kind}", "", "| setting | type | default | meaning |", "|---|---|---|---|"]
        for name, about in fields_of(result.settings_type).items():
            if name not in ALL:
                lines.append(
                    _row(
                        name,
                        about,
                        MEANINGS[kind][name],
                        spelled=camel(name) if result.camels else "",
                    )
                )
        for profile, values in profiles.items():
            values_text = "; ".join(
                f"`{key}` = {default_words(value)}" for key, value in values.items()
            )
            lines += ["", f"`{profile}`: {values_text or 'the same defaults'}."]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _row(name: str, about: tuple[Any, Any], text: str, spelled: str = "") -> str:
    also = f" (`{spelled}`)" if spelled and spelled != name else ""
    return f"| `{name}`{also} | {type_words(about[0])} | {default_words(about[1])} | {text} |"
