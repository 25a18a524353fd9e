"""The outcome of a run: how it ended, what it cost, and its children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from retinue.core.account import SURE, Account
from retinue.core.provenance import note_about, provenance_text
from retinue.core.state import NOTHING, ByDimension, Ended, Run, RunRecord, ending_of
from retinue.core.type_parameters import RunId, T_co
from retinue.core.values import (
    NANOS_PER_USD,
    Artifact,
    Ending,
    EndState,
    Helpers,
    ModelInfo,
    Usage,
    Who,
)
from retinue.errors import ConfigError, RunFailed
from retinue.formats.money import money
from retinue.pricing import CacheUse, PriceTag, cache_use, price_tag
from retinue.run_info import as_time
from retinue.tools.output_type import convert_output

if TYPE_CHECKING:
    from retinue.agent import Agent


class ChildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One child of a run, and its state: `stop` and `error` say why it ended so. `group` is the
    group of background work that it belongs to."""

    id: RunId[Any]
    label: str
    state: str
    stop: str = ""
    group: str = ""
    agent: str = ""
    error: str = ""


STORED_TIMES = {"created_ms": "created_at", "started_ms": "started_at", "ended_ms": "ended_at"}
"""What times are called in JSON."""


class Outcome(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True, rename=STORED_TIMES):
    """How a run ended, as the runtime saw it. `output` is its typed result (its text, when its
    agent names no type), None unless it completed. `usage` is the run's own, `tree_usage` includes
    everything below it. `meta` is what the program said of the run. `by` is who ended it (`user`,
    `parent`, `limit`, `system`), "" when it ended by itself. `helpers` says on whose work the
    result rests: how many runs were started on all levels below it, and which of them never
    returned. `price_tag` is what its first prompt was expected to cost when it was started; `cache`
    and `tree_cache` are what prompt caches were expected to give to it, and to it and everything
    below it, and gave.

    Calls that were never answered are in it with their bounds: `tree_usage.is_exact` says that
    there are none of them, and `cost_is_known` that there are no `tree_tokens_unpriced`, either. In
    JSON, `tree_usage` is in the fields that begin with `tree_`, and times are milliseconds since
    the epoch."""

    id: RunId[T_co]
    agent: str
    state: EndState
    stop: str
    text: str
    output: T_co | None
    error: str
    artifacts: tuple[Artifact, ...]
    last_tool: str
    usage: Usage
    tree_tokens: int
    tree_usd: float
    tree_turns: int
    tree_calls: int
    model_requested: str
    model_resolved: str
    model_used: str
    children: tuple[ChildInfo, ...]
    created_ms: int
    started_ms: int | None
    ended_ms: int
    by: Who = ""
    helpers: Helpers = Helpers()
    tree_tokens_estimated: int = 0
    tree_usd_estimated: float = 0.0
    cost_is_known: bool = True
    price_tag: PriceTag | None = None
    cache: CacheUse = CacheUse()
    tree_cache: CacheUse = CacheUse()
    tree_output_tokens: int = 0
    meta: dict[str, str] = msgspec.field(default_factory=dict)
    tree_tokens_unpriced: int = 0

    @property
    def created_at(self) -> datetime:
        """When it was requested."""
        return as_time(self.created_ms)

    @property
    def started_at(self) -> datetime | None:
        """When it first worked."""
        return None if self.started_ms is None else as_time(self.started_ms)

    @property
    def ended_at(self) -> datetime:
        return as_time(self.ended_ms)

    @property
    def model(self) -> str:
        """The model that answered last; behind a chain or an alias, the real one."""
        return self.model_used or self.model_resolved

    @property
    def tree_usage(self) -> Usage:
        """What it and everything below it have spent."""
        counted = self.tree_tokens - self.tree_tokens_estimated
        return Usage(
            input=counted - self.tree_output_tokens,
            output=self.tree_output_tokens,
            cache_read=self.tree_cache.read_tokens,
            cache_write=self.tree_cache.written_tokens,
            estimated=self.tree_tokens_estimated,
            nanos=round(self.tree_usd * NANOS_PER_USD),
            nanos_estimated=round(self.tree_usd_estimated * NANOS_PER_USD),
            turns=self.tree_turns,
            calls=self.tree_calls,
        )

    @property
    def missing(self) -> str:
        """The sub-agents that did not return, in one line: `2 of 5 helpers never returned: ...`; ""
        if all did."""
        return provenance_text(self.helpers)

    @property
    def note(self) -> str:
        """The same as the runtime says it to those who read the result, beside its text."""
        return note_about(self.missing)

    @property
    def ok(self) -> bool:
        return self.state == "completed"

    @property
    def cost(self) -> str:
        """What the tree has cost, in words: `$0.18`, `at most $0.18`, `more than $0.18`; `unknown`
        where no price is known, which is not nothing."""
        if not self.tree_tokens_unpriced:
            return money(self.tree_usd, is_bound=bool(self.tree_usd_estimated))
        sure = max(0.0, self.tree_usd - self.tree_usd_estimated)
        return f"more than {money(sure)}" if sure else "unknown"

    def unwrap(self) -> T_co:
        """The typed result; raises `RunFailed`, which carries this outcome, unless the run
        completed."""
        if not self.ok:
            why = self.error or "it has no result"
            rest = " What it had is in error.outcome.text." if self.text else ""
            raise RunFailed(
                f"Run {self.id} of {self.agent!r} is {self.state} ({self.stop}): "
                f"{why.rstrip('.')}.{rest}",
                self,
            )
        return cast("T_co", self.output)


def build_outcome(
    row: RunRecord,
    account: Account | None,
    children: Sequence[RunRecord],
    agent: Agent[Any, Any] | None,
    model: ModelInfo | None,
    output_below: int = 0,
) -> Outcome[Any]:
    """The envelope of an ended run. State and stop reason come from the runtime, never from a
    model's text. `output_below` are the tokens that models wrote in runs below it."""
    spec, run = row.spec, row.run
    assert isinstance(run.state, Ended)
    ending = run.state.ending
    spent = ByDimension(*(account.spent if account is not None else NOTHING))
    guess = account.guess if account is not None else SURE
    return Outcome(
        id=RunId(spec.id),
        agent=spec.request.agent,
        state=ending.state,
        stop=ending.stop,
        text=ending.text,
        output=_typed(agent, ending) if ending.state == "completed" else None,
        error=ending.error,
        artifacts=ending.artifacts,
        last_tool=ending.last_tool,
        usage=run.usage,
        tree_tokens=spent.tokens,
        tree_usd=spent.nanos / NANOS_PER_USD,
        tree_turns=spent.turns,
        tree_calls=spent.calls,
        model_requested=spec.request.model or spec.model,
        model_resolved=(model.resolved if model is not None else "") or spec.model,
        model_used=run.model_used,
        children=tuple(child_info(c) for c in children),
        created_ms=spec.created_at,
        started_ms=run.started_at,
        ended_ms=ending.at,
        by=ending.by,
        helpers=ending.helpers,
        tree_tokens_estimated=guess[0],
        tree_usd_estimated=guess[1] / NANOS_PER_USD,
        cost_is_known=not (guess[1] or guess[2]),
        price_tag=price_tag([spec.tag], is_fork=spec.base is not None)
        if spec.tag is not None
        else None,
        cache=cache_use(run.cache),
        tree_cache=cache_use(account.cache if account is not None else run.cache),
        tree_output_tokens=run.usage.output + output_below,
        meta=spec.meta,
        tree_tokens_unpriced=guess[2],
    )


def _typed(agent: Agent[Any, Any] | None, ending: Ending) -> Any:
    """The submitted result, as the agent's type where this program knows it; else the text."""
    if agent is None or agent.output is None:
        return ending.text if ending.data is None else ending.data
    try:
        return convert_output(agent.output, ending.data)
    except ValueError as error:
        if ending.data is None:
            return ending.text
        raise ConfigError(
            f"Agent {agent.name!r} has another output type than when this run submitted its "
            f"result, which does not match ({error}). Name the agent differently, or read the run "
            "in a program that does not register it."
        ) from None


def missing_note(outcome: Mapping[str, Any], result: str) -> tuple[str, str]:
    """Which sub-agents did not return, of an outcome as JSON, and the note that says so about
    `result`."""
    missing = provenance_text(msgspec.convert(outcome.get("helpers", {}), Helpers))
    return missing, note_about(missing, result)


def child_info(row: RunRecord) -> ChildInfo:
    request, ending = row.spec.request, ending_of(row.run)
    stop = ending.stop if ending else ""
    label = request.label or request.agent
    return ChildInfo(
        id=RunId(row.spec.id),
        label=label,
        state=state_word(row.run),
        stop=stop,
        group=request.shown_group,
        agent=request.agent,
        error=ending.error if ending else "",
    )


def state_word(run: Run) -> str:
    """One word: how it ended, or what it is doing."""
    ending = ending_of(run)
    return ending.state if ending else type(run.state).__name__.lower()
