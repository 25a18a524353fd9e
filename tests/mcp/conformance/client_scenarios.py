"""The client scenarios of the official conformance suite against our MCP client: a part of `make
conform`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.mcp.conformance.suite import SUITE
from tests.mcp.node_packages import node, node_modules

EXPECTED = Path(__file__).with_name("expected_client_failures.json")
CLIENT = f"{sys.executable} -m tests.mcp.conformance.client"
ROOT = Path(__file__).parents[3]
SECONDS = 900
MILLISECONDS = "120000"
"""For one scenario, on a machine that may be very busy."""
_LINE = re.compile(r"^[✓✗] ([\w/-]+): (\d+) passed, (\d+) failed(, \d+ warnings)?", re.MULTILINE)


def judged_client(text: str, expected: dict[str, str]) -> dict[str, Any]:
    """What the suite printed, against what is expected; names may be patterns."""
    rows = _LINE.findall(text)
    failed = {name for name, _, n_failed, warned in rows if n_failed != "0" or warned}
    names = {name for name in failed if any(fnmatchcase(name, one) for one in expected)}
    out: dict[str, Any] = {
        "scenarios": len(rows),
        "checks_passed": sum(int(row[1]) for row in rows),
        "passed": sorted({row[0] for row in rows} - failed),
        "expected": sorted(names),
        "unexpected": sorted(failed - names),
        "stale": sorted(
            one for one in expected if not any(fnmatchcase(name, one) for name in failed)
        ),
    }
    return {**out, "ok": bool(rows) and not out["unexpected"] and not out["stale"]}


def client_reports() -> dict[str, Any]:
    """A report for each revision of the protocol. Raises `NoPackages`."""
    program = node_modules(SUITE) / SUITE / "dist" / "index.js"
    reports: dict[str, Any] = {}
    for revision, expected in json.loads(EXPECTED.read_text()).items():
        arguments = ["client", "--requirements", revision, "--timeout", MILLISECONDS]
        process = subprocess.run(
            [node()[0], program, *arguments, "--command", CLIENT],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        reports[revision] = judged_client(process.stdout + process.stderr, expected)
        if not reports[revision]["ok"]:
            sys.stderr.write(process.stdout + process.stderr)
    return reports
