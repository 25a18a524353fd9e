"""Codex's agents: TOML files layered over its configuration, and roles in its config.toml that name
such files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retinue.agent_files.agent_spec import AgentSpec
from retinue.agent_files.dialects.spec_reader import SpecReader, server_values
from retinue.agent_files.field_values import EFFORTS
from retinue.agent_files.yaml_builder import AgentDocument

KEYS = (
    *(
        "name",
        "description",
        "developer_instructions",
        "nickname_candidates",
        "model",
        "model_reasoning_effort",
    ),
    *("sandbox_mode", "approval_policy", "mcp_servers", "skills", "tools"),
)
QUIET = (
    *(
        "nickname_candidates",
        "approval_policy",
        "model_provider",
        "model_verbosity",
        "model_reasoning_summary",
    ),
    *(
        "features",
        "tools",
        "sandbox_workspace_write",
        "shell_environment_policy",
        "web_search",
        "personality",
        "profile",
    ),
    *(
        "project_doc_max_bytes",
        "model_context_window",
        "service_tier",
        "model_providers",
        "config_file",
    ),
)
GLOBALS = (
    *(
        "enabled",
        "max_concurrent_threads_per_session",
        "max_threads",
        "max_depth",
        "default_subagent_model",
    ),
    *("default_subagent_reasoning_effort", "interrupt_message", "job_max_runtime_seconds"),
)
WRITING = ("edit", "write")


def read_codex(reading: SpecReader) -> AgentSpec:
    fields = reading.fields
    instructions = fields.text("developer_instructions")
    name = fields.text("name")
    for key, value in (("name", name or reading.key), ("developer_instructions", instructions)):
        if not value:
            fields.complain(key, f"{key} is missing")
    mode = fields.permission_mode("sandbox_mode")
    return reading.spec(
        KEYS,
        QUIET,
        name=reading.name(name),
        description=reading.described(),
        instructions=instructions,
        model=fields.model("model"),
        effort=fields.choice(EFFORTS, "model_reasoning_effort"),
        permission_mode=mode,
        # Its read-only sandbox lets commands run and writes fail; ours is asked for by the tools
        # that are omitted.
        deny=WRITING if mode == "plan" else (),
        mcp_servers=_servers(reading),
        skills=_skills(reading),
    )


def _servers(reading: SpecReader) -> dict[str, dict[str, Any]]:
    out = server_values(reading.fields, "mcp_servers")
    return {name: value for name, value in out.items() if value.get("enabled") is not False}


def _skills(reading: SpecReader) -> tuple[str, ...]:
    """Names, or tables as `[[skills.config]]` with the path of each and whether it is on."""
    fields = reading.fields
    value = fields.raw("skills")[1]
    if isinstance(value, dict):
        entries = value.get("config", [])
        if not isinstance(entries, list):
            fields.wrong("skills", "names of skills", entries)
            return ()
        on = [e for e in entries if isinstance(e, dict) and e.get("enabled") is not False]
        paths = [e.get("name") or e.get("path") for e in on]
        return tuple(_last(p) for p in paths if isinstance(p, str) and _last(p))
    return tuple(fields.names("skills") or ())


def _last(path: str) -> str:
    parts = [p for p in path.split("/") if p and p != "SKILL.md"]
    return parts[-1] if parts else ""


def roles(document: AgentDocument) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables `[agents.<role>]` of a config.toml; other keys of `agents` are settings of its own
    runtime."""
    agents = document.data.get("agents")
    if agents is None:
        return
    if not isinstance(agents, dict):
        document.complain("agents must be a table", document.lines.get(("agents",), 0))
        return
    for name, value in agents.items():
        line = document.lines.get(("agents", name), 0)
        if isinstance(value, dict):
            yield name, value
        elif name not in GLOBALS:
            document.complain(f"agents.{name} is neither a role nor a setting; it is ignored", line)
        else:
            document.complain(
                f"agents.{name} is a setting of Codex; it is ignored here", line, "note"
            )
