"""Names of tools, as other programs write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retinue.agent_files.agent_spec import Dialect
from retinue.agent_files.tool_alias_table import ALIASES, CANONICAL
from retinue.agent_files.tool_aliases import ToolList, resolve, split_names
from retinue.tools.builtin.builtin_names import NAMES


def resolved(
    text: str, dialect: Dialect = "claude", **options: tuple[str, ...]
) -> tuple[ToolList, list[str]]:
    complaints: list[str] = []

    def complain(message: str, severity: str, hint: str | Callable[[], str]) -> None:
        complaints.append(
            f"{severity}: {message} {hint if isinstance(hint, str) else hint()}".strip()
        )

    names = resolve(split_names(text), dialect, complain, **options)
    return names, complaints


def test_all_built_in_tools_go_by_their_own_names() -> None:
    assert set(NAMES) <= set(CANONICAL)
    assert all(ALIASES[name] and name in ALIASES[name] for name in NAMES)


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("shell", "shell Bash powershell run_shell_command execute BASH"),
        ("read", "Read NotebookRead read_file view"),
        ("edit", "Edit MultiEdit NotebookEdit apply_patch"),
        ("write", "Write write_file"),
        ("search", "Grep grep_search"),
        ("find", "Glob"),
        ("list", "list_dir LS"),
        ("agent", "Task Agent custom-agent subagent spawn_agents delegate_tasks sessions_spawn"),
        ("fetch", "WebFetch web"),
        ("tasks", "TodoWrite todo"),
    ],
)
def test_names_of_others_are_known_in_any_case(group: str, names: str) -> None:
    for name in names.split():
        assert resolved(name)[0].names[0] == group
        assert resolved(name.upper()) == resolved(name.lower())


def test_a_search_of_the_web_becomes_fetch_and_says_so() -> None:
    names, complaints = resolved("WebSearch")
    assert names.names == ("fetch",)
    assert complaints[0].startswith("note: WebSearch: there is no web search here")


def test_copilot_speaks_of_groups() -> None:
    assert resolved("edit", "copilot")[0].names == ("edit", "write")
    assert resolved("search", "copilot")[0].names == ("search", "find", "list")
    assert resolved("edit/editFiles", "copilot")[0].names == ("edit", "write")
    assert resolved("Edit", "claude")[0].names == ("edit",)


@pytest.mark.parametrize(
    ("text", "dialect", "name"),
    [
        ("mcp__github__create_issue", "claude", "mcp__github__create_issue"),
        ("mcp__github", "claude", "mcp__github__*"),
        ("mcp__github__*", "claude", "mcp__github__*"),
        ("github/create_issue", "copilot", "mcp__github__create_issue"),
        ("github/*", "copilot", "mcp__github__*"),
        ("mcp_*", "gemini", "mcp__*"),
        ("mcp_github_*", "gemini", "mcp__github__*"),
        ("mcp_my_server_run", "gemini", "mcp__my_server__run"),
    ],
)
def test_tools_of_servers_have_one_spelling(text: str, dialect: Dialect, name: str) -> None:
    assert resolved(text, dialect, servers=("my_server",)) == (ToolList(names=(name,)), [])


def test_wildcards_match_the_names_of_others() -> None:
    assert resolved("read_*", "gemini")[0].names == ("read",)
    assert resolved("*", "gemini")[0].every


def test_restrictions_become_patterns() -> None:
    names, _ = resolved("Bash(git diff, git log *), Bash(npm run test:*), Read(src/**), Grep")
    assert names.names == ("shell", "shell_output", "shell_stop", "read", "search")
    assert names.patterns == (
        ("shell", "git diff, git log *"),
        ("shell", "npm run test *"),
        ("read", "src/**"),
    )


def test_agents_behind_the_tool_that_starts_them_are_names() -> None:
    assert resolved("Agent(a, b), Task(c)")[0].spawn == ("a", "b", "c")
    assert resolved("Agent")[0].spawn is None
    assert resolved("Agent(a), Task")[0].spawn is None


def test_spaces_separate_where_there_is_no_comma() -> None:
    assert split_names("Read Bash(git log *)  Grep") == ["Read", "Bash(git log *)", "Grep"]
    assert split_names("Read, Bash(a, b),,Grep") == ["Read", "Bash(a, b)", "Grep"]
    assert split_names("") == []


def test_an_unknown_name_is_left_out_with_a_suggestion() -> None:
    assert resolved("Raed, Frobnicate")[1] == [
        "warning: unknown tool 'Raed'; it is ignored did you mean 'read'?",
        "warning: unknown tool 'Frobnicate'; it is ignored",
    ]
    assert resolved("ExitPlanMode")[1] == ["note: no tool like 'ExitPlanMode' here; it is ignored"]


def test_tools_of_the_program_are_known_too() -> None:
    assert resolved("Measure, read", known=("measure",)) == (
        ToolList(names=("measure", "read")),
        [],
    )


def test_a_million_commas_do_not_take_long() -> None:
    names, complaints = resolved("a," * 500_000)
    assert names.names == ()
    assert complaints[0] == "warning: 500000 tools are named; only the first 500 were read"


@pytest.mark.parametrize("text", ["github server/x", "git\nhub/x", "(/)", "/"])
def test_what_cannot_be_a_name_never_becomes_one(text: str) -> None:
    complaints: list[str] = []
    names = resolve([text], "copilot", lambda m, s, h: complaints.append(m))
    assert (names.names, len(complaints)) == ((), 1)
