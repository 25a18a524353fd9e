"""Requests on the full screen of `top`: a list, oldest first, and a panel for one of them. Keys
count by the time at which they were pressed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.events import Key, Paste
from textual.screen import ModalScreen
from textual.widgets import Static

from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.decision import LATER, OPEN, Decision
from retinue.cli.terminal.pager import show_all
from retinue.cli.tui.project_runs import ProjectRuns
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.view import format as view_format
from retinue.view.call_wants import question_wants
from retinue.view.cells import Cells, Line, cut, fit_words, right, size
from retinue.view.request_panel import RequestPanel, request_panel
from retinue.view.run_node import may_ask

LOOK_SECONDS = 1.5
MOST_LISTED = 5
NEWS = "This has changed since it was asked. This is how it is now."
Go = Callable[[str, str], None]


class RequestScreen(ModalScreen[None]):
    """One panel; of several requests also their list. Nothing is decided by opening it."""

    DEFAULT_CSS = "RequestScreen { background: ansi_default; }"
    NAMES: ClassVar[dict[str, str]] = {
        "escape": "esc",
        "pageup": "pgup",
        "pagedown": "pgdn",
        "ctrl+u": "clear",
        "ctrl+w": "word",
    }

    def __init__(self, panel: RequestPanel, go: Go, palette: Palette) -> None:
        super().__init__()
        self.palette, self.decision = palette, Decision(panel, go, palette)
        self._questions: list[dict[str, Any]] = []
        self._at, self._looked_at = 0, 0.0
        self._decide: Callable[[dict[str, Any], str, str], None] | None = None
        self._runs: ProjectRuns | None = None
        self._home = ""

    @classmethod
    def of(
        cls,
        questions: Sequence[dict[str, Any]],
        at: int,
        decide: Callable[[dict[str, Any], str, str], None],
        palette: Palette,
        runs: ProjectRuns,
        home: str,
    ) -> RequestScreen:
        """Requests of a project, of which the one at a place is open."""
        q = questions[at]
        screen = cls(request_panel(q, home), lambda key, text: decide(q, key, text), palette)
        screen._questions, screen._at, screen._decide = list(questions), at, decide
        screen._runs, screen._home, screen._looked_at = runs, home, time.monotonic()
        return screen

    @property
    def question(self) -> dict[str, Any] | None:
        return self._questions[self._at] if self._questions else None

    def compose(self) -> ComposeResult:
        yield Static(id="panel")

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(0.1, self._draw)

    def _draw(self) -> None:
        self._check_request()
        width, height = self.app.size
        head = self._list(width) if len(self._questions) > 1 else []
        frame = self.decision.frame(width - 1, height - 1 - len(head), time.monotonic())
        lines = [self.palette.text(line) for line in head]
        text = Text("\n", no_wrap=True).join([*lines, *frame])
        self.query_one("#panel", Static).update(text)
        self.call_after_refresh(lambda: self.decision.drawn(time.monotonic()))

    def _list(self, width: int) -> list[Line]:
        """Which runs need a person, and what for."""
        hint = "tab next  esc back to the list"
        lead = f" Needs you: {len(self._questions)} requests, oldest first"
        out: list[Line] = [
            [Cells(lead, "title"), Cells(right(hint, max(1, width - 1 - len(lead))), "quiet")]
        ]
        first = max(0, self._at - MOST_LISTED + 1)
        for n, q in enumerate(self._questions[first : first + MOST_LISTED], first):
            label = one_line(view_format.agent_label(q["label"]), 30)
            name = f"{view_format.short_id(q['root'])}/{label}"
            line = [
                Cells(f" {'▸' if n == self._at else ' '} {n + 1}  ", "title"),
                Cells("◆ needs you", "you"),
                Cells(f"  {cut(name, 22)} "),
            ]
            line.append(Cells(fit_words(question_wants(q), max(0, width - 1 - size(line)))))
            out.append(line)
        return [*out, []]

    def _check_request(self) -> None:
        """Whether a request is still open, and still about the same thing."""
        q, runs = self.question, self._runs
        node = runs.view.nodes.get(q["run"]) if q is not None and runs is not None else None
        if q is None or runs is None or node is None or self.decision.over:
            return
        if not may_ask(node, q["id"]):
            self.decision.over = "✓ done: decided elsewhere. Nothing was decided here."
        elif time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            runs.ask(requests.QuestionsRequest(run=q["run"]), self._renewed)

    def _renewed(self, reply: Mapping[str, Any]) -> None:
        before = self.question
        if before is None:
            return
        after = next((q for q in reply["questions"] if q["id"] == before["id"]), None)
        if after is not None and after.get("preview") != before.get("preview"):
            self._questions[self._at] = after
            self.decision.renew(request_panel(after, self._home)._replace(news=NEWS))

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "tab" and len(self._questions) > 1:
            self._next()
            return
        name = (
            self.NAMES.get(event.key)
            or (event.character if event.is_printable else event.key)
            or event.key
        )
        key_press = self.decision.press(name, event.time)
        if key_press is None:
            self._draw()
        elif key_press == OPEN:
            self._page()
        else:
            self.dismiss(None)
            if key_press != LATER:
                self.decision.go(key_press, self.decision.text)

    def _next(self) -> None:
        """The next request; nothing of the one before is marked."""
        assert self._decide is not None
        decide = self._decide
        self._at = (self._at + 1) % len(self._questions)
        q = self._questions[self._at]
        panel = request_panel(q, self._home)
        self.decision = Decision(panel, lambda key, text: decide(q, key, text), self.palette)
        self._draw()

    def _page(self) -> None:
        with self.app.suspend():
            if show_all(self.decision.panel):
                self.decision.read_whole()

    def on_paste(self, event: Paste) -> None:
        """Into an answer in words; it decides nothing."""
        event.stop()
        self.decision.press(f"paste:{event.text}", event.time)
