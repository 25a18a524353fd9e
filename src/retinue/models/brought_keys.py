"""API keys that commands bring while other accounts are in use: a key is only used with its own
address."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.errors import ConfigError
from retinue.models.connection_pool import checked_url
from retinue.models.providers import PROVIDERS, KnownProvider


def with_brought(environ: Mapping[str, str], keys_brought: Mapping[str, str]) -> dict[str, str]:
    """What is known with what a program brings; what is blank is not brought. A key takes the place
    of every other key of its provider, whatever variable that was in. Raises `ConfigError` for what
    cannot be a key or an address."""
    new = {name: value for name, value in keys_brought.items() if value.strip()}
    out = dict(environ)
    for provider in PROVIDERS.values():
        _check(provider, new)
        if _has(provider.keys, new):
            out = _without(provider.keys, out)
    return {**out, **new}


def with_command(
    environ_before: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """What is known with the environment of a command. That is whole: where it has a key, its
    address, or that it has none, counts too, and without a key its address is for none of ours.
    What cannot be used is omitted, with why."""
    new = {name: value for name, value in environ.items() if value.strip()}
    out, wrong = dict(environ_before), []
    for provider in PROVIDERS.values():
        try:
            _check(provider, new)
            is_ours = not provider.keys or _has(provider.keys, new)
        except ConfigError as error:
            wrong.append(str(error))
            is_ours = False
        if not is_ours:
            new = _without((*provider.keys, *provider.urls), new)
        elif provider.keys:
            out = _without((*provider.keys, *provider.urls), out)
    return {**out, **new}, wrong


def _check(provider: KnownProvider, environ: Mapping[str, str]) -> None:
    provider.key(environ)
    if _has(provider.urls, environ):
        checked_url(provider.base_url(environ))


def _has(names: tuple[str, ...], environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in names)


def _without(names: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}
