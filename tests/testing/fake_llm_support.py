"""Good requests in each dialect, a client that sees every byte and every end, and the text of a
reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from retinue.testing.fake_llm.fake_provider import DIALECTS, FakeLLM

KEY = "sk-test-0123456789abcdef"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "options": {"type": "object", "properties": {}}},
    "required": ["path"],
}
AUTH = {
    "anthropic": {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    "openai_chat": {"authorization": f"Bearer {KEY}"},
    "openai_responses": {"authorization": f"Bearer {KEY}"},
    "gemini": {"x-goog-api-key": KEY},
}
ALL = list(DIALECTS)


@dataclass
class Post:
    """A request that can be bent before it is sent."""

    dialect: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    stream: bool = False
    model: str = "m"
    path: str = ""

    def target(self) -> str:
        if self.path:
            return self.path
        if self.dialect == "gemini":
            verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
            return f"/v1beta/models/{self.model}:{verb}"
        names = {
            "anthropic": "messages",
            "openai_chat": "chat/completions",
            "openai_responses": "responses",
        }
        return f"/v1/{names[self.dialect]}"

    def data(self) -> bytes:
        if self.dialect == "gemini":
            return json.dumps(self.body).encode()
        stream = {"stream": True} if self.stream else {}
        return json.dumps({"model": self.model, **stream, **self.body}).encode()


def good(
    dialect: str,
    *,
    stream: bool = False,
    model: str = "m",
    text: str = "hi",
    turns: int = 0,
    **more: Any,
) -> Post:
    """A conversation with a tool and some turns behind it, each of two calls."""
    body: dict[str, Any]
    match dialect:
        case "anthropic":
            body = {
                "max_tokens": 1000,
                "messages": anthropic_messages(text, turns),
                "tools": tools(dialect),
            }
        case "openai_chat":
            body = {"messages": chat_messages(text, turns), "tools": tools(dialect)}
        case "openai_responses":
            body = {"input": responses_items(text, turns), "tools": tools(dialect)}
        case _:
            body = {"contents": gemini_contents(text, turns), "tools": tools(dialect)}
    return Post(dialect, {**body, **more}, dict(AUTH[dialect]), stream, model)


def tools(dialect: str, name: str = "read", schema: Any = SCHEMA) -> list[dict[str, Any]]:
    about = "Reads a file."
    match dialect:
        case "anthropic":
            return [{"name": name, "description": about, "input_schema": schema}]
        case "openai_chat":
            return [
                {
                    "type": "function",
                    "function": {"name": name, "description": about, "parameters": schema},
                }
            ]
        case "openai_responses":
            return [{"type": "function", "name": name, "description": about, "parameters": schema}]
        case _:
            return [
                {
                    "functionDeclarations": [
                        {"name": name, "description": about, "parameters": schema}
                    ]
                }
            ]


def anthropic_messages(text: str, turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    for n in range(turns):
        uses = [
            {"type": "tool_use", "id": f"t{n}_{i}", "name": "read", "input": {"path": f"{i}"}}
            for i in (0, 1)
        ]
        results = [
            {"type": "tool_result", "tool_use_id": f"t{n}_{i}", "content": f"result {i}"}
            for i in (0, 1)
        ]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    return messages


def chat_messages(text: str, turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": text},
    ]
    for n in range(turns):
        calls = [
            {
                "id": f"t{n}_{i}",
                "type": "function",
                "function": {"name": "read", "arguments": f'{{"path":"{i}"}}'},
            }
            for i in (0, 1)
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": f"t{n}_{i}", "content": f"result {i}"} for i in (0, 1)
        ]
    return messages


def responses_items(text: str, turns: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"role": "user", "content": text}]
    for n in range(turns):
        args = [f'{{"path":"{i}"}}' for i in (0, 1)]
        items += [
            {"type": "function_call", "call_id": f"t{n}_{i}", "name": "read", "arguments": args[i]}
            for i in (0, 1)
        ]
        items += [
            {"type": "function_call_output", "call_id": f"t{n}_{i}", "output": f"result {i}"}
            for i in (0, 1)
        ]
    return items


def gemini_contents(text: str, turns: int) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": text}]}]
    for _ in range(turns):
        calls = [{"functionCall": {"name": "read", "args": {"path": f"{i}"}}} for i in (0, 1)]
        texts = [
            {"functionResponse": {"name": "read", "response": {"output": f"result {i}"}}}
            for i in (0, 1)
        ]
        contents += [{"role": "model", "parts": calls}, {"role": "user", "parts": texts}]
    return contents


@dataclass
class Got:
    """What came back, and how it ended: `fin`, `rst`, or `open` when nothing came for a while."""

    raw: bytes
    end: str

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0]

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }

    @property
    def rest(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def is_whole(self) -> bool:
        """Whether the message is complete as HTTP."""
        if self.headers.get("transfer-encoding") == "chunked":
            return self.rest.endswith(b"0\r\n\r\n")
        return "content-length" not in self.headers or len(self.rest) == int(
            self.headers["content-length"]
        )

    @property
    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rest
        out, rest = b"", self.rest
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size or b"0", 16)
            if n == 0:
                break
            out, rest = out + rest[:n], rest[n + 2 :]
        return out

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, str]]:
        """Name and data of each event, for streams that are plain."""
        results = []
        for block in self.body.decode().replace("\r\n", "\n").split("\n\n"):
            name, data = "", []
            for line in block.split("\n"):
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data.append(line[6:])
            if data:
                results.append((name, "\n".join(data)))
        return results

    @property
    def datas(self) -> list[Any]:
        return [json.loads(data) for _, data in self.events if data != "[DONE]"]


async def send(
    llm: FakeLLM, post: Post, *, first: float = 10.0, quiet: float = 10.0, data: bytes | None = None
) -> Got:
    """Post it on a connection of its own and read until the server ends it, or is quiet for a
    while."""
    body = post.data() if data is None else data
    lines = [
        f"POST {post.target()} HTTP/1.1",
        "host: x",
        "connection: close",
        f"content-length: {len(body)}",
    ]
    headers = {"content-type": "application/json", **post.headers}
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return await raw(llm, ("\r\n".join(lines) + "\r\n\r\n").encode() + body, first, quiet)


async def raw(llm: FakeLLM, data: bytes, first: float = 10.0, quiet: float = 10.0) -> Got:
    reader, writer = await connect(llm)
    parts, end = [], "fin"
    try:
        writer.write(data)
        while True:
            piece = await asyncio.wait_for(reader.read(1 << 20), quiet if parts else first)
            if not piece:
                break
            parts.append(piece)
    except ConnectionResetError:
        end = "rst"
    except TimeoutError:
        end = "open"
    finally:
        writer.transport.abort()
    return Got(b"".join(parts), end)


def wire(post: Post) -> bytes:
    """The whole request, for a connection that stays open."""
    body = post.data()
    lines = [
        f"POST {post.target()} HTTP/1.1",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    lines += [f"{name}: {value}" for name, value in post.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def connect(llm: FakeLLM) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(llm.url.rsplit(":", 1)[1]))


def text_of(dialect: str, reply: Got, stream: bool) -> str:
    """The text of a reply, however it came."""
    datas = reply.datas if stream else [reply.json]
    return "".join(piece for data in datas for piece in _texts(dialect, data))


def _texts(dialect: str, data: dict[str, Any]) -> Sequence[str]:
    match dialect:
        case "anthropic":
            if "delta" in data:
                return [data["delta"].get("text", "")]
            return [block.get("text", "") for block in data.get("content", [])]
        case "openai_chat":
            return [
                (c.get("delta") or c.get("message") or {}).get("content") or ""
                for c in data["choices"]
            ]
        case "openai_responses":
            if data.get("type") == "response.output_text.delta":
                return [data["delta"]]
            items = [] if "type" in data else data["output"]
            return [
                part["text"]
                for item in items
                if item["type"] == "message"
                for part in item["content"]
            ]
        case _:
            result = [c.get("content", {}).get("parts", []) for c in data.get("candidates", [])]
            return [part.get("text", "") for parts in result for part in parts]


def calls_of(dialect: str, reply: Got, stream: bool) -> list[tuple[str, str]]:
    """Name and raw arguments of each call of a reply."""
    datas = reply.datas if stream else [reply.json]
    calls: dict[Any, list[str]] = {}
    for data in datas:
        match dialect:
            case "anthropic":
                blocks = list(enumerate(data.get("content", []))) if not stream else []
                if "content_block" in data:
                    blocks = [(data["index"], {**data["content_block"], "input": None})]
                for n, block in blocks:
                    if block["type"] == "tool_use":
                        calls[n] = [
                            block["name"],
                            json.dumps(block["input"]) if block["input"] is not None else "",
                        ]
                if data.get("delta", {}).get("type") == "input_json_delta":
                    calls[data["index"]][1] += data["delta"]["partial_json"]
            case "openai_chat":
                for choice in data["choices"]:
                    tool_calls = (choice.get("delta") or choice.get("message") or {}).get(
                        "tool_calls", []
                    )
                    for n, call in enumerate(tool_calls):
                        at = call.get("index", n)
                        calls.setdefault(at, [call["function"].get("name", ""), ""])
                        calls[at][1] += call["function"]["arguments"]
            case "openai_responses":
                output = data.get("output", []) if not stream else []
                if data.get("type") == "response.output_item.done":
                    output = [data["item"]]
                for item in output:
                    if item["type"] == "function_call":
                        calls[item["id"]] = [item["name"], item["arguments"]]
            case _:
                for candidate in data.get("candidates", []):
                    for part in candidate.get("content", {}).get("parts", []):
                        if "functionCall" in part:
                            call = part["functionCall"]
                            calls[len(calls)] = [call["name"], json.dumps(call["args"])]
    return [(name, args) for name, args in calls.values()]
