"""The official conformance suite against our server, with the failures that are expected."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mcp.node_packages import node, node_modules

SUITE = "@modelcontextprotocol/conformance"
EXPECTED = Path(__file__).with_name("expected_failures.json")
SECONDS = 900
_LINE = re.compile(r"^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)


@contextlib.contextmanager
def fixture() -> Iterator[str]:
    """Our server with what the suite calls, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "tests.mcp.conformance.fixture_server", str(port)]
    process = subprocess.Popen(program)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://localhost:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def judged(text: str, expected: dict[str, str]) -> dict[str, Any]:
    """What the suite printed, against what is expected."""
    failed = {name for name, _, n_failed in _LINE.findall(text) if n_failed != "0"}
    names = {name for name, _, _ in _LINE.findall(text)}
    out: dict[str, Any] = {
        "scenarios": len(names),
        "checks_passed": sum(int(passed) for _, passed, _ in _LINE.findall(text)),
        "tasks": sorted(name for name in names if name.startswith("tasks-")),
        "expected": sorted(failed & set(expected)),
        "unexpected": sorted(failed - set(expected)),
        "stale": sorted(set(expected) - failed),
    }
    return {**out, "ok": bool(names) and not out["unexpected"] and not out["stale"]}


def suite_reports() -> dict[str, Any]:
    """By revision of the protocol. Raises `NoPackages`."""
    program = node_modules(SUITE) / SUITE / "dist" / "index.js"
    reports: dict[str, Any] = {}
    with fixture() as url, tempfile.TemporaryDirectory() as folder:
        for revision, allowed in json.loads(EXPECTED.read_text()).items():
            arguments = ["server", "--url", url, "--requirements", revision]
            process = subprocess.run(
                [node()[0], program, *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            reports[revision] = judged(process.stdout, allowed)
            if not reports[revision]["ok"]:
                sys.stderr.write(process.stdout + process.stderr)
    return reports
