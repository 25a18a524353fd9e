"""A runtime for LLM agents that start, fork, message, watch, cancel and collect sub-agents.

Each name is imported when it is first used, so that `import retinue` stays fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.agent import Agent
    from retinue.api import Retinue
    from retinue.blocking import run_sync
    from retinue.channels.base import Channel
    from retinue.core.effects import ChildOutcome
    from retinue.core.merges import BranchMerge
    from retinue.core.messages import (
        AssistantMessage,
        Image,
        ModelReply,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from retinue.core.model_price import Price
    from retinue.core.model_settings import ModelSettings
    from retinue.core.spec import (
        Actions,
        History,
        Lane,
        Retry,
        RunRequest,
        SendMessage,
        WaitForRuns,
    )
    from retinue.core.type_parameters import RunId
    from retinue.core.values import (
        Artifact,
        Budget,
        Delivery,
        EndState,
        Helpers,
        Limits,
        Lost,
        Mode,
        ModelInfo,
        Origin,
        Permissions,
        Restart,
        SpawnLimits,
        ToolSchema,
        Usage,
        Value,
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
        StoreUnreachable,
        ToolError,
        WrongThread,
    )
    from retinue.events import Event, WaitingFor
    from retinue.groups import Group
    from retinue.hooks import HookContext, Hooks, Refuse, Spawn
    from retinue.models.base import Model, ModelRequest
    from retinue.models.declared import Provider
    from retinue.option_types import (
        AgentOptions,
        Retention,
        RetinueOptions,
        RunOptions,
    )
    from retinue.outcomes import ChildInfo, Outcome
    from retinue.portal import Portal
    from retinue.pricing import CacheUse, PriceTag
    from retinue.question_types import (
        BudgetQuestion,
        PermissionQuestion,
        Question,
        TextQuestion,
    )
    from retinue.run_info import RunBranch, RunInfo, RunState, RunTree
    from retinue.runtime.clock import Clock
    from retinue.runtime_health import Health
    from retinue.spending import Spending, Spent
    from retinue.store.base import Store
    from retinue.tools.base import Ask, Context, Delegation, Risk, Submission, ToolResult
    from retinue.tools.families.base import Family
    from retinue.tools.families.profiles import family
    from retinue.tools.function import FunctionTool, ToolOptions, tool
    from retinue.tools.mcp_client.mcp_toolset import McpServer
    from retinue.tools.outcome_list import Outcomes
    from retinue.tools.output_type import Output, json_schema, one_of
    from retinue.tools.own_tools import Tool, Toolset
    from retinue.tools.start_options import ChildOptions, Seconds

__version__ = "0.1.0"

_HOMES = {
    "retinue.agent": "Agent",
    "retinue.api": "Retinue",
    "retinue.blocking": "run_sync",
    "retinue.channels.base": "Channel",
    "retinue.core.effects": "ChildOutcome",
    "retinue.core.merges": "BranchMerge",
    "retinue.core.messages": "AssistantMessage Image ModelReply ToolCall ToolMessage UserMessage",
    "retinue.core.model_price": "Price",
    "retinue.core.model_settings": "ModelSettings",
    "retinue.core.spec": "Actions History Lane Retry RunRequest SendMessage WaitForRuns",
    "retinue.core.type_parameters": "RunId",
    "retinue.core.values": (
        "Artifact Budget Delivery EndState Helpers Limits Lost Mode ModelInfo Origin Permissions "
        "Restart SpawnLimits ToolSchema Usage Value"
    ),
    "retinue.errors": (
        "ConfigError Defect InvalidTransition ModelError ModelRejected ModelUnavailable "
        "NotFound Refused RetinueError RunFailed SandboxMissing StoreCorrupt StoreError "
        "StoreFull StoreLocked StoreTooNew StoreUnreachable ToolError WrongThread"
    ),
    "retinue.events": "Event WaitingFor",
    "retinue.groups": "Group",
    "retinue.hooks": "HookContext Hooks Refuse Spawn",
    "retinue.models.base": "Model ModelRequest",
    "retinue.models.declared": "Provider",
    "retinue.option_types": "AgentOptions Retention RetinueOptions RunOptions",
    "retinue.outcomes": "ChildInfo Outcome",
    "retinue.portal": "Portal",
    "retinue.pricing": "CacheUse PriceTag",
    "retinue.question_types": "BudgetQuestion PermissionQuestion Question TextQuestion",
    "retinue.run_info": "RunBranch RunInfo RunState RunTree",
    "retinue.spending": "Spending Spent",
    "retinue.store.base": "Store",
    "retinue.runtime.clock": "Clock",
    "retinue.runtime_health": "Health",
    "retinue.tools.base": "Ask Context Delegation Risk Submission ToolResult",
    "retinue.tools.start_options": "ChildOptions Seconds",
    "retinue.tools.families.base": "Family",
    "retinue.tools.families.profiles": "family",
    "retinue.tools.function": "FunctionTool ToolOptions tool",
    "retinue.tools.outcome_list": "Outcomes",
    "retinue.tools.mcp_client.mcp_toolset": "McpServer",
    "retinue.tools.output_type": "Output json_schema one_of",
    "retinue.tools.own_tools": "Tool Toolset",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Actions",
    "Agent",
    "AgentOptions",
    "Artifact",
    "Ask",
    "AssistantMessage",
    "BranchMerge",
    "Budget",
    "BudgetQuestion",
    "CacheUse",
    "Channel",
    "ChildInfo",
    "ChildOptions",
    "ChildOutcome",
    "Clock",
    "ConfigError",
    "Context",
    "Defect",
    "Delegation",
    "Delivery",
    "EndState",
    "Event",
    "Family",
    "FunctionTool",
    "Group",
    "Health",
    "Helpers",
    "History",
    "HookContext",
    "Hooks",
    "Image",
    "InvalidTransition",
    "Lane",
    "Limits",
    "Lost",
    "McpServer",
    "Mode",
    "Model",
    "ModelError",
    "ModelInfo",
    "ModelRejected",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "ModelUnavailable",
    "NotFound",
    "Origin",
    "Outcome",
    "Outcomes",
    "Output",
    "PermissionQuestion",
    "Permissions",
    "Portal",
    "Price",
    "PriceTag",
    "Provider",
    "Question",
    "Refuse",
    "Refused",
    "Restart",
    "Retention",
    "Retinue",
    "RetinueError",
    "RetinueOptions",
    "Retry",
    "Risk",
    "RunBranch",
    "RunFailed",
    "RunId",
    "RunInfo",
    "RunOptions",
    "RunRequest",
    "RunState",
    "RunTree",
    "SandboxMissing",
    "Seconds",
    "SendMessage",
    "Spawn",
    "SpawnLimits",
    "Spending",
    "Spent",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "StoreUnreachable",
    "Submission",
    "TextQuestion",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolMessage",
    "ToolOptions",
    "ToolResult",
    "ToolSchema",
    "Toolset",
    "Usage",
    "UserMessage",
    "Value",
    "WaitForRuns",
    "WaitingFor",
    "WrongThread",
    "family",
    "json_schema",
    "one_of",
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
