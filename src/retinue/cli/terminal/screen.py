"""The frame of the live view: a header, as much of the tree as fits, one agent opened below, and
the keys.

Everything has a fixed width, so that nothing moves sideways; a row is cut, never wrapped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from retinue.view import format as words
from retinue.view.rows import TreeView
from retinue.view.run_node import OVER
from retinue.view.run_row import RunRow
from retinue.view.states import state_text

MOST_LINES = 12
SILENT_MS = 60_000
STYLES = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "blue",
    "needs_input": "bold yellow",
    "cancelling": "magenta",
    "paused": "dim",
    "completed": "green",
    "cancelled": "dim",
}
BAD = "red"
KINDS = {
    "task": "bold",
    "mail": "magenta",
    "call": "cyan",
    "result": "dim",
    "bad": "red",
    "denied": "yellow",
}
URGENCY = {
    "needs_input": 0,
    "cancelling": 1,
    "running": 1,
    "waiting": 2,
    "failed": 3,
    "timed_out": 3,
    "queued": 4,
}
KEYS = (
    ("↑↓", "select"),
    ("↵", "open"),
    ("a", "answer"),
    ("x", "cancel"),
    ("m", "message"),
    ("b", "background"),
    ("r", "retry"),
    ("q", "detach"),
    ("?", "help"),
)
HELP = (
    "↑ ↓      select an agent; esc to deselect",
    "↵        open its live messages; press again to close. PgUp PgDn scroll",
    "a        answer its question: press the letter of a choice, then ↵",
    "m  M     send it a message: read at its next turn, or interrupting the current one",
    "x        cancel it and its sub-agents, after a confirmation",
    "r        retry a failed sub-agent as a new run",
    "b  q     detach; the run continues. Ctrl-C cancels it; press twice to exit now",
)


@dataclass
class Focus:
    """Where the person is: what is selected, what is opened, what is being asked or written."""

    selected: str = ""
    opened: str = ""
    scroll: int = 0
    first: int = 0
    is_help: bool = False
    prompt: Sequence[Text] = ()
    cancelled: set[str] = field(default_factory=set)


def style(state: str) -> str:
    return STYLES.get(state, BAD)


def cut(text: str, width: int) -> str:
    """Exactly so many cells; what is left out is marked."""
    if width <= 0:
        return ""
    have = cell_len(text)
    if have <= width:
        return text + " " * (width - have)
    return set_cell_size(text, width - 1) + "…"


def fits(text: str, width: int) -> str:
    """At most so many cells."""
    return cut(text, width) if cell_len(text) > width else text


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths at one width of the terminal; 0 leaves a column out."""

    name: int
    now: int
    word: int
    elapsed: int
    own: int
    tree: int
    cost: int
    extra: int


def columns(width: int) -> Columns:
    if width >= 110:
        name, word, elapsed, own, tree, cost, extra = min(36, width // 4), 11, 6, 6, 6, 7, 11
    elif width >= 76:
        name, word, elapsed, own, tree, cost, extra = width // 4, 11, 6, 0, 6, 0, 10
    elif width >= 50:
        name, word, elapsed, own, tree, cost, extra = 16, 9, 6, 0, 6, 0, 0
    else:
        name, word, elapsed, own, tree, cost, extra = 13, 9, 6, 0, 0, 0, 0
    used = sum(w + 1 for w in (name, word, elapsed, own, tree, cost, extra) if w)
    return Columns(name, max(0, width - used - 1), word, elapsed, own, tree, cost, extra)


class Screen:
    """Makes frames of a view. It remembers which rows it shows, so that they stay where they
    are."""

    def __init__(self, view: TreeView) -> None:
        self._view = view
        self._shown: set[str] = set()

    def frame(
        self,
        focus: Focus,
        now: int,
        width: int,
        height: int,
        transcript: Sequence[tuple[str, str]] = (),
    ) -> list[Text]:
        """At most a third of the screen, and at most twelve lines; an opened agent takes another
        third."""
        width = max(20, width - 1)
        most = max(4, min(MOST_LINES, height // 3))
        head = [self._header(top.spec.id, focus, now, width) for top in self._view.tops[:1]]
        foot = [self._keys(focus, width)]
        room = most - len(head) - len(foot)
        lines = [*head, *self._tree(focus, now, width, room)]
        if focus.is_help:
            lines += [Text(fits(" " + line, width), style="dim") for line in HELP]
        elif focus.opened in self._view.nodes:
            lines += self._opened(
                focus, now, width, max(4, min(MOST_LINES, height // 3)), transcript
            )
        lines += focus.prompt or foot
        for line in lines:
            line.truncate(width, overflow="crop")
            line.rstrip()
        return lines[-max(1, height - 1) :]

    def last(self, now: int, width: int, height: int) -> list[Text]:
        """The tree as it stays on the screen."""
        width = max(20, width - 1)
        most = max(4, min(MOST_LINES, height // 3))
        lines = [self._header(top.spec.id, Focus(), now, width) for top in self._view.tops[:1]]
        lines += self._tree(Focus(), now, width, most - 1)
        for line in lines:
            line.rstrip()
            line.truncate(width, overflow="crop")
        return lines

    def _header(self, id: str, focus: Focus, now: int, width: int) -> Text:
        row = self._row(id, focus, now)
        amounts = [f"{words.span(row.elapsed_ms):>6}"]
        if width >= 76:
            amounts.append(f"self {row.own_tokens:>6}")
        if width >= 44:
            amounts.append(f"tree {row.all_tokens:>6}")
        amounts.append(f"{row.cost:>6}")
        right = "  ".join(amounts)
        word = f"{row.glyph} {done(row.state)}"
        if row.state in ("waiting", "running") and row.n_children and width >= 60:
            word += f" {row.n_over}/{row.n_children}"
        lead = "▸" if focus.selected == id else " "
        room = width - cell_len(right) - cell_len(word) - 5
        what = row.task or row.label
        if row.is_over and row.state != "completed" and row.error:
            what = row.error
        out = Text(no_wrap=True)
        out.append(lead, style="bold cyan")
        out.append(cut(what, room), style="bold")
        out.append("  ")
        out.append(word, style=style(row.state))
        out.append("  " + right)
        return out

    def _row(self, id: str, focus: Focus, now: int) -> RunRow:
        row = self._view.row(id, now)
        if id in focus.cancelled and not row.is_over:
            from msgspec.structs import replace

            return replace(
                row,
                state="cancelling",
                word=state_text("cancelling"),
                glyph=words.glyph("cancelling"),
            )
        return row

    def _tree(self, focus: Focus, now: int, width: int, room: int) -> list[Text]:
        order = self._view.order()[1:]
        if not order or room < 1:
            return []
        if len(order) <= room:
            picked, rest = order, list[str]()
        elif focus.selected and focus.selected in self._view.nodes:
            picked, rest = self._window(focus, order, room - 1)
        else:
            picked, rest = self._urgent(order, room - 1)
        self._shown = set(picked)
        rows = [self._row(id, focus, now) for id in picked]
        base = self._view.tops[0].spec.depth if self._view.tops else 0
        lines = [
            self._line(row, branch, focus, width)
            for row, branch in zip(rows, branches(rows, base), strict=True)
        ]
        if rest:
            lines.append(Text(fits(" " + self._more(rest), width), style="dim"))
        return lines

    def _window(self, focus: Focus, order: Sequence[str], room: int) -> tuple[list[str], list[str]]:
        """What is around the selected row; it scrolls only when the selection leaves it."""
        at = order.index(focus.selected) if focus.selected in order else 0
        first = min(max(focus.first, at - room + 1), at)
        focus.first = max(0, min(first, len(order) - room))
        return list(order[focus.first : focus.first + room]), [
            *order[: focus.first],
            *order[focus.first + room :],
        ]

    def _urgent(self, order: Sequence[str], room: int) -> tuple[list[str], list[str]]:
        """Who needs somebody first, then who works; those that are shown keep their place among
        equals."""
        nodes, shown_now = self._view.nodes, self._shown
        ranked = sorted(
            range(len(order)),
            key=lambda i: (URGENCY.get(nodes[order[i]].state, 5), order[i] not in shown_now, i),
        )
        kept = set(ranked[:room])
        return [id for i, id in enumerate(order) if i in kept], [
            id for i, id in enumerate(order) if i not in kept
        ]

    def _more(self, rest: Sequence[str]) -> str:
        """`+188 more: 150 done, 38 running`."""
        counts = Counter(self._view.nodes[id].state for id in rest)
        parts = [
            f"{n} {done(state)}" for state, n in sorted(counts.items(), key=lambda c: (-c[1], c[0]))
        ]
        return f"+{len(rest)} more: {', '.join(parts)}"

    def _line(self, row: RunRow, branch: str, focus: Focus, width: int) -> Text:
        c = columns(width)
        chosen = row.id == focus.selected
        out = Text(no_wrap=True)
        out.append("▸" if chosen else " ", style="bold cyan")
        # Deep branches are cut from the left: the agent's own name is what tells rows apart.
        branch = branch if cell_len(branch) <= c.name // 2 else "…" + branch[-(c.name // 2 - 1) :]
        out.append(branch, style="dim")
        out.append(f"{row.glyph} ", style=style(row.state))
        label = cut(row.label, c.name - cell_len(branch) - 3)
        out.append(
            label,
            style="reverse"
            if chosen
            else "bold"
            if row.needs_you
            else "dim"
            if row.is_over
            else "",
        )
        out.append(" " + cut(row.now, c.now) + " ", style=_tone(row))
        out.append(cut(done(row.state), c.word), style=style(row.state))
        is_idle = row.state == "queued" and not row.turn
        out.append(" " + ("" if is_idle else words.span(row.elapsed_ms)).rjust(c.elapsed))
        if c.own:
            out.append(" " + (row.own_tokens if row.tokens else "").rjust(c.own))
        if c.tree:
            out.append(" " + (row.all_tokens if row.tree_tokens else "").rjust(c.tree))
        if c.cost:
            out.append(" " + (row.cost if row.tree_tokens else "").rjust(c.cost))
        if c.extra:
            extra, tone = _extra(row)
            out.append(" " + cut(extra, c.extra), style=tone)
        return out

    def _opened(
        self, focus: Focus, now: int, width: int, room: int, transcript: Sequence[tuple[str, str]]
    ) -> list[Text]:
        row = self._row(focus.opened, focus, now)
        turn = f" · turn {turns(row)}" if row.turn else ""
        title = f"── {row.label} {row.short} · {row.word}{turn} · {row.model} "
        out = [Text(set_cell_size(fits(title, width - 1) + "─" * width, width), style="cyan")]
        body: list[Text] = []
        for kind, said in transcript:
            for piece in wrap(said, width - 2):
                body.append(Text("  " + piece, style=KINDS.get(kind, "")))
        room -= 1
        focus.scroll = max(0, min(focus.scroll, len(body) - room))
        end = len(body) - focus.scroll
        out += body[max(0, end - room) : end] or [Text("  No messages yet.", style="dim")]
        return out

    def _keys(self, focus: Focus, width: int) -> Text:
        n = self._view.counts["needs_input"]
        out = Text(no_wrap=True)
        if n:
            out.append(f" ? {n} need{'s' if n == 1 else ''} you: press a ", style="bold yellow")
        for key, what in KEYS:
            if key == "a" and not n:
                continue
            if out.cell_len + cell_len(key) + len(what) + 3 > width - (0 if key == "?" else 8):
                continue
            out.append(f" {key}", style="bold")
            out.append(f" {what} ", style="dim")
        return out


def _tone(row: RunRow) -> str:
    return (
        BAD
        if row.error
        else "yellow"
        if row.needs_you
        else "dim"
        if row.is_over or row.state == "queued"
        else ""
    )


def _extra(row: RunRow) -> tuple[str, str]:
    if row.needs_you:
        return "press ↵", "bold yellow"
    if row.silent_ms >= SILENT_MS:
        return f"silent {words.span(row.silent_ms // 60_000 * 60_000).replace('00s', '')}", "yellow"
    if row.state in ("failed", "timed_out", "interrupted", "incomplete"):
        return "r retry", "dim"
    return (f"turn {turns(row)}", "dim") if row.turn and row.state not in OVER else ("", "")


def turns(row: RunRow) -> str:
    return f"{row.turn}/{row.max_turns}" if row.max_turns else str(row.turn)


def done(state: str) -> str:
    """The state of a row, in the word for it."""
    return "done" if state == "completed" else state_text(state)


def branches(rows: Sequence[RunRow], base: int) -> list[str]:
    """The lines of a tree before each row. They are drawn for the rows that are there, whatever is
    left out."""
    more: dict[int, bool] = {}
    out: list[str] = []
    for row in reversed(rows):
        depth = max(1, row.depth - base)
        bars = "".join("│  " if more.get(level) else "   " for level in range(1, depth))
        out.append(bars + ("├─ " if more.get(depth) else "└─ "))
        more[depth] = True
        for level in [k for k in more if k > depth]:
            del more[level]
    out.reverse()
    return out


def wrap(text: str, width: int) -> list[str]:
    """A text in pieces of at most so many cells, at spaces where there are some."""
    from rich.cells import chop_cells

    out: list[str] = []
    for word in text.split(" "):
        if out and cell_len(out[-1]) + 1 + cell_len(word) <= width:
            out[-1] += " " + word
        else:
            out += chop_cells(word, max(1, width)) or [""]
    return out
