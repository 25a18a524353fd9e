"""Requests of the Responses API: text or items, and the response to continue."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.server.openai.api_errors import ApiProblem
from retinue.server.openai.chat_requests import Content, SentMessage, check_format, text_of

SKIPPED = ("function_call", "reasoning", "item_reference")
"""Items of our own that clients send back. The run knows them."""


class InputItem(msgspec.Struct, kw_only=True):
    """A message, or the result of a call."""

    type: str = "message"
    role: str = "user"
    content: Content = None
    call_id: str = ""
    output: Content = None


class ResponseRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/responses`."""

    model: str = ""
    input: str | list[InputItem] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    background: bool | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None
    conversation: Any = None
    prompt: Any = None
    text: dict[str, Any] | None = None


def check_response(request: ResponseRequest) -> None:
    """Refuses what would be answered wrongly."""
    for name in ("conversation", "prompt"):
        if getattr(request, name):
            raise ApiProblem(
                400, f"There is no {name}. Continue with previous_response_id.", param=name
            )
    check_format((request.text or {}).get("format"), "text.format")
    if not request.input:
        raise ApiProblem(400, "The input is empty.", param="input")
    if not request.model and not request.previous_response_id:
        raise ApiProblem(400, "Name a model: one of the agents in /v1/models.", param="model")


def messages_of(request: ResponseRequest) -> list[SentMessage]:
    """The input as messages of a chat."""
    messages = []
    if request.instructions:
        messages.append(SentMessage(role="system", content=request.instructions))
    if isinstance(request.input, str):
        return [*messages, SentMessage(role="user", content=request.input)]
    for n, item in enumerate(request.input):
        if item.type == "function_call_output":
            text = text_of(item.output, f"input.{n}")
            messages.append(SentMessage(role="tool", content=text, tool_call_id=item.call_id))
        elif item.type == "message":
            messages.append(SentMessage(role=item.role, content=item.content))
        elif item.type not in SKIPPED:
            raise ApiProblem(
                400, f"Items of type {item.type[:40]!r} cannot be read.", param=f"input.{n}"
            )
    return messages
