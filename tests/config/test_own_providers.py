"""Providers, windows and prices of one's own, in a configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue import Price
from retinue.config.layer_reader import read_layer
from retinue.config.layers import EffectiveSettings
from retinue.config.model_config import catalog_of, declarations, declared
from retinue.models.catalog import Catalog
from tests.cli.private_home import Llm, PrivateHome

HOUSE = """
[models]
default = "house:small"

[models."house:small"]
window = 32_000
max_output = 4_000
input = 0.10
output = 0.40

[models.facts."openai:gpt-6.1-sol"]
window = 50_000

[providers.house]
base_url = "{url}/v1"
dialect = "openai-chat"
key = "HOUSE_KEY"
max_concurrent = 4
"""


def settings(folder: Path, text: str, kind: Any = "user") -> EffectiveSettings:
    file = folder / "config.toml"
    file.write_text(text)
    return EffectiveSettings([read_layer(str(file), kind)])


def test_a_provider_of_ones_own_has_its_address_key_dialect_and_facts(tmp_path: Path) -> None:
    value = settings(tmp_path, HOUSE.format(url="https://llm.example.org")).checked().value
    keys = {"HOUSE_KEY": "a-key", "OPENAI_API_KEY": "another"}
    variables = {**keys, **declarations(value.models, value.providers)}
    ours = catalog_of(value.models, keys, value.providers)
    for catalog in (ours, Catalog(variables, **declared(variables))):
        model: Any = catalog.find("house:small")
        assert (model.info.window, model.info.max_output) == (32_000, 4_000)
        assert model.info.price == Price(input=0.10, output=0.40)
        assert (model.info.price_in, model.info.price_out) == (100, 400)
        assert model.governor.most == 4 and "https://llm.example.org/v1" in str(vars(model))
        assert catalog.secrets["HOUSE_KEY"] == "a-key"
        info = catalog.find("openai:gpt-6.1-sol").info
        assert info.window == 50_000 and info.priced, "the rest is as the lists have it"
        assert catalog.find("house:other").info.price is None, "unknown, not free"
    assert value.models.default == "house:small"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[providers.house]\nbase_url = "https://x.org"', "needs base_url and dialect"),
        ('[providers.house]\nbase_url = "x.org"\ndialect = "openai"', "Invalid URL"),
        ('[providers.house]\nbase_url = "https://x.org"\ndialect = "french"', "dialect"),
        (
            '[providers.house]\nbase_url = "https://x.org"\ndialect = "openai"\nkey = "sk-123"',
            "name of an environment variable",
        ),
        ("[providers.house]\nmax_concurrent = 2", "Unknown provider 'house'"),
        ('[providers.opnai]\nbase_url = "https://x.org"\ndialect = "openai"', "too like a known"),
        ('[models."openai:x"]\nwindows = 3', "Did you mean 'window'?"),
        ('[models."openai:x"]\ninput = 3', "both input and output"),
        ('[models."openai:x"]\nwindow = 0', "window"),
        ('[models."opnai:x"]\nwindow = 10', "Unknown provider 'opnai'"),
        ('[models]\n"openai:x" = 3', "with its facts below it"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, words: str) -> None:
    (problem,) = settings(tmp_path, text).problems
    assert words in str(problem)


def test_a_project_cannot_say_what_models_cost_or_where_keys_go(tmp_path: Path) -> None:
    problems = settings(tmp_path, HOUSE.format(url="https://x.org"), "project").problems
    text = "\n".join(map(str, problems))
    assert len(problems) == 3 and text.count("only be set in your user config") == 3


def test_the_command_line_uses_a_provider_of_ones_own(tmp_path: Path) -> None:
    with Llm(["It is small."]) as fake:
        home = PrivateHome(tmp_path, None, HOUSE_KEY="sk-of-the-house-123")
        (tmp_path / "config" / "retinue").mkdir()
        file = tmp_path / "config" / "retinue" / "config.toml"
        file.write_text(HOUSE.format(url=fake.llm.url))
        results = home.real("run", "-p", "--output-format", "json", "How big is it?")
        assert results.returncode == 0, results.stderr
        result = json.loads(results.stdout)
        assert result["result"] == "It is small." and result["total_cost_usd"] > 0
        (request,) = fake.llm.requests
        assert request.body["model"] == "small"
        listed = home.real("models", "list")
        assert "house" in listed.stdout, listed
        home.real("stop")
