"""Decides what a client sees. A token that belongs to a user sees that user's runs and what came of
them; everything else looks as if it did not exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.api import Retinue
from retinue.core.state import RunRecord
from retinue.core.values import Delivery, DeliveryState
from retinue.errors import NotFound
from retinue.host.identity import Identity
from retinue.open_questions import OpenQuestion
from retinue.runtime.held_calls import HeldCall


class Visibility:
    """The part of `Host` that tells the runs of one user from those of another."""

    def __init__(self, retinue: Retinue) -> None:
        self._retinue = retinue

    async def check_visible(self, runs: Iterable[str], who: Identity) -> None:
        """Raises `NotFound` for a run of another user, in the words for one that does not exist."""
        for run in runs:
            if not is_visible(await self._retinue.record(run), who):
                raise NotFound(f"Run {run!r} not found.")

    async def check_artifact(self, sha256: str, who: Identity) -> None:
        """Raises `NotFound` for an artifact that no run of this user names, in the words for one
        that does not exist."""
        if who.user and not await self.visible_runs(
            await self._retinue.artifact_roots(sha256), who
        ):
            raise NotFound(f"Artifact {sha256} not found.")

    async def check_delivery(self, key: str, who: Identity) -> None:
        """Raises `NotFound` for an announcement of another user as for one that does not exist."""
        if key not in {d.key for d in await self.visible_deliveries((), who)}:
            raise NotFound(f"Announcement {key!r} not found.")

    async def visible_runs(self, runs: Iterable[str], who: Identity) -> list[str]:
        if not who.user:
            return list(runs)
        return [run for run in runs if is_visible(await self._retinue.record(run), who)]

    async def visible_questions(self, run: str, who: Identity) -> list[OpenQuestion]:
        questions = await self._retinue.open_questions(run)
        roots = set(await self.visible_runs({q.root for q in questions}, who))
        return [q for q in questions if q.root in roots]

    async def visible_held_calls(self, who: Identity) -> tuple[HeldCall, ...]:
        calls = self._retinue.held_calls()
        runs = set(await self.visible_runs({call.run for call in calls}, who))
        return tuple(call for call in calls if call.run in runs)

    async def visible_deliveries(
        self, states: Sequence[DeliveryState], who: Identity
    ) -> list[Delivery]:
        return [
            d
            async for d in self._retinue.deliveries(state=states)
            if not who.user or d.origin.user == who.user
        ]


def is_visible(row: RunRecord, who: Identity) -> bool:
    """Whether a run is one of those that this identity sees."""
    return not who.user or row.spec.origin.user == who.user
