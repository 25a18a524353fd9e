"""Retinue gives an LLM agent a staff: children that it can spawn, fork, message, watch, cancel and collect."""

from retinue.api import Retinue, run_sync
from retinue.core.effects import ChildOutcome
from retinue.core.values import (
    Artifact,
    Budget,
    Call,
    Capabilities,
    Context,
    Lane,
    Limits,
    ModelInfo,
    Order,
    Orders,
    Origin,
    Reply,
    Retry,
    Rules,
    Usage,
)
from retinue.definitions import Agent
from retinue.errors import (
    ConfigError,
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
from retinue.outcomes import ChildEnd, Node, Outcome
from retinue.runtime.bus import Delta, Step
from retinue.tools.base import Answer, Ask, Caller, Submission
from retinue.tools.function import tool

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Answer",
    "Artifact",
    "Ask",
    "Budget",
    "Call",
    "Caller",
    "Capabilities",
    "ChildEnd",
    "ChildOutcome",
    "ConfigError",
    "Context",
    "Delta",
    "InvalidTransition",
    "Lane",
    "Limits",
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
    "Refused",
    "Reply",
    "Retinue",
    "RetinueError",
    "Retry",
    "Rules",
    "RunFailed",
    "SandboxMissing",
    "Step",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "Submission",
    "Usage",
    "run_sync",
    "tool",
]
