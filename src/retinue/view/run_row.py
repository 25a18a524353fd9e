"""A row of a view: one agent at work, as plain data."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.state import Question
from retinue.core.values import Value
from retinue.host.provider_waits import ProviderWait
from retinue.view import format as view_format
from retinue.view.state_marks import MARKS


class RunRow(Value):
    """One agent at work, as it is shown. `state` is the common word for it, `mark` how screens show
    it (`state_marks.MARKS`), `now` says what it does. Amounts without `tree_` are its own; a cost
    of None is not known. Times are milliseconds: `idle_ms` since its last step, `silent_ms` the
    same while it should be at work."""

    id: str
    short: str
    root: str
    parent: str
    depth: int
    label: str
    agent: str
    model: str
    state: str
    mark: str
    now: str = ""
    task: str = ""
    started_at: int | None = None
    elapsed_ms: int = 0
    turn: int = 0
    max_turns: int | None = None
    context: int = 0
    window: int = 0
    tokens: int = 0
    tree_tokens: int = 0
    usd: float | None = 0.0
    tree_usd: float | None = 0.0
    estimated: int = 0
    tree_estimated: int = 0
    tree_usd_estimated: float = 0.0
    silent_ms: int = 0
    idle_ms: int = 0
    needs_you: bool = False
    is_over: bool = False
    error: str = ""
    n_children: int = 0
    n_over: int = 0
    is_last: bool = True
    is_writing: bool = False
    questions: tuple[Question, ...] = ()
    wait: ProviderWait | None = None

    @property
    def word(self) -> str:
        return MARKS[self.mark].word

    @property
    def glyph(self) -> str:
        return MARKS[self.mark].glyph

    @property
    def title(self) -> str:
        """The label of a run that a person started: its name, or its task."""
        return self.label if self.label != self.agent else self.task or self.label

    @property
    def is_offline(self) -> bool:
        """Whether no model is asked, so that there is no cost at all."""
        return self.model.startswith("offline/")

    @property
    def own_tokens(self) -> str:
        return view_format.tokens(self.tokens, is_bound=bool(self.estimated), is_short=True)

    @property
    def all_tokens(self) -> str:
        return view_format.tokens(
            self.tree_tokens, is_bound=bool(self.tree_estimated), is_short=True
        )

    @property
    def cost(self) -> str:
        return view_format.money(
            self.tree_usd, is_bound=bool(self.tree_usd_estimated), is_short=True
        )


def as_paused(row: RunRow, lack: str = "") -> RunRow:
    """An open run whose host is gone, or that lacks something: nothing of it moves until it is
    resumed."""
    now = f"host gone: resume {row.short}"
    if lack:
        _, _, key = lack.partition(". Set ")
        now = f"needs {key}" if key else lack
    return replace(row, state="paused", mark="paused", now=now, silent_ms=0)
