"""Models of a host: looked up by name, with the API keys that commands have sent. Keys live in
memory alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from retinue.core.messages import ModelReply
from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.core.values import ModelInfo
from retinue.current_models import example
from retinue.errors import ConfigError
from retinue.models.base import Model, ModelRequest
from retinue.models.brought_keys import with_command
from retinue.models.catalog import Catalog, JoinAccount
from retinue.models.providers import PROVIDERS

log = logging.getLogger("retinue")
OFFLINE = "offline/explorer"
PLAIN = (
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CACHE_HOME",
    "HOME",
)


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that models need."""
    names = {*PLAIN, *(n for p in PROVIDERS.values() for n in (*p.keys, *p.urls))}
    return {n: v for n, v in environ.items() if n in names or n.startswith("RETINUE_")}


def offline_model() -> Any:
    """The explorer, or the reason why there is none."""
    try:
        from retinue.models.explorer import ExplorerModel
    except ImportError:
        raise ConfigError(
            "offline/explorer is not part of this installation. Name a model, for "
            f"example --model {example()}."
        ) from None
    return ExplorerModel()


class KeyedCatalog:
    """A catalog that can be given other keys while it is used: what is brought last holds for every
    call after it. `redactor` knows every key that was ever brought."""

    def __init__(
        self,
        environ: Mapping[str, str],
        offered: tuple[str, ...] = (),
        redactor: Redactor | None = None,
    ) -> None:
        from retinue.config.model_config import adopt_declared, declared

        adopt_declared(environ)
        self.offered = offered
        self.redactor = Redactor() if redactor is None else redactor
        self.redactor.learn(secrets_of(environ))
        self._environ = dict(environ)
        self._declared = declared(environ)
        self._catalog = Catalog(self._environ, **self._declared)
        self._old: list[Catalog] = []
        self._kept: dict[str, Model] = {}
        self._join: JoinAccount | None = None

    def bring(self, environ: Mapping[str, str]) -> frozenset[str]:
        """Take the keys of another command, each with the address that it is for; those that it
        does not have, or that are none, stay as they are. What is secret of them is never written
        down, from now on. Returns the providers for which there is something new."""
        self.redactor.learn(secrets_of(environ))
        before = self._environ
        variables = {n: v for n, v in environ.items() if not n.startswith("RETINUE_")}
        merged, wrong = with_command(self._environ, variables)
        for why in wrong:
            log.warning("the keys that a command sent are not used: %s", why)
        if merged != self._environ:
            self._old.append(self._catalog)
            self._environ, self._catalog = merged, Catalog(merged, **self._declared)
            if self._join is not None:
                self._catalog.share_accounts(self._join)
        return frozenset(
            p.name
            for p in PROVIDERS.values()
            if any(before.get(n) != merged.get(n) for n in (*p.keys, *p.urls))
        )

    def share_accounts(self, join: JoinAccount) -> None:
        """Other processes use the same accounts: see `Catalog.share_accounts`."""
        self._join = join
        self._catalog.share_accounts(join)

    def knows(self, name: str) -> bool:
        """Whether a name is meant for this catalog."""
        return name == OFFLINE or name.startswith("local/") or self._catalog.knows(name)

    def resolve(self, name: str) -> str:
        """The model that a name resolves to."""
        return self._catalog.resolve(name) if self._catalog.knows(name) else name

    def find(self, name: str) -> Model:
        """The model of this name; `ConfigError` says what is wrong with the name, or which key is
        missing."""
        if name not in self._kept:
            self._kept[name] = self._make(name)
        return self._kept[name]

    def _make(self, name: str) -> Model:
        if name == OFFLINE:
            model: Model = offline_model()
            return model
        if name.startswith("local/"):
            from retinue.models.local import local_model

            return local_model(name, name.removeprefix("local/"), self._environ)
        return CatalogModel(name, self.now(name).info, self.now)

    def environ(self) -> Mapping[str, str]:
        """What commands have brought."""
        return self._environ

    def now(self, name: str) -> Model:
        """The model with the keys of this moment."""
        return self._catalog.find(name)

    async def close(self) -> None:
        for catalog in (*self._old, self._catalog):
            await catalog.close()


class CatalogModel:
    """A model of a catalog that may be replaced."""

    def __init__(self, name: str, info: ModelInfo, find: Callable[[str], Model]) -> None:
        self.info, self._name, self._find = info, name, find
        self.exact = bool(getattr(find(name), "exact", False))
        self.says_progress = bool(getattr(find(name), "says_progress", False))

    @property
    def most_tools(self) -> int:
        return getattr(self._find(self._name), "most_tools", 0)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        return await self._find(self._name).complete(request, emit)
