"""Agents made of files: what they may call, whom they may start, and that they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, ConfigError, Permissions, json_schema, run_sync, tool
from retinue.agent_files.agent_spec import AgentSpec, FoundAgents
from retinue.agent_files.agents_md import loaded_files
from retinue.agent_files.conversion import INHERITED, not_expressed, provider_name, to_agents
from retinue.agent_files.discovery import find_agents
from retinue.agent_files.permission_rules import permit_rules, spawnable
from retinue.agent_files.skill_discovery import find_skills
from retinue.agent_files.skill_tool import SkillTool
from retinue.agent_files.start_agent_tool import StartAgentTool
from retinue.agent_files.tool_alias_table import CANONICAL
from retinue.core.call_rules import read_rule
from retinue.core.values import Budget
from retinue.testing import Scripted, call
from tests.agent_files.helpers import agent, project, said


def library(root: Path, **agents: str) -> FoundAgents:
    files = {f".retinue/agents/{name}.md": text for name, text in agents.items()}
    return find_agents(project(root, files), trusted=True)


def names(result: Agent) -> list[str]:
    return [t if isinstance(t, str) else t.schema.name for t in result.tools]


def test_a_file_becomes_an_agent_with_its_tools_and_limits(tmp_path: Path) -> None:
    text = agent(
        "a",
        "tools: [Read, Grep, 'Bash(git *)']",
        "maxTurns: 7",
        "timeout: 90s",
        "budget: {max_tokens: 10}",
        "permissionMode: plan",
        "isolation: worktree",
        "model: anthropic:claude-x-1",
        "output_schema: {type: object}",
        body="Be good.",
    )
    result = to_agents(library(tmp_path, a=text))["a"]
    assert result.tools == ["read", "search", "shell", "shell_output", "shell_stop"]
    assert (result.instructions, result.model, result.max_turns, result.timeout) == (
        "Be good.",
        "anthropic:claude-x-1",
        7,
        90.0,
    )
    assert (result.budget, result.output) == (
        Budget(tokens=10),
        json_schema({"type": "object"}),
    )
    access = Permissions(mode="plan", rules=("allow: shell(git *)",))
    assert result.options == {"permissions": access, "isolation": "worktree"}


def test_who_says_nothing_has_what_is_inherited_without_what_is_denied(tmp_path: Path) -> None:
    result = to_agents(
        library(tmp_path, a=agent("a", "disallowedTools: [Bash, Write]")), default_model="m:1"
    )["a"]
    assert set(names(result)) == set(INHERITED) - {"shell", "shell_output", "shell_stop", "write"}
    assert (result.model, result.staff, list(result.families)) == ("m:1", [], [])


def test_staff_is_whom_a_file_may_start(tmp_path: Path) -> None:
    agents = to_agents(
        library(
            tmp_path,
            lead=agent("lead", "tools: [read]", "can_spawn: [probe-*, writer]"),
            writer=agent("writer", "can_spawn: [lead]"),
            one=agent("probe-one"),
            two=agent("probe-two", "mode: primary"),
            off=agent("probe-off", "disabled: true"),
        ),
        families=["fanout"],
    )
    assert [a.name for a in agents["lead"].staff] == ["probe-one", "writer"]
    assert [a.name for a in agents["writer"].staff] == ["lead"]
    assert agents["probe-one"].staff == []
    assert list(agents["lead"].families) == ["fanout"]
    assert list(agents["probe-one"].families) == []
    assert "probe-off" not in agents
    assert {a.name for a in agents["lead"].reachable_agents()} == {
        "lead",
        "writer",
        "probe-one",
        "lead.fanout",
        "writer.fanout",
    }


def test_the_lead_may_start_everybody_though_its_file_says_nothing(tmp_path: Path) -> None:
    result = library(tmp_path, a=agent("a"), b=agent("b"), c=agent("c", "tools: [read]"))
    agents = to_agents(result, lead="a")
    assert [s.name for s in agents["a"].staff] == ["b", "c"]
    assert agents["b"].staff == []
    assert to_agents(result, lead="c")["c"].staff == []
    with pytest.raises(ConfigError, match="Unknown agent 'd'; known: a, b, c"):
        to_agents(result, lead="d")


def test_a_lead_delegates_to_agents_from_files(tmp_path: Path) -> None:
    library(
        tmp_path,
        lead=agent("lead", "tools: [agent]"),
        adder=agent("adder", "tools: [add]", "maxTurns: 3"),
        quiet=agent("quiet", "tools: []"),
    )
    agents = find_agents(tmp_path, trusted=True, tools=["add"])
    records: list[str] = []

    @tool(restart="pure", risk="read")
    async def add(a: int, b: int) -> int:
        """Add."""
        records.append(f"{a}+{b}")
        return a + b

    def talk(request: Any) -> Any:
        if request.agent == "adder":
            return call("add", a=2, b=3) if request.turn == 0 else "It is 5."
        if request.turn == 0:
            return [
                call("agent", name="adder", task="2 and 3"),
                call("agent", name="adr", task="x"),
            ]
        texts = [m.text for m in request.messages[2:]]
        return " | ".join(texts)

    model = Scripted(talk, name="script")
    result = to_agents(agents, default_model=model, tools={"add": add})
    outcome = run_sync(result["lead"], "Add.")
    assert outcome.state == "completed"
    assert records == ["2+3"]
    assert "It is 5." in outcome.text
    assert "Unknown agent 'adr'. did you mean 'adder'?" in outcome.text


def test_one_that_works_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    result = library(
        tmp_path,
        lead=agent("lead", "can_spawn: [slow]", "tools: [think]"),
        slow=agent("slow", "background: true", "tools: []"),
    )

    def talk(request: Any) -> Any:
        if request.agent == "slow":
            return "Done at last."
        return (
            call("agent", name="slow", task="x") if request.turn == 0 else request.messages[2].text
        )

    agents = to_agents(
        result, default_model=Scripted(talk, name="script"), tools={"think": add_nothing}
    )
    outcome = run_sync(agents["lead"], "Go.")
    assert "slow is running in the background as " in outcome.text


@tool(name="think")
def add_nothing(thought: str) -> str:
    """Think."""
    return thought


def test_what_staff_is_for_is_told_to_the_model(tmp_path: Path) -> None:
    specs = library(tmp_path, a=agent("a"), b=agent("b")).agents
    staff = StartAgentTool(specs)
    assert staff.schema.description.endswith(
        "Available agents:\n- a: the agent a\n- b: the agent b"
    )
    assert staff.schema.parameters["properties"]["name"]["enum"] == ["a", "b"]
    assert staff.summary({"name": "a", "task": "look\n there"}) == "agent a: look there"


def test_skills_and_advice_reach_the_agent(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            "AGENTS.md": "Use tabs.",
            ".agents/skills/pdf/SKILL.md": "---\nname: pdf\ndescription: about pdf\n---\nx",
            ".retinue/agents/a.md": agent("a", "skills: [pdf, nope]", "tools: [read]"),
            ".retinue/agents/b.md": agent("b", "tools: [read]"),
            ".retinue/agents/c.md": agent("c"),
        },
    )
    skills = find_skills(root, trusted=True)
    files = loaded_files(root, root, trusted=True)
    agents = to_agents(find_agents(root, trusted=True), skills=skills.skills, files=files)
    assert names(agents["a"]) == ["read", "skill"]
    assert "- pdf: about pdf" in agents["a"].instructions
    assert "- retinue:" not in agents["a"].instructions
    assert names(agents["b"]) == ["read"]
    (reader,) = [t for t in agents["c"].tools if isinstance(t, SkillTool)]
    assert set(reader.skills) == {"pdf", "retinue"}
    assert all("Use tabs." in m.instructions for m in agents.values())


def test_tools_of_servers_are_those_that_the_program_has(tmp_path: Path) -> None:
    result = library(tmp_path, a=agent("a", "tools: [read, mcp__x__*, mcp__y__z]"))
    value = {n: tool(name=n)(lambda: None) for n in ("mcp__x__one", "mcp__x__two", "mcp__z__no")}
    assert names(to_agents(result, tools=value)["a"]) == ["read", "mcp__x__one", "mcp__x__two"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("anthropic:claude-1", "anthropic:claude-1"),
        ("anthropic/claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("claude-opus-4-6", "anthropic:claude-opus-4-6"),
        ("gpt-5.2-codex", "openai:gpt-5.2-codex"),
        ("o3", "openai:o3"),
        ("gemini-3-pro-preview", "gemini:gemini-3-pro-preview"),
        ("sonnet", ""),
        ("fast", ""),
    ],
)
def test_models_are_named_with_their_provider(text: str, name: str) -> None:
    assert provider_name(text) == name


def test_a_program_says_what_the_words_for_models_mean(tmp_path: Path) -> None:
    result = library(tmp_path, a=agent("a", "model: sonnet"), b=agent("b", "model: fast"))
    agents = to_agents(result, models={"sonnet": "anthropic:s-1"}, default_model="d:1")
    assert (agents["a"].model, agents["b"].model) == ("anthropic:s-1", "d:1")
    agents = to_agents(
        result, models=lambda word: "x:1" if word == "fast" else None, default_model="d:1"
    )
    assert (agents["a"].model, agents["b"].model) == ("d:1", "x:1")
    assert ["sonnet" in m or "fast" in m for _, m in said(not_expressed(result))] == [True, True]


def spec(
    *rules: str, tools: tuple[str, ...] | None = None, can_spawn: tuple[str, ...] | None = None
) -> AgentSpec:
    return AgentSpec(name="a", rules=rules, tools=tools, can_spawn=can_spawn)


@pytest.mark.parametrize(
    ("rules", "rest", "less"),
    [
        (("allow: shell(git *)",), ("allow: shell(git *)",), ()),
        (("ask: shell", "allow: shell(git *)"), ("allow: shell(git *)",), ()),
        (("deny: shell", "allow: shell(git *)"), ("allow: shell(git *)",), ("shell",)),
        (("allow: shell", "deny: shell(rm *)"), ("allow: shell", "deny: shell(rm *)"), ()),
        (("deny: shell(rm *)", "allow: shell"), ("allow: shell",), ()),
        (("deny: edit", "ask: edit"), ("ask: edit",), ()),
        (("ask: *",), ("ask: *",), ()),
        ((), (), ()),
        (("deny: agent(x)",), (), ()),
    ],
)
def test_rules_of_which_the_last_holds_become_rules_of_which_the_strictest_holds(
    rules: tuple[str, ...], rest: tuple[str, ...], less: tuple[str, ...]
) -> None:
    assert permit_rules(spec(*rules)) == (rest, less)


def test_a_rule_for_all_tools_holds_for_each_unless_another_follows() -> None:
    rules, less = permit_rules(spec("deny: *", "allow: read", tools=("read", "edit")))
    assert (rules, less) == (("allow: read", "deny: edit"), ())
    assert all(read_rule(r).tool in CANONICAL for r in rules)


def test_who_may_be_started_follows_names_globs_and_denials() -> None:
    everyone = ["a-1", "a-2", "b"]
    assert spawnable(spec(), everyone) == ("a-1", "a-2", "b")
    assert spawnable(spec(can_spawn=("a-*",)), everyone) == ("a-1", "a-2")
    assert spawnable(spec("deny: agent(a-1)"), everyone) == ("a-2", "b")
    assert spawnable(
        spec("deny: agent", "allow: agent(a-*)", "deny: agent(a-2)", can_spawn=("a-*",)), everyone
    ) == ("a-1",)
