"""Resources that clients can read: conversations of their agents, and full texts of shortened
results."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from retinue.errors import NotFound
from retinue.host import requests
from retinue.mcp import rpc_messages as rpc
from retinue.mcp.agent_reports import SCHEME, transcript_uri
from retinue.mcp.agent_work import AgentWork
from retinue.mcp.completions import Completed, no_values
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import RpcCall

MOST_LISTED = 50
TRANSCRIPT = f"{SCHEME}runs/{{id}}/transcript"
ARTIFACT = f"{SCHEME}artifacts/{{sha256}}"
TEMPLATES = [
    {
        "uriTemplate": TRANSCRIPT,
        "name": "transcript",
        "description": "The conversation of an agent.",
        "mimeType": "text/markdown",
    },
    {
        "uriTemplate": ARTIFACT,
        "name": "artifact",
        "description": "The whole of a text that was shortened.",
        "mimeType": "text/plain",
    },
]
_RUN = re.compile(re.escape(SCHEME) + r"runs/([0-9a-f-]{36})/transcript")
_SHA = re.compile(re.escape(SCHEME) + r"artifacts/([0-9a-f]{64})")


class AgentResources:
    """The resources of one guest."""

    def __init__(self, work: AgentWork) -> None:
        self._work = work

    async def listed(self, call: RpcCall) -> dict[str, Any]:
        lines = (await self._work.reader.listed())[:MOST_LISTED]
        return {
            "resources": [
                {
                    "uri": transcript_uri(line["id"]),
                    "name": f"{line['label']} {line['id']}",
                    "mimeType": "text/markdown",
                }
                for line in lines
            ]
        }

    @property
    def completed(self) -> Completed:
        """What can be completed: a guest knows its agents, and no one guesses a hash."""
        return {(TRANSCRIPT, "id"): self._ids, (ARTIFACT, "sha256"): no_values}

    async def _ids(self) -> Sequence[str]:
        return [line["id"] for line in await self._work.reader.listed()]

    async def templates(self, call: RpcCall) -> dict[str, Any]:
        return {"resourceTemplates": TEMPLATES}

    async def read(self, call: RpcCall) -> dict[str, Any]:
        uri = call.text_param("uri")
        try:
            if match := _RUN.fullmatch(uri):
                text = await self._transcript(match[1])
                return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": text}]}
            if match := _SHA.fullmatch(uri):
                data = await self._work.link.ask(requests.ArtifactRequest(sha256=match[1]))
                return {"contents": [{"uri": uri, **_content(data)}]}
        except NotFound:
            pass
        is_new = call.client.is_stateless
        code = rpc.INVALID_PARAMS if is_new else rpc.RESOURCE_NOT_FOUND
        raise RpcError(code, "Resource not found.", {"uri": uri})

    async def version(self, uri: str) -> Any:
        """Changes with the conversation; None for what is not one of this guest's."""
        match = _RUN.fullmatch(uri)
        if match is None:
            return None
        try:
            detail = await self._work.link.ask(requests.ShowRequest(run=match[1]))
        except NotFound:
            return None
        return detail["messages"], detail["state"]

    async def _transcript(self, run: str) -> str:
        parts: list[str] = []
        start, length = 0, 1
        while start < length:
            want = requests.TranscriptRequest(run=run, start=start, limit=requests.MOST_RUNS)
            page = await self._work.link.ask(want)
            parts += [_message_text(message) for message in page["messages"]]
            length = page["length"]
            start += max(1, len(page["messages"]))
        return "\n\n".join(parts)


def _content(data: bytes) -> dict[str, Any]:
    try:
        return {"mimeType": "text/plain", "text": data.decode()}
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return {"mimeType": "application/octet-stream", "blob": blob}


def _message_text(message: Mapping[str, Any]) -> str:
    """One message in Markdown."""
    role, text = message["role"], message.get("text", "")
    if role == "tool":
        return f"## result of {message.get('name', 'a tool')}\n\n{text}"
    calls = [f"- calls {call['name']} {call.get('args', '')}" for call in message.get("calls", ())]
    return "\n\n".join([f"## {role}", *([text] if text else []), *calls])
