"""The cost controls: settings as a configuration writes them, the hourly budget of tokens, and
nesting."""

from __future__ import annotations

import asyncio
import tomllib
from typing import Any

import pytest

from retinue import AssistantMessage, Budget, ConfigError, ModelReply, Retinue, Usage
from retinue.core.state import RunRecord
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, VirtualClock, call
from retinue.tools.families.delegate.delegate_family import DelegateFamily
from retinue.tools.families.delegate.delegate_settings import DelegateSettings
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.delegate_world import Recorder, World, background, parallel, pause, task

HOUR = 3_600


def test_the_defaults_are_those_of_the_document() -> None:
    s = family("meepo").settings
    assert (s.max_concurrent_subtasks, s.max_subtasks_per_request, s.max_background_groups) == (
        5,
        10,
        3,
    )
    assert (s.parallel_timeout_secs, s.background_timeout_secs) == (120, 600)
    assert (s.turns_per_task, s.stall_secs) == (10, None)
    assert (s.hourly_token_budget, s.allow_nesting, s.max_depth, s.enabled, s.guide) == (
        None,
        False,
        2,
        True,
        True,
    )


def test_the_family_itself_ends_no_task_by_turns_or_time_but_by_silence() -> None:
    s = DelegateSettings()
    assert (s.turns_per_task, s.parallel_timeout_secs, s.background_timeout_secs) == (
        None,
        None,
        None,
    )
    assert s.stall_secs == 1_800


def test_a_table_of_a_configuration_sets_them_and_the_profile_is_the_family() -> None:
    text = """
    [orchestrator]
    max_concurrent_subtasks = 2
    max_subtasks_per_request = 4
    parallel_timeout_secs = 60
    background_timeout_secs = 300
    max_background_groups = 1
    """
    result = family("meepo", **tomllib.loads(text)["orchestrator"])
    assert isinstance(result, DelegateFamily)
    assert result.settings == DelegateSettings(
        max_concurrent_subtasks=2,
        max_subtasks_per_request=4,
        parallel_timeout_secs=60,
        background_timeout_secs=300,
        max_background_groups=1,
        turns_per_task=10,
        stall_secs=None,
        more_tools=False,
        task_fields=(),
    )
    assert result.tools()[0].schema.parameters["properties"]["tasks"]["maxItems"] == 4


@pytest.mark.parametrize(
    "name",
    [
        "max_concurrent_subtasks",
        "max_subtasks_per_request",
        "parallel_timeout_secs",
        "background_timeout_secs",
        "max_background_groups",
        "hourly_token_budget",
        "max_depth",
    ],
)
@pytest.mark.parametrize("value", [0, -1, "many"])
def test_values_that_make_no_sense_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        family("delegate", **{name: value})


def test_unknown_settings_and_endless_times_are_refused() -> None:
    for name in ("max_clones", "max_turns", "max_iterations"):
        with pytest.raises(ConfigError, match=name):
            family("delegate", **{name: 20})
    for endless in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="positive and finite"):
            DelegateSettings(background_timeout_secs=endless)


# the hour


def spends(tokens: int, seconds: float = 0) -> Any:
    """A sub-agent whose only reply costs that much."""

    async def reply(request: ModelRequest) -> ModelReply:
        await asyncio.sleep(seconds)
        return ModelReply(
            message=AssistantMessage(text="done"), usage=Usage(output=tokens), model=request.model
        )

    return reply


async def rows_of(world: World, **options: Any) -> list[RunRecord]:
    store = MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        await retinue.run(world.lead, "Go.", **options)
        await asyncio.sleep(10 * HOUR)
        return await store.started(0)


def grants(rows: list[RunRecord]) -> list[int | None]:
    return [row.spec.request.budget.tokens for row in rows]


@on_virtual_time
async def test_without_an_hourly_budget_tasks_have_none_of_their_own() -> None:
    assert grants(await rows_of(World([parallel("a"), background("b")]))) == [None, None]


@on_virtual_time
async def test_each_task_is_given_its_share_of_what_is_left_of_the_hour() -> None:
    world = World(
        parallel(task("a", "cheap"), task("b", "cheap")),
        background("c"),
        hourly_token_budget=100_000,
    )
    world.does = {"cheap": spends(1_000)}
    assert grants(await rows_of(world)) == [10_000, 10_000, 9_800], (
        "what was not used is there for the next"
    )


@on_virtual_time
async def test_calls_at_one_moment_do_not_get_the_same_rest() -> None:
    calls = [parallel(*(task(f"{n}{x}", "after 10 say x") for x in "ab")) for n in range(3)]
    world = World(calls, hourly_token_budget=20_000, max_subtasks_per_request=2)
    rows = await rows_of(world)
    assert grants(rows) == [10_000, 10_000]
    refused = "Hourly token budget exhausted: 0 of 20000 tokens left, too few for 2 tasks."
    assert [r.startswith(refused) for r in world.results if not r.startswith("## Results")] == [
        True,
        True,
    ]


@on_virtual_time
async def test_runs_at_one_moment_do_not_get_the_same_rest_nor_do_agents() -> None:
    calls = parallel(*(task(f"t{n}", "after 10 say x") for n in range(5)))
    settings = {"hourly_token_budget": 30_000, "max_subtasks_per_request": 5}
    one, two = World(calls, **settings), World(calls, name="two", **settings)
    store = MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcomes = await asyncio.gather(*(retinue.run(w.lead, "Go.") for w in (one, two, one, two)))
        rows = await store.started(0)
    assert grants(rows) == [6_000] * 5
    assert sorted(o.text[:6] for o in outcomes) == ["## Res", "Hourly", "Hourly", "Hourly"]


@on_virtual_time
async def test_an_open_task_counts_with_its_grant_and_an_ended_one_with_what_it_used() -> None:
    first, c, d = (
        background(task("a", "slow"), task("b", "quick")),
        task("c", "free"),
        task("d", "free"),
    )
    world = World(
        first, pause(10, parallel(c)), pause(200, parallel(d)), hourly_token_budget=40_000
    )
    world.does = {"slow": spends(3_000, 100), "quick": spends(1_000), "free": spends(1)}
    assert grants(await rows_of(world)) == [
        4_000,
        4_000,
        (40_000 - 4_000 - 1_000) // 10,
        (40_000 - 4_000 - 1) // 10,
    ]


@on_virtual_time
async def test_what_was_used_is_free_again_an_hour_after_the_task_has_ended() -> None:
    spend, again = parallel(task("a", "dear")), parallel(task("b", "cheap"))
    settings = {"hourly_token_budget": 20_000, "max_subtasks_per_request": 1}
    world = World(spend, again, pause(HOUR - 1, again), pause(2, again), **settings)
    world.does = {"dear": spends(8_000, 100), "cheap": spends(10)}
    assert grants(await rows_of(world)) == [20_000, 12_000, 11_990, 19_990]


@on_virtual_time
async def test_a_task_too_small_to_be_useful_is_not_started() -> None:
    world = World(parallel("a", "b", "c"), parallel("a", "b"), hourly_token_budget=5_000)
    rows = await rows_of(world)
    assert world.results[0] == (
        "Hourly token budget exhausted: 5000 of 5000 tokens left, too few for 3 tasks. "
        "Do the work yourself, start fewer tasks, or try again later."
    )
    assert grants(rows) == [2_000, 2_000]


@on_virtual_time
async def test_a_task_that_has_used_its_share_ends_as_failed_with_its_text() -> None:
    async def greedy(request: ModelRequest) -> Any:
        if request.purpose == "final":
            return "All I have."
        calls = (call("look_up", word="x"),)
        return ModelReply(
            message=AssistantMessage(text="More.", calls=calls),
            usage=Usage(output=900),
            stop="calls",
            model="m",
        )

    world = World(
        parallel(task("a", "greedy", ["look_up"])),
        does={"greedy": greedy},
        hourly_token_budget=40_000,
    )
    (row,) = await rows_of(world)
    assert world.results[0].endswith(
        "### a (failed)\nError: The token budget of this task is spent\n\nText so far:\nAll I have."
    )
    assert row.run.usage.tokens <= 4_000


@on_virtual_time
async def test_a_share_is_never_more_than_the_lead_can_give() -> None:
    world = World(parallel("a", "b"), hourly_token_budget=1_000_000)
    rows = await rows_of(world, budget=Budget(tokens=60_000))
    assert world.results[0].count("(completed)") == 2
    assert all(g is not None and 15_000 < g < 20_000 for g in grants(rows))
    poor = World(parallel(*(f"t{n}" for n in range(10))), hourly_token_budget=1_000_000)
    assert await rows_of(poor, budget=Budget(tokens=20_000)) == []
    assert (
        poor.results[0].startswith("Your own token budget has 1")
        and "too few for 10 tasks" in poor.results[0]
    )


@on_virtual_time
async def test_the_hour_is_never_overspent_however_calls_fall_together() -> None:
    """Many runs of two agents, for hours: at every start, what is granted and what was used stay
    within the budget."""
    most = 60_000
    does = {f"p{n}": spends(500 + 700 * n, 37 * n) for n in range(6)}

    def lines(k: int) -> list[Any]:
        tasks = [task(f"t{i}", f"p{(i + k) % 6}") for i in range(1 + k % 4)]
        return [
            pause(97 * (k + 1) * (t + 1) % 1_000, (parallel, background)[(t + k) % 2](*tasks))
            for t in range(12)
        ]

    settings = {
        "hourly_token_budget": most,
        "max_subtasks_per_request": 5,
        "max_background_groups": 50,
    }
    worlds = [World(*lines(k), does=does, name=f"lead{k}", **settings) for k in range(5)]
    store = MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        await asyncio.gather(*(retinue.run(w.lead, "Go.") for w in worlds for _ in range(2)))
        await asyncio.sleep(1_000)
        rows = await store.started(0)
    assert len(rows) > 30 and any("exhausted" in r for w in worlds for r in w.results)
    for at in {row.spec.created_at for row in rows}:
        assert sum(counted(row, at) for row in rows if row.spec.created_at <= at) <= most


def counted(row: RunRecord, at: int) -> int:
    ending = row.run.state.ending  # type: ignore[union-attr]
    assert row.spec.request.budget.tokens is not None
    if ending.at > at:
        return row.spec.request.budget.tokens
    return row.run.usage.tokens if ending.at > at - HOUR * 1000 else 0


@on_virtual_time
async def test_a_restart_does_not_refill_the_hour() -> None:
    settings = {"hourly_token_budget": 20_000, "max_subtasks_per_request": 1}
    world = World(background(task("a", "after 300 say x")), pause(10, parallel("b")), **settings)
    store, clock, hook = MemoryStore(), VirtualClock(), {"hook": Recorder()}
    async with Retinue(store, clock=clock, channels=hook) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(5)
    async with Retinue(
        store.survivor(), clock=clock, channels=hook, agents=[world.lead]
    ) as retinue:
        await retinue.wait(run)
    assert world.results[-1].startswith("Hourly token budget exhausted: 0 of 20000")


# nesting


def nested(mode: Any, *levels: str, tools: Any = ("delegate_tasks", "look_up")) -> dict[str, Any]:
    """Sub-agents that each hand their work to the next."""

    def hand(n: int) -> Any:
        async def reply(request: ModelRequest) -> Any:
            if request.turn == 0 and n + 1 < len(levels):
                return mode(task(levels[n + 1], levels[n + 1], tools))
            return f"{levels[n]} read: {request.messages[-1].text}"

        return reply

    return {name: hand(n) for n, name in enumerate(levels)}


@on_virtual_time
async def test_nesting_is_possible_when_it_is_allowed_and_ends_at_its_depth() -> None:
    offered = {}
    for settings in (
        {},
        {"allow_nesting": True},
        {"allow_nesting": True, "max_depth": 3},
        {"max_depth": 3},
    ):
        first = parallel(task("one", "one", ["delegate_tasks", "look_up"]))
        world = World(first, does=nested(parallel, "one", "two", "three", "four"), **settings)
        await world.go()
        offered[str(settings)] = [
            "delegate_tasks" in [t.name for t in world.of(name)[0].tools]
            for name in ("one", "two", "three", "four")
            if world.of(name)
        ]
    assert list(offered.values()) == [[False], [True, False], [True, True, False], [False]]


@on_virtual_time
async def test_the_channel_does_not_hear_of_parallel_calls_further_down() -> None:
    does = nested(parallel, "one", "two")
    world = World(
        parallel(task("one", "one", ["delegate_tasks", "look_up"])), does=does, allow_nesting=True
    )
    channel = Recorder()
    await world.go(channel)
    assert world.of("two") and channel.texts == ["Working on 1 tasks..."]


@on_virtual_time
async def test_a_task_may_nest_only_when_the_tool_is_listed() -> None:
    world = World(
        parallel(task("one", "one", ["look_up"])),
        does=nested(parallel, "one", "two"),
        allow_nesting=True,
    )
    text = await world.go()
    assert [t.name for t in world.of("one")[0].tools] == ["look_up"]
    assert (
        world.of("two") == []
        and "the tool 'delegate_tasks' is not available for this sub-agent" in text
    )


@on_virtual_time
async def test_nothing_comes_back_further_down() -> None:
    """A sub-agent without `write_down` cannot give it to its own."""
    does = nested(parallel, "one", "two", tools=["write_down"])
    world = World(
        parallel(task("one", "one", ["delegate_tasks", "look_up"])), does=does, allow_nesting=True
    )
    assert "was not given 'write_down': unknown tool. Available: look_up" in await world.go()
    assert [t.name for t in world.of("two")[0].tools] == []


@on_virtual_time
async def test_a_nested_task_lives_on_the_share_of_the_one_above_it() -> None:
    settings = {"allow_nesting": True, "hourly_token_budget": 1_000_000}
    for mode in (parallel, background):
        world = World(
            parallel(task("one", "one", ["delegate_tasks", "look_up"])), parallel("x"), **settings
        )
        world.does = nested(mode, "one", "two")
        world.does["two"] = spends(2_000, 30)
        rows = await rows_of(world)
        one, two, x = sorted(rows, key=lambda r: r.spec.created_at)
        assert (one.spec.request.budget.tokens, two.spec.request.budget.tokens) == (100_000, None)
        used = one.run.usage.tokens + two.run.usage.tokens
        assert two.run.usage.tokens == 2_000
        assert x.spec.request.budget.tokens == (1_000_000 - used) // 10, "what both have used, once"


@on_virtual_time
async def test_what_a_nested_task_uses_is_not_counted_beside_the_share_of_the_one_above_it() -> (
    None
):
    async def hand_on(request: ModelRequest) -> Any:
        if request.turn == 0:
            return parallel(task("two", "two"))
        return await asyncio.sleep(100, "late")

    first = background(task("one", "one", ["delegate_tasks"]))
    world = World(
        first, pause(50, parallel("x")), allow_nesting=True, hourly_token_budget=1_000_000
    )
    world.does = {"one": hand_on, "two": spends(2_000)}
    by_label = {row.spec.request.label: row for row in await rows_of(world)}
    assert by_label["two"].run.usage.tokens == 2_000
    assert by_label["x"].spec.request.budget.tokens == (1_000_000 - 100_000) // 10


def test_sub_agents_have_the_tools_of_the_family_only_where_they_may_nest() -> None:
    assert family("delegate").helper_tools() == ()
    assert family("delegate", allow_nesting=True, max_depth=1).helper_tools() == ()
    nesting = family("delegate", allow_nesting=True).helper_tools()
    assert [t.schema.name for t in nesting] == ["delegate_tasks", "cancel_tasks", "list_tasks"]


@on_virtual_time
async def test_a_sub_agent_waits_for_the_background_tasks_that_it_has_started() -> None:
    does = nested(background, "one", "two")
    does["two"] = pause(50, "two is done")
    first = parallel(task("one", "one", ["delegate_tasks", "look_up"]))
    world, channel = World(first, does=does, allow_nesting=True), Recorder()
    text = await world.go(channel)
    assert "two is done" in text, "it has read the news and answered after it"
    assert "'two' completed (1/1)" in channel.texts
