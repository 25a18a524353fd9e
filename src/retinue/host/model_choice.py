"""Chooses the model and gives the reason: the named one, else by the environment, else the offline
explorer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from retinue import current_models
from retinue.core.values import NANOS_PER_USD
from retinue.errors import ConfigError, NoProvider
from retinue.formats.suggestion import did_you_mean, nearest

if TYPE_CHECKING:
    from retinue.host.replies import ProviderInfo
    from retinue.models.providers import KnownProvider

OFFLINE = "offline/explorer"
SERVERS = {"ollama": 11434, "lmstudio": 1234, "llamacpp": 8080, "vllm": 8000}
PROBE_SECONDS = 0.15
LIST_PROVIDERS = "Run `retinue models list` to list providers."
_FAMILIES = {
    "claude": "anthropic",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gemini",
}


class ModelChoice(NamedTuple):
    """A model, the reason for it, and what else could be used."""

    model: str
    why: str
    hints: tuple[str, ...] = ()


def choose(
    environ: Mapping[str, str], *, flag: str = "", agent: str = "", config: str = ""
) -> ModelChoice:
    """The model for a run. Raises `ConfigError` for a name that means nothing, `NoProvider` for a
    missing key."""
    model_name = environ.get("RETINUE_MODEL", "")
    for name, why in (
        (flag, "--model"),
        (agent, "the agent's file"),
        (config, "the configuration"),
        (model_name, "RETINUE_MODEL"),
    ):
        if name and name != "inherit":
            model = checked(name, environ)
            return ModelChoice(model, why, endings(model))
    from retinue.models.providers import PROVIDERS

    defaults = current_models.defaults()
    for name, model in defaults.items():
        provider = PROVIDERS[name]
        variable = next((key for key in provider.keys if environ.get(key, "").strip()), "")
        if variable:
            return ModelChoice(checked(f"{name}:{model}", environ), f"{variable} is set")
    keys = [
        key
        for p in PROVIDERS.values()
        if p.name not in defaults
        for key in p.keys
        if environ.get(key, "").strip()
    ]
    hints = [f"{key} is set. To use it, pass --model PROVIDER:MODEL." for key in keys]
    hints += [
        f"Found here:   {name} on port {SERVERS[name]}. Use it with -m {name}:MODEL"
        for name in local_servers(environ)
    ]
    return ModelChoice(OFFLINE, "no model configured", tuple(hints))


def has_key(environ: Mapping[str, str]) -> bool:
    """Whether a model is named or the key of a provider is set."""
    from retinue.models.providers import PROVIDERS

    names = ["RETINUE_MODEL", *(key for one in PROVIDERS.values() for key in one.keys)]
    return any(environ.get(name, "").strip() for name in names)


def checked(name: str, environ: Mapping[str, str]) -> str:
    """The full name of a model. Its provider is known and its key is there."""
    name = name.strip()
    if name == OFFLINE or name.startswith("local/"):
        return name
    if name in ("offline", "explorer"):
        return OFFLINE
    name = current_models.aliases().get(name.lower(), name)
    if "|" in name:
        return "|".join(checked(part, environ) for part in name.split("|"))
    if ":" not in name:
        family = next((p for head, p in _FAMILIES.items() if name.lower().startswith(head)), "")
        if not family and (default := current_models.defaults().get(name.lower())):
            raise ConfigError(
                f"{name!r} is a provider",
                f"Name one of its models too: {name.lower()}:{default}. {LIST_PROVIDERS}",
            )
        if not family:
            hint = did_you_mean(name, [OFFLINE, *_known_names()])
            raise ConfigError(
                f"Unknown model {name!r}",
                f"{hint} Use PROVIDER:MODEL, for example {current_models.example()}. "
                f"{LIST_PROVIDERS}".lstrip(),
            )
        name = f"{family}:{name}"
    return _with_key(name, environ)


def endings(name: str) -> tuple[str, ...]:
    """What to tell of a model, or of a chain of them, that its provider is about to switch off."""
    ends = [current_models.end_of(part.strip()) for part in name.split("|")]
    return tuple(end.sentence for end in ends if end is not None)


def _known_names() -> list[str]:
    defaults, aliases = current_models.defaults(), current_models.aliases()
    return [*defaults, *defaults.values(), *aliases]


def _with_key(name: str, environ: Mapping[str, str]) -> str:
    from retinue.models.providers import ALIASES, PROVIDERS

    head, _, model = (part.strip() for part in name.partition(":"))
    prefix = head.lower()
    provider = PROVIDERS.get(ALIASES.get(prefix, prefix))
    if provider is None or not model:
        if provider is not None:
            raise ConfigError(f"{name!r} has no model name", f"Use {head}:MODEL. {LIST_PROVIDERS}")
        hint = did_you_mean(prefix, [*PROVIDERS, *ALIASES])
        raise ConfigError(f"Unknown provider {head!r}", f"{hint} {LIST_PROVIDERS}".lstrip())
    if provider.keys and not provider.key(environ):
        raise NoProvider(
            f"No API key for {provider.name}",
            f"Set {' or '.join(provider.keys)}, or use --model {OFFLINE}, which needs no key.",
        )
    if not provider.base_url(environ):
        raise NoProvider(
            f"No base URL for {provider.name}",
            f"Set {' or '.join(provider.urls)}.",
        )
    if provider.base_url(environ) == provider.url and (known_model := other_model(provider, model)):
        raise ConfigError(
            f"Unknown model {provider.name}:{model}",
            f"Did you mean {provider.name}:{known_model}? Run `retinue models list`.",
        )
    return f"{provider.name}:{model}"


def other_model(provider: KnownProvider, model: str) -> str:
    """The model that was probably meant, if a provider's own server does not know this one. A name
    that is like none is left to the provider: it may be newer than the price list."""
    ours = current_models.names_of(provider.name)
    if model in ours or not provider.prices:
        return ""
    from retinue.models.prices import model_names

    listed = model_names(provider.prices, model)
    return nearest(model, [*ours, *listed], cutoff=0.9) if listed else ""


def local_servers(environ: Mapping[str, str]) -> list[str]:
    """Servers on this machine that list models. They are offered, never used unasked."""
    import socket

    if environ.get("RETINUE_PROBE") == "0":
        return []
    names = []
    for name, port in SERVERS.items():
        try:
            with socket.create_connection(("127.0.0.1", port), PROBE_SECONDS) as line:
                line.settimeout(PROBE_SECONDS)
                line.sendall(b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")
                if line.recv(64).split(b" ")[1:2] == [b"200"]:
                    names.append(name)
        except (OSError, ValueError):
            continue
    return names


def providers(environ: Mapping[str, str]) -> Iterator[ProviderInfo]:
    """Every provider, whether its key is set, and what its default model costs."""
    from retinue.host.replies import ProviderInfo
    from retinue.models.prices import model_facts
    from retinue.models.providers import PROVIDERS

    defaults = current_models.defaults()
    for provider in PROVIDERS.values():
        is_set = any(environ.get(key, "").strip() for key in provider.keys)
        default = defaults.get(provider.name, "")
        prices = provider.prices if default else ""
        facts = model_facts(default, prices, default, max_output=provider.max_output)
        yield ProviderInfo(
            provider=provider.name,
            ready=is_set or not provider.keys,
            keys=tuple(provider.keys),
            default=default,
            usd_in=_per_million(facts.price_in),
            usd_out=_per_million(facts.price_out),
            usd_cached=_per_million(facts.price_cache_read),
        )


def _per_million(nanos_per_token: int | None) -> float | None:
    return None if nanos_per_token is None else nanos_per_token * 1_000_000 / NANOS_PER_USD
