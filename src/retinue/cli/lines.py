"""The plainest view: one line on stderr for each change of state, and questions where somebody can answer them."""

from __future__ import annotations

import sys

from retinue.cli import wire, words
from retinue.cli.door import Door, note
from retinue.cli.facts import ending, word
from retinue.cli.watching import Notice, Watching
from retinue.core.state import Asking, Waiting, Working
from retinue.store.base import Row


def watch(watching: Watching, door: Door, *, can_answer: bool = False) -> wire.Final:
    """Show a run until it has ended."""
    last: dict[str, str] = {}
    while True:
        thing = watching.next()
        if isinstance(thing, wire.Final):
            return thing
        if isinstance(thing, Notice):
            note(f"retinue: {thing.text}")
        elif isinstance(thing, wire.Stood):
            row = thing.row
            if last.get(row.spec.id) != (now := word(row)):
                last[row.spec.id] = now
                door.say(describe(row))
            if can_answer and now == "needs_input":
                _ask(watching, row)


def describe(row: Row) -> str:
    """One line about how a run stands."""
    order, state, end = row.spec.order, word(row), ending(row)
    label = words.agent(order.label or order.agent)
    about = words.line((end.error or end.text) if end is not None else order.task, 80)
    indent = "  " * row.spec.depth
    return f"{indent}{words.glyph(state)} {label} {words.short(row.spec.id)} {words.shown(state)}: {about}"


def _ask(watching: Watching, row: Row) -> None:
    state = row.run.state
    calls = state.calls if isinstance(state, (Asking, Waiting, Working)) else None
    for question in calls.questions if calls is not None else ():
        permission = question.kind == "permission"
        choices = " [y]es, [a]lways, [n]o: " if permission else " "
        sys.stderr.write(f"? {words.line(question.text, 1_000)}{choices}")
        sys.stderr.flush()
        said = sys.stdin.readline().strip()
        if not permission:
            watching.answer(row.spec.id, question=question.id, text=said)
            continue
        allow = said.lower() in ("y", "yes", "a", "always")
        watching.answer(
            row.spec.id,
            question=question.id,
            allow=allow,
            always=said.lower() in ("a", "always"),
            text="" if allow or said.lower() in ("n", "no", "") else said,
        )
