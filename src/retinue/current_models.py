"""The models that Retinue names by itself, read from one dated file: defaults, short names, what a
family allows, and what is about to end."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("current_models.toml")


class ModelEnd(NamedTuple):
    """A model that its provider switches off on a day (`YYYY-MM-DD`), and what replaces it."""

    model: str
    until: str
    successor: str

    @property
    def sentence(self) -> str:
        return f"{self.model} is deprecated and ends on {self.until}. Use {self.successor} instead."


@cache
def current_models() -> dict[str, Any]:
    """The file as it is."""
    import tomllib

    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def defaults() -> dict[str, str]:
    """The model of each provider when only its key is set, in the order in which keys are looked
    for."""
    return dict(current_models()["defaults"])


def aliases() -> dict[str, str]:
    """Short names, as files of Claude's agents have them."""
    return dict(current_models()["aliases"])


def names_of(provider: str) -> list[str]:
    """The models of a provider that are named here: its own first."""
    named = [defaults().get(provider, ""), *allowed().get(provider, ())]
    named += [
        model
        for name in aliases().values()
        for head, _, model in [name.partition(":")]
        if head == provider
    ]
    return [name for name in dict.fromkeys(named) if name]


def allowed() -> dict[str, list[str]]:
    """The models that sub-agents may use of each provider, the default first."""
    return {provider: list(names) for provider, names in current_models()["allowed"].items()}


def example() -> str:
    """A full name of a model, for messages that show how one is written."""
    return f"anthropic:{current_models()['defaults']['anthropic']}"


def end_of(name: str) -> ModelEnd | None:
    """When `provider:model` ends, if that is known."""
    row = current_models()["deprecated"].get(name)
    if row is None:
        return None
    provider = name.partition(":")[0]
    return ModelEnd(name, row["until"], f"{provider}:{row['successor']}")


def thinks_adaptively(model: str) -> bool:
    """Whether a model of Anthropic decides itself how long it thinks."""
    if not model.startswith("claude-"):
        return False
    return not any(fnmatchcase(model, by) for by in current_models()["thinking"]["by_tokens"])


def output_limit(model: str, otherwise: int) -> int:
    """How many tokens a reply of a model can have, as far as it is known."""
    table: dict[str, int] = current_models()["output"]
    return next((most for by, most in table.items() if fnmatchcase(model, by)), otherwise)


def has_fixed_sampling(model: str) -> bool:
    """Whether a model of OpenAI takes neither `temperature` nor `top_p`."""
    return any(fnmatchcase(model, by) for by in current_models()["sampling"]["fixed"])
