"""Reads requests of the chat API leniently: fields without meaning for an agent are ignored, and
what it cannot do is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from retinue.core.values import ToolSchema
from retinue.formats.json_values import converted
from retinue.server.openai.api_errors import ApiProblem

Request = TypeVar("Request")
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


class ContentPart(msgspec.Struct, kw_only=True):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None


Content = str | list[ContentPart] | None


class SentMessage(msgspec.Struct, kw_only=True):
    """A message of the conversation as the client has it."""

    role: str
    content: Content = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, kw_only=True):
    """`POST /v1/chat/completions`."""

    model: str
    messages: list[SentMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    functions: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    logprobs: bool | None = None
    n: int | None = None


def read_request(data: dict[str, Any], kind: type[Request]) -> Request:
    """The body as a request. Raises `ApiProblem`."""
    try:
        return converted(data, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        param = text.rpartition(" - at `$.")[2].rstrip("`") if "`$." in text else None
        raise ApiProblem(400, f"This request cannot be read: {text}.", param=param) from None


def check_chat(request: ChatRequest) -> None:
    """Refuses what would be answered wrongly."""
    if not request.messages:
        raise ApiProblem(400, "There are no messages.", param="messages")
    if (request.n or 1) != 1:
        raise ApiProblem(400, "An agent gives one answer: n must be 1.", param="n")
    if request.functions:
        raise ApiProblem(400, "Send functions as tools.", param="functions")
    if request.logprobs:
        raise ApiProblem(400, "There are no logprobs.", param="logprobs")
    if any(kind != "text" for kind in request.modalities or ()):
        raise ApiProblem(400, "An agent answers with text only.", param="modalities")
    check_format(request.response_format, "response_format")


def check_format(format: dict[str, Any] | None, param: str) -> None:
    if (format or {}).get("type", "text") != "text":
        raise ApiProblem(
            400,
            "An agent answers with text. If it should return JSON, give it an output type where "
            "it is defined.",
            param=param,
        )


def text_of(content: Content, param: str = "messages") -> str:
    """The text of a message. Raises `ApiProblem` for anything else in it."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in TEXT_PARTS:
            raise ApiProblem(
                400, f"Parts of type {part.type[:40]!r} cannot be read, only text.", param=param
            )
    return "\n".join(part.text or part.refusal or "" for part in content)


def chat_tools(tools: Iterable[dict[str, Any]] | None) -> tuple[ToolSchema, ...]:
    """The client's tools. Only functions can be passed on."""
    return tuple(_schema(tool.get("function"), tool) for tool in tools or ())


def response_tools(tools: Iterable[dict[str, Any]] | None) -> tuple[ToolSchema, ...]:
    """The same as the responses API has them: without the inner object."""
    return tuple(_schema(tool, tool) for tool in tools or ())


def _schema(function: Any, tool: dict[str, Any]) -> ToolSchema:
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        raise ApiProblem(
            400,
            f"Tools of type {str(tool.get('type'))[:40]!r} are not available: an agent has its "
            "own, and yours are functions.",
            param="tools",
        )
    fields = {
        "name": function.get("name"),
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {"type": "object", "properties": {}},
        "strict": bool(function.get("strict")),
    }
    try:
        return msgspec.convert(fields, ToolSchema)
    except msgspec.ValidationError as error:
        raise ApiProblem(400, f"A tool cannot be read: {error}.", param="tools") from None
