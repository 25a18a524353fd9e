"""The first sibling warms the provider's cache, the others start after its first byte; what that
gave is counted."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from retinue import Actions, Agent, Context, Retinue, tool
from retinue.core.history import Conversation
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.values import ModelInfo, Usage
from retinue.errors import ModelUnavailable
from retinue.models.codec import Options
from retinue.models.http import Times
from retinue.models.prompt_cache import PATIENCE, PromptCacheState, shortest
from retinue.testing import call, run_virtual
from retinue.testing.fake_llm.fake_provider import ParsedRequest
from tests.models.http_world import Together, asking, complete, history, talking

LONG = "You know all of this. " * 800
LEAST = 4 * 1_024
SONNET = ModelInfo(
    name="m",
    max_output=1_024,
    price_in=3_000,
    price_out=15_000,
    price_cache_read=300,
    price_cache_write=3_750,
)
PAYS: dict[str, Any] = {"info": SONNET, "model": "claude-sonnet-4-5", "provider": "anthropic"}
"""A model for which siblings wait: it caches from 1,024 tokens on, and reading them anew costs
twelve times as much."""


class Provider:
    """Who sent when. `fails` is how many of the first calls fail before a byte came."""

    def __init__(self, fails: int = 0) -> None:
        # 1,024 tokens save $0.0035: at $0.00015 a second that is worth 23 seconds.
        self.warmth = PromptCacheState(SONNET, 1_024, second_usd=0.00015)
        self.sent: list[float] = []
        self.fails = fails

    async def call(
        self, prefix: str = "p", size: int = LEAST, first: float = 2.0, whole: float = 10.0
    ) -> str:
        async with self.warmth.first_byte((prefix,), size) as warm:
            self.sent.append(asyncio.get_running_loop().time())
            warm.sending(f"run {len(self.sent)}", 2 * size)
            n = len(self.sent)
            await asyncio.sleep(first)
            if n <= self.fails:
                raise ModelUnavailable("Overloaded", "overloaded")
            warm.came()
            await asyncio.sleep(whole - first)
        warm.counted(Usage(input=1_000, cache_read=480 if n > 1 else 0))
        return "ok"

    async def crowd(self, n: int) -> list[Any]:
        return await asyncio.gather(*(self.call() for _ in range(n)), return_exceptions=True)


def test_the_others_start_after_the_first_byte_of_the_first() -> None:
    provider = Provider()
    run_virtual(provider.crowd(100))
    assert provider.sent == [0.0] + [2.0] * 99
    assert provider.warmth.expected_rate == pytest.approx(0.5 * 99 / 100)
    assert provider.warmth.hit_rate == pytest.approx(0.48 * 99 / 100)
    assert provider.warmth._warming == {}


def test_when_the_first_fails_the_next_warms_and_the_others_wait_on() -> None:
    provider = Provider(fails=2)
    ends = run_virtual(provider.crowd(100))
    assert provider.sent == [0.0, 2.0, 4.0] + [6.0] * 97
    assert ends.count("ok") == 98


def test_when_the_first_is_cancelled_the_next_warms() -> None:
    provider = Provider()

    async def story() -> None:
        tasks = [asyncio.create_task(provider.call()) for _ in range(10)]
        await asyncio.sleep(1)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(story())
    assert provider.sent == [0.0, 1.0] + [3.0] * 8


def test_whoever_gives_up_waiting_takes_nobody_along() -> None:
    provider = Provider()

    async def story() -> None:
        tasks = [asyncio.create_task(provider.call()) for _ in range(10)]
        await asyncio.sleep(1)
        tasks[4].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(story())
    assert provider.sent == [0.0] + [2.0] * 8


def test_nobody_waits_for_ever() -> None:
    provider = Provider()

    async def story() -> None:
        await asyncio.gather(*(provider.call(first=1_000.0, whole=1_001.0) for _ in range(5)))

    run_virtual(story())
    assert provider.sent == [0.0] + [PATIENCE] * 4


def test_what_is_too_short_to_be_cached_is_not_waited_for() -> None:
    provider = Provider()

    async def story() -> None:
        await asyncio.gather(*(provider.call(size=LEAST - 1) for _ in range(5)))

    run_virtual(story())
    assert provider.sent == [0.0] * 5


def test_a_cache_cools_down_and_each_use_keeps_it_warm() -> None:
    provider = Provider()

    async def story() -> None:
        for pause in (200.0, 200.0, 200.0, 400.0):
            await provider.call()
            await asyncio.sleep(pause)
        await asyncio.gather(provider.call(), provider.call())

    run_virtual(story())
    assert provider.sent[-1] - provider.sent[-2] == pytest.approx(2.0), (
        "it was cold, so the second waited"
    )
    assert provider.warmth.expected == 3 * 500 + 500


@pytest.mark.parametrize("seed", range(20))
def test_whoever_fails_or_is_cancelled_nobody_waits_in_vain(seed: int) -> None:
    draw, provider = random.Random(seed), Provider(fails=5)

    async def one() -> None:
        await asyncio.sleep(draw.random() * 30)
        prefix, first = draw.choice("pq"), draw.random() * 9
        await provider.call(prefix, first=first, whole=first + draw.random() * 9)

    async def story() -> None:
        tasks = [asyncio.create_task(one()) for _ in range(80)]
        for task in draw.sample(tasks, 30):
            asyncio.get_running_loop().call_later(draw.random() * 40, task.cancel)
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(story())
    assert provider.warmth._warming == {}


# over HTTP


@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses"])
def test_siblings_hit_what_the_first_has_warmed(dialect: str) -> None:
    fields = PAYS if dialect == "anthropic" else {**PAYS, "model": "gpt-5", "provider": "openai"}

    async def story() -> None:
        # One, then all the others at once.
        async with talking(Together(19, before=1), dialect, times=Times(), **fields) as (
            llm,
            model,
        ):
            tools = asking().declared
            ask = [
                asking(f"Task {i}", run=f"r{i}", instructions=LONG, declared=tools)
                for i in range(20)
            ]
            await asyncio.gather(*(complete(model, one) for one in ask))
            assert llm.n_requests == 20
            assert model.warmth.expected_rate > 0.85
            assert model.warmth.hit_rate == pytest.approx(model.warmth.expected_rate, abs=0.1)

    asyncio.run(story())


def test_when_the_first_over_http_fails_the_others_still_start_one_before_all() -> None:
    async def story() -> None:
        async with talking(faults=["F3"], seconds=0.1, **PAYS) as (_, model):
            tools = asking().declared
            ask = [
                asking(f"Task {i}", run=f"r{i}", instructions=LONG, declared=tools)
                for i in range(10)
            ]
            ends = await asyncio.gather(
                *(complete(model, one) for one in ask), return_exceptions=True
            )
            assert sum(isinstance(end, ModelUnavailable) for end in ends) == 1
            assert model.warmth.hit_rate == pytest.approx(model.warmth.expected_rate, abs=0.1)
            assert model.warmth.expected_rate > 0.75
            assert model.warmth._warming == {}

    asyncio.run(story())


def test_forks_share_the_conversation_they_came_from() -> None:
    async def story() -> None:
        base = Conversation()
        for i in range(40):
            base.append(UserMessage(text=f"Question {i}. " + "why " * 50))
            base.append(AssistantMessage(text=f"Answer {i}. " + "so " * 50))
        async with talking(seconds=0.1, **PAYS) as (_, model):
            tools = asking().declared
            ask = [
                asking(
                    run=f"r{i}",
                    messages=history(UserMessage(text=f"Task {i}"), base=base),
                    declared=tools,
                )
                for i in range(10)
            ]
            await asyncio.gather(*(complete(model, one) for one in ask))
            assert model.warmth.expected_rate > 0.8
            assert model.warmth.hit_rate == pytest.approx(model.warmth.expected_rate, abs=0.1)

    asyncio.run(story())


def test_a_run_expects_its_own_last_prompt_and_gets_it() -> None:
    @tool
    async def look() -> str:
        """Looks."""
        return "x" * 4_000

    def script(request: ParsedRequest) -> Any:
        return call("look") if request.turn < 8 else "Done."

    async def story() -> None:
        async with talking(script, **PAYS) as (_, model), Retinue() as retinue:
            outcome = await retinue.run(Agent("one", LONG, model=model, tools=[look]), "Go.")
            assert outcome.ok
            assert model.warmth.expected_rate > 0.7
            assert model.warmth.hit_rate == pytest.approx(model.warmth.expected_rate, abs=0.1)

    asyncio.run(story())


def test_a_family_of_siblings_warms_once() -> None:
    def script(request: ParsedRequest) -> Any:
        if "helper" in request.system:
            return "Helped."
        return call("hire") if request.turn == 0 else "Done."

    async def story() -> None:
        async with talking(script, seconds=0.15, **PAYS) as (_, model), Retinue() as retinue:
            helper = Agent("helper", f"You are a helper. {LONG}", model=model)

            @tool
            async def hire(context: Context) -> Actions:
                """Hires ten helpers."""
                return context.spawn_actions(helper, *(f"Task {i}" for i in range(10)))

            lead = Agent("lead", "You lead.", model=model, tools=[hire], staff=[helper])
            outcome = await retinue.run(lead, "Go.")
            assert outcome.ok
            reads = [
                end.usage.cache_read
                for end in [await retinue.outcome(c.id) for c in outcome.children]
                if end
            ]
            assert sorted(n > 2_000 for n in reads) == [False] + [True] * 9

    asyncio.run(story())


def test_a_model_that_shall_not_cache_waits_for_nobody() -> None:
    async def story() -> None:
        async with talking(Together(5), options=Options(cache=False), times=Times(), **PAYS) as (
            _,
            model,
        ):
            tools = asking().declared
            ask = [
                asking(f"Task {i}", run=f"r{i}", instructions=LONG, declared=tools)
                for i in range(5)
            ]
            await asyncio.gather(*(complete(model, one) for one in ask))
            assert model.warmth.expected == 0

    asyncio.run(story())


# where it pays


@pytest.mark.parametrize(
    ("provider", "dialect", "model", "tokens"),
    [
        ("anthropic", "anthropic", "claude-sonnet-4-5", 1_024),
        ("anthropic", "anthropic", "claude-opus-4-1-20250805", 1_024),
        ("anthropic", "anthropic", "claude-haiku-4-5", 4_096),
        ("anthropic", "anthropic", "claude-opus-4-6", 4_096),
        ("anthropic", "anthropic", "claude-3-5-haiku-latest", 2_048),
        ("anthropic", "anthropic", "claude-not-yet-known", 4_096),
        ("", "anthropic", "claude-sonnet-4-5", 1_024),
        ("openai", "openai_responses", "gpt-5", 1_024),
        ("openai-chat", "openai_chat", "gpt-5", 1_024),
        ("gemini", "gemini", "gemini-2.5-flash", 2_048),
        ("gemini", "gemini", "gemini-2.0-flash", 0),
        ("gemini", "gemini", "gemini-3-pro-preview", 4_096),
        ("ollama", "openai_chat", "qwen3", 0),
        ("vllm", "openai_chat", "m", 0),
        ("groq", "openai_chat", "m", 0),
        ("", "openai_chat", "m", 0),
        ("", "openai_responses", "m", 0),
    ],
)
def test_what_is_known_of_caches(provider: str, dialect: str, model: str, tokens: int) -> None:
    assert shortest(provider, dialect, model) == tokens


def test_a_wait_is_worth_what_it_saves() -> None:
    cheap = ModelInfo(name="m", price_in=50, price_out=400, price_cache_read=5)
    assert PromptCacheState(SONNET, 1_024).worth(4 * 2_000) == pytest.approx(
        2_000 * 3_450 / 500_000
    )
    assert PromptCacheState(SONNET, 1_024).worth(4 * 1_023) == 0.0, "too short to be cached"
    assert PromptCacheState(SONNET, 1_024).worth(4 * 100_000) == PATIENCE
    assert PromptCacheState(SONNET, 0).worth(10**6) == 0.0, "nothing is cached"
    assert PromptCacheState(cheap, 1_024).worth(4 * 1_024) < 0.1, (
        "a nano model is not worth a tenth of a second"
    )
    assert PromptCacheState(cheap, 1_024, second_usd=0.0).worth(4 * 1_024) == PATIENCE, (
        "unless waiting costs nothing"
    )
    assert PromptCacheState(ModelInfo(name="m"), 1_024).worth(10**6) == 0.0, (
        "nobody knows what it would save"
    )
    assert PromptCacheState(ModelInfo(name="m", price_in=0, price_out=0), 1_024).worth(10**6) == 0.0


def test_nobody_waits_longer_than_it_is_worth_or_for_what_takes_longer() -> None:
    provider = Provider()
    provider.warmth.second_usd = 0.001  # 3.5 s

    async def story() -> None:
        await asyncio.gather(*(provider.call(first=8.0, whole=9.0) for _ in range(5)))
        assert provider.sent[1:] == [pytest.approx(3.5328)] * 4
        await asyncio.sleep(1_000)
        began, provider.sent = asyncio.get_running_loop().time(), []
        await asyncio.gather(*(provider.call(first=8.0, whole=9.0) for _ in range(5)))
        assert provider.sent == [began] * 5, "by now it is known that a first byte takes too long"

    run_virtual(story())
    assert provider.warmth.waits == 4 and provider.warmth.waited_seconds == pytest.approx(
        4 * 3.5328
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"info": ModelInfo(name="m")},
        {"stream": False},
        {"dialect": "openai_chat", "provider": ""},
        {"dialect": "openai_chat", "provider": "vllm"},
        {"model": "claude-opus-4-6", "instructions": LONG[: 4 * 4_000]},
    ],
    ids=["no price", "no stream", "unknown server", "local server", "too short"],
)
def test_where_nothing_is_saved_nobody_waits(fields: dict[str, Any]) -> None:
    instructions = fields.pop("instructions", LONG)

    async def story() -> None:
        async with talking(Together(5), times=Times(), **{**PAYS, **fields}) as (_, model):
            tools = asking().declared
            ask = [
                asking(f"Task {i}", run=f"r{i}", instructions=instructions, declared=tools)
                for i in range(5)
            ]
            await asyncio.gather(*(complete(model, one) for one in ask))
            assert model.warmth.waits == 0

    asyncio.run(story())


def test_what_the_caches_save_is_counted() -> None:
    warmth = Provider().warmth
    warmth.counted(Usage(input=5_000, cache_read=4_000, cache_write=500), 4_500)
    assert (warmth.expected, warmth.hit) == (4_500, 4_000)
    assert warmth.expected_nanos == 4_500 * 2_700
    assert warmth.saved_nanos == 4_000 * 2_700 - 500 * 750


def test_what_can_be_expected_of_a_cache_is_a_fact_of_the_model() -> None:
    nano = ModelInfo(name="m", price_in=50, price_out=400, price_cache_read=5)
    unpriced = ModelInfo(name="m")

    def known(warmth: PromptCacheState, *, is_streamed: bool = True) -> tuple[int, int]:
        info = warmth.known(warmth.info, is_streamed=is_streamed)
        return info.cache_tokens, info.shared_tokens

    assert known(PromptCacheState(SONNET, 1_024)) == (1_024, 1_024)
    assert known(PromptCacheState(SONNET, 1_024), is_streamed=False) == (1_024, 0), (
        "of what is not streamed no first byte comes"
    )
    assert known(PromptCacheState(nano, 1_024)) == (1_024, 11_112), (
        "a second is worth $0.0005, and a token saves 45 nanos"
    )
    assert known(PromptCacheState(unpriced, 1_024)) == (1_024, 0), (
        "with an unknown price nobody waits"
    )
    assert known(PromptCacheState(SONNET, 0)) == (0, 0)
