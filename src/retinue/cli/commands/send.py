"""`retinue send`: a message for a run."""

from __future__ import annotations

import click

from retinue.cli import run_arguments as asking
from retinue.cli.context import CommandContext, common, pass_door
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
@pass_door
def command(door: CommandContext, run: str, message: tuple[str, ...], steer: bool) -> None:
    """Send a message to a run. The run reads it at its next turn. Use `-` to read it from stdin."""
    with RunListing(door.places) as shelf:
        line = shelf.resolve(run)
    text = asking.prompt(message)
    with line_to(door) as client:
        client.ask(requests.SendRequest(run=line.id, text=text, steer=steer))
    door.say(
        f"Sent to {line.name}. "
        f"{'It interrupts the current turn.' if steer else 'It is read at the next turn.'}"
    )
