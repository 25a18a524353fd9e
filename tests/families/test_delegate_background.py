"""Background mode: what is said on the channel, in which order, and how many groups there can
be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Limits, ModelRejected, Origin, Retinue, SpawnLimits
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, VirtualClock, call
from tests.api.scripted_agents import ended, on_virtual_time
from tests.families.delegate_world import (
    GROUP,
    HOOK,
    Recorder,
    World,
    background,
    parallel,
    pause,
    task,
)

LONG = "after 500 say x"


async def hang(request: ModelRequest) -> Any:
    return await asyncio.sleep(100_000)


@on_virtual_time
async def test_the_call_returns_at_once_in_the_words_of_the_document() -> None:
    world = World(background(task("a", LONG), task("b", LONG), task("c", LONG)))
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        assert outcome.ended_ms == outcome.created_ms, (
            "the lead confirms while its tasks are at work"
        )
    (group,) = GROUP.findall(outcome.text)
    assert outcome.text == (
        f"Started task group {group} with 3 tasks. The user will be notified on the original "
        "channel as tasks complete."
    )


@on_virtual_time
async def test_a_group_is_announced_at_its_start_at_each_end_and_at_last_as_a_whole() -> None:
    world, channel = (
        World(
            background(
                task("slow", "after 50 say S"),
                task("bad", "bad"),
                task("quick", "after 10 say Q"),
                task("stuck", "hang"),
            ),
            does={
                "bad": pause(20, ModelRejected("no such page", kind="invalid_request")),
                "hang": hang,
            },
        ),
        Recorder(),
    )
    (group,) = GROUP.findall(await world.go(channel))
    assert channel.texts == [
        f"Started task group {group} with 4 tasks: 'slow', 'bad', 'quick', 'stuck'",
        "'quick' completed (1/4)",
        "'bad' failed (2/4): no such page",
        "'slow' completed (3/4)",
        "'stuck' timed_out (4/4)",
        f"All 4 tasks of group {group} have reported.\n\n"
        "## Results\n\n"
        "### slow (completed)\nS\n\n"
        "### bad (failed)\nError: no such page\n\n"
        "### quick (completed)\nQ\n\n"
        "### stuck (timed_out)\nSub-task timed out",
    ]
    start = channel.at[channel.texts[0]]
    assert [round(channel.at[t] - start) for t in channel.texts] == [0, 10, 20, 50, 600, 600], (
        "nothing is held back"
    )
    assert channel.origins == {HOOK}


@on_virtual_time
async def test_a_task_that_reached_a_limit_is_announced_as_failed() -> None:
    async def loop(request: ModelRequest) -> Any:
        return call("look_up", word="x")

    world, channel = (
        World(background(task("a", "loop", ["look_up"])), does={"loop": loop}),
        Recorder(),
    )
    await world.go(channel)
    assert channel.texts[1].startswith("'a' failed (1/1): ")
    assert channel.texts[2].endswith("### a (failed)\nError: Tool loop exceeded maximum iterations")


@on_virtual_time
async def test_the_summary_of_a_group_has_exactly_its_own_tasks_in_the_order_of_the_input() -> None:
    many = [task(f"t{n}", f"after {40 - n} say {n}") for n in range(10)]
    world, channel = (
        World([background(*many), background("other")], background(task("t0", "say again"))),
        Recorder(),
    )
    await world.go(channel)
    first = next(t for t in channel.texts if t.startswith("All 10 tasks"))
    assert [line for line in first.split("\n") if line.startswith("###")] == [
        f"### t{n} (completed)" for n in range(10)
    ]
    assert "other" not in first and "again" not in first


@on_virtual_time
async def test_a_lead_with_a_channel_is_not_told_of_background_tasks_by_mail() -> None:
    world = World(background("a", "b"), pause(60, call("look_up", word="x")), "done")
    await world.go()
    assert [m.text for m in world.requests[-1].messages if "(completed)" in m.text] == []


@on_virtual_time
async def test_without_a_channel_the_lead_is_told_by_mail_so_that_nothing_is_lost() -> None:
    does = {"bad": ModelRejected("no key", kind="auth"), "hang": hang}
    tasks = (task("a", "after 5 say A"), task("b", "bad"), task("c", "hang"))
    world, channel = (
        World(background(*tasks), pause(900, call("look_up", word="x")), "done", does=does),
        Recorder(),
    )
    await world.go(channel, origin=Origin())
    assert channel.texts == []
    assert (
        world.results[0].startswith("Started task group bg-")
        and "on the original channel" not in world.results[0]
    )
    news = "\n".join(m.text for m in world.requests[-1].messages if m.text.startswith("[Result of"))
    assert "### a (completed)\nA" in news
    assert "### b (failed)\nError: no key" in news
    assert "### c (timed_out)\nSub-task timed out" in news


@on_virtual_time
async def test_background_tasks_outlive_their_lead() -> None:
    world, channel = World(background(task("a", LONG))), Recorder()
    async with Retinue(clock=VirtualClock(), channels={"hook": channel}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        assert (outcome.state, [c.state for c in outcome.children]) == ("completed", ["thinking"])
        await asyncio.sleep(1_000)
    assert "'a' completed (1/1)" in channel.texts


@on_virtual_time
async def test_a_group_id_is_bg_and_six_hex_digits_and_no_two_are_the_same() -> None:
    calls = [background(f"t{n}") for n in range(12)]
    world, channel = World(calls, calls, max_background_groups=100), Recorder()
    await world.go(channel)
    groups = [GROUP.search(r) for r in world.results]
    assert None not in groups and len({g[0] for g in groups if g}) == 24
    assert all(r.split()[3] == g[0] for r, g in zip(world.results, groups, strict=True) if g)


@on_virtual_time
async def test_group_ids_that_would_be_the_same_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six digits are few: when all names begin alike, the next one is taken."""
    path = "retinue.tools.families.delegate.delegate_tasks.digest"
    monkeypatch.setattr(path, lambda *parts: f"{parts[-1]:06x}")
    world, channel = World([background("a"), background("b")], background("c")), Recorder()
    await world.go(channel)
    assert [GROUP.findall(r)[0] for r in world.results] == ["bg-000000", "bg-000001", "bg-000002"]
    assert sum(t.startswith("All 1 tasks") for t in channel.texts) == 3


TOO_MANY = "Too many background task groups running: 3 (max 3)"


@on_virtual_time
async def test_of_twenty_groups_in_one_turn_exactly_three_are_started() -> None:
    world, channel = World([background(task(f"t{n}", LONG)) for n in range(20)]), Recorder()
    async with Retinue(clock=VirtualClock(), channels={"hook": channel}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        assert len(outcome.children) == 3
    assert (
        sorted(r if r == TOO_MANY else "started" for r in world.results)
        == [TOO_MANY] * 17 + ["started"] * 3
    )


@on_virtual_time
async def test_of_twenty_groups_over_twenty_turns_exactly_three_are_started() -> None:
    world = World(*(background(task(f"t{n}", LONG)) for n in range(20)))
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        assert len(outcome.children) == 3
    assert [r == TOO_MANY for r in world.results] == [False] * 3 + [True] * 17


@on_virtual_time
async def test_of_twenty_groups_from_twenty_runs_at_one_moment_exactly_three_are_started() -> None:
    world, store = World(background(task("a", LONG), task("b", LONG))), MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcomes = await asyncio.gather(*(retinue.run(world.lead, "Go.") for _ in range(20)))
        assert len(await store.started(0)) == 6
        await asyncio.sleep(100)
        late = await retinue.run(world.lead, "Go on.")
    assert sorted(o.text == TOO_MANY for o in outcomes) == [False] * 3 + [True] * 17
    assert late.text == TOO_MANY, "a later run of the same agent finds them all taken"


@on_virtual_time
async def test_each_agent_has_groups_of_its_own() -> None:
    world, other = (
        World(background(task("a", LONG)), name=n, max_background_groups=1)
        for n in ("lead", "other")
    )
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        texts = [(await retinue.run(w.lead, "Go.")).text for w in (world, other, world)]
    assert [t.startswith("Started") for t in texts] == [True, True, False]


@pytest.mark.parametrize("how", ["completed", "failed", "timed_out", "cancelled", "incomplete"])
@on_virtual_time
async def test_a_place_for_a_group_is_free_again_however_the_group_ends(how: str) -> None:
    does = {"failed": ModelRejected("no"), "timed_out": hang, "cancelled": hang, "completed": "x"}
    does["incomplete"] = lambda q: asyncio.sleep(0, call("look_up", word="x"))
    cancel = (
        call("cancel_tasks", task_ids=["b"]) if how == "cancelled" else call("look_up", word="x")
    )
    world = World(
        background(task("a", "say a"), task("b", how, ["look_up"])),
        background("c"),
        pause(1, cancel),
        pause(700, background("d")),
        does=does,
        max_background_groups=1,
    )
    await world.go()
    if how in ("timed_out", "cancelled"):
        assert world.results[1] == "Too many background task groups running: 1 (max 1)"
    assert world.results[-1].startswith("Started task group")


@on_virtual_time
async def test_a_group_holds_its_place_until_its_last_task_has_ended() -> None:
    first = background(task("a", "say a"), task("b", "after 50 say b"))
    world = World(
        first, pause(40, background("c")), pause(20, background("d")), max_background_groups=1
    )
    await world.go()
    assert [r.startswith("Started") for r in world.results] == [True, False, True]


@on_virtual_time
async def test_parallel_calls_take_no_place_of_a_group() -> None:
    world = World(
        [background(task("a", LONG)), parallel("b"), parallel("c")],
        parallel("d"),
        max_background_groups=1,
    )
    await world.go()
    assert [r.startswith(("Started", "## Results")) for r in world.results] == [True] * 4


@on_virtual_time
async def test_a_refused_group_says_nothing_on_the_channel() -> None:
    world, channel = (
        World([background(task("a", LONG)), background("b")], max_background_groups=1),
        Recorder(),
    )
    await world.go(channel)
    assert sum("Started" in t for t in channel.texts) == 1 and not any(
        "'b'" in t for t in channel.texts
    )


NARROW = Limits(spawn_limits=SpawnLimits(children=1))
"""With it the machine refuses a group of two to which the tool has said yes."""


@on_virtual_time
async def test_a_group_that_the_machine_refused_keeps_no_place_from_its_lead() -> None:
    world = World(background("a", "b"), background("c"), max_background_groups=1)
    await world.go(rules=NARROW)
    assert "Cannot start 2 more children: 0 are running and the limit is 1" in world.results[0]
    assert world.results[1].startswith("Started")


@on_virtual_time
async def test_a_group_that_the_machine_refused_keeps_no_place_from_others_for_long() -> None:
    world = World(background("a", "b"), max_background_groups=1)
    async with Retinue(
        clock=VirtualClock(), channels={"hook": Recorder()}, limits=NARROW
    ) as retinue:
        await retinue.run(world.lead, "Go.")
        world.lines = (background("c"),)
        await asyncio.sleep(61)
        assert (await retinue.run(world.lead, "Go.")).text.startswith("Started")


@on_virtual_time
async def test_a_place_is_free_for_another_run_as_soon_as_the_group_has_ended() -> None:
    world = World(background(task("a", "after 5 say a")), max_background_groups=1)
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        texts = []
        for seconds in (4, 2, 0):
            texts.append((await retinue.run(world.lead, "Go.")).text)
            await asyncio.sleep(seconds)
    assert [t.startswith("Started") for t in texts] == [True, False, True]


@on_virtual_time
async def test_the_machine_is_told_the_limits_too() -> None:
    world, store = World([background("a"), parallel("b")]), MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        await retinue.run(world.lead, "Go.")
        rows = {row.spec.request.label: row.spec.request for row in await store.started(0)}
    assert rows["a"].limits == SpawnLimits(per_call=10, groups=3) and rows[
        "b"
    ].limits == SpawnLimits(per_call=10)
    assert (rows["a"].group_kind, rows["a"].group_size, rows["b"].group) == ("delegate", 1, "")


@on_virtual_time
async def test_a_lead_that_is_cancelled_takes_its_groups_along_and_they_are_silent() -> None:
    world, channel = World(background(task("a", LONG), task("b", LONG)), hang), Recorder()
    async with Retinue(clock=VirtualClock(), channels={"hook": channel}) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(10)
        await retinue.cancel(run)
        assert (await ended(retinue, run)).state == "cancelled"
        await asyncio.sleep(10)
    assert len(channel.texts) == 1, "that they were started"


def test_on_a_real_file_and_a_real_clock_exactly_three_are_started_too(tmp_path: Path) -> None:
    world = World(background(task("a", "hang"), task("b", "hang")), does={"hang": hang})

    async def main() -> list[str]:
        async with Retinue(tmp_path / "log.db", channels={"hook": Recorder()}) as retinue:
            outcomes = await asyncio.gather(*(retinue.run(world.lead, "Go.") for _ in range(20)))
            return [o.text for o in outcomes]

    texts = asyncio.run(main())
    assert sorted(t == TOO_MANY for t in texts) == [False] * 3 + [True] * 17
