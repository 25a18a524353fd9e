"""The live view of a run on stderr: its tree as it moves, and keys to look into it, talk to it and
end it.

It decides nothing: what a key asks for goes to the host, and what is shown is what the host tells.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.text import Text

from retinue.cli import exit_codes as exits
from retinue.cli.context import CommandContext, now_ms
from retinue.cli.terminal import limit_answer as raising
from retinue.cli.terminal import plain
from retinue.cli.terminal.decision import LATER, PERMISSION, Decision, typed, yes_or_no
from retinue.cli.terminal.keyboard import Editor, Keys
from retinue.cli.terminal.painter import Painter
from retinue.cli.terminal.screen import Focus, Screen, fits, wrap
from retinue.cli.terminal.terminal_style import TerminalStyle, manners, size
from retinue.cli.terminal.watched_run import Notice, WatchedRun, WatchLeft
from retinue.formats.safe_text import one_line, several_lines
from retinue.host import requests
from retinue.steps import TreeRecord
from retinue.view import format as words
from retinue.view.call_summary import describe
from retinue.view.rows import TreeView
from retinue.view.run_node import OVER, is_asked
from retinue.view.transcript import Transcripts
from retinue.view.updates import conclude, feed

FRAME_SECONDS = 0.125
FAILED = ("failed", "timed_out", "interrupted", "incomplete")
AGAIN = "Your last attempt failed. Try again."


def watch(watching: WatchedRun, door: CommandContext, *, can_answer: bool = False) -> TreeRecord:
    """Show a run until it has ended: in place where the terminal can do that, otherwise line by
    line."""
    how = manners(door.environ, sys.stderr, door.color)
    if not how.moves or door.is_reader:
        return plain.watch(watching, door, can_answer=can_answer)
    watching.deltas = True
    with Keys() as keys:
        return LiveView(watching, how, keys, can_answer=can_answer).run()


class LiveView:
    """One run on one terminal."""

    def __init__(
        self, watching: WatchedRun, how: TerminalStyle, keys: Keys, *, can_answer: bool
    ) -> None:
        self._watching, self._keys, self._can_answer = watching, keys, can_answer
        self._view = TreeView(describe)
        self._said = Transcripts(describe)
        self._screen = Screen(self._view)
        self._painter = Painter(sys.stderr, color=how.color)
        self._focus = Focus()
        self._ask: Callable[[str], None] | None = None
        self._editor: Editor | None = None
        self._title = Text()
        self._decision: Decision | None = None
        self._about = ("", "")
        self._painted = 0.0
        self._n_asking = 0

    def run(self) -> TreeRecord:
        try:
            while True:
                wait = max(0.0, self._painted + FRAME_SECONDS - time.monotonic())
                thing = self._watching.next(
                    wait, self._keys.fileno if self._keys.is_there else None
                )
                if isinstance(thing, TreeRecord):
                    conclude(self._view, thing)
                    columns, lines = size(sys.stderr)
                    self._painter.leave(self._screen.last(now_ms(), columns, lines), columns)
                    return thing
                if isinstance(thing, Notice):
                    self._focus.cancelled.clear()  # what was asked for may have been refused
                    self._note(thing.text)
                elif thing is not None:
                    feed(self._view, thing, now_ms(), self._said)
                if thing is None or time.monotonic() - self._painted >= FRAME_SECONDS:
                    self._attend()
        except BaseException:
            self._painter.leave((), size(sys.stderr)[0])
            raise

    def _attend(self) -> None:
        """What the person did since the last time, then a frame if one is due."""
        keys = self._keys
        if keys.is_stopped:
            self._painter.leave((), size(sys.stderr)[0])
            keys.stop()
        if keys.is_back:
            keys.is_back = False
            keys.take_over()
        for line in self._view.fan_outs.take(now_ms()):
            self._note(line)
        pressed = keys.read()
        for key in pressed:
            self._press(key)
        if pressed or time.monotonic() - self._painted >= FRAME_SECONDS:
            self._paint()

    def _paint(self) -> None:
        self._painted = time.monotonic()
        if not self._keys.is_foreground():
            return
        columns, lines = size(sys.stderr)
        focus = self._focus
        if self._decision is not None:
            self._look_again()
        if self._decision is not None:
            focus.prompt = self._decision.frame(
                columns - 1, lines - (3 if lines > 15 else 1), self._painted
            )
        elif self._ask is not None and self._editor is not None:
            title = Text.assemble((fits(self._title.plain, columns - 1), self._title.style))
            focus.prompt = [title, typed(self._editor, columns - 1)]
        said = self._said.of(focus.opened) if focus.opened else ()
        self._painter.paint(self._screen.frame(focus, now_ms(), columns, lines, said), columns)
        if self._decision is not None:
            self._decision.drawn(time.monotonic())
        self._ring()

    def _ring(self) -> None:
        """The terminal's bell, when somebody begins to wait for the person."""
        n = self._view.counts["needs_input"]
        if n > self._n_asking and self._can_answer:
            sys.stderr.write("\a")
            sys.stderr.flush()
        self._n_asking = n

    def _note(self, text: str) -> None:
        columns, _ = size(sys.stderr)
        self._painter.above(
            [Text(f"retinue: {piece}") for piece in wrap(one_line(text), max(20, columns - 12))],
            columns,
        )
        self._painted = 0.0

    # keys

    def _press(self, key: str) -> None:
        if key == "hangup":
            raise WatchLeft(exits.FAILED)
        if key == "redraw":
            self._painter.clear(size(sys.stderr)[0])
        elif self._decision is not None:
            self._deciding(self._decision, key)
        elif self._ask is not None:
            self._prompted(key)
        elif key in ("up", "down", "k", "j", "home", "end"):
            self._move(key)
        elif key in ("pgup", "pgdn"):
            self._focus.scroll += 5 if key == "pgup" else -5
        elif key in ("b", "q"):
            self._leave()
        else:
            self._act(key)

    def _act(self, key: str) -> None:
        focus, nodes = self._focus, self._view.nodes
        target = focus.selected if focus.selected in nodes else self._watching.run
        if key == "esc":
            focus.selected = focus.opened = ""
            focus.is_help = False
        elif key == "?":
            focus.is_help = not focus.is_help
        elif target not in nodes:
            return
        elif key == "enter" and nodes[target].state == "needs_input" and self._can_answer:
            self._answer(target)
        elif key == "enter":
            focus.opened, focus.scroll = ("" if focus.opened == target else target), 0
        elif key == "a":
            self._answer(self._who_asks(target))
        elif key in ("m", "M"):
            self._message(target, steer=key == "M")
        elif key == "x":
            self._cancel(target)
        elif key == "r":
            self._retry(target)

    def _move(self, key: str) -> None:
        order, focus = self._view.order(), self._focus
        if not order:
            return
        at = (
            order.index(focus.selected)
            if focus.selected in order
            else (-1 if key in ("down", "j") else len(order))
        )
        step = {
            "up": at - 1,
            "k": at - 1,
            "down": at + 1,
            "j": at + 1,
            "home": 0,
            "end": len(order) - 1,
        }[key]
        focus.selected = order[max(0, min(len(order) - 1, step))]
        if focus.opened:
            focus.opened, focus.scroll = focus.selected, 0

    def _leave(self) -> None:
        if not self._watching.client.welcome.store:
            self._note("This run is not saved and stops when you quit. Press x to cancel it.")
            return
        raise WatchLeft(exits.OK)

    def _label(self, id: str) -> str:
        return fits(self._view.row(id, 0).label, 40)

    def _cancel(self, id: str) -> None:
        node = self._view.nodes[id]
        if node.state in OVER:
            self._note(f"{self._label(id)} has ended.")
            return
        left = len(node.children) - node.n_over
        below = f" and {left} sub-agents" if left else ""

        def go(key: str) -> None:
            if key == "y" and node.state not in OVER:
                self._focus.cancelled.add(id)
                self._watching.client.begin(
                    requests.CancelRequest(runs=(id,), reason="cancelled by the user with x")
                )

        self._decide(
            Decision(
                f"Cancel {self._label(id)}{below}?", "", yes_or_no("Cancel", "to cancel it"), go
            )
        )

    def _retry(self, id: str) -> None:
        if self._view.nodes[id].state not in FAILED or id == self._watching.run:
            self._note(f"{self._label(id)} has not failed. Only failed sub-agents can be retried.")
            return

        def go(key: str) -> None:
            if key == "y":
                self._watching.client.begin(requests.ResumeRequest(run=id, task=AGAIN))
                self._note(f"Retrying {self._label(id)} as a new run. See `retinue ps`.")

        title = f"Retry {self._label(id)} as a new run?"
        self._decide(Decision(title, "", yes_or_no("Retry", "to retry it"), go))

    def _message(self, id: str, *, steer: bool) -> None:
        if self._view.nodes[id].state in OVER:
            self._note(f"{self._label(id)} has ended and cannot receive messages.")
            return
        how = "interrupts the current turn" if steer else "read at the next turn"

        def go(text: str) -> None:
            if text.strip():
                self._watching.send(id, text.strip(), steer=steer)

        self._open(f" Message to {self._label(id)} ({how})  ↵ send  esc cancel", go, "cyan")

    def _who_asks(self, target: str) -> str:
        if target in self._view.nodes and self._view.nodes[target].state == "needs_input":
            return target
        return next(
            (id for id in self._view.order() if self._view.nodes[id].state == "needs_input"), ""
        )

    def _answer(self, id: str) -> None:
        if not id:
            self._note("No questions are waiting.")
            return
        if not self._can_answer:
            self._note("Questions cannot be answered here. Use `retinue approve`.")
            return
        self._watching.ask(
            requests.QuestionsRequest(run=id), lambda done: self._asked(id, done["questions"])
        )

    def _asked(self, id: str, questions: list[dict[str, Any]]) -> None:
        """Open the oldest question of a run; by now somebody else may have answered it."""
        mine = [q for q in questions if q["run"] == id] or questions
        if not mine:
            self._note(f"{self._label(id)} no longer has an open question.")
        elif self._decision is None and self._ask is None:
            self._decide(self._question(mine[0]), mine[0]["run"], mine[0]["id"])

    def _question(self, q: dict[str, Any]) -> Decision:
        run, id, who = q["run"], q["id"], one_line(q["label"], 40)
        if q["kind"] == "budget":
            title = f"{who} {words.short_id(run)} reached its limit:"
            return Decision(title, q["text"], raising.choices(q), partial(self._raise, q))
        if q["kind"] != "permission":
            go = partial(self._watching.answer, run, question=id)
            return Decision(
                f"{who} asks:", several_lines(q["text"]), (), lambda text: go(text=text)
            )

        def decided(key: str) -> None:
            if key == "t":
                deny = partial(self._watching.answer, run, question=id, allow=False)
                self._open(" Reason?  ↵ send  esc cancel", lambda text: deny(text=text), "yellow")
            else:
                self._watching.answer(run, question=id, allow=key in ("y", "A"), always=key == "A")

        title = f"{who} {words.short_id(run)} needs permission for this call{words.asked_price(q)}:"
        return Decision(title, q["shown"], PERMISSION, decided)

    def _raise(self, q: dict[str, Any], key: str) -> None:
        if key != "t":
            self._watching.client.begin(raising.answer(q, key))
            return

        def go(text: str) -> None:
            if (want := raising.added(q, text)) is None:
                self._note(
                    f"{one_line(text, 40)!r} is not an amount above zero. Nothing was added."
                )
            else:
                self._watching.client.begin(want)

        self._open(f" How much more ({q['limit']})?  ↵ add  esc cancel", go, "yellow")

    # prompts

    def _decide(self, decision: Decision, run: str = "", question: str = "") -> None:
        self._decision, self._about = decision, (run, question)

    def _look_again(self) -> None:
        """Close a question that has been answered elsewhere."""
        run, question = self._about
        node = self._view.nodes.get(run)
        if node is not None and not is_asked(node, question):
            self._decision, self._about, self._focus.prompt = None, ("", ""), ()
            self._note(f"{self._label(run)} no longer asks this. Nothing was decided here.")

    def _deciding(self, decision: Decision, key: str) -> None:
        made = decision.press(key, time.monotonic())
        if made is None:
            return
        self._decision, self._about, self._focus.prompt = None, ("", ""), ()
        if made != LATER:
            decision.go(made)

    def _open(self, title: str, go: Callable[[str], None], style: str) -> None:
        """Ask the person for a line."""
        self._ask, self._editor, self._title = go, Editor(), Text(title, style=style)

    def _prompted(self, key: str) -> None:
        go, editor = self._ask, self._editor
        assert go is not None and editor is not None
        if key not in ("enter", "esc", "eof"):
            editor.press(key)
            return
        self._ask, self._editor, self._focus.prompt = None, None, ()
        if key != "esc":
            go(editor.text)
