"""The settings of the family `agent`, and which provider and model a child gets: the first that is
given counts, and what is not on the provider's list is refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.core.values import Value
from retinue.tools.base import RuntimeReader
from retinue.tools.families.base import CallComplaint, FamilySettings

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
PREFIXES = {
    "claude": "anthropic",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gemini",
}
INHERIT = "inherit"


class Concurrency(Value, forbid_unknown_fields=True):
    """Numbers over which a spawn is refused; nothing queues."""

    max_depth: Number = 3
    max_concurrent_ops: Number = 32
    max_concurrent_agents: Number = 8
    max_children_per_agent: Number = 5


class AgentSettings(FamilySettings):
    """`[sub_agents]`. A provider or model of `inherit` is the parent's; a model of None is the
    first on the provider's list. `allowed_models` are those lists: each model on them is looked up
    by its provider and name. Without lists any model that the runtime knows may be asked for.

    `allow_nested_spawn` is a permission, not the wiring: children spawn only where
    `grant_spawn_tools` gives them the tools as well, which is off. `more_tools`: `agent_send`,
    `agent_wait` and `agent_resume` beside the five. `more_keys`: `note` and `tokens_estimated` in a
    status."""

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
    more_tools: bool = True
    more_keys: bool = True

    @property
    def is_default_named(self) -> bool:
        """Whether a certain model is configured."""
        return self.default_model not in (None, INHERIT)

    def __post_init__(self) -> None:
        name = self.default_provider
        if name not in (*PROVIDERS, INHERIT):
            raise ValueError(
                f"sub_agents.default_provider {name!r} is not one of "
                f"{', '.join(PROVIDERS)}, {INHERIT}"
            )
        if self.allowed_models is None:
            return
        for provider in PROVIDERS:
            if not self.allowed_models.get(provider):
                raise ValueError(
                    f"sub_agents.allowed_models.{provider} must be set and must not be empty"
                )
        for provider, models in self.allowed_models.items():
            if provider not in PROVIDERS:
                raise ValueError(f"sub_agents.allowed_models.{provider}: unknown provider")
            if "*" in models:
                raise ValueError(
                    f"sub_agents.allowed_models.{provider}: `*` is not supported; name the models"
                )
        self._check_default()

    def _check_default(self) -> None:
        provider, model = self.default_provider, self.default_model
        if not self.is_default_named:
            return
        lists = self.allowed_models or {}
        allowed = (
            lists.get(provider, ())
            if provider != INHERIT
            else [m for models in lists.values() for m in models]
        )
        if model not in allowed:
            raise ValueError(f"sub_agents.default_model {model!r} is not in the list of {provider}")


def provider_of(model: str) -> str | None:
    """The provider that a model's name tells: `provider:model`, or a known prefix."""
    head, colon, _ = model.partition(":")
    if colon and head.lower() in ALIASES:
        return ALIASES[head.lower()]
    return next((p for prefix, p in PREFIXES.items() if model.lower().startswith(prefix)), None)


def any_provider_of(model: str) -> str:
    """The same for providers of which the document does not know; what no name tells is unknown."""
    head, mark, _ = model.replace("/", ":").partition(":")
    return provider_of(model) or (head.lower() if mark and head else "unknown")


def bare(model: str) -> str:
    head, colon, rest = model.partition(":")
    return rest if colon and head.lower() in ALIASES else model


def resolve(
    settings: AgentSettings,
    provider: str | None,
    model: str | None,
    parents: str,
    look: RuntimeReader,
) -> tuple[str, str, str]:
    """The provider and the model of a child, and the name by which the runtime knows it, or a
    `CallComplaint`.

    `parents` is the parent's model, by the name that the runtime has for it.
    """
    models = look.models()
    if settings.allowed_models is None:
        name, choice = _unlisted(settings, provider, model, parents, look)
    else:
        mine = look.resolved(parents).partition(" | ")[0]  # of several alternatives, the first
        name, choice = _listed(settings, settings.allowed_models, provider, model, mine)
        if choice == bare(mine) and provider_of(mine) == name:
            return name, choice, parents
    real = next((m for m in (choice, f"{name}:{choice}") if m in models), None)
    if real is None and settings.allowed_models is not None:
        real = f"{name}:{choice}"
        if why := look.find_model(real):
            raise CallComplaint(f"Failed to create LLM client: {why}")
    if real is None:
        there = ", ".join(models)
        raise CallComplaint(
            f"Failed to create LLM client: unknown model '{choice}' (known: {there})"
        )
    return name, choice, real


def _unlisted(
    settings: AgentSettings,
    provider: str | None,
    model: str | None,
    parents: str,
    look: RuntimeReader,
) -> tuple[str, str]:
    def of(name: str) -> str | None:
        return provider_of(look.resolved(name))

    provider_name = provider or (
        None if settings.default_provider == INHERIT else settings.default_provider
    )
    default = settings.default_model if settings.is_default_named else None
    if (
        default is not None
        and provider_name is not None
        and of(default) not in (None, provider_name)
    ):
        default = None
    choice = model or default
    if choice is None and provider_name is not None and of(parents) != provider_name:
        choice = next((m for m in look.models() if of(m) == provider_name), None)
        if choice is None:
            raise CallComplaint(
                f"Failed to create LLM client: no model of provider '{provider_name}' is known"
            )
    choice = choice or parents
    if provider_name is not None and of(choice) not in (None, provider_name):
        raise CallComplaint(
            f"Failed to create LLM client: model '{choice}' does not belong to provider "
            f"'{provider_name}'"
        )
    return provider_name or any_provider_of(look.resolved(choice)), choice


def _listed(
    settings: AgentSettings,
    lists: dict[str, tuple[str, ...]],
    provider: str | None,
    model: str | None,
    parents: str,
) -> tuple[str, str]:
    name = provider or settings.default_provider
    default = settings.default_model
    if name == INHERIT:
        named = model or (default if settings.is_default_named else None)
        provider_name = (
            _listing(lists, named) or provider_of(named) if named else provider_of(parents)
        )
        if provider_name is None:
            raise CallComplaint(
                f"The provider is ambiguous: it is inherited, and {named or parents!r} "
                f"does not say which. Name one of {', '.join(PROVIDERS)}."
            )
        name = provider_name
    allowed = lists[name]
    if default == INHERIT:
        default = bare(parents) if provider_of(parents) in (None, name) else None
    elif default not in allowed:
        default = None  # It is of another provider than the one that was asked for.
    choice = model or default or allowed[0]
    if choice not in allowed:
        listed = ", ".join(allowed)
        raise CallComplaint(
            f"Model '{choice}' is not in allowlist for provider '{name}'. Allowed models: {listed}"
        )
    return name, choice


def _listing(lists: dict[str, tuple[str, ...]], model: str) -> str | None:
    """The provider on whose list a model is."""
    return next((provider for provider, models in lists.items() if model in models), None)
