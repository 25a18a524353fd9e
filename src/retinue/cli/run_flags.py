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
    option("-m", "--model", default="", envvar=None, help="PROVIDER:MODEL, or offline/explorer."),
    option(
        "--agent", default="", metavar="NAME", help="The agent to run; see `retinue agents list`."
    ),
    option("--agents", default="", metavar="FILE|JSON", help="More agents, as JSON."),
    option(
        "--family",
        multiple=True,
        metavar="NAME",
        help="How it starts sub-agents; `none` for not at all.",
    ),
    option(
        "--job",
        type=click.Choice(["map", "find", "review", "compare"]),
        help="For offline/explorer.",
    ),
    option("-n", "--name", default="", help="A name for the run, by which it can be addressed."),
    option("--bg", is_flag=True, help="Do not wait: print the run's id."),
)

limit_options = together(
    option("--max-budget-usd", type=float, metavar="USD", help="What the whole tree may cost."),
    option("--max-tokens", type=int, metavar="N", help="How many tokens the whole tree may use."),
    option(
        "--on-limit",
        type=click.Choice(["land", "ask", "stop"]),
        help="At a limit of money or tokens: a last turn, ask you, or end at once.",
    ),
    option("--max-turns", type=int, metavar="N", help="How many turns the run itself may take."),
    option(
        "--timeout", type=Duration(), metavar="TIME", help="When the run is ended: 90s, 10m, 1h."
    ),
    option(
        "--strict",
        is_flag=True,
        help="Exit with 3 when a sub-agent failed, 4 when a call was denied.",
    ),
    option(
        "--permission-mode",
        default="",
        metavar="MODE",
        help="manual, acceptEdits, plan, dontAsk, auto...",
    ),
    option("--sandbox", default="", metavar="MODE", help="The same, in Codex's words."),
    option("--yolo", "--dangerously-skip-permissions", is_flag=True, help="Permit everything."),
    option(
        "--permission-prompts",
        type=click.Choice(["auto", "terminal", "wait", "none"]),
        default="auto",
        help="Who answers: this terminal, any other (wait), or nobody.",
    ),
    option(
        "--allowed-tools",
        "--allowedTools",
        multiple=True,
        metavar="RULES",
        help="Permit these calls.",
    ),
    option(
        "--disallowed-tools",
        "--disallowedTools",
        multiple=True,
        metavar="RULES",
        help="Never these.",
    ),
    option(
        "--add-dir",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="Also work there.",
    ),
    option("--mcp-config", multiple=True, metavar="FILE|JSON", help="Servers of tools."),
    option("--strict-mcp-config", is_flag=True, help="Only those servers."),
)

output_options = together(
    option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text"),
    option("--input-format", type=click.Choice(["text", "stream-json"]), default="text"),
    option("--json", "as_json", is_flag=True, help="The same as --output-format stream-json."),
    option("--include-partial-messages", is_flag=True, help="Text as it comes, in stream-json."),
    option(
        "-p", "--print", "is_print", is_flag=True, help="Headless: no live view, nobody is asked."
    ),
    option(
        "-o",
        "--output-last-message",
        default="",
        metavar="FILE",
        help="Also write the answer there.",
    ),
    option("--write", default="", metavar="FILE", help="Also write the answer there, to be kept."),
    option(
        "--output-schema",
        "--json-schema",
        default="",
        metavar="FILE|JSON",
        help="What it must match.",
    ),
    option("--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 on findings this severe."),
    option("--color", type=click.Choice(["auto", "always", "never"]), default="auto"),
    option("--ax-screen-reader", is_flag=True, help="Flat lines that can be read aloud."),
    option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
    option(
        "-c", "--continue", "go_on", is_flag=True, envvar=None, help="Go on with the latest run."
    ),
    option("-r", "--resume", default="", metavar="RUN", envvar=None, help="Go on with a run."),
    option(
        "--fork-session", is_flag=True, envvar=None, help="With -c or -r: leave that run as it is."
    ),
    option("--no-session-persistence", is_flag=True, help="Keep nothing."),
)
