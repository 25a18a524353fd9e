"""A tree as recorded, for clients that follow or read it."""

from __future__ import annotations

from retinue.core.account import Account
from retinue.core.state import RunRecord
from retinue.core.values import Value

__all__ = ["RunRecord", "TreeRecord"]


class TreeRecord(Value):
    """A tree as it is on record: the run first, then those below it, parents before children.
    `priced`: whether the price of every model in it is known. `seq` is the log's last position
    then."""

    rows: tuple[RunRecord, ...]
    account: Account | None = None
    priced: bool = True
    seq: int = 0
