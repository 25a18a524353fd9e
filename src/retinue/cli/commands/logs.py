"""`retinue logs`: what was said in a run, read from the file, and as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec

from retinue.cli.context import CommandContext, Duration, common, out, pass_door
from retinue.cli.run_argument import run_argument
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.formats.safe_text import json_text, one_line, several_lines
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.view import format as words
from retinue.view import totals as facts

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
    help="With --jsonl: only steps newer than this, e.g. 10m.",
)
@common
@pass_door
def command(
    door: CommandContext,
    run: str,
    follow: bool,
    calls: bool,
    last: int,
    jsonl: bool,
    since: float | None,
) -> None:
    """Show the messages of a run: `retinue logs 7f3a/reviewer -f --calls`. Messages are numbered
    for `fork --at`."""
    with RunListing(door.places) as shelf:
        id = shelf.resolve(run).id
    with RecordReader(door.places) as book:
        if jsonl or since is not None:
            first = int((time.time() - since) * 1000) if since is not None else 0
            _steps(book, id, follow, last, first)
        else:
            _messages(book, id, follow, calls, last)


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


def _messages(book: RecordReader, id: str, follow: bool, calls: bool, last: int) -> None:
    at, shown = 0, last
    while True:
        ended = _is_over(book, id)
        row = book.row(id)
        assert row is not None
        messages = book.conversation(row, at)
        numbered = list(enumerate(messages, at + 1))
        for n, message in numbered[-shown:] if shown else numbered:
            for line in tell(n, message, calls):
                out(line)
        at, shown = at + len(messages), 0
        if not follow or ended:
            return
        time.sleep(POLL_SECONDS)


def _is_over(book: RecordReader, id: str) -> bool:
    row = book.row(id)
    return row is None or facts.has_ended(row)


def tell(n: int, message: Message, calls: bool) -> Iterator[str]:
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
            who = words.short_id(message.sender)
        yield f"{n:>4} {who}: {_indented(message.text)}"


def _indented(text: str) -> str:
    """The lines of a message behind its number: none of them can be taken for the beginning of
    another message."""
    return several_lines(text).replace("\n", "\n       ")
