"""The options of a run that a tool starts, as its code writes them, and as a request has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from retinue.core.ids import digest
from retinue.core.model_settings import ModelSettings
from retinue.core.spec import History, Lane, Retry
from retinue.core.values import Budget, Origin, Permissions, SpawnLimits
from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean

Ends = Literal["cancel", "wait", "keep"]
Seconds = float | timedelta
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=repr).encode


class ChildOptions(TypedDict, total=False):
    """Options of a run that a tool starts. `key` names the step by hand. `fail_fast`: the first
    failure among children that were started together cancels the others. `tell_parent`: whether the
    parent's model gets a message when a background child ends."""

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
    fail_fast: bool
    tell_parent: bool


def request_fields(verb: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request; an unknown option is refused, with the nearest one."""
    known = ChildOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"{verb}() has no option {name!r}.{did_you_mean(name, known)}")
    out = {name: value for name, value in options.items() if name not in ("key", "timeout")}
    if (timeout := options.get("timeout")) is not None:
        out["timeout_ms"] = round(seconds(timeout) * 1000)
    if "lanes" in out:
        out["lanes"] = tuple(out["lanes"])
    if "meta" in out:
        out["meta"] = dict(out["meta"])
    if "cwd" in out:
        out["cwd"] = os.fspath(out["cwd"])
    return out


def seconds(timeout: Seconds) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def name_of(*parts: object) -> str:
    """A stable name for what is asked, whatever process asks it."""
    return digest(_encode(parts).decode())
