"""`retinue wait`: waits until runs have ended."""

from __future__ import annotations

from collections.abc import Mapping

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, Duration, common, note, out, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.listing import RunListing
from retinue.view import format as view_format
from retinue.view.format import json_line


@click.command("wait")
@run_argument("runs", nargs=-1)
@click.option(
    "--timeout",
    type=Duration(),
    metavar="TIME",
    help="Give up after this time and exit with code 5.",
)
@click.option("--any", "first", is_flag=True, help="Stop waiting when the first run has ended.")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_context
def command(
    context: CommandContext,
    runs: tuple[str, ...],
    timeout: float | None,
    first: bool,
    as_json: bool,
) -> int:
    """Wait until runs end (by default the latest). Exits with code 0 if all completed, 4 if the
    time is up and a run is waiting for your answer."""
    with RunListing(context.paths) as listing:
        lines = [listing.resolve(run) for run in runs or ("latest",)]
    states = {line.id: line.state for line in lines}
    if any(state not in view_format.ENDS for state in states.values()):
        with line_to(context) as client:
            want = requests.WaitRequest(runs=tuple(states), timeout_seconds=timeout, first=first)
            states = client.ask(want)["states"]
    if as_json:
        out(json_line(states))
    else:
        for line in lines:
            note(f"{line.name}: {view_format.state_text(states[line.id] or 'still open')}")
    ended = [s for s in states.values() if s]
    if len(ended) < len(lines) and not (first and ended) and _asks(context, states):
        return exit_codes.NEEDS_INPUT
    if not ended or (len(ended) < len(lines) and not first):
        return exit_codes.LIMIT
    return exit_codes.OK if all(state == "completed" for state in ended) else exit_codes.FAILED


def _asks(context: CommandContext, states: Mapping[str, str | None]) -> bool:
    """Whether one that is still open waits for a person."""
    with RunListing(context.paths) as listing:
        asking = [
            line for line in listing.open_runs() if line.state == "needs_input" or line.limit_of
        ]
    for line in asking:
        if not states.get(line.id, "-") or not states.get(line.root, "-"):
            note(f"{line.name} is waiting for your answer. Run `retinue approve {line.short}`.")
            return True
    return False
