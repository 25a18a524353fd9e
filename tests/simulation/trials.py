"""I27: whoever kills its process is found by halves and quarters; whoever only stood beside it goes
on."""

from __future__ import annotations

import math
import random
from itertools import groupby

from msgspec.structs import replace

from retinue.core.events import Recovered
from retinue.core.state import Run, Thinking
from retinue.core.suspects import WATCH_MS, Trial, cleared, is_guilty, weigh
from retinue.core.values import Limits

RULES = Limits()
BUSY = Thinking(attempt=1, purpose="turn", hold=(0, 0, 0, 0), max_output=1)
FOREVER = 1 << 40


def most_deaths(n: int) -> int:
    """How often one of `n` runs may kill its process: two deaths make it a suspect, two more halve
    the suspects, then they are quartered, and whoever is alone is put aside after three."""
    return math.ceil(4 + math.log(max(n / 4, 1), 4)) + RULES.max_deaths


class KilledProcesses:
    """Runs that never make progress, and processes that die with them. `kills` says after how many
    milliseconds of work a run kills its process, `fate` when somebody outside does."""

    def __init__(self, n: int, kills: dict[str, int] | None = None, rules: Limits = RULES) -> None:
        self.rows = {id: Run(id=id, state=BUSY) for id in (f"r{i:05}" for i in range(n))}
        self.kills, self.rules = kills or {}, rules
        self.epoch = self.deaths = 0
        self.quarantined: list[str] = []
        self.wronged: list[str] = []
        """Who was put aside, though its deaths can have been anybody's."""
        self.late = 0
        """After how many milliseconds the last run was taken up."""
        self.hits: list[str] = []
        """For each death: who had just been taken up alone, "" if nobody had."""

    def live(self, fate: int = FOREVER, *, aimed: bool = False) -> bool:
        """One process, from its start to its death; whether it has survived. If it is `aimed`,
        whoever kills it does so right after a run was taken up alone."""
        self.epoch += 1
        trial = Trial(self.rows.values(), self.epoch, clean=self.epoch == 1, limits=self.rules)
        waiting, at, dies = dict.fromkeys(self.rows), 0, fate
        while True:
            entries = [id for id in waiting if not trial.holds(id)]
            for id in entries:
                del waiting[id]
                dies = (
                    min(dies, at + self.kills[id])
                    if self.take_up(id, trial) and id in self.kills
                    else dies
                )
                self.late = at
            if trial.is_over:
                break
            if dies <= at + trial.wait_ms or (aimed and trial.waves[0] == {trial.alone}):
                return self.die(trial.alone if trial.waves[0] == {trial.alone} else "")
            at += trial.wait_ms
            for id in trial.go_on():
                self.rows[id] = replace(self.rows[id], suspicion=cleared(self.rows[id]))
        return dies == FOREVER or self.die()

    def take_up(self, id: str, trial: Trial) -> bool:
        run = self.rows[id]
        event = Recovered(epoch=self.epoch, alone=id == trial.alone, clean=self.epoch == 1)
        if is_guilty(run, event, self.rules):
            self.quarantined.append(id)
            if not self.looks_guilty(id):
                self.wronged.append(id)
            del self.rows[id]
            return False
        self.rows[id] = replace(run, epoch=self.epoch, suspicion=weigh(run, event))
        return True

    def looks_guilty(self, id: str) -> bool:
        """By our own reading: the last deaths came right after it was taken up alone, more of them
        in a row for each time that one did not."""
        streaks = [
            len(list(those))
            for was_hit, those in groupby(self.hits, lambda hit: hit == id)
            if was_hit
        ]
        return (
            bool(streaks)
            and self.hits[-1] == id
            and streaks[-1] >= self.rules.max_deaths + len(streaks) - 1
        )

    def die(self, hit: str = "") -> bool:
        self.deaths += 1
        self.hits.append(hit)
        return False


def check(seed: int) -> str:
    """What goes wrong when one of some runs kills its process, or somebody outside does; "" when
    nothing does."""
    r = random.Random(f"{seed} trial")
    n = r.choice((1, 2, 5, 16, 40, 150))
    if r.random() < 0.5:
        processes, rhythm = (
            KilledProcesses(n),
            r.choice((0, WATCH_MS - 1, WATCH_MS + 1, 2 * WATCH_MS + 1, 3_000, 30_000)),
        )
        is_steady, aims = r.random() < 0.5, r.choice((0.0, 0.6))
        for _ in range(r.choice((3, 12, 60))):
            if r.random() < aims:
                processes.live(aimed=True)
            else:
                processes.live(rhythm if is_steady else r.randrange(rhythm + 1))
        if processes.wronged:
            return f"I27 {processes.wronged} were put aside for what others did"
        # Chance can make an innocent run look guilty; how often, a test of its own counts.
        is_alive, n_left = processes.live(), len(processes.rows) + len(processes.quarantined)
        return (
            ""
            if is_alive and n_left == n and not processes.wronged
            else "I27 not everybody is taken up again"
        )
    killer = f"r{r.randrange(n):05}"
    processes = KilledProcesses(n, {killer: r.choice((0, 10, 900))})
    while not processes.live():
        if processes.deaths > most_deaths(n):
            return f"I27 {processes.deaths} deaths, and {killer} of {n} is not found"
    if processes.quarantined != [killer] or processes.wronged:
        return f"I27 {processes.quarantined} were put aside for {killer}"
    return ""
