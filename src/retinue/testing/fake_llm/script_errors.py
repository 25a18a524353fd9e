"""Errors that a script asks for, and errors that come before a reply."""

from __future__ import annotations

from retinue.errors import ModelError, ModelUnavailable
from retinue.testing.fake_llm import error_answers, request_errors
from retinue.testing.fake_llm.dialect import FakeDialect, FakeError
from retinue.testing.fake_llm.fake_request import FakeRequest


def plain_trouble(api: FakeDialect, status: int, message: str) -> FakeError:
    """An error of no special kind, in the words of a dialect."""
    match api.dialect:
        case "gemini":
            kinds = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}
            return FakeError(status, kinds.get(status, "INVALID_ARGUMENT"), message)
        case "anthropic":
            kinds = {404: "not_found_error", 413: "request_too_large"}
            return FakeError(status, kinds.get(status, "invalid_request_error"), message)
        case _:
            return FakeError(status, "invalid_request_error", message)


def script_error(scene: FakeRequest, error: BaseException) -> FakeError:
    """An exception in a script, as the provider would say it."""
    trouble = error_answers.broken(scene)
    if isinstance(error, ModelUnavailable):
        trouble = error_answers.overloaded(scene)
        if error.retry_after:
            trouble.headers = {"retry-after": f"{error.retry_after:g}"}
    elif isinstance(error, ModelError):
        trouble = request_errors.prompt_too_long(scene)
        trouble.code = None
    trouble.message = str(error) or trouble.message
    return trouble
