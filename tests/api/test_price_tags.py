"""What the input of forks and of a fan-out will cost, with the provider's cache and without it; and
what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Actions,
    Agent,
    Context,
    History,
    ModelInfo,
    Outcome,
    PriceTag,
    Retinue,
    UserMessage,
    tool,
)
from retinue.errors import ConfigError
from retinue.models.codec import Options
from retinue.models.http import HttpModel
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import ParsedRequest
from tests.models.http_world import QUICK, talking

N = 5
LONG = "You know all of this, and it is the same for all of you. " * 200
SONNET = ModelInfo(
    name="m",
    max_output=1_024,
    price_in=3_000,
    price_out=15_000,
    price_cache_read=300,
    price_cache_write=3_750,
)
AUTOMATIC = ModelInfo(
    name="m", max_output=1_024, price_in=1_250, price_out=10_000, price_cache_read=125
)
PROVIDERS: dict[str, dict[str, Any]] = {
    "anthropic": {"provider": "anthropic", "model": "claude-sonnet-4-5", "info": SONNET},
    "openai_chat": {"provider": "openai-chat", "model": "gpt-5", "info": AUTOMATIC},
    "openai_responses": {"provider": "openai", "model": "gpt-5", "info": AUTOMATIC},
    "gemini": {"provider": "gemini", "model": "gemini-2.5-flash", "info": AUTOMATIC},
}
"""Anthropic is told what to cache, and charges for it; the others do by themselves what they do."""


def script(request: ParsedRequest) -> Any:
    """Whoever is told to begin hires in its second turn; everybody else answers."""
    is_asked = [m.text for m in request.messages if isinstance(m, UserMessage)] == ["Begin."]
    if is_asked and request.turn == 0:
        return call("look")
    return call("hire") if is_asked and request.turn == 1 else "Done."


def crew(model: HttpModel, *, fork: bool, n: int = N) -> Agent:
    @tool(restart="pure", quick=True)
    def look() -> str:
        """Look something up."""
        return "found " * 200

    @tool(restart="pure", quick=True)
    def hire(context: Context) -> Actions:
        """Hire some."""
        tasks = [f"Task {i}" for i in range(n)]
        return (
            context.spawn_actions("talker", *tasks, history=History(kind="fork"))
            if fork
            else context.spawn_actions(hand, *tasks)
        )

    hand = Agent("hand", f"You help. {LONG}", model=model, tools=[look])
    return Agent("talker", LONG, model=model, tools=[look, hire], staff=[hand])


@contextlib.asynccontextmanager
async def world(dialect: str, **fields: Any) -> AsyncIterator[HttpModel]:
    async with talking(script, dialect, **{**PROVIDERS[dialect], **fields}) as (_, model):
        yield model


async def told(retinue: Retinue, lead: Agent) -> tuple[Outcome, list[Outcome]]:
    top = await retinue.run(lead, "Begin.")
    assert top.ok, top.error
    below = [await retinue.outcome(child.id) for child in top.children]
    return top, [one for one in below if one is not None]


def tags(below: list[Outcome]) -> list[PriceTag]:
    return [one.price_tag for one in below if one.price_tag is not None]


@pytest.mark.parametrize("dialect", PROVIDERS)
def test_forks_read_what_their_parent_has_sent(dialect: str) -> None:
    async def story() -> None:
        async with world(dialect) as model, Retinue() as retinue:
            top, below = await told(retinue, crew(model, fork=True))
            each = tags(below)
            assert len(each) == N
            for one, tag in zip(below, each, strict=True):
                assert one.cache.expected_tokens == pytest.approx(tag.cached_tokens, rel=0.02)
                assert one.cache.read_tokens == pytest.approx(one.cache.expected_tokens, rel=0.02)
                assert one.usage.input == pytest.approx(tag.tokens, rel=0.02)
                assert tag.usd is not None and tag.usd_without_cache is not None
                assert tag.usd < tag.usd_without_cache / 5
                assert one.cache.saved_usd == pytest.approx(one.cache.expected_usd, rel=0.05)
            own = top.cache
            assert top.tree_cache.read_tokens == own.read_tokens + sum(
                o.cache.read_tokens for o in below
            )
            assert top.tree_cache.expected_tokens == own.expected_tokens + sum(
                o.cache.expected_tokens for o in below
            )
            assert top.tree_cache.saved_usd == pytest.approx(
                (own.saved_usd or 0) + sum(o.cache.saved_usd or 0 for o in below)
            )

    asyncio.run(story())


@pytest.mark.parametrize("dialect", PROVIDERS)
def test_of_a_fan_out_the_first_writes_and_the_others_read(dialect: str) -> None:
    async def story() -> None:
        async with world(dialect) as model, Retinue() as retinue:
            _, below = await told(retinue, crew(model, fork=False))
            first, *others = tags(below)
            assert first.cached_tokens == 0 and all(tag.cached_tokens > 2_000 for tag in others)
            assert first.usd is not None and first.usd_without_cache is not None
            assert (first.usd > first.usd_without_cache) == (dialect == "anthropic"), (
                "writing costs more there"
            )
            expected = sum(one.cache.expected_tokens for one in below)
            assert sum(one.cache.read_tokens for one in below) == pytest.approx(expected, rel=0.02)
            assert expected == pytest.approx((N - 1) * others[0].cached_tokens, rel=0.2)

    asyncio.run(story())


@pytest.mark.parametrize("dialect", PROVIDERS)
def test_a_cache_that_keeps_nothing_is_seen_to(dialect: str) -> None:
    async def story() -> None:
        async with (
            world(dialect, settings=dataclasses.replace(QUICK, n_prefixes=0)) as model,
            Retinue() as retinue,
        ):
            top, below = await told(retinue, crew(model, fork=True))
            assert all(
                one.cache.expected_tokens > 2_000 and one.cache.read_tokens == 0 for one in below
            )
            assert top.tree_cache.expected_usd is not None and top.tree_cache.expected_usd > 0
            saved = top.tree_cache.saved_usd
            assert saved is not None and (saved < 0 if dialect == "anthropic" else saved == 0)

    asyncio.run(story())


def test_what_was_said_before_is_what_is_recorded_then() -> None:
    async def story() -> None:
        async with world("anthropic") as model, Retinue() as retinue:
            lead = crew(model, fork=True)
            first = (await retinue.run(lead, "Begin.")).id
            before = await retinue.price_tag(n=3, task="Task 0", fork=first)
            assert before == await retinue.price_tag(n=3, task="Task 0", fork=first), (
                "asking starts nothing"
            )
            started = [await retinue.fork(first, f"Task {i}") for i in range(3)]
            ends = [(await retinue.wait(run)) for run in started]
            each = tags([end for end in ends if end is not None])
            assert before.n == 3 and before.tokens == sum(tag.tokens for tag in each)
            assert before.cached_tokens == sum(tag.cached_tokens for tag in each)
            assert before.usd == pytest.approx(sum(tag.usd or 0 for tag in each))
            assert before.usd_without_cache == pytest.approx(
                sum(tag.usd_without_cache or 0 for tag in each)
            )
            for end in ends:
                assert end is not None
                assert end.cache.read_tokens == pytest.approx(end.cache.expected_tokens, rel=0.02)

    asyncio.run(story())


def test_a_fan_out_of_roots_has_a_tag_too() -> None:
    async def story() -> None:
        async with world("anthropic") as model, Retinue() as retinue:
            lead = crew(model, fork=True)
            before = await retinue.price_tag(lead, "Task 0", n=4)
            ends = await asyncio.gather(*(retinue.run(lead, f"Task {i}") for i in range(4)))
            assert before.cached_tokens == sum(tag.cached_tokens for tag in tags(ends)) > 6_000
            read, expected = (
                sum(getattr(o.cache, f) for o in ends) for f in ("read_tokens", "expected_tokens")
            )
            assert read == pytest.approx(expected, rel=0.02)
            with pytest.raises(ConfigError, match="needs an agent"):
                await retinue.price_tag(n=2)

    asyncio.run(story())


def test_a_price_that_nobody_knows_is_not_nothing() -> None:
    async def story() -> None:
        plain = ModelInfo(name="m", max_output=1_024)
        async with world("anthropic", info=plain) as model, Retinue() as retinue:
            top, below = await told(retinue, crew(model, fork=True))
            assert all(tag.cached_tokens > 2_000 for tag in tags(below))
            assert all(tag.usd is None and tag.usd_without_cache is None for tag in tags(below))
            assert top.tree_cache.read_tokens > 10_000
            assert top.tree_cache.expected_usd is None and top.tree_cache.saved_usd is None

    asyncio.run(story())


@pytest.mark.parametrize(
    "fields",
    [
        {"options": Options(cache=False)},
        {"provider": "groq"},
        {"model": "claude-opus-4-6", "provider": "anthropic"},
    ],
    ids=["the cache is off", "a server without one", "too short a prefix"],
)
def test_where_nothing_is_cached_nothing_is_expected(fields: dict[str, Any]) -> None:
    async def story() -> None:
        async with world("anthropic", **fields) as model, Retinue() as retinue:
            _, below = await told(retinue, crew(model, fork=False))
            for tag in tags(below):
                assert tag.cached_tokens == 0 and tag.usd == tag.usd_without_cache

    asyncio.run(story())


def test_who_does_not_stream_is_not_waited_for() -> None:
    async def story() -> None:
        async with world("anthropic", stream=False) as model, Retinue() as retinue:
            _, below = await told(retinue, crew(model, fork=False))
            assert [tag.cached_tokens for tag in tags(below)] == [0] * N
        async with world("anthropic", stream=False) as model, Retinue() as retinue:
            _, below = await told(retinue, crew(model, fork=True))
            assert all(tag.cached_tokens > 2_000 for tag in tags(below)), (
                "what the parent has sent is there"
            )
            assert all(one.cache.read_tokens > 2_000 for one in below)

    asyncio.run(story())


def test_after_a_restart_the_figures_are_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "log.db"
        async with world("anthropic") as model:
            lead = crew(model, fork=True)
            async with Retinue(path, agents=[lead]) as retinue:
                top, below = await told(retinue, lead)
            async with Retinue(path, agents=[lead]) as retinue:
                assert await retinue.outcome(top.id) == top
                assert [await retinue.outcome(one.id) for one in below] == below
                tag = await retinue.price_tag(fork=top.id, task="More", n=2)
                assert tag.cached_tokens > 4_000, "the provider still has it"

    asyncio.run(story())
