"""Who kills the process is found by halves and quarters; who only stood beside it goes on, whoever
kills the process how often."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest
from msgspec.structs import replace

from retinue.core.state import Run, Suspicion, Waiting
from retinue.core.suspects import WATCH_MS, Trial
from retinue.core.values import Limits
from tests.simulation.trials import BUSY, RULES, KilledProcesses, most_deaths


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1_000, 10_000])
@pytest.mark.parametrize("latency", [0, 900])
def test_the_one_that_kills_is_found_by_parts_and_nobody_else_is(n: int, latency: int) -> None:
    for where in {0, n // 3, n - 1}:
        processes = KilledProcesses(n, {f"r{where:05}": latency})
        while not processes.live():
            assert processes.deaths < 100
        assert processes.quarantined == [f"r{where:05}"]
        assert processes.deaths <= most_deaths(n)
        assert processes.late <= 10_000


@pytest.mark.parametrize("n", [2, 20, 500])
def test_several_that_kill_are_found_one_after_the_other(n: int) -> None:
    killers = {f"r{i:05}": i * 37 % 900 for i in range(0, n, max(1, n // 5))}
    processes = KilledProcesses(n, killers)
    while not processes.live():
        assert processes.deaths < 500
    assert sorted(processes.quarantined) == sorted(killers)


def test_one_that_kills_slowly_is_found_later() -> None:
    processes = KilledProcesses(20, {"r00007": 9 * WATCH_MS})
    while not processes.live():
        assert processes.deaths < 100
    assert processes.quarantined == ["r00007"]


RHYTHMS: dict[str, Callable[[random.Random], int]] = {
    "at once": lambda r: 0,
    "in the first wave": lambda r: WATCH_MS - 1,
    "in the second wave": lambda r: WATCH_MS + WATCH_MS // 2,
    "in the third wave": lambda r: 2 * WATCH_MS + 1,
    "after all of them": lambda r: 60_000,
    "whenever": lambda r: r.randrange(0, 3_000),
    "seldom": lambda r: r.randrange(0, 30_000),
}


@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("n", [1, 20, 500])
def test_a_loop_of_kills_from_outside_puts_nobody_aside(n: int, rhythm: str) -> None:
    processes, chance = KilledProcesses(n), random.Random(f"{n} {rhythm}")
    for _ in range(60):
        processes.live(RHYTHMS[rhythm](chance))
    assert processes.quarantined == []
    assert processes.live()
    assert len(processes.rows) == n


@pytest.mark.parametrize("rhythm", [2_000, 3_000, 7_000])
@pytest.mark.parametrize("is_steady", [True, False])
def test_sixty_kills_hardly_ever_put_one_aside_that_is_always_there(
    rhythm: int, is_steady: bool
) -> None:
    blamed, chance = 0, random.Random(f"{is_steady} {rhythm}")
    for _ in range(200):
        processes = KilledProcesses(1)
        processes.epoch = chance.randrange(1 << 30)  # the hidden times depend on it
        for _ in range(60):
            processes.live(rhythm if is_steady else chance.randrange(rhythm))
        blamed += bool(processes.quarantined)
    assert blamed <= 6  # were it held back for two seconds at most, as many as 21


def test_of_ten_thousand_one_is_found_within_log2_deaths() -> None:
    assert most_deaths(10_000) <= (10_000 - 1).bit_length()


def test_after_three_deaths_all_are_taken_up_within_seconds() -> None:
    processes = KilledProcesses(10_000)
    for fate in (5, 5, 5):
        processes.live(fate)
    assert processes.live()
    assert processes.late <= 3 * WATCH_MS


def held(
    *runs: Run, epoch: int = 5, clean: bool = False, rules: Limits = RULES
) -> tuple[list[Collection[str]], str]:
    trial = Trial(runs, epoch, clean=clean, limits=rules)
    return [sorted(wave) for wave in trial.waves], trial.alone


def busy(id: str, deaths: int = 0, epoch: int = 4, **fields: object) -> Run:
    return Run(
        id=id, state=BUSY, epoch=epoch, suspicion=Suspicion(deaths=deaths) if deaths else None
    )


def test_only_what_was_in_flight_at_every_death_is_suspected() -> None:
    idle = Run(id="idle", state=Waiting(), epoch=4, suspicion=Suspicion(deaths=9))
    assert held(busy("new"), busy("moved"), idle) == ([], "")
    assert held(busy("a", 1), busy("b", 1), busy("new"), idle) == ([["a"], ["b"], []], "")
    assert held(busy("a", 1), busy("b", 1), clean=True) == ([], "")
    assert held(busy("a", 3), busy("b", 1), busy("c", 3), busy("d", 3, epoch=3)) == (
        [["a"], ["c"], ["d"]],
        "",
    )
    assert held(busy("a", 3), busy("b", 3, epoch=2)) == ([[], ["a"], ["b"]], "a")
    assert held(busy("a", 3, epoch=2), busy("b", 3, epoch=2)) == ([["a"], ["b"], []], "")
    assert held(busy("a", 90), rules=Limits(max_deaths=1_000)) == ([], "")


def test_after_four_deaths_they_are_tried_by_quarters() -> None:
    three, four = [busy(id, 2) for id in "abcdefgh"], [busy(id, 3) for id in "abcdefgh"]
    assert held(*three) == ([list("abcd"), list("efgh"), []], "")
    assert held(*four) == ([["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"], []], "")
    assert held(*four[:3]) == ([["a"], ["b"], ["c"], []], "")


def test_a_wave_is_over_when_everybody_in_it_has_moved_on() -> None:
    trial = Trial([busy(id, 1) for id in "abcd"], 5, clean=False, limits=RULES)
    a, b = busy("a", 1), busy("b", 1)
    assert not trial.saw({"a": a, "b": b, "c": replace(a, id="c", suspicion=None)})
    assert not trial.saw({"a": replace(a, suspicion=None)})
    assert trial.holds("c") and not trial.holds("a")
    assert trial.saw({"b": replace(b, suspicion=None)})
    assert trial.go_on() == []
    assert not trial.holds("c")
    assert trial.go_on() == ["c", "d"]
    assert not trial.is_over
    assert trial.go_on() == []
    assert trial.is_over
