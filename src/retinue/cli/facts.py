"""What a tree of runs came to, in numbers: for the last line on stderr, for results in JSON, for `show`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from retinue.cli import words
from retinue.cli.wire import Final
from retinue.core.state import Ended
from retinue.core.values import NANOS_PER_USD, Ending, Usage
from retinue.outcomes import state_word
from retinue.store.base import Row

STATUS = {"completed": "completed", "cancelled": "stopped"}
"""How a sub-agent ended, in the words of task notifications; everything else has failed."""


def ending(row: Row) -> Ending | None:
    return row.run.state.ending if isinstance(row.run.state, Ended) else None


def word(row: Row) -> str:
    return words.state(state_word(row.run))


def failed(final: Final) -> int:
    """How many sub-agents did not come to a good end; those that were cancelled on purpose are not among them."""
    return sum(word(row) in words.FAILURES for row in final.rows[1:])


def spent(final: Final) -> tuple[int, float | None]:
    """Tokens and dollars of the whole tree; None for the dollars where a price is not known."""
    total = tree_usage(final)
    tokens, nanos = final.account.spent[:2] if final.account is not None else (total.tokens, total.nanos)
    return tokens, nanos / NANOS_PER_USD if final.priced else None


def tree_usage(final: Final) -> Usage:
    total = Usage()
    for row in final.rows:
        total = total.plus(row.run.usage)
    return total


def elapsed(row: Row, now: int = 0) -> int:
    """Milliseconds from its start to its end."""
    end = ending(row)
    last = end.at if end is not None else now
    return max(0, last - (row.run.started_at or row.spec.created_at)) if last else 0


def footer(final: Final) -> str:
    """`done in 5.1s · 8 agents (1 failed) · 18.9k tokens · $0.00 · retinue show 7f3a`."""
    top = final.rows[0]
    end = ending(top)
    tokens, usd = spent(final)
    how = "done" if end is not None and end.state == "completed" else words.shown(word(top))
    if end is not None and end.state != "completed":
        how += f" ({end.stop.replace('_', ' ')})" if end.stop not in (end.state, "") else ""
    n_failed = failed(final)
    agents = f"{len(final.rows)} agent{'s' if len(final.rows) > 1 else ''}"
    parts = [
        f"{how} in {words.span(elapsed(top))}",
        agents + (f" ({n_failed} failed)" if n_failed else ""),
        f"{words.count(tokens)} tokens",
        words.money(usd),
        f"retinue show {words.short(top.spec.id)}",
    ]
    return " · ".join(parts)


def usage_json(usage: Usage) -> dict[str, Any]:
    cached = usage.cache_read + usage.cache_write
    return {
        "input_tokens": max(0, usage.input - cached),
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "estimated_tokens": usage.estimated,
    }


def model_usage(final: Final) -> dict[str, dict[str, Any]]:
    by_model: dict[str, Usage] = {}
    for row in final.rows:
        name = row.run.model_used or row.spec.model
        by_model[name] = by_model.get(name, Usage()).plus(row.run.usage)
    return {
        name: {
            "inputTokens": max(0, u.input - u.cache_read - u.cache_write),
            "outputTokens": u.output,
            "cacheReadInputTokens": u.cache_read,
            "cacheCreationInputTokens": u.cache_write,
            "costUSD": u.usd,
        }
        for name, u in by_model.items()
    }


def subagent_stats(final: Final) -> dict[str, Any]:
    below = final.rows[1:]
    depth = final.rows[0].spec.depth
    states = Counter(word(row) for row in below)
    killed = Counter(_killer(row, final.rows[0].spec.id) for row in below if word(row) == "cancelled")
    background = sum(row.spec.order.join == "none" for row in below)
    return {
        "spawned": len(below),
        "requested": {"background": background, "foreground": len(below) - background},
        "max_depth": max((row.spec.depth - depth for row in below), default=0),
        "completed": states["completed"],
        "failed": sum(states[name] for name in words.FAILURES),
        "killed": {"parent": killed["parent"], "user": killed["user"], "system": killed["system"]},
        "by_type": dict(Counter(words.agent(row.spec.order.agent) for row in below)),
    }


def _killer(row: Row, top: str) -> str:
    end = ending(row)
    said = end.error if end is not None else ""
    return "parent" if "parent" in said else "user" if "user" in said else "system"


def plain(value: Any) -> Any:
    """A value as JSON would have it."""
    return msgspec.to_builtins(value)
