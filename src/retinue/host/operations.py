"""How each request travels over HTTP: one table for the application, its clients and its OpenAPI
description. Fields that are named in a path stand in the path; the others are in the query of a GET
or DELETE, and in the JSON body of a POST."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from retinue.host import replies, requests
from retinue.host.requests import HostRequest
from retinue.host.tree_items import Said, StepNews
from retinue.outcomes import Node
from retinue.pricing import PriceTag
from retinue.steps import TreeRecord
from retinue.store.base import Compacted

PREFIX = "/api/v1"
Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")


@dataclass(frozen=True)
class Operation:
    """`name` is the method of `Host` that carries it out. `reply` is the type of its JSON, or of
    the events of a stream by their names; a text or bytes have a `media` type instead.
    `ends_with_client`: who goes away does not want it any more; everything else that was asked for
    is done. `is_internal`: between a command and its host, and no part of what is described to
    others."""

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    request: type[HostRequest]
    reply: Any
    scope: Scope
    about: str
    status: int = 200
    media: str = "application/json"
    events: dict[str, Any] = field(default_factory=dict)
    ends_with_client: bool = False
    is_internal: bool = False

    @property
    def path_fields(self) -> tuple[str, ...]:
        """The fields of the request that stand in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def is_stream(self) -> bool:
        return bool(self.events)


def _operations() -> tuple[Operation, ...]:
    run = "/runs/{run}"
    return (
        Operation(
            "list_runs", "GET", "/runs", requests.ListRequest, replies.RunPage, "read", "runs"
        ),
        Operation(
            "start", "POST", "/runs", requests.StartRequest, replies.StartReply, "run", "runs", 201
        ),
        Operation("show", "GET", run, requests.ShowRequest, replies.RunDetail, "read", "runs"),
        Operation(
            "forget", "DELETE", run, requests.ForgetRequest, replies.EmptyReply, "admin", "runs"
        ),
        Operation("tree", "GET", f"{run}/tree", requests.TreeRequest, Node, "read", "runs"),
        Operation(
            "transcript",
            "GET",
            f"{run}/transcript",
            requests.TranscriptRequest,
            replies.Transcript,
            "read",
            "runs",
        ),
        Operation(
            "outcome",
            "GET",
            f"{run}/outcome",
            requests.OutcomeRequest,
            replies.OutcomeReply,
            "read",
            "runs",
        ),
        Operation(
            "watch",
            "GET",
            f"{run}/events",
            requests.WatchRequest,
            None,
            "read",
            "runs",
            media="text/event-stream",
            events={"step": StepNews, "delta": Said, "end": TreeRecord},
        ),
        *_talking(run),
        *_looking(),
        *_hosting(),
    )


def _talking(run: str) -> tuple[Operation, ...]:
    created, states = replies.RunCreated, replies.StatesReply
    spending, budget = replies.SpendingReply, f"{run}/budget"
    return (
        Operation(
            "send",
            "POST",
            f"{run}/messages",
            requests.SendRequest,
            replies.EmptyReply,
            "run",
            "talk",
        ),
        Operation("cancel", "POST", "/cancel", requests.CancelRequest, states, "run", "runs"),
        Operation(
            "wait",
            "POST",
            "/wait",
            requests.WaitRequest,
            states,
            "read",
            "runs",
            ends_with_client=True,
        ),
        Operation(
            "resume", "POST", f"{run}/resume", requests.ResumeRequest, created, "run", "runs", 201
        ),
        Operation("fork", "POST", f"{run}/fork", requests.ForkRequest, created, "run", "runs", 201),
        Operation(
            "fork_price", "GET", f"{run}/fork", requests.ForkPriceRequest, PriceTag, "run", "runs"
        ),
        Operation(
            "retry",
            "POST",
            f"{run}/retry",
            requests.RetryRequest,
            replies.EmptyReply,
            "run",
            "runs",
        ),
        Operation(
            "questions",
            "GET",
            "/questions",
            requests.QuestionsRequest,
            replies.QuestionList,
            "read",
            "talk",
        ),
        Operation(
            "answer",
            "POST",
            f"{run}/answer",
            requests.AnswerRequest,
            replies.AnswerReply,
            "approve",
            "talk",
        ),
        Operation("spending", "GET", budget, requests.SpendingRequest, spending, "read", "budget"),
        Operation(
            "raise_budget", "POST", budget, requests.BudgetRequest, spending, "approve", "budget"
        ),
        Operation(
            "explain",
            "POST",
            f"{run}/explain",
            requests.ExplainRequest,
            replies.Explanation,
            "read",
            "talk",
        ),
    )


def _looking() -> tuple[Operation, ...]:
    return (
        Operation(
            "artifact",
            "GET",
            "/artifacts/{sha256}",
            requests.ArtifactRequest,
            None,
            "read",
            "store",
            media="application/octet-stream",
        ),
        Operation(
            "definitions",
            "GET",
            "/definitions",
            requests.DefinitionsRequest,
            replies.AgentList,
            "read",
            "project",
        ),
        Operation(
            "tools",
            "GET",
            "/tools",
            requests.ToolsRequest,
            replies.BuiltinToolList,
            "read",
            "project",
        ),
        Operation(
            "models", "GET", "/models", requests.ModelsRequest, replies.ModelList, "read", "project"
        ),
        Operation(
            "costs", "GET", "/costs", requests.CostsRequest, replies.CostReport, "read", "store"
        ),
        Operation(
            "deliveries",
            "GET",
            "/deliveries",
            requests.DeliveriesRequest,
            replies.DeliveryList,
            "read",
            "store",
        ),
        Operation(
            "redeliver",
            "POST",
            "/deliveries/{key}",
            requests.RedeliverRequest,
            replies.EmptyReply,
            "admin",
            "store",
        ),
        Operation(
            "status", "GET", "/health", requests.StatusRequest, replies.HostStatus, "read", "host"
        ),
        Operation(
            "metrics",
            "GET",
            "/metrics",
            requests.MetricsRequest,
            None,
            "read",
            "host",
            media="text/plain; version=0.0.4; charset=utf-8",
        ),
    )


def _hosting() -> tuple[Operation, ...]:
    return (
        Operation(
            "hello",
            "POST",
            "/host/hello",
            requests.HelloRequest,
            replies.Hello,
            "admin",
            "host",
            is_internal=True,
        ),
        Operation(
            "stop", "POST", "/host/stop", requests.StopRequest, replies.EmptyReply, "admin", "host"
        ),
        Operation(
            "servers",
            "POST",
            "/host/mcp-servers",
            requests.ServersRequest,
            replies.ServerList,
            "admin",
            "project",
            is_internal=True,
        ),
        Operation(
            "backup",
            "POST",
            "/host/backup",
            requests.BackupRequest,
            replies.EmptyReply,
            "admin",
            "store",
        ),
        Operation(
            "compact",
            "POST",
            "/host/compaction",
            requests.CompactRequest,
            None,
            "admin",
            "store",
            media="text/event-stream",
            events={"progress": replies.CompactionProgress, "end": Compacted},
        ),
    )


OPERATIONS = _operations()
BY_REQUEST = {operation.request: operation for operation in OPERATIONS}
