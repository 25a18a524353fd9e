"""The lines of `retinue logs`: what was said in a run, when, and what it took. Numbers are those of
`fork --at`: a result of a tool has one when it is the last of its turn, because before that calls
are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from rich.cells import cell_len

from retinue.core.events import Decided, LogEntry, MailReceived, Replied, TextReturned
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.values import ModelInfo
from retinue.formats.safe_text import one_line, several_lines
from retinue.view import format as view_format
from retinue.view.call_summary import describe
from retinue.view.call_wants import wants
from retinue.view.cells import Cells, Line, fits, right, size, wrap
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS

WHO = 12
INDENT = 14
CHANGES = ("change", "create", "write", "delete")


class LogLines:
    """Puts messages into lines. `names` are those of the runs that may write to this one, `models`
    what calls cost, and the first task came when the run `began`;
    `clock` gives the time of day."""

    def __init__(
        self,
        name: str,
        width: int,
        *,
        has_tools: bool = False,
        names: Mapping[str, str] | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        began: int = 0,
        clock: Callable[[int], str] = str,
        is_wrapped: bool = False,
    ) -> None:
        self._name, self._width, self._has_tools = name, width, has_tools
        self._names, self._models = names or {}, models or {}
        self._replies: list[tuple[int, str]] = []
        self._turn = 0
        self._done: dict[str, tuple[int, int]] = {}
        self._began: dict[int, int] = {}
        self._mail: dict[str, int] = {}
        self._open: dict[str, ToolCall] = {}
        self._next_at, self._clock, self._is_wrapped = began, clock, is_wrapped
        self.last_at = 0

    def add(self, entries: Iterable[LogEntry], model: str = "") -> None:
        """What the record says of messages that are shown later."""
        for entry in entries:
            event = entry.event
            self.last_at = max(self.last_at, entry.at)
            if entry.stale:
                continue
            if isinstance(event, Replied):
                self._began = dict.fromkeys(range(len(event.reply.message.calls)), entry.at)
                self._replies.append((entry.at, self._took(event, model)))
            elif isinstance(event, Decided):
                self._began[event.index] = entry.at
            elif isinstance(event, TextReturned):
                self._done[event.call_id] = (entry.at, self._began.get(event.index, entry.at))
            elif isinstance(event, MailReceived):
                self._mail[event.mail.text] = entry.at

    def _took(self, event: Replied, model: str) -> str:
        """`10.4k in, 9.0k from cache · $0.04`, as far as the provider has reported it."""
        if model.startswith("offline/"):
            return "offline"
        usage, info = event.reply.usage, self._models.get(model)
        if not usage.tokens:
            return ""
        is_bound = bool(usage.estimated)
        count = view_format.tokens(usage.input + usage.estimated, is_bound=is_bound)
        parts = [f"{count} in"]
        if usage.cache_read:
            parts = [f"{count} in, {view_format.count(usage.cache_read)} from cache"]
        if info is not None and info.priced:
            nanos = usage.nanos or info.cost_of(usage)
            parts.append(
                view_format.money(nanos / 1e9, is_bound=is_bound or bool(usage.nanos_estimated))
            )
        return " · ".join(parts)

    def lines(self, n: int, message: Message, *, is_inherited: bool = False) -> Iterator[Line]:
        """The lines of message number `n`. What a run has from another has no times of its own."""
        for line in self._lines_of(n, message, is_inherited=is_inherited):
            yield from self._fitted(line)

    def _fitted(self, line: Line) -> Iterator[Line]:
        """What is too long continues below, behind the times."""
        *lead, last = line
        if not self._is_wrapped or size(line) < self._width or self._width < 2 * INDENT:
            yield line
            return
        first = wrap(last.text, max(INDENT, self._width - 1 - size(lead)))[0]
        yield [*lead, last._replace(text=first)]
        rest = last.text[len(first) :].lstrip()
        for part in wrap(rest, self._width - 1 - INDENT) if rest else ():
            yield [Cells(" " * INDENT), last._replace(text=part)]

    def _lines_of(self, n: int, message: Message, *, is_inherited: bool) -> Iterator[Line]:
        if isinstance(message, AssistantMessage):
            yield from self._reply_lines(n, message, is_inherited)
        elif isinstance(message, ToolMessage):
            yield from self._returned(n, message)
        else:
            at = self._mail.get(message.text, 0)
            if not is_inherited and message.kind == "task":
                at, self._next_at = at or self._next_at, 0
            first, *rest = several_lines(message.text).split("\n")
            yield self._head(n, at, self._sender(message), first)
            yield from self._body(rest)

    def _sender(self, message: UserMessage) -> str:
        if message.sender:
            return self._names.get(message.sender) or view_format.short_id(message.sender)
        return "retinue" if message.kind in ("note", "nudge", "summary") else "you"

    def _reply_lines(self, n: int, message: AssistantMessage, is_inherited: bool) -> Iterator[Line]:
        self._open = {call.id: call for call in message.calls}
        at, span = 0, ""
        if not is_inherited:
            self._turn += 1
            if self._replies:
                at, span = self._replies.pop(0)
            span = " · ".join(filter(None, (f"turn {self._turn}", span)))
        yield self._head(n, at, self._name, span)
        yield from self._body(several_lines(message.text).split("\n") if message.text else ())

    def _returned(self, n: int, message: ToolMessage) -> Iterator[Line]:
        call = self._open.pop(message.call_id, None)
        at, began = self._done.get(message.call_id, (0, 0))
        text = about(call) if call is not None else ""
        span = view_format.span(at - began) if at else ""
        name = one_line(message.name or (call.name if call is not None else "tool"), 40)
        yield self._head(n if not self._open else 0, at, name, text, span)
        if self._has_tools and call is not None:
            yield from self._body(several_lines(call.arguments_json).split("\n"), "quiet")
        if message.denied or message.error:
            sign, word = ("! ", "denied") if message.denied else ("✗ ", "failed")
            lines = several_lines(message.text).split("\n")
            first = f"{word}: {lines[0]}"
            yield [Cells(" " * INDENT), Cells(sign, "fail", is_glyph=True), Cells(first)]
            yield from self._body(lines[1:] if self._has_tools else ())
        elif self._has_tools:
            yield from self._body(several_lines(message.text).split("\n"))

    def unanswered(self) -> Iterator[Line]:
        """The calls of the last reply that have no result yet, with their arguments."""
        for call in self._open.values() if self._has_tools else ():
            yield self._head(0, self.last_at, call.name, about(call))
            yield from self._body(several_lines(call.arguments_json).split("\n"), "quiet")

    def now(self, row: RunRow) -> Line:
        """What an open run does."""
        mark = MARKS[row.mark]
        lead: Line = [
            Cells(f"{'':>2}  {self._time(self.last_at)}  ", "quiet"),
            Cells(mark.glyph, mark.role, is_glyph=True),
            Cells(" "),
            Cells(mark.word, mark.role),
            Cells(" " * max(0, WHO - 2 - cell_len(mark.word)) + "  "),
        ]
        return self._full(lead, row.now, view_format.span(row.idle_ms) if row.idle_ms else "")

    def _head(self, n: int, at: int, who: str, text: str, span: str = "") -> Line:
        number = str(n) if n else ""
        lead: Line = [
            Cells(f"{number:>2}  {self._time(at)}  ", "quiet"),
            Cells(f"{fits(one_line(who, 60), WHO)}"),
        ]
        pad = " " * max(0, WHO - cell_len(lead[1].text))
        return self._full([*lead, Cells(f"{pad}  ")], text, span)

    def _time(self, at: int) -> str:
        return self._clock(at) if at else " " * 8

    def _full(self, lead: Line, text: str, span: str) -> Line:
        """With a time at the right; only what has one is cut."""
        if not span:
            return [*lead, Cells(text)]
        room = max(8, self._width - 1 - size(lead) - len(span) - 1)
        visible = fits(text, room)
        pad = right(span, max(len(span), self._width - 1 - size(lead) - cell_len(visible)))
        return [*lead, Cells(visible), Cells(pad, "quiet")]

    def _body(self, lines: Iterable[str], role: str = "") -> Iterator[Line]:
        """Below a head, so that no line can be taken for the beginning of another message."""
        for line in lines:
            yield [Cells(" " * INDENT), Cells(line, role)]


def about(call: ToolCall) -> str:
    """A call without the name of its tool: a path with what changes in it, or what it is about."""
    verb, _, rest = wants(call).partition(" ")
    if verb in CHANGES and rest:
        return rest
    return describe(call).removeprefix(f"{call.name} ")


def index_of_last(messages: list[Message], n: int) -> int:
    """The index of the first of the last `n` messages that were said; results of tools come with
    the reply that called them."""
    for i in range(len(messages) - 1, -1, -1):
        n -= not isinstance(messages[i], ToolMessage)
        if not n:
            return i
    return 0
