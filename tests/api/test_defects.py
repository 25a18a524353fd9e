"""A mistake of our own in one tree: it is told as what it is, the others do not notice, and a new
start tries again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Defect, Retinue
from retinue.core import machine
from retinue.core.events import Replied
from retinue.runtime.performer import Performer
from retinue.testing import VirtualClock
from tests.api.scripted_agents import STORES, Home, agent, lead_of, on_virtual_time


def plant(monkeypatch: pytest.MonkeyPatch, is_it: Callable[[Any, Any, Any], bool]) -> None:
    real = machine.step  # type: ignore[attr-defined]

    def step(run: Any, event: Any, desk: Any) -> Any:
        if is_it(run, event, desk):
            raise KeyError("planted")
        return real(run, event, desk)

    monkeypatch.setattr(machine, "step", step)


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_defect_in_one_tree_stops_that_tree_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(kind, tmp_path)
    good, bad = agent("good", ["fine"], seconds=5), agent("bad", ["never"], seconds=5)
    with monkeypatch.context() as patch:
        plant(
            patch,
            lambda run, event, desk: isinstance(event, Replied) and desk.request.agent == "bad",
        )
        async with home.open() as retinue:
            lead = await retinue.spawn(lead_of(bad, 2, name="lead of bad"), "Go.")
            others = [await retinue.spawn(good, f"{n}") for n in range(3)]
            with pytest.raises(Defect, match=r"KeyError: 'planted'.*other runs continue"):
                await retinue.wait(lead)
            for run in others:
                outcome = await retinue.wait(run)
                assert outcome is not None and outcome.text == "fine"
            with pytest.raises(Defect):
                await retinue.send(lead, "hello?")
            assert (await retinue.run(good, "one more")).ok
            row = await retinue._store.row(lead)
            assert row is not None and row.run.defect == "KeyError: 'planted'"
            assert not retinue.blocked_reason and await retinue.verify() == []
    async with home.open(agents=[good, bad, lead_of(bad, 2, name="lead of bad")]) as retinue:
        outcome = await retinue.wait(lead)
        assert outcome is not None and outcome.ok
        row = await retinue._store.row(lead)
        assert row is not None and not row.run.defect


@on_virtual_time
async def test_a_defect_while_something_is_begun_is_the_trees_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Performer.perform

    def perform(self: Performer, effect: Any) -> None:
        spec = self._engine.trees.spec(getattr(effect, "run", ""))
        if spec is not None and spec.request.agent == "bad":
            raise RuntimeError("planted")
        real(self, effect)

    monkeypatch.setattr(Performer, "perform", perform)
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("bad", ["never"]), "Go.")
        with pytest.raises(Defect, match="RuntimeError: planted"):
            await retinue.wait(run)
        assert (await retinue.run(agent("good", ["fine"]), "Go.")).text == "fine"
