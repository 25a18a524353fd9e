"""`retinue logs`: the messages or steps of a run, read from the store, also while it works."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from retinue.cli.command_help import Flag
from retinue.cli.context import CommandContext, Duration, common, now_ms, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.line_output import print_lines
from retinue.cli.terminal.log_reader import LogReader
from retinue.cli.terminal.terminal_style import size
from retinue.formats.safe_text import json_text
from retinue.host.listing import ListedRun, RunListing
from retinue.host.record import RecordReader
from retinue.view import totals

POLL_SECONDS = 0.2


@click.command("logs")
@run_argument(default="latest")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@click.option(
    "--tools",
    cls=Flag,
    compat=("--calls",),
    is_flag=True,
    help="Include the arguments and results of tool calls.",
)
@click.option(
    "-n", "--last", type=int, default=0, metavar="N", help="Show only the last N messages."
)
@click.option("--jsonl", is_flag=True, help="Print the recorded steps as JSON, one per line.")
@click.option(
    "--since",
    type=Duration(),
    metavar="TIME",
    help="Show only messages (with --jsonl: steps) newer than this, e.g. 10m.",
)
@common
@pass_context
def command(
    context: CommandContext,
    run: str,
    follow: bool,
    tools: bool,
    last: int,
    jsonl: bool,
    since: float | None,
) -> None:
    """Show the messages of a run: `retinue logs 7f3a/reviewer -f --tools`. Messages are numbered
    for `fork --at`."""
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    first = now_ms() - int(since * 1000) if since is not None else 0
    with RecordReader(context.paths) as record:
        if jsonl:
            _steps(record, line.id, follow, last, first)
        else:
            _messages(context, record, line, follow=follow, tools=tools, last=last, since=first)


def _steps(record: RecordReader, id: str, follow: bool, last: int, first: int) -> None:
    after, n_shown = 0, last
    while True:
        ended = _is_over(record, id)
        texts: list[str] = []
        for seq, entry in record.steps(id, after):
            after = seq
            if entry.at >= first:
                raw = msgspec.json.encode({"seq": seq, **msgspec.to_builtins(entry)}).decode()
                texts.append(json_text(raw))
        for text in texts[-n_shown:] if n_shown else texts:
            out(text)
        n_shown = 0
        if not follow or ended:
            return
        time.sleep(POLL_SECONDS)


def _messages(
    context: CommandContext,
    record: RecordReader,
    line: ListedRun,
    *,
    follow: bool,
    tools: bool,
    last: int,
    since: int,
) -> None:
    log = LogReader(
        record, line, size(sys.stdout)[0], has_tools=tools, is_wrapped=sys.stdout.isatty()
    )
    lines = log.more(last, since)
    while True:
        if lines:
            print_lines(context, lines)
        if log.is_over:
            return
        if not follow:
            print_lines(context, log.now())
            return
        time.sleep(POLL_SECONDS)
        lines = log.more()


def _is_over(record: RecordReader, id: str) -> bool:
    row = record.row(id)
    return row is None or totals.has_ended(row)
