"""Converts specs into agents of this library: tools, sub-agents, limits, permissions, skills."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from retinue.agent import Agent
from retinue.agent_files.agent_spec import AgentSpec, FileComplaint, FoundAgents, hint_at
from retinue.agent_files.agents_md import AgentsMdFile, compose_instructions
from retinue.agent_files.permission_rules import permit_rules, spawnable
from retinue.agent_files.skill_tool import SkillTool
from retinue.agent_files.skills import Skill, skills_prompt
from retinue.agent_files.start_agent_tool import StartAgentTool
from retinue.agent_files.tool_alias_table import AGENT, CANONICAL
from retinue.core.values import Permissions
from retinue.errors import ConfigError
from retinue.models.base import Model
from retinue.tools.families.base import Family, Writers
from retinue.tools.output_type import json_schema

INHERITED = tuple(t for t in CANONICAL if t not in (AGENT, "skill"))
"""What an agent gets whose file says nothing about tools. What its runs may really call, their
parent decides."""

Naming = Callable[[str], "Model | str | None"]
_PROVIDERS = (
    (r"claude", "anthropic"),
    (r"gpt-|o[134]\b|o[134]-|codex", "openai"),
    (r"gemini", "gemini"),
)


def to_agents(
    library: FoundAgents,
    *,
    default_model: Model | str = "",
    families: Sequence[Family | str] = (),
    lead: str = "",
    models: Mapping[str, Model | str] | Naming | None = None,
    inherit: Sequence[str] = INHERITED,
    tools: Mapping[str, Any] | None = None,
    own_tools: Mapping[str, Mapping[str, Any]] | None = None,
    skills: Mapping[str, Skill] | None = None,
    files: Sequence[AgentsMdFile] = (),
    writers: Writers = "worktrees",
) -> dict[str, Agent]:
    """All agents that can be used, by name, each knowing those that it may start.

    `models` maps a model's name in a file to a model; an unknown one runs on the `default_model`.
    The `families` go to those that may start others; so does the tool `agent`. `lead` is the agent
    that people talk to: it may start others even if its file says nothing about it. `tools` are
    further tools of the program by name, `own_tools` those of the servers that an agent has for
    itself, by the agent's name."""
    if lead and lead not in library.agents:
        hint = hint_at(lead, library.agents)
        raise ConfigError(
            f"Unknown agent {lead!r}; {hint or 'known: ' + (', '.join(library.agents) or 'none')}"
        )
    specs = {name: spec for name, spec in library.agents.items() if not spec.disabled}
    maker = _Maker(
        specs,
        default_model,
        families,
        lead,
        models,
        inherit,
        tools or {},
        own_tools or {},
        skills or {},
        files,
        writers,
    )
    agents, staffs = {}, {}
    for name, spec in specs.items():
        staff: list[Agent] = []
        agents[name], staffs[name] = maker.agent(spec, staff), staff
    # Agents may start each other, so each list is filled when all of them are there.
    for name, spec in specs.items():
        staffs[name].extend(agents[other] for other in maker.staff_of(spec))
    return agents


@dataclass
class _Maker:
    specs: Mapping[str, AgentSpec]
    default_model: Model | str
    families: Sequence[Family | str]
    lead: str
    models: Mapping[str, Model | str] | Naming | None
    inherit: Sequence[str]
    tools: Mapping[str, Any]
    own_tools: Mapping[str, Mapping[str, Any]]
    skills: Mapping[str, Skill]
    files: Sequence[AgentsMdFile]
    writers: Writers

    def agent(self, spec: AgentSpec, staff: list[Agent]) -> Agent:
        skills = self._skills(spec)
        text = "\n\n".join(part for part in (spec.instructions, skills_prompt(skills)) if part)
        rules, _ = permit_rules(spec)
        options: dict[str, Any] = {}
        if rules or spec.permission_mode:
            options["permissions"] = Permissions(mode=spec.permission_mode or "", rules=rules)
        if spec.isolation:
            options["isolation"] = spec.isolation
        output: Any = json_schema(spec.output_schema) if spec.output_schema else None
        return Agent(
            spec.name,
            compose_instructions(text, self.files),
            model=self._model(spec),
            tools=[
                *self._tools(spec),
                *([SkillTool(skills)] if skills else []),
                *self._staff_tool(spec),
            ],
            staff=staff,
            families=tuple(self.families) if self._may_spawn(spec) else (),
            output=output,
            budget=spec.budget,
            max_turns=spec.max_turns,
            timeout=spec.timeout,
            options=options,
        )

    def staff_of(self, spec: AgentSpec) -> tuple[str, ...]:
        if not self._may_spawn(spec):
            return ()
        others = [n for n, s in self.specs.items() if s.mode != "primary" and n != spec.name]
        own = [spec.name] if spec.name in (spec.can_spawn or ()) else []
        return spawnable(spec, [*others, *own])

    def _may_spawn(self, spec: AgentSpec) -> bool:
        if AGENT in spec.deny or spec.can_spawn == ():
            return False
        return spec.spawns or (spec.name == self.lead and spec.tools is None)

    def _staff_tool(self, spec: AgentSpec) -> list[StartAgentTool]:
        names = self.staff_of(spec)
        staff = {name: self.specs[name] for name in names}
        return [StartAgentTool(staff, self.writers)] if staff else []

    def _tools(self, spec: AgentSpec) -> list[Any]:
        """Those that its file lists, and those of the servers that its file names."""
        tools = {**self.tools, **self.own_tools.get(spec.name, {})}
        patterns = [*self.inherit, *tools] if spec.tools is None else list(spec.tools)
        patterns += [f"mcp__{server}__*" for server in spec.mcp_servers]
        patterns += ["mcp_resources"] if spec.mcp_servers else []
        out: dict[str, Any] = {}
        for name in patterns:
            if name in (AGENT, "skill"):
                continue
            matches = [n for n in tools if fnmatchcase(n, name)]
            names = matches if matches or name.startswith("mcp_") else [name]
            out |= {
                n: tools.get(n, n) for n in names if not any(fnmatchcase(n, d) for d in spec.deny)
            }
        return list(out.values())

    def _skills(self, spec: AgentSpec) -> list[Skill]:
        if "skill" in spec.deny:
            return []
        if spec.skills:
            return [self.skills[name] for name in spec.skills if name in self.skills]
        wants = spec.tools is None or "skill" in spec.tools
        return list(self.skills.values()) if wants else []

    def _model(self, spec: AgentSpec) -> Model | str:
        if spec.model is None:
            return self.default_model
        if callable(self.models):
            return self.models(spec.model) or self.default_model
        models = self.models or {}
        return models.get(spec.model) or provider_name(spec.model) or self.default_model


def provider_name(model: str) -> str:
    """`provider:model` for the ways in which files write it; "" for a word like `fast` that only a
    program knows."""
    if ":" in model:
        return model
    if "/" in model:
        provider, _, name = model.partition("/")
        return f"{provider}:{name}"
    for pattern, provider in _PROVIDERS:
        if re.match(pattern, model.lower()) and any(c.isdigit() for c in model):
            return f"{provider}:{model}"
    return ""


def not_expressed(
    library: FoundAgents, models: Mapping[str, Any] | None = None
) -> list[FileComplaint]:
    """What the files say and the agents made of them do not do."""
    out = []
    for spec in library.agents.values():
        losses = [
            f"{field} ({value})"
            for field, value in _without_effect(spec)
            if value not in ("", None)
        ]
        _, less = permit_rules(spec)
        if less:
            losses.append(f"denying everything else of {', '.join(less)}, which asks instead")
        if (
            spec.model is not None
            and not provider_name(spec.model)
            and spec.model not in (models or {})
        ):
            losses.append(f"the model {spec.model!r}, whose provider is unknown")
        if losses:
            message = f"{spec.name}: not supported: {'; '.join(losses)}"
            out.append(
                FileComplaint(
                    path=spec.source.path, line=spec.source.line, severity="note", message=message
                )
            )
    return out


def _without_effect(spec: AgentSpec) -> Sequence[tuple[str, Any]]:
    return (
        ("effort", spec.effort),
        ("temperature", spec.temperature),
        ("job", spec.job),
    )
