"""One line on stderr for each change of state: for pipes, logs, dumb terminals and screen readers.
Nothing moves."""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import partial
from typing import Any

from retinue.cli.context import CommandContext, note, now_ms
from retinue.cli.terminal import limit_answer
from retinue.cli.terminal.terminal_style import is_reader
from retinue.cli.terminal.typed_answer import is_pasted, put
from retinue.cli.terminal.watched_run import Notice, WatchedRun
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.tree_items import (
    CallsHeld,
    MessageAdded,
    RunAdded,
    RunChanged,
    Stepped,
    TreeItem,
)
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import spoken
from retinue.view.call_summary import describe
from retinue.view.fan_out_costs import SETTLED_MS
from retinue.view.merge_lines import conflict_text, conflicts_of
from retinue.view.request_panel import panel_text, request_panel
from retinue.view.rows import TreeView
from retinue.view.run_row import RunRow
from retinue.view.state_marks import mark
from retinue.view.updates import conclude, feed

_NO_ONE = re.compile(
    r"this call needs permission \((.+?)(?:, which covers [^)]*)?\) and no one is available"
)
STILL_MS = 60_000
"""After so long without a line, one says who is still open."""


def watch(watching: WatchedRun, context: CommandContext, *, can_answer: bool = False) -> TreeRecord:
    """Show a run until it has ended."""
    return PlainView(watching, context, can_answer).run()


class PlainView:
    """Prints each change of each run."""

    def __init__(self, watching: WatchedRun, context: CommandContext, can_answer: bool) -> None:
        self._watching, self._context = watching, context
        self._view = TreeView(describe)
        self._told: dict[str, tuple[object, ...]] = {}
        self._calls: dict[str, str] = {}
        self._waits: dict[str, tuple[str, int]] = {}
        self._is_reader = is_reader(context.environ) or context.is_reader
        self._can_answer = can_answer and sys.stdin is not None
        self._asked: dict[str, Any] | None = None
        self._is_asking = False
        self._later: set[str] = set()
        """Questions that a person wants to answer later, elsewhere."""
        self._said_at = now_ms()

    def run(self) -> TreeRecord:
        while True:
            wait = SETTLED_MS / 1000 if self._view.fan_outs.is_open else STILL_MS / 1000
            thing = self._watching.next(wait, sys.stdin.fileno if self._asked else None)
            self._print_fan_outs(0 if isinstance(thing, TreeRecord) else SETTLED_MS)
            if isinstance(thing, TreeRecord):
                conclude(self._view, thing)
                for id in self._view.order():
                    self._print_run(id)
                return thing
            if isinstance(thing, Notice):
                note(f"retinue: {one_line(thing.text)}")
            elif thing is not None:
                feed(self._view, thing, now_ms())
                self._print_news(thing)
            elif self._asked and _is_readable():
                self._read_line()
            if now_ms() - self._said_at >= STILL_MS:
                self._print_open_runs()

    def _print_news(self, thing: TreeItem) -> None:
        """What is new with an item."""
        nodes = self._view.nodes
        for merge in conflicts_of(thing):
            text = conflict_text(merge)
            self._say(f"! {text}", text)
        if isinstance(thing, RunAdded) and thing.spec.id == self._watching.run:
            task = one_line(thing.spec.request.task, 100)
            self._say(f"run {view_format.short_id(thing.spec.id)}: {task}")
        elif isinstance(thing, RunChanged):
            self._print_run(thing.row.spec.id)
            if (about := nodes[thing.row.spec.id].asks_at) in nodes:
                self._print_run(about)
        elif isinstance(thing, CallsHeld):
            for id in self._view.order():
                self._print_run(id)
        elif isinstance(thing, Stepped) and thing.entry.run in nodes:
            self._print_run(thing.entry.run)
        elif isinstance(thing, MessageAdded):
            self._print_message(thing.run, thing.message)

    def _print_message(self, run: str, message: Message) -> None:
        """Calls of a single agent, and every call that was denied."""
        if isinstance(message, AssistantMessage):
            self._calls |= {call.id: describe(call) for call in message.calls}
        if not isinstance(message, ToolMessage) or run not in self._view.nodes:
            return
        what = self._calls.pop(message.call_id, one_line(message.name, 60))
        row = self._view.row(run, now_ms())
        if message.denied:
            why = _why_denied(message.text)
            self._say(f"! {row.label}: denied: {what} ({why})", f"{row.label} was denied: {what}.")
        elif len(self._view.nodes) == 1 and not self._is_reader:
            bad = f": {one_line(message.text, 100)}" if message.error else ""
            self._say(f"· {what}{bad}")

    def _print_fan_outs(self, settled_ms: int) -> None:
        for line in self._view.fan_outs.take(now_ms(), settled_ms):
            self._say(line)

    def _print_open_runs(self) -> None:
        """Which runs are still open, if nothing was printed for a while."""
        rows = [row for row in self._view.rows(now_ms()) if not row.is_over]
        counts = Counter(row.word for row in rows)
        open_ones = ", ".join(f"{n} {word}" for word, n in counts.most_common())
        total = sum(top.tree_nanos for top in self._view.tops) / 1e9
        is_bound = any(top.tree_guess[1] for top in self._view.tops)
        spent = f" · {view_format.money(total, is_bound=is_bound)}" if total else ""
        self._say(f"still open: {open_ones}{spent}", f"Still open: {open_ones}.")

    def _print_run(self, id: str) -> None:
        node = self._view.nodes[id]
        if node.run is None:
            return
        row, before = self._view.row(id, now_ms()), self._told.get(id)
        key: tuple[object, ...] = ("open",)
        if row.is_over or row.needs_you or row.state == "cancelling":
            key = (row.state,)
        elif row.wait is not None:
            key = ("wait", *row.wait[:3], row.wait.tries)
        self._back(row, node.tries)
        if key != before and self._is_news(row, key, before):
            self._say(self.line(row), self.sentence(row))
        self._told[id] = key
        if row.needs_you and self._can_answer and self._asked is None and not self._is_asking:
            self._is_asking = True
            self._watching.ask(
                requests.QuestionsRequest(run=self._watching.run),
                lambda reply: self._ask(reply["questions"]),
            )

    def _is_news(self, row: RunRow, key: object, before: object) -> bool:
        """Whether a change deserves a line. The end of the run itself is printed with its
        answer."""
        is_top = row.id == self._watching.run
        return not is_top and before is None if key == ("open",) else not (is_top and row.is_over)

    def _back(self, row: RunRow, tries: int) -> None:
        """A provider that answers again, after a problem was printed."""
        if row.wait is not None:
            self._waits.setdefault(row.id, (row.wait.provider or "the provider", now_ms()))
        elif not tries and row.id in self._waits:
            name, since = self._waits.pop(row.id)
            if not row.is_over or row.state == "completed":
                again = f"{name} answers again after {view_format.span_text(now_ms() - since)}."
                self._say(f"{row.label}: {again}", again)

    def line(self, row: RunRow) -> str:
        """One line about the state of a run."""
        about = one_line(row.now, 160)
        if row.wait is not None:
            about = row.wait.sentence(now_ms())
        if row.is_over:
            span = view_format.span_text(row.elapsed_ms)
            cost = "" if row.model.startswith("offline/") else f", {row.cost}"
            when = f"in {span}{cost}" if row.state == "completed" else f"after {span}"
            return f"{row.glyph} {row.label}: {mark(row.state).word} {when}: {about}"
        word = mark(row.state if row.wait is None else row.wait.state).word
        if row.needs_you or row.wait is not None:
            return f"{row.glyph} {row.label}: {word}: {about}"
        return f"{row.glyph} {row.label}: {word}"

    def sentence(self, row: RunRow) -> str:
        """The same as a complete sentence; "" if it need not be read aloud."""
        about = one_line(row.now, 160)
        if row.wait is not None:
            return f"{row.label} waits: {row.wait.sentence(now_ms())}."
        if row.is_over:
            how = "is done" if row.state == "completed" else mark(row.mark).word
            end = "" if about.endswith((".", "!", "?")) else "."
            return f"{row.label} {how} after {spoken.spoken_time(row.elapsed_ms)}: {about}{end}"
        if not row.needs_you or self._can_answer:  # else the request says it
            return ""
        return f"{row.label} needs you: {about}."

    def _say(self, line: str, sentence: str = "") -> None:
        self._said_at = now_ms()
        if not self._is_reader:
            tops = self._view.tops
            began = tops[0].spec.created_at if tops else now_ms()
            self._context.say(f"{_clock(now_ms() - began)} {line}")
        elif sentence:
            self._context.say(sentence)

    def _ask(self, questions: list[dict[str, Any]]) -> None:
        """Put the oldest open question; the next one comes when this one is over."""
        new = (q for q in questions if q["id"] not in self._later)
        self._is_asking, self._asked = False, next(new, None)
        if self._asked is None:
            return
        panel = request_panel(self._asked, self._context.environ.get("HOME", ""))
        texts = spoken.spoken_request(panel) if self._is_reader else panel_text(panel)
        note("\n".join(texts))
        self._prompt()

    def _print_request(self, question: dict[str, Any]) -> None:
        """All of a request, and the prompt again."""
        panel = request_panel(question, self._context.environ.get("HOME", ""))
        note("\n".join(spoken.spoken_panel(panel)))
        self._prompt()

    def _prompt(self) -> None:
        assert self._asked is not None
        yes_or_no = "  [y] allow once, [a] always in this run, [n] deny, or a reason to deny: "
        choices = {"permission": spoken.CHOOSE if self._is_reader else yes_or_no}
        if self._asked["kind"] == "budget":
            choices["budget"] = (
                f"  [y] add {limit_answer.suggested(self._asked)}, an amount to add, [n] "
                "finish now, or `end` to cancel: "
            )
        put(choices.get(self._asked["kind"], "  > "))

    def _read_line(self) -> None:
        """A line of the person answers the question that was put. A paste answers nothing, and
        neither does Enter."""
        line = sys.stdin.readline()
        if not line:
            self._can_answer, self._asked = False, None
            return
        question, text = self._asked, line.strip()
        assert question is not None
        if is_pasted() or not text:
            self._prompt()
            return
        if question["kind"] == "budget":
            if (want := limit_answer.typed_answer(question, text)) is None:
                self._prompt()
            else:
                self._asked = None
                self._watching.client.begin(want)
            return
        head, _, reason = text.partition(" ")
        word = head.lower().rstrip(",.:")
        if question["kind"] == "permission" and text.lower() == "show":
            self._print_request(question)
            return
        self._asked = None
        if text.lower() == "later":
            self._later.add(question["id"])
            note("Nothing is decided. Answer it with: retinue approve")
            return
        answer = partial(self._watching.answer, question["run"], question=question["id"])
        if question["kind"] != "permission":
            answer(text=text)
        elif not reason and word in ("y", "yes", "a", "always"):
            answer(allow=True, always=word in ("a", "always"))
        else:  # words that are neither yes nor no are never a yes
            answer(allow=False, text=reason if word in ("n", "no") else text)


def _clock(ms: float) -> str:
    """Time since the start: `04:12`, `1:04:12`."""
    seconds = max(0, int(ms / 1000))
    hours, rest = divmod(seconds, 3_600)
    minutes = f"{rest // 60:02}:{rest % 60:02}"
    return f"{hours}:{minutes}" if hours else minutes


def _is_readable() -> bool:
    import select

    return bool(select.select([sys.stdin], [], [], 0)[0])


def _why_denied(text: str) -> str:
    """`headless, mode 'manual' of main`, where no user could be asked; else the reason as it
    is."""
    reason = text.removeprefix("Denied: ")
    if match := _NO_ONE.match(reason):
        return f"headless, {one_line(match[1], 80)}"
    return one_line(reason, 100).rstrip(".")
