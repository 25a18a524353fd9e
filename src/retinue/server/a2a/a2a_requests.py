"""What clients of A2A send: the same fields in both bindings. Fields that are not known are passed
over, as the protocol wants it."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from retinue.formats.json_values import converted
from retinue.server.a2a.a2a_errors import CONTENT_TYPE, INVALID_PARAMS, A2aError

Params = TypeVar("Params")
Length = Annotated[int, Meta(ge=0, le=1 << 31)]
PageSize = Annotated[int, Meta(ge=1, le=100)]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
PushId = Annotated[str, Meta(max_length=500)]
PushToken = Annotated[str, Meta(max_length=1_000)]
Credentials = Annotated[str, Meta(max_length=8_000)]
READ = ("text/", "application/json")
"""Media types that an agent can read, by their beginnings."""


class A2aStruct(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of all: in JSON names are in camel case. `tenant` is the agent."""


class A2aPart(A2aStruct):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    media_type: str | None = None
    filename: str | None = None


class A2aMessage(A2aStruct):
    message_id: Name
    role: str
    parts: Annotated[list[A2aPart], Meta(min_length=1)]
    context_id: str | None = None
    task_id: str | None = None


class AuthenticationInfo(A2aStruct):
    scheme: Name
    credentials: Credentials | None = None


class PushConfig(A2aStruct):
    """Where the news of a task are sent."""

    url: Name
    id: PushId | None = None
    task_id: str | None = None
    token: PushToken | None = None
    authentication: AuthenticationInfo | None = None
    tenant: str | None = None


class SendConfiguration(A2aStruct):
    history_length: Length | None = None
    return_immediately: bool | None = None
    task_push_notification_config: PushConfig | None = None


class SendParams(A2aStruct):
    message: A2aMessage
    configuration: SendConfiguration | None = None
    tenant: str | None = None


class TaskParams(A2aStruct):
    id: Name
    history_length: Length | None = None
    tenant: str | None = None


class ListParams(A2aStruct):
    context_id: str | None = None
    status: str | None = None
    page_size: PageSize | None = None
    page_token: str | None = None
    history_length: Length | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None
    tenant: str | None = None


class PushParams(A2aStruct):
    """One configuration of a task, or with an empty `id` all of them."""

    task_id: Name
    id: str = ""
    tenant: str | None = None


class NoParams(A2aStruct):
    tenant: str | None = None


def read_params(data: Any, kind: type[Params], *, is_query: bool = False) -> Params:
    """Raises `A2aError`."""
    try:
        return converted({} if data is None else data, kind, strict=not is_query)
    except (msgspec.ValidationError, OverflowError) as error:
        raise A2aError(INVALID_PARAMS, f"These parameters cannot be read: {error}.") from None


def text_of(message: A2aMessage) -> str:
    """The text of a message. Raises `A2aError`."""
    if message.role != "ROLE_USER":
        raise A2aError(INVALID_PARAMS, "The role of a message to an agent is ROLE_USER.")
    return "\n\n".join(_part_text(part) for part in message.parts)


def _part_text(part: A2aPart) -> str:
    contents = [part.text, part.raw, part.url, part.data]
    if sum(value is not None for value in contents) != 1:
        raise A2aError(INVALID_PARAMS, "A part has exactly one of text, raw, url and data.")
    media = part.media_type or "text/plain"
    if part.raw is not None or part.url is not None or not media.startswith(READ):
        raise A2aError(
            CONTENT_TYPE, "This agent reads text and JSON. Send parts with text or data."
        )
    return part.text if part.text is not None else msgspec.json.encode(part.data).decode()
