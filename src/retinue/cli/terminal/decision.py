"""Asks the user for a decision: shows the whole subject, marks a choice, and takes only Enter as
the answer.

What was typed before the person could have read the request never counts, and neither does what is
pasted. The live view and `top` show the same panel."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from rich.text import Text

from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.keyboard import Editor
from retinue.cli.terminal.typed_answer import MARK_SECONDS, QUIET_SECONDS
from retinue.view.cells import Cells, Line, crop, fits, wrap, wrap_line
from retinue.view.diff_lines import is_change
from retinue.view.request_panel import LABEL, PanelChoice, RequestPanel, panel_lines, title_text

LATER = "later"
OPEN = "open"
"""Everything is to be opened in a pager."""
NARROWEST = 20
PROMPT = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
TOO_SMALL = (
    "◆ The terminal is too small for this request: make it larger. Nothing is decided.   esc later"
)


def yes_or_no(title: str, yes: str, does: str) -> RequestPanel:
    """A question about what a key has asked for."""
    keep = PanelChoice("n", "Keep it as it is", "keeps it as it is")
    return RequestPanel(title=title, choices=(PanelChoice("y", yes, does), keep))


class Decision:
    """One request on a screen. `go` gets the key of the choice and the text written after it;
    leaving the panel decides nothing."""

    def __init__(
        self,
        panel: RequestPanel,
        go: Callable[[str, str], None],
        palette: Palette | None = None,
    ) -> None:
        self.panel, self.go, self._palette = panel, go, palette or Palette()
        self.marked: int | None = None
        self.text = ""
        self.editor: Editor | None = None if panel.choices else Editor()
        self.over = ""
        """How it was decided elsewhere: then it only stays to be read."""
        self.is_too_small = False
        """Whether the last frame had no room for the request."""
        self._hint = ""
        self._top = self._seen = self._room = 0
        self._lines: list[Line] = []
        self._shape = (0, 0)
        self._quiet_since: float | None = None
        self._marked_at = 0.0

    @property
    def choices(self) -> tuple[PanelChoice, ...]:
        return self.panel.choices

    def drawn(self, now: float) -> None:
        """It is on the screen: from now on a person can read it."""
        if self._quiet_since is None:
            self._quiet_since = now

    def is_ready(self, now: float) -> bool:
        return self._quiet_since is not None and now - self._quiet_since >= QUIET_SECONDS

    def renew(self, panel: RequestPanel) -> None:
        """What it is about has changed: nothing that was marked or seen holds for it."""
        self.panel = panel
        self.marked = None
        self._seen = 0
        self._top = 0
        self.editor = None if panel.choices else self.editor
        self._quiet_since = None

    def read_whole(self) -> None:
        """Everything was shown in a pager."""
        self._seen = len(self._lines)

    # keys

    def press(self, key: str, now: float) -> str | None:
        """Take a key that came at `now`. What was decided, `LATER` when it was left, None while it
        is open."""
        if key == "esc" or self.over:
            return LATER
        if not self.is_ready(now):
            if self._quiet_since is not None:  # the user is typing: wait until they have stopped
                self._quiet_since = now
            return None
        self._hint = ""
        if self.is_too_small:
            return None
        if key in ("pgup", "pgdn"):
            self._top += max(1, self._room - 1) * (1 if key == "pgdn" else -1)
        elif self.editor is not None and not self.choices:
            return self._write(self.editor, key)
        elif key == "enter":
            return self._enter(now)
        elif self.editor is not None and key not in ("up", "down"):
            self._reason(self.editor, key, now)
        elif key == "o":
            return OPEN
        elif not key.startswith("paste:"):
            self._mark(key, now)
        return None

    def _write(self, editor: Editor, key: str) -> str | None:
        """An answer in words."""
        if key == "enter":
            self.text = editor.text.strip()
            return self.text or None
        if key != "eof":
            editor.press(key)
        return None

    def _enter(self, now: float) -> str | None:
        if self.marked is None or now - self._marked_at < MARK_SECONDS:
            return None
        choice = self.choices[self.marked]
        self.text = self.editor.text.strip() if self.editor is not None else ""
        return None if choice.key == "0" and not self.text else choice.key

    def _reason(self, editor: Editor, key: str, now: float) -> None:
        """Text behind a marked choice. Letters that follow the mark immediately belong to a word
        that was meant for another program."""
        is_letter = len(key) == 1
        if is_letter and not editor.is_touched and now - self._marked_at < QUIET_SECONDS:
            self._unmark(now)
        elif key != "eof":
            editor.press(key)

    def _unmark(self, now: float) -> None:
        self.marked, self.editor, self._quiet_since = None, None, now

    def _mark(self, key: str, now: float) -> None:
        n, at = len(self.choices), self._named(key)
        if key in ("down", "up"):
            step = 1 if key == "down" else -1
            at = 0 if step > 0 else n - 1
            if self.marked is not None:
                at = max(0, min(n - 1, self.marked + step))
        is_word = self.marked not in (None, at) and now - self._marked_at < QUIET_SECONDS
        if at is None or (len(key) == 1 and is_word):
            if len(key) == 1:  # the user is writing a sentence: wait until they have stopped
                self._unmark(now)
            return
        if self.choices[at].needs_all and self._seen < len(self._lines):
            n_more = len(self._lines) - self._seen
            self._hint = f"Read to the end first: PgDn, {n_more} more lines."
            if key not in ("down", "up") or self.marked is not None:
                return
            at = next(i for i, choice in enumerate(self.choices) if not choice.needs_all)
        text = self.choices[at].text
        self.marked, self._marked_at = at, now
        self.editor = Editor(text) if text is not None else None

    def _named(self, key: str) -> int | None:
        return next((i for i, choice in enumerate(self.choices) if key == choice.key), None)

    # the frame

    def frame(self, width: int, height: int, now: float) -> list[Text]:
        """At most `height` lines of at most `width` cells, all of which are drawn: what is in them
        counts as seen. Another size clears the mark: what was seen has changed. Where there is no
        room nothing can be decided."""
        if self._shape not in ((0, 0), (width, height)):
            self.marked, self._seen = None, 0
            self.editor = None if self.choices else self.editor
        self._shape = (width, height)
        lines = [
            piece for line in panel_lines(self.panel) for piece in wrap_line(line, width - 4, LABEL)
        ]
        self._lines = lines
        title, n_read = self._title(width), self._seen
        foot = self._foot(width, now)
        for _ in range(3):  # the foot says what was not seen, which may need another line
            is_loose = height - len(title) - len(foot) >= len(lines) + 2
            room = height - len(title) - len(foot) - 2 * is_loose
            room -= len(lines) > room  # the line that says how much there is
            self.is_too_small = width < NARROWEST or room < min(1, len(lines))
            if self.is_too_small:
                return self._too_small(width, height)
            self._room = room
            self._top = max(0, min(self._top, len(lines) - room))
            is_next = self._top <= n_read
            self._seen = max(n_read, min(len(lines), self._top + room)) if is_next else n_read
            before, foot = foot, self._foot(width, now)
            if len(foot) <= len(before):
                break
        rows = [[Cells("   "), *line] for line in lines[self._top : self._top + room]]
        gap: list[Line] = [[]] if is_loose and lines else []
        out = [*title, *gap, *rows]
        if len(lines) > room:
            out.append([Cells(fits(f"   {self._more()}", width), "quiet")])
        return [self._palette.text(crop(line, width + 1)) for line in [*out, *gap, *foot]]

    def _too_small(self, width: int, height: int) -> list[Text]:
        self.marked, self._seen = None, 0
        lines = wrap(TOO_SMALL, max(1, width))[: max(1, height)]
        return [self._palette.colored(fits(piece, width), "title") for piece in lines]

    def _title(self, width: int) -> list[Line]:
        parts = wrap(title_text(self.panel), width - 3)
        first: Line = [Cells(" "), Cells("◆", "you"), Cells(f" {parts[0]}", "title")]
        rest: list[Line] = [[Cells(f"   {part}", "title")] for part in parts[1:]]
        news: list[Line] = [[Cells(f"   {self.panel.news}", "held")]] if self.panel.news else []
        return [first, *rest, *news]

    def _more(self) -> str:
        rest = self._lines[min(len(self._lines), self._top + self._room) :]
        if self.panel.is_diff and rest:
            n = sum(is_change(line) for line in rest)
            what = (
                f"{n} more changed lines" if n else f"{len(rest)} more lines, none of them changed"
            )
            return f"{what}: PgDn, or o opens the full diff"
        last = min(len(self._lines), self._top + self._room)
        return f"lines {self._top + 1} to {last} of {len(self._lines)}: PgUp PgDn"

    def _foot(self, width: int, now: float) -> list[Line]:
        if self.over:
            return [[Cells(fits(f" {self.over}", width))], [Cells("   esc close", "quiet")]]
        if not self.choices:
            assert self.editor is not None
            hint = "↵ sends   esc later" if self.is_ready(now) else ""
            return [
                typed(self.editor, width),
                *([Cells(f"   {part}")] for part in wrap(self.panel.untouched, width - 4)),
                [Cells(f"   {hint}", "quiet")],
            ]
        out: list[Line] = []
        for n, choice in enumerate(self.choices):
            out += self._choice(choice, n == self.marked, width)
        last = "esc  Later"
        opens = "o  Open the full diff        " if self.panel.is_diff else ""
        return [
            *out,
            [Cells(f"   {opens}{last}")],
            *([Cells(f"   {part}", "quiet")] for part in wrap(self._next(now), width - 4)),
        ]

    def _choice(self, choice: PanelChoice, is_marked: bool, width: int) -> list[Line]:
        lead, tone = f" {'▸' if is_marked else ' '} {choice.key}  ", "title" if is_marked else ""
        if is_marked and self.editor is not None:
            label = lead + ("Deny: " if choice.key == "n" else f"{choice.label}: ")
            editor_text = typed(self.editor, width - cell_len(label) + 3)[1:]
            return [[Cells(label, tone), *editor_text]]
        label = choice.label
        if choice.counts_unseen and (unseen := self._unseen()):
            label += f" ({unseen} of {self._changes()} lines not seen yet)"
        elif choice.text:
            label += f": {choice.text}"
        parts = wrap(label, width - 6)
        return [[Cells(lead + parts[0], tone)], *([Cells(f"      {p}", tone)] for p in parts[1:])]

    def _changes(self) -> int:
        return sum(is_change(line) for line in self._lines)

    def _unseen(self) -> int:
        return sum(is_change(line) for line in self._lines[self._seen :])

    def _next(self, now: float) -> str:
        if self._hint:
            return self._hint
        if not self.is_ready(now):
            return ""
        if self.marked is None:
            return f"Choose, then press ↵. {self.panel.untouched}"
        if now - self._marked_at < MARK_SECONDS:
            return ""
        does = self.choices[self.marked].does
        if self.editor is not None and self.choices[self.marked].key == "n":
            does += " with this reason" if self.editor.text.strip() else ". Write why, if you like"
        return f"↵ {does}. {self.panel.untouched}"


def typed(editor: Editor, width: int) -> Line:
    """The line that is being written, with its cursor; of a long one the part around it."""
    before, after = editor.text[: editor.at], editor.text[editor.at :] + " "
    room = max(4, width - 5)
    return [
        Cells(PROMPT, "title"),
        Cells(before[-(room - min(len(after), room // 3)) :]),
        Cells(after[0], "cursor"),
        Cells(after[1 : room // 3]),
    ]
