"""Which files are looked at, which of two agents with one name is used, and what a project may do
untrusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from retinue.agent_files.agent_spec import AgentSpec, DefinitionSource, FoundAgents
from retinue.agent_files.discovery import find_agents
from retinue.sandbox.bounded_read import read_beneath
from tests.agent_files.helpers import agent, project, said

RISKY = agent(
    "risky",
    "tools: Bash(git *), Read",
    "permissionMode: bypassPermissions",
    "mcpServers: [known, {own: {command: evil}}]",
    "hooks: {PreToolUse: [{command: evil}]}",
)


def test_the_command_line_goes_before_the_project_before_the_user_before_what_is_built_in(
    tmp_path: Path,
) -> None:
    root = project(
        tmp_path / "p", {f".claude/agents/{n}.md": agent(n, body="project") for n in ("a", "b")}
    )
    home = project(
        tmp_path / "h", {f".claude/agents/{n}.md": agent(n, body="user") for n in ("a", "b", "c")}
    )
    extra = json.dumps({"a": {"description": "d", "prompt": "command"}})
    specs = [
        AgentSpec(name=n, instructions="built-in", source=DefinitionSource(path=f"{n}.md"))
        for n in "abcd"
    ]
    library = find_agents(root, home, root, [extra], builtin=specs)
    assert {n: s.instructions for n, s in library.agents.items()} == {
        "a": "command",
        "b": "project",
        "c": "user",
        "d": "built-in",
    }
    assert {s.source.scope for s in library.agents.values()} == {
        "command",
        "project",
        "user",
        "built-in",
    }
    shadowed = [
        (h.spec.name, h.spec.instructions, os.path.basename(h.by)) for h in library.shadowed
    ]
    assert shadowed == [
        ("a", "project", "--agents"),
        ("a", "user", "--agents"),
        ("b", "user", "b.md"),
        ("a", "built-in", "--agents"),
        ("b", "built-in", "b.md"),
        ("c", "built-in", "c.md"),
    ]


def test_the_nearest_folder_wins(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            ".claude/agents/a.md": agent("a", body="root"),
            ".claude/agents/b.md": agent("b", body="root"),
            "pkg/.claude/agents/a.md": agent("a", body="pkg"),
            "pkg/deep/.gemini/agents/a.md": agent("a", body="deep"),
            "other/.claude/agents/c.md": agent("c"),
        },
    )
    (root / "pkg/deep/er").mkdir()
    assert find_agents(root / "pkg/deep/er").agents["a"].instructions == "deep"
    assert find_agents(root / "pkg").agents["a"].instructions == "pkg"
    library = find_agents(root)
    assert {n: s.instructions for n, s in library.agents.items()} == {"a": "root", "b": "root"}


def test_nothing_above_the_project_is_looked_at(tmp_path: Path) -> None:
    project(tmp_path, {".claude/agents/a.md": agent("a")})
    root = project(tmp_path / "inner", {"src/x.py": ""})
    assert find_agents(root / "src").agents == {}


def test_a_broken_agent_is_not_replaced_by_one_farther_away(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {".claude/agents/a.md": agent("a", "tools: Nothing")})
    home = project(tmp_path / "h", {".claude/agents/a.md": agent("a")})
    library = find_agents(root, home)
    assert library.agents == {}
    assert [s.name for s in library.broken] == ["a"]


def test_two_agents_with_one_name_in_one_folder_are_reported(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {".claude/agents/a.md": agent("x", body="1"), ".claude/agents/b.md": agent("x", body="2")},
    )
    library = find_agents(root)
    assert library.agents["x"].instructions == "1"
    assert said(library.complaints) == [
        (1, "two agents here are named 'x'; the one in a.md is used")
    ]


def test_claudes_folders_are_searched_through_and_others_are_not(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            ".claude/agents/team/a.md": agent("a"),
            ".claude/agents/README.md": "# About these",
            ".opencode/agents/team/b.md": agent("ignored"),
            ".gemini/agents/team/c.md": agent("c"),
            ".cursor/agents/d.txt": agent("d"),
        },
    )
    library = find_agents(root)
    assert set(library.agents) == {"a", "team/b"}
    assert library.complaints == ()


def test_the_users_places_are_those_of_the_programs(tmp_path: Path) -> None:
    home = project(
        tmp_path / "h",
        {
            ".config/retinue/agents/a.md": agent("a"),
            ".config/opencode/agents/b.md": agent("b"),
            ".codex/agents/c.toml": 'name="c"\ndescription="d"\ndeveloper_instructions="i"',
            ".copilot/agents/d.agent.md": agent("d"),
            ".gemini/agents/e.md": agent("e"),
            ".cursor/agents/f.md": agent("f"),
            ".claude/agents/g.md": agent("g"),
        },
    )
    root = project(tmp_path / "p", {})
    library = find_agents(root, home)
    assert set(library.agents) == set("abcdefg")
    assert {s.source.scope for s in library.agents.values()} == {"user"}
    elsewhere = project(
        tmp_path / "x", {"agents/z.toml": 'name="z"\ndescription="d"\ndeveloper_instructions="i"'}
    )
    assert "z" in find_agents(root, home, codex_home=elsewhere).agents


def test_whoever_works_in_the_home_folder_is_not_a_stranger_there(tmp_path: Path) -> None:
    home = project(tmp_path, {".claude/agents/risky.md": RISKY})
    spec = find_agents(home, home).agents["risky"]
    assert (spec.source.scope, spec.permission_mode) == ("user", "bypassPermissions")


def test_a_project_that_is_not_trusted_widens_nothing_and_it_is_said_what_was_left_out(
    tmp_path: Path,
) -> None:
    root = project(tmp_path, {".claude/agents/risky.md": RISKY})
    spec = find_agents(root).agents["risky"]
    assert spec.permission_mode is None
    assert spec.mcp_servers == {"known": {}}
    assert "hooks" not in spec.extra
    assert spec.rules == ("ask: shell(git *)",)
    assert spec.tools == ("shell", "shell_output", "shell_stop", "read")
    assert spec.complaints[-1].message == (
        "the project is not trusted, so this is ignored: the permission mode "
        "bypassPermissions; the MCP servers own; hooks; permissions, which now ask"
    )
    trusted = find_agents(root, trusted=True).agents["risky"]
    assert trusted.permission_mode == "bypassPermissions"
    assert trusted.rules == ("allow: shell(git *)",)
    assert trusted.mcp_servers["own"] == {"command": "evil"}


def test_what_narrows_needs_no_trust(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {".claude/agents/a.md": agent("a", "permissionMode: plan", "disallowedTools: Bash(rm *)")},
    )
    spec = find_agents(root).agents["a"]
    assert (spec.permission_mode, spec.rules, spec.complaints) == (
        "plan",
        ("deny: shell(rm *)",),
        (),
    )


def test_links_out_of_the_project_are_not_followed(tmp_path: Path) -> None:
    outside = project(tmp_path / "out", {"a.md": agent("stolen"), "agents/b.md": agent("stolen2")})
    root = project(
        tmp_path / "p", {".claude/agents/ok.md": agent("ok"), "shared/in.md": agent("inside")}
    )
    (root / ".claude/agents/file.md").symlink_to(outside / "a.md")
    (root / ".claude/agents/folder").symlink_to(outside / "agents")
    (root / ".claude/agents/inside.md").symlink_to(root / "shared/in.md")
    (root / ".claude/agents/loop.md").symlink_to(root / ".claude/agents/loop.md")
    (root / ".gemini").symlink_to(outside)
    os.mkfifo(root / ".claude/agents/pipe.md")
    library = find_agents(root)
    assert set(library.agents) == {"ok", "inside"}
    messages = sorted(f"{os.path.basename(c.path)}: {c.message}" for c in library.complaints)
    assert messages[0] == "agents: outside the project; not read"
    assert messages[1].startswith("file.md: not read: outside of")
    assert messages[2] == "folder: a link to a folder; not followed"
    assert messages[3].startswith("loop.md: not read")
    assert messages[4] == "pipe.md: not read: it is not a regular file"


def test_the_users_own_links_are_the_users_affair(tmp_path: Path) -> None:
    dotfiles = project(tmp_path / "dotfiles", {"a.md": agent("a")})
    home = project(tmp_path / "h", {".claude/agents/b.md": agent("b")})
    (home / ".claude/agents/a.md").symlink_to(dotfiles / "a.md")
    assert set(find_agents(project(tmp_path / "p", {}), home).agents) == {"a", "b"}


def test_a_link_that_is_put_there_in_between_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("secret")
    root = project(tmp_path / "p", {"folder/a.md": "mine"})
    resolve = os.path.realpath

    def swap(path: object, **options: bool) -> str:
        names = resolve(path, **options)  # type: ignore[call-overload]
        if str(names).endswith("a.md"):
            (root / "folder/a.md").unlink()
            (root / "folder/a.md").symlink_to(tmp_path / "secret")
        return str(names)

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(OSError, match="symbolic links"):
        read_beneath(root / "folder/a.md", root)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("nowhere.md", "file not found, and it is not JSON either"),
        ("{", "the file is not valid JSON"),
        ('{"a": 3}', "a must be an object"),
        ("x" * 5000, "not found"),
        ("a\0b", "not found"),
        ({"a": object()}, "not valid JSON"),
    ],
)
def test_what_a_command_line_names_wrongly_is_reported(
    tmp_path: Path, item: str, message: str
) -> None:
    library = find_agents(project(tmp_path, {}), extra=[item])
    assert library.agents == {}
    assert message in library.complaints[0].message


def test_a_command_line_may_name_files_and_folders(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            "x/a.md": agent("a", "budget: {max_tokens: 5}"),
            "y/b.toml": 'name="b"\ndescription="d"\ninstructions="i"',
            "z.json": '{"c": {"description": "d", "prompt": "p", "tools": ["Read"]}}',
        },
    )
    library = find_agents(
        root, extra=[root / "x/a.md", str(root / "y"), root / "z.json", {"d": {"prompt": "q"}}]
    )
    assert set(library.agents) == set("abcd")
    assert library.agents["a"].budget.tokens == 5
    assert library.agents["c"].tools == ("read",)


def test_a_thousand_files_are_all_read(tmp_path: Path) -> None:
    text = agent(
        "{}",
        "tools: Read, Grep, Glob, Bash(git *)",
        "model: sonnet",
        body="You are careful.\n" * 40,
    )
    root = project(
        tmp_path,
        {f".claude/agents/team{n % 10}/a{n}.md": text.replace("{}", f"a{n}") for n in range(1000)},
    )
    library = find_agents(root)
    assert len(library.agents) == 1000
    assert library.complaints == ()


def test_a_folder_that_is_not_in_the_project_is_its_own(tmp_path: Path) -> None:
    here = project(tmp_path / "a", {".claude/agents/x.md": agent("x")})
    library = find_agents(here, project_root=project(tmp_path / "b", {}))
    assert set(library.agents) == {"x"}
    assert "is outside the project" in library.complaints[0].message


def test_names_of_files_need_not_be_text(tmp_path: Path) -> None:
    root = project(tmp_path, {".claude/agents/x.md": agent("x")})
    strange = os.path.join(os.fsencode(root / ".claude/agents"), b"\xff\xfe.md")
    with open(strange, "wb") as file:
        file.write(agent("strange", "tools: Nothing").encode())
    library = find_agents(root)
    assert [s.name for s in library.everything()] == ["x", "strange"]
    assert msgspec.json.decode(msgspec.json.encode(library), type=FoundAgents) == library


def test_what_a_stranger_repeats_ten_thousand_times_is_complained_of_fifty_times(
    tmp_path: Path,
) -> None:
    keys = "".join(f"key{n}: 1\n" for n in range(9_000))
    tools = ", ".join(f"tool{n}" for n in range(500))
    rules = "".join(f"  zz{n}: allow\n" for n in range(400))
    root = project(
        tmp_path,
        {
            ".claude/agents/a.md": f"---\nname: a\n{keys}---\nx",
            ".claude/agents/b.md": f"---\nname: b\ntools: [{tools}]\n---\nx",
            ".opencode/agents/c.md": f"---\ndescription: c\npermission:\n{rules}---\nx",
        },
    )
    library = find_agents(root)
    assert {s.name: len(s.complaints) for s in library.everything()} == {"a": 50, "b": 50, "c": 50}
    assert [s.name for s in library.broken] == ["b"]
