"""Messages that are almost some, and a server that gets thousands of them."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

from tests.cli.private_home import PrivateHome
from tests.mcp.raw_client import TASKS, RawClient, envelope

WORDS = ["tools/call", "tools/list", "initialize", "ping", "server/discover", "tasks/get"]
WORDS += ["resources/read", "prompts/get", "notifications/cancelled", "tasks/cancel", "x/y"]
WORDS += ["resources/subscribe", "subscriptions/listen", "notifications/roots/list_changed"]
CODES = {-32700, -32600, -32601, -32602, -32603, -32021, -32022, -32002}
PARTS = 5


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can say, and often what a field wants."""
    kind = rng.randrange(9 if depth < 3 else 6)
    match kind:
        case 0:
            return rng.choice([None, True, False])
        case 1:
            return rng.choice([0, -1, 1.5, 1e308, 2**63, 10**30])
        case 2 | 3:
            return rng.choice([*WORDS, "", "retinue://runs/x/transcript", "2026-07-28", "delegate"])
        case 4 | 5:
            return "".join(rng.choices(string.printable + "äß💥\u2028", k=rng.randrange(30)))
        case 6:
            return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            names = ["name", "arguments", "_meta", "taskId", "uri", "id", "ids", "requestId", "x"]
            return {rng.choice(names): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def line(rng: random.Random, id: int) -> bytes:
    """A message that is almost one."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": rng.choice(WORDS)}
    params = value(rng)
    if rng.random() < 0.7:
        params = params if isinstance(params, dict) else {"x": params}
        params.setdefault("_meta", envelope({"extensions": {TASKS: {}}}))
        if message["method"] == "tools/call":
            # Nothing that would start a run: those have tests of their own.
            params["name"] = rng.choice(["agents", "result", "send", "answer", "nothing", 7])
    else:
        message["method"] = rng.choice(WORDS[1:])
    message["params"] = params
    for _ in range(rng.randrange(2)):
        message[rng.choice(["jsonrpc", "id", "method", "params", "more"])] = value(rng)
    data = json.dumps(message, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        position = rng.randrange(len(data))
        data = (
            data[:position]
            + bytes(rng.choices(range(256), k=rng.randrange(3)))
            + data[position + 1 :]
        )
    return data.replace(b"\n", b" ")


def memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def fuzzed(home: PrivateHome, n: int, seed: int = 17) -> dict[str, Any]:
    """Send so many of them to one server: it answers by the specification, tells nothing that is
    another guest's, and goes on. How many errors there were, and its memory along the way."""
    rng, meta, sizes = random.Random(seed), envelope(), list[int]()
    with RawClient(home, "--guest", "other") as other, RawClient(home) as client:
        secret = "What only the other guest may see."
        other.tool("delegate", meta, tasks=[secret], background=True)
        client.tool("agents", meta)
        n_errors = 0
        for part in range(PARTS):
            for i in range(n // PARTS):
                client.write(line(rng, part * n + i + 10) + b"\n")
            # What was sent before has been read when this is answered.
            assert client.reply(client.post("tools/list", {"_meta": meta}, id=f"p{part}"))
            assert client.tool("agents", meta)["structuredContent"] == {"agents": []}
            sizes.append(memory(client.process.pid))
            replies = client.taken_replies()
            errors = [reply["error"] for reply in replies if "error" in reply]
            assert {error["code"] for error in errors} <= CODES
            assert all(isinstance(error["message"], str) for error in errors)
            assert secret not in json.dumps(replies)
            n_errors += len(errors)
        assert client.odd == [] and client.process.poll() is None
    return {"messages": n, "errors": n_errors, "memory_kb": sizes}
