"""When runs have ended, nothing of them is left in memory but what the store keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sized
from typing import Any

import pytest

from retinue import Origin, Retinue
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Delivery, Limits
from retinue.runtime.timers import SPARE, Timers
from retinue.testing import VirtualClock, call
from tests.api.scripted_agents import agent, hiring, lead_of, on_virtual_time

OURS = (
    "retinue.core",
    "retinue.runtime",
    "retinue.sandbox.open_directories",
    "retinue.tools.toolbox",
    "retinue.api",
)


def sizes(of: object, name: str, numbers: set[int]) -> Iterator[tuple[str, int]]:
    """How many things each collection holds that belongs to the runtime."""
    if id(of) in numbers:
        return
    numbers.add(id(of))
    slots = [s for kind in type(of).__mro__ for s in getattr(kind, "__slots__", ())]
    fields = {**{s: getattr(of, s) for s in slots if hasattr(of, s)}, **getattr(of, "__dict__", {})}
    for field, value in fields.items():
        if (
            isinstance(value, Sized)
            and not isinstance(value, str | bytes)
            and not hasattr(value, "load")
        ):
            yield f"{name}.{field}", len(value)
        if type(value).__module__.startswith(OURS):
            yield from sizes(value, f"{name}.{field}", numbers)


def held(retinue: Retinue) -> dict[str, int]:
    return dict(sizes(retinue._engine, "engine", set()))


class Chat:
    async def send(self, delivery: Delivery) -> None:
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("retention", ["keep", "delete"])
@on_virtual_time
async def test_nothing_is_left_in_memory_when_all_runs_have_ended(retention: str) -> None:
    child = agent("child", ["x"], seconds=1)
    lead = lead_of(
        child, 10, join="none", retention=retention, announce=True, children_on_end="wait"
    )
    script = [call("hire", tasks=["a", "b"]), "done"]
    asker = agent("asker", script, tools=[hiring(child, budget={"turns": 5})], staff=[child])
    async with Retinue(clock=VirtualClock(), channels={"hook": Chat()}) as retinue:

        async def work(n: int) -> dict[str, int]:
            origin = Origin(channel="hook")
            runs = [await retinue.spawn(lead, "Go.", origin=origin) for _ in range(n)]
            runs += [await retinue.spawn(asker, "Go.") for _ in range(n)]
            await asyncio.gather(*map(retinue.wait, runs))
            ended = [await retinue.resume(run) for run in runs[:n]]
            await asyncio.gather(*map(retinue.wait, ended))
            assert await retinue.settle(timeout=30)
            await asyncio.sleep(10)
            return held(retinue)

        first, second = await work(5), await work(100)
    growth = {name: (first[name], n) for name, n in second.items() if n > first[name] + SPARE}
    assert not growth


@on_virtual_time
async def test_a_timer_of_a_run_that_has_ended_is_not_kept() -> None:
    fired: list[str] = []
    loop = asyncio.get_running_loop()
    timers = Timers(lambda: round(loop.time() * 1000), lambda id: 1_000, fired.append)
    for i in range(10_000):
        timers.set(f"r{i}", 24 * 3_600_000)
    timers.set("last", 1_000)
    for i in range(10_000):
        timers.drop(f"r{i}")
    assert len(timers._heap) <= SPARE + 2
    assert list(timers._entry) == ["last"]
    await asyncio.sleep(2)
    assert fired == ["last"]
    timers.close()


def test_what_a_deletion_costs_does_not_grow_with_the_announcements() -> None:
    trees = Trees(Limits())
    tree: Any = Tree("root", trees.shared, trees.index)

    class Counted(dict[str, Delivery]):
        scans = 0

        def values(self) -> Any:
            Counted.scans += 1
            return super().values()

    tree.deliveries = Counted()
    for n in range(100):
        path = f"0/1.0.{n}"
        tree.keep_delivery(Delivery(key=f"k{n}", run=f"r{n}", origin=Origin(), text="x", path=path))
    tree.discard("r1", "0/1.0.1")
    tree.discard("r0", "0")
    assert tree.changes.forgotten == []
    tree.drop_delivery("k1")
    tree.discard("r1", "0/1.0.1")
    assert (tree.changes.forgotten, Counted.scans) == (["r1"], 0)
