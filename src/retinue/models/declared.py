"""Providers and models declared by a program: key, address, price, facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from retinue.core.values import ModelInfo, Value, checked
from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.models.base import Model
from retinue.models.catalog import Catalog
from retinue.models.prices import Price
from retinue.models.provider_settings import ProviderEntry, ProviderTerms
from retinue.models.providers import ALIASES, PROVIDERS, KnownProvider

DIALECTS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai-chat": "vllm",
    "gemini": "gemini",
}
"""By API format, the known provider whose way of speaking a new one has."""


class Provider(Value):
    """Where models are, and with which key. For a known provider, what is not given is read from
    the usual environment variables; a new one needs `base_url` and `dialect`. `allow` lists the
    models that may be used, `max_parallel` how many calls are under way together, `price` what
    those cost that no list knows."""

    api_key: str | None = None
    base_url: str | None = None
    dialect: Literal["anthropic", "openai", "openai-chat", "gemini"] | None = None
    headers: dict[str, str] | None = None
    allow: tuple[str, ...] | None = None
    max_parallel: int | None = None
    price: Price | None = None


def declared_catalog(
    environ: Mapping[str, str],
    providers: Mapping[str, Provider] | None = None,
    models: Mapping[str, Model | ModelInfo | str] | None = None,
) -> Catalog:
    """A catalog with these providers and models beside the known ones."""
    own = {
        ALIASES.get(name, name): _checked(name, provider)
        for name, provider in (providers or {}).items()
    }
    models, variables = models or {}, dict(environ)
    for name, provider in own.items():
        variables.update(_variables(name, provider))
    return Catalog(
        variables,
        providers={name: _known(name, provider) for name, provider in own.items()},
        aliases={name: model for name, model in models.items() if isinstance(model, str)},
        facts={name: model for name, model in models.items() if isinstance(model, ModelInfo)},
        models={n: m for n, m in models.items() if not isinstance(m, (str, ModelInfo))},
        allow={name: p.allow for name, p in own.items() if p.allow is not None},
        prices={f"{name}:*": p.price for name, p in own.items() if p.price is not None},
        terms={
            name: ProviderTerms(max_concurrent=p.max_parallel)
            for name, p in own.items()
            if p.max_parallel is not None
        },
    )


def _checked(name: str, provider: Provider) -> Provider:
    _check_dialect(name, provider)
    try:
        provider = checked(provider)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Provider {name!r}: {error}") from None
    if provider.max_parallel is not None and provider.max_parallel < 1:
        raise ConfigError(f"Provider {name!r}: max_parallel is 1 or more.", field="max_parallel")
    return provider


def _check_dialect(name: str, provider: Provider) -> None:
    """Said before the types are checked, for a text that is nearly right."""
    text = provider.dialect
    if isinstance(text, str) and text not in DIALECTS:
        hint, there = did_you_mean(text, DIALECTS), ", ".join(DIALECTS)
        raise ConfigError(f"Provider {name!r}: unknown dialect {text!r}.{hint} There are {there}.")


def configured_provider(name: str, entry: ProviderEntry) -> KnownProvider:
    """A provider as a configuration file declares it. Addresses and keys in the usual variables of
    a known one count first."""
    provider = Provider(base_url=entry.base_url, dialect=entry.dialect)
    provider_entry = _known(name, provider)
    keys = (entry.key,) if entry.key is not None else ()
    if name in PROVIDERS:
        keys = tuple(dict.fromkeys((*keys, *provider_entry.keys)))
    return replace(provider_entry, url=entry.base_url or provider_entry.url, keys=keys)


def _known(name: str, provider: Provider) -> KnownProvider:
    """A provider as the catalog has it."""
    _check_dialect(name, provider)
    fields: dict[str, Any] = {"sent_headers": tuple((provider.headers or {}).items())}
    if name in PROVIDERS:
        if provider.dialect is not None:
            fields["codec"] = PROVIDERS[DIALECTS[provider.dialect]].codec
        return replace(PROVIDERS[name], **fields)
    if not re.fullmatch(r"[a-z][a-z0-9_.-]*", name):
        raise ConfigError(f"Provider {name!r}: a name has small letters, digits, ., _ and -.")
    if provider.base_url is None or provider.dialect is None:
        hint = did_you_mean(name, PROVIDERS)
        raise ConfigError(
            f"Provider {name!r} is not a known one.{hint} A new one needs base_url and dialect."
        )
    key, url = _names(name)
    return KnownProvider(
        name,
        PROVIDERS[DIALECTS[provider.dialect]].codec,
        keys=(key,) if provider.api_key is not None else (),
        urls=(url,),
        **fields,
    )


def _variables(name: str, provider: Provider) -> dict[str, str]:
    """Key and address where the catalog looks for them."""
    entry = PROVIDERS.get(name)
    key, url = _names(name)
    if entry is not None:
        key, url = (entry.keys or ("",))[0], (entry.urls or ("",))[0]
    if entry is not None and provider.base_url is not None and not url:
        raise ConfigError(f"Provider {name!r} has a fixed address. Declare one of another name.")
    values = {key: provider.api_key, url: provider.base_url}
    return {variable: value for variable, value in values.items() if variable and value is not None}


def _names(name: str) -> tuple[str, str]:
    word = re.sub(r"[^A-Z0-9]", "_", name.upper())
    return f"{word}_API_KEY", f"{word}_BASE_URL"
