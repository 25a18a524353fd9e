"""`retinue logs`: the messages or steps of a run, read from the store, also while it works."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec

from retinue.cli.context import CommandContext, Duration, common, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.formats.safe_text import json_text, one_line, several_lines
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.view import totals
from retinue.view.format import short_id

POLL_SECONDS = 0.2


@click.command("logs")
@run_argument(default="latest")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@click.option("--calls", is_flag=True, help="Include the arguments and results of tool calls.")
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
    calls: bool,
    last: int,
    jsonl: bool,
    since: float | None,
) -> None:
    """Show the messages of a run: `retinue logs 7f3a/reviewer -f --calls`. Messages are numbered
    for `fork --at`."""
    with RunListing(context.places) as listing:
        id = listing.resolve(run).id
    first = int((time.time() - since) * 1000) if since is not None else 0
    with RecordReader(context.places) as record:
        if jsonl:
            _steps(record, id, follow, last, first)
        else:
            _messages(record, id, follow, calls, last, first)


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
    record: RecordReader, id: str, follow: bool, calls: bool, last: int, first: int
) -> None:
    at, shown = 0, last
    while True:
        ended = _is_over(record, id)
        row = record.row(id)
        assert row is not None
        messages = record.conversation(row, at)
        numbered = list(enumerate(messages, at + 1))
        if first:
            numbered, first = numbered[record.n_before(row, first) :], 0
        for n, message in numbered[-shown:] if shown else numbered:
            for line in message_lines(n, message, calls):
                out(line)
        at, shown = at + len(messages), 0
        if not follow or ended:
            return
        time.sleep(POLL_SECONDS)


def _is_over(record: RecordReader, id: str) -> bool:
    row = record.row(id)
    return row is None or totals.has_ended(row)


def message_lines(n: int, message: Message, calls: bool) -> Iterator[str]:
    """A message for people."""
    if isinstance(message, AssistantMessage):
        if message.text:
            yield f"{n:>4} assistant: {_indented(message.text)}"
        for call in message.calls:
            yield f"{n:>4} calls {one_line(call.name)}" + (
                f" {_indented(call.args)}" if calls else ""
            )
    elif isinstance(message, ToolMessage):
        state = "failed" if message.error else "done"
        if message.denied:
            state = "denied"
        text = _indented(message.text) if calls else one_line(message.text, 100)
        yield f"{n:>4} {one_line(message.name) or 'tool'} {state}: {text}"
    else:
        who: str = "user" if message.kind == "task" else message.kind
        if message.sender:
            who = short_id(message.sender)
        yield f"{n:>4} {who}: {_indented(message.text)}"


def _indented(text: str) -> str:
    """The lines of a message after its number, indented: none looks like the start of another
    message."""
    return several_lines(text).replace("\n", "\n       ")
