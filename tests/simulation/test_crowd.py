"""What is promised about budgets: never one unit over; nobody waits for ever; first come, first
served; and everybody completes as long as what they really cost, the bound of one call and the
owner's last turn fit into the limit."""

from __future__ import annotations

import random

import pytest

from retinue.core.state import Ended
from tests.simulation.crowd import Case, Play, make, set_limits, with_far_limits

DONE = ("completed", "done")


def costed(seed: int, n: int, **fields: object) -> tuple[Case, Play]:
    """A case whose limits just suffice, and how it went when they were out of reach."""
    case = make(seed, n, **fields)  # type: ignore[arg-type]
    with_far_limits(case)
    free = Play(case, seed).run()
    assert set(free.endings().values()) == {DONE}
    set_limits(case, free)
    return case, free


def must_complete(case: Case, free: Play, seed: int) -> Play:
    play = Play(case, seed).run()
    assert play.endings() == free.endings(), f"seed {seed}"
    assert play.shortened() == [], f"seed {seed}: replies were shortened though nothing was spent"
    return play


def over_or_open(play: Play) -> list[str]:
    """Who has spent more than its limit, and who has not ended: nobody."""
    over = [
        account.id
        for account in play.accounts.values()
        if any(
            most is not None and spent > most
            for spent, most in zip(account.spent, account.limit, strict=True)
        )
    ]
    return over + [id for id, run in play.rows.items() if not isinstance(run.state, Ended)]


def shrink(case: Case, seed: int) -> None:
    """Limits that do not suffice, of the root and of everybody with a grant."""
    r = random.Random(seed)
    for node in case.root.all():
        part = r.choice((0.0, 0.3, 0.6, 0.9, 1.0))
        node.limit = {i: int(limit * part) for i, limit in node.limit.items()}


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("grants", ["none", "alike"])
def test_small_trees_complete_when_what_they_cost_fits(grants: str, part: int) -> None:
    for seed in range(part * 150, part * 150 + 150):
        case, free = costed(seed, 1 + seed % 6, grants=grants)
        assert set(must_complete(case, free, seed).endings().values()) == {DONE}


@pytest.mark.parametrize("part", range(4))
def test_small_trees_never_go_over_nor_hang_whatever_their_limits_and_grants(part: int) -> None:
    for seed in range(part * 150, part * 150 + 150):
        case, _ = costed(seed, 1 + seed % 6, grants="mixed")
        assert over_or_open(Play(case, seed).run()) == []
        shrink(case, seed)
        assert over_or_open(Play(case, seed).run()) == []
        assert over_or_open(Play(case, seed, cancels=0.05).run()) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("grants", ["none", "alike"])
def test_a_thousand_children_complete_when_what_they_cost_fits(grants: str, seed: int) -> None:
    case, free = costed(seed, 1_000, grants=grants, depth=0 if seed else 2)
    assert len(must_complete(case, free, seed).waited) > 100


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_children_never_go_over_nor_hang(seed: int) -> None:
    case, _ = costed(seed, 1_000, grants="mixed", depth=0)
    shrink(case, seed)
    assert over_or_open(Play(case, seed, cancels=0.002).run()) == []
