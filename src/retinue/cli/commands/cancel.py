"""`retinue cancel`: end runs, and say how they really ended."""

from __future__ import annotations

import click

from retinue.cli import exit_codes as exits
from retinue.cli.context import CommandContext, common, note, pass_door
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.listing import ListedRun, RunListing
from retinue.view import format as words


@click.command("cancel")
@run_argument("runs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Cancel all open runs of this project.")
@click.option("--reason", default="", help="Reason to record with the cancelled runs.")
@common
@pass_door
def command(door: CommandContext, runs: tuple[str, ...], everything: bool, reason: str) -> int:
    """Cancel runs and their sub-agents. The id of a group of background tasks cancels the whole
    group. Exits with code 0 only when all of them have stopped."""
    if bool(runs) == everything:
        raise click.UsageError("Name the runs to cancel, or pass --all.")
    with RunListing(door.places) as shelf:
        named = [line for run in runs for line in shelf.open_group(run) or [shelf.resolve(run)]]
        lines = named or _tops(shelf.open_runs())
    if not lines:
        door.say("No open runs.")
        return exits.OK
    with line_to(door) as client:
        states = client.ask(
            requests.CancelRequest(runs=tuple(line.id for line in lines), reason=reason)
        )["states"]
    code = exits.OK
    for line in lines:
        state = states.get(line.id, "")
        note(f"{line.name}: {words.state_text(state)}")
        if state not in words.ENDS:
            code = exits.FAILED
    return code


def _tops(lines: list[ListedRun]) -> list[ListedRun]:
    live = {line.id for line in lines}
    return [line for line in lines if line.parent not in live]
