"""`retinue attach`: watches an open run from any terminal."""

from __future__ import annotations

import sys

import click

from retinue.cli.context import CommandContext, common, option, pass_context, theme_option
from retinue.cli.foreground_run import carry_out, head_of, line_to
from retinue.cli.handover import RunDisplay
from retinue.cli.run_argument import run_argument
from retinue.host.listing import RunListing


@click.command("attach")
@run_argument(default="latest")
@click.option("--output-format", type=click.Choice(["text", "json", "stream-json"]), default="text")
@click.option("--include-partial-messages", is_flag=True)
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@theme_option
@option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@option(
    "--screen-reader",
    compat=("--ax-screen-reader",),
    is_flag=True,
    help="Plain output for screen readers.",
)
@common
@pass_context
def command(
    context: CommandContext,
    run: str,
    output_format: str,
    include_partial_messages: bool,
    quiet: bool,
    color: str,
    screen_reader: bool,
) -> int:
    """Watch a run until it ends, and print its answer. Ctrl-C detaches; the run continues."""
    context.is_quiet, context.color, context.is_reader = quiet, color, screen_reader
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    can_answer = output_format == "text" and sys.stdin.isatty() and sys.stderr.isatty()
    display = RunDisplay(
        format=output_format,
        deltas=include_partial_messages,
        is_headless=output_format != "text",
        can_answer=can_answer,
        head=head_of((), (), "", deltas=include_partial_messages),
    )
    with line_to(context) as client:
        return carry_out(context, client, line.id, display, is_ours=False)
