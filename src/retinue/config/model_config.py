"""The configuration of models in the form a catalog takes: keys and addresses, aliases, allowed
models, prices and rate limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.config import value_checks as checks
from retinue.config.problems import shown
from retinue.config.schema import ModelsSection
from retinue.errors import ConfigError
from retinue.models.providers import ALIASES, LOCAL, PROVIDERS, adopt_providers, provider_name

if TYPE_CHECKING:
    from retinue.models.catalog import Catalog

PRICES, TERMS = "RETINUE_MODEL_PRICES", "RETINUE_PROVIDER_TERMS"
FACTS = "RETINUE_MODEL_FACTS"
Entries = Mapping[str, Mapping[str, Any]]


def check_entry(path: tuple[str, ...], value: Any = None) -> str:
    """The name of an entry as it is used: providers by their own names. `ValueError` for one that
    means nothing."""
    section, name = tuple(path[:-1]), path[-1]
    kind = section[-1] if section[:1] in (("models",), ("providers",)) else ""
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise ValueError("A name must be printable and must not be empty")
    if kind in ("prices", "facts"):
        return checks.model(name)
    if kind == "providers" and isinstance(value, dict) and "base_url" in value:
        return _own_provider(name, value)
    if kind in ("allow", "urls", "keys", "providers"):
        try:
            provider = provider_name(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if kind == "urls" and (provider == LOCAL or not PROVIDERS[provider].urls):
            with_address = ", ".join(p.name for p in PROVIDERS.values() if p.urls)
            raise ValueError(
                f"The base URL of {provider} cannot be changed. It can be set for {with_address}"
            )
        if kind == "providers" and provider == LOCAL:
            raise ValueError("A model that runs in this process has no rate limits")
        if kind == "keys" and (provider == LOCAL or not PROVIDERS[provider].keys):
            raise ValueError(f"{provider} needs no API key")
        return provider
    if kind in ("aliases", "fallbacks") and (set(name) & set(":|") or name != name.strip()):
        raise ValueError(f"{shown(name)!r} cannot be an alias. Remove ':', '|' and spaces")
    return name


def _own_provider(name: str, value: Mapping[str, Any]) -> str:
    """One that is declared whole need not be a known one."""
    name = ALIASES.get(name, name)
    if name == LOCAL or (name not in PROVIDERS and not checks.may_be_own(name)):
        raise ValueError(
            f"{shown(name)!r} is taken, or too like a known provider. Use another name"
        )
    if name not in PROVIDERS and "dialect" not in value:
        raise ValueError("A provider of your own needs base_url and dialect")
    return name


def model_environment(models: ModelsSection, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with the keys and addresses that are configured. A variable that is named for
    a provider counts before its usual ones, if it is set; an address in the environment counts
    before one in a file."""
    out = dict(environ)
    for name, variable in models.keys.items():
        value = environ.get(variable, "").strip()
        if value:
            first, *others = PROVIDERS[name].keys
            out[first] = value
            for other in others:
                out.pop(other, None)
    for name, url in models.urls.items():
        variables = PROVIDERS[name].urls
        if not any(environ.get(v, "").strip() for v in variables):
            out[variables[0]] = url
    return out


def model_names(models: ModelsSection) -> dict[str, str]:
    """Aliases for a catalog; a chain is an alias too."""
    return {
        **models.aliases,
        **{name: " | ".join(chain) for name, chain in models.fallbacks.items() if chain},
    }


def catalog_of(
    models: ModelsSection, environ: Mapping[str, str], providers: Entries | None = None
) -> Catalog:
    """A catalog as it is configured; `providers` is the section of that name."""
    from retinue.models.catalog import Catalog

    return Catalog(
        model_environment(models, environ),
        aliases=model_names(models),
        allow=models.allow,
        offered=models.offered,
        **declared(
            {
                PRICES: _encode(models.prices),
                FACTS: _encode(models.facts),
                TERMS: _encode(providers or {}),
            }
        ),
    )


def declarations(models: ModelsSection, providers: Entries) -> dict[str, str]:
    """Prices, facts and providers as variables, for the process that keeps the runs. It knows no
    aliases: they are resolved."""
    prices = {resolved(name, models): price for name, price in models.prices.items()}
    facts = {resolved(name, models): entry for name, entry in models.facts.items()}
    declared = {PRICES: prices, FACTS: facts, TERMS: providers}
    return {name: _encode(entries) for name, entries in declared.items() if entries}


def declared(environ: Mapping[str, str]) -> dict[str, Any]:
    """What a catalog takes of such variables: `prices`, `facts`, `providers` and `terms`."""
    from retinue.models.declared import configured_provider
    from retinue.models.model_facts import ModelFacts
    from retinue.models.prices import Price
    from retinue.models.provider_settings import ProviderEntry

    decode = msgspec.json.decode
    try:
        entries = decode(environ.get(TERMS) or "{}", type=dict[str, ProviderEntry])
        return {
            "prices": decode(environ.get(PRICES) or "{}", type=dict[str, Price]),
            "facts": decode(environ.get(FACTS) or "{}", type=dict[str, ModelFacts]),
            "terms": entries,
            "providers": {
                name: configured_provider(name, entry)
                for name, entry in entries.items()
                if entry.is_declared
            },
        }
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{PRICES}, {FACTS} or {TERMS} is invalid: {error}") from None


def adopt_declared(environ: Mapping[str, str]) -> None:
    """Providers of the user's own are known to this process from now on."""
    if environ.get(TERMS):
        adopt_providers(declared(environ)["providers"])


def _encode(entries: Entries) -> str:
    return msgspec.json.encode(entries).decode()


def resolved(name: str, models: ModelsSection) -> str:
    """The model of an alias, if it is one: read before a catalog exists."""
    return _resolved(name, model_names(models), ())


def _resolved(name: str, names: Mapping[str, str], way: tuple[str, ...]) -> str:
    if name in way:
        raise ConfigError(f"Alias {way[0]!r} refers to itself: {' -> '.join([*way, name])}")
    if name not in names and "|" not in name:
        return name
    parts = [part.strip() for part in names.get(name, name).split("|") if part.strip()]
    return " | ".join(_resolved(part, names, (*way, name)) for part in parts)
