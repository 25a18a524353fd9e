"""A server may put anything anywhere: each part of what a good one sends is replaced, left out or
repeated, and whoever reads it has an answer or says what is wrong."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from retinue.errors import ConfigError
from retinue.models.anthropic import AnthropicCodec
from retinue.models.codec import Codec, Options
from retinue.models.gemini import GeminiCodec
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.models.openai_responses import OpenAIResponsesCodec
from retinue.tools.mcp_client import McpServers, ServerConfig, ServerLimits
from retinue.tools.mcp_client.protocol import McpError, decode
from retinue.tools.mcp_client.server_lifecycle import KeptServer
from retinue.tools.mcp_client.transports.base import Lost, Receive, Unreadable
from tests.pictures import encoded, png

N = int(os.environ.get("RETINUE_FOREIGN_JSON", "150"))
"""So many servers; the long run was 5,000."""
CODECS: tuple[Codec, ...] = (
    AnthropicCodec(),
    GeminiCodec(),
    OpenAIChatCodec(),
    OpenAIResponsesCodec(),
)
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, 1e308, "", "a", "\0",
    "\u202e", "\ud800", "#", "#/", "#/properties/a", "#/~", "(", "(?P<a", "a{99999999999}",
    "x" * 5_000,
    [], {}, [[]], [{}], [None], {"": None}, {"type": []}, {"$ref": "#"}, {"properties": 3},
    {"required": [[]]}, {"enum": [[]]}, {"allOf": [{}]}, {"anyOf": [3]}, {"a": {"a": {"a": {}}}},
)  # fmt: skip
SCHEMA = {
    "type": "object",
    "title": "T",
    "description": "d",
    "properties": {
        "a": {"type": "string", "pattern": "^a$", "enum": ["a"], "x-mcp-header": "A"},
        "b": {"type": ["integer", "null"], "minimum": 1, "default": 2, "const": 2},
        "c": {"type": "array", "items": {"$ref": "#/$defs/d"}, "minItems": 1, "uniqueItems": True},
        "e": {"anyOf": [{"type": "string", "format": "uri"}, {"oneOf": [{"multipleOf": 2}]}]},
    },
    "required": ["a", "b"],
    "allOf": [{"properties": {"f": {"type": "boolean"}}, "required": ["f"]}],
    "anyOf": [{"required": ["a"]}, {"required": ["a", "c"]}],
    "additionalProperties": {"type": "number"},
    "$defs": {"d": {"type": "object", "properties": {"g": {"maxLength": 3}}}},
}
CONTENT = [
    {"type": "text", "text": '{"a": 1}'},
    {"type": "image", "mimeType": "image/png", "data": encoded(png())},
    {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
    {"type": "resource_link", "uri": "file:///a", "name": "A", "description": "d"},
    {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "c", "mimeType": "image/png", "blob": "AAAA"}},
]
INFO = {"name": "n", "version": "1"}
ANSWERS: dict[str, Any] = {
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "i",
        "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
    },
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": INFO,
        "instructions": "i",
    },
    "tools/list": {
        "tools": [
            {
                "name": "echo",
                "title": "E",
                "description": "d",
                "inputSchema": SCHEMA,
                "annotations": {"readOnlyHint": True, "idempotentHint": True},
            },
            {"name": "plain", "inputSchema": {"type": "object"}},
        ],
        "nextCursor": None,
    },
    "tools/call": {
        "content": CONTENT,
        "structuredContent": {"a": 1},
        "isError": False,
        "resultType": "complete",
        "inputRequests": {
            "q": {"method": "elicit", "params": {"message": "m", "requestedSchema": SCHEMA}}
        },
    },
}
FAILURE = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28", "2025-11-25"]}}
NOTE = {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: what it is in, and its key there."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from parts(value[key])


def changed(rng: random.Random, value: Any) -> Any:
    """The value with some parts of it left out, put in another's place, or made something else."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((0, 1, 2, 4))):
        places = list(parts(value))
        if not places:
            break
        where, key = rng.choice(places)
        kind, part = rng.random(), where[key]
        if kind < 0.6:
            where[key] = rng.choice(ODD)
        elif kind < 0.7:
            del where[key]
        elif kind < 0.8:
            other, name = rng.choice(places)
            where[key] = copy.deepcopy(other[name])
        else:
            where[key] = [part, rng.choice(ODD)] if kind < 0.9 else {"a": part, "type": part}
    return value


class Liar:
    """Answers at once, and nearly right."""

    is_inline = False
    is_logging_in = False

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._receive: Receive = lambda _: False

    async def open(self, receive: Receive, callback: Lost) -> None:
        self._receive = receive

    async def send(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        if "id" not in message or "method" not in message:
            return
        rng, answer = self._rng, dict[str, Any](jsonrpc="2.0", id=message["id"])
        if rng.random() < 0.1:
            answer["error"] = FAILURE
        else:
            answer["result"] = changed(rng, ANSWERS.get(message["method"], {}))
        for texts in (changed(rng, NOTE), answer if rng.random() < 0.8 else changed(rng, answer)):
            try:
                text = decode(json.dumps(texts).encode())
            except ValueError as error:
                text = Unreadable(str(error), message["id"])
            self._receive(text)
        # What was changed so that it is no answer at all: nobody waits for it.
        self._receive(Unreadable("nothing came", message["id"]))

    async def close(self) -> None:
        pass

    def tail(self) -> str:
        return ""

    def forget(self) -> None:
        pass


async def tried(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many tools were called."""
    rng = random.Random(seed)
    monkeypatch.setattr(KeptServer, "_transport", lambda self: Liar(rng))
    config = ServerConfig(name="liar", command="none", trust=True)
    limits = ServerLimits(discover_seconds=30.0, backoff_seconds=0.0, restarts=1)
    servers = McpServers([config], environ={}, limits=limits, approve_first=rng.random() < 0.9)
    n = 0
    try:
        await servers.start()
        for status in servers.status():
            repr(status).encode("utf-8", "strict")
        tools = servers.tools()
        for codec in CODECS:
            codec.head("m", "i", [tool.schema for tool in tools], Options())
        for tool in tools:
            args = {"a": "x", "b": 2, "c": [1]}
            answer = await tool.call(args)
            answer.text.encode()
            tool.summary(args)
            n += 1
    except (McpError, ConfigError):
        pass
    finally:
        await servers.close()
    return n


def test_no_answer_of_a_server_is_more_than_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> int:
        return sum([await tried(seed, monkeypatch) for seed in range(N)])

    assert asyncio.run(story()) > N / 4
