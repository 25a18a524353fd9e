"""The live view of a run on stderr: its tree, and keys to inspect, message and cancel.

It decides nothing: what a key asks for goes to the host, and what is shown is what the host tells.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.text import Text

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, now_ms
from retinue.cli.terminal import plain, request_answer
from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.decision import LATER, OPEN, Decision, typed, yes_or_no
from retinue.cli.terminal.keyboard import Editor, Keys
from retinue.cli.terminal.note_lines import note_lines
from retinue.cli.terminal.pager import show_all
from retinue.cli.terminal.painter import Painter
from retinue.cli.terminal.screen import Focus, Screen
from retinue.cli.terminal.terminal_style import TerminalStyle, background_of, detect_style, size
from retinue.cli.terminal.watched_run import Notice, WatchedRun, WatchLeft
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.tree_record import TreeRecord
from retinue.view.call_summary import describe
from retinue.view.cells import Line, crop, fits
from retinue.view.done_changes import DoneChanges
from retinue.view.merge_lines import conflict_text, conflicts_of
from retinue.view.request_panel import RequestPanel, request_panel
from retinue.view.rows import TreeView
from retinue.view.run_node import may_ask, walk
from retinue.view.transcript import Transcripts
from retinue.view.updates import conclude, feed

FRAME_SECONDS = 0.125
FIRST_SECONDS = 0.4
"""A run that ends before shows no view at all, unless it starts others."""
LOOK_SECONDS = 1.5
"""So often it is looked whether an open request is still about the same thing."""
NEWS = "This has changed since it was asked. This is how it is now."
FAILED = ("failed", "timed_out", "interrupted", "incomplete")
AGAIN = "Your last attempt failed. Try again."


def watch(watching: WatchedRun, context: CommandContext, *, can_answer: bool = False) -> TreeRecord:
    """Show a run until it has ended: in place where the terminal can do that, otherwise line by
    line."""
    how = detect_style(context.environ, sys.stderr, context.color)
    if not how.moves or context.is_reader:
        return plain.watch(watching, context, can_answer=can_answer)
    watching.deltas = True
    with Keys() as keys:
        home = context.environ.get("HOME", "")
        how = with_background(how, keys)
        return LiveView(watching, how, keys, can_answer=can_answer, home=home).run()


def with_background(how: TerminalStyle, keys: Keys) -> TerminalStyle:
    """The same with the background of the terminal, which is asked if the background is not set."""
    if not how.color or how.theme != "unknown":
        return how
    return replace(how, theme=background_of(keys.background()))


class LiveView:
    """One run on one terminal."""

    def __init__(
        self,
        watching: WatchedRun,
        how: TerminalStyle,
        keys: Keys,
        *,
        can_answer: bool,
        home: str = "",
    ) -> None:
        self._watching, self._keys, self._can_answer = watching, keys, can_answer
        self._view = TreeView(describe)
        self._said = Transcripts(describe)
        self._screen = Screen(self._view, Palette(how.theme, how.color))
        self._painter = Painter(sys.stderr, color=how.color)
        self._focus = Focus()
        self._ask: Callable[[str], None] | None = None
        self._editor: Editor | None = None
        self._title = ""
        self._decision: Decision | None = None
        self._question: dict[str, Any] | None = None
        self._looked_at = 0.0
        self._changes = DoneChanges()
        self._home = home
        self._began, self._is_begun = time.monotonic(), False
        self._painted = 0.0

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
                    last = self._screen.last(now_ms(), columns, lines) if self._is_begun else ()
                    self._painter.leave(last, columns)
                    return thing
                if isinstance(thing, Notice):
                    self._focus.cancelled.clear()  # what was asked for may have been refused
                    self._note(thing.text)
                elif thing is not None:
                    feed(self._view, thing, now_ms(), self._said)
                    if (change := self._changes.take(thing)) is not None:
                        self._show_change(change)
                    for merge in conflicts_of(thing):
                        self._note(conflict_text(merge))
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

    def _show_change(self, lines: list[Line]) -> None:
        """The diff once more, when the edit that was allowed here is done."""
        columns, _ = size(sys.stderr)
        palette = self._screen.palette
        self._painter.above([palette.text(crop(line, columns)) for line in lines], columns)
        self._painted = 0.0

    def _paint(self) -> None:
        self._painted = time.monotonic()
        self._is_begun = self._is_begun or (
            len(self._view.nodes) > 1 or self._painted - self._began >= FIRST_SECONDS
        )
        if not self._is_begun or not self._keys.is_foreground():
            return
        columns, lines = size(sys.stderr)
        focus = self._focus
        if self._decision is not None:
            self._check_request(self._decision)
            focus.panel = self._decision.frame(columns - 1, lines - 3, self._painted)
        elif self._ask is not None and self._editor is not None:
            palette = self._screen.palette
            title = palette.colored(fits(self._title, columns - 1), "title")
            focus.prompt = [title, palette.text(typed(self._editor, columns - 1))]
        transcript = self._said.of(focus.opened) if focus.opened else ()
        self._painter.title(self._screen.title())
        self._painter.paint(
            self._screen.frame(focus, now_ms(), columns, lines, transcript), columns
        )
        if self._decision is not None:
            self._decision.drawn(time.monotonic())

    def _note(self, text: str) -> None:
        columns, _ = size(sys.stderr)
        lines = note_lines(f"retinue: {one_line(text)}", max(20, columns - 1))
        self._painter.above([Text(line) for line in lines], columns)
        self._painted = 0.0

    # keys

    def _press(self, key: str) -> None:
        self._focus.said = ""
        if key == "hangup":
            raise WatchLeft(exit_codes.FAILED)
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
        elif key in ("z", "left", "right"):
            self._fold(target, key)
        elif key in ("a", "tab"):
            self._answer(self._who_asks(target))
        elif key in ("m", "M"):
            self._message(target, steer=key == "M")
        elif key == "x":
            self._cancel(target)
        elif key == "r":
            self._retry(target)
        elif key == "R":
            self._retry_with_message(target)

    def _fold(self, id: str, key: str) -> None:
        folded = self._screen.choice.folded
        if key == "left" or (key == "z" and id not in folded):
            folded.add(id)
        else:
            folded.discard(id)

    def _move(self, key: str) -> None:
        order, focus = self._screen.choice.order(), self._focus
        if not order:
            return
        at = -1 if key in ("down", "j") else len(order)
        if focus.selected in order:
            at = order.index(focus.selected)
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
        raise WatchLeft(exit_codes.OK)

    def _label(self, id: str) -> str:
        return fits(self._view.row(id, 0).label, 40)

    def _cancel(self, id: str) -> None:
        node = self._view.nodes[id]
        if node.is_over:
            self._note(f"{self._label(id)} has ended.")
            return
        n = sum(not below.is_over for below in walk(node))
        title = (
            f"Stop {self._label(id)}?"
            if n <= 1
            else f"Stop {n} agents: {self._label(id)} and those below?"
        )

        def go(key: str, text: str) -> None:
            if key == "y" and not node.is_over:
                self._focus.cancelled.add(id)
                self._watching.client.begin(requests.CancelRequest(runs=(id,)))

        self._decide(yes_or_no(title, "Stop; partial results are kept", "stops"), go)

    def _retry(self, id: str, message: str = AGAIN) -> None:
        if self._view.nodes[id].state not in FAILED or id == self._watching.run:
            self._note(f"{self._label(id)} has not failed. Only failed sub-agents can be retried.")
            return

        def go(key: str, text: str) -> None:
            if key == "y":
                self._watching.ask(
                    requests.ResumeRequest(run=id, task=message),
                    lambda reply: self._note(request_answer.retry_text(self._label(id), reply)),
                )

        self._decide(yes_or_no(f"Retry {self._label(id)} as a new run?", "Retry", "retries it"), go)

    def _retry_with_message(self, id: str) -> None:
        def go(text: str) -> None:
            self._retry(id, text.strip() or AGAIN)

        self._open(f" Retry {self._label(id)} with this message  ↵ next  esc cancel", go)

    def _message(self, id: str, *, steer: bool) -> None:
        if self._view.nodes[id].is_over:
            self._note(f"{self._label(id)} has ended and cannot receive messages.")
            return
        how = "interrupts the current turn" if steer else "read at the next turn"

        def go(text: str) -> None:
            if text.strip():
                self._watching.send(id, text.strip(), steer=steer)
                self._focus.said = request_answer.queued_text(self._label(id), is_steering=steer)

        self._open(f" Message to {self._label(id)} ({how})  ↵ send  esc cancel", go)

    def _who_asks(self, target: str) -> str:
        if target in self._view.nodes and self._view.nodes[target].state == "needs_input":
            return target
        return next(
            (id for id in self._view.order() if self._view.nodes[id].state == "needs_input"), ""
        )

    def _answer(self, id: str) -> None:
        if not id:
            self._focus.said = "Nothing needs you."
            return
        if not self._can_answer:
            self._note("Requests cannot be answered here. Use `retinue approve`.")
            return
        self._watching.ask(
            requests.QuestionsRequest(run=id),
            lambda reply: self._open_request(id, reply["questions"]),
        )

    def _open_request(self, id: str, questions: list[dict[str, Any]]) -> None:
        """Open the oldest request of a run; by now another user may have answered it."""
        mine = [q for q in questions if q["run"] == id] or questions
        if not mine:
            self._note(f"{self._label(id)} no longer needs this.")
        elif self._decision is None and self._ask is None:
            self._request(mine[0])

    def _request(self, q: dict[str, Any]) -> None:
        def go(key: str, text: str) -> None:
            want = request_answer.answer(q, key, text)
            if want is None:
                self._note(
                    f"{one_line(text, 40)!r} is not an amount above zero. Nothing was added."
                )
                return
            self._watching.client.begin(want)
            if q["kind"] == "permission" and key in ("y", "A"):
                self._changes.expect(q)
            n_more = self._view.counts["needs_input"] - 1
            self._focus.said = request_answer.answer_report(q, key, text, n_more)

        self._decide(request_panel(q, self._home), go, q)

    # prompts

    def _decide(
        self,
        panel: RequestPanel,
        go: Callable[[str, str], None],
        question: dict[str, Any] | None = None,
    ) -> None:
        self._decision = Decision(panel, go, self._screen.palette)
        self._question, self._looked_at = question, time.monotonic()

    def _close(self) -> None:
        self._decision, self._question, self._focus.panel = None, None, ()

    def _check_request(self, decision: Decision) -> None:
        """Whether a request is still open, and still about the same thing. News clear what was
        marked; one that was decided elsewhere stays until a key is pressed."""
        q = self._question
        node = self._view.nodes.get(q["run"]) if q is not None else None
        if q is None or node is None or decision.over:
            return
        if not may_ask(node, q["id"]):
            decision.over = self._changes.outcome(q, self._label(q["run"]))
        elif time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._watching.ask(
                requests.QuestionsRequest(run=q["run"]), lambda reply: self._renewed(q, reply)
            )

    def _renewed(self, before: dict[str, Any], reply: dict[str, Any]) -> None:
        after = next((q for q in reply["questions"] if q["id"] == before["id"]), None)
        decision = self._decision
        if after is None or decision is None or self._question is not before:
            return
        if after.get("preview") == before.get("preview"):
            return
        self._question = after
        panel = request_panel(after, self._home)
        decision.renew(panel._replace(news=NEWS))

    def _deciding(self, decision: Decision, key: str) -> None:
        choice = decision.press(key, time.monotonic())
        if choice is None:
            return
        if choice == OPEN:
            self._page(decision)
            return
        self._close()
        if choice != LATER:
            decision.go(choice, decision.text)

    def _page(self, decision: Decision) -> None:
        """Everything in a pager; the terminal is its own meanwhile."""
        self._painter.leave((), size(sys.stderr)[0])
        self._keys.give_back()
        try:
            if show_all(decision.panel):
                decision.read_whole()
        finally:
            self._keys.take_over()

    def _open(self, title: str, go: Callable[[str], None]) -> None:
        """Ask the person for a line."""
        self._ask, self._editor, self._title = go, Editor(), title

    def _prompted(self, key: str) -> None:
        go, editor = self._ask, self._editor
        assert go is not None and editor is not None
        if key not in ("enter", "esc", "eof"):
            editor.press(key)
            return
        self._ask, self._editor, self._focus.prompt = None, None, ()
        if key != "esc":
            go(editor.text)
