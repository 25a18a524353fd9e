"""The file of current models beside what the providers' own packages and the price list say."""

from __future__ import annotations

import logging
import re
from datetime import date, datetime
from typing import Any, get_args

import msgspec
import pytest
from anthropic.resources.messages import messages as anthropic_messages
from anthropic.types.model import Model as AnthropicModel
from openai.types.shared.chat_model import ChatModel

from retinue import current_models
from retinue.errors import ConfigError
from retinue.host.model_choice import choose
from retinue.models.anthropic import AnthropicCodec
from retinue.models.catalog import Catalog
from retinue.models.codec import Options
from retinue.models.prices import model_facts
from retinue.models.providers import PROVIDERS

ANTHROPIC = {name for part in get_args(AnthropicModel) for name in get_args(part)}
OPENAI = set(get_args(ChatModel))
KEYS = {"ANTHROPIC_API_KEY": "k" * 20, "OPENAI_API_KEY": "k" * 20, "GEMINI_API_KEY": "k" * 20}


def named() -> set[str]:
    """Every model that the file offers, as `provider:model`."""
    names = {f"{provider}:{model}" for provider, model in current_models.defaults().items()}
    names |= set(current_models.aliases().values())
    for provider, models in current_models.allowed().items():
        names |= {f"{provider}:{model}" for model in models}
    return names


def test_the_file_says_of_which_day_it_is() -> None:
    assert date.fromisoformat(current_models.current_models()["as_of"]) >= date(2026, 11, 18)


def test_every_model_of_anthropic_and_openai_is_in_the_list_of_its_package() -> None:
    models = [name.split(":") for name in named()]
    assert {m for p, m in models if p == "anthropic"} <= ANTHROPIC
    assert {m for p, m in models if p == "openai"} <= OPENAI


@pytest.mark.parametrize("name", sorted(named()))
def test_every_model_has_a_price(name: str) -> None:
    provider, _, model = name.partition(":")
    assert model_facts(name, PROVIDERS[provider].prices, model, max_output=1).priced


def test_no_model_that_is_offered_is_about_to_end() -> None:
    assert [name for name in sorted(named()) if current_models.end_of(name)] == []
    offered = {name.removeprefix("anthropic:") for name in named()}
    assert offered & set(anthropic_messages.DEPRECATED_MODELS) == set()


def _day(text: str) -> str:
    plain = re.sub(r"(\d)(st|nd|rd|th)", r"\1", text)
    return datetime.strptime(plain, "%B %d, %Y").date().isoformat()


def test_the_days_on_which_models_end_are_those_of_the_package() -> None:
    """Those that ended before tools were used with them are left out."""
    theirs = {
        f"anthropic:{model}": _day(day)
        for model, day in anthropic_messages.DEPRECATED_MODELS.items()
        if not model.startswith(("claude-1", "claude-2", "claude-instant"))
    }
    ours = {
        name: row["until"] for name, row in current_models.current_models()["deprecated"].items()
    }
    assert ours == theirs


def test_what_replaces_a_model_is_not_about_to_end_itself() -> None:
    for name in current_models.current_models()["deprecated"]:
        end = current_models.end_of(name)
        assert end is not None and end.successor.removeprefix("anthropic:") in ANTHROPIC
        assert current_models.end_of(end.successor) is None


@pytest.mark.parametrize(
    ("key", "model"),
    [
        ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5-5"),
        ("OPENAI_API_KEY", "openai:gpt-6.1-sol"),
        ("GEMINI_API_KEY", "gemini:gemini-3.8-flash"),
    ],
)
def test_a_key_alone_chooses_the_current_model_of_its_provider(key: str, model: str) -> None:
    choice = choose({key: "k" * 20})
    assert (choice.model, choice.why, choice.hints) == (model, f"{key} is set", ())


@pytest.mark.parametrize("short", ["sonnet", "opus", "haiku", "gpt", "gemini"])
def test_a_short_name_is_the_current_model(short: str) -> None:
    assert choose(KEYS, flag=short).model == current_models.aliases()[short]


def test_a_model_that_is_about_to_end_is_used_with_a_warning_that_names_day_and_successor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sentence = (
        "anthropic:claude-sonnet-4-5 is deprecated and ends on 2026-11-30. Use "
        "anthropic:claude-sonnet-5-5 instead."
    )
    assert choose(KEYS, flag="claude-sonnet-4-5").hints == (sentence,)
    assert choose(KEYS, flag="gpt|claude-sonnet-4-5").hints == (sentence,)
    with caplog.at_level(logging.WARNING, logger="retinue.models"):
        catalog = Catalog(KEYS)
        catalog.find("anthropic:claude-sonnet-4-5")
        catalog.find("anthropic:claude-sonnet-4-5")
        catalog.find("anthropic:claude-sonnet-5-5")
    assert [record.getMessage() for record in caplog.records] == [sentence]


def test_an_unknown_model_is_answered_with_a_name_that_is_current() -> None:
    with pytest.raises(ConfigError, match=re.escape(current_models.example())):
        choose(KEYS, flag="nonsense")


def test_models_of_today_think_adaptively_and_older_ones_by_tokens() -> None:
    warned = set(anthropic_messages.MODELS_TO_WARN_WITH_THINKING_ENABLED)
    assert all(current_models.thinks_adaptively(model) for model in warned)
    by_tokens = {m for m in ANTHROPIC if not current_models.thinks_adaptively(m)}
    assert by_tokens == {
        "claude-haiku-4-5",
        "claude-haiku-4-5-20251001",
        "claude-opus-4-5",
        "claude-opus-4-5-20251101",
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
    }
    assert not current_models.thinks_adaptively("my-own-model")


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-sonnet-5-5", {"type": "adaptive"}),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 2_000}),
    ],
)
def test_the_request_asks_for_thinking_as_the_model_takes_it(model: str, thinking: Any) -> None:
    result = Catalog(KEYS, options=Options(thinking_tokens=2_000)).find(f"anthropic:{model}")
    tail = AnthropicCodec().tail(8_000, result.options)  # type: ignore[attr-defined]
    assert msgspec.json.decode(b"{" + tail.removeprefix(b"],"))["thinking"] == thinking
