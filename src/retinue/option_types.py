"""The keyword arguments of runs, agents and runtimes, as types; and the sentence for one that does
not exist."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from retinue.channels.base import Channel
from retinue.core.model_settings import ModelSettings
from retinue.core.redaction import Redactor
from retinue.core.spec import History, Lane, Retry, RunRequest
from retinue.core.values import Budget, Limits, ModelInfo, Origin, Permissions, SpawnLimits, Value
from retinue.errors import ConfigError
from retinue.formats.suggestion import nearest
from retinue.models.base import Model, ModelCatalog
from retinue.models.declared import Provider
from retinue.runtime.clock import Clock
from retinue.tools.child_options import Ends, Seconds
from retinue.tools.families.base import Family


class RunOptions(TypedDict, total=False):
    """Options of one run. Each can also be a default of its agent: `Agent(options={...})`.

    `key` starts the run only once, however often it is requested. `meta` are words of your own:
    stored, inherited by children, and a filter in `Retinue.runs`. `questions` says whether a person
    is there to answer; otherwise a call that needs a permission is denied. `families` turns
    families on or off. `announce` sends the end of the run to the channel of its origin.
    `children_on_end` is what becomes of its children when it ends first, `on_parent_end` what
    becomes of it when its parent does. `settings` say how its model is asked."""

    key: str
    label: str
    meta: Mapping[str, str]
    budget: Budget
    timeout: Seconds
    max_turns: int
    grace_turns: int
    model: str
    instructions: str
    history: History
    permissions: Permissions
    questions: Literal["ask", "deny"]
    families: Mapping[str, bool]
    lanes: Sequence[Lane]
    limits: SpawnLimits
    retry: Retry
    cwd: str | Path
    isolation: Literal["worktree"]
    origin: Origin
    announce: bool
    children_on_end: Ends
    on_parent_end: Ends
    on_restart: Literal["resume", "fail"]
    retention: Literal["keep", "delete"]
    settings: ModelSettings


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


class RetinueOptions(TypedDict, total=False):
    """Options of a runtime that do not depend on the type of its dependencies."""

    channels: Mapping[str, Channel] | None
    clock: Clock | None
    limits: Limits | None
    models: ModelCatalog | Mapping[str, Model | ModelInfo | str] | None
    providers: Mapping[str, Provider] | None
    retention: Retention | None
    secrets: Mapping[str, str] | Redactor | None
    threads: int
    unsafe_no_sandbox: bool
    workspace: str | Path | None


PUBLIC_OPTIONS = (*RunOptions.__annotations__, "fail_fast", "tell_parent")
_IN_OTHER_WORDS = {"agent", "task", "timeout_ms"}
_REQUEST_FIELDS = frozenset(RunRequest.__struct_fields__) - _IN_OTHER_WORDS
"""Families and hosts also set what has no name of its own among the options."""


def check_options(who: str, options: Iterable[str], known: Sequence[str] = PUBLIC_OPTIONS) -> None:
    """Refuses an option that does not exist, and names the one that was meant."""
    for name in options:
        if name in known or (known is PUBLIC_OPTIONS and name in _REQUEST_FIELDS):
            continue
        near = nearest(name, known)
        meant = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(known))}."
        raise ConfigError(f"{who} has no option {name!r}. {meant}", field=name, suggestion=near)


def seconds_of(time: Seconds, what: str = "A timeout") -> float:
    """A time in seconds."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ConfigError(f"{what} is a number of seconds or a timedelta, not {time!r}.")
    return seconds


def in_request_words(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the fields of a request: times in milliseconds, sequences as tuples."""
    out = dict(options)
    timeout = out.pop("timeout", None)
    if timeout is not None:
        out["timeout_ms"] = _milliseconds(timeout)
    if isinstance(out.get("lanes"), list):
        out["lanes"] = tuple(out["lanes"])
    if isinstance(out.get("cwd"), Path):
        out["cwd"] = str(out["cwd"])
    if isinstance(out.get("meta"), Mapping):
        out["meta"] = dict(out["meta"])
    return out


def _milliseconds(timeout: Seconds) -> int:
    seconds = seconds_of(timeout, "The timeout of a run")
    if not math.isfinite(seconds):
        raise ConfigError("The timeout of a run is finite. Omit it for no timeout.")
    return round(seconds * 1000)
