"""Delivers the result of a run: the answer on stdout and in files, the last lines on stderr, and
the exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, note, out
from retinue.cli.terminal.terminal_style import detect_style, is_reader, size
from retinue.formats.safe_text import one_line
from retinue.host import answer_file
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import summary, totals
from retinue.view.format import json_line
from retinue.view.spoken import spoken_end
from retinue.view.stream_json import StreamHeader, StreamJsonWriter


@dataclass
class RunDisplay:
    """How a run is shown, and where its answer goes. `files` are real paths, from before the
    run."""

    format: str = "text"
    deltas: bool = False
    is_headless: bool = False
    is_background: bool = False
    can_answer: bool = False
    waits: bool = False
    is_strict: bool = False
    fail_on: str = ""
    files: tuple[str, ...] = ()
    is_memory: bool = False
    is_raw: bool = False
    next_lines: tuple[str, ...] = ()
    """What to do next, after the last line: for who comes here the first time."""
    shown: str | None = None
    """The answer that has been shown as it came, and is not printed again."""
    head: StreamHeader = field(default_factory=StreamHeader)


def hand_over(
    context: CommandContext,
    final: TreeRecord,
    display: RunDisplay,
    writer: StreamJsonWriter,
    code: int | None = None,
) -> int:
    """The answer on stdout and in files, the last lines on stderr, and the exit code. `code` is
    that of a signal."""
    end = totals.ending(final.rows[0])
    text = end.text if end is not None else ""
    result = writer.result(final)
    if display.format == "text":
        is_text = end is None or end.data is None or bool(text)
        answer = text if is_text or end is None else json_line(totals.plain(end.data))
        if answer and answer != display.shown:
            print_answer(context, answer, is_raw=display.is_raw)
    else:
        out(json_line(result))
    for path in display.files:
        answer_file.write(path, text)
    code = _code(final, display, result) if code is None else code
    if lacking := totals.missing(final.rows[0]):
        context.say(f"! {one_line(lacking)}")
    _say_end(context, final, display, result, code)
    return code


def _say_end(
    context: CommandContext,
    final: TreeRecord,
    display: RunDisplay,
    result: dict[str, Any],
    code: int,
) -> None:
    """The last lines. What went wrong is said even to those who want quiet."""
    first, *more = summary.end_lines(final, code, result["merges"])
    if context.is_reader or is_reader(context.environ):
        first = spoken_end(first)
    if code and display.format == "text":
        note(first)
    else:
        context.say(first)
    labels = {
        row.spec.id: view_format.agent_label(row.spec.request.label or row.spec.request.agent)
        for row in final.rows
    }
    denials = summary.denial_lines(result["permission_denials"], labels)
    for line in (*more, *(f"  {line}" for line in denials)):
        context.say(line)
    for line in display.next_lines:
        context.say(f"  {line}")


def _code(final: TreeRecord, display: RunDisplay, result: dict[str, Any]) -> int:
    top = final.rows[0]
    end = totals.ending(top)
    state, stop = (end.state, end.stop) if end is not None else (totals.word(top), "")
    code = exit_codes.of_outcome(
        state,
        stop,
        strict=display.is_strict,
        failed_children=totals.failed(final),
        denials=len(result["permission_denials"]),
    )
    if code == exit_codes.OK and display.fail_on and found_severity(result, display.fail_on):
        return exit_codes.FAILED
    return code


def print_answer(context: CommandContext, answer: str, *, is_raw: bool = False) -> None:
    """An answer on stdout: rendered on a terminal, as it was written for a pipe or a file."""
    how = detect_style(context.environ, sys.stdout, context.color)
    if is_raw or not how.moves or context.is_reader:
        out(answer)
        return
    from retinue.cli.terminal.markdown import rendered
    from retinue.cli.terminal.painter import Painter
    from retinue.formats.markdown_blocks import MarkdownBlocks

    blocks = MarkdownBlocks()
    lines = rendered(blocks.feed(answer) + blocks.close(), size(sys.stdout)[0] - 1)
    painter = Painter(sys.stdout, color=how.color)
    out("\n".join(painter.render(line) for line in lines), styled=True)


SEVERITIES = ("info", "low", "medium", "high", "critical")


def found_severity(result: dict[str, Any], least: str) -> bool:
    """Whether a review reports something at least this severe, or did not get to its end and so
    vouches for nothing."""
    bad = SEVERITIES[SEVERITIES.index(least) :]
    data = result.get("structured_output")
    if isinstance(data, dict) and isinstance(data.get("findings"), list):
        return any(isinstance(f, dict) and f.get("severity") in bad for f in data["findings"])
    lines = [line.strip().lower() for line in str(result.get("result", "")).splitlines()]
    return "complete: no" in lines or any(f"severity: {word}" in lines for word in bad)
