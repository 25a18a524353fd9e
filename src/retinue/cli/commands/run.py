"""`retinue run`: starts a run and waits for its answer."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from retinue.cli import exit_codes, run_arguments
from retinue.cli.command_help import GroupedCommand
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.foreground_run import carry_out, head_of, line_to, page_of, start
from retinue.cli.handover import RunDisplay
from retinue.cli.mcp_prompts import prompt_task
from retinue.cli.run_flags import EXAMPLES, NOTES, run_options
from retinue.errors import ConfigError
from retinue.host import answer_file, requests
from retinue.host.model_choice import OFFLINE
from retinue.host.planner import PlannedRun, make_plan
from retinue.host.run_setup import RunSetup, permission_mode
from retinue.view import format as view_format
from retinue.view.format import json_line

ASK = ('Ask it:       retinue run "where is it decided what happens next?"',)
ADD_MODEL = "Add a model:  export ANTHROPIC_API_KEY=...  (check it: retinue doctor)"


@click.command("run", cls=GroupedCommand, examples=EXAMPLES, notes=NOTES)
@run_options
@common
@pass_context
def command(context: CommandContext, /, **flags: Any) -> int:
    """Start a run and print its answer.

    Only the answer goes to stdout; progress goes to stderr. Use `-` as PROMPT to read it from
    stdin."""
    is_again = flags["go_on"] or bool(flags["resume"])
    setup, value = run_arguments.configured(context, flags, keep=_kept(flags, is_again))
    setup = replace(
        setup, permission_mode=_mode(setup.permission_mode, flags["sandbox"], flags["yolo"])
    )
    context.is_quiet, context.color, context.is_reader = (
        flags["quiet"],
        flags["color"],
        flags["screen_reader"],
    )
    _check(flags, is_again)
    display = _wish(context, flags)
    if is_again:
        return _again(context, flags, setup, display)
    if setup.on_limit == "ask" and display.is_memory and not display.can_answer:
        raise click.UsageError(
            "--on-limit ask needs a stored run or a terminal, so that someone can answer."
        )
    planned, terms = make_plan(context.project, setup, value), _terms(context, setup, display)
    if planned.choice.model == OFFLINE:
        # What else could be used is said at the end, where it is read.
        display.next_lines = (*(ASK if asks_map(flags) else ()), ADD_MODEL, *planned.choice.hints)
        planned = replace(planned, choice=planned.choice._replace(hints=()))
    if flags["input_format"] == "stream-json":
        return _converse(context, planned, terms, display)
    text = "" if flags["mcp_prompt"] else run_arguments.prompt(flags["prompt"])
    with line_to(context, display) as client:
        if flags["mcp_prompt"]:
            text = prompt_task(client, planned, flags["mcp_prompt"], flags["prompt"])
        text += _for_explorer(flags)
        run = start(context, client, planned, text, terms, display)
        return (
            _background(context, run, display)
            if display.is_background
            else carry_out(context, client, run, display)
        )


def _for_explorer(flags: dict[str, Any]) -> str:
    """Lines of the task that the explorer reads."""
    job = f"\n\njob: {flags['job']}" if flags["job"] else ""
    return job + ("\n\ndetail: full" if flags["full"] else "")


def asks_map(flags: dict[str, Any]) -> bool:
    """Whether the user explores a project: then a question comes next."""
    return flags["job"] == "map" or (" ".join(flags["prompt"]).lower().startswith("map "))


def _kept(flags: dict[str, Any], is_again: bool) -> set[str]:
    """Flags that the configuration does not fill in: other flags have set them, or a continued run
    keeps its own."""
    names = {"permission_mode"} if flags["sandbox"] or flags["yolo"] else set()
    return names | ({"agent"} if is_again else set())


def _check(flags: dict[str, Any], is_again: bool) -> None:
    if flags["background"] and flags["no_session_persistence"]:
        raise click.UsageError("--background needs a stored run. Remove --no-session-persistence.")
    if flags["no_session_persistence"] and is_again:
        raise click.UsageError(
            "--continue and --resume need a stored run. Remove --no-session-persistence."
        )
    if flags["mcp_prompt"] and (is_again or flags["input_format"] == "stream-json"):
        raise click.UsageError("--mcp-prompt starts a new run. Remove the other option.")
    if flags["fork_session"] and not is_again:
        raise click.UsageError("--fork-session needs --continue or --resume.")
    if flags["input_format"] == "stream-json" and (flags["prompt"] or flags["background"]):
        raise click.UsageError(
            "With --input-format stream-json, prompts come from stdin and the run stays "
            "in the foreground."
        )


def _wish(context: CommandContext, flags: dict[str, Any]) -> RunDisplay:
    is_tty = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    prompts = flags["permission_prompts"]
    headless = flags["is_print"] or flags["as_json"] or flags["output_format"] != "text"
    return RunDisplay(
        format="stream-json" if flags["as_json"] else flags["output_format"],
        deltas=flags["include_partial_messages"],
        is_headless=headless,
        is_background=flags["background"],
        waits=prompts == "wait",
        can_answer=prompts == "terminal"
        or (prompts == "auto" and is_tty and not headless and not flags["background"]),
        is_strict=flags["strict"],
        fail_on=flags["fail_on"] or "",
        files=tuple(answer_file.settled(f, context.paths.cwd) for f in flags["output"]),
        is_memory=flags["no_session_persistence"],
        is_raw=flags["raw"],
    )


def _mode(flag: str, sandbox: str, yolo: bool) -> str:
    """The permission mode that three flags may name."""
    modes = [m for m in (flag, sandbox, "yolo" if yolo else "") if m]
    if len({permission_mode(m) for m in modes}) > 1:
        raise click.UsageError(f"{' and '.join(modes)} contradict each other. Use one of them.")
    return modes[0] if modes else ""


def _terms(context: CommandContext, setup: RunSetup, display: RunDisplay) -> requests.RunTerms:
    waits = display.waits or (setup.permission_prompts == "auto" and display.is_background)
    return setup.terms(context.paths.cwd, "ask" if display.can_answer or waits else "deny")


def _again(
    context: CommandContext, flags: dict[str, Any], setup: RunSetup, display: RunDisplay
) -> int:
    """Continue an earlier run."""
    from retinue.host.listing import RunListing

    with RunListing(context.paths) as listing:
        line = listing.resolve(flags["resume"] or "latest")
    if setup.model or setup.agent:
        raise ConfigError(
            "A continued run keeps its agent and model. Start a new run to change them."
        )
    text = run_arguments.prompt(flags["prompt"])
    terms = _terms(context, setup, display)
    display.head = head_of((), (), terms.mode, deltas=display.deltas)
    want: requests.HostRequest = requests.ResumeRequest(run=line.id, task=text, terms=terms)
    if flags["fork_session"]:
        want = requests.ForkRequest(run=line.id, task=text, terms=terms)
    with line_to(context, display) as client:
        run = client.ask(want)["run"]
        how = "fork of" if flags["fork_session"] else "continues"
        context.say(
            f"retinue {client.welcome.retinue} · {line.model} · "
            f"run {view_format.short_id(run)} {how} {line.short}{page_of(client, run)}"
        )
        return (
            _background(context, run, display)
            if display.is_background
            else carry_out(context, client, run, display)
        )


def _background(context: CommandContext, run: str, display: RunDisplay) -> int:
    id = view_format.short_id(run)
    out(json_line({"run": run, "short": id}) if display.format != "text" else id)
    context.say(f"Run {id} is running in the background. Watch: retinue attach {id}")
    return exit_codes.OK


def _converse(
    context: CommandContext, planned: PlannedRun, terms: requests.RunTerms, display: RunDisplay
) -> int:
    """One prompt after the other from stdin, each continuing where the last one ended."""
    code, run = exit_codes.OK, ""
    with line_to(context, display) as client:
        for text in run_arguments.stream_prompts():
            if run:
                run = client.ask(requests.ResumeRequest(run=run, task=text, terms=terms))["run"]
            else:
                run = start(context, client, planned, text, terms, display)
            code = carry_out(context, client, run, display)
            if code in (exit_codes.INTERRUPTED, exit_codes.TERMINATED):
                return code
    if not run:
        raise click.UsageError("No message on stdin.")
    return code
