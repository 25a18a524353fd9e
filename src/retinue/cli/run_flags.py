"""Arguments and options of `retinue run`, in the groups and the order of its help."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from retinue.cli.context import Duration, option, theme_option
from retinue.cli.handover import SEVERITIES

Decorator = Callable[[Any], Any]
EXAMPLES = """\
retinue run "map this repository"
retinue run -m PROVIDER:MODEL --max-budget-usd 2 "fix the failing test"
git diff | retinue run -p "review this diff:" -
retinue run -c "now update the docs"            # continue the latest run
retinue run --job review --fail-on high "review my changes"   # for CI"""
NOTES = """\
Exit codes:
  0 completed                      4 needs an answer, or a permission was denied
  1 failed or cancelled            5 budget, turn or time limit reached
  2 usage or configuration error   6 no provider, or the key was rejected
  3 a sub-agent failed (--strict)  130 Ctrl-C, 143 SIGTERM

Every option except --model, --continue, --resume and --fork-session can also be
set with an environment variable: --max-turns is RETINUE_MAX_TURNS. (--model is
RETINUE_MODEL.)"""


def together(*decorators: Decorator) -> Decorator:
    """One decorator that does what these do, written in the order of the help page."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_agent = partial(option, group="Model and agent")
agent_options = together(
    click.argument("prompt", nargs=-1),
    _agent(
        "-m",
        "--model",
        default="",
        envvar=None,
        metavar="MODEL",
        help="Model to use: PROVIDER:MODEL, or offline/explorer.",
    ),
    _agent("--agent", default="", metavar="NAME", help="Agent to run; see `retinue agents list`."),
    _agent(
        "--agent-file",
        compat=("--agents",),
        default="",
        metavar="FILE|JSON",
        help="Extra agent definitions: JSON, a file or a folder.",
    ),
    _agent(
        "--family",
        multiple=True,
        metavar="NAME",
        help="Tool family for starting sub-agents; `none` for no sub-agents. Repeatable.",
    ),
    _agent(
        "--job",
        type=click.Choice(["map", "find", "review"]),
        help="Job of the offline explorer.",
    ),
    _agent("--full", is_flag=True, help="The offline explorer reports everything, not one page."),
    _agent(
        "--mcp-config",
        multiple=True,
        metavar="FILE|JSON",
        help="MCP servers to use: a file or JSON. Repeatable.",
    ),
    _agent("--strict-mcp-config", is_flag=True, help="Use only the servers from --mcp-config."),
    _agent(
        "--mcp-prompt",
        default="",
        metavar="SERVER/NAME",
        help="Start with this prompt of an MCP server; PROMPT is then NAME=VALUE and more text.",
    ),
)

_history = partial(option, group="Background and history")
history_options = together(
    _history(
        "--name",
        compat=("-n",),
        default="",
        metavar="NAME",
        help="Name for the run, usable instead of its id.",
    ),
    _history(
        "--background",
        compat=("--bg",),
        is_flag=True,
        help="Run in the background and print the run's id.",
    ),
    _history(
        "-c", "--continue", "go_on", is_flag=True, envvar=None, help="Continue the latest run."
    ),
    _history("-r", "--resume", default="", metavar="RUN", envvar=None, help="Continue this run."),
    _history(
        "--fork-session",
        is_flag=True,
        envvar=None,
        help="With -c or -r: fork the run instead of continuing it.",
    ),
    _history("--no-session-persistence", is_flag=True, help="Do not save the run."),
)

_limit = partial(option, group="Limits")
limit_options = together(
    _limit(
        "--max-budget-usd",
        type=float,
        metavar="USD",
        help="Maximum cost of the run and its sub-agents.",
    ),
    _limit(
        "--max-tokens", type=int, metavar="N", help="Maximum tokens for the run and its sub-agents."
    ),
    _limit("--max-turns", type=int, metavar="N", help="Maximum turns for the run itself."),
    _limit(
        "--max-time",
        "timeout",
        compat=("--timeout",),
        type=Duration(),
        metavar="TIME",
        help="Stop the run after this time, e.g. 90s, 10m, 1h.",
    ),
    _limit(
        "--on-limit",
        type=click.Choice(["land", "ask", "stop"]),
        help="At a limit of money or tokens: allow one last turn (land), ask you, or stop now.",
    ),
)

_permission = partial(option, group="Permissions")
permission_options = together(
    _permission(
        "--permission-mode",
        default="",
        metavar="MODE",
        help="What runs without asking: manual (default), acceptEdits, auto, dontAsk, plan, "
        "bypassPermissions.",
    ),
    option("--sandbox", default="", metavar="MODE", hidden=True),
    _permission(
        "--yolo",
        "--dangerously-skip-permissions",
        is_flag=True,
        help="Allow every tool call without asking.",
    ),
    _permission(
        "--permission-prompts",
        type=click.Choice(["auto", "terminal", "wait", "none"]),
        default="auto",
        help="Where permission requests go: this terminal, `retinue approve` (wait), or denied "
        "(none). Default: auto (the terminal; with --background, wait; else none).",
    ),
    _permission(
        "--allowed-tools",
        compat=("--allowedTools",),
        multiple=True,
        metavar="RULES",
        help='Calls to allow, e.g. "shell(git log*)". Repeatable.',
    ),
    _permission(
        "--disallowed-tools",
        compat=("--disallowedTools",),
        multiple=True,
        metavar="RULES",
        help="Calls to deny. Repeatable.",
    ),
    _permission(
        "--add-dir",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="Another directory the run may use. Repeatable.",
    ),
)

_output = partial(option, group="Output")
output_options = together(
    _output(
        "--output-format",
        type=click.Choice(["text", "json", "stream-json"]),
        default="text",
        help="Format of stdout. Default: text.",
    ),
    option("--json", "as_json", is_flag=True, hidden=True),
    _output(
        "--include-partial-messages",
        is_flag=True,
        help="With stream-json: include text as it streams.",
    ),
    _output(
        "--input-format",
        type=click.Choice(["text", "stream-json"]),
        default="text",
        help="With stream-json: each message on stdin is a turn of one conversation.",
    ),
    _output(
        "-p",
        "--print",
        "is_print",
        is_flag=True,
        help="No live view and no questions; calls that need permission are denied.",
    ),
    _output(
        "-o",
        "--output",
        compat=("--output-last-message", "--write"),
        multiple=True,
        metavar="FILE",
        help="Also write the answer to FILE. Repeatable.",
    ),
    _output("--raw", is_flag=True, help="Print the answer's Markdown as it was written."),
    _output(
        "--output-schema",
        compat=("--json-schema",),
        default="",
        metavar="FILE|JSON",
        help="JSON Schema that the answer must match.",
    ),
    _output(
        "--fail-on",
        type=click.Choice(SEVERITIES),
        help="Exit with code 1 if a review finds problems this severe.",
    ),
    _output(
        "--strict",
        is_flag=True,
        help="Exit with code 3 if a sub-agent failed, 4 if a call was denied.",
    ),
    _output(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="When to use colors. Default: auto.",
    ),
    partial(theme_option, group="Output"),
    _output(
        "--screen-reader",
        compat=("--ax-screen-reader",),
        is_flag=True,
        help="Plain output for screen readers.",
    ),
    _output("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
)
run_options = together(
    agent_options, history_options, limit_options, permission_options, output_options
)
