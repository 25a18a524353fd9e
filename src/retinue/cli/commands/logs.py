"""`retinue logs`: what was said in a run, read from the file, and as it comes."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from retinue.cli.command_help import Flag
from retinue.cli.context import CommandContext, Duration, common, now_ms, out, pass_door
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.line_output import print_lines
from retinue.cli.terminal.terminal_style import size
from retinue.cli.terminal.wall_clock import clock
from retinue.formats.safe_text import json_text
from retinue.host.listing import ListedRun, RunListing
from retinue.host.message_cursor import inherited
from retinue.host.record import RecordReader
from retinue.view import totals as facts
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
    help="With --jsonl: only steps newer than this, e.g. 10m.",
)
@common
@pass_door
def command(
    door: CommandContext,
    run: str,
    follow: bool,
    tools: bool,
    last: int,
    jsonl: bool,
    since: float | None,
) -> None:
    """Show the messages of a run: `retinue logs 7f3a/reviewer -f --tools`. Messages are numbered
    for `fork --at`."""
    with RunListing(door.places) as shelf:
        line = shelf.resolve(run)
    with RecordReader(door.places) as book:
        if jsonl or since is not None:
            first = int((time.time() - since) * 1000) if since is not None else 0
            _steps(book, line.id, follow, last, first)
        else:
            _messages(door, book, line, follow=follow, tools=tools, last=last)


def _steps(book: RecordReader, id: str, follow: bool, last: int, first: int) -> None:
    after, shown = 0, last
    while True:
        ended = _is_over(book, id)
        texts: list[str] = []
        while page := book.entries(after, id, 1_000):
            after = page[-1][0]
            for seq, entry in page:
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
    door: CommandContext,
    book: RecordReader,
    line: ListedRun,
    *,
    follow: bool,
    tools: bool,
    last: int,
) -> None:
    row = book.row(line.id)
    assert row is not None
    models = {model.name: model for model in book.load().models}
    teller = LogLines(
        label(row.spec),
        size(sys.stdout)[0],
        has_tools=tools,
        names=_names(book, line),
        models=models,
        began=row.spec.created_at,
        clock=clock,
    )
    at, after, own = 0, 0, inherited(row)
    while True:
        ended = _is_over(book, line.id)
        row = book.row(line.id)
        assert row is not None
        while page := book.entries(after, line.id, 1_000):
            after = page[-1][0]
            teller.hear((entry for _, entry in page), row.spec.model)
        messages = book.conversation(row, at)
        first = said_last(messages, last) if last and not at else 0
        for n, message in enumerate(messages):
            texts = list(teller.tell(at + n + 1, message, is_inherited=at + n < own))
            if n >= first and texts:
                print_lines(door, texts)
        at += len(messages)
        if ended:
            return
        if not follow:
            rows = stored_rows(book, book.tree(line.id), now_ms(), is_paused=line.is_paused)
            print_lines(door, [*teller.unanswered(), teller.now(rows[0])])
            return
        time.sleep(POLL_SECONDS)


def _names(book: RecordReader, line: ListedRun) -> dict[str, str]:
    """Who may have written to a run: those of its tree."""
    return {row.spec.id: label(row.spec) for row in book.tree(line.root).rows}


def _is_over(book: RecordReader, id: str) -> bool:
    row = book.row(id)
    return row is None or facts.has_ended(row)
