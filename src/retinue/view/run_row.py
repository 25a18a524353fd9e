"""A row of a view: one agent at work, as plain data."""

from __future__ import annotations

from retinue.core.state import Question
from retinue.core.values import Value
from retinue.view import format as words


class RunRow(Value):
    """One agent at work, as it is shown. `state` is of the vocabulary of all doors, `word` is that
    for people, `now` says what it does. Amounts without `tree_` are its own; a cost of None is not
    known. Times are milliseconds."""

    id: str
    short: str
    root: str
    parent: str
    depth: int
    label: str
    agent: str
    model: str
    state: str
    word: str
    glyph: str
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
    needs_you: bool = False
    is_over: bool = False
    error: str = ""
    n_children: int = 0
    n_over: int = 0
    is_last: bool = True
    questions: tuple[Question, ...] = ()

    @property
    def own_tokens(self) -> str:
        return words.tokens(self.tokens, is_bound=bool(self.estimated), is_short=True)

    @property
    def all_tokens(self) -> str:
        return words.tokens(self.tree_tokens, is_bound=bool(self.tree_estimated), is_short=True)

    @property
    def cost(self) -> str:
        return words.money(self.tree_usd, is_bound=bool(self.tree_usd_estimated), is_short=True)
