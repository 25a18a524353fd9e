"""How each request travels over HTTP: one table for the application, its clients and its OpenAPI
description. Fields that are named in a path are in the path; the others are in the query of a GET
or DELETE, and in the JSON body of a POST."""

from __future__ import annotations

from retinue.host.operation_entry import SCOPES, Operation, Scope
from retinue.host.page_replies import OverviewReply, PageReply
from retinue.host.replies import (
    AgentList,
    AnswerReply,
    BranchList,
    BuiltinToolList,
    CompactionProgress,
    CostReport,
    DeliveryList,
    EmptyReply,
    Explanation,
    Hello,
    HostStatus,
    MergeReply,
    ModelList,
    NewRunReply,
    OutcomeReply,
    PromptList,
    QuestionList,
    RunDetail,
    RunPage,
    ServerList,
    SpendingReply,
    StartReply,
    StatesReply,
    Transcript,
)
from retinue.host.requests import (
    AnswerRequest,
    ArtifactRequest,
    BackupRequest,
    BranchesRequest,
    BudgetRequest,
    CancelRequest,
    CompactRequest,
    CostsRequest,
    DefinitionsRequest,
    DeliveriesRequest,
    DiffRequest,
    ExplainRequest,
    ForgetRequest,
    ForkPriceRequest,
    ForkRequest,
    HelloRequest,
    ListRequest,
    MergeRequest,
    MetricsRequest,
    ModelsRequest,
    OutcomeRequest,
    OverviewRequest,
    PageRequest,
    PromptsRequest,
    QuestionsRequest,
    RedeliverRequest,
    ResumeRequest,
    RetryRequest,
    SendRequest,
    ServersRequest,
    ShowRequest,
    SpendingRequest,
    StartRequest,
    StatusRequest,
    StopRequest,
    ToolsRequest,
    TranscriptRequest,
    TreeRequest,
    WaitRequest,
    WatchAllRequest,
    WatchRequest,
)
from retinue.host.tree_items import StepNews, TextArrived
from retinue.pricing import PriceTag
from retinue.run_info import RunTree
from retinue.store.base import Compacted
from retinue.tree_record import TreeRecord

__all__ = ["BY_REQUEST", "OPERATIONS", "PREFIX", "SCOPES", "Operation", "Scope"]
PREFIX = "/api/v1"


def _operations() -> tuple[Operation, ...]:
    run = "/runs/{run}"
    return (
        Operation("list_runs", "GET", "/runs", ListRequest, RunPage, "read", "runs"),
        Operation("start", "POST", "/runs", StartRequest, StartReply, "run", "runs", 201),
        Operation("show", "GET", run, ShowRequest, RunDetail, "read", "runs"),
        Operation("forget", "DELETE", run, ForgetRequest, EmptyReply, "admin", "runs"),
        Operation("tree", "GET", f"{run}/tree", TreeRequest, RunTree, "read", "runs"),
        Operation(
            "transcript", "GET", f"{run}/transcript", TranscriptRequest, Transcript, "read", "runs"
        ),
        Operation("outcome", "GET", f"{run}/outcome", OutcomeRequest, OutcomeReply, "read", "runs"),
        Operation(
            "watch",
            "GET",
            f"{run}/events",
            WatchRequest,
            None,
            "read",
            "runs",
            media="text/event-stream",
            events={"step": StepNews, "delta": TextArrived, "end": TreeRecord},
        ),
        *_all_runs(),
        *_branches(run),
        *_talking(run),
        *_reading(),
        *_hosting(),
    )


def _all_runs() -> tuple[Operation, ...]:
    """All trees together, as a page shows them."""
    return (
        Operation("overview", "GET", "/overview", OverviewRequest, OverviewReply, "read", "runs"),
        Operation(
            "watch_all",
            "GET",
            "/events",
            WatchAllRequest,
            None,
            "read",
            "runs",
            media="text/event-stream",
            events={"tree": TreeRecord, "step": StepNews, "delta": TextArrived},
        ),
    )


def _branches(run: str) -> tuple[Operation, ...]:
    """What runs in copies of their own have left."""
    request, diff = BranchesRequest, "text/x-diff; charset=utf-8"
    return (
        Operation("branches", "GET", f"{run}/branches", request, BranchList, "read", "runs"),
        Operation("diff", "GET", f"{run}/diff", DiffRequest, None, "read", "runs", media=diff),
        Operation("merge", "POST", f"{run}/merge", MergeRequest, MergeReply, "run", "runs"),
    )


def _talking(run: str) -> tuple[Operation, ...]:
    created, states = NewRunReply, StatesReply
    spending, budget = SpendingReply, f"{run}/budget"
    return (
        Operation("send", "POST", f"{run}/messages", SendRequest, EmptyReply, "run", "talk"),
        Operation("cancel", "POST", "/cancel", CancelRequest, states, "run", "runs"),
        Operation(
            "wait", "POST", "/wait", WaitRequest, states, "read", "runs", ends_with_client=True
        ),
        Operation("resume", "POST", f"{run}/resume", ResumeRequest, created, "run", "runs", 201),
        Operation("fork", "POST", f"{run}/fork", ForkRequest, created, "run", "runs", 201),
        Operation("fork_price", "GET", f"{run}/fork", ForkPriceRequest, PriceTag, "run", "runs"),
        Operation("retry", "POST", f"{run}/retry", RetryRequest, EmptyReply, "run", "runs"),
        Operation("questions", "GET", "/questions", QuestionsRequest, QuestionList, "read", "talk"),
        Operation("answer", "POST", f"{run}/answer", AnswerRequest, AnswerReply, "approve", "talk"),
        Operation("spending", "GET", budget, SpendingRequest, spending, "read", "budget"),
        Operation("raise_budget", "POST", budget, BudgetRequest, spending, "approve", "budget"),
        Operation("explain", "POST", f"{run}/explain", ExplainRequest, Explanation, "read", "talk"),
    )


def _reading() -> tuple[Operation, ...]:
    return (
        Operation(
            "artifact",
            "GET",
            "/artifacts/{sha256}",
            ArtifactRequest,
            None,
            "read",
            "store",
            media="application/octet-stream",
        ),
        Operation(
            "definitions", "GET", "/definitions", DefinitionsRequest, AgentList, "read", "project"
        ),
        Operation("tools", "GET", "/tools", ToolsRequest, BuiltinToolList, "read", "project"),
        Operation("models", "GET", "/models", ModelsRequest, ModelList, "read", "project"),
        Operation("costs", "GET", "/costs", CostsRequest, CostReport, "read", "store"),
        Operation(
            "deliveries", "GET", "/deliveries", DeliveriesRequest, DeliveryList, "read", "store"
        ),
        Operation(
            "redeliver", "POST", "/deliveries/{key}", RedeliverRequest, EmptyReply, "admin", "store"
        ),
        Operation("status", "GET", "/health", StatusRequest, HostStatus, "read", "host"),
        Operation(
            "metrics",
            "GET",
            "/metrics",
            MetricsRequest,
            None,
            "read",
            "host",
            media="text/plain; version=0.0.4; charset=utf-8",
        ),
    )


def _hosting() -> tuple[Operation, ...]:
    return (
        Operation(
            "hello", "POST", "/host/hello", HelloRequest, Hello, "admin", "host", is_internal=True
        ),
        Operation(
            "open_page",
            "POST",
            "/host/page",
            PageRequest,
            PageReply,
            "admin",
            "host",
            is_internal=True,
        ),
        Operation("stop", "POST", "/host/stop", StopRequest, EmptyReply, "admin", "host"),
        Operation(
            "servers",
            "POST",
            "/host/mcp-servers",
            ServersRequest,
            ServerList,
            "admin",
            "project",
            is_internal=True,
        ),
        Operation(
            "prompts",
            "POST",
            "/host/mcp-prompts",
            PromptsRequest,
            PromptList,
            "admin",
            "project",
            is_internal=True,
        ),
        Operation("backup", "POST", "/host/backup", BackupRequest, EmptyReply, "admin", "store"),
        Operation(
            "compact",
            "POST",
            "/host/compaction",
            CompactRequest,
            None,
            "admin",
            "store",
            media="text/event-stream",
            events={"progress": CompactionProgress, "end": Compacted},
        ),
    )


OPERATIONS = _operations()
BY_REQUEST = {operation.request: operation for operation in OPERATIONS}
