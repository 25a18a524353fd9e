"""The name of a run's state in each family. All of them are read off the same record."""

from __future__ import annotations

from retinue.core.state import Queued, Run, ending_of
from retinue.core.values import Ending, EndState

AGENT: dict[EndState, str] = {
    "completed": "completed",
    "incomplete": "completed",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
    "interrupted": "failed",
}
DELEGATE: dict[EndState, str] = {
    "completed": "completed",
    "incomplete": "failed",
    "failed": "failed",
    "timed_out": "timed_out",
    "cancelled": "failed",
    "interrupted": "failed",
}
SESSIONS: dict[EndState, str] = {
    "completed": "ok",
    "incomplete": "error",
    "failed": "error",
    "timed_out": "timeout",
    "cancelled": "error",
    "interrupted": "error",
}
SUBAGENT: dict[EndState, str] = {
    "completed": "complete",
    "incomplete": "incomplete",
    "failed": "incomplete",
    "timed_out": "incomplete",
    "cancelled": "incomplete",
    "interrupted": "incomplete",
}
KINDS = {
    "auth",
    "rate_limit",
    "network",
    "invalid_request",
    "server_error",
    "timed_out",
    "cancelled",
    "sub_agent_error",
    "context_exhausted",
    "content_filter",
}
_FANOUT_ENDS: dict[EndState, str] = {"timed_out": "timed_out", "cancelled": "cancelled"}
_FANOUT_STOPS = {
    "refused": "content_filter",
    "quota": "rate_limit",
    "overloaded": "server_error",
    "not_found": "invalid_request",
    "bad_schema": "invalid_request",
    "too_large": "context_exhausted",
    "forbidden": "auth",
    "tls": "network",
    "redirect": "network",
    "bad_response": "server_error",
    "response_too_large": "server_error",
}
"""Ends that go by another name there. Whatever is neither here nor in KINDS is the sub-agent's own
failure."""


def agent_state(run: Run) -> str:
    ending = ending_of(run)
    return "running" if ending is None else AGENT[ending.state]


def session_state(run: Run) -> str:
    ending = ending_of(run)
    if ending is None:
        return "queued" if isinstance(run.state, Queued) and run.started_at is None else "running"
    return SESSIONS[ending.state]


def error_kind(ending: Ending) -> str:
    """The typed kind of a failure in the fanout family."""
    kind = _FANOUT_ENDS.get(ending.state) or _FANOUT_STOPS.get(ending.stop, ending.stop)
    return kind if kind in KINDS else "sub_agent_error"
