"""Retinue gives an LLM agent a staff: children that it can spawn, fork, message, watch, cancel and
collect.

Names are imported when they are first used, so that importing a part of the package does not load
the whole."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.agent import Agent
    from retinue.api import Retinue
    from retinue.blocking import run_sync
    from retinue.budgets import Spending, Spent
    from retinue.channels.base import Channel
    from retinue.core.effects import ChildOutcome
    from retinue.core.messages import Assistant, Call, Image, Reply, Result, User
    from retinue.core.spec import Context, Lane, Order, Orders, Retry, Send, Wait
    from retinue.core.values import (
        Artifact,
        Budget,
        Capabilities,
        Delivery,
        Helpers,
        Limits,
        Lost,
        ModelInfo,
        Origin,
        Rules,
        ToolSchema,
        Usage,
    )
    from retinue.errors import (
        ConfigError,
        Defect,
        InvalidTransition,
        ModelError,
        ModelRejected,
        ModelUnavailable,
        NotFound,
        Refused,
        RetinueError,
        RunFailed,
        SandboxMissing,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreLocked,
        StoreTooNew,
    )
    from retinue.groups import Group
    from retinue.maintenance import Retention
    from retinue.models.base import Model, Request
    from retinue.outcomes import ChildEnd, Node, Outcome
    from retinue.pricing import CacheUse, PriceTag
    from retinue.runtime.bus import Delta, Step
    from retinue.store.base import Store
    from retinue.tools.base import Answer, Ask, Caller, Submission, Tool
    from retinue.tools.families.base import Family
    from retinue.tools.families.profiles import family
    from retinue.tools.function import tool

__version__ = "0.1.0"

_HOMES = {
    "retinue.store.base": ("Store",),
    "retinue.channels.base": ("Channel",),
    "retinue.models.base": (
        "Model",
        "Request",
    ),
    "retinue.api": ("Retinue",),
    "retinue.blocking": ("run_sync",),
    "retinue.budgets": ("Spending", "Spent"),
    "retinue.core.effects": ("ChildOutcome",),
    "retinue.core.spec": (
        "Context",
        "Lane",
        "Order",
        "Orders",
        "Retry",
        "Send",
        "Wait",
    ),
    "retinue.core.messages": ("Assistant", "Call", "Image", "Reply", "Result", "User"),
    "retinue.core.values": (
        "Artifact",
        "Budget",
        "Capabilities",
        "Delivery",
        "Helpers",
        "Limits",
        "Lost",
        "ModelInfo",
        "Origin",
        "Rules",
        "ToolSchema",
        "Usage",
    ),
    "retinue.agent": ("Agent",),
    "retinue.errors": (
        "ConfigError",
        "Defect",
        "InvalidTransition",
        "ModelError",
        "ModelRejected",
        "ModelUnavailable",
        "NotFound",
        "Refused",
        "RetinueError",
        "RunFailed",
        "SandboxMissing",
        "StoreCorrupt",
        "StoreError",
        "StoreFull",
        "StoreLocked",
        "StoreTooNew",
    ),
    "retinue.groups": ("Group",),
    "retinue.maintenance": ("Retention",),
    "retinue.outcomes": ("ChildEnd", "Node", "Outcome"),
    "retinue.pricing": ("CacheUse", "PriceTag"),
    "retinue.runtime.bus": ("Delta", "Step"),
    "retinue.tools.base": (
        "Answer",
        "Ask",
        "Caller",
        "Submission",
        "Tool",
    ),
    "retinue.tools.families.base": ("Family",),
    "retinue.tools.families.profiles": ("family",),
    "retinue.tools.function": ("tool",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "Answer",
    "Artifact",
    "Ask",
    "Assistant",
    "Budget",
    "CacheUse",
    "Call",
    "Caller",
    "Capabilities",
    "Channel",
    "ChildEnd",
    "ChildOutcome",
    "ConfigError",
    "Context",
    "Defect",
    "Delivery",
    "Delta",
    "Family",
    "Group",
    "Helpers",
    "Image",
    "InvalidTransition",
    "Lane",
    "Limits",
    "Lost",
    "Model",
    "ModelError",
    "ModelInfo",
    "ModelRejected",
    "ModelUnavailable",
    "Node",
    "NotFound",
    "Order",
    "Orders",
    "Origin",
    "Outcome",
    "PriceTag",
    "Refused",
    "Reply",
    "Request",
    "Result",
    "Retention",
    "Retinue",
    "RetinueError",
    "Retry",
    "Rules",
    "RunFailed",
    "SandboxMissing",
    "Send",
    "Spending",
    "Spent",
    "Step",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "Submission",
    "Tool",
    "ToolSchema",
    "Usage",
    "User",
    "Wait",
    "family",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
