"""Requests of A2A, in both bindings, with the same results and errors."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.host.served import ALICE, Reply, Served

PLAIN = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


@dataclass
class Answer:
    """A result, or the code of an error with its reason; `events` are those of a stream."""

    result: Any = None
    code: int = 0
    reason: str = ""
    message: str = ""
    events: list[Any] | None = None


@dataclass
class Binding:
    """A client of one binding."""

    api: Served
    is_rpc: bool
    token: str = ALICE
    version: str = "1.0"

    def call(self, name: str, /, **params: Any) -> Answer:
        return self._rpc(name, params) if self.is_rpc else self._plain(name, params)

    def _rpc(self, name: str, params: Any) -> Answer:
        id = str(uuid.uuid4())
        body = {"jsonrpc": "2.0", "id": id, "method": name, "params": params}
        reply = self.api.call("POST", "/a2a", body, token=self.token, A2A_Version=self.version)
        if reply.headers["content-type"].startswith("text/event-stream"):
            values = events_of(reply)
            assert all(v["jsonrpc"] == "2.0" and v["id"] == id for v in values)
            return Answer(events=[v["result"] for v in values])
        assert reply.headers["content-type"] == "application/json", reply
        value = reply.json
        if "jsonrpc" not in value:
            return _failed(value["error"], value["error"]["details"])
        assert value["jsonrpc"] == "2.0" and value["id"] == id
        if "error" in value:
            return _failed(value["error"], value["error"]["data"])
        return Answer(result=value["result"])

    def _plain(self, name: str, params: dict[str, Any]) -> Answer:
        method, path = PLAIN[name]
        rest = dict(params)
        for key in ("id", "taskId"):
            if f"{{{key}}}" in path:
                path = path.replace(f"{{{key}}}", str(rest.pop(key)))
        body: Any = rest if method == "POST" else None
        if method == "GET" and rest:
            words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in rest.items()}
            path += f"?{urlencode(words)}"
        headers = {"A2A_Version": self.version, "Content_Type": "application/a2a+json"}
        reply = self.api.call(method, f"/a2a{path}", body, token=self.token, **headers)
        if reply.headers["content-type"].startswith("text/event-stream"):
            return Answer(events=events_of(reply))
        if reply.status >= 400:
            error = reply.json["error"]
            assert error["code"] == reply.status
            return _failed(error, error["details"])
        assert reply.headers["content-type"] == "application/a2a+json"
        return Answer(result=reply.json)


def _failed(error: dict[str, Any], details: list[dict[str, Any]]) -> Answer:
    info = details[0]
    assert info["@type"].endswith("google.rpc.ErrorInfo") and info["domain"] == "a2a-protocol.org"
    return Answer(code=error["code"], reason=info["reason"], message=error["message"])


def events_of(reply: Reply) -> list[Any]:
    blocks = [block for block in reply.body.decode().split("\n\n") if block.startswith("data: ")]
    return [json.loads(block[6:]) for block in blocks]


def message(text: str = "Hello", **fields: Any) -> dict[str, Any]:
    result = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {**result, **fields}
