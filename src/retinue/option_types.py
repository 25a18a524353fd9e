"""The keyword arguments of runs, agents and runtimes, as types; and the sentence for one that does
not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, TypedDict

from msgspec import Meta

from retinue.channels.base import Channel
from retinue.core.model_settings import ModelSettings
from retinue.core.redaction import Redactor
from retinue.core.spec import RunRequest
from retinue.core.values import Budget, Limits, ModelInfo, Permissions, Value
from retinue.models.base import Model, ModelCatalog
from retinue.models.declared import Provider
from retinue.runtime.clock import Clock
from retinue.tools.families.base import Family
from retinue.tools.option_values import check_values
from retinue.tools.start_options import Seconds, StartOptions, check_known


class RunOptions(StartOptions, total=False):
    """Options of one run. Each can also be a default of its agent: `Agent(options={...})`.

    `key` starts the run only once, however often it is requested. `meta` are words of your own:
    stored, inherited by children, and a filter in `Retinue.runs`. `questions` says whether a person
    is there to answer; otherwise a call that needs a permission is denied. `families` turns
    families on or off. `announce` sends the end of the run to the channel of its origin.
    `children_on_end` is what becomes of its children when it ends first, `on_parent_end` what
    becomes of it when its parent does. `settings` say how its model is asked. `needs` are labels
    that a worker of a cluster has to offer, and directories that it has to have. With
    `follow_links=False`, its directories are used as they are written, and a symbolic link on the
    way is refused: for paths that a program has checked before."""

    families: Mapping[str, bool]
    follow_links: bool


class AgentOptions(TypedDict, total=False):
    """What an agent has beside its name, instructions, output, dependencies, tools and staff.
    `options` are defaults for the options of its runs."""

    model: Model | str
    families: Sequence[Family | str]
    budget: Budget
    max_turns: int | None
    timeout: Seconds | None
    options: Mapping[str, Any]
    settings: ModelSettings


class Retention(Value):
    """What is kept of trees that have ended and have nothing left to announce; open ones are always
    kept. Older than `age_seconds`, beyond the `count` newest, or, while the store takes more than
    `size` bytes, the oldest: each of them is forgotten. Without any of these nothing is."""

    age_seconds: Annotated[float, Meta(ge=0)] | None = None
    count: Annotated[int, Meta(ge=0)] | None = None
    size: Annotated[int, Meta(ge=0)] | None = None
    every_seconds: Annotated[float, Meta(gt=0)] = 60.0

    @property
    def is_on(self) -> bool:
        return (self.age_seconds, self.count, self.size) != (None, None, None)


class EventSink(Protocol):
    """What gets every public event once it is on record: `retinue.otel.OpenTelemetry`."""

    def open(self, clean: Callable[[str], str]) -> None:
        """A runtime starts; `clean` takes its secrets out of a text."""

    def take(self, event: Any, *, is_new: bool) -> None:
        """One event (`retinue.events.Event`). An earlier process had those that are not
        new; they come before the first new one of their tree."""


class RetinueOptions(TypedDict, total=False):
    """Options of a runtime that do not depend on the type of its dependencies."""

    channels: Mapping[str, Channel] | None
    clock: Clock | None
    limits: Limits | None
    permissions: Permissions | None
    models: ModelCatalog | Mapping[str, Model | ModelInfo | str] | None
    providers: Mapping[str, Provider] | None
    retention: Retention | None
    secrets: Mapping[str, str] | Redactor | None
    telemetry: EventSink | None
    threads: int
    unsafe_no_sandbox: bool
    workspace: str | Path | None


PUBLIC_OPTIONS = (*RunOptions.__annotations__, "fail_fast", "tell_parent")
_IN_OTHER_WORDS = {"agent", "task", "timeout_ms"}
_REQUEST_FIELDS = frozenset(RunRequest.__struct_fields__) - _IN_OTHER_WORDS
"""Families and hosts also set what has no name of its own among the options."""


def check_run_options(who: str, options: Mapping[str, Any]) -> None:
    """Refuses an option that does not exist, and names the one that was meant; and a value that is
    not of its type. Families are checked by the agent, which knows them."""
    check_known(who, (name for name in options if name not in _REQUEST_FIELDS), PUBLIC_OPTIONS)
    typed = {name: value for name, value in options.items() if name != "families"}
    check_values(who, typed, RunOptions)
