"""Arguments and options of `retinue run`: what is to be done, within which limits, and what is
written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from retinue.cli.context import Duration, option
from retinue.cli.foreground_run import SEVERITIES

Decorator = Callable[[Any], Any]


def together(*decorators: Decorator) -> Decorator:
    """One decorator that does what these do, written in the order of the help page."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


prompt_options = together(
    click.argument("prompt", nargs=-1),
    option(
        "-m",
        "--model",
        default="",
        envvar=None,
        help="Model to use: PROVIDER:MODEL, or offline/explorer.",
    ),
    option("--agent", default="", metavar="NAME", help="Agent to run; see `retinue agents list`."),
    option(
        "--agents",
        default="",
        metavar="FILE|JSON",
        help="Extra agent definitions: JSON, a file or a folder.",
    ),
    option(
        "--family",
        multiple=True,
        metavar="NAME",
        help="Tool family for starting sub-agents; `none` for no sub-agents. Repeatable.",
    ),
    option(
        "--job",
        type=click.Choice(["map", "find", "review", "compare"]),
        help="Job of the offline explorer.",
    ),
    option("-n", "--name", default="", help="Name for the run, usable instead of its id."),
    option("--bg", is_flag=True, help="Run in the background and print the run's id."),
)

limit_options = together(
    option(
        "--max-budget-usd",
        type=float,
        metavar="USD",
        help="Maximum cost of the run and its sub-agents.",
    ),
    option(
        "--max-tokens", type=int, metavar="N", help="Maximum tokens for the run and its sub-agents."
    ),
    option(
        "--on-limit",
        type=click.Choice(["land", "ask", "stop"]),
        help="At a limit of money or tokens: allow one last turn (land), ask you, or stop now.",
    ),
    option("--max-turns", type=int, metavar="N", help="Maximum turns for the run itself."),
    option(
        "--timeout",
        type=Duration(),
        metavar="TIME",
        help="Stop the run after this time, e.g. 90s, 10m, 1h.",
    ),
    option(
        "--strict",
        is_flag=True,
        help="Exit with code 3 if a sub-agent failed, 4 if a call was denied.",
    ),
    option(
        "--permission-mode",
        default="",
        metavar="MODE",
        help="What runs without asking: manual (default), acceptEdits, auto, dontAsk, plan, "
        "bypassPermissions.",
    ),
    option(
        "--sandbox",
        default="",
        metavar="MODE",
        help="Permission mode under its Codex name: read-only, workspace-write, "
        "danger-full-access.",
    ),
    option(
        "--yolo",
        "--dangerously-skip-permissions",
        is_flag=True,
        help="Allow every tool call without asking.",
    ),
    option(
        "--permission-prompts",
        type=click.Choice(["auto", "terminal", "wait", "none"]),
        default="auto",
        help="Where permission requests go: this terminal, `retinue approve` (wait), or "
        "denied (none). Default: auto (the terminal; with --bg, wait; else none).",
    ),
    option(
        "--allowed-tools",
        "--allowedTools",
        multiple=True,
        metavar="RULES",
        help='Calls to allow, e.g. "shell(git log*)". Repeatable.',
    ),
    option(
        "--disallowed-tools",
        "--disallowedTools",
        multiple=True,
        metavar="RULES",
        help="Calls to deny. Repeatable.",
    ),
    option(
        "--add-dir",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="Another directory the run may use. Repeatable.",
    ),
    option(
        "--mcp-config",
        multiple=True,
        metavar="FILE|JSON",
        help="MCP servers to use: a file or JSON. Repeatable.",
    ),
    option("--strict-mcp-config", is_flag=True, help="Use only the servers from --mcp-config."),
)

output_options = together(
    option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text"),
    option("--input-format", type=click.Choice(["text", "stream-json"]), default="text"),
    option("--json", "as_json", is_flag=True, help="Same as --output-format stream-json."),
    option(
        "--include-partial-messages",
        is_flag=True,
        help="With stream-json: include text as it streams.",
    ),
    option(
        "-p",
        "--print",
        "is_print",
        is_flag=True,
        help="No live view and no questions; calls that need permission are denied.",
    ),
    option(
        "-o",
        "--output-last-message",
        default="",
        metavar="FILE",
        help="Also write the answer to FILE.",
    ),
    option("--write", default="", metavar="FILE", help="Same as -o."),
    option(
        "--output-schema",
        "--json-schema",
        default="",
        metavar="FILE|JSON",
        help="JSON Schema that the answer must match.",
    ),
    option(
        "--fail-on",
        type=click.Choice(SEVERITIES),
        help="Exit with code 1 if a review finds problems this severe.",
    ),
    option("--color", type=click.Choice(["auto", "always", "never"]), default="auto"),
    option("--ax-screen-reader", is_flag=True, help="Plain output for screen readers."),
    option("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
    option("-c", "--continue", "go_on", is_flag=True, envvar=None, help="Continue the latest run."),
    option("-r", "--resume", default="", metavar="RUN", envvar=None, help="Continue this run."),
    option(
        "--fork-session",
        is_flag=True,
        envvar=None,
        help="With -c or -r: fork the run instead of continuing it.",
    ),
    option("--no-session-persistence", is_flag=True, help="Do not save the run."),
)
