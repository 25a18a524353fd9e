"""Providers, facts and models that a program declares."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent, ConfigError, ModelInfo, Price, Provider, Retinue
from retinue.models.catalog import Catalog
from retinue.models.declared import declared_catalog
from retinue.testing import Scripted
from retinue.testing.fake_llm.fake_provider import FakeLLM


def test_a_server_of_ones_own_has_a_name_an_address_a_price_and_headers() -> None:
    async def work() -> tuple[Any, Any, Any]:
        async with FakeLLM(["Small."]) as llm:
            house = Provider(
                base_url=f"{llm.url}/v1",
                dialect="openai-chat",
                api_key="house-key-0123456789",
                headers={"x-team": "kitchen"},
            )
            small = Price(input=0.10, output=0.40).of(ModelInfo(window=32_000, max_output=2_000))
            async with Retinue(
                providers={"house": house}, models={"house:small": small}
            ) as retinue:
                outcome = await retinue.run(Agent("printer", model="house:small"), "x")
                model: Any = retinue._registry.models["house:small"]
                return llm.requests[-1], outcome, model

    request, outcome, model = asyncio.run(work())
    info, key = model.info, model.secrets["key"]
    assert (outcome.text, outcome.model_resolved) == ("Small.", "house:small")
    assert (request.body["model"], request.body["max_tokens"]) == ("small", 2_000)
    assert key == "house-key-0123456789"
    assert request.headers["x-team"] == "kitchen"
    assert (info.price_in, info.price_out, info.window) == (100, 400, 32_000)
    usage = outcome.usage
    assert usage.nanos == usage.output * 400 + (usage.input + usage.estimated) * 100 > 0


def test_a_known_provider_takes_its_key_and_address_from_the_program() -> None:
    catalog = declared_catalog(
        {"ANTHROPIC_API_KEY": "from-the-environment"},
        {"claude": Provider(api_key="sk-ant-declared", base_url="https://proxy.example.org")},
    )
    model: Any = catalog.find("anthropic:claude-sonnet-5-5")
    assert model.secrets["key"] == "sk-ant-declared"
    assert model._url.startswith("https://proxy.example.org/")
    assert "sk-ant-declared" in catalog.secrets.values()


def test_what_a_provider_allows_and_how_much_goes_together_is_declared_with_it() -> None:
    catalog = declared_catalog(
        {},
        {"openai": Provider(api_key="k", allow=("gpt-6*",), max_parallel=2, price=None)},
    )
    with pytest.raises(ConfigError, match="not allowed"):
        catalog.find("openai:gpt-4o")
    model: Any = catalog.find("openai:gpt-6.1-sol")
    assert model.governor.width <= 2


def test_a_name_can_stand_for_a_model_for_another_name_or_for_facts() -> None:
    async def work() -> list[str]:
        models = {
            "anthropic:claude-sonnet-5-5": Scripted(["Real enough."], name="double"),
            "mine": Scripted(["Mine."], name="mine"),
            "fast": "mine",
        }
        async with Retinue(models=models) as retinue:
            names = ("anthropic:claude-sonnet-5-5", "mine", "fast")
            agents = [Agent(f"a{n}", model=name) for n, name in enumerate(names)]
            return [(await retinue.run(agent, "x")).text for agent in agents]

    assert asyncio.run(work()) == ["Real enough.", "Mine.", "Mine."]


def test_facts_go_over_those_of_the_lists() -> None:
    facts = ModelInfo(window=9_000, max_output=500, price_in=1_000, price_out=2_000)
    model = declared_catalog({"OPENAI_API_KEY": "k"}, models={"openai:gpt-6.1-sol": facts}).find(
        "openai:gpt-6.1-sol"
    )
    assert (model.info.name, model.info.window) == ("openai:gpt-6.1-sol", 9_000)
    assert (model.info.max_output, model.info.price_in, model.info.price_out) == (500, 1_000, 2_000)


@pytest.mark.parametrize(
    ("name", "provider", "says"),
    [
        ("hose", Provider(api_key="k"), "Provider 'hose' is not a known one. A new one needs"),
        ("antropic", Provider(api_key="k"), "Did you mean 'anthropic'?"),
        ("house", Provider(base_url="http://x", dialect="openai_chat"), "Did you mean 'openai-"),
        ("My House", Provider(base_url="http://x", dialect="openai"), "small letters"),
        ("groq", Provider(base_url="http://x"), "has a fixed address"),
    ],
)
def test_a_provider_that_cannot_be_is_refused(name: str, provider: Provider, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        declared_catalog({}, {name: provider})
    assert says in str(error.value)


def test_a_catalog_and_providers_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="providers"):
        Retinue(models=Catalog({}), providers={"openai": Provider(api_key="k")})
