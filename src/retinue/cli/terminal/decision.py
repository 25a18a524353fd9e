"""A decision of a person: what it is about is shown whole, a choice is marked, and only Enter on it
decides.

What was typed before the person could have read the question never counts, and neither does what is
pasted. The live view and `top` show the same panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from retinue.cli.terminal.keyboard import Editor
from retinue.cli.terminal.screen import fits, wrap
from retinue.cli.terminal.typed_answer import MARK_SECONDS, QUIET_SECONDS

LATER = "later"
NARROWEST = 20
TOO_SMALL = (
    "? The terminal is too small for this question: make it larger. Nothing is decided.   esc later"
)


@dataclass(frozen=True, slots=True)
class DecisionChoice:
    """`key` marks it, `does` says what Enter then does. `whole`: only who has seen everything can
    mean it."""

    key: str
    label: str
    does: str
    whole: bool = False


PERMISSION = (
    DecisionChoice("y", "Allow this call once", "to allow it once", whole=True),
    DecisionChoice(
        "A",
        "Always allow this call in this run and its sub-agents",
        "to allow it from now on",
        whole=True,
    ),
    DecisionChoice("n", "Deny", "to deny it"),
    DecisionChoice("t", "Deny with a reason", "to give the reason"),
)


def yes_or_no(yes: str, does: str, no: str = "Keep it as it is") -> tuple[DecisionChoice, ...]:
    return DecisionChoice("y", yes, does), DecisionChoice("n", no, "to keep it as it is")


class Decision:
    """One question on a screen. `choices` to mark, or none when the answer is a text. `go` gets the
    key of the choice, or the text; whoever leaves it decides nothing."""

    def __init__(
        self, title: str, body: str, choices: Sequence[DecisionChoice], go: Callable[[str], None]
    ) -> None:
        self.title, self.body, self.choices, self.go = title, body, tuple(choices), go
        self.editor = None if choices else Editor()
        self.marked: int | None = None
        self._hint = ""
        self._top = self._seen = self._n_lines = self._room = 0
        self._shape = (0, 0)
        self.is_too_small = False
        """Whether the last frame had no room for the question."""
        self._quiet_since: float | None = None
        self._marked_at = 0.0

    def drawn(self, now: float) -> None:
        """It is on the screen: from now on a person can read it."""
        if self._quiet_since is None:
            self._quiet_since = now

    def is_ready(self, now: float) -> bool:
        return self._quiet_since is not None and now - self._quiet_since >= QUIET_SECONDS

    def press(self, key: str, now: float) -> str | None:
        """Take a key that came at `now`. What was decided, `LATER` when it was left, None while it
        is open."""
        if key == "esc":
            return LATER
        if not self.is_ready(now):
            if self._quiet_since is not None:  # somebody types on: wait until they have stopped
                self._quiet_since = now
            return None
        self._hint = ""
        if self.is_too_small:
            return None
        if key in ("pgup", "pgdn"):
            self._top += max(1, self._room - 1) * (1 if key == "pgdn" else -1)
        elif self.editor is not None:
            return self._write(key)
        elif key == "enter":
            is_meant = self.marked is not None and now - self._marked_at >= MARK_SECONDS
            return self.choices[self.marked].key if self.marked is not None and is_meant else None
        elif not key.startswith("paste:"):
            self._mark(key, now)
        return None

    def _write(self, key: str) -> str | None:
        assert self.editor is not None
        if key == "enter":
            return self.editor.text.strip() or None
        if key != "eof":
            self.editor.press(key)
        return None

    def _mark(self, key: str, now: float) -> None:
        n = len(self.choices)
        at = next(
            (i for i, choice in enumerate(self.choices) if key in (choice.key, str(i + 1))), None
        )
        if key in ("down", "up"):
            step = 1 if key == "down" else -1
            at = (
                (0 if step > 0 else n - 1)
                if self.marked is None
                else max(0, min(n - 1, self.marked + step))
            )
        if at is None or (
            len(key) == 1
            and self.marked not in (None, at)
            and now - self._marked_at < QUIET_SECONDS
        ):
            if len(key) == 1:  # somebody writes a sentence: wait until they have stopped
                self.marked, self._quiet_since = None, now
            return
        if self.choices[at].whole and self._seen < self._n_lines:
            self._hint = f"Read to the end first: PgDn, {self._n_lines - self._seen} more lines."
            if key in ("down", "up") and self.marked is None:
                at = next(i for i, choice in enumerate(self.choices) if not choice.whole)
            else:
                return
        self.marked, self._marked_at = at, now

    def frame(self, width: int, height: int, now: float) -> list[Text]:
        """At most `height` lines of at most `width` cells, all of which are drawn: what is in them
        counts as seen. Another size clears the mark: what was seen has changed. Where there is no
        room nothing can be decided."""
        if self._shape not in ((0, 0), (width, height)):
            self.marked, self._seen = None, 0
        self._shape = (width, height)
        parts = self.body.split("\n") if self.body else []
        body = [piece for part in parts for piece in wrap(part.expandtabs(4), width - 5)]
        title, foot = wrap(self.title, width - 3), self._foot(width, now)
        room = height - len(title) - len(foot)
        room -= len(body) > room  # the line that says how much there is
        self.is_too_small = width < NARROWEST or room < min(1, len(body))
        if self.is_too_small:
            self.marked, self._seen = None, 0
            told = wrap(TOO_SMALL, max(1, width))[: max(1, height)]
            return [Text(fits(piece, width), style="bold yellow") for piece in told]
        self._room, self._n_lines = room, len(body)
        self._top = max(0, min(self._top, len(body) - room))
        self._seen = max(self._seen, self._top + room) if self._top <= self._seen else self._seen
        out = [
            Text(f" {'?' if n == 0 else ' '} {piece}", style="bold yellow")
            for n, piece in enumerate(title)
        ]
        out += [Text(f"    {piece}") for piece in body[self._top : self._top + room]]
        if len(body) > room:
            last = min(len(body), self._top + room)
            out.append(
                Text(f"    lines {self._top + 1} to {last} of {len(body)}: PgUp PgDn", style="dim")
            )
        out += foot
        return [
            Text.assemble((fits(line.plain, width), line.style)) if line.cell_len > width else line
            for line in out
        ]

    def _foot(self, width: int, now: float) -> list[Text]:
        if self.editor is not None:
            hint = "↵ send   esc later" if self.is_ready(now) else ""
            return [typed(self.editor, width), Text(f"   {hint}", style="dim")]
        out = []
        for n, choice in enumerate(self.choices):
            is_marked = n == self.marked
            for m, piece in enumerate(wrap(choice.label, width - 5)):
                lead = f" {'▸' if is_marked else ' '} {choice.key} " if m == 0 else "     "
                out.append(Text(lead + piece, style="bold" if is_marked else ""))
        return [*out, Text(f"   {self._hint or self._next(now)}", style="dim")]

    def _next(self, now: float) -> str:
        if not self.is_ready(now):
            return ""
        if self.marked is None:
            return "Choose, then press ↵. Nothing is decided yet.   esc later"
        if now - self._marked_at < MARK_SECONDS:
            return ""
        return f"Press ↵ {self.choices[self.marked].does}.   esc later"


def typed(editor: Editor, width: int) -> Text:
    """The line that is being written, with its cursor; of a long one the part around it."""
    before, after = editor.text[: editor.at], editor.text[editor.at :] + " "
    room = max(4, width - 5)
    out = Text(" > ", style="bold")
    out.append(before[-(room - min(len(after), room // 3)) :])
    out.append(after[0], style="reverse")
    out.append(after[1 : room // 3])
    return out
