"""Runs the three programs of the comparison against one provider on loopback: once to the end,
and once killed in the middle and started again. Prints one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER.parents[1] / "src"
PROGRAMS = ("retinue", "pydantic_ai", "openai_agents")
QUESTIONS = [f"Question {n}?" for n in range(6)]
SLOW = "Question 5?"
SECONDS = 120.0


class Provider:
    """Chat completions of a script, and a count of who asked what. While `is_slow`, one question
    is not answered."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.is_slow, self.is_reached = False, threading.Event()

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = [_text(m) for m in body["messages"] if m["role"] == "user"]
        question = next((q for q in QUESTIONS if q in texts), "lead")
        self.asked[question] += 1
        if question == SLOW and self.is_slow:
            self.is_reached.set()
            time.sleep(SECONDS)
        if question == "lead":
            last = body["messages"][-1]
            if last["role"] == "tool":
                is_whole = all(f"Yes to {q} (a book)" in _text(last) for q in QUESTIONS)
                words = "All six are known." if is_whole else "Something is missing."
                return {"role": "assistant", "content": words}
            return _call("research", {"questions": QUESTIONS})
        finding = {"fact": f"Yes to {question}", "source": "a book"}
        tools = [t["function"] for t in body.get("tools", ())]
        for tool in tools:
            if "fact" in tool["parameters"]["properties"]:
                return _call(tool["name"], finding)
            if "result" in tool["parameters"]["properties"]:
                return _call(tool["name"], {"result": finding})
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        is_wrapped = "response" in schema.get("properties", {})
        content = json.dumps({"response": finding} if is_wrapped else finding)
        return {"role": "assistant", "content": content}


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(p["text"] for p in content)


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def serve(provider: Provider) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = provider.reply(body)
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            kind = "application/json"
            if body.get("stream"):
                data, kind = _streamed(message, reason), "text/event-stream"
            else:
                data = json.dumps(_completion(message, reason)).encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


def _completion(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5"}
    return {**head, "choices": [choice], "usage": USAGE}


def _streamed(message: dict[str, Any], reason: str) -> bytes:
    delta = {**message}
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    first = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    chunks = [first, last, {**head, "choices": [], "usage": USAGE}]
    return b"".join(f"data: {json.dumps(c)}\n\n".encode() for c in chunks) + b"data: [DONE]\n\n"


def start(name: str, python: str, url: str, folder: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "a-key"}
    if name == "retinue":
        environ["PYTHONPATH"] = str(SOURCE)
    program = [python, str(FOLDER / f"research_{name}.py"), "What is known?"]
    return subprocess.Popen(program, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True)


def check(name: str, python: str) -> dict[str, Any]:
    """What came of a program, how often the provider was asked, and how often after a kill."""
    provider = Provider()
    server = serve(provider)
    url = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as second:
        answer = start(name, python, url, folder).communicate(timeout=SECONDS)[0].strip()
        calls, provider.asked = provider.asked.total(), Counter()
        provider.is_slow = True
        killed = start(name, python, url, second)
        is_reached = provider.is_reached.wait(SECONDS)
        while is_reached and len(provider.asked) < 1 + len(QUESTIONS):
            time.sleep(0.05)
        time.sleep(1.0)
        killed.kill()
        killed.communicate()
        provider.is_slow, before = False, provider.asked.total()
        again = start(name, python, url, second).communicate(timeout=SECONDS)[0].strip()
    server.shutdown()
    return {
        "answer": answer,
        "answer_after_kill": again,
        "lines": n_lines(name),
        "calls": calls,
        "calls_after_kill": provider.asked.total() - before,
    }


def n_lines(name: str) -> int:
    text = (FOLDER / f"research_{name}.py").read_text()
    return sum(1 for line in text.splitlines() if line.strip())


def main(peers: str) -> int:
    pythons = {"retinue": sys.executable}
    results = {name: check(name, pythons.get(name, peers)) for name in PROGRAMS}
    answers = {r[kind] for r in results.values() for kind in ("answer", "answer_after_kill")}
    ok = answers == {"All six are known."}
    sys.stdout.write(json.dumps({"ok": ok, **results}) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
