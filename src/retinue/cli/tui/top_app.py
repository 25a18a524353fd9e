"""`retinue top`: everything that goes on in a project, as a table that can be filtered, sorted,
opened and acted on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from retinue.cli.terminal import limit_answer as raising
from retinue.cli.terminal.decision import LATER, PERMISSION, Decision, yes_or_no
from retinue.cli.terminal.screen import BAD, SILENT_MS, done, style, turns
from retinue.cli.tui.project_runs import ProjectRuns
from retinue.cli.tui.top_screens import Decide, RunScreen, Say
from retinue.formats.safe_text import one_line, several_lines
from retinue.host import requests
from retinue.view import format as words
from retinue.view import run_node
from retinue.view.run_node import OVER
from retinue.view.run_row import RunRow

COLUMNS = ("AGENT", "STATE", "NOW", "TURN", "CTX", "TOK/s", "TREE", "COST", "SILENT")
SORTS: dict[str, Callable[[RunRow], Any]] = {
    "tree": lambda row: 0,
    "tokens": lambda row: -row.tree_tokens,
    "cost": lambda row: -(row.tree_usd or 0.0),
    "time": lambda row: -row.elapsed_ms,
    "state": lambda row: (not row.needs_you, row.is_over, row.state),
}
SECONDS = 1.0
NAME, NOW = 28, 38


def matches(row: RunRow, wanted: str) -> bool:
    """Whether a row has all the words: `state:failed`, `agent:models`, `model:sonnet`, or any other
    text."""
    for part in wanted.lower().split():
        key, _, value = part.partition(":")
        if not value:
            if (
                part
                not in f"{row.label} {row.short} {row.word} {row.now} {row.task} "
                f"{row.model}".lower()
            ):
                return False
        elif key == "state":
            if not words.is_wanted(row.state, value.split(",")) and value not in row.word:
                return False
        elif key in ("agent", "model", "task"):
            if value not in {"agent": row.label, "model": row.model, "task": row.task}[key].lower():
                return False
        else:
            return False
    return True


def pick(rows: Iterable[RunRow], wanted: str, sort: str, is_tree: bool) -> list[RunRow]:
    """The rows that are shown, in their order."""
    picked = [row for row in rows if (is_tree or not row.parent) and matches(row, wanted)]
    return picked if sort == "tree" else sorted(picked, key=SORTS[sort])


def cells(row: RunRow, board: ProjectRuns, sort: str) -> list[Text]:
    """One line of the table."""
    lead = "  " * row.depth + "└ " if row.depth and sort == "tree" else ""
    name = (
        lead + one_line(row.label, max(8, NAME - len(lead)))
        if row.depth
        else one_line(f"{row.short} {row.task}", NAME)
    )
    rate = board.rate(row.id)
    context = f"{100 * row.context // row.window}%" if row.window else words.count(row.context)
    silent = row.silent_ms >= SILENT_MS
    tone = BAD if row.error else "yellow" if row.needs_you else "dim" if row.is_over else ""
    return [
        Text(name, style="" if row.depth else "bold"),
        Text(f"{row.glyph} {done(row.state)}", style=style(row.state)),
        Text(one_line(row.now, NOW), style=tone),
        Text(turns(row) if row.turn else "", justify="right"),
        Text(context if row.context else "", justify="right"),
        Text("-" if rate is None else f"{rate:.0f}", justify="right"),
        Text(row.all_tokens if row.tree_tokens else "", justify="right"),
        Text(row.cost if row.tree_tokens else "", justify="right"),
        Text(f"{words.span(row.silent_ms)} ⚠" if silent else "", style="yellow", justify="right"),
    ]


def headline(board: ProjectRuns) -> Text:
    """`runs 3  agents ● 6  ? 1  ○ 2  ✓ 41  ✗ 2     tokens/min ▂▃▅▇▆▅ 38k     $ today 1.42`."""
    counts = board.view.counts
    out = Text(f" runs {board.n_runs}  agents")
    groups = {
        "running": ("running", "waiting", "cancelling"),
        "needs_input": ("needs_input",),
        "queued": ("queued",),
        "completed": ("completed",),
        "failed": ("failed", "timed_out", "interrupted", "incomplete"),
    }
    for state, names in groups.items():
        n = sum(counts[name] for name in names)
        if n or state == "running":
            out.append(f"  {words.glyph(state)} {n} {done(state)}", style=style(state))
    bars, tokens = board.per_minute()
    out.append(f"    tokens/min {bars} {words.count(tokens)}")
    today = words.money(board.spent_today, is_bound=bool(board.estimated_today))
    known = today if board.spent_today or not board.has_unpriced else ""
    out.append(
        f"    today {' + '.join(p for p in (known, 'n/a' if board.has_unpriced else '') if p)}"
    )
    return out


class TopApp(App[None]):
    """The table, its keys, and a board behind it."""

    TITLE = "retinue top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; }
    #filter { display: none; }
    #title { height: 1; background: $boost; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "f", "filter", "Filter", priority=True
        ),  # before what is typed next has found its way
        Binding("s", "sort", "Sort"),
        Binding("t", "tree", "Tree"),
        Binding("x", "cancel", "Cancel"),
        Binding("m", "message", "Message"),
        Binding("a", "answer", "Answer"),
        Binding("q,ctrl+c", "quit", "Quit"),
    ]

    def __init__(self, board: ProjectRuns, opened: str = "", seconds: float = SECONDS) -> None:
        super().__init__()
        self.board, self._seconds, self._first = board, seconds, opened
        self.wanted, self.sort, self.is_tree = "", "tree", True
        self._shown: dict[str, list[Text]] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Input(
            placeholder="state:failed agent:models or any text; ↵ keep, esc clear",
            id="filter",
        )
        yield DataTable[Text](cursor_type="row", zebra_stripes=False)
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for name in COLUMNS:
            table.add_column(name, key=name)
        table.focus()
        self._look()
        self.set_interval(self._seconds, self._look)
        self.set_interval(0.1, self.board.listen)

    def _look(self) -> None:
        if not any(screen.query("#head") for screen in self.screen_stack[:1]):
            return  # it is being closed: its parts go before its timers
        self.board.refresh()
        for text in self.board.notices:
            self.notify(one_line(text), severity="warning", markup=False)
        self.board.notices.clear()
        self._draw()
        if self._first in self.board.view.nodes and not isinstance(self.screen, ModalScreen):
            self.push_screen(RunScreen(self.board, self._first))
            self._first = ""

    def _draw(self) -> None:
        self.screen_stack[0].query_one("#head", Static).update(headline(self.board))
        rows = pick(self.board.rows(), self.wanted, self.sort, self.is_tree)
        self._fill({row.id: cells(row, self.board, self.sort) for row in rows})

    def _fill(self, wanted: dict[str, list[Text]]) -> None:
        """Change what has changed; the table is made anew only when rows come, go or move."""
        table = self.screen_stack[0].query_one(DataTable)
        if list(wanted) == list(self._shown):
            for id, texts in wanted.items():
                for name, text, before in zip(COLUMNS, texts, self._shown[id], strict=True):
                    if text.plain != before.plain or text.style != before.style:
                        table.update_cell(id, name, text)
        else:
            chosen = self.chosen
            table.clear()
            for id, texts in wanted.items():
                table.add_row(*texts, key=id)
            if chosen in wanted:
                table.move_cursor(row=list(wanted).index(chosen), animate=False)
        self._shown = wanted

    @property
    def chosen(self) -> str:
        """The run that keys act on."""
        if isinstance(self.screen, RunScreen):
            return self.screen.run_id
        table = self.screen_stack[0].query_one(DataTable)
        ids = list(self._shown)
        return ids[table.cursor_row] if 0 <= table.cursor_row < len(ids) else ""

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value in self.board.view.nodes and not isinstance(
            self.screen, ModalScreen
        ):
            self.push_screen(RunScreen(self.board, str(event.row_key.value)))

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While somebody decides or writes, a key that was pressed before, or is a letter, does
        nothing else."""
        if isinstance(self.screen, ModalScreen):
            return action not in ("filter", "sort", "tree", "cancel", "message", "answer")
        return action != "filter" or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        if isinstance(self.screen, RunScreen):
            self.pop_screen()
        if not isinstance(self.screen, ModalScreen):
            field = self.query_one("#filter", Input)
            field.display = True
            self.screen.set_focus(
                field
            )  # at once: what is typed next is for it, and never a key of the table

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.wanted = event.value
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self._close_filter()

    def on_key(self, event: Any) -> None:
        if event.key == "escape" and self.focused is not None and self.focused.id == "filter":
            self.query_one("#filter", Input).value = ""
            self._close_filter()

    def _close_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = bool(field.value)
        self.query_one(DataTable).focus()

    def action_sort(self) -> None:
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.notify(f"sorted by {self.sort}", timeout=2)
        self._draw()

    def action_tree(self) -> None:
        self.is_tree = not self.is_tree
        self._draw()

    def action_cancel(self) -> None:
        id = self.chosen
        node = self.board.view.nodes.get(id)
        if node is None or node.state in OVER:
            self.notify("This run has ended.")
            return
        left = len(node.children) - node.n_over
        below = f" and {left} sub-agents" if left else ""
        title = f"Cancel {self.board.view.row(id, 0).label}{below}?"

        def go(key: str) -> None:
            if key == "y" and node.state not in OVER:
                self.board.ask(
                    requests.CancelRequest(runs=(id,), reason="cancelled by the user with x")
                )

        self._decide(Decision(title, "", yes_or_no("Cancel", "to cancel it"), go))

    def action_message(self) -> None:
        id = self.chosen
        if id not in self.board.view.nodes or self.board.view.nodes[id].state in OVER:
            self.notify("This run has ended and cannot receive messages.")
            return

        def go(text: str | None) -> None:
            if text and text.strip():
                self.board.ask(requests.SendRequest(run=id, text=text.strip()))

        self.push_screen(Say(Text(f"Message to {self.board.view.row(id, 0).label}")), go)

    def action_answer(self) -> None:
        nodes = self.board.view.nodes
        asking = [id for id, node in nodes.items() if node.state == "needs_input"]
        id = self.chosen if self.chosen in asking else next(iter(asking), "")
        if not id:
            self.notify("No questions are waiting.")
            return
        self.board.ask(
            requests.QuestionsRequest(run=id), lambda done: self._asked(id, done["questions"])
        )

    def _asked(self, id: str, questions: list[dict[str, Any]]) -> None:
        """Open the oldest question of a run; by now somebody else may have answered it."""
        mine = [q for q in questions if q["run"] == id] or questions
        if not mine:
            self.notify("This run no longer has an open question.")
        elif not isinstance(self.screen, ModalScreen):
            self._decide(self._question(mine[0]), mine[0])

    def _question(self, q: dict[str, Any]) -> Decision:
        run, question, who = q["run"], q["id"], one_line(q["label"], 40)
        if q["kind"] == "budget":
            title = f"{who} {words.short_id(run)} reached its limit:"
            return Decision(title, q["text"], raising.choices(q), lambda key: self._raise(q, key))
        if q["kind"] != "permission":
            return Decision(
                f"{who} asks:",
                several_lines(q["text"]),
                (),
                lambda text: self.board.ask(
                    requests.AnswerRequest(run=run, question=question, text=text)
                ),
            )

        def decided(key: str) -> None:
            if key == "t":
                self.push_screen(Say(Text("Reason?")), deny)
            else:
                allow, always = key in ("y", "A"), key == "A"
                self.board.ask(
                    requests.AnswerRequest(run=run, question=question, allow=allow, always=always)
                )

        def deny(text: str | None) -> None:
            if text is not None:
                self.board.ask(
                    requests.AnswerRequest(run=run, question=question, allow=False, text=text)
                )

        title = f"{who} {words.short_id(run)} needs permission for this call{words.asked_price(q)}:"
        return Decision(title, q["shown"], PERMISSION, decided)

    def _raise(self, q: dict[str, Any], key: str) -> None:
        if key != "t":
            self.board.ask(raising.answer(q, key))
            return

        def go(text: str | None) -> None:
            if text is not None and (want := raising.added(q, text)) is not None:
                self.board.ask(want)
            elif text is not None:
                self.notify("That is not an amount above zero. Nothing was added.")

        self.push_screen(Say(Text(f"How much more ({q['limit']})?")), go)

    def _decide(self, decision: Decision, question: dict[str, Any] | None = None) -> None:
        def is_asked() -> bool:
            if question is None or question["run"] not in self.board.view.nodes:
                return True
            return run_node.is_asked(self.board.view.nodes[question["run"]], question["id"])

        def go(made: str | None) -> None:
            if made is not None and made != LATER:
                decision.go(made)

        self.push_screen(Decide(decision, is_asked), go)
