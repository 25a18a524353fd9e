"""The screens that `retinue top` opens over its table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key, Paste
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from retinue.cli.terminal.decision import LATER, Decision
from retinue.cli.terminal.screen import KINDS, done, turns
from retinue.cli.tui.project_runs import ProjectRuns


class Say(ModalScreen[str | None]):
    """One line of text, or nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Keep it")]
    DEFAULT_CSS = """
    Say { align: center middle; }
    Say > Vertical {
        width: 80%; max-width: 100; height: auto; border: round $accent; padding: 0 1;
    }
    """

    def __init__(self, title: Text) -> None:
        super().__init__()
        self._title_text = title

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title_text)
            yield Input(placeholder="↵ send  esc cancel")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Decide(ModalScreen[str]):
    """A decision, as the live view shows it. Keys count by the time at which they were pressed."""

    DEFAULT_CSS = """
    Decide { align: center middle; }
    Decide > Static { width: 90%; height: auto; border: round $warning; }
    """
    NAMES: ClassVar[dict[str, str]] = {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn"}

    def __init__(self, decision: Decision, is_asked: Callable[[], bool]) -> None:
        super().__init__()
        self._decision, self._is_asked = decision, is_asked

    def compose(self) -> ComposeResult:
        yield Static()

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(0.1, self._draw)

    def _draw(self) -> None:
        if not self._is_asked():
            self.notify("This question is no longer open. Nothing was decided here.")
            self.dismiss(LATER)
            return
        # Inside of its border, with a column to spare: a line that is wrapped again would push
        # others out.
        width, height = self.app.size.width * 9 // 10 - 3, self.app.size.height - 2
        frame = self._decision.frame(width, height, time.monotonic())
        self.query_one(Static).update(Text("\n").join(frame))
        self.call_after_refresh(lambda: self._decision.drawn(time.monotonic()))

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        name = (
            self.NAMES.get(event.key)
            or (event.character if event.is_printable else event.key)
            or event.key
        )
        made = self._decision.press(name, event.time)
        if made is None:
            self._draw()
        else:
            self.dismiss(made)

    def on_paste(self, event: Paste) -> None:
        """Into an answer in words; it decides nothing."""
        event.stop()
        self._decision.press(f"paste:{event.text}", event.time)


class RunScreen(Screen[None]):
    """One agent: what it was told, what it says and does, live."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "app.pop_screen", "Back"),
        Binding("m", "app.message", "Message"),
        Binding("a", "app.answer", "Answer"),
        Binding("x", "app.cancel", "Cancel"),
    ]

    def __init__(self, board: ProjectRuns, id: str) -> None:
        super().__init__()
        self._board, self.run_id, self._seen = board, id, ""

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll():
            yield Static(id="said")
        yield Footer()

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(0.25, self._draw)

    def _draw(self) -> None:
        row = self._board.view.row(self.run_id, self._board.view.nodes[self.run_id].last_at)
        turn = f" · turn {turns(row)}" if row.turn else ""
        head = (
            f" {row.glyph} {row.label} {row.short} · {done(row.state)}{turn} · {row.model} · "
            f"{row.now}"
        )
        self.query_one("#title", Static).update(
            Text(head, style="bold", no_wrap=True, overflow="ellipsis")
        )
        if row.is_over and self._seen:
            return
        said = Text()
        for kind, text in self._board.transcript(self.run_id):
            said.append(text + "\n", style=KINDS.get(kind, ""))
        if said.plain != self._seen:
            self._seen = said.plain
            self.query_one("#said", Static).update(
                said if said.plain else Text("No messages yet.", style="dim")
            )
            scroll = self.query_one(VerticalScroll)
            if scroll.scroll_offset.y >= scroll.max_scroll_y - 2:
                scroll.scroll_end(animate=False)
