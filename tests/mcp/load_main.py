"""The MCP server under load: 50,000 odd messages, 50 clients at once, and kills in the middle of
tasks: `make guests`. Ends with one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cli.private_home import Gate, private_home
from tests.mcp.odd_messages import fuzzed
from tests.mcp.raw_client import TASKS, RawClient, envelope

TASKED = envelope({"extensions": {TASKS: {}}})


def odd_messages(folder: Path, n: int) -> dict[str, Any]:
    with private_home(folder) as home:
        out = fuzzed(home, n)
    first, *_, last = out["memory_kb"]
    return {**out, "ok": last < first * 1.1 + 4_000}


def many_clients(folder: Path, n: int) -> dict[str, Any]:
    """So many clients, each a guest with a server of its own, delegate at the same time and see
    only what is theirs."""
    first_answers: list[float] = []

    def work(number: int) -> tuple[str, ...]:
        since = time.monotonic()
        with RawClient(home, "--guest", f"g{number}") as client:
            client.ask("server/discover", {"_meta": TASKED})
            first_answers.append(time.monotonic() - since)
            task = client.tool("delegate", TASKED, tasks=[f"say {number}"])
            assert "taskId" in task, task
            get = {"taskId": task["taskId"], "_meta": TASKED}
            ended = home.until(
                lambda: (reply := client.ask("tasks/get", get))["status"] == "completed" and reply
            )
            (agent,) = ended["result"]["structuredContent"]["agents"]
            listed = client.tool("agents", envelope())["structuredContent"]["agents"]
            assert [one["id"] for one in listed] == [agent["id"]]
            assert (agent["label"], agent["text"]) == (f"say {number}", f"Heard: say {number}")
            return (agent["id"],)

    def echo(request: Any) -> str:
        return f"Heard: {request.messages[0].text}"

    since = time.monotonic()
    with private_home(folder, echo) as home, ThreadPoolExecutor(n) as pool:
        home.env["RETINUE_START_SECONDS"] = "300"  # so many start at once on a few cores
        runs = {run for (run,) in pool.map(work, range(n))}
    return {
        "clients": n,
        "seconds": round(time.monotonic() - since, 1),
        "first_answer_seconds": round(statistics.median(first_answers), 2),
        "ok": len(runs) == n,
    }


def kills(folder: Path, n: int) -> dict[str, Any]:
    """The server, the host, or both are killed in the middle of a task, again and again: each task
    has its answer, once, for the client that comes back."""
    for number in range(n):
        place = folder / str(number)
        place.mkdir()
        gate = Gate(f"Answer {number}.")
        with private_home(place, gate) as home:
            client = RawClient(home)
            task = client.tool("delegate", TASKED, tasks=["think"])["taskId"]
            assert gate.reached.wait(120)
            if number % 3 != 1:
                client.kill()
                client = RawClient(home)
            if number % 3 != 0:
                os.kill(home.host_pid(), signal.SIGKILL)
            gate.opened.set()
            get = {"taskId": task, "_meta": TASKED}
            ended = home.until(
                lambda client=client, get=get: (  # type: ignore[misc]
                    (reply := client.ask("tasks/get", get))["status"] == "completed" and reply
                )
            )
            (agent,) = ended["result"]["structuredContent"]["agents"]
            assert agent["text"] == f"Answer {number}.", agent
            listed = client.tool("agents", envelope())["structuredContent"]["agents"]
            assert [one["id"] for one in listed] == [agent["id"]] and not client.twice
            client.close()
    return {"kills": n, "ok": True}


def tried(work: Callable[[Path, int], dict[str, Any]], n: int) -> dict[str, Any]:
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return work(Path(folder), n)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500], "ok": False}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--kills", type=int, default=12)
    arguments = parser.parse_args()
    reports = {
        "odd_messages": tried(odd_messages, arguments.messages),
        "many_clients": tried(many_clients, arguments.clients),
        "kills": tried(kills, arguments.kills),
    }
    is_ok = all(one["ok"] for one in reports.values())
    load = [round(amount, 1) for amount in os.getloadavg()]
    sys.stdout.write(json.dumps({**reports, "load": load, "ok": is_ok}) + "\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
