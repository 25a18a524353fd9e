"""Models by name: `provider:model`, an alias, or a chain of fallbacks. All models of a catalog
share one pool of connections, and those of one account and model share a governor and what is known
of the prompt cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from retinue.core.ids import digest
from retinue.core.secret_values import secrets_of
from retinue.core.values import ModelInfo
from retinue.current_models import (
    end_of,
    example,
    has_fixed_sampling,
    output_limit,
    thinks_adaptively,
)
from retinue.errors import ConfigError, NoKey
from retinue.models.base import Model
from retinue.models.brought_keys import with_brought
from retinue.models.codec import Options
from retinue.models.fallback import Fallback
from retinue.models.governor import Governor
from retinue.models.http import ConnectionPool, HttpModel, Times
from retinue.models.model_facts import ModelFacts
from retinue.models.prices import FREE, Price, is_near, model_facts
from retinue.models.prompt_cache import PromptCacheState, shortest
from retinue.models.provider_settings import ProviderTerms
from retinue.models.providers import LOCAL, PROVIDERS, KnownProvider, provider_name
from retinue.models.usage_checks import PREAMBLE

__all__ = ["Catalog", "ModelStatus", "Price", "ProviderTerms"]

log = logging.getLogger("retinue.models")
OFFLINE = "offline/explorer"
CHAIN = " | "

if TYPE_CHECKING:
    from retinue.models.local import LocalModel


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """How it goes with one model of one account. `why` says what is waited for, "" when nothing is.
    Rates are shares of the prompts' tokens: what a prompt cache should have had, and what it had.
    `expected_nanos` and `saved_nanos` are what that should have saved and has saved; for it `waits`
    calls have waited, `waited_seconds` in all."""

    name: str
    in_flight: int
    waiting: int
    width: int
    why: str
    per_minute: Mapping[str, float]
    expected_rate: float
    hit_rate: float
    expected_nanos: int = 0
    saved_nanos: int = 0
    waits: int = 0
    waited_seconds: float = 0.0


JoinAccount = Callable[[str, Governor], None]


def _shared_name(provider: str, account: str, model: str) -> str:
    """A name that tells nothing of the key."""
    return f"{provider}:{model}#{digest('shared', account)[:12]}"


class _Account(NamedTuple):
    """A key, an address, and what all models that use them share."""

    key: str
    url: str
    governor: Governor
    warmth: PromptCacheState


class Catalog:
    """Makes models when they are asked for. `environ` holds keys and addresses; `aliases` are short
    names; `allow` lists what may be used of a provider (patterns like `claude-*`); `options` go to
    every model. `offered` are models that runs may ask for although no agent has them. `prices` are
    what models cost, by `provider:model`, by a pattern of that, or by an alias; `terms` say for a
    provider how fast it is called. `providers` are others than the known ones, or known ones
    changed; `facts` go over what lists say of a model, and `models` are there already."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        aliases: Mapping[str, str] | None = None,
        allow: Mapping[str, Sequence[str]] | None = None,
        offered: Sequence[str] = (),
        options: Options | None = None,
        times: Times | None = None,
        prices: Mapping[str, Price] | None = None,
        terms: Mapping[str, ProviderTerms] | None = None,
        providers: Mapping[str, KnownProvider] | None = None,
        facts: Mapping[str, ModelInfo | ModelFacts] | None = None,
        models: Mapping[str, Model] | None = None,
    ) -> None:
        self._environ, self._aliases = environ, dict(aliases or {})
        self._providers = {**PROVIDERS, **(providers or {})}
        self._own = dict(models or {})
        self._facts = {self.resolve(name): info for name, info in (facts or {}).items()}
        self._prices = {self.resolve(name): price for name, price in (prices or {}).items()}
        self._terms = {
            self._provider(name): declaration for name, declaration in (terms or {}).items()
        }
        self._allow = {
            self._provider(name): tuple(patterns) for name, patterns in (allow or {}).items()
        }
        self._options = options or Options()
        self.offered = tuple(offered)
        self.client = ConnectionPool(times or Times(), environ=environ)
        self._made: dict[str, Model] = dict(self._own)
        self._in_process: dict[str, LocalModel] = {}
        self._accounts: dict[tuple[str, str, str], tuple[Governor, PromptCacheState]] = {}
        self._join: JoinAccount | None = None
        self.secrets = self._secrets(environ)
        """Every key that it was ever given, used or not, by name."""

    def find(self, name: str) -> Model:
        """The model of this name, made once. Raises `ConfigError` saying what is wrong and what to
        do."""
        model = self._made.get(name)
        if model is None:
            model = self._made[name] = self._make(name)
        return model

    async def close(self) -> None:
        """Close all connections, and free the weights of local models. What is asked again opens
        again."""
        for model in self._in_process.values():
            await model.close()
        await self.client.close()

    def status(self) -> list[ModelStatus]:
        """How it goes, by account and model."""
        return [
            ModelStatus(
                name=f"{provider}:{model}",
                in_flight=governor.in_flight,
                waiting=governor.waiting,
                width=int(governor.width),
                why=governor.why,
                per_minute=governor.per_minute,
                expected_rate=warmth.expected_rate,
                hit_rate=warmth.hit_rate,
                expected_nanos=warmth.expected_nanos,
                saved_nanos=warmth.saved_nanos,
                waits=warmth.waits,
                waited_seconds=warmth.waited_seconds,
            )
            for (provider, _, model), (governor, warmth) in self._accounts.items()
        ]

    def share_accounts(self, join: JoinAccount) -> None:
        """Other processes use the same accounts: `join` gets each governor, with the name of its
        account and model in all processes."""
        self._join = join
        for name, (governor, _) in self._accounts.items():
            join(_shared_name(*name), governor)

    def knows(self, name: str) -> bool:
        """Whether a name is meant for this catalog: an alias, a chain, `provider:model`, or the
        model without a key."""
        is_declared = name in self._aliases or name in self._own
        return is_declared or ":" in name or "|" in name or name == OFFLINE

    def resolve(self, name: str) -> str:
        """The model of a name, aliases followed: `provider:model`, or a chain of them."""
        return self._resolve(name, ())

    def _resolve(self, name: str, way: tuple[str, ...]) -> str:
        if name in way:
            raise ConfigError(f"Alias {name!r} refers to itself: {' -> '.join([*way, name])}")
        way, target = (*way, name), self._aliases.get(name, name)
        if "|" in target:
            return CHAIN.join(
                self._resolve(part.strip(), way) for part in target.split("|") if part.strip()
            )
        if target in self._aliases:
            return self._resolve(target, way)
        if target in self._own:
            return target
        if target.strip() == OFFLINE:
            return OFFLINE
        provider, colon, model = (part.strip() for part in target.partition(":"))
        if not colon or not model:
            raise ConfigError(
                f"{name!r} has no provider. Use PROVIDER:MODEL, for example {example()}."
            )
        return f"{self._provider(provider)}:{model}"

    def _provider(self, name: str) -> str:
        return provider_name(name, self._providers)

    def _make(self, name: str) -> Model:
        resolved = self.resolve(name)
        if CHAIN in resolved or not resolved:
            return Fallback([self.find(link) for link in resolved.split(CHAIN) if link], name=name)
        if resolved in self._own:
            return self._own[resolved]
        if resolved == OFFLINE:
            from retinue.models.explorer import ExplorerModel

            return ExplorerModel(name)
        provider, _, model = resolved.partition(":")
        self._check_allowed(provider, model)
        return (
            self._local(resolved, model)
            if provider == LOCAL
            else self._over_http(name, self._providers[provider], model)
        )

    def _local(self, name: str, model: str) -> LocalModel:
        """Weights are in memory once, whatever they are called."""
        from retinue.models.local import local_model

        model_here = self._in_process.get(model)
        if model_here is None:
            model_here = self._in_process[model] = local_model(
                name, model, self._environ, self._options
            )
            model_here.info = self._priced(model_here.info, name)
        return model_here

    def _priced(self, info: ModelInfo, resolved: str) -> ModelInfo:
        """The model with the price that was declared for it."""
        patterns = [
            p for name, p in self._prices.items() if name == resolved or fnmatchcase(resolved, name)
        ]
        exact = self._prices.get(resolved)
        price = next(iter(patterns), None) if exact is None else exact
        return info if price is None else price.of(info)

    def bring(self, environ: Mapping[str, str]) -> None:
        """Take other keys and addresses: models that are in use continue with them. What `environ`
        lacks stays, and what cannot be a key or an address is refused before anything is
        changed."""
        self._environ = with_brought(self._environ, environ)
        self.secrets = {
            **{f"{name} {n}": v for n, (name, v) in enumerate(self.secrets.items())},
            **self._secrets(environ),
        }
        for resolved, model in [(self.resolve(name), model) for name, model in self._made.items()]:
            if isinstance(model, HttpModel) and resolved not in self._own:
                provider = self._providers[resolved.partition(":")[0]]
                account = self._account(provider, model.model, model.info)
                model.connect(
                    account.url,
                    account.key,
                    provider.headers(self._environ),
                    account.governor,
                    account.warmth,
                )

    def _over_http(self, name: str, provider: KnownProvider, model: str) -> HttpModel:
        codec, facts = (
            provider.codec(self._environ),
            model_facts(
                name,
                provider.prices,
                model,
                max_output=output_limit(model, provider.max_output),
            ),
        )
        if not provider.keys and not facts.priced and is_near(provider.base_url(self._environ)):
            facts = FREE.of(facts)
        facts = self._priced(
            replace(facts, preamble=PREAMBLE[codec.dialect]), f"{provider.name}:{model}"
        )
        own = self._facts.get(f"{provider.name}:{model}")
        if isinstance(own, ModelFacts):
            facts = own.over(facts)
        elif own is not None:
            facts = replace(own, name=facts.name, preamble=facts.preamble)
        account = self._account(provider, model, facts)
        end = end_of(f"{provider.name}:{model}")
        if end is not None:
            log.warning("%s", end.sentence)
        return HttpModel(
            facts,
            codec,
            model=model,
            base_url=account.url,
            key=account.key,
            client=self.client,
            governor=account.governor,
            warmth=account.warmth,
            options=replace(
                self._options,
                is_adaptive=thinks_adaptively(model),
                is_sampled=not (codec.dialect.startswith("openai") and has_fixed_sampling(model)),
            ),
            headers=provider.headers(self._environ),
            provider=provider.name,
        )

    def _account(self, provider: KnownProvider, model: str, info: ModelInfo) -> _Account:
        key = provider.key(self._environ)
        if provider.keys and not key:
            raise NoKey(
                f"No API key for {provider.name}",
                f"Set {' or '.join(provider.keys)}.",
            )
        url = provider.base_url(self._environ)
        if not url:
            raise NoKey(
                f"No base URL for {provider.name}",
                f"Set {' or '.join(provider.urls)}.",
            )
        # Governors are separate for each account; the key itself is kept only where it is sent.
        name = (provider.name, digest(key, url), model)
        if name not in self._accounts:
            terms = self._terms.get(provider.name, ProviderTerms())
            least = terms.cache_tokens
            if least is None:
                least = shortest(provider.name, "", model)
            warmth = PromptCacheState(info, least if self._options.cache else 0, terms.second_usd)
            self._accounts[name] = (Governor(terms=terms), warmth)
            if self._join is not None:
                self._join(_shared_name(*name), self._accounts[name][0])
        return _Account(key, url, *self._accounts[name])

    def _check_allowed(self, provider: str, model: str) -> None:
        allowed = self._allow.get(provider)
        if allowed is not None and not any(fnmatchcase(model, pattern) for pattern in allowed):
            listed = ", ".join(allowed) or "none"
            raise ConfigError(
                f"Model {model!r} is not allowed for provider {provider!r}. Allowed: {listed}"
            )

    def _secrets(self, environ: Mapping[str, str]) -> dict[str, str]:
        names = [name for p in self._providers.values() for name in p.keys]
        headers = {f"{p.name} {n}": v for p in self._providers.values() for n, v in p.sent_headers}
        keys = {name: environ[name] for name in names if environ.get(name)}
        return {**secrets_of(environ), **secrets_of(headers), **keys}
