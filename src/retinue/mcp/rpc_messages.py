"""Reads and writes JSON-RPC messages as MCP defines them. A message that is none becomes an error
by the specification, with the sender's id where there is one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

Id = str | int


class RpcError(Exception):
    """An error that a client gets as such. `id` is that of the message it answers."""

    def __init__(self, code: int, message: str, data: Any = None, id: Id | None = None) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.data, self.id = data, id


@dataclass(frozen=True)
class RpcRequest:
    """Wants one response."""

    id: Id
    method: str
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def meta(self) -> dict[str, Any]:
        value = self.params.get("_meta")
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class RpcNotification:
    """Wants none."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RpcResponse:
    """The client's response to a request of ours: a result, or an error."""

    id: Id
    result: dict[str, Any] | None = None
    error: Any = None


RpcMessage = RpcRequest | RpcNotification | RpcResponse


def read_message(data: bytes) -> RpcMessage:
    """One message. Raises `RpcError` for what is none."""
    try:
        value = msgspec.json.decode(data)
        encode(value)  # half a character of UTF-16 can be decoded and never be written again
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"The message is not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise RpcError(INVALID_REQUEST, "A message is one JSON object. Batches are not supported.")
    return _message(value)


def _message(value: dict[str, Any]) -> RpcMessage:
    id = value.get("id")
    known_id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    if value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'A message has "jsonrpc": "2.0".', id=known_id)
    if "id" in value and known_id is None:
        raise RpcError(INVALID_REQUEST, "The id of a message is a string or an integer.")
    if "method" not in value:
        return _response(value, known_id)
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "The method of a message is a string.", id=known_id)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "The params of a message are an object.", id=known_id)
    if known_id is None:
        return RpcNotification(method, params)
    return RpcRequest(known_id, method, params)


def _response(value: dict[str, Any], id: Id | None) -> RpcResponse:
    result, error = value.get("result"), value.get("error")
    if id is None or (result is None) == (error is None):
        raise RpcError(
            INVALID_REQUEST, "A message has a method, or an id with a result or an error.", id=id
        )
    if result is not None and not isinstance(result, dict):
        raise RpcError(INVALID_REQUEST, "The result of a response is an object.", id=id)
    return RpcResponse(id, result, error)


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def result_message(id: Id, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_message(error: RpcError, id: Id | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        fields["data"] = error.data
    return {"jsonrpc": "2.0", "id": error.id if id is None else id, "error": fields}


def request_message(id: Id, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification_message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}
