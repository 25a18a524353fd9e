"""Runs that wait for their provider, or at a limit: what for, what to do next, and whether anything
of a tree still moves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from retinue.formats.safe_text import one_line
from retinue.host.provider_waits import NO_KEY, key_names, provider_of
from retinue.view.format import with_exit

if TYPE_CHECKING:
    from retinue.core.state import RunRecord
    from retinue.host.provider_waits import ProviderWait


LIMITS = ("tokens", "usd", "turns", "calls")


def raise_it(run: str, lack: str, more: int) -> str:
    """The command that adds to a limit, by the amount that is short; `more` is in nano-dollars
    where it is dollars."""
    much = f"{-(-more // 10_000_000) / 100:.2f}" if lack == "usd" else str(more)
    return f"retinue budget {run} --add-{lack} {much}"


def provider_advice(wait: ProviderWait, waits_for: str, model: str, run: str, now: int) -> str:
    """What a run waits for at its provider, and what the user can do about it."""
    if wait.kind in ("auth", "quota"):
        return advice(wait.kind, waits_for, model, run)
    ask = " Is the server running?" if wait.is_refused else ""
    retry = f"The run tries again by itself; to try now: retinue resume {run}"
    return f"{wait.sentence(now)}.{ask} {retry}"


def refusal_lines(wait: ProviderWait, waits_for: str, run: str, code: int) -> tuple[str, str]:
    """That a provider refuses the account of a run, and what to do: for who watched it."""
    keys = key_names(wait.provider) or "the API key"
    fix = f"  Check {keys}, then continue: retinue resume {run}"
    if wait.kind == "quota":
        fix = f"  Top up the account, or set another key ({keys}), then: retinue resume {run}"
    return with_exit(f"✗ failed: {one_line(refusal(waits_for), 300)}", code), fix


def refusal(waits_for: str) -> str:
    """Why a provider refuses an account, for a person: without the kind that JSON has before it."""
    return re.sub("^(auth|quota): ", "", waits_for).rstrip(".")


def advice(kind: str, waits_for: str, model: str, run: str, more: int = 0) -> str:
    """What a run waits for, and what the user can do about it. At a limit, `run` is the one whose
    budget it is, and `more` what would be enough."""
    if kind in LIMITS:
        return f"{waits_for} {raise_it(run, kind, more)}, or --land, or --end"
    why = waits_for.rstrip(".")
    if kind == NO_KEY:
        return f"{why}, then run `retinue resume {run}`."
    if kind in ("auth", "quota"):
        fix = "Set another API key"
        if kind == "quota":
            fix = "Top up the account, or set the key of another"
        return f"{refusal(why)}. {fix} ({_names(model)}), then run `retinue resume {run}`."
    return f"{why}. The run retries by itself; to retry now, run `retinue resume {run}`."


def _names(model: str) -> str:
    keys = filter(None, (key_names(provider_of(link.strip())) for link in model.split("|")))
    return " or ".join(dict.fromkeys(keys)) or "in the environment"


def refused(rows: Iterable[RunRecord]) -> RunRecord | None:
    """The first run of a tree that waits because its account is refused, when nothing else of the
    tree moves."""
    from retinue.core.state import Asking, Thinking, Working, account_refusal

    first = None
    for row in rows:
        if account_refusal(row.run):
            first = first or row
        elif isinstance(row.run.state, (Asking, Thinking, Working)):
            return None
    return first


def at_limit(rows: Iterable[RunRecord]) -> RunRecord | None:
    """The first run of a tree that waits for an answer about a limit, when nothing else of the tree
    moves."""
    from retinue.core.state import Ended, Short, Waiting, calls_of

    first = None
    for row in rows:
        state, calls = row.run.state, calls_of(row.run)
        if isinstance(state, Short):
            first = first or (row if state.asks else None)
        elif not isinstance(state, (Ended, Waiting)) or (
            calls is not None and (calls.waits or calls.woken)
        ):
            return None
    return first
