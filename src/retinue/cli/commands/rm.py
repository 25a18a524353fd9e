"""`retinue rm`: deletes runs that have ended."""

from __future__ import annotations

import time

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, Duration, common, note, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.errors import NotFound, Refused
from retinue.host import requests
from retinue.host.listing import RunListing
from retinue.view import format as view_format


@click.command("rm")
@run_argument("runs", nargs=-1)
@click.option("--ended", is_flag=True, help="Delete all runs that have ended.")
@click.option(
    "--older-than",
    type=Duration(),
    metavar="TIME",
    help="With --ended: only runs that ended longer ago than this, e.g. 7d.",
)
@common
@pass_context
def command(
    context: CommandContext, runs: tuple[str, ...], ended: bool, older_than: float | None
) -> int:
    """Delete runs that have ended, with their sub-agents and conversations."""
    if bool(runs) == ended:
        raise click.UsageError("Name the runs to delete, or pass --ended.")
    with RunListing(context.paths) as listing:
        lines = [listing.resolve(run) for run in runs] if runs else listing.roots(limit=1_000_000)
    if ended:
        last = (time.time() - (older_than or 0)) * 1000
        lines = [line for line in lines if line.ended_at is not None and line.ended_at <= last]
    for line in lines:
        if line.ended_at is None:
            raise Refused(
                "open",
                f"Run {line.short} is still open. Cancel it first: retinue cancel {line.short}",
            )
        if line.parent:
            raise Refused(
                "root",
                f"{line.short} is a sub-agent of run {view_format.short_id(line.root)}. Delete "
                f"{view_format.short_id(line.root)} instead.",
            )
    if not lines:
        context.say("Nothing to delete.")
        return exit_codes.OK
    with line_to(context) as client:
        for line in lines:
            try:
                client.ask(requests.ForgetRequest(run=line.id))
                note(f"deleted {line.name}")
            except NotFound:  # it shared the conversation of one that was deleted before it
                note(f"Deleted {line.name} and its conversation.")
    return exit_codes.OK
