"""What the keys of each dialect mean, and what is said about values that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agent_files.agent_spec import Dialect
from retinue.agent_files.loader import Loader
from retinue.core.values import Budget
from tests.agent_files.helpers import agent, project, said, spec_of


@pytest.mark.parametrize(
    ("line", "tools"),
    [
        ("tools: Read, Grep", ("read", "search")),
        ("tools: [Read, Grep]", ("read", "search")),
        ("tools: Read Grep", ("read", "search")),
        ("tools:\n  - Read\n  - Grep", ("read", "search")),
        ("tools: '*'", None),
        ("model: inherit", None),
    ],
)
def test_tools_may_be_a_text_or_a_list(
    tmp_path: Path, line: str, tools: tuple[str, ...] | None
) -> None:
    spec = spec_of(tmp_path, agent("a", line))
    assert (spec.tools, spec.model, spec.complaints) == (tools, None, ())


@pytest.mark.parametrize("value", ["42", "{a: b}", "[Read, 7]", "true", "[[Read]]"])
def test_tools_of_a_wrong_type_break_the_agent_instead_of_giving_it_everything(
    tmp_path: Path, value: str
) -> None:
    spec = spec_of(tmp_path, agent("a", f"tools: {value}"))
    assert (spec.tools, spec.broken) == ((), True)
    assert spec.complaints[0].line == 4


def test_a_list_of_tools_that_resolves_to_nothing_is_an_error(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, agent("a", "tools: [Raed, Frobnicate]"))
    assert said(spec.complaints, "error") == [
        (4, "tools resolves to no tool: none of Raed, Frobnicate is a tool here")
    ]
    assert len(said(spec.complaints, "warning")) == 2


def test_an_unknown_tool_among_known_ones_is_a_warning(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, agent("a", "tools: [Read, Frobnicate]"))
    assert (spec.tools, spec.broken) == (("read",), False)


def test_denying_all_that_is_listed_is_an_error(tmp_path: Path) -> None:
    assert spec_of(tmp_path, agent("a", "tools: Write", "disallowedTools: Write")).broken
    assert spec_of(tmp_path, agent("a", "disallowedTools: '*'")).broken


def test_denying_some_commands_does_not_deny_the_shell(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, agent("a", "tools: Bash, Read", "disallowedTools: Bash(rm *), Agent(b), Write")
    )
    assert spec.tools == ("shell", "shell_output", "shell_stop", "read")
    assert spec.deny == ("write",)
    assert spec.rules == ("deny: shell(rm *)", "deny: agent(b)")


def test_unknown_keys_are_kept_and_reported_with_what_was_probably_meant(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, agent("a", "maxturns: 5", "zzz: [1, {b: c}]"))
    assert spec.extra == {"maxturns": 5, "zzz": [1, {"b": "c"}]}
    assert [(c.line, c.hint) for c in spec.complaints] == [(4, "did you mean 'maxTurns'?"), (5, "")]
    assert not spec.broken


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "maxTurns: many",
            "maxTurns must be a whole number of at least 1, not a text ('many'); it is ignored",
        ),
        (
            "maxTurns: 0",
            "maxTurns must be a whole number of at least 1, not a number (0); it is ignored",
        ),
        (
            "maxTurns: true",
            "maxTurns must be a whole number of at least 1, not yes or no (True); it is ignored",
        ),
        (
            "background: maybe",
            "background must be true or false, not a text ('maybe'); it is ignored",
        ),
        ("model: [1]", "model must be a text, not a list; it is ignored"),
        (
            "mcpServers: 7",
            "mcpServers must be names of servers, or servers by name, not a number (7); "
            "it is ignored",
        ),
        ("isolation: container", "isolation is 'container', which is not one of worktree"),
    ],
)
def test_a_value_of_a_wrong_type_is_left_out_and_named_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    spec = spec_of(tmp_path, agent("a", line))
    assert said(spec.complaints) == [(4, message)]
    assert (spec.max_turns, spec.background, spec.model, spec.isolation) == (None, False, None, "")


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("default", "manual"),
        ("acceptEdits", "acceptEdits"),
        ("ACCEPTEDITS", "acceptEdits"),
        ("yolo", "bypassPermissions"),
        ("auto_edit", "acceptEdits"),
        ("workspace-write", "acceptEdits"),
        ("acceptEdit", None),
    ],
)
def test_permission_modes_go_by_the_names_of_all_programs(
    tmp_path: Path, word: str, mode: str | None
) -> None:
    assert spec_of(tmp_path, agent("a", f"permissionMode: {word}")).permission_mode == mode


def test_a_name_that_cannot_be_one_is_made_one(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, agent("Code Reviewer v2.1!"))
    assert spec.name == "code-reviewer-v2-1"
    assert spec.complaints[0].message.endswith("'code-reviewer-v2-1' is used")
    assert spec_of(tmp_path, agent("'../../..'")).broken


def test_without_a_name_the_file_names_the_agent(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "---\ndescription: d\n---\nDo.", name="helper.md")
    assert spec.name == "helper"
    assert said(spec.complaints) == [(0, "name is missing; the file name 'helper' is used")]


@pytest.mark.parametrize("dialect", ["claude", "gemini"])
def test_where_names_are_needed_a_text_without_front_matter_is_no_agent(
    tmp_path: Path, dialect: Dialect
) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n")
    specs, complaints = Loader("project", tmp_path).file(tmp_path / "notes.md", dialect, "notes")
    assert specs == []
    assert said(complaints) == [(1, "no front matter, so it is not an agent")]


def test_our_own_may_be_a_text_alone(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "Just do it.", "retinue", "doer.md")
    assert (spec.name, spec.instructions, spec.tools) == ("doer", "Just do it.", None)


@pytest.mark.parametrize(
    ("budget", "error"),
    [
        ("{max_tokens: 10, max_usd: 0.5, max_turns: 3, timeout: 2m}", False),
        ("{max_token: 10}", True),
        ("{max_tokens: lots}", True),
        ("{max_usd: -1}", True),
        ("{max_usd: .inf}", True),
        ("5000", True),
        ("{timeout: soon}", True),
    ],
)
def test_a_budget_that_cannot_be_read_breaks_the_agent(
    tmp_path: Path, budget: str, error: bool
) -> None:
    spec = spec_of(tmp_path, agent("a", f"budget: {budget}"), "retinue")
    assert spec.broken is error
    if not error:
        assert spec.budget == Budget(tokens=10, usd=0.5, turns=3, seconds=120.0)


def test_our_names_may_be_written_with_underscores(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, agent("a", "max_turns: 4", "permission_mode: plan", "can-spawn: [b]"), "retinue"
    )
    assert (spec.max_turns, spec.permission_mode, spec.can_spawn, spec.spawns) == (
        4,
        "plan",
        ("b",),
        True,
    )


def test_who_may_start_nobody_has_no_tools_for_it(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, agent("a", "tools: [read, agent]", "can_spawn: []"), "retinue")
    assert (spec.tools, spec.deny, spec.spawns) == (("read",), ("agent",), False)


def test_a_schema_may_be_a_text_of_json_and_must_be_an_object(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, agent("a", """output_schema: '{"type": "object"}'"""), "retinue")
    assert spec.output_schema == {"type": "object"}
    assert spec_of(tmp_path, agent("a", "output_schema: [1]"), "retinue").broken


def test_of_opencodes_permissions_the_last_that_matches_holds(tmp_path: Path) -> None:
    text = (
        "---\ndescription: d\npermission:\n  '*': deny\n  read: allow\n  bash:\n    '*': "
        "deny\n    'git *': ask\n---\nx"
    )
    spec = spec_of(tmp_path, text, "opencode")
    assert spec.tools == ("read", "shell", "shell_output", "shell_stop")
    assert spec.rules == ("deny: *", "allow: read", "deny: shell", "ask: shell(git *)")
    again = text.replace("  '*': deny\n  read: allow\n", "").replace(
        "    'git *': ask\n", "    'git *': ask\n  edit: deny\n"
    )
    spec = spec_of(tmp_path, again, "opencode")
    assert (spec.tools, spec.deny) == (None, ("edit", "write"))


def test_a_permission_that_is_no_word_counts_as_deny(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "---\ndescription: d\npermission: {bash: alow}\n---\nx", "opencode")
    assert spec.broken
    assert [c.hint for c in spec.complaints] == ["did you mean 'allow'?"]
    assert "shell" in spec.deny


def test_opencodes_tools_that_are_all_off_are_an_error(tmp_path: Path) -> None:
    assert spec_of(tmp_path, "---\ndescription: d\ntools: {'*': false}\n---\nx", "opencode").broken
    spec = spec_of(
        tmp_path,
        "---\ndescription: d\ntools: {'*': false, read: true, bash: true}\n---\nx",
        "opencode",
    )
    assert spec.tools == ("read", "shell", "shell_output", "shell_stop")


def test_a_prompt_may_be_a_file_beneath_the_project_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    root = project(
        tmp_path / "p",
        {
            "prompts/ok.txt": "Be kind.",
            "opencode.json": """{"agent": {
                "good": {"description": "d", "prompt": "First. {file:prompts/ok.txt}"},
                "up": {"description": "d", "prompt": "{file:../secret.txt}"},
                "root": {"description": "d", "prompt": "{file:/etc/hostname}"},
                "link": {"description": "d", "prompt": "{file:prompts/link.txt}"},
                "env": {"description": "d", "prompt": "{env:HOME}"}}}""",
        },
    )
    (root / "prompts/link.txt").symlink_to(tmp_path / "secret.txt")
    specs = {s.name: s for s in Loader("project", root).opencode_json(root / "opencode.json")[0]}
    assert specs["good"].instructions == "First. Be kind."
    for name in ("up", "root", "link"):
        assert specs[name].broken
        assert "outside of" in specs[name].complaints[0].message
        assert "secret" not in specs[name].instructions
    assert specs["env"].instructions == "{env:HOME}"


def test_cursors_readonly_agents_can_only_look(tmp_path: Path) -> None:
    for value in ("true", "yes", "perhaps"):
        spec = spec_of(tmp_path, agent("a", f"readonly: {value}"), "cursor")
        assert not {"edit", "write", "shell", "fetch", "agent"} & set(spec.tools or ("edit",))
    assert spec_of(tmp_path, agent("a", "readonly: false"), "cursor").tools is None


def test_copilots_agents_say_who_may_invoke_them(tmp_path: Path) -> None:
    both = agent("a", "disable-model-invocation: true", "user-invocable: false")
    assert spec_of(tmp_path, both, "copilot", "a.agent.md").disabled
    assert spec_of(tmp_path, agent("a", "user-invocable: false"), "copilot").mode == "subagent"
    assert spec_of(tmp_path, agent("a", "agents: []", "tools: [read, agent]"), "copilot").tools == (
        "read",
        "list",
    )


def test_codex_needs_three_keys(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 'model = "m"\n', "codex", "a.toml")
    assert [m for _, m in said(spec.complaints)] == [
        "name is missing",
        "developer_instructions is missing",
        "description is missing, so models cannot tell when to use this agent",
    ]


def test_a_server_that_is_turned_off_is_left_out(tmp_path: Path) -> None:
    text = (
        'name = "a"\ndescription = "d"\ndeveloper_instructions = "i"\n[mcp_servers.x]\nenabled '
        '= false\nurl = "u"\n'
    )
    assert spec_of(tmp_path, text, "codex", "a.toml").mcp_servers == {}


def test_a_prompt_cannot_grow_without_end(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * 600_000)
    for n, message in (
        (2, "all files together have more than"),
        (1_000, "prompt names more than 20 files"),
    ):
        spec = spec_of(
            tmp_path, f"---\ndescription: d\nprompt: '{'{file:big.txt}' * n}'\n---\n", "opencode"
        )
        assert spec.broken
        assert message in spec.complaints[0].message
        assert len(spec.instructions) <= 600_000


@pytest.mark.parametrize("key", ["tools", "permission"])
def test_permissions_without_end_are_an_error(tmp_path: Path, key: str) -> None:
    rules = "".join(
        f"  '*z*{n}*': {'false' if key == 'tools' else 'allow'}\n" for n in range(5_000)
    )
    spec = spec_of(tmp_path, f"---\ndescription: d\n{key}:\n{rules}---\nx", "opencode")
    assert spec.broken
