"""The settings of the family `agent`, and which provider and model a child gets: the first that is given counts, and
what is not on the provider's list is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from retinue.core.values import Value
from retinue.tools.families.base import Complaint, Settings

Number = Annotated[int, Meta(ge=0)]

PROVIDERS = ("anthropic", "openai", "gemini")
ALIASES = {
    "anthropic": "anthropic",
    "claude": "anthropic",
    "openai": "openai",
    "gpt": "openai",
    "chatgpt": "openai",
    "gemini": "gemini",
    "google": "gemini",
}
PREFIXES = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "gemini": "gemini"}
INHERIT = "inherit"


class Concurrency(Value, forbid_unknown_fields=True):
    """Numbers over which a spawn is refused; nothing queues."""

    max_depth: Number = 3
    max_concurrent_ops: Number = 32
    max_concurrent_agents: Number = 8
    max_children_per_agent: Number = 5


class AgentSettings(Settings):
    """`[sub_agents]`. A provider or model of `inherit` is the parent's; a model of None is the first on the provider's
    list. `allowed_models` are those lists; without them any model that the runtime knows may be asked for.

    `grant_spawn_tools` wires nesting: without it children have no tools to spawn, whatever `allow_nested_spawn` says.
    """

    default_provider: str = INHERIT
    default_model: str | None = INHERIT
    concurrency_limits: Concurrency = Concurrency()
    allow_nested_spawn: bool = True
    grant_spawn_tools: bool = False
    max_budget_per_agent: Number | None = None
    default_budget: Number | None = 50_000
    inherit_system_prompt: bool = True
    enable_comms: bool = False
    allowed_models: dict[str, tuple[str, ...]] | None = None
    finished_kept: Number = 256

    def __post_init__(self) -> None:
        name = self.default_provider
        if name not in (*PROVIDERS, INHERIT):
            raise ValueError(f"sub_agents.default_provider {name!r} is none of {', '.join(PROVIDERS)}, {INHERIT}")
        if self.allowed_models is None:
            return
        for provider in PROVIDERS:
            if not self.allowed_models.get(provider):
                raise ValueError(f"sub_agents.allowed_models.{provider} must be there and not be empty")
        for provider, models in self.allowed_models.items():
            if provider not in PROVIDERS:
                raise ValueError(f"sub_agents.allowed_models.{provider}: there is no such provider")
            if "*" in models:
                raise ValueError(f"sub_agents.allowed_models.{provider}: `*` is not taken; name the models")
        self._check_default()

    def _check_default(self) -> None:
        provider, model = self.default_provider, self.default_model
        if model is None or model == INHERIT:
            return
        lists = self.allowed_models or {}
        allowed = lists.get(provider, ()) if provider != INHERIT else [m for known in lists.values() for m in known]
        if model not in allowed:
            raise ValueError(f"sub_agents.default_model {model!r} is not on the list of {provider}")


def provider_of(model: str) -> str | None:
    """The provider that a model's name tells: `provider:model`, or a known prefix."""
    head, colon, _ = model.partition(":")
    if colon and head.lower() in ALIASES:
        return ALIASES[head.lower()]
    return next((p for prefix, p in PREFIXES.items() if model.lower().startswith(prefix)), None)


def bare(model: str) -> str:
    head, colon, rest = model.partition(":")
    return rest if colon and head.lower() in ALIASES else model


def resolve(
    settings: AgentSettings, provider: str | None, model: str | None, parents: str, known: Sequence[str]
) -> tuple[str, str, str]:
    """The provider and the model of a child, and the name by which the runtime knows it, or a `Complaint`.

    `parents` is the parent's model, `known` are all that the runtime has.
    """
    if settings.allowed_models is None:
        name, chosen = _unlisted(settings, provider, model, parents, known)
    else:
        name, chosen = _listed(settings, settings.allowed_models, provider, model, parents)
    real = next((m for m in (chosen, f"{name}:{chosen}") if m in known), None)
    if real is None:
        there = ", ".join(known)
        raise Complaint(f"Failed to create LLM client: model '{chosen}' is not known here (known: {there})")
    return name, chosen, real


def _unlisted(
    settings: AgentSettings, provider: str | None, model: str | None, parents: str, known: Sequence[str]
) -> tuple[str, str]:
    default = None if settings.default_model in (None, INHERIT) else settings.default_model
    wanted = provider or (None if settings.default_provider == INHERIT else settings.default_provider)
    chosen = model or default
    if chosen is None and wanted is not None and provider_of(parents) != wanted:
        chosen = next((m for m in known if provider_of(m) == wanted), None)
        if chosen is None:
            raise Complaint(f"Failed to create LLM client: no model of provider '{wanted}' is known here")
    chosen = chosen or parents
    if wanted is not None and provider_of(chosen) not in (None, wanted):
        raise Complaint(f"Failed to create LLM client: model '{chosen}' is not of provider '{wanted}'")
    return wanted or provider_of(chosen) or INHERIT, chosen


def _listed(
    settings: AgentSettings,
    lists: dict[str, tuple[str, ...]],
    provider: str | None,
    model: str | None,
    parents: str,
) -> tuple[str, str]:
    name = provider or settings.default_provider
    if name == INHERIT:
        found = provider_of(model or parents)
        if found is None:
            raise Complaint(
                f"The provider is ambiguous: it is to be inherited, and {model or parents!r} does not tell it. "
                f"Name one of {', '.join(PROVIDERS)}."
            )
        name = found
    allowed = lists[name]
    chosen = model or settings.default_model or allowed[0]
    if chosen == INHERIT:
        chosen = bare(parents)
    if chosen not in allowed:
        listed = ", ".join(allowed)
        raise Complaint(f"Model '{chosen}' is not in allowlist for provider '{name}'. Allowed models: {listed}")
    return name, chosen
