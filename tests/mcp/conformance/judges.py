"""Official clients against `retinue mcp serve` itself, in both eras: the inspector's command line
and the TypeScript client. The Python client is part of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.mcp.conformance.typescript_kills import killed
from tests.mcp.node_packages import node, node_modules

INSPECTOR = "@modelcontextprotocol/inspector"
CLIENT = "@modelcontextprotocol/client"
ERAS = ("legacy", "modern")
SERVER = (sys.executable, "-m", "retinue", "mcp", "serve")
SECONDS = 300
SCRIPT = Path(__file__).with_name("typescript_client.mjs")
ASKED: dict[str, tuple[str, ...]] = {
    "tools": ("tools/list", "--strict"),  # which also judges the schemas
    "prompts": ("prompts/list",),
    "resources": ("resources/list",),
    "delegate": ("tools/call", "--tool-name", "delegate", "--tool-args-json", '{"tasks":["go"]}'),
    "agents": ("tools/call", "--tool-name", "agents"),
}
EXPECTED = {
    "tools": '"name":"delegate"',
    "prompts": '"name":"delegate"',
    "resources": '"resources":[',
    "delegate": '"text":"Done."',
    "agents": '"state":"completed"',
}


def writer(request: Any) -> Any:
    """Wants to write a file, so that a user has to be asked."""
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return results[-1].text if results else call("write", path="made.txt", content="hello")


def inspector_reports() -> dict[str, Any]:
    """By era: what each request came to. Raises `NoPackages`."""
    program = node_modules(INSPECTOR) / INSPECTOR / "clients" / "launcher" / "build" / "index.js"
    reports: dict[str, Any] = {}
    for era in ERAS:
        with tempfile.TemporaryDirectory() as folder, private_home(Path(folder)) as home:
            # It passes on only what it is told to.
            variables = [word for k, v in home.env.items() for word in ("-e", f"{k}={v}")]
            flags = ["--protocol-era", era, "--format", "json", "--connect-timeout", "120000"]
            problems = {}
            for name, words in ASKED.items():
                command = [program, "--cli", *SERVER, *variables, *flags, "--method", *words]
                result = _done(command, home)
                if result.returncode or EXPECTED[name] not in result.stdout:
                    problems[name] = (result.stdout + result.stderr)[-500:]
            reports[era] = {"asked": len(ASKED), "problems": problems, "ok": not problems}
    return reports


def typescript_reports() -> dict[str, Any]:
    """By era: what the client saw. Raises `NoPackages`."""
    folder = node_modules(CLIENT)
    reports: dict[str, Any] = {}
    for era in ERAS:
        with tempfile.TemporaryDirectory() as place, private_home(Path(place), writer) as home:
            result = _done([SCRIPT, era, folder, *SERVER], home)
        lines = result.stdout.strip().splitlines()
        if result.returncode or not lines:
            reports[era] = {"error": (result.stdout + result.stderr)[-1000:], "ok": False}
        else:
            report = json.loads(lines[-1])
            kills = {who: killed(era, folder, SERVER, who) for who in ("server", "host")}
            is_ok = report["ok"] and all(one["ok"] for one in kills.values())
            reports[era] = {**report, "kills": kills, "ok": is_ok}
    return reports


def _done(command: Sequence[Any], home: PrivateHome) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node()[0], *command],
        env=home.env,
        cwd=home.project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
