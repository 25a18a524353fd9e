"""The public API, and the only module that names concrete classes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, Unpack, cast, overload

import msgspec

from retinue.agent import Agent
from retinue.config import cache_folder, database_files, environment_secrets, own_places
from retinue.core.redaction import Redactor
from retinue.core.type_parameters import D, Deps_co
from retinue.core.values import Limits, Permissions, checked
from retinue.errors import ConfigError
from retinue.event_feed import EventFeed
from retinue.formats.database_address import is_postgres, wrong_address
from retinue.hook_calls import HookCalls
from retinue.hooks import Hooks
from retinue.models.base import Model
from retinue.option_types import EventSink, Retention, RetinueOptions
from retinue.registry import Registry
from retinue.runtime.clock import SystemClock
from retinue.runtime.engine import Engine
from retinue.runtime.secret_filter import learn_from
from retinue.starts import Starts
from retinue.store.base import Store
from retinue.store.memory import MemoryStore
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.option_values import check_values, listed
from retinue.tools.start_options import check_known
from retinue.tools.toolbox import Toolbox

OPTIONS = ("deps", "agents", "hooks", *RetinueOptions.__annotations__)


class Retinue(Starts[Deps_co]):
    """Runs agents and stores their work. Use it as an async context manager.

    `store` is a path (SQLite), an address such as `postgresql://HOST/DATABASE`, None (memory), or
    a `Store`. `deps` is what the tools of its agents get as `ctx.deps`. `agents` are registered at
    the start, so that their open runs of an earlier process continue immediately; runs of other
    agents wait until their agent is used. `workspace` is the default working directory of runs.
    `unsafe_no_sandbox` runs commands without a sandbox where there is none. `secrets` are values,
    by name, that are never written down (or the `Redactor` that knows them), in addition to those
    of environment, models, channels and tools. `providers` and `models` are providers and models
    of your own. `threads` is how many plain functions of tools work in parallel. `hooks` are
    functions around model calls, tool calls, spawns and ends. `retention` says what is kept of
    trees that have ended. `telemetry` receives events as spans (`retinue.otel.OpenTelemetry`)."""

    _engine_type: type[Engine] = Engine

    @overload
    def __init__(
        self: Retinue[None],
        store: str | Path | Store | None = None,
        *,
        agents: Sequence[Agent[Any, None]] = (),
        hooks: Sequence[Hooks[None]] = (),
        **options: Unpack[RetinueOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Retinue[D],
        store: str | Path | Store | None = None,
        *,
        deps: D,
        agents: Sequence[Agent[Any, D]] = (),
        hooks: Sequence[Hooks[D]] = (),
        **options: Unpack[RetinueOptions],
    ) -> None: ...
    def __init__(
        self,
        store: str | Path | Store | None = None,
        *,
        deps: Any = None,
        agents: Sequence[Agent[Any, Any]] = (),
        hooks: Sequence[Hooks[Any]] = (),
        **options: Any,
    ) -> None:
        check_known("Retinue()", options, OPTIONS)
        check_values("Retinue()", options, RetinueOptions)
        if (threads := options.get("threads", 32)) < 1:
            raise ConfigError(f"Retinue(): threads is 1 or more, not {threads}.", field="threads")
        clock = options.get("clock") or SystemClock()
        try:
            limits = checked(options.get("limits") or Limits())
            retention = checked(options.get("retention") or Retention())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid limits: {error}") from None
        if not limits.salt:
            limits = msgspec.structs.replace(limits, salt=clock.chance())
        opened = _open(store)
        folder = Path(f"{opened.beside}.tools") if opened.beside else None
        private = own_places(opened.beside)
        own: dict[str, Any] = {
            "unsafe_no_sandbox": bool(options.get("unsafe_no_sandbox")),
            "threads": threads,
        }
        own["page"], own["cache"] = limits.text_cap - 200, cache_folder()
        builtin = BuiltinTools(opened, folder, private=private, **own)
        toolbox, known_models = Toolbox(builtin), dict[str, Model]()
        home = os.path.realpath(options.get("workspace") or os.getcwd())
        secrets, channels = options.get("secrets"), options.get("channels") or {}
        redactor = secrets if isinstance(secrets, Redactor) else Redactor(secrets or {})
        learn_from(redactor, environment_secrets(), opened, *channels.values())
        ports = (opened, clock, toolbox, known_models, channels)
        engine = self._engine_type(*ports, limits, home, redactor, private)
        engine.performer.deps = deps
        own_models = (options.get("models"), home, deps, options.get("providers"))
        registry = Registry(engine, toolbox, builtin, known_models, *own_models)
        registry.permissions = options.get("permissions") or Permissions()
        super().__init__(engine, builtin, retention, registry)
        reader = engine.performer.tool_reader
        reader.outcome = self.wait
        self._hooks: HookCalls | None = None
        if hooks := listed("hooks", hooks, Hooks):
            self._hooks = HookCalls(hooks, deps, self.record, self.wait, reader.find_model)
            engine.performer.hooks = self._hooks
        self._first = listed("agents", agents, Agent)
        self._telemetry: EventSink | None = options.get("telemetry")
        self._feed: EventFeed | None = None

    @property
    def deps(self) -> Deps_co:
        """What it was given for the tools of its agents."""
        return cast(Deps_co, self._engine.performer.deps)

    @property
    def redactor(self) -> Redactor:
        """What keeps secrets out of everything that is written; `redactor.learn` adds to them."""
        return self._engine.redactor

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._engine.start()
        if self._telemetry is not None:
            self._feed = EventFeed(self, self._telemetry, self._engine.position, self.redactor)
        try:
            for name in (
                self._registry.catalog.offered if self._registry.catalog is not None else ()
            ):
                self._registry.know_model(name)
            named: dict[str, Agent[Any, Any]] = {}
            for agent in self._first:
                if named.setdefault(agent.name, agent) != agent:
                    raise ConfigError(f"Two different agents are named {agent.name!r}. Rename one.")
                await self._registry.toolsets.open_for(agent)
                self._registry.register(agent)
            self._registry.know_models()
            await self._builtin.sweep(
                {spec.id for spec, _ in self._engine.trees.live()}, self._engine.is_used
            )
            await self._engine.found.take_up()
            self._begin_keeping()
        except BaseException:
            await self._end_feed()
            await self._registry.toolsets.close()
            await self._engine.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._hooks is not None:
            await self._hooks.close()
        await self._end_keeping()
        await self._end_feed()
        await self._engine.stop()
        await self._registry.toolsets.close()
        await self._builtin.close()
        if self._registry.catalog is not None:
            await self._registry.catalog.close()

    async def _end_feed(self) -> None:
        if self._feed is not None:
            await self._feed.close()


def _open(store: str | Path | Store | None) -> Store:
    store = MemoryStore() if store is None else store
    if why := wrong_address(store):
        raise ConfigError(why)
    if is_postgres(store):
        from retinue.store.postgres.postgres_store import PostgresStore

        return PostgresStore(str(store), beside=database_files(str(store)))
    return SqliteStore(str(store)) if isinstance(store, (str, Path)) else store
