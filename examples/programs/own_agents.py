"""Tests of one's own agents: scripted models by name, hours in a moment, a recorded model, a fake
provider."""

import pytest

from retinue import Agent, Context, Retinue, RetinueOptions, tool
from retinue.testing import Cassette, Scripted, call
from retinue.testing.fake_llm import FakeLLM


@tool(restart="pure", risk="read")
async def survey(ctx: Context, streets: list[str]) -> str:
    """Send a walker through each street."""
    walks = await ctx.gather(walker, *streets, timeout=300)
    return f"{len(walks.results)} seen, {len(walks.failed)} not"


walker = Agent("walker", "Walk one street.", model="openai:gpt-5-mini")
mayor = Agent("mayor", "Know the town.", model="openai:gpt-5", tools=[survey], staff=[walker])


@pytest.fixture
def retinue_options() -> RetinueOptions:
    """What the fixture `retinue` is made with in this file."""
    plan = Scripted([call("survey", streets=["North", "South"]), "Go again."])
    return {"models": {"openai:gpt-5": plan, "openai:gpt-5-mini": Scripted(["ok"], delay=3_600)}}


@pytest.mark.virtual_time
async def test_walks_that_take_too_long_are_given_up(retinue: Retinue) -> None:
    outcome = await retinue.run(mayor, "How is the town?")
    assert outcome.unwrap() == "Go again."
    assert [child.state for child in outcome.children] == ["timed_out", "timed_out"]
    assert outcome.ended_at is not None


async def test_over_http(fake_llm: FakeLLM) -> None:
    fake_llm.script = ["All is well."]
    async with Retinue(**fake_llm.providers) as retinue:
        assert (await retinue.run(walker, "Main Street.")).text == "All is well."
    assert not fake_llm.violations


async def test_a_recorded_conversation(cassette: Cassette) -> None:
    async with Retinue(**cassette.options) as retinue:
        assert "well" in (await retinue.run(walker, "Main Street.")).text
