"""One line on stderr for each change of state: for pipes, logs, dumb terminals and screen readers. Nothing moves."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from retinue.cli import wire, words
from retinue.cli.calls import describe
from retinue.cli.door import Door, note
from retinue.cli.feed import conclude, feed, now_ms
from retinue.cli.manners import is_reader, manners
from retinue.cli.phrases import line
from retinue.cli.view import OVER, Row, View
from retinue.cli.watching import Notice, Watching
from retinue.core.state import Question

RED, YELLOW, GREEN, DIM = 31, 33, 32, 2
COLORS = {"needs_input": YELLOW, "completed": GREEN, "queued": DIM, "cancelled": DIM}
CALM = ("running", "waiting", "cancelling", "paused")


def watch(watching: Watching, door: Door, *, can_answer: bool = False) -> wire.Final:
    """Show a run until it has ended."""
    return Lines(watching, door, can_answer).run()


class Lines:
    """Tells of each run what it was not told to be before."""

    def __init__(self, watching: Watching, door: Door, can_answer: bool) -> None:
        self._watching, self._door = watching, door
        self._view = View(describe)
        self._told: dict[str, tuple[str, bool]] = {}
        self._is_reader = is_reader(door.environ) or door.is_reader
        self._color = manners(door.environ, sys.stderr, door.color).color and not self._is_reader
        self._can_answer = can_answer and sys.stdin is not None
        self._asked: dict[tuple[str, str], Question] = {}

    def run(self) -> wire.Final:
        while True:
            thing = self._watching.next(None, sys.stdin.fileno if self._asked else None)
            if isinstance(thing, wire.Final):
                conclude(self._view, thing)
                for id in self._view.order():
                    self._tell(id)
                return thing
            if isinstance(thing, Notice):
                note(f"retinue: {line(thing.text)}")
            elif thing is None:
                if self._asked and _is_readable():
                    self._hear()
            else:
                feed(self._view, thing)
                if isinstance(thing, wire.Stood):
                    self._tell(thing.row.spec.id)
                elif isinstance(thing, wire.Stepped) and thing.entry.run in self._view.nodes:
                    self._tell(thing.entry.run)

    def _tell(self, id: str) -> None:
        node = self._view.nodes[id]
        if node.run is None:
            return
        now = (node.state, bool(node.trouble) and node.state not in OVER)
        before = self._told.get(id)
        if now != before and (before is None or now[0] != before[0] or now[1]):
            self._door.say(self.text(self._view.row(id, now_ms())))
        self._told[id] = now
        if node.state == "needs_input" and self._can_answer:
            self._ask(id, tuple(node.questions.values()))

    def text(self, row: Row) -> str:
        """One line about how a run stands."""
        about = line(row.now if row.state != "running" or row.turn else row.task, 160)
        word = "done" if row.state == "completed" else row.word
        if self._is_reader:
            return f"{row.label}, {row.short}: {word}. {about}"
        code = COLORS.get(row.state, 0 if row.state in CALM else RED)
        said = f"\x1b[{code}m{row.glyph} {word}\x1b[0m" if self._color and code else f"{row.glyph} {word}"
        return f"{words.span(row.elapsed_ms):>6} {'  ' * row.depth}{said} {row.label} {row.short}: {about}"

    def _ask(self, id: str, questions: Sequence[Question]) -> None:
        for question in questions:
            if (id, question.call_id) in self._asked:
                continue
            choices = " [y]es, [a]lways in this run, [n]o: " if question.kind == "permission" else " "
            sys.stderr.write(f"? {line(question.text, 1_000)}{choices}")
            sys.stderr.flush()
            self._asked[(id, question.call_id)] = question

    def _hear(self) -> None:
        """A line of the person answers the oldest open question."""
        said = sys.stdin.readline()
        if not said:
            self._can_answer = False
            self._asked.clear()
            return
        (run, _), question = key, question = next(iter(self._asked.items()))
        del self._asked[key]
        text = said.strip()
        if question.kind != "permission":
            self._watching.answer(run, question=question.id, text=text)
            return
        allow = text.lower() in ("y", "yes", "a", "always")
        reason = "" if allow or text.lower() in ("n", "no", "") else text
        always = text.lower() in ("a", "always")
        self._watching.answer(run, question=question.id, allow=allow, always=always, text=reason)


def _is_readable() -> bool:
    import select

    return bool(select.select([sys.stdin], [], [], 0)[0])
