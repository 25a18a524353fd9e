"""`retinue replay`: plays back a recorded run."""

from __future__ import annotations

import sys
import time

import click

from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.line_output import print_lines
from retinue.cli.terminal.terminal_style import size
from retinue.cli.terminal.wall_clock import clock
from retinue.formats.safe_text import one_line
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.host.tree_items import MessageAdded, RunChanged, Stepped
from retinue.tree_record import RunRecord
from retinue.view import format as view_format
from retinue.view.format import json_line
from retinue.view.log_lines import LogLines
from retinue.view.states import label
from retinue.view.stream_json import StreamHeader, StreamJsonWriter
from retinue.view.totals import ending, word

LONGEST_SECONDS = 2.0


@click.command("replay")
@run_argument(default="latest")
@click.option(
    "--speed",
    type=float,
    default=0.0,
    metavar="X",
    help="Speed factor; 0 shows everything without waiting.",
)
@click.option("--output-format", type=click.Choice(["text", "stream-json"]), default="text")
@common
@pass_context
def command(context: CommandContext, run: str, speed: float, output_format: str) -> None:
    """Replay a run from its record. No model is called and nothing is done again."""
    with RunListing(context.paths) as listing:
        id = listing.resolve(run).id
    with RecordReader(context.paths) as record:
        final = record.tree(id)
        writer, last = StreamJsonWriter(StreamHeader()), 0
        logs = {row.spec.id: _log(row) for row in final.rows}
        for item in record.history(final):
            if isinstance(item, Stepped):
                if speed > 0 and last:
                    time.sleep(min(LONGEST_SECONDS, max(0, item.entry.at - last) / 1000 / speed))
                last = item.entry.at
                if item.entry.run in logs:
                    logs[item.entry.run].add([item.entry])
            lines = list(writer.lines(item))
            if output_format == "stream-json":
                for line in lines:
                    out(json_line(line))
            elif isinstance(item, MessageAdded):
                print_lines(context, logs[item.run].lines(item.n + 1, item.message))
            elif isinstance(item, RunChanged):
                out(describe(item.row.record))
        if output_format == "stream-json":
            out(json_line(writer.result(final)))


def _log(row: RunRecord) -> LogLines:
    return LogLines(label(row.spec), size(sys.stdout)[0], began=row.spec.created_at, clock=clock)


def describe(row: RunRecord) -> str:
    """One line about the state of a run."""
    request, state, end = row.spec.request, word(row), ending(row)
    label = one_line(view_format.agent_label(request.label or request.agent), 60)
    about = one_line((end.error or end.text) if end is not None else request.task, 80)
    indent = "  " * row.spec.depth
    return (
        f"{indent}{view_format.glyph(state)} {label} {view_format.short_id(row.spec.id)} "
        f"{view_format.state_text(state)}: {about}"
    )
