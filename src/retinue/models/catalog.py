"""Models by name: `provider:model`, an alias, or a chain of fallbacks. All models of a catalog share one pool of
connections, and those of one account and model share a governor.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from retinue.errors import ConfigError
from retinue.models.base import Model
from retinue.models.codec import Options
from retinue.models.fallback import Fallback
from retinue.models.governor import Governor
from retinue.models.http import Client, HttpModel, Times
from retinue.models.prices import facts
from retinue.models.providers import ALIASES, PROVIDERS, Provider


class Catalog:
    """Makes models when they are asked for. `environ` holds keys and addresses; `aliases` are short names; `allow`
    lists what may be used of a provider (patterns like `claude-*`); `options` go to every model. `offered`
    are models that runs may ask for although no agent has them."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        aliases: Mapping[str, str] | None = None,
        allow: Mapping[str, Sequence[str]] | None = None,
        offered: Sequence[str] = (),
        options: Options | None = None,
        times: Times | None = None,
    ) -> None:
        self._environ, self._aliases, self._allow = environ, dict(aliases or {}), dict(allow or {})
        self._options = options or Options()
        self.offered = tuple(offered)
        self.client = Client(times or Times())
        self._made: dict[str, Model] = {}
        self._governors: dict[tuple[str, str, str], Governor] = {}

    def find(self, name: str) -> Model:
        """The model of this name, made once. Raises `ConfigError` saying what is wrong and what to do."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(name)
        return made

    async def close(self) -> None:
        await self.client.close()

    def _make(self, name: str) -> Model:
        resolved = self._resolve(name)
        if "|" in resolved:
            parts = [p.strip() for p in resolved.split("|") if p.strip()]
            return Fallback([self.find(p) for p in parts], name=name)
        head, colon, model = resolved.partition(":")
        if not colon or not model.strip():
            raise ConfigError(f"model {name!r} names no provider: write it like anthropic:claude-sonnet-4-5")
        provider = self._provider(head)
        self._check_allowed(provider, model)
        key = provider.key(self._environ)
        if provider.keys and not key:
            raise ConfigError(f"no key for {provider.name}: set {' or '.join(provider.keys)} in the environment")
        url = provider.base_url(self._environ)
        if not url:
            raise ConfigError(f"no address for {provider.name}: set {' or '.join(provider.urls)} in the environment")
        return HttpModel(
            facts(name, provider.prices, model, max_output=provider.max_output),
            provider.codec(self._environ),
            model=model,
            base_url=url,
            key=key,
            client=self.client,
            governor=self._governor(provider.name, key, model),
            options=self._options,
        )

    def _resolve(self, name: str) -> str:
        seen = {name}
        while name in self._aliases:
            name = self._aliases[name]
            if name in seen:
                raise ConfigError(f"the alias {name!r} leads back to itself")
            seen.add(name)
        return name

    def _provider(self, name: str) -> Provider:
        wanted = name.strip().lower()
        found = PROVIDERS.get(ALIASES.get(wanted, wanted))
        if found is None:
            near = difflib.get_close_matches(wanted, [*PROVIDERS, *ALIASES], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no provider {name!r}.{hint} There is: {', '.join(sorted(PROVIDERS))}")
        return found

    def _check_allowed(self, provider: Provider, model: str) -> None:
        allowed = self._allow.get(provider.name)
        if allowed is not None and not any(fnmatchcase(model, pattern) for pattern in allowed):
            listed = ", ".join(allowed) or "none"
            raise ConfigError(f"model {model!r} is not allowed for provider {provider.name!r}; allowed: {listed}")

    def _governor(self, provider: str, key: str, model: str) -> Governor:
        at = (provider, key, model)
        if at not in self._governors:
            self._governors[at] = Governor(_loop_time)
        return self._governors[at]


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
