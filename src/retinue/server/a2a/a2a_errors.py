"""Errors of A2A: each has a JSON-RPC code, an HTTP status, and a reason for programs."""

from __future__ import annotations

from typing import Any, NamedTuple

from retinue.errors import ConfigError, NotFound, Refused, RetinueError
from retinue.host.problem_documents import HttpProblem, problem_of

DOMAIN = "a2a-protocol.org"
INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class ErrorKind(NamedTuple):
    """How an error is written. `status` is the word of gRPC that the plain binding repeats."""

    code: int
    http: int
    status: str
    reason: str = ""


PARSE_ERROR = ErrorKind(-32700, 400, "INVALID_ARGUMENT", "INVALID_JSON")
INVALID_REQUEST = ErrorKind(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
METHOD_NOT_FOUND = ErrorKind(-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND")
INVALID_PARAMS = ErrorKind(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS")
INTERNAL_ERROR = ErrorKind(-32603, 500, "INTERNAL", "INTERNAL_ERROR")
TASK_NOT_FOUND = ErrorKind(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")
NOT_CANCELABLE = ErrorKind(-32002, 409, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")
UNSUPPORTED = ErrorKind(-32004, 400, "UNIMPLEMENTED", "UNSUPPORTED_OPERATION")
CONTENT_TYPE = ErrorKind(-32005, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
VERSION = ErrorKind(-32009, 400, "UNIMPLEMENTED", "VERSION_NOT_SUPPORTED")
DENIED = ErrorKind(-32603, 403, "PERMISSION_DENIED", "PERMISSION_DENIED")


class A2aError(Exception):
    """A request that cannot be carried out."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def _details(self) -> list[dict[str, Any]]:
        return [{"@type": INFO, "reason": self.kind.reason, "domain": DOMAIN, "metadata": {}}]

    def rpc(self, id: Any) -> dict[str, Any]:
        """As a message of JSON-RPC."""
        error = {"code": self.kind.code, "message": str(self), "data": self._details}
        return {"jsonrpc": "2.0", "id": id, "error": error}

    def plain(self) -> dict[str, Any]:
        """As the body of a reply in the plain binding."""
        kind = self.kind
        fields = {"code": kind.http, "status": kind.status, "message": str(self)}
        return {"error": {**fields, "details": self._details}}


def a2a_error(error: BaseException) -> A2aError:
    """Whatever went wrong, as an error of A2A. Only our own words are shown."""
    if isinstance(error, A2aError):
        return error
    problem = problem_of(error)
    if isinstance(error, NotFound) and "Run " in str(error):
        return A2aError(TASK_NOT_FOUND, "Task not found.")
    if isinstance(error, NotFound | ConfigError):
        return A2aError(INVALID_PARAMS, problem.detail)
    if isinstance(error, Refused):
        return A2aError(UNSUPPORTED, problem.detail)
    if isinstance(error, HttpProblem):
        kind = {403: DENIED, 400: INVALID_REQUEST}.get(error.status, INTERNAL_ERROR)
        return A2aError(kind._replace(http=error.status), problem.detail)
    kind = INTERNAL_ERROR
    if isinstance(error, RetinueError):
        kind = kind._replace(http=problem.status)
    return A2aError(kind, problem.detail)


def task_not_found(id: str) -> A2aError:
    return A2aError(TASK_NOT_FOUND, f"Task {id[:100]!r} not found.")
