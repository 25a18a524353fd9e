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
from retinue.cli.terminal.terminal_style import size
from retinue.cli.terminal.wall_clock import clock
from retinue.formats.safe_text import json_text
from retinue.host.listing import ListedRun, RunListing
from retinue.host.message_cursor import inherited
from retinue.host.record import RecordReader
from retinue.view import totals
from retinue.view.log_lines import LogLines, said_last
from retinue.view.states import label
from retinue.view.stored_tree import stored_rows

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
    with RunListing(context.places) as listing:
        line = listing.resolve(run)
    first = now_ms() - int(since * 1000) if since is not None else 0
    with RecordReader(context.places) as record:
        if jsonl:
            _steps(record, line.id, follow, last, first)
        else:
            _messages(context, record, line, follow=follow, tools=tools, last=last, since=first)


def _steps(record: RecordReader, id: str, follow: bool, last: int, first: int) -> None:
    after, shown = 0, last
    while True:
        ended = _is_over(record, id)
        texts: list[str] = []
        for seq, entry in record.steps(id, after):
            after = seq
            if entry.at >= first:
                raw = msgspec.json.encode({"seq": seq, **msgspec.to_builtins(entry)}).decode()
                texts.append(json_text(raw))
        for text in texts[-shown:] if shown else texts:
            out(text)
        shown = 0
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
    row = record.row(line.id)
    assert row is not None
    models = {model.name: model for model in record.load().models}
    log_lines = LogLines(
        label(row.spec),
        size(sys.stdout)[0],
        has_tools=tools,
        names=_names(record, line),
        models=models,
        began=row.spec.created_at,
        clock=clock,
    )
    at, after, own = 0, 0, inherited(row)
    while True:
        ended = _is_over(record, line.id)
        row = record.row(line.id)
        assert row is not None
        while page := record.entries(after, line.id, 1_000):
            after = page[-1][0]
            log_lines.hear((entry for _, entry in page), row.spec.model)
        messages = record.conversation(row, at)
        first = said_last(messages, last) if last and not at else 0
        if since and not at:
            first = max(first, record.n_before(row, since))
        for n, message in enumerate(messages):
            texts = list(log_lines.tell(at + n + 1, message, is_inherited=at + n < own))
            if n >= first and texts:
                print_lines(context, texts)
        at += len(messages)
        if ended:
            return
        if not follow:
            rows = stored_rows(record, record.tree(line.id), now_ms(), is_paused=line.is_paused)
            print_lines(context, [*log_lines.unanswered(), log_lines.now(rows[0])])
            return
        time.sleep(POLL_SECONDS)


def _names(record: RecordReader, line: ListedRun) -> dict[str, str]:
    """Who may have written to a run: those of its tree."""
    return {row.spec.id: label(row.spec) for row in record.tree(line.root).rows}


def _is_over(record: RecordReader, id: str) -> bool:
    row = record.row(id)
    return row is None or totals.has_ended(row)
