"""Questions of agents as forms that a client shows to its user, and the user's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.mcp.protocol_versions import ClientFacts

if TYPE_CHECKING:
    from retinue.host.requests import AnswerRequest

NO_MODE = "2025-06-18"
"""The version in which a form has no mode."""
DECLINED = "The user declined to answer."


def form_request(question: Mapping[str, Any], client: ClientFacts) -> dict[str, Any]:
    """The params of `elicitation/create` for one question."""
    text = question.get("shown") or question["text"]
    if question["kind"] == "question":
        fields: dict[str, Any] = {"answer": {"type": "string", "title": "Answer"}}
        required = ["answer"]
    else:
        fields = {
            "allow": {"type": "boolean", "title": "Allow"},
            "reason": {"type": "string", "title": "Reason"},
        }
        required = ["allow"]
    params = {
        "message": f"{question['label']} asks: {text}",
        "requestedSchema": {"type": "object", "properties": fields, "required": required},
    }
    return params if client.version == NO_MODE else {"mode": "form", **params}


def answer_request(question: Mapping[str, Any], response: Any, by: str) -> AnswerRequest | None:
    """The request to the host for a form that came back; None for one that decides nothing."""
    from retinue.host.requests import AnswerRequest

    if not isinstance(response, dict):
        return None
    raw = response.get("content")
    content = raw if isinstance(raw, dict) else {}
    action, is_question = response.get("action"), question["kind"] == "question"
    run, id = question["run"], question["id"]
    if action == "decline":
        text = DECLINED if is_question else ""
        allow = None if is_question else False
        return AnswerRequest(run=run, question=id, text=text, allow=allow, by=by)
    if action != "accept":
        return None
    if is_question:
        answer = content.get("answer")
        if not isinstance(answer, str) or not answer:
            return None
        return AnswerRequest(run=run, question=id, text=answer, by=by)
    allow, reason = content.get("allow"), content.get("reason")
    if not isinstance(allow, bool):
        return None
    text = reason if isinstance(reason, str) else ""
    return AnswerRequest(run=run, question=id, allow=allow, text=text, by=by)
