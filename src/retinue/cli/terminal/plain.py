"""One line on stderr for each change of state: for pipes, logs, dumb terminals and screen readers.
Nothing moves."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from retinue.cli.context import CommandContext, note, now_ms
from retinue.cli.terminal import limit_answer as raising
from retinue.cli.terminal.terminal_style import is_reader, manners
from retinue.cli.terminal.typed_answer import is_pasted, put
from retinue.cli.terminal.watched_run import Notice, WatchedRun
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.tree_items import RunChanged, Stepped
from retinue.steps import TreeRecord
from retinue.view import format as words
from retinue.view.call_summary import describe
from retinue.view.fan_out_costs import SETTLED_MS
from retinue.view.rows import TreeView
from retinue.view.run_node import OVER
from retinue.view.run_row import RunRow
from retinue.view.updates import conclude, feed

RED, YELLOW, GREEN, DIM = 31, 33, 32, 2
COLORS = {"needs_input": YELLOW, "completed": GREEN, "queued": DIM, "cancelled": DIM}
CALM = ("running", "waiting", "cancelling", "paused")


def watch(watching: WatchedRun, door: CommandContext, *, can_answer: bool = False) -> TreeRecord:
    """Show a run until it has ended."""
    return PlainView(watching, door, can_answer).run()


class PlainView:
    """Tells of each run what it was not told to be before."""

    def __init__(self, watching: WatchedRun, door: CommandContext, can_answer: bool) -> None:
        self._watching, self._door = watching, door
        self._view = TreeView(describe)
        self._told: dict[str, tuple[str, bool]] = {}
        self._is_reader = is_reader(door.environ) or door.is_reader
        self._color = manners(door.environ, sys.stderr, door.color).color and not self._is_reader
        self._can_answer = can_answer and sys.stdin is not None
        self._asked: dict[str, Any] | None = None
        self._is_asking = False

    def run(self) -> TreeRecord:
        while True:
            wait = SETTLED_MS / 1000 if self._view.fan_outs.is_open else None
            thing = self._watching.next(wait, sys.stdin.fileno if self._asked else None)
            self._tell_fan_outs(0 if isinstance(thing, TreeRecord) else SETTLED_MS)
            if isinstance(thing, TreeRecord):
                conclude(self._view, thing)
                for id in self._view.order():
                    self._tell(id)
                return thing
            if isinstance(thing, Notice):
                note(f"retinue: {one_line(thing.text)}")
            elif thing is None:
                if self._asked and _is_readable():
                    self._hear()
            else:
                feed(self._view, thing, now_ms())
                if isinstance(thing, RunChanged):
                    self._tell(thing.row.spec.id)
                    if (about := self._view.nodes[thing.row.spec.id].asks_at) in self._view.nodes:
                        self._tell(about)
                elif isinstance(thing, Stepped) and thing.entry.run in self._view.nodes:
                    self._tell(thing.entry.run)

    def _tell_fan_outs(self, settled_ms: int) -> None:
        for line in self._view.fan_outs.take(now_ms(), settled_ms):
            self._door.say(line if self._is_reader else f"{'':>6} {line}")

    def _tell(self, id: str) -> None:
        node = self._view.nodes[id]
        if node.run is None:
            return
        now = (node.state, bool(node.trouble) and node.state not in OVER)
        before = self._told.get(id)
        if now != before and (before is None or now[0] != before[0] or now[1]):
            self._door.say(self.text(self._view.row(id, now_ms())), styled=self._color)
        self._told[id] = now
        if (
            node.state == "needs_input"
            and self._can_answer
            and self._asked is None
            and not self._is_asking
        ):
            self._is_asking = True
            self._watching.ask(
                requests.QuestionsRequest(run=self._watching.run),
                lambda done: self._ask(done["questions"]),
            )

    def text(self, row: RunRow) -> str:
        """One line about how a run stands."""
        about = one_line(row.now if row.state != "running" or row.turn else row.task, 160)
        word = "done" if row.state == "completed" else row.word
        if self._is_reader:
            return f"{row.label}, {row.short}: {word}. {about}"
        code = COLORS.get(row.state, 0 if row.state in CALM else RED)
        said = (
            f"\x1b[{code}m{row.glyph} {word}\x1b[0m"
            if self._color and code
            else f"{row.glyph} {word}"
        )
        return (
            f"{words.span(row.elapsed_ms):>6} {'  ' * row.depth}{said} {row.label} "
            f"{row.short}: {about}"
        )

    def _ask(self, questions: list[dict[str, Any]]) -> None:
        """Put the oldest open question; the next one comes when this one is over."""
        self._is_asking, self._asked = False, next(iter(questions), None)
        if self._asked is None:
            return
        who, is_permission = one_line(self._asked["label"], 60), self._asked["kind"] == "permission"
        price = words.asked_price(self._asked)
        asks = f"? {who} asks{_about(self._asked)}:"
        note(f"? {who} needs permission for this call{price}:" if is_permission else asks)
        note("    " + self._asked["shown" if is_permission else "text"].replace("\n", "\n    "))
        self._prompt()

    def _prompt(self) -> None:
        assert self._asked is not None
        yes_or_no = "  [y] allow once, [a] always in this run, [n] deny, or a reason to deny: "
        choices = {"permission": yes_or_no}
        if self._asked["kind"] == "budget":
            choices["budget"] = (
                f"  [y] add {raising.suggested(self._asked)}, an amount to add, [n] "
                "finish now, or `end` to cancel: "
            )
        put(choices.get(self._asked["kind"], "  > "))

    def _hear(self) -> None:
        """A line of the person answers the question that was put. A paste answers nothing, and
        neither does Enter."""
        said = sys.stdin.readline()
        if not said:
            self._can_answer, self._asked = False, None
            return
        question, text = self._asked, said.strip()
        assert question is not None
        if is_pasted() or not text:
            self._prompt()
            return
        if question["kind"] == "budget":
            if (want := raising.said(question, text)) is None:
                self._prompt()
            else:
                self._asked = None
                self._watching.client.begin(want)
            return
        self._asked = None
        head, _, reason = text.partition(" ")
        word = head.lower().rstrip(",.:")
        answer = partial(self._watching.answer, question["run"], question=question["id"])
        if question["kind"] != "permission":
            answer(text=text)
        elif not reason and word in ("y", "yes", "a", "always"):
            answer(allow=True, always=word in ("a", "always"))
        else:  # words that are neither yes nor no are never a yes
            answer(allow=False, text=reason if word in ("n", "no") else text)


def _about(q: dict[str, Any]) -> str:
    return " about its limit" if q["kind"] == "budget" else ""


def _is_readable() -> bool:
    import select

    return bool(select.select([sys.stdin], [], [], 0)[0])
