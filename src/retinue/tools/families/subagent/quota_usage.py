"""What counts against a quota, and against which share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.core.state import RunRecord, Working, ending_of
from retinue.tools.base import Context
from retinue.tools.families.base import reader_of


@dataclass(slots=True)
class QuotaUsage:
    """What is gone. `charges` are tokens by the path of the run they were granted to; what a child
    of a child takes is part of its parent's. `nested`: the calling run lives on such a grant
    itself."""

    executions: int = 0
    first_at: int | None = None
    charges: list[tuple[str, int]] = field(default_factory=list)
    nested: bool = False
    taken: set[int] = field(default_factory=set)

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.charges)

    def below(self, path: str) -> int:
        return sum(tokens for at, tokens in self.charges if at.startswith(f"{path}/"))


async def tree_of(context: Context) -> dict[str, RunRecord]:
    """All runs below the root."""
    out: dict[str, RunRecord] = {}
    todo = [context.spec.root]
    while todo:
        for record in await reader_of(context).children(todo.pop()):
            out[record.spec.id] = record
            if record.run.n_children:
                todo.append(record.spec.id)
    return out


async def turn_of(context: Context, of: Context | None = None) -> Sequence[Message]:
    """The reply that a call is in, and what has come after it."""
    of = of or context
    state = of.row.state
    if not isinstance(state, Working):
        return ()
    calls = state.calls
    span = replace(of.row, start=calls.message, length=of.row.length + calls.count + 1)
    return await reader_of(context).messages(of.spec, span)


def is_answered(context: Context, turn: Sequence[Message]) -> bool:
    """Whether a call is closed: it has a result, or its run has gone on without one."""
    if not turn or not isinstance(turn[0], AssistantMessage):
        return False
    results = [m for m in turn[1:] if isinstance(m, ToolMessage)]
    if len(results) < len(turn) - 1:
        return True
    same = sum(c.id == context.call_id for c in turn[0].calls)
    return sum(r.call_id == context.call_id for r in results) >= same


def askers_of(context: Context, turn: Sequence[Message], tools: tuple[str, ...]) -> set[int]:
    """The calls of the context's turn that may want a part: what is left is divided among them."""
    state = context.row.state
    if not turn or not isinstance(turn[0], AssistantMessage) or not isinstance(state, Working):
        return {context.index}
    running = state.calls.tools
    return {i for i, call in enumerate(turn[0].calls) if call.name in tools and running >> i & 1}


def share_of(context: Context, used: QuotaUsage, tokens: int, parts: int) -> int:
    """An equal part of what is left, also of what the calling run's own budget leaves, as far as it
    can be seen from here."""
    own = context.spec.request.budget.tokens
    if own is not None:
        tokens = min(
            tokens, max(parts, own - context.row.usage.tokens - used.below(context.spec.path))
        )
    return tokens // parts


def policy_of(context: Context) -> str:
    """`equal` cuts a grant to what the calling run really has free, where a plain budget would be
    refused. It divides every amount that has a limit; amounts other than tokens are better drawn
    from one pool."""
    budget = context.spec.request.budget
    return "equal" if (budget.usd, budget.turns, budget.calls) == (None, None, None) else ""


def top_of(id: str, tree: dict[str, RunRecord], ours: set[str]) -> str | None:
    """The highest run of the family at or above a run: the one that got the grant."""
    top = None
    while (record := tree.get(id)) is not None:
        top = id if id in ours else top
        id = record[0].parent
    return top


def charges_of(tree: dict[str, RunRecord], ours: set[str]) -> list[tuple[str, int]]:
    """What each grant has cost: all that was spent on it, or the whole of it while it may still be
    spent."""
    spent: dict[str, int] = {}
    for id, (_, run) in tree.items():
        top = top_of(id, tree, ours)
        if top is not None:
            spent[top] = spent.get(top, 0) + run.usage.tokens
    out = []
    for id, tokens in spent.items():
        spec, run = tree[id]
        granted = 0 if ending_of(run) is not None else spec.request.budget.tokens or 0
        out.append((spec.path, max(tokens, granted)))
    return out
