"""An MCP client that writes lines and reads lines, for what a well-behaved one never does."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

from jsonschema import Draft202012Validator

from retinue.mcp.tool_table import TOOLS
from tests.cli.private_home import PrivateHome
from tests.waiting import PATIENT, SECONDS

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
TASKS = f"{PREFIX}tasks"
PROMISED = {tool["name"]: Draft202012Validator(tool["outputSchema"]) for tool in TOOLS}


def envelope(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The `_meta` of a stateless request."""
    return {
        f"{PREFIX}protocolVersion": VERSION,
        f"{PREFIX}clientInfo": {"name": "raw", "version": "1"},
        f"{PREFIX}clientCapabilities": capabilities or {},
        **more,
    }


class RawClient:
    """`retinue mcp serve` in a process of its own."""

    def __init__(self, home: PrivateHome, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", "mcp", "serve", *flags],
            cwd=home.project,
            env={**PATIENT, **home.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.notes: list[dict[str, Any]] = []
        self.asked: queue.Queue[dict[str, Any]] = queue.Queue()
        self.odd: list[bytes] = []
        self.twice: list[dict[str, Any]] = []
        self._seen: set[Any] = set()
        self._replies: dict[Any, dict[str, Any]] = {}
        self._has_news = threading.Condition()
        self._n = 0
        self.errors = b""
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._read, self._drain)
        ]
        for thread in self._threads:
            thread.start()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                assert message["jsonrpc"] == "2.0"
            except (ValueError, AssertionError, KeyError, TypeError):
                self.odd.append(line)
                continue
            with self._has_news:
                if "method" not in message:
                    if message["id"] in self._seen:
                        self.twice.append(message)
                    self._seen.add(message["id"])
                    self._replies[message["id"]] = message
                elif "id" in message:
                    self.asked.put(message)
                else:
                    self.notes.append(message)
                self._has_news.notify_all()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def post(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """Send a request; its id."""
        self._n += 1
        id = more.pop("id", f"own-{self._n}")
        body = {"jsonrpc": "2.0", "id": id, "method": method, **more}
        self.write(json.dumps(body | ({"params": params} if params is not None else {})).encode())
        self.write(b"\n")
        return id

    def reply(self, id: Any, seconds: float = SECONDS) -> dict[str, Any]:
        with self._has_news:
            if not self._has_news.wait_for(lambda: id in self._replies, seconds):
                raise AssertionError(f"no reply to {id}: {self.process.poll()}")
            return self._replies.pop(id)

    def taken_replies(self) -> list[dict[str, Any]]:
        """Those that nobody has asked for yet. They are not kept."""
        with self._has_news:
            replies, self._replies = list(self._replies.values()), {}
            self._seen.clear()
            return replies

    def has_reply(self, id: Any) -> bool:
        return id in self._replies

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request."""
        message = self.reply(self.post(method, params))
        assert "result" in message, message
        result = message["result"]
        if method == "tasks/get" and "result" in result:
            PROMISED["delegate"].validate(result["result"]["structuredContent"])
        return result

    def error(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        message = self.reply(self.post(method, params))
        assert "error" in message, message
        return message["error"]

    def answer(self, questions: dict[str, Any], result: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "id": questions["id"], "result": result}).encode())
        self.write(b"\n")

    def notify(self, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")

    def initialize(
        self, version: str = "2025-11-25", name: str = "raw", **capabilities: Any
    ) -> dict[str, Any]:
        """The handshake."""
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
        result = self.ask("initialize", params)
        self.notify("notifications/initialized", {})
        return result

    def tool(self, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """The result of a tool. It has what the tool's schema promises, also when it is an
        error."""
        result = self.ask("tools/call", self.call_of(name, meta, **arguments))
        if result.get("resultType", "complete") == "complete" and "task" not in result:
            PROMISED[name].validate(result["structuredContent"])
        return result

    def call_of(self, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        more = {"_meta": meta} if meta is not None else {}
        return {"name": name, "arguments": arguments, **more}

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> int:
        """Closes its end; the server's exit code."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            code = self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait(SECONDS)
        for thread in self._threads:
            thread.join(SECONDS)
        self.process.stdout.close()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def first_id(result: dict[str, Any]) -> str:
    return str(result["structuredContent"]["agents"][0]["id"])
