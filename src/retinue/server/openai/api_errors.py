"""Errors in the form that OpenAI clients read. The other fields are those of our own problem
documents, so that one body serves both."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from retinue.host.problem_documents import HttpProblem, ProblemDocument, openai_body, problem_of
from retinue.host.server_events import encode

NOT_AGAIN = {"x-should-retry": "false"}
"""The official clients send most errors again by themselves; ours would be the same again, or start
the same work twice."""
AGAIN = (429, 503)


class ApiProblem(HttpProblem):
    """A request that cannot be answered. `param` is the field that is wrong, `code` a word for
    programs."""

    def __init__(
        self, status: int, detail: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(status, detail)
        self.param, self.code = param, code


def error_body(error: BaseException) -> tuple[ProblemDocument, dict[str, Any]]:
    problem = problem_of(error)
    body = openai_body(problem)
    if isinstance(error, ApiProblem):
        body["error"] |= {"param": error.param, "code": error.code or body["error"]["code"]}
    return problem, body


def error_response(error: BaseException) -> Response:
    problem, body = error_body(error)
    headers = {"cache-control": "no-store"}
    if isinstance(error, HttpProblem):
        headers |= error.headers
    if problem.status not in AGAIN:
        headers |= NOT_AGAIN
    return Response(encode(body), problem.status, headers, "application/json")
