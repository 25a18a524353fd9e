"""What models cost: as it was declared, as the list says, nothing on this machine, and else it is
not known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent, Budget, Retinue
from retinue.core.values import ModelInfo
from retinue.errors import ConfigError
from retinue.models.catalog import Catalog, Price, ProviderTerms
from retinue.models.prices import is_near
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.models.http_world import FAST, asking, complete

KEYS = {"OPENROUTER_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}


def info(name: str, environ: dict[str, str] | None = None, **fields: Any) -> ModelInfo:
    return Catalog({**KEYS, **(environ or {})}, **fields).find(name).info


def test_a_declared_price_is_the_price() -> None:
    prices = {"openrouter:acme/new": Price(input=2, output=8.5, cache_read=0.2, cache_write=2.5)}
    name = info("openrouter:acme/new", prices=prices)
    assert name.priced
    assert (name.price_in, name.price_out, name.price_cache_read, name.price_cache_write) == (
        2_000,
        8_500,
        200,
        2_500,
    )
    assert info("openrouter:acme/other", prices=prices).price_in is None, "unknown stays unknown"


def test_a_declared_price_goes_before_the_list_and_an_exact_name_before_a_pattern() -> None:
    prices = {
        "claude:*": Price(input=1, output=1),
        "anthropic:claude-sonnet-4-5": Price(input=7, output=7),
    }
    assert info("anthropic:claude-sonnet-4-5", prices=prices).price_in == 7_000
    assert info("anthropic:claude-opus-4-5", prices=prices).price_in == 1_000
    assert info("anthropic:claude-sonnet-4-5").price_in == 3_000


def test_a_price_can_be_declared_for_an_alias() -> None:
    name = info(
        "mine",
        aliases={"mine": "openrouter:acme/new"},
        prices={"mine": Price(input=0.015, output=0.03)},
    )
    assert (name.price_in, name.price_out) == (15, 30)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf"), 1e9])
def test_a_price_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError):
        Price(input=wrong, output=1)


@pytest.mark.parametrize(
    ("name", "environ", "is_free"),
    [
        ("ollama:qwen3", {}, True),
        ("ollama:qwen3", {"OLLAMA_HOST": "192.168.1.7"}, True),
        ("ollama:qwen3", {"OLLAMA_BASE_URL": "https://ollama.com"}, False),
        ("vllm:m", {}, True),
        ("vllm:m", {"VLLM_BASE_URL": "http://gpu-box:8000/v1"}, True),
        ("llamacpp:m", {"LLAMACPP_BASE_URL": "http://[::1]:8080/v1"}, True),
        ("lmstudio:m", {}, True),
        ("vllm:m", {"VLLM_BASE_URL": "https://vllm.example.com/v1"}, False),
        ("openai:not-a-model", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, False),
    ],
)
def test_servers_on_this_machine_and_beside_it_are_free(
    name: str, environ: dict[str, str], is_free: bool
) -> None:
    info_known = info(name, environ)
    assert info_known.priced is is_free
    assert (info_known.price_in, info_known.price_out) == ((0, 0) if is_free else (None, None))


def test_what_is_free_can_be_given_a_price() -> None:
    assert info("ollama:qwen3", prices={"ollama:*": Price(input=0.1, output=0.2)}).price_out == 200


def test_near_is_near() -> None:
    assert all(
        map(
            is_near,
            [
                "http://127.0.0.1:8",
                "http://localhost",
                "http://10.0.0.3/v1",
                "http://nas.local:1/v1",
            ],
        )
    )
    assert not any(
        map(is_near, ["https://8.8.8.8", "https://example.com", "https://localhost.example.com"])
    )


def test_each_dialect_has_an_allowance_for_what_its_providers_add() -> None:
    assert info("anthropic:claude-sonnet-4-5").preamble == 1_024
    assert info("openai:gpt-5").preamble == info("ollama:qwen3").preamble == 512
    chain = Catalog(KEYS).find("openai:gpt-5 | anthropic:claude-sonnet-4-5").info
    assert chain.preamble == 1_024
    assert ModelInfo(name="m").preamble == 0


def test_a_budget_in_dollars_is_kept_for_a_model_with_a_declared_price() -> None:
    async def story() -> None:
        async with FakeLLM(["Done."]) as llm:
            environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{llm.url}/v1"}
            prices = {"openai-chat:acme": Price(input=1_000, output=1_000)}
            catalog = Catalog(environ, times=FAST, prices=prices)
            async with Retinue(models=catalog) as retinue:
                agent = Agent("one", model="openai-chat:acme")
                outcome = await retinue.run(agent, "Say that it is done.", budget=Budget(usd=100.0))
                assert outcome.ok and outcome.usage.usd == pytest.approx(
                    outcome.usage.tokens / 1_000, abs=0.001
                )

    asyncio.run(story())


def test_terms_reach_the_governor_of_each_account_and_model() -> None:
    terms = {"claude": ProviderTerms(max_concurrent=3, requests_per_minute=50, cache_tokens=0)}
    catalog = Catalog(KEYS, terms=terms)
    one, other = catalog.find("anthropic:claude-sonnet-4-5"), catalog.find("openai:gpt-5")
    assert (one.governor.most, one.governor.per_minute) == (3, {"set requests": 45.0})  # type: ignore[attr-defined]
    assert one.warmth.least == 0 and other.warmth.least == 1_024  # type: ignore[attr-defined]
    assert other.governor.most > 10_000  # type: ignore[attr-defined]


def test_what_the_caches_saved_is_shown() -> None:
    async def story() -> None:
        async with FakeLLM(["Done."]) as llm:
            catalog = Catalog({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": llm.url}, times=FAST)
            model = catalog.find("anthropic:claude-sonnet-4-5")
            tools, text = asking().declared, "You know all of this. " * 800
            for n in range(2):
                await complete(
                    model, asking(f"Task {n}", run=f"r{n}", instructions=text, declared=tools)
                )
            (status,) = catalog.status()
            assert status.expected_nanos > 0 and status.expected_rate > 0.4
            # The first had to write it, which costs a quarter more.
            assert 0 < status.saved_nanos < status.expected_nanos
            await catalog.close()

    asyncio.run(story())
