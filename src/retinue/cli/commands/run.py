"""`retinue run`: start a run and wait for its answer."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from retinue.cli import exit_codes as exits
from retinue.cli import run_arguments as asking
from retinue.cli.context import CommandContext, Duration, common, option, out, pass_door
from retinue.cli.foreground_run import SEVERITIES, RunDisplay, carry_out, head_of, line_to, start
from retinue.errors import ConfigError
from retinue.host import answer_file, requests
from retinue.host.planner import PlannedRun, make_plan
from retinue.host.run_setup import RunSetup, permission_mode
from retinue.view import format as words
from retinue.view.format import json_line


def _prompting(command: Any) -> Any:
    for decorate in reversed(
        (
            click.argument("prompt", nargs=-1),
            option(
                "-m",
                "--model",
                default="",
                envvar=None,
                help="PROVIDER:MODEL, or offline/explorer.",
            ),
            option(
                "--agent",
                default="",
                metavar="NAME",
                help="The agent to run; see `retinue agents list`.",
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
            option(
                "-n", "--name", default="", help="A name for the run, by which it can be addressed."
            ),
            option("--bg", is_flag=True, help="Do not wait: print the run's id."),
        )
    ):
        command = decorate(command)
    return command


def _limiting(command: Any) -> Any:
    for decorate in reversed(
        (
            option(
                "--max-budget-usd", type=float, metavar="USD", help="What the whole tree may cost."
            ),
            option(
                "--max-tokens",
                type=int,
                metavar="N",
                help="How many tokens the whole tree may use.",
            ),
            option(
                "--on-limit",
                type=click.Choice(["land", "ask", "stop"]),
                help="At a limit of money or tokens: a last turn, ask you, or end at once.",
            ),
            option(
                "--max-turns", type=int, metavar="N", help="How many turns the run itself may take."
            ),
            option(
                "--timeout",
                type=Duration(),
                metavar="TIME",
                help="When the run is ended: 90s, 10m, 1h.",
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
            option(
                "--yolo", "--dangerously-skip-permissions", is_flag=True, help="Permit everything."
            ),
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
    ):
        command = decorate(command)
    return command


def _showing(command: Any) -> Any:
    for decorate in reversed(
        (
            option(
                "--output-format",
                type=click.Choice(["text", "json", "stream-json"]),
                default="text",
            ),
            option("--input-format", type=click.Choice(["text", "stream-json"]), default="text"),
            option(
                "--json", "as_json", is_flag=True, help="The same as --output-format stream-json."
            ),
            option(
                "--include-partial-messages", is_flag=True, help="Text as it comes, in stream-json."
            ),
            option(
                "-p",
                "--print",
                "is_print",
                is_flag=True,
                help="Headless: no live view, nobody is asked.",
            ),
            option(
                "-o",
                "--output-last-message",
                default="",
                metavar="FILE",
                help="Also write the answer there.",
            ),
            option(
                "--write",
                default="",
                metavar="FILE",
                help="Also write the answer there, to be kept.",
            ),
            option(
                "--output-schema",
                "--json-schema",
                default="",
                metavar="FILE|JSON",
                help="What it must match.",
            ),
            option(
                "--fail-on",
                type=click.Choice(SEVERITIES),
                help="Exit with 1 on findings this severe.",
            ),
            option("--color", type=click.Choice(["auto", "always", "never"]), default="auto"),
            option("--ax-screen-reader", is_flag=True, help="Flat lines that can be read aloud."),
            option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
            option(
                "-c",
                "--continue",
                "go_on",
                is_flag=True,
                envvar=None,
                help="Go on with the latest run.",
            ),
            option(
                "-r", "--resume", default="", metavar="RUN", envvar=None, help="Go on with a run."
            ),
            option(
                "--fork-session",
                is_flag=True,
                envvar=None,
                help="With -c or -r: leave that run as it is.",
            ),
            option("--no-session-persistence", is_flag=True, help="Keep nothing."),
        )
    ):
        command = decorate(command)
    return command


@click.command("run", context_settings={"ignore_unknown_options": False})
@_prompting
@_limiting
@_showing
@common
@pass_door
def command(door: CommandContext, /, **flags: Any) -> int:
    """Start a run and wait for its answer, which is all that is written to stdout.

    PROMPT is what to do; `-` stands for what is on stdin.
    """
    is_again = flags["go_on"] or bool(flags["resume"])
    setup, value = asking.configured(door, flags, keep=_kept(flags, is_again))
    setup = replace(
        setup, permission_mode=_mode(setup.permission_mode, flags["sandbox"], flags["yolo"])
    )
    door.is_quiet, door.color, door.is_reader = (
        flags["quiet"],
        flags["color"],
        flags["ax_screen_reader"],
    )
    _check(flags, is_again)
    wish = _wish(door, flags)
    if is_again:
        return _again(door, flags, setup, wish)
    if setup.on_limit == "ask" and wish.is_memory and not wish.can_answer:
        raise click.UsageError("nobody could answer: --on-limit ask needs a store, or a terminal.")
    planned, terms = make_plan(door.project, setup, value), _terms(door, setup, wish)
    if flags["input_format"] == "stream-json":
        return _converse(door, planned, terms, wish)
    text = asking.prompt(flags["prompt"]) + (f"\n\njob: {flags['job']}" if flags["job"] else "")
    with line_to(door, wish) as client:
        run = start(door, client, planned, text, terms, wish)
        return (
            _background(door, run, wish)
            if wish.is_background
            else carry_out(door, client, run, wish)
        )


def _kept(flags: dict[str, Any], is_again: bool) -> set[str]:
    """Flags that the configuration does not fill in: other words have said it, or a run goes on
    with its own."""
    kept = {"permission_mode"} if flags["sandbox"] or flags["yolo"] else set()
    return kept | ({"agent"} if is_again else set())


def _check(flags: dict[str, Any], is_again: bool) -> None:
    if flags["bg"] and flags["no_session_persistence"]:
        raise click.UsageError("--bg needs a store: leave out --no-session-persistence.")
    if flags["no_session_persistence"] and is_again:
        raise click.UsageError(
            "to go on with a run is to persist it: leave out --no-session-persistence."
        )
    if flags["fork_session"] and not is_again:
        raise click.UsageError("--fork-session goes with --continue or --resume.")
    if flags["input_format"] == "stream-json" and (flags["prompt"] or flags["bg"]):
        raise click.UsageError(
            "with --input-format stream-json the prompts come from stdin, in the foreground."
        )


def _wish(door: CommandContext, flags: dict[str, Any]) -> RunDisplay:
    is_tty = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    prompts = flags["permission_prompts"]
    headless = flags["is_print"] or flags["as_json"] or flags["output_format"] != "text"
    named = (flags["output_last_message"], flags["write"])
    return RunDisplay(
        format="stream-json" if flags["as_json"] else flags["output_format"],
        deltas=flags["include_partial_messages"],
        is_headless=headless,
        is_background=flags["bg"],
        waits=prompts == "wait",
        can_answer=prompts == "terminal"
        or (prompts == "auto" and is_tty and not headless and not flags["bg"]),
        is_strict=flags["strict"],
        fail_on=flags["fail_on"] or "",
        files=tuple(answer_file.settled(f, door.places.cwd) for f in named if f),
        is_memory=flags["no_session_persistence"],
    )


def _mode(flag: str, sandbox: str, yolo: bool) -> str:
    """The permission mode that three flags may name."""
    modes = [m for m in (flag, sandbox, "yolo" if yolo else "") if m]
    if len({permission_mode(m) for m in modes}) > 1:
        raise click.UsageError(f"{' and '.join(modes)} say different things about permissions.")
    return modes[0] if modes else ""


def _terms(door: CommandContext, setup: RunSetup, wish: RunDisplay) -> requests.RunTerms:
    waits = wish.waits or (setup.permission_prompts == "auto" and wish.is_background)
    return setup.terms(door.places.cwd, "ask" if wish.can_answer or waits else "deny")


def _again(door: CommandContext, flags: dict[str, Any], setup: RunSetup, wish: RunDisplay) -> int:
    """Go on with an earlier run."""
    from retinue.host.listing import RunListing

    with RunListing(door.places) as shelf:
        line = shelf.resolve(flags["resume"] or "latest")
    if setup.model or setup.agent:
        raise ConfigError(
            "a run goes on with its own agent and model; start a new run to use another"
        )
    text = asking.prompt(flags["prompt"])
    terms = _terms(door, setup, wish)
    wish.head = head_of((), (), terms.mode, deltas=wish.deltas)
    want: requests.HostRequest = requests.ResumeRequest(run=line.id, task=text, terms=terms)
    if flags["fork_session"]:
        want = requests.ForkRequest(run=line.id, task=text, terms=terms)
    with line_to(door, wish) as client:
        run = client.ask(want)["run"]
        how = "forked from" if flags["fork_session"] else "goes on from"
        door.say(
            f"retinue {client.welcome.retinue} · {line.model} · run {words.short_id(run)} {how} "
            f"{line.short}"
        )
        return (
            _background(door, run, wish)
            if wish.is_background
            else carry_out(door, client, run, wish)
        )


def _background(door: CommandContext, run: str, wish: RunDisplay) -> int:
    id = words.short_id(run)
    out(json_line({"run": run, "short": id}) if wish.format != "text" else id)
    door.say(f"in the background: retinue attach {id}, logs {id}, send {id}, cancel {id}")
    return exits.OK


def _converse(
    door: CommandContext, planned: PlannedRun, terms: requests.RunTerms, wish: RunDisplay
) -> int:
    """One prompt after the other from stdin, each going on where the last one ended."""
    code, run = exits.OK, ""
    with line_to(door, wish) as client:
        for text in asking.stream_prompts():
            if run:
                run = client.ask(requests.ResumeRequest(run=run, task=text, terms=terms))["run"]
            else:
                run = start(door, client, planned, text, terms, wish)
            code = carry_out(door, client, run, wish)
            if code in (exits.INTERRUPTED, exits.TERMINATED):
                return code
    if not run:
        raise click.UsageError("there was no message on stdin.")
    return code
