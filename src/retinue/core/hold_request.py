"""What a call asks of the ledger, and what that says to it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from retinue.core.state import NOTHING, Amounts


class HoldRequest(NamedTuple):
    """What a call may cost at most, and what the owner of a limit must be able to pay after it.
    With `is_last` it is that last one: it may touch its owner's reserve. `asked` is the amount
    about which a person was asked: who stands in line with it waits for the answer, not only for
    others."""

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
