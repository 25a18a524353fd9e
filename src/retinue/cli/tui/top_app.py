"""`retinue top`: all runs of a project on a full screen. What is drawn is made in `view.top_frame`;
here are the keys, and the runs behind them."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Static

from retinue.cli.terminal import request_answer
from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.decision import yes_or_no
from retinue.cli.terminal.keyboard import Editor
from retinue.cli.terminal.live import AGAIN, FAILED
from retinue.cli.terminal.pager import show_text
from retinue.cli.terminal.painter import KEEP_TITLE, RESTORE_TITLE, title_text
from retinue.cli.terminal.request_answer import queued_text, retry_text
from retinue.cli.tui.project_runs import ProjectRuns
from retinue.cli.tui.request_screen import RequestScreen
from retinue.cli.tui.top_screens import RunScreen, Say
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.view import format as view_format
from retinue.view.run_node import walk
from retinue.view.run_row import RunRow
from retinue.view.top_frame import SORTS, TopFacts, TopList, top_frame

SECONDS = 1.0
MOVES = {"up": "up", "k": "up", "down": "down", "j": "down", "home": "home", "end": "end"}


class TopApp(App[None]):
    """The list, its keys, and the runs behind it."""

    TITLE = "retinue top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Static { width: 100%; background: ansi_default; }
    #frame { height: 100%; }
    #title { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", "Quit", priority=True)]

    def __init__(
        self,
        runs: ProjectRuns,
        opened: str = "",
        seconds: float = SECONDS,
        palette: Palette | None = None,
        home: str = "",
        *,
        is_chat: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)
        self.runs, self._seconds, self._first = runs, seconds, opened
        self.palette, self.home = palette or Palette(), home
        self._is_chat = is_chat
        self.list = TopList()
        self._filter = Editor()
        self._window = ""

    def compose(self) -> ComposeResult:
        yield Static(id="frame")

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(self._seconds, self._refresh)
        self.set_interval(0.1, self.runs.listen)

    def on_resize(self) -> None:
        self.draw()

    def _refresh(self) -> None:
        self.runs.refresh()
        for text in self.runs.notices:
            self.list.said = one_line(text)
        self.runs.notices.clear()
        self.draw()
        if self._first in self.runs.view.nodes and not isinstance(self.screen, ModalScreen):
            self._open(self._first)
            self._first = ""

    def _open(self, id: str) -> None:
        self.push_screen(RunScreen(self.runs, id, self.palette, self._act_on_run, self.list))

    def draw(self) -> None:
        frames = self.screen_stack[0].query("#frame") if self.screen_stack else ()
        for frame in frames:
            width, height = self.size
            lines = top_frame(
                self._facts(), self.list, self.runs.rows(), max(20, width), max(6, height)
            )
            text = Text("\n", no_wrap=True).join(self.palette.text(line) for line in lines)
            assert isinstance(frame, Static)
            frame.update(text)
        self._name_window()

    def _name_window(self) -> None:
        """The project in the title of the window, and how many need a person."""
        n = self.runs.view.counts["needs_input"]
        text = f"{f'({n}) ' if n else ''}{self.runs.name} · Retinue"
        if self._driver is not None and text != self._window:
            self._driver.write(f"{'' if self._window else KEEP_TITLE}{title_text(text)}")
            self._window = text

    def on_unmount(self) -> None:
        if self._driver is not None and self._window:
            self._driver.write(RESTORE_TITLE)

    def _facts(self) -> TopFacts:
        runs = self.runs
        bars, tokens = runs.per_minute()
        asking = [row for row in runs.rows() if row.needs_you]
        return TopFacts(
            name=runs.name,
            marks=runs.view.marks,
            today=view_format.sum_text(*runs.today),
            per_minute=view_format.count(tokens),
            bars=bars,
            n_open=runs.n_runs,
            clock=time.strftime("%H:%M:%S"),
            requests=sorted(asking, key=lambda row: -row.idle_ms),
        )

    @property
    def chosen(self) -> str:
        """The run that keys act on."""
        return self.screen.run_id if isinstance(self.screen, RunScreen) else self.list.selected

    def _row(self, id: str) -> RunRow | None:
        return next((row for row in self.runs.rows() if row.id == id), None)

    # keys

    def on_key(self, event: Key) -> None:
        """While the user decides or writes, a key that was pressed before, or is a letter, does
        nothing else."""
        if isinstance(self.screen, ModalScreen | RunScreen):
            return
        event.stop()
        event.prevent_default()  # or the screen that it opens is given the same key
        key = event.character if event.is_printable and event.character else event.key
        self.list.said = ""
        if self.list.is_filtering:
            self._filtering(key)
        elif key in MOVES:
            self.list.move(MOVES[key], self._ids())
        elif key == "escape" and self._is_chat and not (self.list.wanted or self.list.is_help):
            self.exit()
        elif key == "escape":
            self.list.wanted, self.list.is_help = "", False
        else:
            self._act(key)
        self.draw()

    def _ids(self) -> list[str]:
        order = self.list.order(self.runs.rows(), self.size.height - 5)
        return [row.row.id for row in order if row is not None]

    def _filtering(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.list.is_filtering = False
            self._filter = Editor() if key == "escape" else self._filter
        else:
            self._filter.press({"ctrl+u": "clear", "ctrl+w": "word"}.get(key, key))
        self.list.wanted = self._filter.text
        self.list.settle()

    def _act(self, key: str) -> None:
        if key == "/":
            self.list.is_filtering, self._filter = True, Editor(self.list.wanted)
        elif key == "s":
            names = list(SORTS)
            self.list.sort = names[(names.index(self.list.sort) + 1) % len(names)]
            self.list.said = f"Sorted by {self.list.sort}."
        elif key in ("z", "left", "right"):
            is_folded = key == "left" or (key == "z" and not self._is_folded(self.list.selected))
            self.list.folded[self.list.selected] = is_folded
        elif key == "u":
            self.list.settle()
        elif key == "?":
            self.list.is_help = not self.list.is_help
        elif key == "q":
            self.exit()
        elif key == "enter" and self.list.selected in self.runs.view.nodes:
            self._open(self.list.selected)
        else:
            self._act_on_run("a" if key == "tab" else key)

    def _act_on_run(self, key: str) -> None:
        if key == "a":
            self.answer()
        elif key in ("m", "M"):
            self.message(is_steering=key == "M")
        elif key == "x":
            self.cancel()
        elif key == "r":
            self.retry()
        elif key == "R":
            self.retry_with_message()
        elif key == "l":
            self.show_log()

    def _is_folded(self, id: str) -> bool:
        order = self.list.order(self.runs.rows(), self.size.height - 5)
        return any(row is not None and row.row.id == id and row.n_folded for row in order)

    def cancel(self) -> None:
        id = self.chosen
        node = self.runs.view.nodes.get(id)
        if node is None or node.is_over:
            self._say("This run has ended.")
            return
        n = sum(not below.is_over for below in walk(node))
        label = self.runs.view.row(id, 0).label
        title = f"Stop {label}?" if n <= 1 else f"Stop {n} agents: {label} and those below?"

        def go(key: str, text: str) -> None:
            if key == "y" and not node.is_over:
                self.runs.ask(requests.CancelRequest(runs=(id,)))

        panel = yes_or_no(title, "Stop; partial results are kept", "stops")
        self.push_screen(RequestScreen(panel, go, self.palette))

    def message(self, *, is_steering: bool = False) -> None:
        id = self.chosen
        if id not in self.runs.view.nodes or self.runs.view.nodes[id].is_over:
            self._say("This run has ended and cannot receive messages.")
            return
        label = self.runs.view.row(id, 0).label

        def go(text: str | None) -> None:
            if text and text.strip():
                self.runs.ask(requests.SendRequest(run=id, text=text.strip(), steer=is_steering))
                self._say(queued_text(label, is_steering=is_steering))

        how = "interrupts the current turn" if is_steering else "read at the next turn"
        self.push_screen(Say(Text(f"Message to {label} ({how})")), go)

    def retry(self, message: str = AGAIN) -> None:
        id = self.chosen
        node = self.runs.view.nodes.get(id)
        if node is None or node.state not in FAILED:
            self._say("This run has not failed. Only failed ones can be retried.")
            return
        label = self.runs.view.row(id, 0).label

        def go(key: str, text: str) -> None:
            if key == "y":
                again = requests.ResumeRequest(run=id, task=message)
                self.runs.ask(again, lambda reply: self._say(retry_text(label, reply)))

        panel = yes_or_no(f"Retry {label} as a new run?", "Retry", "retries it")
        self.push_screen(RequestScreen(panel, go, self.palette))

    def retry_with_message(self) -> None:
        node = self.runs.view.nodes.get(self.chosen)
        if node is None or node.state not in FAILED:
            self.retry()
            return

        def go(text: str | None) -> None:
            if text is not None:
                self.retry(text.strip() or AGAIN)

        label = self.runs.view.row(self.chosen, 0).label
        self.push_screen(Say(Text(f"Retry {label} with this message")), go)

    def show_log(self) -> None:
        """All messages of one run, in the pager."""
        if not self.chosen:
            return
        text = self.runs.log(self.chosen, self.size.width)
        try:
            with self.suspend():
                is_shown = show_text(text)
        except SuspendNotSupported:
            is_shown = False
        if not is_shown:
            self._say("No pager was found. Set PAGER, or use `retinue logs`.")

    def _say(self, text: str) -> None:
        self.list.said = text
        self.draw()

    def answer(self) -> None:
        """What needs a person, oldest first; the request of the selected run, if it has one."""
        if not any(node.state == "needs_input" for node in self.runs.view.nodes.values()):
            self.list.said = "Nothing needs you."
            return
        only = self.runs.only
        run = only[0] if len(only) == 1 else ""
        self.runs.ask(requests.QuestionsRequest(run=run), self._show_requests)

    def _show_requests(self, reply: dict[str, Any]) -> None:
        """By now another user may have answered."""
        waits = {row.id: row.idle_ms for row in self.runs.rows()}
        here = [q for q in reply["questions"] if q["run"] in waits]
        questions = sorted(here, key=lambda q: -waits.get(q["run"], 0))
        selection = self.chosen
        mine = next((n for n, q in enumerate(questions) if q["run"] == selection), 0)
        if not questions:
            self.list.said = "Nothing needs you now."
            self.draw()
        elif not isinstance(self.screen, ModalScreen):
            self.push_screen(
                RequestScreen.of(questions, mine, self._decided, self.palette, self.runs, self.home)
            )

    def _decided(self, q: dict[str, Any], key: str, text: str) -> None:
        want = request_answer.answer(q, key, text)
        if want is None:
            self.list.said = "That is not an amount above zero. Nothing was added."
        else:
            self.runs.ask(want)
            n_more = sum(n.state == "needs_input" for n in self.runs.view.nodes.values()) - 1
            self.list.said = request_answer.answer_report(q, key, text, n_more)
        self.draw()
