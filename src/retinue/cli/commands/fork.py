"""`retinue fork`: a run from the conversation of another."""

from __future__ import annotations

import sys

import click

from retinue.cli import exit_codes as exits
from retinue.cli import run_arguments as asking
from retinue.cli.command_help import Flag
from retinue.cli.context import CommandContext, common, out, pass_door
from retinue.cli.foreground_run import carry_out, head_of, line_to
from retinue.cli.handover import RunDisplay
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.listing import ListedRun, RunListing
from retinue.host.record import RecordReader
from retinue.view import format as words


@click.command("fork")
@run_argument()
@click.argument("prompt", nargs=-1)
@click.option(
    "--at",
    type=click.IntRange(min=1),
    metavar="N",
    help="Fork after message N, as numbered by `retinue logs`.",
)
@click.option("--name", cls=Flag, compat=("-n",), default="", help="Name for the new run.")
@click.option(
    "--background",
    cls=Flag,
    compat=("--bg",),
    is_flag=True,
    help="Run in the background and print the run's id.",
)
@click.option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text")
@common
@pass_door
def command(
    door: CommandContext,
    run: str,
    prompt: tuple[str, ...],
    at: int | None,
    name: str,
    background: bool,
    output_format: str,
) -> int:
    """Start a new run from another run's conversation. The original is not changed.

    The new run starts after the last message, or after message N; no tool call may be open
    there."""
    with RunListing(door.places) as shelf:
        line = shelf.resolve(run)
    if at is not None:
        _check_message(door, line, at)
    text = asking.prompt(prompt)
    wish = RunDisplay(
        format=output_format,
        is_headless=output_format != "text",
        can_answer=output_format == "text" and sys.stdin.isatty() and sys.stderr.isatty(),
        head=head_of((), (), ""),
    )
    with line_to(door) as client:
        terms = requests.RunTerms(label=name, questions="ask" if wish.can_answer else "")
        id = client.ask(requests.ForkRequest(run=line.id, task=text, at=at, terms=terms))["run"]
        door.say(f"Run {words.short_id(id)} is a fork of {line.short}.")
        if background:
            out(words.short_id(id))
            return exits.OK
        return carry_out(door, client, id, wish)


def _check_message(door: CommandContext, line: ListedRun, at: int) -> None:
    with RecordReader(door.places) as book:
        row = book.row(line.id)
    n = row.run.length if row is not None else 0
    if at > n:
        have = "1 message" if n == 1 else f"{n} messages"
        raise click.UsageError(
            f"--at {at}: run {line.short} has {have}. `retinue logs {line.short}` numbers them."
        )
