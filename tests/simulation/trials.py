"""I27: whoever kills its process is found by halves; whoever only stood beside it goes on."""

from __future__ import annotations

import random

from msgspec.structs import replace

from retinue.core.events import Recovered
from retinue.core.state import Run, Thinking
from retinue.core.suspects import WATCH_MS, Trial, cleared, is_guilty, weigh
from retinue.core.values import Rules

RULES = Rules()
BUSY = Thinking(attempt=1, purpose="turn", hold=(0, 0, 0, 0), max_output=1)
FOREVER = 1 << 40


class House:
    """Runs that never make progress, and processes that die with them. `kills` says after how many milliseconds of work
    a run kills its process, `fate` when somebody outside does."""

    def __init__(self, n: int, kills: dict[str, int] | None = None, rules: Rules = RULES) -> None:
        self.rows = {id: Run(id=id, state=BUSY) for id in (f"r{i:05}" for i in range(n))}
        self.kills, self.rules = kills or {}, rules
        self.epoch = self.deaths = 0
        self.quarantined: list[str] = []
        self.late = 0
        """After how many milliseconds the last run was taken up."""
        self.hits: list[str] = []
        """For each death: who had just been taken up alone, "" if nobody had."""

    def live(self, fate: int = FOREVER) -> bool:
        """One process, from its start to its death; whether it has survived."""
        self.epoch += 1
        trial = Trial(self.rows.values(), self.epoch, clean=self.epoch == 1, rules=self.rules)
        waiting, at, dies = dict.fromkeys(self.rows), 0, fate
        while True:
            taken = [id for id in waiting if not trial.holds(id)]
            for id in taken:
                del waiting[id]
                dies = min(dies, at + self.kills[id]) if self.take_up(id, trial) and id in self.kills else dies
                self.late = at
            if trial.is_over:
                break
            if dies <= at + trial.wait_ms:
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
            del self.rows[id]
            return False
        self.rows[id] = replace(run, epoch=self.epoch, suspicion=weigh(run, event))
        return True

    def die(self, hit: str = "") -> bool:
        self.deaths += 1
        self.hits.append(hit)
        return False


def check(seed: int) -> str:
    """What goes wrong when one of some runs kills its process, or somebody outside does; "" when nothing does."""
    r = random.Random(f"{seed} trial")
    n = r.choice((1, 2, 5, 16, 40))
    if r.random() < 0.5:
        house, rhythm = House(n), r.choice((0, WATCH_MS - 1, WATCH_MS + 1, 2 * WATCH_MS + 1, 3_000, 30_000))
        is_steady = r.random() < 0.5
        for _ in range(r.choice((3, 12, 60))):
            house.live(rhythm if is_steady else r.randrange(rhythm + 1))
            if house.quarantined:
                # By chance a death can come right after one was taken up alone; so often in a row, it looks guilty
                # (how often that is, a test of its own counts).
                if house.hits[-RULES.max_deaths :] != house.quarantined * RULES.max_deaths:
                    return f"I27 {house.quarantined} were put aside, though the process was killed from outside"
                return ""
        return "" if house.live() and len(house.rows) == n else "I27 not everybody is taken up again"
    killer = f"r{r.randrange(n):05}"
    house = House(n, {killer: r.choice((0, 10, 900))})
    while not house.live():
        if house.deaths > 2 + (n - 1).bit_length() + RULES.max_deaths:
            return f"I27 {house.deaths} deaths, and {killer} of {n} is not found"
    return "" if house.quarantined == [killer] else f"I27 {house.quarantined} were put aside for {killer}"
