"""The TypeScript client, whose server or host is killed in the middle of an agent's work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.cli.private_home import Gate, private_home
from tests.mcp.node_packages import node

SCRIPT = Path(__file__).with_name("typescript_kills.mjs")
SECONDS = 300
ANSWER = "The answer."


def killed(era: str, folder: Path, server: tuple[str, ...], who: str) -> dict[str, Any]:
    """What the client has after the server or the host, `who`, was killed."""
    gate = Gate(ANSWER)
    with tempfile.TemporaryDirectory() as place, private_home(Path(place), gate) as home:
        process = subprocess.Popen(
            [node()[0], SCRIPT, era, folder, *server],
            env=home.env,
            cwd=home.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            pid = json.loads(process.stdout.readline())["pid"]
            assert gate.reached.wait(SECONDS), "no agent was started"
            os.kill(pid if who == "server" else home.host_pid(), signal.SIGKILL)
            gate.opened.set()
            out, problems = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            return {"error": problems[-500:], "ok": False}
        expected = {"reconnected": who == "server", "state": "completed", "text": ANSWER}
        report: dict[str, Any] = json.loads(out)
        is_once = len(gate.heard) == 1 or who == "host"
        return {**report, "ok": report == {**expected, "agents": 1} and is_once}
