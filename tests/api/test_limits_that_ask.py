"""A limit that asks, through the front door: the tree waits, also through restarts, until a person
has decided."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Agent,
    Budget,
    ConfigError,
    Limits,
    ModelInfo,
    NotFound,
    Origin,
    Refused,
    Retinue,
    Spending,
    Usage,
    tool,
)
from retinue.core.state import Short
from retinue.testing import Scripted, call
from tests.api.scripted_agents import STORES, Home, agent, ended, hiring, last, on_virtual_time

RULES = Limits(min_output=16, final_output=64, asking_output=64, wait_ms=3_600_000)


@tool(restart="pure")
async def look() -> str:
    """Look."""
    return "seen " * 20


def digger(turns: int = 14, name: str = "digger", **fields: Any) -> Agent:
    """Takes so many turns of about 200 tokens, then it is done."""

    def script(request: Any) -> Any:
        return call("look") if request.turn < turns and request.purpose == "turn" else "found it"

    info = ModelInfo(name=f"model of {name}", max_output=200, price_in=0, price_out=0)
    model = Scripted(script, info=info, usage=Usage(input=150, output=50))
    return Agent(name, model=model, tools=[look], **fields)


async def parked(retinue: Retinue, run: str) -> Any:
    """The only thing that is asked in a tree, when nothing of it moves any more."""
    for _ in range(1_000):
        if questions := await retinue.open_questions(run):
            (question,) = questions
            return question
        await asyncio.sleep(1)
    raise AssertionError("nothing was asked")


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_run_waits_at_its_limit_through_a_restart_and_goes_on(
    kind: str, tmp_path: Path
) -> None:
    home, result = Home(kind, tmp_path), digger()
    async with home.open(agents=[result], limits=RULES) as retinue:
        run = await retinue.spawn(result, "Dig.", budget=Budget(tokens=3_000, on_limit="ask"))
        before = await parked(retinue, run)
        assert (before.kind, before.limit, before.run, before.label) == (
            "budget",
            "tokens",
            run,
            "digger",
        )
        assert "of 3,000 tokens spent; one more turn may need" in before.text
        assert "A yes adds 3,000 tokens." in before.shown and before.suggested == Budget(
            tokens=3_000
        )
        spending = await retinue.budget(run)
        assert spending.limit == Budget(tokens=3_000, on_limit="ask") and spending.questions == (
            before.id,
        )
        assert 0 < spending.spent.tokens <= 3_000 and spending.held.tokens == 0
    async with home.open(agents=[result], limits=RULES) as retinue:
        assert await parked(retinue, run) == before
        after = await retinue.add_budget(run, tokens=5_000, by="me")
        assert after.limit.tokens == 8_000 and after.questions == ()
        outcome = await retinue.wait(run)
        assert outcome is not None and (outcome.state, outcome.text) == ("completed", "found it")
        assert (await retinue.budget(run)).spent.tokens == outcome.tree_tokens <= 8_000
        with pytest.raises(Refused, match="has ended, so its budget cannot be changed"):
            await retinue.add_budget(run, tokens=1)


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_what_was_raised_before_a_crash_stays_raised(kind: str, tmp_path: Path) -> None:
    home, result = Home(kind, tmp_path), digger(60)
    async with home.open(agents=[result], limits=RULES) as retinue:
        run = await retinue.spawn(result, "Dig.", budget=Budget(tokens=3_000, on_limit="ask"))
        await parked(retinue, run)
        await retinue.add_budget(run, tokens=1_000)
        await parked(retinue, run)
        row = await home.store.account(run)
        assert row.limit[0] == 4_000 and row.on_limit == "ask"
    async with home.open(agents=[result], limits=RULES) as retinue:
        question = await parked(retinue, run)
        assert "of 4,000 tokens" in question.text
        assert (await retinue.set_on_limit(run, "land")).limit.on_limit == "land"
        outcome = await ended(retinue, run)
        assert (outcome.state, outcome.stop) == (
            "incomplete",
            "budget",
        ) and outcome.tree_tokens <= 4_000


@on_virtual_time
async def test_yes_adds_what_is_suggested_and_no_lets_it_land_and_the_first_answer_counts(
    tmp_path: Path,
) -> None:
    result = digger(60)
    async with Home("memory", tmp_path).open(limits=RULES) as retinue:
        run = await retinue.spawn(result, "Dig.", budget=Budget(tokens=3_000, on_limit="ask"))
        first = await parked(retinue, run)
        with pytest.raises(Refused, match="about a limit"):
            await retinue.answer(first.id, "more")
        with pytest.raises(Refused, match="Add to the limit"):
            await retinue.decide(first.id, True, always=True)
        await retinue.decide(first.id[:8], True)
        assert (await retinue.budget(run)).limit.tokens == 6_000
        with pytest.raises((NotFound, Refused)):
            await retinue.decide(first.id, True)
        second = await parked(retinue, run)
        assert second.id != first.id
        await retinue.decide(second.id, False, reason="it must do with what it has")
        outcome = await ended(retinue, run)
        assert outcome.state == "incomplete" and outcome.text == "found it"


@on_virtual_time
async def test_a_tree_asks_once_for_all_its_children_and_all_of_them_complete(
    tmp_path: Path,
) -> None:
    hand = digger(1, "hand")
    boss = agent(
        "boss", lambda r: call("hire", tasks=[str(n) for n in range(9)]) if not r.turn else last(r)
    )
    lead = Agent("boss", model=boss.model, tools=[hiring(hand)], staff=[hand])
    texts: list[str] = []

    class Hook:
        async def send(self, delivery: Any) -> None:
            texts.append(delivery.text)

    async with Home("memory", tmp_path).open(limits=RULES, channels={"hook": Hook()}) as retinue:
        run = await retinue.spawn(
            lead,
            "Go.",
            budget=Budget(tokens=4_000, on_limit="ask"),
            origin=Origin(channel="hook", user="u"),
        )
        question = await parked(retinue, run)
        assert question.run == run and len(question.waiting) > 1
        live = [r for _, r in retinue._engine.trees.live()]
        assert all(isinstance(r.state, Short) for r in live if r.id != run)
        await asyncio.sleep(5)
        assert len([t for t in texts if "boss asks:" in t and question.id in t]) == len(texts) == 1
        await retinue.add_budget(run, tokens=100_000)
        outcome = await ended(retinue, run)
        assert outcome.state == "completed" and {c.state for c in outcome.children} == {"completed"}


@on_virtual_time
async def test_nobody_answers_and_it_lands_after_the_longest_wait(tmp_path: Path) -> None:
    home = Home("memory", tmp_path)
    async with home.open(limits=RULES) as retinue:
        began = home.clock.now()
        outcome = await retinue.run(digger(30), "Dig.", budget=Budget(tokens=3_000, on_limit="ask"))
        assert outcome.state == "incomplete" and outcome.text == "found it"
        assert home.clock.now() - began >= RULES.wait_ms


@on_virtual_time
async def test_cancel_is_the_answer_that_ends_it(tmp_path: Path) -> None:
    async with Home("memory", tmp_path).open(limits=RULES) as retinue:
        run = await retinue.spawn(digger(30), "Dig.", budget=Budget(tokens=3_000, on_limit="ask"))
        await parked(retinue, run)
        assert (
            await retinue.cancel(run)
        ).state == "cancelled" and await retinue.open_questions() == []


@on_virtual_time
async def test_a_limit_can_be_raised_and_changed_when_nobody_asks(tmp_path: Path) -> None:
    async with Home("memory", tmp_path).open(limits=RULES) as retinue:
        slow = Agent("slow", model=Scripted(lambda r: "done", name="s", delay=100.0))
        run = await retinue.spawn(slow, "Go.", budget=Budget(turns=3, seconds=50.0))
        assert await retinue.budget(run) == Spending(
            run=run,
            limit=Budget(turns=3, seconds=50.0),
            spent=(await retinue.budget(run)).spent,
            held=(await retinue.budget(run)).held,
            seconds_left=50.0,
        )
        assert (await retinue.set_on_limit(run, "ask")).limit.on_limit == "ask"
        assert (await retinue.add_budget(run, turns=2, seconds=100.0)).seconds_left == 150.0
        assert (await ended(retinue, run)).state == "completed"
        with pytest.raises(NotFound):
            await retinue.budget("nobody")
        with pytest.raises(NotFound):
            await retinue.add_budget("nobody", usd=1.0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "above zero"),
        ({"tokens": -1}, "above zero"),
        ({"usd": 1.0}, "no limit of usd"),
        ({"seconds": 5.0}, "no deadline"),
        ({"usd": float("inf")}, "finite"),
        ({"usd": float("nan")}, "finite"),
    ],
)
@on_virtual_time
async def test_what_makes_no_sense_is_refused_in_words(
    more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    async with Home("memory", tmp_path).open(limits=RULES) as retinue:
        run = await retinue.spawn(digger(), "Dig.", budget=Budget(tokens=3_000, on_limit="ask"))
        with pytest.raises((Refused, ConfigError), match=why):
            await retinue.add_budget(run, **more)
        with pytest.raises(ConfigError, match="land, ask or stop"):
            await retinue.set_on_limit(run, "never")  # type: ignore[arg-type]
        assert (await retinue.budget(run)).limit.tokens == 3_000


@on_virtual_time
async def test_no_tool_can_change_a_limit(tmp_path: Path) -> None:
    """What a tool is given of the runtime has no way to it, and an order can only divide what there
    is."""
    from retinue import Actions, Context

    fields = set(Actions.__struct_fields__)
    assert fields == {"spawns", "sends", "cancels", "posts", "answer", "wait", "pause", "refusals"}
    assert not [name for name in dir(Context) if "budget" in name or "limit" in name]


@on_virtual_time
async def test_a_tool_sees_the_limit_as_it_was_raised(tmp_path: Path) -> None:
    from retinue import Context

    records: list[int | None] = []

    @tool(restart="pure")
    async def see(context: Context) -> str:
        """See."""
        records.append(context.spec.request.budget.tokens)
        return "seen"

    watcher = agent(
        "watcher", lambda r: call("see") if r.turn < 2 else "done", tools=[see], seconds=1.0
    )
    async with Home("memory", tmp_path).open(limits=RULES) as retinue:
        run = await retinue.spawn(watcher, "Go.", budget=Budget(tokens=90_000))
        await asyncio.sleep(1.5)
        await retinue.add_budget(run, tokens=10_000)
        assert (await ended(retinue, run)).state == "completed"
    assert records == [90_000, 100_000]
