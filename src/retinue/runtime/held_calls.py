"""Model calls that were not sent yet, because their provider gets no calls for a while. Nothing of
this is recorded: it holds while the process looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from retinue.core.values import ProviderTrouble, Value
from retinue.models.base import Progress


class HeldCall(Value):
    """A run whose call waits until `retry_at` (milliseconds since 1970), and why: the kind of the
    failure, and what the provider answered."""

    run: str
    kind: str
    retry_at: int
    trouble: ProviderTrouble | None = None


def held_calls(calls: Iterable[tuple[str, Progress]], now: int) -> Iterator[HeldCall]:
    """Those of these calls, by their runs, that are held."""
    for run, progress in calls:
        if progress.outage is not None and (outage := progress.outage()) is not None:
            yield HeldCall(
                run=run,
                kind=outage.kind,
                retry_at=now + round(outage.seconds * 1000),
                trouble=outage.trouble,
            )
