"""The work of a single agent as it happens: a line for each tool call, and its text block by block.
A second agent ends that: then there is a tree to look at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rich.text import Text

from retinue.cli.context import CommandContext, now_ms
from retinue.cli.terminal.keyboard import Keys
from retinue.cli.terminal.live import LiveView, with_background
from retinue.cli.terminal.markdown import is_heading, rendered
from retinue.cli.terminal.painter import Painter
from retinue.cli.terminal.terminal_style import TerminalStyle, is_one_terminal, size
from retinue.cli.terminal.watched_run import WatchedRun
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.formats.markdown_blocks import MarkdownBlocks
from retinue.formats.safe_text import one_line, several_lines
from retinue.host.tree_items import MessageAdded, RunAdded, TextArrived, TreeItem
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view.call_summary import describe

TAIL = 8
"""Lines of the block that is being written."""
BROKEN = "The reply broke off here. It is asked for again."


class AnswerStream:
    """Takes what a host tells of a tree, and gives lines for the terminal. `answer` is the last
    text that was shown whole. With `is_raw`, Markdown stays as it was written."""

    def __init__(self, *, is_raw: bool = False) -> None:
        self._is_raw = is_raw
        self._top = ""
        self.is_single = True
        self.answer: str | None = None
        self._attempt = 0
        self._text = ""
        self._blocks = MarkdownBlocks()
        self._calls: dict[str, tuple[str, int]] = {}
        self._kept: list[tuple[str, str]] = []
        self._last = ""

    def add(self, item: TreeItem) -> None:
        match item:
            case RunAdded(spec=spec):
                self.is_single = not self._top
                self._top = self._top or spec.id
            case TextArrived(run=run, attempt=attempt, text=text) if run == self._top:
                self._say(attempt, text)
            case MessageAdded(run=run, message=message) if run == self._top:
                self._message(message)
            case _:
                pass

    def _say(self, attempt: int, text: str) -> None:
        if attempt != self._attempt:
            if self._text:
                self._kept.append(("note", BROKEN))
            self._attempt, self._text, self._blocks = attempt, "", MarkdownBlocks()
        self._text += text
        self._keep(self._blocks.feed(text))

    def _message(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            rest = message.text.removeprefix(self._text)
            is_other = bool(self._text) and rest == message.text
            self._keep(self._blocks.feed("" if is_other else rest) + self._blocks.close())
            self.answer = None if is_other else message.text
            self._text = ""
            for call in message.calls:
                self._calls[call.id] = (describe(call), now_ms())
        elif isinstance(message, ToolMessage) and message.call_id in self._calls:
            what, began = self._calls.pop(message.call_id)
            self._kept.append(("call", _call_line(what, message, now_ms() - began)))

    def _keep(self, blocks: list[str]) -> None:
        self._kept += [("text", block) for block in blocks]

    def take(self, width: int) -> list[Text]:
        """The lines that stay, and were not taken yet. Of a tree there are none."""
        pieces, self._kept = self._kept, []
        lines: list[Text] = []
        for kind, text in pieces if self.is_single else ():
            is_apart = kind == "text" and self._last == "text"
            lines += [Text()] if is_apart else []
            lines += self._lines(kind, text, width)
            self._last = "heading" if kind == "text" and is_heading(text) else kind
        return lines

    def _lines(self, kind: str, text: str, width: int) -> list[Text]:
        if kind == "text":
            return [Text(text)] if self._is_raw else rendered([text], width)
        what, _, facts = text.partition("\t")
        room = max(20, width - len(facts) - 1)
        cut = what if len(what) <= room else what[: room - 1] + "…"
        return [Text(f"{cut:<{room}} {facts}".rstrip(), style="dim")]

    def tail(self, width: int, height: int) -> list[Text]:
        """The block that is being written, as it was written: its last lines."""
        rest = self._blocks.rest if self.is_single else ""
        lines = [
            line[at : at + width]
            for line in several_lines(rest).split("\n")
            for at in range(0, max(1, len(line)), width)
        ]
        return [Text(line) for line in lines[-min(height, TAIL) :]] if rest.strip() else []


def _call_line(what: str, message: ToolMessage, ms: int) -> str:
    """One line about a call that has ended; what came of it is behind a tab."""
    if message.denied:
        return f"! denied: {what}"
    n_lines = len(message.text.splitlines())
    result = one_line(message.text, 60) if n_lines == 1 else f"{n_lines} lines"
    if message.error:
        return f"! {what}\t{one_line(message.text, 40)}"
    return f"· {what}\t{result if len(result) <= 24 else '1 line'}  {view_format.span(ms):>6}"


def watch_answer(
    watching: WatchedRun,
    context: CommandContext,
    how: TerminalStyle,
    *,
    can_answer: bool,
    is_raw: bool = False,
) -> tuple[TreeRecord, str | None]:
    """Show a run until it has ended, and what of its answer needs not be shown again."""
    answer, watching.deltas = AnswerStream(is_raw=is_raw), True
    with Keys() as keys:
        home = context.environ.get("HOME", "")
        how = with_background(how, keys)
        final = AnswerView(watching, how, keys, answer, can_answer=can_answer, home=home).run()
    return final, answer.answer if answer.is_single and is_one_terminal() else None


class AnswerPainter(Painter):
    """Puts what a single agent says above the lines that change."""

    def __init__(self, stream: TextIO, *, color: bool, answer: AnswerStream) -> None:
        super().__init__(stream, color=color)
        self._answer, self._screen = answer, stream

    def paint(self, lines: Sequence[Text], width: int) -> None:
        self._flush(width)
        _, height = size(self._screen)
        tail = self._answer.tail(width - 1, max(1, height - len(lines) - 2))
        super().paint([*tail, *lines], width)

    def leave(self, lines: Sequence[Text], width: int) -> None:
        self._flush(width)
        super().leave([] if self._answer.is_single else lines, width)

    def _flush(self, width: int) -> None:
        if lines := self._answer.take(width - 1):
            self.above(lines, width)


class AnswerView(LiveView):
    """The live view, above which a single agent's work and words stay."""

    def __init__(
        self,
        watching: WatchedRun,
        how: TerminalStyle,
        keys: Keys,
        answer: AnswerStream,
        *,
        can_answer: bool,
        home: str = "",
    ) -> None:
        super().__init__(watching, how, keys, can_answer=can_answer, home=home)
        self._painter = AnswerPainter(sys.stderr, color=how.color, answer=answer)
        before = watching.listen

        def listen(item: TreeItem) -> None:
            answer.add(item)
            if before is not None:
                before(item)

        watching.listen = listen
