"""The MCP server and client before official judges: `make conform`. Ends with one line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.mcp.conformance.client_scenarios import client_reports
from tests.mcp.conformance.judges import inspector_reports, typescript_reports
from tests.mcp.conformance.suite import suite_reports
from tests.mcp.node_packages import VERSIONS, NoPackages

JUDGES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "conformance": ("@modelcontextprotocol/conformance", suite_reports),
    "client": ("@modelcontextprotocol/conformance", client_reports),
    "inspector": ("@modelcontextprotocol/inspector", inspector_reports),
    "typescript": ("@modelcontextprotocol/client", typescript_reports),
}


def report(name: str) -> dict[str, Any]:
    package, judge = JUDGES[name]
    out: dict[str, Any] = {"version": VERSIONS[package]}
    try:
        parts = judge()
    except (NoPackages, OSError, subprocess.SubprocessError) as error:
        return {**out, "error": str(error), "ok": False}
    return {**out, "reports": parts, "ok": all(part["ok"] for part in parts.values())}


def main(names: list[str]) -> int:
    reports = {name: report(name) for name in names or JUDGES}
    is_ok = all(one["ok"] for one in reports.values())
    sys.stdout.write(json.dumps({"judges": reports, "ok": is_ok}) + "\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
