"""What this process may use of an account at a provider. Alone, it may use all of it; where several
processes share one account, something else says how much and when."""

from __future__ import annotations


class AccountShare:
    """Asked by a governor before a call; this one allows everything. Who makes calls wait has the
    governor look again as soon as one may start."""

    why = ""
    """What is waited for, in words; "" when nothing is."""

    def wait(self, tokens: int) -> float:
        """Seconds after which to ask again; 0 when a call of so many tokens may start."""
        return 0.0

    def took(self, tokens: int) -> None:
        """A call has started."""

    def left(self) -> None:
        """A call is over."""

    def cooled(self, seconds: float, why: str) -> None:
        """The provider wants to be left alone for so long."""


ALONE = AccountShare()
