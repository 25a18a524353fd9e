"""`retinue cancel`: ends runs, and prints how each one ended."""

from __future__ import annotations

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.listing import ListedRun, RunListing
from retinue.view import format as view_format


@click.command("cancel")
@run_argument("runs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Cancel all open runs of this project.")
@click.option("--reason", default="", help="Reason to record with the cancelled runs.")
@common
@pass_context
def command(context: CommandContext, runs: tuple[str, ...], everything: bool, reason: str) -> int:
    """Cancel runs and their sub-agents. The id of a group of background tasks cancels the whole
    group. Exits with code 0 only when all of them have stopped."""
    if bool(runs) == everything:
        raise click.UsageError("Name the runs to cancel, or pass --all.")
    with RunListing(context.paths) as listing:
        named = [line for run in runs for line in listing.open_group(run) or [listing.resolve(run)]]
        lines = named or _tops(listing.open_runs())
    if not lines:
        context.say("No open runs.")
        return exit_codes.OK
    with line_to(context) as client:
        states = client.ask(
            requests.CancelRequest(runs=tuple(line.id for line in lines), reason=reason)
        )["states"]
    code = exit_codes.OK
    for line in lines:
        state = states.get(line.id, "")
        note(f"{line.name}: {view_format.state_text(state)}")
        if state not in view_format.ENDS:
            code = exit_codes.FAILED
    return code


def _tops(lines: list[ListedRun]) -> list[ListedRun]:
    live = {line.id for line in lines}
    return [line for line in lines if line.parent not in live]
