"""`retinue agents list | show | lint`: what is said, and that no file can write on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agent_files.agent_spec import FileComplaint
from retinue.agent_files.discovery import find_agents
from retinue.agent_files.lint import lint
from retinue.agent_files.skill_discovery import find_skills
from retinue.errors import NotFound
from retinue.formats.safe_text import one_line
from retinue.view.agent_list import render_lint, render_list, render_show
from tests.agent_files.helpers import agent, project


def test_lint_says_what_is_wrong_where_and_what_was_meant(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            ".retinue/agents/a.md": agent(
                "a", "tools: [Raed, Read]", "can_spawn: [reviewr]", "skills: [retinu]"
            ),
            ".retinue/agents/b.md": "---\nname: reviewer\ndescription: d\n---\n",
            ".retinue/agents/c.md": "---\nname: c\n",
            ".claude/agents/d.md": agent("a", "mcpServers: [githb]"),
            ".claude/agents/e.md": agent("e", "mcpServers: [githb]"),
        },
    )
    problems = lint(find_agents(root), skills=find_skills(root), servers=["github"])
    assert render_lint(problems, cwd=str(root)) == [
        ".claude/agents/d.md:1: note: a is not used: "
        + str(root / ".retinue/agents/a.md")
        + " takes precedence",
        ".claude/agents/e.md:1: warning: unknown MCP server 'githb' (did you mean 'github'?)",
        ".retinue/agents/a.md:1: warning: it may start 'reviewr', which does not exist (did you "
        "mean 'reviewer'?)",
        ".retinue/agents/a.md:1: warning: unknown skill 'retinu' (did you mean 'retinue'?)",
        ".retinue/agents/a.md:4: warning: unknown tool 'Raed'; it is ignored (did you "
        "mean 'read'?)",
        ".retinue/agents/b.md:1: warning: reviewer has no instructions",
        ".retinue/agents/c.md:1: error: the front matter that starts here is not closed "
        "(close it with a line of ---)",
        "1 error, 5 warnings, 1 note",
    ]


def test_a_library_without_faults_gets_one_line(tmp_path: Path) -> None:
    root = project(tmp_path, {".retinue/agents/a.md": agent("a")})
    assert render_lint(lint(find_agents(root))) == ["No problems found."]


def test_list_shows_file_dialect_and_what_is_shadowed_or_broken(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            ".retinue/agents/a.md": agent(
                "a", "model: fast", "tools: [read, search, find, edit, write, shell, git]"
            ),
            ".claude/agents/a.md": agent("a"),
            ".gemini/agents/far.md": agent("far", "kind: remote"),
            ".gemini/agents/bad.md": agent("bad", "tools: [x]"),
            "opencode.json": '{"agent": {"oc": {"description": "d", "tools": {"bash": false}}}}',
        },
    )
    assert render_list(find_agents(root), cwd=str(root), width=81) == [
        "NAME       DIALECT   MODEL    TOOLS                         FILE",
        "a          retinue   fast     read, search, find, edit,...  .retinue/agents/a.md",
        "far (off)  gemini    inherit  inherit                       .gemini/agents/far.md",
        "oc         opencode  inherit  inherit, not shell, shell...  opencode.json [oc]",
        "broken: bad (.gemini/agents/bad.md): tools resolves to no tool: none of x is a tool here",
        "shadowed: a (.claude/agents/a.md) by .retinue/agents/a.md",
    ]
    assert render_list(find_agents(project(tmp_path / "empty", {}))) == ["No agents found."]


def test_show_tells_everything_about_one_agent(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            ".retinue/agents/a.md": agent(
                "a",
                "tools: [read, 'shell(git *)']",
                "can_spawn: [b]",
                "maxTurns: 3",
                "budget: {max_usd: 0.5}",
                "odd: 1",
                "background: true",
                body="Line one.\n\n  Line two.",
            )
        },
    )
    library = find_agents(root, trusted=True)
    assert render_show(library, "a", cwd=str(root)) == [
        "a",
        "  file:            .retinue/agents/a.md (retinue, project)",
        "  description:     the agent a",
        "  model:           inherited from the agent that starts it",
        "  tools:           read, shell, shell_output, shell_stop, agent",
        "  rules:           allow: shell(git *)",
        "  may start:       b",
        "  limits:          3 turns, 0.5 usd in all",
        "  flags:           background",
        "  not supported:   odd",
        "  warning:         unknown key 'odd'; it was kept and is ignored",
        "",
        "instructions, about 6 tokens:",
        "",
        "Line one.",
        "",
        "  Line two.",
    ]
    with pytest.raises(NotFound, match="Unknown agent 'aa'"):
        render_show(library, "aa")


def test_no_file_writes_on_the_terminal(tmp_path: Path) -> None:
    evil = "x\\e[2J\\e]0;owned\\a \\u202Egnp.exe\\u2066"
    text = (
        f'---\nname: a\ndescription: "{evil}"\nmodel: "{evil}"\n"{evil}": 1\n---\nDo \u202e it '
        "\u009b31m."
    )
    root = project(tmp_path, {".retinue/agents/a.md": text})
    library = find_agents(root)
    lines = [*render_list(library), *render_show(library, "a"), *render_lint(lint(library))]
    assert all(one_line(c) == c or c == " " for line in lines for c in line)
    assert any("owned" in line for line in lines)


def test_a_complaint_reads_like_a_compilers() -> None:
    complaint = FileComplaint(path="a.md", line=3, message="wrong", hint="do this")
    assert str(complaint) == "a.md:3: warning: wrong (do this)"
    assert render_lint([complaint]) == [str(complaint), "1 warning"]
