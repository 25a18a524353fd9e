"""The three kinds of question that wait for a person, as three types: words want an answer, calls
and budgets a decision, and a type checker knows which."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, cast

from retinue.core.messages import ToolCall
from retinue.core.type_parameters import RunId
from retinue.core.values import Budget, Value
from retinue.open_questions import OpenQuestion
from retinue.run_info import as_time
from retinue.spending import Spending


class TextQuestion(Value, tag="question", tag_field="kind"):
    """A tool wants an answer in words: `Retinue.answer`. With `choices` the answer is one of them;
    `asked_at` is when its turn began."""

    id: str
    run: RunId[Any]
    root: RunId[Any]
    label: str
    text: str
    tool: str = ""
    choices: tuple[str, ...] = ()
    asked_at: datetime | None = None


class PermissionQuestion(Value, tag="permission", tag_field="kind"):
    """A call wants a yes or a no to exactly these arguments: `Retinue.decide`. `shown` is the call
    as a person should see it, `why` what the agent said with it; `asked_at` is when it was
    made."""

    id: str
    run: RunId[Any]
    root: RunId[Any]
    label: str
    text: str
    call: ToolCall
    risk: str = ""
    shown: str = ""
    why: str = ""
    asked_at: datetime | None = None


class BudgetQuestion(Value, tag="budget", tag_field="kind"):
    """A tree has reached its limit and waits: `Retinue.add_budget`, or `Retinue.decide`.
    `suggested` is what a plain yes adds."""

    id: str
    run: RunId[Any]
    root: RunId[Any]
    label: str
    text: str
    limit: Literal["tokens", "usd", "turns", "calls"]
    spending: Spending
    suggested: Budget


Question = TextQuestion | PermissionQuestion | BudgetQuestion


def typed_question(q: OpenQuestion, spending: Spending | None) -> Question:
    """An open question as its own type."""
    run, root = RunId[Any](q.run), RunId[Any](q.root)
    asked_at = as_time(q.asked_ms) if q.asked_ms else None
    if q.kind == "permission":
        return PermissionQuestion(
            id=q.id,
            run=run,
            root=root,
            label=q.label,
            text=q.text,
            call=q.call,
            risk=q.risk,
            shown=q.shown,
            why=q.why,
            asked_at=asked_at,
        )
    if spending is not None:
        limit = cast(Literal["tokens", "usd", "turns", "calls"], q.limit)
        return BudgetQuestion(
            id=q.id,
            run=run,
            root=root,
            label=q.label,
            text=q.text,
            limit=limit,
            spending=spending,
            suggested=q.suggested,
        )
    return TextQuestion(
        id=q.id,
        run=run,
        root=root,
        label=q.label,
        text=q.text,
        tool=q.tool,
        choices=q.choices,
        asked_at=asked_at,
    )
