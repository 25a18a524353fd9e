"""The screens that `retinue top` opens over its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.screen import KINDS
from retinue.cli.tui.project_runs import ProjectRuns
from retinue.view.grid import turns
from retinue.view.top_frame import TopList

ACTS = ("a", "m", "M", "x", "r", "R", "l")
"""The keys that act on one run, in the list and where it is open."""


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


class RunScreen(Screen[None]):
    """One agent: its messages and what it does, live."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "app.pop_screen", "Back")]
    KEYS = " m message  a answer  x cancel  r retry  l logs  esc back"

    def __init__(
        self,
        runs: ProjectRuns,
        id: str,
        palette: Palette,
        act: Callable[[str], None],
        at: TopList,
    ) -> None:
        super().__init__()
        self._runs, self._act, self._at = runs, act, at
        self.run_id = id
        self._seen = ""
        self._palette = palette

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll():
            yield Static(id="said")
        yield Static(self._palette.colored(self.KEYS, "quiet"), id="keys")

    def on_key(self, event: Key) -> None:
        """The keys of the list that act on one run."""
        self._at.said = ""
        if event.character in ACTS:
            event.stop()
            event.prevent_default()  # or the field that it opens is given the same key
            self._act(event.character)

    def on_mount(self) -> None:
        self.call_after_refresh(self._draw)
        self.set_interval(0.25, self._draw)

    def _draw(self) -> None:
        if not self.query("#said"):
            return  # it is being opened or closed
        row = self._runs.view.row(self.run_id, self._runs.view.nodes[self.run_id].last_at)
        turn = f" · turn {turns(row)}" if row.turn else ""
        head = f" {row.glyph} {row.label} {row.short} · {row.word}{turn} · {row.model} · {row.now}"
        self.query_one("#title", Static).update(
            Text(head, style="bold", no_wrap=True, overflow="ellipsis")
        )
        keys = self._palette.colored(f" {self._at.said}" if self._at.said else self.KEYS, "quiet")
        self.query_one("#keys", Static).update(keys)
        if row.is_over and self._seen:
            return
        content = Text()
        for kind, text in self._runs.transcript(self.run_id):
            content.append(text + "\n", style=self._palette.style(KINDS.get(kind, "")))
        if content.plain != self._seen:
            self._seen = content.plain
            self.query_one("#said", Static).update(
                content if content.plain else Text("No messages yet.", style="dim")
            )
            scroll = self.query_one(VerticalScroll)
            if scroll.scroll_offset.y >= scroll.max_scroll_y - 2:
                scroll.scroll_end(animate=False)
