"""What a call needs reserved in the ledger, and the ledger's answer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from retinue.core.account import Draw
from retinue.core.state import NOTHING, Amounts


class HoldRequest(NamedTuple):
    """What a call may cost at most, and what the owner of a limit must be able to pay after it.
    With `is_last` it is that last one: it may touch its owner's reserve. `asked` is the amount
    about which a person was asked: a run that queues with it waits for the answer, not only for
    other runs."""

    need: Amounts
    last: Amounts = NOTHING
    is_last: bool = False
    asked: str = ""


class Verdict(NamedTuple):
    """`go`; `wait` at this account for this amount; or be `short` of it, because too much is
    spent."""

    word: Literal["go", "wait", "short"]
    account: str = ""
    lack: str = ""


GO = Verdict("go")


def need_at(draw: Draw, ask: HoldRequest, i: int) -> int:
    """What an account must have for a call; the owner of the limit must be able to pay for a last
    turn after it."""
    return ask.need[i] + (ask.last[i] if ask.need[i] and draw.is_own and not ask.is_last else 0)


def place_at(draw: Draw, ask: HoldRequest, ticket: int) -> int:
    """The last turn of a limit's owner takes precedence over all runs that draw from the limit."""
    return 0 if draw.is_own and ask.is_last else ticket
