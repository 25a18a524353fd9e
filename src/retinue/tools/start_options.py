"""The options for starting runs, in a program and in a tool, and the error for an unknown one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from retinue.core.ids import digest
from retinue.core.model_settings import ModelSettings
from retinue.core.spec import History, Lane, Retry
from retinue.core.values import Budget, Origin, Permissions, SpawnLimits
from retinue.errors import ConfigError
from retinue.formats.suggestion import nearest
from retinue.tools.option_values import check_values

Ends = Literal["cancel", "wait", "keep"]
Seconds = float | timedelta
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=repr).encode


class StartOptions(TypedDict, total=False):
    """What can be set for every run."""

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
    needs: Sequence[str]


class ChildOptions(StartOptions, total=False):
    """Options of a run that a tool starts. `key` names the step by hand. `fail_fast`: the first
    failure among children that were started together cancels the others. `tell_parent`: whether the
    parent's model gets a message when a background child ends."""

    fail_fast: bool
    tell_parent: bool


def check_known(who: str, options: Iterable[str], known_names: Iterable[str]) -> None:
    """Refuses an option that does not exist, and names the one that was meant."""
    names = list(known_names)
    for name in options:
        if name not in names:
            near = nearest(name, names)
            hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(names))}."
            raise ConfigError(f"{who} has no option {name!r}. {hint}", field=name, suggestion=near)


def child_fields(verb: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request for a child."""
    check_known(f"{verb}()", options, ChildOptions.__annotations__)
    check_values(f"{verb}()", options, ChildOptions)
    return {name: value for name, value in request_fields(options).items() if name != "key"}


def request_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the fields of a request: times in milliseconds, sequences as tuples."""
    out = dict(options)
    for name in ("max_turns", "grace_turns"):
        if isinstance(turns := out.get(name), int) and turns < 0:
            raise ConfigError(f"{name} is 0 or more, not {turns}.", field=name)
    timeout = out.pop("timeout", None)
    if timeout is not None:
        out["timeout_ms"] = _milliseconds(timeout)
    if isinstance(out.get("lanes"), list):
        out["lanes"] = tuple(out["lanes"])
    if "needs" in out:
        out["needs"] = tuple(sorted({str(need) for need in out["needs"]}))
    if isinstance(out.get("cwd"), Path):
        out["cwd"] = str(out["cwd"])
    if isinstance(out.get("meta"), Mapping):
        out["meta"] = dict(out["meta"])
    return out


def _milliseconds(timeout: Seconds) -> int:
    time = seconds(timeout, "The timeout of a run")
    if not math.isfinite(time):
        raise ConfigError("The timeout of a run is finite. Omit it for no timeout.")
    return round(time * 1000)


def seconds(timeout: Seconds, what: str = "A timeout") -> float:
    """A time in seconds."""
    time = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not time >= 0:
        raise ConfigError(f"{what} is a number of seconds or a timedelta, not {timeout!r}.")
    return time


def name_of(*parts: object) -> str:
    """A stable name for what is asked, whatever process asks it."""
    return digest(_encode(parts).decode())
