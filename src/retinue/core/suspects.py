"""Finds the run that crashes the process. Only runs that were in flight at every crash since their
last progress may.

After two such deaths the suspects are tried, in waves of one process: first one half of those who
were in flight at the last death, and at the most deaths in a row, then the other half, then those
who were held back when it died. A wave is watched for a while; a run that makes progress, or is
still there when the time is over, is cleared, on record, before the next wave is resumed. So each
crash halves the suspects, whichever half it hits, and one process continues with all of them within
a few waves. After four crashes in a row the cause is hardly outside: then they are tried by
quarters, which takes two waves more and half as many crashes. All other runs are resumed
immediately.

The last suspect is held back first, while the others show that the process works without it, for a
time that cannot be guessed; only a crash right after it was resumed counts against it. It is
quarantined after `max_deaths` of these in a row, and one more for each time that it was cleared. An
outside cause that kills the process hits such a moment one time in eight at best, so that sixty
kills in a row put an innocent run aside in about one of 100 cases, in the worst rhythm there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from retinue.core.events import Recovered
from retinue.core.ids import digest
from retinue.core.state import Ended, Run, Suspicion, Thinking, calls_of
from retinue.core.values import Limits

SUSPECTED_AFTER = 2
QUARTERED_AFTER = 4
WATCH_MS = 1_000
LONGEST = 5
"""The time for which a wave is watched is doubled each time that all of them were cleared, this
often at most: one that kills slowly is found later."""
HIDDEN = 8
"""The last suspect is held back for at most so many times as long as it is watched: the longer, the
less likely it is that an outside cause hits the moment after it was resumed."""
NOTHING = Suspicion()


def is_in_flight(run: Run) -> bool:
    """Whether something of the run is being done in the process, which may die of it."""
    if isinstance(run.state, Thinking):
        return run.state.retry_at is None
    calls = calls_of(run)
    return calls is not None and bool(calls.tools | calls.woken)


def was_there(run: Run, epoch: int) -> bool:
    """Whether the process before this one had taken the run up. (Old rows do not say: then it
    had.)"""
    return run.epoch in (0, epoch - 1)


def weigh(run: Run, event: Recovered) -> Suspicion | None:
    """The suspicion against a run in flight that is resumed, this crash included."""
    past = run.suspicion or NOTHING
    if event.clean:
        suspicion = Suspicion(deaths=past.deaths, alone=past.alone, cleared=past.cleared)
    elif was_there(run, event.epoch):
        alone = past.alone + 1 if past.on_trial else 0
        suspicion = Suspicion(deaths=past.deaths + 1, alone=alone, cleared=past.cleared)
    else:
        # Something else killed that process. If this run was about to be blamed, it takes more to
        # blame it now.
        suspicion = Suspicion(
            deaths=past.deaths, cleared=past.cleared + (past.on_trial or past.alone > 0)
        )
    if event.alone:
        suspicion = Suspicion(
            deaths=suspicion.deaths, alone=suspicion.alone, cleared=suspicion.cleared, on_trial=True
        )
    return None if suspicion == NOTHING else suspicion


def is_guilty(run: Run, event: Recovered, limits: Limits) -> bool:
    suspicion = None if event.clean else weigh(run, event)
    return suspicion is not None and suspicion.alone >= limits.max_deaths + suspicion.cleared


def cleared(run: Run) -> Suspicion | None:
    """It was at work for a while, and the process lived."""
    return None if run.suspicion is None else Suspicion(cleared=run.suspicion.cleared + 1)


class Trial:
    """Whom a new process takes up when. `waves` are what is left of it: the first is watched, the
    others are held."""

    def __init__(self, runs: Iterable[Run], epoch: int, *, clean: bool, limits: Limits) -> None:
        counts: dict[str, int] = {}
        present: set[str] = set()
        often: dict[str, int] = {}
        least = max(SUSPECTED_AFTER, limits.max_deaths - 1)
        for run in () if clean else runs:
            suspicion, is_present = run.suspicion or NOTHING, was_there(run, epoch)
            if not is_in_flight(run) or is_guilty(run, Recovered(epoch=epoch), limits):
                continue
            if suspicion.deaths + is_present >= least:
                counts[run.id] = suspicion.deaths + is_present
                often[run.id] = suspicion.cleared
                if is_present:
                    present.add(run.id)
        most = max((counts[id] for id in present), default=0)
        blamed = sorted(id for id in present if counts[id] == most) if present else sorted(counts)
        others = counts.keys() - present - set(blamed)
        self.alone = blamed[0] if len(blamed) == 1 else ""
        parts = [*_parts(blamed, 2 if most < QUARTERED_AFTER else 4), sorted(others)]
        self.waves: list[set[str]] = [set(part) for part in (parts if counts else ())]
        self.number = 0
        self._watch_ms = WATCH_MS << min(LONGEST, min((often[id] for id in blamed), default=0))
        self._hidden_ms = int(digest(self.alone, epoch)[:8], 16) % (HIDDEN * self._watch_ms)

    @property
    def is_over(self) -> bool:
        return not self.waves

    @property
    def wait_ms(self) -> int:
        """How long the present wave is watched from the moment when all of it is at work."""
        return self._watch_ms + (self._hidden_ms if self.alone and not self.number else 0)

    def holds(self, id: str) -> bool:
        """Whether a run is to be resumed later."""
        return any(id in wave for wave in self.waves[1:])

    def saw(self, runs: Mapping[str, Run]) -> bool:
        """These have changed. Whether the wave is over, because all runs in it have made
        progress."""
        watched = self.waves[0]
        ended = [
            id
            for id in watched & runs.keys()
            if runs[id].suspicion is None or isinstance(runs[id].state, Ended)
        ]
        watched.difference_update(ended)
        return bool(ended) and not watched

    def go_on(self) -> list[str]:
        """The wave is over: who was watched until now, and has lived. The next wave may be
        resumed."""
        self.number += 1
        return sorted(self.waves.pop(0))


def _parts(ids: list[str], n: int) -> list[list[str]]:
    """As many parts of the same size, none of them empty; for a single id, an empty part and that
    one."""
    n = min(n, max(2, len(ids)))
    cuts = [i * len(ids) // n for i in range(n + 1)]
    return [ids[start:stop] for start, stop in pairwise(cuts)]
