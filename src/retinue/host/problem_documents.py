"""Converts errors into problem documents (RFC 9457) with the message of the exception."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue import errors
from retinue.errors import RetinueError

MEDIA = "application/problem+json"
OPENAI_PREFIX = "/v1"
"""Below it are the APIs of OpenAI, whose clients read errors in a shape of their own."""
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.NotFound, 404),
    (errors.Refused, 409),
    (errors.InvalidTransition, 409),
    (errors.ConfigError, 422),
    (errors.StoreFull, 507),
    (errors.StoreError, 503),
    (errors.SandboxMissing, 503),
    (errors.ModelError, 502),
    (errors.HostGone, 503),
    (RetinueError, 500),
)
_TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timed out",
    409: "Refused",
    413: "Request too large",
    415: "Unsupported media type",
    421: "Wrong host name",
    422: "Cannot be done as asked",
    429: "Too many requests",
    502: "The provider failed",
    503: "Not available",
    507: "No space left",
}


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. `detail` is a sentence for people, the same as on the command line; `kind`
    is the class of the error, and `about` the limit or kind of failure that it names."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    kind: str = "RetinueError"
    about: str = ""


class HttpProblem(Exception):
    """An answer other than what was asked for, about the request itself."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.headers = status, headers or {}


def problem_of(error: BaseException) -> ProblemDocument:
    """An error for a client. Only our own are shown in full: others may contain private data."""
    if isinstance(error, HttpProblem):
        kind = {401: "NotSignedIn", 403: "NotAllowed", 404: "NotFound"}.get(
            error.status, "ConfigError"
        )
        return _problem(error.status, str(error), kind)
    if isinstance(error, RetinueError):
        about = getattr(error, "limit", "") or (
            error.kind if isinstance(error, errors.ModelError) else ""
        )
        status = next(number for kind, number in _STATUS if isinstance(error, kind))
        return _problem(status, str(error), type(error).__name__, about)
    if isinstance(error, OSError):
        text = f"{error.filename or ''}: {error.strerror}".lstrip(": ")
        return _problem(500, text, "OSError")
    text = f"The host failed: {type(error).__name__}. See its log for details."
    return _problem(500, text, "RetinueError")


def _problem(status: int, detail: str, kind: str, about: str = "") -> ProblemDocument:
    title = _TITLES.get(status, "The host failed")
    return ProblemDocument(title=title, status=status, detail=detail, kind=kind, about=about)


def error_of(problem: ProblemDocument) -> Exception:
    """The exception that a problem was made from, with the same words."""
    kind: Any = getattr(errors, problem.kind, errors.RetinueError)
    if not (isinstance(kind, type) and issubclass(kind, RetinueError)):
        kind = errors.RetinueError
    error: Any = kind.__new__(kind)
    error.args = (problem.detail,)
    error.problem, error.fix = problem.detail, ""
    error.limit = error.kind = problem.about
    error.pid = 0
    exception: Exception = error
    return exception


_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def openai_body(problem: ProblemDocument) -> dict[str, Any]:
    """The same with the object `error` that clients of OpenAI's APIs look for."""
    kind = _OPENAI_TYPES.get(problem.status, "invalid_request_error")
    if problem.status >= 500:
        kind = "server_error"
    error = {"message": problem.detail, "type": kind, "param": None, "code": problem.about or None}
    return {**msgspec.to_builtins(problem), "error": error}


def body_at(path: str, problem: ProblemDocument) -> Any:
    """A problem as the clients of a path read it."""
    return openai_body(problem) if f"{path}/".startswith(OPENAI_PREFIX + "/") else problem
