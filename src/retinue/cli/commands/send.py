"""`retinue send`: sends a message to a run."""

from __future__ import annotations

import click

from retinue.cli import run_arguments
from retinue.cli.context import CommandContext, common, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.listing import RunListing


@click.command("send")
@run_argument()
@click.argument("message", nargs=-1)
@click.option(
    "--steer", is_flag=True, help="Interrupt the current turn instead of waiting for the next."
)
@common
@pass_context
def command(context: CommandContext, run: str, message: tuple[str, ...], steer: bool) -> None:
    """Send a message to a run. The run reads it at its next turn. Use `-` to read it from stdin."""
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    text = run_arguments.prompt(message)
    with line_to(context) as client:
        client.ask(requests.SendRequest(run=line.id, text=text, steer=steer))
    context.say(
        f"Sent to {line.name}. "
        f"{'It interrupts the current turn.' if steer else 'It is read at the next turn.'}"
    )
