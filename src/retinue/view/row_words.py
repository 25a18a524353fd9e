"""The words behind a state: what a run does now, what it waits for, what it wants, what it came
to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from retinue.core.state import Ended, Queued, Short, Thinking, Waiting
from retinue.core.writer_lines import TURN
from retinue.view import states
from retinue.view.run_node import RunNode, provider_wait
from retinue.view.state_marks import counted, mark

_RUN_ID = re.compile(r"[/:.][0-9a-f]{8}-[0-9a-f-]{27}")
"""Lanes of one tree are named after its first run, which tells a reader nothing."""


def row_words(
    node: RunNode, now: int, nodes: Mapping[str, RunNode], lanes: Mapping[str, int]
) -> str:
    """`lanes` has how many slots of each are taken, as far as this tree is known."""
    run = node.run
    match run.state if run is not None else None:
        case Ended() if node.conflict:
            return node.conflict
        case Ended(ending=ending):
            return states.ending(ending, node.started_at)
        case Queued(lane=lane) if node.state == "queued":
            return _queued(node, lane, lanes)
        case _:
            pass
    if node.state == "needs_input":
        return asks(node)
    if node.state == "cancelling":
        n_open = len(node.children) - node.n_over
        if n_open:
            return f"{n_open} sub-agent{'' if n_open == 1 else 's'}"
        return next(iter(node.calls.values()), "")
    if node.is_gone:
        return ""
    return _doing(node, now, nodes)


def asks(node: RunNode) -> str:
    """What it wants of a person, in its real words."""
    for q in node.questions.values():
        if q.kind == "permission":
            return node.wanted.get(q.index) or states.lowered(q.text.rstrip("?"))
        return f"asks: {q.text}"
    return "asks: " + next(iter(node.asked_of.values()), "")


def _queued(node: RunNode, lane: int, lanes: Mapping[str, int]) -> str:
    mine = node.spec.request.lanes
    if lane == TURN:
        return "for its turn to write files"
    if not 0 <= lane < len(mine):
        return ""
    if mine[lane].is_need:
        return need_words(tuple(one.name for one in mine if one.is_need))
    size = mine[lane].size
    used = min(lanes.get(mine[lane].name, 0), size)
    name = _RUN_ID.sub("", mine[lane].name)
    return f"lane {name}: {used} of {size} busy" if used else f"lane {name}"


def need_words(needs: tuple[str, ...]) -> str:
    """What a run waits for that no machine it was driven on had."""
    return f"for a worker with {', '.join(needs)}"


def _doing(node: RunNode, now: int, nodes: Mapping[str, RunNode]) -> str:
    if (wait := provider_wait(node)) is not None:
        return wait.cell(now)
    if node.questions:
        return "asks its parent: " + next(iter(node.questions.values())).text
    state = node.run.state if node.run is not None else None
    if isinstance(state, Waiting):
        return _waits(node)
    if isinstance(state, Short):
        owner = nodes.get(node.asks_at)
        who = states.label(owner.spec) if owner is not None else "its run"
        return (
            f"at the limit of {who}" if node.asks_at else "for budget that other runs have reserved"
        )
    return last_words(node)


def _waits(node: RunNode) -> str:
    """`for 9 sub-agents: 3 done, 1 failed`."""
    run = node.run
    n = max(len(node.children), run.n_children if run is not None else 0)
    if not n:
        return "for a message"
    if n == 1:
        return f"for {states.label(node.children[0].spec)}" if node.children else "for a sub-agent"
    over = Counter(child.mark for child in node.children if child.is_over)
    parts = [f"{k} {mark(name).word}" for name, k in reversed(counted(over, is_merged=True))]
    return f"for {n} sub-agents" + (f": {', '.join(parts)}" if parts else "")


def last_words(node: RunNode, *, is_held: bool = False) -> str:
    """What it does; with `is_held`, did before its provider was in trouble."""
    calls, last = node.calls, node.last_call
    if is_between_calls(node):
        calls, last = {}, next(reversed(calls.values()), last)
    if calls:
        first = next(iter(calls.values()))
        return f"{first} (+{len(calls) - 1} more)" if len(calls) > 1 else first
    if node.writing.strip():
        return "writes: " + states.tail(node.writing)
    if node.is_taken_up:
        return "resumed after a restart"
    if node.run is None:
        return ""
    if node.tries and not is_held:
        return f"try {node.tries + 1}"
    if node.said:
        return node.said
    return f"after {last}" if last else "reads its task"


def is_between_calls(node: RunNode) -> bool:
    """A call that was refused has no step of its own: the next attempt says that it is closed."""
    state = node.run.state if node.run is not None else None
    return isinstance(state, Thinking) and state.attempt > node.replied
