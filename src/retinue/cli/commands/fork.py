"""`retinue fork`: starts a run from another run's conversation."""

from __future__ import annotations

import click

from retinue.cli import exit_codes, run_arguments
from retinue.cli.command_help import Flag
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.foreground_run import carry_out, display_of, line_to
from retinue.cli.run_argument import run_argument
from retinue.host import requests
from retinue.host.listing import ListedRun, RunListing
from retinue.host.record import RecordReader
from retinue.view import format as view_format


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
@pass_context
def command(
    context: CommandContext,
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
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    if at is not None:
        _check_message(context, line, at)
    text = run_arguments.prompt(prompt)
    display = display_of(output_format)
    with line_to(context) as client:
        terms = requests.RunTerms(label=name, questions="ask" if display.can_answer else "")
        id = client.ask(requests.ForkRequest(run=line.id, task=text, at=at, terms=terms))["run"]
        context.say(f"Run {view_format.short_id(id)} is a fork of {line.short}.")
        if background:
            out(view_format.short_id(id))
            return exit_codes.OK
        return carry_out(context, client, id, display)


def _check_message(context: CommandContext, line: ListedRun, at: int) -> None:
    with RecordReader(context.paths) as record:
        row = record.row(line.id)
    n = row.run.length if row is not None else 0
    if at > n:
        have = "1 message" if n == 1 else f"{n} messages"
        raise click.UsageError(
            f"--at {at}: run {line.short} has {have}. `retinue logs {line.short}` numbers them."
        )
