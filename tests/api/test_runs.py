"""Starting runs and what is known of them afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Agent,
    ConfigError,
    ModelInfo,
    ModelReply,
    NotFound,
    Refused,
    Retinue,
    RunFailed,
    ToolResult,
    Usage,
    run_sync,
    tool,
)
from retinue.core.messages import AssistantMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import (
    STORES,
    Home,
    agent,
    ended,
    hiring,
    last,
    lead_of,
    on_virtual_time,
    texts,
)

both = pytest.mark.parametrize("kind", STORES)


@on_virtual_time
async def test_a_run_ends_with_what_its_model_said() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", ["Hello."]), "Say hello.")
    assert (outcome.state, outcome.stop, outcome.text, outcome.ok) == (
        "completed",
        "done",
        "Hello.",
        True,
    )
    assert outcome.unwrap() == "Hello."


@on_virtual_time
async def test_a_run_that_fails_is_an_outcome_and_unwrap_raises() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", [ValueError("broken")]), "Try.")
    assert (outcome.state, outcome.ok, outcome.error) == ("failed", False, "ValueError: broken")
    with pytest.raises(RunFailed, match=r"failed .server_error.: ValueError: broken"):
        outcome.unwrap()


@on_virtual_time
async def test_spawn_returns_before_the_run_ends() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["late"], seconds=10), "Go.")
        assert await retinue.outcome(run) is None
        assert (await ended(retinue, run)).text == "late"


@both
@on_virtual_time
async def test_the_same_key_starts_the_same_run_once_before_and_after_a_restart(
    kind: str, tmp_path: Path
) -> None:
    home, text = Home(kind, tmp_path), []

    def script(request: ModelRequest) -> str:
        text.append(request.run)
        return "done"

    one = agent("one", script)
    async with home.open() as retinue:
        first = await retinue.spawn(one, "Go.", key="order 17")
        assert await retinue.spawn(one, "Go.", key="order 17") == first
        await ended(retinue, first)
        assert await retinue.spawn(one, "Go.", key="order 17") == first
        other = await retinue.spawn(one, "Go.", key="order 18")
        await ended(retinue, other)
    async with home.open() as retinue:
        assert await retinue.spawn(one, "Go.", key="order 17") == first
        assert (await ended(retinue, first)).text == "done"
    assert sorted(text) == sorted([first, other])


@on_virtual_time
async def test_one_key_used_by_many_at_once_starts_one_run() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        one = agent("one", ["done"])
        ids = await asyncio.gather(*(retinue.spawn(one, "Go.", key="k") for _ in range(50)))
        assert len(set(ids)) == 1
        assert len([r async for r in retinue.runs()]) == 1


@on_virtual_time
async def test_an_option_that_no_order_has_is_refused_by_name() -> None:
    wrong: dict[str, Any] = {"colour": "red"}
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(
            ConfigError, match=r"spawn\(\) has no option 'colour'\. There are announce, budget"
        ):
            await retinue.spawn(agent("one", ["x"]), "Go.", **wrong)


@on_virtual_time
async def test_a_changed_agent_replaces_the_one_of_its_name_for_new_runs() -> None:
    @tool(quick=True)
    def second() -> str:
        """The second tool."""
        return "2"

    def talk(request: ModelRequest) -> str:
        return " ".join(t.name for t in request.tools) or "no tools"

    model = Scripted(talk, name="m")
    async with Retinue(clock=VirtualClock()) as retinue:
        before = await retinue.run(Agent("one", model=model), "Go.")
        after = await retinue.run(Agent("one", model=model, tools=[second]), "Go.")
        other = await retinue.run(Agent("one", model=Scripted(["y"], name="other")), "Go.")
    assert (before.text, after.text, other.text) == ("no tools", "second artifact", "y")


@on_virtual_time
async def test_two_agents_of_one_name_in_one_family_are_refused() -> None:
    one, other = (agent("one", [x]) for x in "xy")
    with pytest.raises(ConfigError, match="Two different agents are named 'one'"):
        async with Retinue(clock=VirtualClock(), agents=[one, other]):
            pass
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(ConfigError, match="Two different agents are named 'one'"):
            await retinue.run(agent("lead", ["x"], staff=[one, other]), "Go.")


@on_virtual_time
async def test_a_fork_goes_on_from_the_conversation_and_leaves_it_as_it_is() -> None:
    one = agent("one", lambda q: " > ".join(texts(q)))
    async with Retinue(clock=VirtualClock()) as retinue:
        base = await retinue.run(one, "a")
        fork, right = await retinue.fork(base.id, "b"), await retinue.fork(base.id, "c")
        assert (await ended(retinue, fork)).text == "a > a > b"
        assert (await ended(retinue, right)).text == "a > a > c"
        assert [m.text for m in await retinue.messages(base.id)] == ["a", "a"]
        assert [m.text for m in await retinue.messages(fork)] == ["a", "a", "b", "a > a > b"]


@on_virtual_time
async def test_a_fork_of_a_run_at_work_starts_from_its_last_complete_turn() -> None:
    @tool
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(60)
        return "rested"

    def script(request: ModelRequest) -> object:
        return call("rest") if last(request) == "Work." else f"seen: {texts(request)}"

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", script, tools=[rest]), "Work.")
        await asyncio.sleep(10)
        fork = await retinue.fork(run, "What have you seen?")
        assert (await ended(retinue, fork)).text == "seen: ['Work.', 'What have you seen?']"
        assert (await ended(retinue, run)).text == "seen: ['Work.', '', 'rested']"


@on_virtual_time
async def test_a_fork_may_be_given_to_another_agent() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        base = await retinue.run(agent("writer", ["A draft."]), "Write.")
        critic = agent("critic", lambda q: f"On '{texts(q)[-2]}': good.")
        fork = await retinue.fork(base.id, "Judge it.", agent=critic)
        assert (await ended(retinue, fork)).text == "On 'A draft.': good."


@both
@on_virtual_time
async def test_resume_goes_on_in_the_same_conversation(kind: str, tmp_path: Path) -> None:
    home, one = Home(kind, tmp_path), agent("one", lambda q: " > ".join(texts(q)))
    async with home.open() as retinue:
        first = await retinue.run(one, "a")
    async with home.open(agents=[one]) as retinue:
        second = await retinue.resume(first.id, "b")
        assert (await ended(retinue, second)).text == "a > a > b"
        third = await retinue.resume(second)
        assert (await ended(retinue, third)).text == "a > a > b > a > a > b > Continue."
        assert len(await retinue.messages(third)) == 6


@both
@on_virtual_time
async def test_a_run_that_was_cancelled_at_a_tool_can_be_resumed(kind: str, tmp_path: Path) -> None:
    @tool
    async def hang() -> str:
        """Never return."""
        await asyncio.sleep(1_000_000)
        return "never"

    records: list[list[str]] = []

    def script(request: ModelRequest) -> object:
        records.append([f"{type(m).__name__} {m.text}" for m in request.messages])
        return [call("hang"), call("hang")] if len(request.messages) == 1 else "ok"

    async with Home(kind, tmp_path).open() as retinue:
        run = await retinue.spawn(agent("one", script, tools=[hang]), "Go.")
        await asyncio.sleep(1)
        await retinue.cancel(run)
        assert (await ended(retinue, await retinue.resume(run, "Again."))).text == "ok"
    kinds = [line.split()[0] for line in records[-1]]
    names = ["UserMessage", "AssistantMessage", "ToolMessage", "ToolMessage", "UserMessage"]
    assert kinds == names, "each call has a result"
    assert "interrupted" in records[-1][2]


@on_virtual_time
async def test_only_an_ended_run_can_be_resumed() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=5), "Go.")
        with pytest.raises(Refused, match=r"has not ended\. Send it a message instead"):
            await retinue.resume(run)
        with pytest.raises(NotFound, match="Run 'nobody' not found"):
            await retinue.resume("nobody")


@on_virtual_time
async def test_the_envelope_of_an_outcome_tells_own_and_tree_usage_models_children_and_times() -> (
    None
):
    usage = Usage(input=100, output=20, cache_read=5)
    price = {"price_in": 2, "price_out": 10}
    child_model = Scripted(["part"], info=ModelInfo(name="small", **price), usage=usage, delay=2)
    child = Agent("child", model=child_model)
    reply = ModelReply(message=AssistantMessage(text="whole"), usage=usage, model="large-2024")

    def script(request: ModelRequest) -> object:
        return call("hire", tasks=["a", "b"]) if request.turn == 0 else reply

    lead_model = Scripted(script, info=ModelInfo(name="large", **price), usage=usage)
    lead = Agent("lead", model=lead_model, tools=[hiring(child, label="helper")], staff=[child])
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead, "Go.")
        (first, second) = outcome.children
        part = await retinue.outcome(first.id)
    assert (
        outcome.usage.turns,
        outcome.usage.calls,
        outcome.usage.input,
        outcome.usage.output,
    ) == (2, 1, 200, 40)
    assert (outcome.usage.tokens, outcome.usage.cache_read) == (240, 10)
    assert (outcome.tree_tokens, outcome.tree_turns, outcome.tree_calls) == (480, 4, 1)
    assert outcome.tree_usd == pytest.approx(4 * (100 * 2 + 20 * 10) / 1e9)
    assert outcome.usage.usd == pytest.approx(outcome.tree_usd / 2)
    assert (outcome.model_requested, outcome.model_resolved, outcome.model_used) == (
        "large",
        "large",
        "large-2024",
    )
    assert [(c.label, c.state, c.stop) for c in (first, second)] == [
        ("helper", "completed", "done")
    ] * 2
    assert outcome.last_tool == "hire"
    assert outcome.artifacts == ()
    assert outcome.started_ms is not None and outcome.ended_ms - outcome.started_ms == 2_000
    assert part is not None and (part.tree_tokens, part.usage.tokens, part.model_used) == (
        120,
        120,
        "small",
    )


@on_virtual_time
async def test_a_run_can_be_given_another_model_than_its_agent_has() -> None:
    cheap = agent("cheap", ["never"])
    async with Retinue(clock=VirtualClock(), agents=[cheap]) as retinue:
        outcome = await retinue.run(agent("one", ["x"]), "Go.", model="model of cheap")
        assert (outcome.text, outcome.model_resolved) == ("never", "model of cheap")
        with pytest.raises(Refused, match=r"Unknown model 'unknown'. Known: "):
            await retinue.run(cheap, "Go.", model="unknown")


@on_virtual_time
async def test_the_list_hides_children_and_the_newest_run_comes_first() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        lead = lead_of(agent("child", ["part"]), 2)
        first = await retinue.run(lead, "Go.")
        await asyncio.sleep(1)
        second = await retinue.spawn(agent("slow", ["x"], seconds=9), "Go.")
        rows = [r async for r in retinue.runs()]
        assert [(r.id, r.label, r.state) for r in rows] == [
            (second, "slow", "thinking"),
            (first.id, "lead", "completed"),
        ]
        everybody = [r async for r in retinue.runs(children=True)]
        assert len(everybody) == 4
        assert {r.parent for r in everybody if r.label == "child"} == {first.id}
        assert [r.id for r in await retinue.run_page(limit=9, before=second)] == [first.id]
        assert [r.id async for r in retinue.runs(limit=1)] == [second]


@on_virtual_time
async def test_the_tree_shows_every_level() -> None:
    leaf = agent("leaf", ["x"])
    middle = lead_of(leaf, 2, name="middle")
    top = lead_of(middle, 1, name="top", label="the middle")
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(top, "Go.")
        tree = await retinue.tree(outcome.id)
        with pytest.raises(NotFound):
            await retinue.tree("nobody")
    (below,) = tree.children
    assert (tree.label, tree.state, tree.turn) == ("top", "completed", 2)
    assert (below.label, below.agent) == ("the middle", "middle")
    assert [n.agent for n in below.children] == ["leaf", "leaf"]


@both
@on_virtual_time
async def test_a_forgotten_tree_is_gone_and_its_forks_stay(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)
    async with home.open() as retinue:
        lead = lead_of(agent("child", ["part"]), 2)
        outcome = await retinue.run(lead, "Go.")
        fork = await ended(retinue, await retinue.fork(outcome.id, "And?"))
        with pytest.raises(Refused, match="is a sub-agent"):
            await retinue.forget(outcome.children[0].id)
        await retinue.forget(outcome.id)
        for run_id in (outcome.id, outcome.children[0].id):
            with pytest.raises(NotFound):
                await retinue.outcome(run_id)
        assert [r.id async for r in retinue.runs(children=True) if not r.parent] == [fork.id]
        assert (await retinue.messages(fork.id))[0].text == "Go."
        assert await retinue.verify() == []


@on_virtual_time
async def test_an_open_tree_cannot_be_forgotten() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=5), "Go.")
        with pytest.raises(Refused, match="has open runs"):
            await retinue.forget(run)


def test_run_sync_needs_no_loop(tmp_path: Path) -> None:
    one = agent("one", ["Hello."])
    outcome = run_sync(one, "Say hello.", store=tmp_path / "log.db", key="k")
    assert outcome.text == "Hello."
    assert run_sync(one, "Say hello.", store=tmp_path / "log.db", key="k") == outcome


def test_a_backup_is_a_store_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with Retinue(tmp_path / "log.db") as retinue:
            outcome = await retinue.run(agent("one", ["Hello."]), "Go.")
            await retinue.backup(tmp_path / "copy.db")
            assert await retinue.verify() == []
        async with Retinue(tmp_path / "copy.db") as retinue:
            copied = await retinue.outcome(outcome.id)
            assert copied is not None and copied.text == "Hello."

    asyncio.run(main())


@on_virtual_time
async def test_a_tool_may_answer_with_plain_values() -> None:
    @tool
    async def facts() -> dict[str, int]:
        """Facts."""
        return {"a": 1}

    @tool
    async def nothing() -> None:
        """Nothing."""

    @tool
    async def wrong() -> ToolResult:
        """An error that the model can act on."""
        return ToolResult(text="no such file", error=True)

    script = [[call("facts"), call("nothing"), call("wrong")], "ok"]
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", script, tools=[facts, nothing, wrong]), "Go.")
        results = (await retinue.messages(outcome.id))[2:5]
    assert [m.text for m in results] == ['{"a":1}', "Done.", "no such file"]
    assert [m.error for m in results] == [False, False, True]  # type: ignore[union-attr]
