"""A guest: a client that uses a store under its own name, with its own budget, agent limit,
directories and permissions. What it has started is found again by that name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retinue.mcp.tool_arguments import ToolProblem

if TYPE_CHECKING:
    from retinue.host.requests import RunTerms

PREFIX = "mcp:"
MOST_OPEN = 16
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Guest:
    """What one client may do. `usd` and `tokens` are for all that it ever starts, None for no
    limit; `at_once` of its agents work at the same time, and others wait for their turn; `roots`
    are the directories in which its agents may work, () for the project; `mode` is their permission
    mode; `tools` are all that they have and `families` are how they start others, None for those of
    the project. With `may_approve` the client's model decides on permissions; without, only a
    person does."""

    name: str = ""
    usd: float | None = None
    tokens: int | None = None
    most_open: int = MOST_OPEN
    at_once: int | None = None
    roots: tuple[str, ...] = ()
    mode: str = ""
    tools: tuple[str, ...] | None = None
    families: tuple[str, ...] | None = None
    model: str = ""
    may_approve: bool = False

    @property
    def user(self) -> str:
        """Whose runs they are, for the host."""
        return f"{PREFIX}{self.name or 'client'}"


def guest_name(client: str) -> str:
    """A name for a client that has given none to its guest."""
    return _ODD.sub("-", client).strip("-")[:80] or "client"


@dataclass(frozen=True)
class RunCharge:
    """One run of a guest as its budget sees it: spent, and for an open one its limits as well."""

    is_open: bool
    usd: float
    tokens: int
    usd_limit: float | None = None
    tokens_limit: int | None = None


def shares(
    guest: Guest,
    charges: Iterable[RunCharge],
    n: int,
    usd: float | None,
    tokens: int | None,
) -> tuple[float | None, int | None]:
    """What each of `n` new runs may spend: what is asked for, within what the guest has left. An
    open run counts with all that it may still spend, so that together they never spend more. Raises
    `ToolProblem` when nothing is left."""
    amounts = list(charges)
    n_open = sum(charge.is_open for charge in amounts)
    if n_open + n > guest.most_open:
        raise ToolProblem(
            f"{n_open} agents are open and you may have {guest.most_open}. Wait for some with "
            "result, or cancel some. Nothing was started."
        )
    left_usd = _left(guest.usd, [_taken(c.is_open, c.usd, c.usd_limit) for c in amounts])
    left_tokens = _left(
        guest.tokens, [_taken(c.is_open, c.tokens, c.tokens_limit) for c in amounts]
    )
    share = _share("usd", left_usd, n, usd)
    count = _share("tokens", left_tokens, n, tokens)
    return share, None if count is None else int(count)


def _taken(is_open: bool, spent: float, limit: float | None) -> float:
    return max(spent, limit or 0) if is_open else spent


def _left(limit: float | None, amounts: Iterable[float]) -> float | None:
    return None if limit is None else limit - sum(amounts)


def _share(unit: str, rest: float | None, n: int, amount: float | None) -> float | None:
    if rest is None:
        return amount
    least = 1 if unit == "tokens" else 0.0001
    if rest / n < least:
        raise ToolProblem(
            f"The budget of this client is used up or held by open agents ({unit}). Wait for them "
            "with result, cancel some, or ask the user for a larger budget. Nothing was started."
        )
    return min(rest / n, rest if amount is None else amount)


def work_directory(guest: Guest, directory: str) -> str:
    """Where a run works: "" for the project. Raises `ToolProblem` outside of the guest's roots."""
    if not directory:
        return guest.roots[0] if guest.roots else ""
    base = guest.roots[0] if guest.roots else os.getcwd()
    try:
        path = os.path.realpath(os.path.join(base, os.path.expanduser(directory)))
    except (OSError, ValueError):
        raise ToolProblem("directory: this is not a path. Nothing was started.") from None
    allowed = guest.roots or (os.path.realpath(os.getcwd()),)
    if not any(os.path.commonpath([path, root]) == root for root in allowed):
        raise ToolProblem(
            f"directory: {directory} is outside of where agents may work: {', '.join(allowed)}. "
            "Nothing was started."
        )
    if not os.path.isdir(path):
        raise ToolProblem(f"directory: {directory} is not a directory. Nothing was started.")
    return path


def terms_of(
    guest: Guest,
    directory: str,
    tools: tuple[str, ...] | None,
    *,
    label: str = "",
    **limits: Any,
) -> RunTerms:
    """What a run of this guest may do. Its directories were without links when they were given: the
    host refuses one that has come since. What is asked for stays within the agent's own budget."""
    from retinue.core.values import Budget
    from retinue.host.requests import RunTerms

    return RunTerms(
        label=label,
        cwd=directory,
        follow_links=False,
        budget=Budget(**{name: value for name, value in limits.items() if value is not None}),
        within_agent=True,
        at_once=guest.at_once,
        mode=guest.mode,
        tools=_allowed(guest.tools, tools),
        read=tuple(sorted({*guest.roots, directory} - {""})) if guest.roots else (),
        questions="ask",
    )


def _allowed(
    most: tuple[str, ...] | None, requested: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if most is None or requested is None:
        return requested if most is None else most
    if wrong := [name for name in requested if name not in most]:
        raise ToolProblem(
            f"tools: {', '.join(wrong)} cannot be used here. You can choose from: "
            f"{', '.join(most)}. Nothing was started."
        )
    return requested
