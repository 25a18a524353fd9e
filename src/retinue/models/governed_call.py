"""One call under a governor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.errors import ModelError

if TYPE_CHECKING:
    from retinue.models.governor import Governor


class GovernedCall(Struct, eq=False):
    """One call. `async with` it: entering waits for the turn, leaving says how it went. `asked` is
    how long the provider wants to be left alone, `status` what it answered with (0 until then)."""

    governor: Governor
    tree: str
    tokens: int
    at: float = 0.0
    asked: float = 0.0
    status: int = 0
    answered_at: float | None = None
    is_heard: bool = False

    def cost(self, bucket: str) -> float:
        """What it takes out of a bucket. How much it will say is not known: there the bucket must
        not be empty."""
        is_one = bucket.endswith("requests") or bucket == "output-tokens"
        return 1.0 if is_one else float(max(1, self.tokens))

    async def __aenter__(self) -> GovernedCall:
        if not self.begin():
            await self.wait()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)

    def begin(self) -> bool:
        """Whether no one has to be waited for: then the turn has begun."""
        return self.governor._goes_in(self)

    async def wait(self) -> None:
        await self.governor._enter(self.tree, self)

    def end(self, error: BaseException | None = None) -> None:
        if error is None:
            self.governor._worked(self)
        elif isinstance(error, ModelError):
            self.governor._failed(self, error)
        else:
            self.governor._left(self)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun; its headers tell what is left of the account's limits."""
        self.status = status
        self.governor._answered(self, status, headers)
