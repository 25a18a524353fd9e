"""What a tree of runs came to, in numbers: for the last line on stderr, for results in JSON, for
`show`."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from retinue.core.cache_figures import Cached
from retinue.core.provenance import note_about, provenance_text
from retinue.core.spec import RunSpec
from retinue.core.state import (
    Ended,
    RunRecord,
    Short,
    Thinking,
    account_refusal,
    calls_of,
    ending_of,
)
from retinue.core.values import NANOS_PER_USD, Ending, Usage
from retinue.formats import money as money_words
from retinue.host.listing import cache_json
from retinue.host.provider_waits import ProviderWait, of_run
from retinue.outcomes import state_word
from retinue.pricing import price_tag
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format

OFFLINE = money_words.OFFLINE
STATUS = {"completed": "completed", "cancelled": "stopped"}
"""How a sub-agent ended, in the words of task notifications; everything else has failed."""


def ending(row: RunRecord) -> Ending | None:
    return ending_of(row.run)


def has_ended(row: RunRecord) -> bool:
    return isinstance(row.run.state, Ended)


def refused_account(row: RunRecord) -> str:
    """Why the provider refuses the account of a run, "" when it does not."""
    return account_refusal(row.run)


def says(row: RunRecord) -> str:
    """The last thing that is to be known of a run: how it ended, what it asks, what it waits
    for."""
    end = ending(row)
    if end is not None:
        return end.error if end.state != "completed" else end.text
    calls = calls_of(row.run)
    if calls is not None and calls.questions:
        return "asks: " + calls.questions[0].text
    return waits_for(row) or (row.spec.request.task if row.spec.parent else "")


def missing(row: RunRecord) -> str:
    """Which sub-agents of a result never returned, "" if all did."""
    end = ending(row)
    return provenance_text(end.helpers) if end is not None else ""


def missing_note(row: RunRecord) -> str:
    """The same as the runtime says it to those who read the result."""
    return note_about(missing(row))


def word(row: RunRecord) -> str:
    if limit_of(row) == row.spec.id:
        return "needs_input"
    return "waiting" if waits_for(row) else view_format.shown_state(state_word(row.run))


def provider_wait(row: RunRecord) -> ProviderWait | None:
    """What a run waits for at its provider, as it is on record."""
    return of_run(row.run, row.spec)


def waits_kind(row: RunRecord) -> str:
    state = row.run.state
    if isinstance(state, Short) and state.asks:
        return state.lack
    return state.waits_kind if isinstance(state, Thinking) and state.retry_at is not None else ""


def waits_for(row: RunRecord) -> str:
    """What keeps the provider of a run that waits for it; or what is asked about the limit at which
    it waits."""
    state = row.run.state
    if isinstance(state, Short):
        return state.asks
    return state.waits_for if isinstance(state, Thinking) and state.retry_at is not None else ""


def limit_of(row: RunRecord) -> str:
    """The run about whose limit it waits for an answer, "" for none."""
    state = row.run.state
    return state.account if isinstance(state, Short) and state.asks else ""


def more_of(row: RunRecord) -> int:
    """What would have to be added to the limit at which it waits."""
    return row.run.state.more if isinstance(row.run.state, Short) else 0


def failed(final: TreeRecord) -> int:
    """How many sub-agents did not come to a good end; those that were cancelled on purpose are not
    among them."""
    return sum(word(row) in view_format.FAILURES for row in final.rows[1:])


class TreeSpending(NamedTuple):
    """What a tree has spent; `usd` is None where a price is not known. The estimated parts are in
    it: of these it is only known that they are not more. `is_offline`: no model was called, so
    there is nothing to pay for."""

    tokens: int
    usd: float | None
    tokens_estimated: int = 0
    usd_estimated: float = 0.0
    is_offline: bool = False

    def plus(self, other: TreeSpending) -> TreeSpending:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        tokens = self.tokens_estimated + other.tokens_estimated
        parts = [one for one in (self, other) if one.tokens]
        return TreeSpending(
            self.tokens + other.tokens,
            usd,
            tokens,
            self.usd_estimated + other.usd_estimated,
            bool(parts) and all(one.is_offline for one in parts),
        )

    @property
    def cost_is_known(self) -> bool:
        return self.usd is not None and not self.usd_estimated

    @property
    def words(self) -> tuple[str, ...]:
        """`18.9k tokens` and `$0.12`, or `at most 18.9k tokens` and `at most $0.12`; or that no
        model was called."""
        if self.is_offline:
            return (OFFLINE,)
        money = view_format.money(self.usd, is_bound=bool(self.usd_estimated))
        return (
            f"{view_format.tokens(self.tokens, is_bound=bool(self.tokens_estimated))} tokens",
            money,
        )


def spent(final: TreeRecord) -> TreeSpending:
    """Of the whole tree, those included who are not kept."""
    total, account = tree_usage(final), final.account
    tokens, nanos = account.spent[:2] if account is not None else (total.tokens, total.nanos)
    guess = account.guess[:2] if account is not None else (total.estimated, total.nanos_estimated)
    return TreeSpending(
        tokens,
        nanos / NANOS_PER_USD if final.priced else None,
        guess[0],
        guess[1] / NANOS_PER_USD,
        not nanos and all(is_offline(row) for row in final.rows),
    )


def is_offline(row: RunRecord) -> bool:
    """Whether a run is led by the explorer, which is not a model."""
    return (row.run.model_used or row.spec.model).startswith("offline/")


def tree_usage(final: TreeRecord) -> Usage:
    total = Usage()
    for row in final.rows:
        total = total.plus(row.run.usage)
    return total


def elapsed(row: RunRecord, now: int = 0) -> int:
    """Milliseconds from its start to its end."""
    end = ending(row)
    last = end.at if end is not None else now
    return max(0, last - (row.run.started_at or row.spec.created_at)) if last else 0


def usage_json(usage: Usage) -> dict[str, Any]:
    cached = usage.cache_read + usage.cache_write
    return {
        "input_tokens": max(0, usage.input - cached),
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "estimated_tokens": usage.estimated,
    }


def model_usage(final: TreeRecord) -> dict[str, dict[str, Any]]:
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
            "costIsKnown": u.cost_is_known and (final.priced or u.nanos > 0),
        }
        for name, u in by_model.items()
    }


def subagent_stats(final: TreeRecord) -> dict[str, Any]:
    below = final.rows[1:]
    depth = final.rows[0].spec.depth
    states = Counter(word(row) for row in below)
    killed = Counter(_killer(row) for row in below if word(row) == "cancelled")
    background = sum(row.spec.request.join == "none" for row in below)
    return {
        "spawned": len(below),
        "requested": {"background": background, "foreground": len(below) - background},
        "max_depth": max((row.spec.depth - depth for row in below), default=0),
        "completed": states["completed"],
        "failed": sum(states[name] for name in view_format.FAILURES),
        "killed": {"parent": killed["parent"], "user": killed["user"], "system": killed["system"]},
        "by_type": dict(Counter(view_format.agent_label(row.spec.request.agent) for row in below)),
    }


def _killer(row: RunRecord) -> str:
    """Who ended a run. A limit is the runtime's; so is what an old record does not tell."""
    end = ending(row)
    return end.by if end is not None and end.by in ("parent", "user") else "system"


def tag_json(*specs: RunSpec) -> dict[str, Any] | None:
    """What the first prompts of these runs were expected to cost, together; None if unknown."""
    tags = [spec.tag for spec in specs if spec.tag is not None]
    if not tags:
        return None
    return dict(plain(price_tag(tags, is_fork=all(spec.base is not None for spec in specs))))


def cache_use(cached: Cached) -> dict[str, Any]:
    return cache_json(plain(cached))


def tree_cache(final: TreeRecord) -> Cached:
    """What prompt caches gave to the whole tree, those included that were deleted."""
    return final.account.cache if final.account is not None else final.rows[0].run.cache


def json_text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def plain(value: Any) -> Any:
    """A value as JSON would have it."""
    return msgspec.to_builtins(value)
