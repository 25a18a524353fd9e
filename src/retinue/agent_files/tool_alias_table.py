"""Maps the tool names of other programs to Retinue's."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.tools.builtin.builtin_names import NAMES

AGENT = "agent"
"""Means every tool that starts other agents, whichever family it belongs to."""
SHELL = ("shell", "shell_output", "shell_stop")
EDIT = ("edit", "write")
SEARCH = ("search", "find", "list")
READING = ("read", *SEARCH, "symbols", "git", "think", "artifact", "ask", "skill")
"""The tools that can only look, or ask."""
CANONICAL = (*NAMES, "skill", AGENT)


def _table(rows: Mapping[tuple[str, ...], str]) -> dict[str, tuple[str, ...]]:
    return {name: ours for ours, names in rows.items() for name in names.split()}


ALIASES: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in CANONICAL},
    **_table(
        {
            SHELL: "shell bash execute powershell run_shell_command exec exec_command local_shell "
            "terminal run_command "
            "run_terminal_cmd runinterminal run_in_terminal runcommands runtasks runtests "
            "unified_exec cmd",
            (
                "shell_output",
            ): "bashoutput taskoutput getterminaloutput get_terminal_output write_stdin",
            ("shell_stop",): "killshell killbash taskstop killterminal kill_terminal",
            ("read",): "notebookread read_file readfile view read_many_files cat open_file "
            "getnotebooksummary "
            "view_image viewimage readnotebookcelloutput",
            (
                "edit",
            ): "multiedit notebookedit str_replace replace str_replace_editor search_replace "
            "replace_string_in_file insert_edit_into_file editnotebook patch",
            ("write",): "write_file writefile create create_file createfile createdirectory "
            "create_directory new",
            EDIT: "apply_patch applypatch editfiles edit_file str_replace_based_edit_tool",
            (
                "search",
            ): "grep grep_search search_file_content rg textsearch text_search codebase usages "
            "codebase_search semantic_search searchresults",
            ("find",): "glob file_search filesearch find_files findtestfiles",
            ("list",): "ls list_dir list_directory listdirectory listdir",
            ("git",): "changes get_changed_files",
            ("fetch",): "webfetch web_fetch web fetch_webpage fetchwebpage browse",
            (
                "tasks",
            ): "todowrite todoread todo todos todo_write todo_read write_todos manage_todo_list "
            "update_plan "
            "taskcreate taskupdate tasklist taskget",
            ("think",): "thinking sequentialthinking",
            (
                "ask",
            ): "askuserquestion ask_user question askquestions request_user_input ask_questions",
            ("skill",): "activate_skill skills",
            ("mcp_resources",): "mcp_resources listmcpresources readmcpresource "
            "listmcpresourcestool readmcpresourcetool",
            (AGENT,): "task agents custom-agent subagent subagents spawn_agents spawn_agent "
            "delegate_tasks "
            "sessions_spawn agent_spawn agent_fork parallel_subagent runsubagent delegate_to_agent",
        }
    ),
}
"""A name in lower case -> tools of ours."""
GROUPS: dict[str, tuple[str, ...]] = {"edit": EDIT, "search": SEARCH, "read": ("read", "list")}
"""Words that mean several tools where a dialect has groups: Copilot's tool sets, opencode's
permissions."""
GROUPED: dict[str, dict[str, tuple[str, ...]]] = {
    "copilot": GROUPS,
    "opencode": {"edit": EDIT, "list": ("list",), "glob": ("find",), "grep": ("search",)},
}
NEAR: dict[str, tuple[tuple[str, ...], str]] = {
    "websearch": (
        ("fetch",),
        "there is no web search here; fetch, which reads a URL, is used instead",
    ),
    "web_search": (
        ("fetch",),
        "there is no web search here; fetch, which reads a URL, is used instead",
    ),
    "google_web_search": (
        ("fetch",),
        "there is no web search here; fetch, which reads a URL, is used instead",
    ),
}
_WITHOUT = """
exitplanmode enterplanmode enterworktree exitworktree slashcommand
toolsearch lsp memory save_memory cli_help problems
extensions vscodeapi githubrepo browser monitor opensimplebrowser testfailure terminallastcommand
terminalselection vscode sendmessage croncreate crondelete cronlist notify codesearch
external_directory doom_loop teamcreate teamdelete
"""
WITHOUT = frozenset(_WITHOUT.split())
"""Tools that other programs have and that have no counterpart here; to name them is not a
mistake."""
