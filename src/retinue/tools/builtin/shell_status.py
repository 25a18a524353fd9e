"""The state and output of a command, as text."""

from __future__ import annotations

import asyncio
import contextlib

from retinue.formats.fair_cut import whole_characters
from retinue.tools.base import ToolResult
from retinue.tools.builtin.command_record import CommandEnd, CommandRecord, plain, trim
from retinue.tools.builtin.live_command import LiveCommand

PAGE = 64 << 10


def status_text(record: CommandRecord, end: CommandEnd, first: str, limit: float) -> ToolResult:
    """The outcome of a command for the model."""
    return ToolResult(text=f"{first}{_ending(end, limit)}\n{record.shown()}", error=end.code != 0)


def _ending(end: CommandEnd, limit: float | None = None) -> str:
    after = f"after {end.seconds:.1f} s"
    words = {
        "": f"exit code {end.code} {after}",
        "timeout": f"killed {after}: it took longer than {f'{limit:g} s' if limit else 'allowed'}",
        "stopped": f"stopped {after}",
        "cancelled": f"cancelled {after}",
        "output": f"killed {after}: it wrote too much output",
        "disk": f"killed {after}: the disk was almost full",
        "lost": f"the sandbox failed {after}: the command may have partly run. Check before you "
        "repeat it",
    }
    return "; ".join((words.get(end.why, f"ended {after}"), *end.notes)) + "."


def status_of(record: CommandRecord, *, is_live: bool) -> str:
    if is_live:
        return f"running; {record.total()} bytes so far."
    end = record.end
    return (
        "The command ended with the runtime, which was restarted." if end is None else _ending(end)
    )


def output_page(record: CommandRecord, offset: int) -> str:
    total, n_saved = record.total(), record.kept()
    data = record.read(offset, PAGE)
    if offset + len(data) < n_saved:
        data = whole_characters(data)
    end = offset + len(data)
    if end < n_saved:
        rest = f"continue with offset {end}"
    elif end < total:
        rest = (
            f"the {total - n_saved} bytes after that were not saved; the last "
            f"ones:\n{plain(trim(record.last()))}"
        )
    else:
        rest = "this is all so far"
    return f"{plain(data)}\n[bytes {min(offset, end)} to {end} of {total}; {rest}]"


async def news_of(live: LiveCommand, offset: int, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not live.over.is_set() and live.record.total() <= offset:
                live.news.clear()
                await live.news.wait()
