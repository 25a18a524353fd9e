"""The amounts that a call needed and its budget could not pay."""

from __future__ import annotations

from retinue.core.account import DIMENSIONS
from retinue.core.state import Run
from retinue.core.step_context import StepContext
from retinue.core.values import NANOS_PER_USD
from retinue.formats.money import money


def shortage(run: Run, ctx: StepContext, prompt: int, lack: str) -> str:
    """How much one turn needs, with a prompt of so many tokens, and how much of it there is."""
    i, model = DIMENSIONS.index(lack), ctx.model
    account, rest = ctx.tree.ledger.least(run.id, i)
    whose = "the budget" if account == run.id else "the budget of a run above it"
    if lack == "calls":
        return f"more tool calls are needed; {whose} has {rest} left"
    if lack == "turns":
        return f"one more turn is needed; {whose} has {rest} left"
    reply = ctx.most_output
    parts = f"{prompt:,} for the prompt, {reply:,} for the reply"
    if lack == "tokens":
        return (
            f"one turn needs up to {prompt + reply:,} tokens ({parts}); {whose} has {rest:,} left"
        )
    need = money(model.cost(prompt, reply) / NANOS_PER_USD)
    return (
        f"one turn needs up to {need} ({parts}, in tokens); {whose} has "
        f"{money(rest / NANOS_PER_USD)} left"
    )
